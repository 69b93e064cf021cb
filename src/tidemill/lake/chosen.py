"""Chosen input: the partitions, files and versions that a run is given when the run is made.

Such a run takes nothing of consumers and inboxes. Its input is recorded before its first attempt, and a pin keeps the
files of partitions and versions until the run has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, load_sql
from tidemill.catalog.records import to_json
from tidemill.catalog.transactions import Snapshot
from tidemill.errors import UserError
from tidemill.lake.consumer.take import Delivery
from tidemill.lake.datasets import Dataset, DatasetKind, find_some
from tidemill.lake.fileset.fileset import Change, Fileset, kind_of, pin
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import Afterwards, Inbox
from tidemill.names import DatasetId, PinId, RunId, WritePointer
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.lake.chosen_sql import Sql
    from tidemill.lake.snapshot.snapshot import SnapshotDataset, Version

SQL: Sql = load_sql(__file__)

_MOST_NAMED: Final = 10
_LEFT: Final = frozenset({Afterwards.ARCHIVED, Afterwards.DELETED, Afterwards.GONE, Afterwards.REPLACED})


class MissingInput(UserError):
    """Partitions, files or versions that a run was to be given, and that are not kept."""

    code = "missing_input"

    def __init__(self, missing: Sequence[str]) -> None:
        self.missing = list(missing)
        more = len(missing) - _MOST_NAMED
        shown = ", ".join(missing[:_MOST_NAMED]) + (f", and {more} more" if more > 0 else "")
        super().__init__(
            f"a run cannot be given what is not there: {shown}",
            "`tidemill dataset partitions`, `tidemill inbox files` and `tidemill snapshot versions` list what is there",
        )


@dataclass(frozen=True, slots=True)
class InputItem:
    """Input of a run: a change of a partition, a version of a snapshot, or a content of a file (write pointer 0)."""

    dataset_id: DatasetId
    write_pointer: WritePointer
    item: str
    content_version: str = ""


@dataclass(frozen=True, slots=True)
class RecordInput(Effect):
    """Record, as the input of a run, work that its workflow holds."""

    phase = Phase.CLAIMS

    run_id: RunId
    items: Sequence[InputItem]

    def writes(self) -> Sequence[Call]:
        """Insert the items."""
        return (SQL.record_input(items=to_json([{"run_id": self.run_id, **asdict(item)} for item in self.items])),)


@dataclass(frozen=True, slots=True)
class ChosenInput:
    """The input of a run that is to be made.

    `pins` are the pointers of the snapshots whose files the run keeps. `counts` are the numbers of partitions, files
    and versions by the qualified name of their data sets, for people.
    """

    items: tuple[InputItem, ...]
    pins: Mapping[DatasetId, Collection[WritePointer]]
    counts: Mapping[str, int]


def choose(
    db: Db,
    pointer: WritePointer,
    partitions: Iterable[tuple[Fileset, Sequence[KeyText]]] = (),
    files: Iterable[tuple[Inbox, Sequence[str]]] = (),
) -> ChosenInput:
    """Choose partitions as they are now, and files by their names; `MissingInput` names those that are not there.

    `pointer` is a tick that the caller's transaction has taken as its first act: no commit before it is unseen. Cost: a
    look-up for each.
    """
    items: list[InputItem] = []
    missing: list[str] = []
    pins: dict[DatasetId, Collection[WritePointer]] = {}
    counts: dict[str, int] = {}
    for fileset, keys in partitions:
        wanted = list(dict.fromkeys(keys))
        found = db.records(
            SQL.find_partitions, tuple[KeyText, WritePointer], dataset_id=fileset.dataset_id, keys=to_json(wanted)
        )
        items += [InputItem(fileset.dataset_id, write_pointer, key) for key, write_pointer in found]
        there = {key for key, _ in found}
        missing += [_show_partition(fileset, key) for key in wanted if key not in there]
        pins[fileset.dataset_id] = [pointer]
        counts[fileset.qualified_name] = len(wanted)
    for inbox, names in files:
        wanted_files = list(dict.fromkeys(names))
        versions, left = _find_contents(db, inbox, wanted_files)
        items += [InputItem(inbox.dataset_id, WritePointer(0), name, version) for name, version in versions.items()]
        missing += [_show_file(inbox.dataset, name, left.get(name)) for name in wanted_files if name not in versions]
        counts[inbox.qualified_name] = len(wanted_files)
    if missing:
        raise MissingInput(missing)
    return ChosenInput(tuple(items), pins, counts)


class _Content(NamedTuple):
    dataset_id: DatasetId
    item: str
    content_version: str
    afterwards: Afterwards | None
    archive: str | None


def _find_contents(db: Db, inbox: Inbox, names: Sequence[str]) -> tuple[dict[str, str], dict[str, _Content]]:
    """Return the latest content of each name that is still in the inbox, and contents that have left the inbox."""
    rows = db.records(SQL.find_files, _Content, dataset_id=inbox.dataset_id, names=to_json(list(names)))
    left = {row.item: row for row in reversed(rows) if row.afterwards in _LEFT}
    there = {row.item: row.content_version for row in reversed(rows) if row.afterwards not in _LEFT}
    return there, left


class _Replaced(NamedTuple):
    dataset_id: DatasetId
    write_pointer: WritePointer
    item: str
    superseded_seq: WritePointer | None
    is_kept: bool


def choose_again(db: Db, pointer: WritePointer, run_id: RunId, published: WritePointer | None = None) -> ChosenInput:
    """Choose exactly what another run had as its input; `MissingInput` names what is not kept any more.

    With `published`, the write pointer of its transaction, the files that the run has published are kept too. `pointer`
    as for `choose`. Cost: the input, and what was published.
    """
    items = db.records(SQL.read_items, InputItem, run_id=run_id)
    changes = {
        (row.dataset_id, row.write_pointer, row.item): row
        for row in db.records(SQL.find_replaced, _Replaced, run_id=run_id)
    }
    left = {
        (row.dataset_id, row.item, row.content_version): row
        for row in db.records(SQL.find_left, _Content, run_id=run_id)
    }
    written = [] if published is None else db.records(SQL.find_published, _Replaced, write_pointer=published)
    datasets = find_some(db, {*(one.dataset_id for one in items), *(one.dataset_id for one in written)})
    missing: dict[str, None] = {}
    needed: dict[DatasetId, set[WritePointer]] = {}
    counted: set[tuple[str, str]] = set()
    for one in items:
        dataset = datasets.get(one.dataset_id)
        if dataset is not None:
            counted.add((dataset.qualified_name, one.item))
        change = changes.get((one.dataset_id, one.write_pointer, one.item))
        file = left.get((one.dataset_id, one.item, one.content_version))
        if lost := _show_lost(one, dataset, change, file):
            missing[lost] = None
    for row in (*changes.values(), *written):
        if not row.is_kept and row.dataset_id in datasets:
            missing[_show_change(datasets[row.dataset_id], InputItem(*row[:3]))] = None
        # A snapshot at the tick that replaced a change is the last that sees the change.
        last = pointer if row.superseded_seq is None else row.superseded_seq
        needed.setdefault(row.dataset_id, set()).add(last)
    if db.value(SQL.find_of_worker, int, run_id=run_id) is not None:
        # Its program has become another kind since. Retention deletes input of workers in parts: perhaps some is left.
        missing["all that a worker has taken"] = None
    if missing:
        raise MissingInput(sorted(missing))
    # The oldest pin of a file set keeps all that was replaced since; a pin of a snapshot keeps one version.
    pins = {
        one: at if datasets[one].kind is DatasetKind.SNAPSHOT else {min(at)}
        for one, at in needed.items()
        if one in datasets
    }
    return ChosenInput(tuple(items), pins, dict(Counter(name for name, _ in sorted(counted))))


def _show_lost(one: InputItem, dataset: Dataset | None, change: _Replaced | None, file: _Content | None) -> str:
    """Return the name of an input that is not kept any more, for people; empty if the input is kept."""
    if dataset is None:
        return f"data set {one.dataset_id}"
    if dataset.kind is DatasetKind.INBOX:
        return _show_file(dataset, one.item, file) if file is None or file.afterwards in _LEFT else ""
    return "" if change is not None and change.is_kept else _show_change(dataset, one)


def keep_input(db: Db, chosen: Iterable[tuple[RunId, ChosenInput]]) -> None:
    """Record the input of new runs, and pin its files until each run has ended.

    Locks the data sets, under whose locks files expire. `NotKept` if the files were given up since the choice.
    """
    rows = []
    for run_id, one in chosen:
        rows += [{"run_id": run_id, **asdict(item)} for item in one.items]
        for dataset_id, pointer in sorted((dataset_id, at) for dataset_id, some in one.pins.items() for at in some):
            pin(db, PinId(f"{run_id} {dataset_id} {pointer}"), dataset_id, Snapshot(pointer, ""), run_id)
    if rows:
        db.run(SQL.record_input, items=to_json(rows))


def list_given(db: Db, run_id: RunId) -> list[DatasetId]:
    """Return the data sets of the input that a run was given. Cost: the input."""
    return db.records(SQL.list_given, DatasetId, run_id=run_id)


class _GivenChange(NamedTuple):
    change: Change
    existed: bool


def read_deliveries(db: Db, run_id: RunId, dataset_id: DatasetId) -> list[Delivery]:
    """Return the partitions of a file set that the run was given, oldest write pointer first."""
    rows = db.records(SQL.read_changes, _GivenChange, run_id=run_id, dataset_id=dataset_id)
    deliveries = []
    for key, grouped in groupby(rows, key=lambda row: row.change.partition_key):
        group = list(grouped)
        kind = kind_of(group[0].change, known=group[0].existed)
        deliveries.append(Delivery(key, kind, tuple(row.change for row in group)))
    return sorted(deliveries, key=lambda one: (one.changes[0].write_pointer, one.partition_key))


def read_versions(db: Db, run_id: RunId, snapshot: SnapshotDataset) -> list[Version]:
    """Return the versions of a snapshot that the run was given, in the order of their commits; `VersionGone`."""
    from tidemill.lake.snapshot.versions import find_version  # a list of runs does not load the room of snapshots

    numbers = db.records(SQL.read_versions, int, run_id=run_id, dataset_id=snapshot.dataset_id)
    return [find_version(db, snapshot, number) for number in numbers]


def read_files(db: Db, run_id: RunId, inbox: Inbox) -> list[ClaimedFile]:
    """Return the files of an inbox that the run was given, oldest first; `MissingInput` if a record is deleted."""
    found = db.records(SQL.read_files, ClaimedFile, run_id=run_id, dataset_id=inbox.dataset_id)
    there = {file.name for file in found}
    items = db.records(SQL.read_items, InputItem, run_id=run_id)
    missing = [one.item for one in items if one.dataset_id == inbox.dataset_id and one.item not in there]
    if missing:
        raise MissingInput([_show_file(inbox.dataset, name, None) for name in missing])
    return found


def _show_partition(fileset: Fileset, key: KeyText) -> str:
    return f"partition {fileset.show(key)} of {fileset.qualified_name}"


def _show_change(dataset: Dataset, one: InputItem) -> str:
    if dataset.kind is DatasetKind.SNAPSHOT:
        return f"version {one.write_pointer} of {dataset.qualified_name}"
    shown = _show_partition(Fileset.of(dataset), KeyText(one.item))
    return f"{shown} as transaction {one.write_pointer} wrote it"


def _show_file(dataset: Dataset, name: str, left: _Content | None) -> str:
    where = "" if left is None else f" ({left.afterwards}{f' to {left.archive}' if left.archive else ''})"
    return f"file {name} of {dataset.qualified_name}{where}"
