"""The usual: how long the last runs of a program took, how long the last jobs of a schedule waited, and what failed."""

from __future__ import annotations

from collections.abc import Sequence
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


def longest_usual_wait(db: Db, schedule_id: ScheduleId) -> timedelta | None:
    """Return the longest wait of the last 20 jobs of a schedule; None for fewer than 5. Cost: their rows."""
    spans = db.records(SQL.list_job_spans, _SpanRow, schedule_id=schedule_id, limit=LOOKED_AT)
    return max(one.ended_at - one.began_at for one in spans) if len(spans) >= _FEWEST else None


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
