"""Following of monitored tables: a listing of the directories, and the transaction that publishes what it found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.frames.hive_rows import LINES
from tidemill.lake.fileset.adopt import Look, Refusal, TreeDirectory, find_above, list_directories
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition, WriteOp, find_schema, read_partitions
from tidemill.lake.fileset.monitor import (
    Comparison,
    HoldListings,
    TreeMemory,
    compare,
    find_changed,
    find_newest,
    find_vanished,
    have_others_changed,
    list_adopted,
    note_root,
)
from tidemill.lake.fileset.publish import MOST_CHANGES
from tidemill.lake.fileset.stored import HiveName, count_lines, count_others, count_rows
from tidemill.lake.fileset.time_travel import now
from tidemill.lake.window.watermark import MarkPartitions, list_unmarked
from tidemill.names import CommitSeq
from tidemill.run.processes.external import open_transaction, outputs_of
from tidemill.shapes.formats import BadFormat, FileFormat
from tidemill.shapes.keys import BadKey, KeyText
from tidemill.storage.files import Files
from tidemill.storage.locations import open_files, path_for_readers
from tidemill.storage.metastore import HivePartition, open_metastore

_MOST_LOOK_UPS: Final = 100
"""Changed directories whose partitions are looked up one by one. For more, all partitions are read."""
_NO_SIGN: Final = 0
"""The sign of a directory that was refused, or not seen: each listing looks at the directory again."""
_MAY_BE_READ: Final = (
    "whose files some readers count, as after a UNION ALL of Hive: move the files to the directory of the partition"
)
_PACKED: Final = (".bz2", ".deflate", ".gz", ".lz4", ".snappy", ".zst")
"""Ends of the names of compressed files, of which Spark and Hive unpack text."""


@dataclass(frozen=True, slots=True)
class Followed:
    """Result of a listing of a monitored table, in partitions; `complete` got their markers and did not change else."""

    added: int = 0
    changed: int = 0
    dropped: int = 0
    complete: int = 0
    rows: int = 0
    refused: tuple[Refusal, ...] = ()


def follow_table(
    catalog: Catalog, fileset: Fileset, memory: TreeMemory, process: str, *, batch: int = MOST_CHANGES
) -> Followed:
    """List the directories of a table and publish what has appeared, changed and vanished since, in one transaction.

    `process` has charge of the listings; `ListedElsewhere` if the charge is lost. A transaction has at most `batch`
    partitions. A process that dies leaves nothing half done: the next listing finds the same. A listing that finds
    nothing new writes nothing.

    Cost: the listing, the partitions that wait for their markers, and a look into each new file. With an empty `memory`
    also all partitions of the table.
    """
    files = open_files(fileset.dataset.location, catalog.world, fileset.dataset.root)
    newest, unmarked = catalog.read(lambda db: (find_newest(db, fileset.dataset_id), _read_unmarked(db, fileset)))
    if memory.known != (newest, fileset.dataset.generation):
        memory.forget()
    listed: Iterable[TreeDirectory] = list_directories(fileset, files)
    if fileset.storing.hive is not None:
        listed = list_in_metastore(fileset, fileset.storing.hive, memory, listed)
    changed, signs = find_changed(fileset, memory, listed, unmarked)
    vanished, unseen = find_vanished(memory.seen.keys(), signs, changed)
    root = files.check_location()  # an unmounted disk is no table without files
    if root != fileset.dataset.root:
        catalog.write(lambda db: note_root(db, fileset, root))
    if memory.known is not None and not changed and not vanished:
        return Followed()
    directories = None if memory.known is None else [*(one.name for one in changed), *vanished]
    present, columns, seen = catalog.read(lambda db: _read_present(db, catalog, fileset, directories))
    if memory.known is None:
        vanished, unseen = find_vanished(list_adopted(fileset, present.values()).keys(), signs, changed)
    look = _look_for(fileset, columns)
    found = compare(fileset, files, changed, vanished, present, unmarked, columns, look)
    memory.forget()
    own = _publish(catalog, fileset, found, columns, seen, HoldListings(fileset, process), batch)
    refused = {one.directory for one in found.refused}
    signs |= dict.fromkeys([*unseen, *(name for name in signs if (name or ".") in refused)], _NO_SIGN)

    def find_known(db: Db) -> tuple[CommitSeq, int] | None:
        # First: a commit after it does not count as known.
        known = find_newest(db, fileset.dataset_id), fileset.dataset.generation
        return None if have_others_changed(db, fileset.dataset_id, newest, own) else known

    memory.seen, memory.known = signs, catalog.read(find_known)
    return _summarize(found)


def list_in_metastore(
    fileset: Fileset, hive: HiveName, memory: TreeMemory, listed: Iterable[TreeDirectory]
) -> list[TreeDirectory]:
    """Return the partitions that the metastore has, with what is `listed` of their directories.

    Errors: `MetastoreUnavailable`. Cost: the names of all partitions, and a description of those that are new.
    """
    with open_metastore(hive.metastore) as metastore:
        names = metastore.list_partitions(hive.database, hive.table)
        new = [one for one in names if not memory.seen.get(one)]
        known = metastore.find_partitions(hive.database, hive.table, new)
    trees = {one.name: one for one in listed}
    unread = {name: one.fault for name, one in trees.items() if one.fault}
    partitions = set(names)
    for name in sorted(trees.keys() - partitions):
        around = find_above(name, partitions)
        if around is not None:
            unread.setdefault(around, f"it has the directory {name.removeprefix(around)[1:]}, {_MAY_BE_READ}")
    base = path_for_readers(fileset.dataset.location)
    found = []
    for name in sorted(partitions):
        tree, above = trees.get(name, TreeDirectory(name, [], frozenset())), find_above(name, unread)
        fault = "" if above is None else unread[above]
        if name in known:
            fault = find_fault(fileset, known[name], f"{base}/{name}") or fault
        found.append(replace(tree, listed=True, fault=fault))
    return found


def find_fault(fileset: Fileset, partition: HivePartition, usual: str) -> str:
    """Return why a partition of Hive cannot be read like the others of its table; empty if it can be."""
    # Hadoop's locations are no URLs: nothing in them is encoded.
    if partition.location.removeprefix("file://") != usual:
        where = partition.location
        return f"the metastore says that its files are at {where}: they have to be in the directory of the table"
    lines = fileset.storing.hive.lines if fileset.storing.hive else None
    cure = "write it again by INSERT OVERWRITE in Hive, which gives it those of the table"
    if lines is None and partition.file_format not in {"", "text", fileset.storing.format.value}:
        return f"its files are {partition.file_format} in Hive, and those of the table {fileset.storing.format}: {cure}"
    if lines is not None and partition.lines is None:
        return f"Hive reads its files by other classes than the text of the table: {cure}"
    if lines is not None and partition.lines != lines:
        return (
            f"its delimiters in Hive are {partition.lines}, and those of the table {lines}: give it those of the table "
            "by ALTER TABLE … PARTITION (…) SET SERDEPROPERTIES if its files have them. Else write it again"
        )
    return ""


def _publish(
    catalog: Catalog,
    fileset: Fileset,
    found: Comparison,
    base: ColumnSchema | None,
    seen: int,
    hold: Effect,
    batch: int,
) -> list[int]:
    """Publish the writes and the markers; return the write pointers of the transactions.

    `PartitionConflict` if a run has changed a partition since the commit `seen`, with which the directories were
    compared: an overwrite would lose its rows.
    """
    pointers = []
    for start in range(0, len(found.writes), batch):
        writes = found.writes[start : start + batch]
        with open_transaction(catalog, catalog.world, [fileset.qualified_name], also=[hold]) as tx:
            outputs_of(tx).register(fileset.qualified_name, writes, found.columns, base=base, seen=seen)
        base = found.columns
        pointers.append(tx.write_pointer)
    if found.marked:
        catalog.apply([hold, MarkPartitions(fileset, found.marked)])
    return pointers


def _read_present(
    db: Db, catalog: Catalog, fileset: Fileset, directories: list[str] | None
) -> tuple[dict[KeyText, Partition], ColumnSchema | None, int]:
    """Return the partitions in these directories, or all, the columns of the table, and its newest commit before."""
    # First: on PostgreSQL each statement sees what has been committed by then, and a commit in between is refused.
    seen = find_newest(db, fileset.dataset_id)
    snapshot = now(db, catalog.incarnation)
    found: Iterable[Partition]
    if directories is None or len(directories) > _MOST_LOOK_UPS:
        found = read_partitions(db, fileset.dataset_id, snapshot)
    else:
        found = [
            partition
            for key in _keys_of(fileset, directories)
            for partition in read_partitions(db, fileset.dataset_id, snapshot, bounds=(key, KeyText(f"{key}\x01")))
        ]
    present = {one.partition_key: one for one in found}
    return present, find_schema(db, fileset.dataset_id), seen


def _read_unmarked(db: Db, fileset: Fileset) -> set[KeyText]:
    """Return the partitions that wait for their markers."""
    waits = fileset.watermark is not None and fileset.watermark.completeness.marker is not None
    return list_unmarked(db, fileset) if waits else set()


def _keys_of(fileset: Fileset, directories: Iterable[str]) -> list[KeyText]:
    keys = []
    for directory in directories:
        try:
            keys.append(fileset.keys.encode(fileset.keys.from_path(directory)))
        except BadKey:
            continue  # the comparison refuses it by name
    return keys


def _look_for(fileset: Fileset, columns: ColumnSchema | None) -> Look:
    """Return how to look into a file. A file of text does not say its columns: they are as declared."""
    if fileset.storing.format in {FileFormat.PARQUET, FileFormat.ORC}:
        from tidemill.frames.schema import look_into

        return look_into

    hive = fileset.storing.hive

    def count(files: Files, name: str, file_format: FileFormat) -> tuple[int, ColumnSchema]:
        if name.endswith(_PACKED):
            raise BadFormat(file_format, "the file is compressed, so that its rows cannot be counted: write it plain")
        if hive is not None and hive.lines is not None and columns is not None:
            return count_lines(files, name), columns
        if file_format is FileFormat.TEXT:
            return count_rows(files, name, file_format), columns or LINES
        if columns is None:
            raise BadFormat(file_format, "its files do not say which columns they have: declare them by CREATE TABLE")
        return count_others(files, name, file_format, columns.names), columns

    return count


def _summarize(found: Comparison) -> Followed:
    ops = [write.op for write in found.writes]
    return Followed(
        added=ops.count(WriteOp.CREATE),
        changed=ops.count(WriteOp.APPEND) + ops.count(WriteOp.OVERWRITE),
        dropped=ops.count(WriteOp.DROP),
        complete=len(found.marked),
        rows=sum(write.manifest.total_rows for write in found.writes),
        refused=tuple(found.refused),
    )
