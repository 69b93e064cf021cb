"""Due times → jobs. No thread and no timer object for a schedule: what is due is found through an index."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import RowSet, load_sql
from tidemill.catalog.records import stored_times
from tidemill.names import JobId, ScheduleId
from tidemill.run.step.watermarks import read_last_moves
from tidemill.schedule.checker import Launch, launch_at_once
from tidemill.schedule.jobs import (
    Fact,
    Fire,
    Job,
    feed_jobs,
    find_unfinished,
    insert_jobs,
    lock_open_jobs,
    make_jobs,
)
from tidemill.schedule.misfires import MOST_FIRES, Due, find_due, find_stand
from tidemill.schedule.schedules import share_listening
from tidemill.schedule.specs import Misfire, Schedule
from tidemill.schedule.standstill_triggers import WatermarkStands
from tidemill.schedule.time_triggers import CalendarTrigger, Every, TimeTrigger
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.schedule.timekeeper_sql import Sql

SQL: Sql = load_sql(__file__)

BATCH: Final = 500
"""Timers handled in one transaction."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_FIRE_COLUMNS: Final = ("schedule_id", "trigger_no", "fire_time", "generation", "job_id")
_TIMER_COLUMNS: Final = ("schedule_id", "trigger_no", "next_fire_at", "behind", "counted_from")


class _Timer(NamedTuple):
    schedule_id: ScheduleId
    trigger_no: int


class _DueTimer(NamedTuple):
    """A timer that is due, the time that it stands at, and for `Every` the time that it counts from."""

    schedule_id: ScheduleId
    trigger_no: int
    next_fire_at: datetime
    counted_from: datetime | None
    behind: JobId | None = None

    @property
    def timer(self) -> _Timer:
        """The timer's key."""
        return _Timer(self.schedule_id, self.trigger_no)


class _Fire(NamedTuple):
    """A logical time at which a timer fires."""

    schedule_id: ScheduleId
    trigger_no: int
    fire_time: datetime


class Fired(NamedTuple):
    """Result of a look at due timers: the number of timers that were looked at, and the runs that they started."""

    timers: int
    launches: tuple[Launch, ...] = ()


class _FedMeanwhile(Exception):
    """Another process has made an open job for a schedule whose own job was to be inserted."""


def fire_due(catalog: Catalog, world: World, limit: int = BATCH, *, most_launches: int = 0) -> Fired:
    """Let at most `limit` due timers feed their schedules' jobs.

    A job that may start at once gets no row: its run is made in the same transaction. `most_launches` is the cap of
    each namespace on the launches in a second; 0 means no cap.

    `Every` counts from the schedule's last launch. Launches do not touch timers: a timer that an early run has moved
    is found early, never late, and set right. When the clock was set back behind that launch, `Every` counts from the
    moment at which that was seen, so that it waits no longer than its duration. After downtime, and while its job is
    still open, it fires once: nothing else was due since that launch. Calendar triggers go on from the time at which
    their timer stands, as `misfire` says. Under `all` the timer stays `behind` the job that it has fed until that job's
    run has ended. A stand of a watermark has a timer until it has fired. Timers that others hold are left to them.
    """
    try:
        return catalog.write(lambda db: _fire_due(db, world, limit, most_launches))
    except _FedMeanwhile:
        return catalog.write(lambda db: _fire_due(db, world, limit, None))


NEXT_TIMER: Final = SQL.find_next()
"""Finds the time at which the first timer is due."""


def _fire_due(db: Db, world: World, limit: int, most_launches: int | None) -> Fired:
    """`fire_due` within a block. With None as `most_launches` each job gets a row."""
    now, stored = db.now(), stored_times()
    found = _lock_timers(db, now, limit)
    if not found:
        return Fired(0)
    world.mark("timekeeper.locked")
    schedules = share_listening(db, {one.schedule_id for one in found})
    open_jobs = {job.schedule_id: job for job in lock_open_jobs(db, schedules.keys())}
    # Asked only now: a checker that held one of these jobs has launched it before we got it.
    last_launches = _last_launches(db, schedules.values())
    leaves = [leaf for schedule in schedules.values() for leaf in schedule.spec.trigger.leaves]
    moves = read_last_moves(db, {leaf.dataset for leaf in leaves if isinstance(leaf, WatermarkStands)})
    found, due = _find_all_due(found, schedules, open_jobs, last_launches, moves, now)
    fires = [_Fire(*timer, fire) for timer, one in due.items() for fire in one.fires]
    # Also those that are fed nothing: they are locked, so a slot that became free has passed them over.
    facts: dict[ScheduleId, list[tuple[int, Fact]]] = {schedule_id: [] for schedule_id in open_jobs}
    rows = [(one, no, stored(at), schedules[one].generation, None) for one, no, at in fires]
    given = RowSet(_FIRE_COLUMNS, rows)
    again = {timer for timer, one in due.items() if one.set_back}
    fired = {fire for fire in db.records(SQL.find_fired, _Fire, fires=given) if _Timer(*fire[:2]) not in again}
    fires = [fire for fire in fires if fire not in fired] if fired else fires
    for fire in fires:
        facts.setdefault(fire.schedule_id, []).append((fire.trigger_no, Fire(fire.fire_time, now)))
    world.mark("timekeeper.before_jobs")
    jobs, launches = _feed(db, world, facts, schedules, open_jobs, now, most_launches)
    fed = [(one, no, stored(at), schedules[one].generation, jobs[one]) for one, no, at in fires]
    db.run(SQL.insert_fires, fires=RowSet(_FIRE_COLUMNS, fed))
    world.mark("timekeeper.before_timers")
    moved = [
        (*timer, stored(one.next_fire), jobs.get(timer.schedule_id) if one.behind else None, stored(one.counted_from))
        for timer, one in due.items()
        if not one.parked
    ]
    db.run(SQL.move_timers, timers=RowSet(_TIMER_COLUMNS, moved))
    gone = [one.timer._asdict() for one in found if one.timer not in due or due[one.timer].parked]
    db.run(SQL.remove_timers, timers=json.dumps(gone))
    world.mark("timekeeper.before_commit")
    return Fired(len(found), tuple(launches))


