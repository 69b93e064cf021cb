"""Views of partitions: one partition with its past and its readers, and the growth of a data set by day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import Snapshot
from tidemill.epoch import EPOCH
from tidemill.errors import NotFound
from tidemill.lake.datasets import Dataset
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.mill.access import Access
from tidemill.mill.project import program_names
from tidemill.names import ProgramId, RunId
from tidemill.shapes.filters import KeyFilter
from tidemill.shapes.keys import Key, KeyText
from tidemill.storage.locations import path_for_readers

if TYPE_CHECKING:
    from tidemill.mill.partition_views_sql import Sql

SQL: Sql = load_sql(__file__)

_MOST_CHANGES: Final = 5000
"""Changes that the growth of a data set is measured by: the newest."""
MOST_LISTED: Final = 50
"""The most changes, and the most runs, that the record of a partition has."""
_FILES: Final = 100


@dataclass(frozen=True, slots=True)
class DayOfGrowth:
    """The commits of one day, in UTC: changes of partitions, with the files, bytes and rows that they wrote."""

    day: date
    changes: int
    files: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Rows that were written to a data set, by the day of the commit. Days without a commit are left out.

    Only the newest 5,000 changes are counted. `since` is the time of the first of them, if there are older ones.
    """

    dataset: str
    days: tuple[DayOfGrowth, ...]
    since: datetime | None


@dataclass(frozen=True, slots=True)
class HistoryView:
    """A change of a partition. `replaced_by` is the commit that overwrote or dropped it."""

    op: str
    write_pointer: int
    commit_seq: int
    files: int
    bytes: int
    rows: int
    run_id: RunId
    committed_at: datetime
    replaced_by: int | None
    metadata: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class TakerView:
    """A run that had a change of a partition as its input; `program` is None for a claim from outside."""

    run_id: RunId
    program: str | None
    state: str
    write_pointer: int
    started_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a partition."""

    path: str
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class PartitionDetail:
    """A partition as it is now, with its metadata and files, its past, and the runs that read it.

    `current` is False for a dropped partition, which has no files. `stored` has the first 100 files, `changes` and
    `taken` the newest 50.
    """

    dataset: str
    partition: str
    current: bool
    rows: int
    bytes: int
    files: int
    metadata: Mapping[str, str]
    stored: tuple[StoredFile, ...]
    changes: tuple[HistoryView, ...]
    taken: tuple[TakerView, ...]


class _DayRow(NamedTuple):
    day: int
    changes: int
    files: int
    bytes: int
    row_count: int
    since: datetime
    counted: int


class _HistoryRow(NamedTuple):
    op: str
    write_pointer: int
    commit_seq: int
    superseded_seq: int | None
    files: int
    bytes: int
    row_count: int | None
    run_id: RunId
    at: datetime
    expired_at: datetime | None
    metadata: Mapping[str, str | None]


class _TakerRow(NamedTuple):
    run_id: RunId
    program_id: ProgramId | None
    state: str
    write_pointer: int
    started_at: datetime | None
    ended_at: datetime | None


def measure_growth(db: Db, dataset: Dataset) -> Growth:
    """Return the growth of a data set. Cost: its newest 5,000 changes."""
    rows = db.records(SQL.measure_days, _DayRow, dataset_id=dataset.dataset_id, most=_MOST_CHANGES)
    cut = sum(row.counted for row in rows) == _MOST_CHANGES
    return Growth(
        dataset.qualified_name,
        tuple(
            DayOfGrowth((EPOCH + timedelta(days=row.day)).date(), row.changes, row.files, row.bytes, row.row_count)
            for row in rows
        ),
        min(row.since for row in rows) if cut else None,
    )


def show_partition(db: Db, fileset: Fileset, key: Key, newest: Snapshot, access: Access) -> PartitionDetail:
    """Return a partition; `NotFound` for one that never was. Cost: its changes that are current."""
    text = fileset.keys.encode(key)
    shown = fileset.keys.show(key)
    history = db.records(
        SQL.list_history, _HistoryRow, dataset_id=fileset.dataset_id, partition_key=text, limit=MOST_LISTED
    )
    if not history:
        cure = f"`tidemill dataset partitions {fileset.qualified_name}` lists those that it has"
        raise NotFound("partition", shown, hint=cure)
    only = KeyFilter(
        fileset.keys, {name: frozenset({value}) for name, value in zip(fileset.keys.names, key, strict=True)}
    )
    found = read_partitions(db, fileset.dataset_id, newest, only, compacted=True)
    files = [file for one in found for file in one.files]
    location = fileset.dataset.location
    return PartitionDetail(
        fileset.qualified_name,
        shown,
        bool(found),
        sum(one.rows for one in found),
        sum(one.bytes for one in found),
        len(files),
        {name: value for one in found for name, value in one.metadata.items()},
        tuple(StoredFile(path_for_readers(location, path), file.bytes, file.rows) for path, file in files[:_FILES]),
        tuple(_history(row) for row in history),
        _takers(db, fileset, text, access),
    )


def _history(row: _HistoryRow) -> HistoryView:
    return HistoryView(
        row.op,
        row.write_pointer,
        row.commit_seq,
        row.files,
        row.bytes,
        row.row_count or 0,
        row.run_id,
        row.at,
        row.superseded_seq,
        row.metadata,
    )


def _takers(db: Db, fileset: Fileset, key: KeyText, access: Access) -> tuple[TakerView, ...]:
    rows: Sequence[_TakerRow] = db.records(
        SQL.list_takers, _TakerRow, dataset_id=fileset.dataset_id, partition_key=key, limit=MOST_LISTED
    )
    names = program_names(db, (row.program_id for row in rows))
    return tuple(
        TakerView(
            row.run_id,
            None if row.program_id is None else names.get(row.program_id),
            row.state,
            row.write_pointer,
            row.started_at,
            row.ended_at,
        )
        for row in rows
        if row.program_id is None or access.sees_name(names.get(row.program_id, ""))
    )
