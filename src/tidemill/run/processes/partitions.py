"""Acts of a person or a rule on partitions, each in its own transaction: drop, retention, adoption."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.errors import Conflict, UserError
from tidemill.lake.datasets import DatasetKind, list_datasets
from tidemill.lake.fileset.adopt import Refusal, look_through
from tidemill.lake.fileset.compaction import is_worth_compacting
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition, find_schema, read_partitions
from tidemill.lake.fileset.publish import MOST_CHANGES
from tidemill.lake.fileset.time_travel import now
from tidemill.lake.snapshot.snapshot import NotASnapshot
from tidemill.run.processes.external import open_transaction, outputs_of
from tidemill.run.step.outputs import Dropped, describe_partition
from tidemill.shapes.filters import KeyFilter, Range, Where, make_filter
from tidemill.shapes.keys import KeyText, KeyType
from tidemill.storage.file_names import check_file_name
from tidemill.storage.locations import open_files
from tidemill.world import World

_log = logging.getLogger(__name__)

_TIMES: Final = (KeyType.DATE, KeyType.TIMESTAMP)


class NoPartitionTime(UserError):
    """Retention by time was asked of a file set whose keys have no time."""

    code = "no_partition_time"
    hint = "declare a key with a field that is a date or timestamp"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(f"partitions of {dataset} have no time: no field of their key is a date or timestamp")


@dataclass(frozen=True, slots=True)
class Adoption:
    """Result of an adoption: partitions registered, with rows and bytes, partitions known before, and refused ones."""

    partitions: int
    rows: int
    bytes: int
    known: int
    transactions: int
    refused: tuple[Refusal, ...]


def list_matching(catalog: Catalog, fileset: Fileset, where: KeyFilter) -> list[Dropped]:
    """The partitions that a drop would drop now."""
    return [describe_partition(fileset, partition) for partition in _read_current(catalog, fileset, where)]


def find_fragmented(catalog: Catalog, fileset: Fileset, where: KeyFilter) -> list[Partition]:
    """Return the partitions that `where` accepts and a compaction would improve now. `NotASnapshot` for a snapshot."""
    if fileset.dataset.kind is DatasetKind.SNAPSHOT:
        why = "is a snapshot: each refresh writes all of its files, so there is nothing to compact"
        raise NotASnapshot(fileset.qualified_name, why)
    return [one for one in _read_current(catalog, fileset, where) if is_worth_compacting(one)]


def _read_current(catalog: Catalog, fileset: Fileset, where: KeyFilter) -> list[Partition]:
    def block(db: Db) -> list[Partition]:
        return read_partitions(db, fileset.dataset_id, now(db, catalog.incarnation), where, compacted=True)

    return catalog.read(block)


def drop_matching(
    catalog: Catalog,
    world: World,
    fileset: Fileset,
    where: KeyFilter,
    also: Callable[[Sequence[Dropped]], Sequence[Effect]] = lambda _: (),
) -> list[Dropped]:
    """Drop the partitions that `where` accepts, in one transaction, and return them.

    If there are some, the transaction takes along what `also` gives for them. `Conflict`: nothing was dropped.
    """
    taken: list[Effect] = []
    with open_transaction(catalog, world, [fileset.qualified_name], also=taken) as tx:
        if dropped := outputs_of(tx).drop(fileset.qualified_name, where):
            taken += also(dropped)
    return dropped


def find_outlived(catalog: Catalog, fileset: Fileset, age: timedelta) -> KeyFilter:
    """The partitions whose time was over at least `age` ago: by the first field of the key that is a time.

    Days are those of UTC. Raises `NoPartitionTime`.
    """
    field = next((field for field in fileset.keys.fields if field.type in _TIMES), None)
    if field is None:
        raise NoPartitionTime(fileset.qualified_name)
    moment = catalog.read(lambda db: db.now()) - age
    where: Where = {field.name: Range(None, moment.date() if field.type is KeyType.DATE else moment)}
    return make_filter(fileset.keys, where)


def apply_retention(catalog: Catalog, world: World) -> int:
    """Drop what has outlived the `retention` of its file set; how many partitions. A conflict waits for the next time.

    Cost: a look-up a file set with a retention.
    """

    def find(db: Db) -> list[Fileset]:
        filesets = [Fileset.of(one) for one in list_datasets(db) if one.kind is DatasetKind.FILESET]
        return [fileset for fileset in filesets if fileset.storing.retention is not None]

    dropped = 0
    for fileset in catalog.read(find):
        assert fileset.storing.retention is not None, "as chosen above"  # noqa: S101
        outlived = find_outlived(catalog, fileset, fileset.storing.retention)
        if not list_matching(catalog, fileset, outlived):
            continue
        try:
            gone = drop_matching(catalog, world, fileset, outlived)
        except Conflict as error:
            _log.warning("retention of %s waits: %s", fileset.qualified_name, error)
            continue
        _log.info("retention of %s dropped %s", fileset.qualified_name, ", ".join(one.partition for one in gone))
        dropped += len(gone)
    return dropped


def adopt_partitions(
    catalog: Catalog,
    world: World,
    fileset: Fileset,
    below: str = "",
    *,
    batch: int = MOST_CHANGES,
    note: Callable[[Sequence[str]], Effect] | None = None,
    at_last: Callable[[Adoption], Sequence[Effect]] = lambda _: (),
) -> Adoption:
    """Register what lies below the folder `below` of the file set's location, in Hive's layout, as its partitions.

    The files stay where they are, and are never deleted by Tidemill. Idempotent: what is registered is passed over, so
    that a call that was ended in the middle goes on. At most `batch` partitions a transaction. Each transaction takes
    along the `note` of its partitions, and the last one what `at_last` gives for the result. `SchemaConflict` if
    another transaction has added a column meanwhile: call again.
    """
    from tidemill.frames.schema import look_into

    files = open_files(fileset.dataset.location, world)
    below = check_file_name(below.strip("/")) if below.strip("/") else ""

    def block(db: Db) -> tuple[dict[KeyText, str], ColumnSchema | None]:
        found = read_partitions(db, fileset.dataset_id, now(db, catalog.incarnation))
        places = {partition.partition_key: partition.changes[0].location for partition in found}
        return places, find_schema(db, fileset.dataset_id)

    places, base = catalog.read(block)
    tree = look_through(fileset, files, below, places, base, look_into)
    starts = range(0, len(tree.writes), batch)
    adoption = Adoption(
        len(tree.writes),
        sum(write.manifest.total_rows for write in tree.writes),
        sum(write.manifest.total_bytes for write in tree.writes),
        tree.known,
        len(starts),
        tuple(tree.refused),
    )
    for start in starts:
        writes = tree.writes[start : start + batch]
        taken = [] if note is None else [note([fileset.keys.show(one.key) for one in writes])]
        taken += at_last(adoption) if start == starts[-1] else ()
        with open_transaction(catalog, world, [fileset.qualified_name], also=taken) as tx:
            outputs_of(tx).register(fileset.qualified_name, writes, tree.columns, base=base)
        base = tree.columns
    return adoption
