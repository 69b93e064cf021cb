"""Fires that a time trigger has missed, and the rule for them: pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

from tidemill.schedule.specs import Misfire, ScheduleSpec
from tidemill.schedule.standstill_triggers import WatermarkStands
from tidemill.schedule.time_triggers import CalendarTrigger, Every, TimeTrigger

MOST_FIRES: Final = 10_000
"""A timer fires at most this often in one step: a minute's cron after a week. The rest of a longer downtime gets
another run."""

_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Due:
    """The logical times that feed the job now, oldest first, and when the timer is looked at next.

    `behind`: not before the job that has been fed is gone, and its run has ended. `counted_from`: the moment from which
    `Every` counts. `parked`: there is no next time before a message begins the next stand.
    `set_back`: the clock was set back, so that `fires` may be times that have fired before, and are due all the same.
    """

    fires: tuple[datetime, ...]
    next_fire: datetime
    behind: bool = False
    counted_from: datetime | None = None
    parked: bool = False
    set_back: bool = False


def find_due(leaf: TimeTrigger, spec: ScheduleSpec, counted_from: datetime, now: datetime, *, waits: bool) -> Due:
    """Return the times that feed `leaf` at `now`. `waits` is true if `Every` has fed a job that is still open.

    `counted_from` is for `Every` the last launch, or the resumption. For other triggers it is the time up to which
    the timer has fired.
    """
    match leaf:
        case Every():
            # After downtime once: nothing else was due since the last launch. And once in a job that waits.
            due_at = leaf.last_fire(counted_from, now)
            next_fire = leaf.next_fire(due_at or counted_from)
            fires = () if due_at is None or waits else (due_at,)
            return Due(fires, next_fire, counted_from=next_fire - leaf.duration)
        case CalendarTrigger():
            return _find_missed(leaf, spec, counted_from, now)
        case _:
            raise AssertionError(leaf)


def find_stand(leaf: WatermarkStands, since: datetime, now: datetime) -> Due:
    """Return the time that feeds `leaf` at `now`, for a watermark that stands since `since`. A stand fires once."""
    due_at = since + leaf.duration
    return Due((), due_at) if now < due_at else Due((due_at,), due_at, parked=True)


def _find_missed(leaf: CalendarTrigger, spec: ScheduleSpec, counted_from: datetime, now: datetime) -> Due:
    match spec.misfire:
        case Misfire.ALL:
            fires = leaf.fires_after(counted_from)
            first, second = next(fires), next(fires)
            return Due((), first) if first > now else Due((first,), second, behind=True)
        case Misfire.SKIP:
            # A fire exactly as old as the grace is within it.
            counted_from = max(counted_from, now - spec.grace - _MILLISECOND)
        case Misfire.ONCE:
            pass
        case _:
            assert_never(spec.misfire)
    missed: list[datetime] = []
    for fire in leaf.fires_after(counted_from):
        if fire > now or len(missed) == MOST_FIRES:
            return Due(tuple(missed), fire)
        missed.append(fire)
    raise AssertionError(leaf)
