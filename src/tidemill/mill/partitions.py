"""What can be done with the partitions of file sets: drop, retention, metadata, adoption; and what was."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import cast

from tidemill.durations import parse_duration
from tidemill.errors import NotFound, UserError
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.filters import KeyFilter, Where, choose
from tidemill.lake.keys import KeyText
from tidemill.mill.datasets import SQL
from tidemill.mill.project import Project
from tidemill.names import RunId
from tidemill.run.external import open_transaction
from tidemill.run.outputs import Compacted, Dropped
from tidemill.run.partitions import (
    Adoption,
    adopt_partitions,
    drop_matching,
    find_fragmented,
    find_outlived,
    list_matching,
)
from tidemill.run.session import settings_of, spark_of_our_own


class PartitionNotAdded(UserError):
    """Files that are there and cannot be the partition that was asked for."""

    code = "partition_not_added"

    def __init__(self, dataset: str, partition: str, why: str) -> None:
        self.dataset = dataset
        self.partition = partition
        self.why = why
        super().__init__(f"partition {partition} cannot be added to {dataset}: {why}")


@dataclass(frozen=True, slots=True)
class DroppedView:
    """A drop of the past: what, when, by which run."""

    partition: str
    write_pointer: int
    commit_seq: int
    run_id: RunId
    dropped_at: int


@dataclass(frozen=True, slots=True)
class SchemaView:
    """Columns that a file set has had since a commit, as Spark's JSON, with the run that introduced them."""

    schema: str
    commit_seq: int
    run_id: RunId


class Partitions(Project):
    """Operations on partitions, each in a transaction of its own."""

    def drop_partitions(self, name: str, where: Where | Sequence[str], *, dry_run: bool = False) -> list[Dropped]:
        """Drop the partitions that `where` accepts, in values or as people write it; what they are.

        With `dry_run` nothing happens. Raises `BadKey`, `NotFound`; `Conflict` when somebody worked on one of them.
        """
        fileset = self._fileset(name)
        if not where:
            raise UserError(f"say which partitions of {fileset.qualified_name} to drop: nothing means all of them")
        return self._drop(fileset, choose(fileset.keys, where), dry_run=dry_run)

    def expire_partitions(
        self, name: str, older_than: str | timedelta | None = None, *, dry_run: bool = False
    ) -> list[Dropped]:
        """Drop the partitions whose time was over `older_than` ago, else the file set's `retention`; what they are."""
        fileset = self._fileset(name)
        age = fileset.storing.retention if older_than is None else parse_duration(older_than)
        if age is None:
            raise UserError(f"{fileset.qualified_name} is declared without retention: say how old partitions may be")
        return self._drop(fileset, find_outlived(self.catalog, fileset, age), dry_run=dry_run)

    def compact_partitions(self, name: str, where: Where | Sequence[str] = ()) -> list[Compacted]:
        """Put the rows of each partition with many small files into fewer files; return these partitions.

        `where` chooses partitions, in values or as people write it. Uses the Spark of this process, which is started if
        there is none and there is work. The rows stay the same, and consumers get nothing. Raises `BadKey`, `NotFound`;
        `Conflict` when another transaction replaced such a partition meanwhile.
        """
        fileset = self._fileset(name)
        accepted = choose(fileset.keys, where)
        if not find_fragmented(self.catalog, fileset, accepted):
            return []
        with (
            spark_of_our_own(self.world, self.config.state, self.config.cache, settings_of(self.config)) as spark,
            open_transaction(self.catalog, self.world, [fileset.qualified_name], lease=self.config.lease) as tx,
        ):
            return tx.compact(spark, fileset.qualified_name, where=accepted)

    def list_dropped(self, name: str, *, limit: int = 100) -> list[DroppedView]:
        """The newest drops of a file set first."""
        fileset = self._fileset(name)
        rows = self.catalog.read(lambda db: db.all(SQL.list_dropped, dataset_id=fileset.dataset_id, limit=limit))
        return [
            DroppedView(
                fileset.show(KeyText(str(key))), cast("int", w), cast("int", seq), RunId(str(run)), cast("int", at)
            )
            for key, w, seq, run, at in rows
        ]

    def list_schemas(self, name: str) -> list[SchemaView]:
        """The columns that a file set has had, the oldest first."""
        fileset = self._fileset(name)
        rows = self.catalog.read(lambda db: db.all(SQL.list_schemas, dataset_id=fileset.dataset_id))
        return [SchemaView(str(schema), cast("int", seq), RunId(str(run))) for schema, seq, run in rows]

    def describe_partition(
        self,
        name: str,
        key: Mapping[str, object] | str,
        *,
        add: Mapping[str, str] | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002  # the word for it
        remove: Collection[str] = (),
    ) -> None:
        """Change the metadata of one partition, given in values or as people write it; see `Output.describe`."""
        fileset = self._fileset(name)
        if isinstance(key, str):
            key = dict(zip(fileset.keys.names, fileset.keys.parse(key), strict=True))
        with open_transaction(self.catalog, self.world, [fileset.qualified_name], lease=self.config.lease) as tx:
            tx.fileset(fileset.qualified_name).describe(key, add=add, set=set, remove=remove)

    def adopt_partitions(self, name: str, below: str = "") -> Adoption:
        """Register the files that lie in the location of a file set in Hive's layout; see `tidemill dataset adopt`."""
        return adopt_partitions(self.catalog, self.world, self._fileset(name), below)

    def add_partition(self, name: str, key: Mapping[str, object] | str) -> Adoption:
        """Register the files of one partition, in values or as people write it, that lie there in Hive's layout.

        `NotFound` when there are none, `PartitionNotAdded` when they cannot be that partition.
        """
        fileset = self._fileset(name)
        checked = fileset.keys.parse(key) if isinstance(key, str) else fileset.keys.check(key)
        place = fileset.keys.to_path(checked)
        done = adopt_partitions(self.catalog, self.world, fileset, place)
        if done.refused:
            raise PartitionNotAdded(fileset.qualified_name, fileset.keys.show(checked), done.refused[0].why)
        if not done.partitions + done.known:
            raise NotFound("files of a partition", f"{fileset.dataset.location}/{place}")
        return done

    def _drop(self, fileset: Fileset, where: KeyFilter, *, dry_run: bool) -> list[Dropped]:
        found = list_matching(self.catalog, fileset, where)
        return found if dry_run or not found else drop_matching(self.catalog, self.world, fileset, where)

    def _fileset(self, name: str) -> Fileset:
        return Fileset.of(self.catalog.read(lambda db: self._dataset(db, name)))
