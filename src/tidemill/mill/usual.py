"""The usual: how long the last runs of a program took, how long the last jobs of a schedule waited, and what failed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.names import ProgramId, ScheduleId
from tidemill.run.records.runs import RunState

if TYPE_CHECKING:
    from tidemill.mill.usual_sql import Sql

SQL: Sql = load_sql(__file__)

LOOKED_AT: Final = 20
"""The last runs of a program, or jobs of a schedule, from which the usual is known."""
_FEWEST: Final = 5
"""Fewer jobs than these say nothing about a wait."""
_LONGER: Final = 2
"""A wait is unusual if it is so many times as long as the longest of the last jobs."""
_SHORTEST: Final = timedelta(minutes=1)
"""A shorter wait needs no person, however short the waits of the last jobs were."""


class _SpanRow(NamedTuple):
    """Row of a begin and an end."""

    began_at: datetime
    ended_at: datetime


class _LongestRow(NamedTuple):
    """Row of a schedule with the number of its last jobs, and the longest wait among them."""

    schedule_id: ScheduleId
    jobs: int
    longest: timedelta | None


class _EndRow(NamedTuple):
    """Row of a run that has ended."""

    state: RunState
    ended_at: datetime
    app_version: int


@dataclass(frozen=True, slots=True)
class FailureStreak:
    """The failures of a program since its last success: their number, the first of them, and the deployments.

    `runs` ends at 20. `new_version` is the deployment of the first failure if the last success had another, else 0.
    """

    runs: int
    since: datetime
    new_version: int


def usual_run(db: Db, program_id: ProgramId) -> timedelta | None:
    """Return the median of the last 20 successful runs of a program; None without such a run. Cost: their rows."""
    return _median(db.records(SQL.list_run_spans, _SpanRow, program_id=program_id, limit=LOOKED_AT))


def longest_usual_waits(db: Db, schedule_ids: Iterable[ScheduleId]) -> Mapping[ScheduleId, timedelta]:
    """Return the longest wait of the last 20 jobs of each schedule with at least 5. Cost: the rows of these jobs."""
    schedules = json.dumps([{"schedule_id": one} for one in sorted(set(schedule_ids))])
    rows = db.records(SQL.list_longest_waits, _LongestRow, schedules=schedules, limit=LOOKED_AT)
    return {row.schedule_id: row.longest for row in rows if row.longest is not None and row.jobs >= _FEWEST}


def is_unusual(wait: timedelta, longest: timedelta | None) -> bool:
    """Return whether a job waits longer than jobs of its schedule ever do: over a minute, and twice the longest."""
    return longest is not None and wait > max(_LONGER * longest, _SHORTEST)


def count_failures(db: Db, program_id: ProgramId) -> FailureStreak | None:
    """Return the failures of a program since its last success; None unless its newest run failed. Cost: 20 rows."""
    ends = db.records(SQL.list_ends, _EndRow, program_id=program_id, limit=LOOKED_AT)
    failed = list(takewhile(lambda one: one.state is RunState.FAILED, ends))
    if not failed:
        return None
    first, before = failed[-1], ends[len(failed) : len(failed) + 1]
    changed = any(one.app_version != first.app_version for one in before)
    return FailureStreak(len(failed), first.ended_at, first.app_version if changed else 0)


def _median(spans: Sequence[_SpanRow]) -> timedelta | None:
    lengths = sorted(one.ended_at - one.began_at for one in spans)
    return lengths[len(lengths) // 2] if lengths else None
