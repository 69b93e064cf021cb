"""Fires to come: the times at which the time triggers of one schedule, or of all, will fire.

Fires of one time stand in the order of the schedules' ids. An index of the timers has that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from heapq import merge
from itertools import dropwhile, islice, takewhile
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.names import ScheduleId
from tidemill.schedule.schedules import read_schedules, read_timers
from tidemill.schedule.specs import Schedule

if TYPE_CHECKING:
    from tidemill.schedule.fires_sql import Sql

SQL: Sql = load_sql(__file__)


LAST_TIME: Final = datetime.max.replace(tzinfo=UTC)
"""The end of the calendar of Python."""


class NextFire(NamedTuple):
    """A time at which a time trigger will fire."""

    at: datetime
    schedule: Schedule
    trigger_no: int

    @property
    def place(self) -> tuple[datetime, ScheduleId, int]:
        """Place of the fire among those of all schedules."""
        return self.at, self.schedule.schedule_id, self.trigger_no

    @property
    def shown(self) -> tuple[datetime, str, str]:
        """Time, schedule and trigger, as people write them."""
        return self.at, self.schedule.qualified_name, str(self.schedule.time_leaves[self.trigger_no])


def list_fires(
    db: Db,
    schedule_id: ScheduleId | None,
    after: tuple[datetime, str, int],
    start: datetime,
    until: datetime,
    limit: int,
) -> list[NextFire]:
    """List at most `limit` fires in [start, until) behind the place `after`, soonest first.

    The fires are those of a schedule, or of all schedules.

    Cost: the fires of the list. For all schedules also the timers that are due before it.
    """
    first_at = max(after[0], start)
    if schedule_id is None:
        found = db.records(SQL.list_timers, tuple[ScheduleId, int, datetime], at=first_at, limit=limit)
    else:
        found = [(schedule_id, trigger_no, at) for trigger_no, at in read_timers(db, schedule_id).items()]
    known = read_schedules(db, {one for one, _, _ in found})
    each = [_fires(known[one], trigger_no, at, first_at, after) for one, trigger_no, at in found]
    fires = takewhile(lambda fire: fire.at < until, merge(*each, key=lambda fire: fire.place))
    return list(islice(fires, limit))


def _fires(
    schedule: Schedule, trigger_no: int, first: datetime, at: datetime, after: tuple[datetime, str, int]
) -> Iterator[NextFire]:
    """Yield the fires of a timer, of which `first` is the next, that are `at` or later and behind the place `after`."""
    leaf = schedule.time_leaves[trigger_no]
    with suppress(OverflowError):  # the calendar of Python ends with the year 9999
        fires = (NextFire(one, schedule, trigger_no) for one in leaf.fires_from(first, at))
        yield from dropwhile(lambda fire: fire.place <= after, fires)
