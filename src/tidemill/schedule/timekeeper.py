"""Due times → jobs. No thread and no timer object for a schedule: what is due is found through an index."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Final, NamedTuple, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.names import ScheduleId
from tidemill.schedule.jobs import Fact, feed_jobs, from_ms, lock_open_jobs, to_ms
from tidemill.schedule.schedules import share_listening
from tidemill.schedule.time_triggers import Every
from tidemill.world import World

SQL: Final = load_sql(__file__)

BATCH: Final = 500
"""Timers handled in one transaction."""


class _Timer(NamedTuple):
    schedule_id: ScheduleId
    trigger_no: int


def fire_due(catalog: Catalog, world: World, limit: int = BATCH) -> int:
    """Let at most `limit` due timers feed their schedules' jobs, and give how many were looked at.

    `Every` counts from the schedule's last launch. Launches do not touch timers: a timer that an early run has moved
    is found early, never late, and set right. After downtime, and while its job is still open, it fires once: nothing
    else was due since that launch. Timers that others hold are left to them.
    """
    return catalog.write(lambda db: _fire_due(db, world, limit))


def next_timer_at(db: Db) -> datetime | None:
    """When the first timer is due."""
    row = db.one(SQL.find_next)
    return from_ms(cast(int, row[0])) if row and row[0] is not None else None


def _fire_due(db: Db, world: World, limit: int) -> int:
    now = from_ms(db.now())
    timers = [
        _Timer(ScheduleId(str(schedule_id)), cast(int, trigger_no))
        for schedule_id, trigger_no in db.all(SQL.lock_due, now=to_ms(now), limit=limit)
    ]
    if not timers:
        return 0
    world.mark("timekeeper.locked")
    schedules = share_listening(db, {timer.schedule_id for timer in timers})
    open_jobs = {job.schedule_id: job for job in lock_open_jobs(db, schedules.keys())}
    # Asked only now: a checker that held one of these jobs has launched it before we got it.
    launches = _last_launches(db, schedules)
    moved: dict[_Timer, datetime] = {}
    due: dict[_Timer, datetime] = {}
    for timer in timers:
        schedule = schedules.get(timer.schedule_id)
        leaves = schedule.spec.trigger.leaves if schedule else ()
        leaf = leaves[timer.trigger_no] if timer.trigger_no < len(leaves) else None
        if schedule is None or not isinstance(leaf, Every):
            continue
        counted_from = max(schedule.since_at, launches.get(timer.schedule_id, schedule.since_at))
        due_at = leaf.last_fire(counted_from, now)
        moved[timer] = leaf.next_fire(due_at or counted_from)
        job = open_jobs.get(timer.schedule_id)
        waits = job is not None and timer.trigger_no in job.fed
        if due_at is not None and not waits:
            due[timer] = due_at
    fires = {
        timer: {
            "schedule_id": timer.schedule_id,
            "generation": schedules[timer.schedule_id].generation,
            "trigger_no": timer.trigger_no,
            "fire_time": to_ms(due_at),
        }
        for timer, due_at in due.items()
    }
    fired = {
        _Timer(ScheduleId(str(schedule_id)), cast(int, trigger_no))
        for schedule_id, trigger_no, _ in db.all(SQL.insert_fires, fires=json.dumps(list(fires.values())))
    }
    # Also those that are fed nothing: they are locked, so a slot that became free has passed them over.
    facts: dict[ScheduleId, list[tuple[int, Fact]]] = {schedule_id: [] for schedule_id in open_jobs}
    for timer in sorted(fired):
        facts.setdefault(timer.schedule_id, []).append((timer.trigger_no, due[timer]))
    world.mark("timekeeper.before_jobs")
    jobs = feed_jobs(db, world, facts, schedules)
    named = [{**fires[timer], "job_id": jobs[timer.schedule_id]} for timer in fired]
    db.run(SQL.name_jobs, fires=json.dumps(named))
    world.mark("timekeeper.before_timers")
    rows = [{**timer._asdict(), "next_fire_at": to_ms(at)} for timer, at in moved.items()]
    db.run(SQL.move_timers, timers=json.dumps(rows))
    db.run(SQL.remove_timers, timers=json.dumps([timer._asdict() for timer in timers if timer not in moved]))
    world.mark("timekeeper.before_commit")
    return len(timers)


def _last_launches(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, datetime]:
    rows = db.all(SQL.read_last_launches, schedules=json.dumps([{"schedule_id": one} for one in schedule_ids]))
    return {ScheduleId(str(one)): from_ms(cast(int, at)) for one, at in rows if at is not None}
