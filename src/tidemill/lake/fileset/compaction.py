"""Compaction: the rows of a partition in fewer files, without a change of the partition.

A compaction names the changes whose rows it holds. Readers of the whole partition read the compaction instead of the
files of these changes. Consumers go by changes, which stay with their files: so a compaction delivers nothing, and
takes nothing from a consumer. A commit that replaces one of the named changes wins; the compaction is refused.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Transaction, UndeclaredOutput
from tidemill.errors import Conflict
from tidemill.lake.fileset.fileset import Fileset, Partition
from tidemill.lake.fileset.stored import FILE_BYTES
from tidemill.lake.fileset.totals import replace_compacted
from tidemill.names import DatasetId
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import Manifest, tx_directory

if TYPE_CHECKING:
    from tidemill.lake.fileset.compaction_sql import Sql

SQL: Sql = load_sql(__file__)

_WORTH: Final = 2
"""A compaction has to leave a half of the files at most: else it would copy much to save little."""


@refusal
class CompactionConflict(Conflict):
    """Another transaction replaced, dropped or compacted a partition while a compaction read it."""

    code = "compaction_conflict"

    def __init__(self, dataset: str, partition: str, run: str) -> None:
        self.dataset = dataset
        self.partition = partition
        self.run = run
        super().__init__(
            f"partition {partition} of {dataset} was replaced, dropped or compacted by {run} during this compaction; "
            "nothing was compacted",
            "run again",
        )


@dataclass(frozen=True, slots=True)
class CompactedPartition:
    """A partition as a compaction read it, and the files that hold its rows now."""

    before: Partition
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Compact(Effect):
    """Publish compactions of partitions of a file set, as `tx` has read them; announces nothing."""

    phase = Phase.PUBLISH

    tx: Transaction
    fileset: Fileset
    partitions: Sequence[CompactedPartition]

    def __post_init__(self) -> None:
        """Refuse a file set that was not declared at begin."""
        if self.fileset.dataset_id not in self.tx.writes:
            raise UndeclaredOutput(self.fileset.qualified_name, str(self.tx.write_pointer))

    def guards(self) -> Sequence[Call]:
        """Refuse what was replaced, dropped or compacted since the transaction began."""
        place: dict[str, Param] = {
            "dataset_id": self.fileset.dataset_id,
            "dataset": self.fileset.qualified_name,
        }
        wanted = [
            {
                "partition_key": one.before.partition_key,
                "shown": self.fileset.show(one.before.partition_key),
                "base": max((int(change.write_pointer) for change in one.before.changes if change.compacts), default=0),
            }
            for one in self.partitions
        ]
        return (
            SQL.refuse_replaced(**place, named=json.dumps(self._named)),
            SQL.refuse_compacted(**place, wanted=json.dumps(wanted)),
        )

    def writes(self) -> Sequence[Call]:
        """Mark the changes, supersede earlier compactions, insert the new ones."""
        dataset_id = self.fileset.dataset_id
        keys = [one.before.partition_key for one in self.partitions]
        made = [
            {
                "partition_key": one.before.partition_key,
                "manifest": base64.b64encode(one.manifest.encode()).decode(),
                "files": len(one.manifest.files),
                "bytes": one.manifest.total_bytes,
                "row_count": one.manifest.total_rows,
            }
            for one in self.partitions
        ]
        inserted: dict[str, Param] = {
            "dataset_id": dataset_id,
            "write_pointer": self.tx.write_pointer,
            "location": tx_directory(self.tx),
            "run_id": self.tx.run_id,
            "made": json.dumps(made),
        }
        named = json.dumps(self._named)
        return (
            replace_compacted(dataset_id, named, keys, [one.manifest for one in self.partitions]),
            SQL.mark_compacted(dataset_id=dataset_id, named=named),
            supersede_compactions(dataset_id, keys),
            SQL.insert_compactions(**inserted),
        )

    @property
    def _named(self) -> list[dict[str, object]]:
        return [
            {
                "write_pointer": change.write_pointer,
                "partition_key": change.partition_key,
                "shown": self.fileset.show(change.partition_key),
            }
            for one in self.partitions
            for change in one.before.changes
            if not change.compacts
        ]


def supersede_compactions(dataset_id: DatasetId, keys: Iterable[KeyText]) -> Call:
    """Return the statement that ends the current compactions of these partitions with the commit."""
    return SQL.supersede_compactions(dataset_id=dataset_id, keys=json.dumps(list(keys)))


def is_worth_compacting(partition: Partition) -> bool:
    """Say whether the rows of a partition fit into half as many files, or fewer. Pure."""
    merged = sum(len(change.manifest.files) for change in partition.changes if change.compacts)
    return len(partition.files) >= _WORTH * needed_files(1, partition.bytes, merged)


def needed_files(partitions: int, size: int, merged: int) -> int:
    """Return the number of files that hold so many bytes of so many partitions. Pure.

    Not fewer than the `merged` files that compactions have made of them: Spark goes by the size of rows in memory, so
    another compaction would make as many again.
    """
    return max(partitions + size // FILE_BYTES, merged)