def _feed(
    db: Db,
    world: World,
    facts: Mapping[ScheduleId, Sequence[tuple[int, Fact]]],
    schedules: Mapping[ScheduleId, Schedule],
    open_jobs: Collection[ScheduleId],
    now: datetime,
    most_launches: int | None,
) -> tuple[dict[ScheduleId, JobId], list[Launch]]:
    """Feed the jobs of schedules, the open ones and new ones. Return the jobs and the runs that start at once.

    Open jobs come first, since limits come after jobs in the order of locks. For the same reason a new job that does
    not start cannot join the job that another process has inserted meanwhile: `_FedMeanwhile`.
    """
    if most_launches is None:
        return feed_jobs(db, world, facts, schedules), []
    fed = feed_jobs(db, world, {one: given for one, given in facts.items() if one in open_jobs}, schedules)
    new = make_jobs(world, {one: given for one, given in facts.items() if one not in open_jobs}, schedules, now)
    launches = launch_at_once(db, world, new, schedules, now, most_launches=most_launches)
    started = {launch.job_id for launch in launches}
    waiting = [job for job in new if job.job_id not in started]
    if waiting and len(insert_jobs(db, waiting)) < len(waiting):
        raise _FedMeanwhile
    return fed | {job.schedule_id: job.job_id for job in new}, launches


def _find_all_due(
    found: list[_DueTimer],
    schedules: Mapping[ScheduleId, Schedule],
    open_jobs: Mapping[ScheduleId, Job],
    launches: Mapping[ScheduleId, datetime],
    moves: Mapping[str, datetime],
    now: datetime,
) -> tuple[list[_DueTimer], dict[_Timer, Due]]:
    """Return the timers of this batch, and what each of them feeds; a timer of nothing has no entry."""
    due: dict[_Timer, Due] = {}
    # What thousands of schedules with one trigger are due for is found once, with the leaf, which keeps its id.
    known: dict[tuple[int, Misfire, timedelta, datetime], tuple[TimeTrigger, Due]] = {}
    fires = 0
    for place, one in enumerate(found):
        if fires >= MOST_FIRES:
            return found[:place], due  # the others are still due, and come in the next batch
        timer = one.timer
        schedule = schedules.get(timer.schedule_id)
        leaf = schedule.time_leaves.get(timer.trigger_no) if schedule else None
        if schedule is None or leaf is None:
            continue
        if isinstance(leaf, WatermarkStands):
            since = max(schedule.since_at, moves.get(leaf.dataset, schedule.since_at))
            due[timer] = find_stand(leaf, since, now)
            fires += len(due[timer].fires)
            continue
        job = open_jobs.get(timer.schedule_id)
        waits = job is not None and timer.trigger_no in job.fed
        counted_from = _counted_from(leaf, schedule, one.next_fire_at, launches)
        if isinstance(leaf, CalendarTrigger):
            key = (id(leaf), schedule.spec.misfire, schedule.spec.grace, counted_from)
            if key not in known:
                known[key] = leaf, find_due(leaf, schedule.spec, counted_from, now, waits=waits)
            due[timer] = known[key][1]
            fires += len(due[timer].fires)
            continue
        set_back = counted_from > now
        if set_back:
            # How long ago the last launch was, nothing says: what the timer counted from, once it had been set right.
            counted_from = min(now, one.counted_from or now)
        found_due = find_due(leaf, schedule.spec, counted_from, now, waits=waits)
        due[timer] = replace(found_due, set_back=True) if set_back else found_due
        fires += len(due[timer].fires)
    return found, due


def _lock_timers(db: Db, now: datetime, limit: int) -> list[_DueTimer]:
    """The timers whose time has come, those that were behind a run that has ended, and those of a time to come."""
    found = [
        one for lock in (SQL.lock_due, SQL.lock_ahead) for one in db.records(lock, _DueTimer, now=now, limit=limit)
    ]
    freed = db.records(SQL.lock_freed, _DueTimer, limit=limit)
    # Asked only now: before we locked a timer, another timekeeper may have fed a job, which may be a run by now.
    held = find_unfinished(db, {one.behind for one in freed if one.behind is not None})
    return [*found, *(one for one in freed if one.behind not in held)]


def _counted_from(
    leaf: TimeTrigger, schedule: Schedule, next_fire_at: datetime, launches: Mapping[ScheduleId, datetime]
) -> datetime:
    """For a calendar trigger what is just before the time at which its timer stands: that one has not fired yet."""
    if isinstance(leaf, CalendarTrigger):
        return max(schedule.since_at, next_fire_at - _MILLISECOND)
    return max(schedule.since_at, launches.get(schedule.schedule_id, schedule.since_at))


def _last_launches(db: Db, schedules: Iterable[Schedule]) -> dict[ScheduleId, datetime]:
    """The last launches of the schedules with a trigger that counts from them."""
    counting = [one for one in schedules if any(isinstance(leaf, Every) for leaf in one.spec.trigger.leaves)]
    if not counting:
        return {}
    wanted = json.dumps([{"schedule_id": one.schedule_id} for one in counting])
    rows = db.records(SQL.read_last_launches, tuple[ScheduleId, datetime | None], schedules=wanted)
    return {schedule_id: at for schedule_id, at in rows if at is not None}
