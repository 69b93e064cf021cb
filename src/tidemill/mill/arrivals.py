"""Arrivals in an inbox: its files by the hour in which they were seen, and the balance of their rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.epoch import EPOCH
from tidemill.lake.inbox.inbox import FileState, Inbox
from tidemill.mill.access import Access
from tidemill.mill.page import BadFilter
from tidemill.mill.why_work import list_readers
from tidemill.names import RunId
from tidemill.upkeep.balance import Balance, Balances

if TYPE_CHECKING:
    from tidemill.mill.arrivals_sql import Sql

SQL: Sql = load_sql(__file__)

DAY: Final = 24
_LONGEST: Final = 24 * 31
_MOST_FILES: Final = 5000
_MOST_RUNS: Final = 200
_MOST_PROGRAMS: Final = 5
_HOUR: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ArrivalHour:
    """Files of an inbox that were first seen in one hour, by their state now."""

    begins_at: datetime
    files: Mapping[str, int]
    bytes: int


@dataclass(frozen=True, slots=True)
class ArrivalsView:
    """The files that an inbox got in each of the last hours, and the balance of the rows that runs made of them.

    Only the newest 5,000 files are counted: `complete` is False if there were more. The balance is that of the newest
    runs that were made in these hours.
    """

    inbox: str
    since: datetime
    hours: tuple[ArrivalHour, ...]
    complete: bool
    balance: Balance


class _ArrivalRow(NamedTuple):
    slot: int
    status: FileState
    files: int
    bytes: int
    counted: int


class _CompletedRow(NamedTuple):
    run_id: RunId
    facts: Mapping[str, object] | None


def count_arrivals(db: Db, watched: Inbox, hours: int, access: Access) -> ArrivalsView:
    """Return the arrivals of the last `hours` whole hours and this one. `BadFilter`."""
    if not 1 <= hours <= _LONGEST:
        raise BadFilter("hours", str(hours), [f"1 to {_LONGEST}"])
    last = (db.now() - EPOCH) // _HOUR
    first = last - hours + 1
    since = EPOCH + first * _HOUR
    step = _HOUR // timedelta(milliseconds=1)
    rows = db.records(
        SQL.count_arrivals, _ArrivalRow, dataset_id=watched.dataset_id, since=since, step=step, most=_MOST_FILES
    )
    by_hour: defaultdict[int, list[_ArrivalRow]] = defaultdict(list)
    for row in rows:
        by_hour[row.slot].append(row)
    return ArrivalsView(
        watched.qualified_name,
        since,
        tuple(
            ArrivalHour(
                EPOCH + hour * _HOUR,
                {row.status.value: row.files for row in by_hour[hour]},
                sum(row.bytes for row in by_hour[hour]),
            )
            for hour in range(first, last + 1)
        ),
        sum(row.counted for row in rows) < _MOST_FILES,
        _weigh(db, watched, since, access),
    )


def _weigh(db: Db, watched: Inbox, since: datetime, access: Access) -> Balance:
    balances = Balances()
    for program in list_readers(db, watched.dataset, access)[:_MOST_PROGRAMS]:
        runs = db.records(
            SQL.list_completed, _CompletedRow, program_id=program.program_id, since=since, most=_MOST_RUNS
        )
        for run in runs:
            balances.add(run.run_id, run.facts or {})
    return balances.of(watched.qualified_name)
