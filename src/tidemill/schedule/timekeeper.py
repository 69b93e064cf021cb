"""Due times → jobs. No thread and no timer object for a schedule: what is due is found through an index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Param, load_sql
from tidemill.epoch import from_ms, to_ms
from tidemill.names import JobId, ScheduleId
from tidemill.schedule.jobs import Fact, Job, feed_jobs, find_unfinished, lock_open_jobs
from tidemill.schedule.misfires import MOST_FIRES, Due, find_due
from tidemill.schedule.schedules import share_listening
from tidemill.schedule.specs import Schedule
from tidemill.schedule.time_triggers import Cron, Every, TimeTrigger
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.schedule.timekeeper_sql import Sql

SQL: Sql = load_sql(__file__)

BATCH: Final = 500
"""Timers handled in one transaction."""

_MILLISECOND: Final = timedelta(milliseconds=1)


class _Timer(NamedTuple):
    schedule_id: ScheduleId
    trigger_no: int


class _Found(NamedTuple):
    """A timer that is due, the time that it stands at, and for `Every` the time that it counts from."""

    timer: _Timer
    next_fire_at: datetime
    counted_from: datetime | None


def fire_due(catalog: Catalog, world: World, limit: int = BATCH) -> int:
    """Let at most `limit` due timers feed their schedules' jobs, and give how many were looked at.

    `Every` counts from the schedule's last launch. Launches do not touch timers: a timer that an early run has moved
    is found early, never late, and set right. When the clock was set back behind that launch, `Every` counts from the
    moment at which that was seen, so that it waits no longer than its duration. After downtime, and while its job is
    still open, it fires once: nothing else was due since that launch. `Cron` goes on from the time at which its timer
    stands, as `misfire` says. Under `all` the timer stays `behind` the job that it has fed until that job's run has
    ended. Timers that others hold are left to them.
    """
    return catalog.write(lambda db: _fire_due(db, world, limit))


def next_timer_at(db: Db) -> datetime | None:
    """When the first timer is due."""
    row = db.one(SQL.find_next)
    return from_ms(cast(int, row[0])) if row and row[0] is not None else None


def _fire_due(db: Db, world: World, limit: int) -> int:
    now = from_ms(db.now())
    found = _lock_timers(db, now, limit)
    if not found:
        return 0
    world.mark("timekeeper.locked")
    schedules = share_listening(db, {one.timer.schedule_id for one in found})
    open_jobs = {job.schedule_id: job for job in lock_open_jobs(db, schedules.keys())}
    # Asked only now: a checker that held one of these jobs has launched it before we got it.
    launches = _last_launches(db, schedules)
    found, due = _find_all_due(found, schedules, open_jobs, launches, now)
    fires: list[dict[str, Param]] = [
        {
            "schedule_id": timer.schedule_id,
            "generation": schedules[timer.schedule_id].generation,
            "trigger_no": timer.trigger_no,
            "fire_time": to_ms(fire),
        }
        for timer, one in due.items()
        for fire in one.fires
    ]
    # Also those that are fed nothing: they are locked, so a slot that became free has passed them over.
    facts: dict[ScheduleId, list[tuple[int, Fact]]] = {schedule_id: [] for schedule_id in open_jobs}
    fired = set(db.all(SQL.insert_fires, fires=json.dumps(fires)))
    again = {(timer.schedule_id, timer.trigger_no) for timer, one in due.items() if one.set_back}
    fires = [
        fire
        for fire in fires
        if (fire["schedule_id"], fire["trigger_no"], fire["fire_time"]) in fired
        or (fire["schedule_id"], fire["trigger_no"]) in again
    ]
    for fire in fires:
        fact = (cast(int, fire["trigger_no"]), from_ms(cast(int, fire["fire_time"])))
        facts.setdefault(ScheduleId(str(fire["schedule_id"])), []).append(fact)
    world.mark("timekeeper.before_jobs")
    jobs = feed_jobs(db, world, facts, schedules)
    named = [{**fire, "job_id": jobs[ScheduleId(str(fire["schedule_id"]))]} for fire in fires]
    db.run(SQL.name_jobs, fires=json.dumps(named))
    world.mark("timekeeper.before_timers")
    rows = [
        {
            **timer._asdict(),
            "next_fire_at": to_ms(one.next_fire),
            "behind": jobs.get(timer.schedule_id) if one.behind else None,
            "counted_from": None if one.every is None else to_ms(one.next_fire - one.every),
        }
        for timer, one in due.items()
    ]
    db.run(SQL.move_timers, timers=json.dumps(rows))
    gone = [one.timer._asdict() for one in found if one.timer not in due]
    db.run(SQL.remove_timers, timers=json.dumps(gone))
    world.mark("timekeeper.before_commit")
    return len(found)


def _find_all_due(
    found: list[_Found],
    schedules: Mapping[ScheduleId, Schedule],
    open_jobs: Mapping[ScheduleId, Job],
    launches: Mapping[ScheduleId, datetime],
    now: datetime,
) -> tuple[list[_Found], dict[_Timer, Due]]:
    """Return the timers of this batch, and what each of them feeds; a timer of nothing has no entry."""
    due: dict[_Timer, Due] = {}
    fires = 0
    for place, one in enumerate(found):
        if fires >= MOST_FIRES:
            return found[:place], due  # the others are still due, and come in the next batch
        timer = one.timer
        schedule = schedules.get(timer.schedule_id)
        leaves = schedule.spec.trigger.leaves if schedule else ()
        leaf = leaves[timer.trigger_no] if timer.trigger_no < len(leaves) else None
        if schedule is None or not isinstance(leaf, TimeTrigger):
            continue
        job = open_jobs.get(timer.schedule_id)
        waits = job is not None and timer.trigger_no in job.fed
        counted_from = _counted_from(leaf, schedule, one.next_fire_at, launches)
        set_back = isinstance(leaf, Every) and counted_from > now
        if set_back:
            # How long ago the last launch was, nothing says: what the timer counted from, once it had been set right.
            counted_from = min(now, one.counted_from or now)
        due[timer] = replace(find_due(leaf, schedule.spec, counted_from, now, waits=waits), set_back=set_back)
        fires += len(due[timer].fires)
    return found, due


def _lock_timers(db: Db, now: datetime, limit: int) -> list[_Found]:
    """The timers whose time has come, those that were behind a run that has ended, and those of a time to come."""
    rows = [
        row for statement in (SQL.lock_due, SQL.lock_ahead) for row in db.all(statement, now=to_ms(now), limit=limit)
    ]
    freed = db.all(SQL.lock_freed, limit=limit)
    # Asked only now: before we locked a timer, another timekeeper may have fed a job, which may be a run by now.
    held = find_unfinished(db, {JobId(str(behind)) for *_, behind in freed})
    rows += [row[:-1] for row in freed if row[-1] not in held]
    return [
        _Found(
            _Timer(ScheduleId(str(schedule_id)), cast(int, trigger_no)),
            from_ms(cast(int, next_fire_at)),
            None if counted_from is None else from_ms(cast(int, counted_from)),
        )
        for schedule_id, trigger_no, next_fire_at, counted_from in rows
    ]


def _counted_from(
    leaf: TimeTrigger, schedule: Schedule, next_fire_at: datetime, launches: Mapping[ScheduleId, datetime]
) -> datetime:
    """For Cron what is just before the time at which its timer stands: that one has not fired yet."""
    if isinstance(leaf, Cron):
        return max(schedule.since_at, next_fire_at - _MILLISECOND)
    return max(schedule.since_at, launches.get(schedule.schedule_id, schedule.since_at))


def _last_launches(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, datetime]:
    rows = db.all(SQL.read_last_launches, schedules=json.dumps([{"schedule_id": one} for one in schedule_ids]))
    return {ScheduleId(str(one)): from_ms(cast(int, at)) for one, at in rows if at is not None}
