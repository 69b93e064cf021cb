"""Monitored tables: file sets whose directories other programs write, and that listings bring up to date.

One process has charge of the listings of a table, as of those of an inbox (`discovery.take_listing`). What a listing
shows is compared with the catalog: directories that appeared, changed and vanished become created, appended or
overwritten, and dropped partitions. The files stay where they are.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.epoch import to_micros
from tidemill.errors import Conflict
from tidemill.lake.fileset.adopt import (
    NOT_READABLE,
    Look,
    Refusal,
    TreeDirectory,
    find_above,
    look_at_files,
    refusal_of,
)
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition, WriteOp
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.names import CommitSeq, DatasetId
from tidemill.shapes.keys import BadKey, Key, KeyText
from tidemill.shapes.manifest import DataFile, Manifest, find_snapshot
from tidemill.shapes.watermark_spec import INTERVAL, PartitionOrder, WatermarkSpec, read_start
from tidemill.storage.files import Files, second_of

if TYPE_CHECKING:
    from tidemill.lake.fileset.monitor_sql import Sql

SQL: Sql = load_sql(__file__)

_OURS: Final = "Tidemill has written to the partition too: move one of the two to another partition"


@refusal
class ListedElsewhere(Conflict):
    """Another process has charge of the listings of a table by now."""

    code = "listed_elsewhere"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"the listings of {dataset} are in the charge of another process, or begin again; nothing was published",
            "the next listing finds the same",
        )


@dataclass(frozen=True, slots=True)
class HoldListings(Effect):
    """Commit only while `process` has charge of the listings of a table.

    Without it two processes could publish the same new file, each as an append. A charge that has ended counts until
    another process has taken it.
    """

    phase = Phase.ANNOUNCE

    fileset: Fileset
    process: str

    def guards(self) -> Sequence[Call]:
        """Lock the charge, so that no other process takes it before the commit, and compare its holder."""
        one: dict[str, Param] = {"dataset_id": self.fileset.dataset_id}
        compared: dict[str, Param] = {**one, "dataset": self.fileset.qualified_name, "process": self.process}
        return SQL.lock_charge(**one), SQL.refuse_other_charge(**compared)

    def writes(self) -> Sequence[Call]:
        """Nothing."""
        return ()


@dataclass(slots=True)
class TreeMemory:
    """Memory of one process about the directories of a table, in 64 bits each: unchanged ones cost no look-up.

    It counts only while nothing else has changed the table or its declaration.
    """

    seen: dict[str, int] = field(default_factory=dict)
    known: tuple[CommitSeq, int] | None = None
    """The newest commit to the table and the generation of its declaration. None for an empty memory."""

    def forget(self) -> None:
        """Compare all directories with the catalog at the next listing."""
        self.seen, self.known = {}, None


@dataclass(slots=True)
class Comparison:
    """Difference between a listing and the catalog.

    `columns` are those of the table, merged with those of new files. `marked` are partitions whose markers are there
    now.
    """

    columns: ColumnSchema | None
    writes: list[PartitionWrite] = field(default_factory=list)
    marked: list[Key] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


def declare_monitoring(db: Db, fileset: Fileset) -> None:
    """Have a table listed at once and from then on, if its declaration says so. Part of the declaration."""
    if fileset.storing.monitor_every is None:
        db.run(SQL.delete_charge, dataset_id=fileset.dataset_id)
    else:
        db.run(SQL.put_charge, dataset_id=fileset.dataset_id)


def find_newest(db: Db, dataset_id: DatasetId) -> CommitSeq:
    """Return the newest commit that has changed a table, 0 for none. Cost: a look-up."""
    return db.value(SQL.find_newest, CommitSeq, dataset_id=dataset_id) or CommitSeq(0)


def have_others_changed(db: Db, dataset_id: DatasetId, since: CommitSeq, own: Sequence[int]) -> bool:
    """Return whether another transaction than those `own` has changed a table after `since`. Cost: what came since."""
    return bool(db.value(SQL.count_others, int, dataset_id=dataset_id, since=since, own=json.dumps(own)))


def note_root(db: Db, fileset: Fileset, root: str | None) -> None:
    """Note which folder has the files: an empty folder of another identity is an unmounted disk."""
    db.run(SQL.note_root, dataset_id=fileset.dataset_id, location=fileset.dataset.location, root=root)


def find_changed(
    fileset: Fileset, memory: TreeMemory, listed: Iterable[TreeDirectory], unmarked: Iterable[KeyText]
) -> tuple[list[TreeDirectory], dict[str, int]]:
    """Return the directories that differ from `memory`, and the signs of all listed ones.

    A directory whose marker is there, and whose partition is one of the `unmarked`, differs too.
    """
    marker = _marker(fileset)
    waiting = {fileset.keys.to_path(fileset.keys.decode(key)) for key in unmarked}
    signs, changed = {}, []
    for one in listed:
        if not one.files and marker not in one.hidden and not one.listed and not one.fault:
            continue
        signs[one.name] = sign = _sign(one, marker)
        if memory.seen.get(one.name) != sign or (one.name in waiting and marker in one.hidden):
            changed.append(one)
    return changed, signs


def find_vanished(
    known: Iterable[str], signs: Mapping[str, int], changed: Iterable[TreeDirectory]
) -> tuple[list[str], list[str]]:
    """Return the `known` directories that are not listed: those that vanished, and those that could not be looked at.

    A directory cannot be looked at when a directory above it has a fault.
    """
    faults = {one.name for one in changed if one.fault}
    missing = sorted(set(known) - signs.keys())
    unseen = [name for name in missing if find_above(name, faults) is not None]
    return [name for name in missing if find_above(name, faults) is None], unseen


def compare(  # the two sides of a comparison
    fileset: Fileset,
    files: Files,
    changed: Iterable[TreeDirectory],
    vanished: Iterable[str],
    present: Mapping[KeyText, Partition],
    unmarked: Collection[KeyText],
    columns: ColumnSchema | None,
    look: Look,
) -> Comparison:
    """Compare directories with the partitions `present` in the catalog.

    `unmarked` are the partitions that wait for their marker, and `columns` the columns of the table. A directory that
    cannot be a partition, or cannot be read, or has a file that cannot be read, is refused by name; the catalog keeps
    what it knows of the directory. Cost: a look into each new file.
    """
    found, spec = Comparison(columns), _order_of(fileset)
    for directory in changed:
        try:
            key = fileset.keys.from_path(directory.name)
            partition = present.get(fileset.keys.encode(key))
            # A later start does not take back what is there, and its files may change.
            if partition is None and _is_before_start(spec, key, directory):
                continue
            write = _compare_one(fileset, files, key, directory, partition, found, look)
        except NOT_READABLE as error:
            found.refused.append(refusal_of(directory, error))
            continue
        if write is not None:
            found.writes.append(write)
        elif fileset.keys.encode(key) in unmarked and _marker(fileset) in directory.hidden:
            found.marked.append(key)
    for name in vanished:
        try:
            key = fileset.keys.from_path(name)
        except BadKey:
            continue
        partition = present.get(fileset.keys.encode(key))
        if partition is None:
            continue
        if _is_ours(partition, name):
            found.refused.append(Refusal(name, _OURS))
        else:
            found.writes.append(PartitionWrite(key, WriteOp.DROP, location=name))
    found.writes = _in_order(spec, found.writes, {one.name: one for one in changed})
    return found


def list_adopted(fileset: Fileset, present: Iterable[Partition]) -> dict[str, KeyText]:
    """Return the partitions whose files other programs have written, by directory."""
    return {
        fileset.keys.to_path(fileset.keys.decode(one.partition_key)): one.partition_key
        for one in present
        if any(find_snapshot(change.location) is None for change in one.changes)
    }


def _compare_one(  # the two sides of a comparison
    fileset: Fileset,
    files: Files,
    key: Key,
    directory: TreeDirectory,
    partition: Partition | None,
    found: Comparison,
    look: Look,
) -> PartitionWrite | None:
    """Return the write by which the catalog gets `directory`; None if it has it."""
    if directory.fault:
        raise BadKey(None, directory.fault)
    named = {status.name.rpartition("/")[2]: status for status in directory.files}
    known: dict[str, DataFile] = {}
    if partition is not None:
        if _is_ours(partition, directory.name):
            raise BadKey(None, f"{fileset.keys.show(key)}: {_OURS}")
        known = {file.name: file for change in partition.changes for file in change.manifest.files}
    same = {
        name: file
        for name, file in known.items()
        if name in named and (named[name].bytes, named[name].etag) == (file.bytes, file.etag)
    }
    new = [status for name, status in named.items() if name not in same]
    if partition is not None and not new and len(same) == len(known):
        return None
    listed, found.columns = look_at_files(fileset, files, new, found.columns, look)
    marker = _marker(fileset)
    lacks_marker = marker is not None and marker not in directory.hidden
    if partition is not None and len(same) < len(known):
        op, content = WriteOp.OVERWRITE, [*same.values(), *listed]
    else:
        op, content = WriteOp.CREATE if partition is None else WriteOp.APPEND, listed
    return PartitionWrite(key, op, Manifest(tuple(content)), location=directory.name, lacks_marker=lacks_marker)


def _is_ours(partition: Partition, directory: str) -> bool:
    return any(change.location != directory for change in partition.changes)


def _marker(fileset: Fileset) -> str | None:
    return None if fileset.watermark is None else fileset.watermark.completeness.marker


def _sign(directory: TreeDirectory, marker: str | None) -> int:
    facts = frozenset((one.name, one.bytes, one.etag, second_of(one.modified_at)) for one in directory.files)
    return hash((facts, marker in directory.hidden, directory.fault))


def _order_of(fileset: Fileset) -> WatermarkSpec:
    """Return the order of partitions and their start, which a table has without a watermark too."""
    if fileset.watermark is not None:
        return fileset.watermark
    # The interval is of the watermark alone.
    return WatermarkSpec.of("", {INTERVAL: "1h", **(fileset.storing.options or {})}, fileset.keys)


def _is_before_start(spec: WatermarkSpec, key: Key, directory: TreeDirectory) -> bool:
    if spec.start is None:
        return False
    match spec.order:
        case PartitionOrder.PARTITION_NAME:
            return directory.name < spec.start
        case PartitionOrder.CREATE_TIME:
            start = spec.partition_time.zone.opens(read_start(spec.start))
            return bool(directory.files) and _created(directory) < start
        case PartitionOrder.PARTITION_TIME:
            time = spec.partition_time.extractor.find(key, spec.partition_time.zone)
            return time is not None and time < read_start(spec.start)


def _created(directory: TreeDirectory) -> int:
    """Return the time of the oldest file, in microseconds."""
    return min((to_micros(one.modified_at) for one in directory.files), default=0)


def _in_order(
    spec: WatermarkSpec, writes: Sequence[PartitionWrite], directories: Mapping[str, TreeDirectory]
) -> list[PartitionWrite]:
    """Return the writes in the order in which partitions are taken; drops come first."""

    def place(write: PartitionWrite) -> tuple[int, str]:
        name = write.location or ""
        if name not in directories:
            return 0, name
        if spec.order is PartitionOrder.CREATE_TIME:
            return _created(directories[name]), name
        span = spec.partition_time.span_of(write.key) if spec.order is PartitionOrder.PARTITION_TIME else None
        return 0 if span is None else span.begins, name

    return sorted(writes, key=lambda write: (write.op is not WriteOp.DROP, *place(write)))
