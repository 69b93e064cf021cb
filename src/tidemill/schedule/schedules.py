"""The schedule store: the only truth of schedules, with an index from event keys to them (seed 001).

`changes` changes schedules. It needs much more of the product, which a listing must not wait for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db
from tidemill.catalog.named import ALL_ROWS, LAST_TEXT, Param, load_sql
from tidemill.errors import NotFound
from tidemill.names import EventKey, Namespace, ProgramId, ScheduleId, nearest, qualified
from tidemill.run.step.periods import Periods
from tidemill.schedule.data_triggers import PassedMode, WatermarkPassed
from tidemill.schedule.specs import Schedule, Status

if TYPE_CHECKING:
    from tidemill.schedule.schedules_sql import Sql

SQL: Sql = load_sql(__file__)


def find_schedule(db: Db, namespace: Namespace, app: str, name: str, *, everywhere: bool = False) -> Schedule:
    """The schedule of that name; `NotFound` with the nearest name of its namespace, or of all with `everywhere`."""
    schedule = db.record(SQL.find_schedule, Schedule, namespace=namespace, app=app, name=name)
    if schedule is None:
        wanted = qualified(namespace, app, name)
        known = (one.qualified_name for one in list_schedules(db) if everywhere or one.namespace == namespace)
        raise NotFound("schedule", wanted, nearest(wanted, known))
    return schedule


def list_limits(db: Db, program_id: ProgramId) -> set[str]:
    """Return the limits of which a run of the program holds a slot when no schedule starts it.

    These are the limits of all schedules of the program.
    """
    return {limit for one in list_schedules(db, program_id=program_id) for limit in one.spec.slots(program_id)}


def read_schedules(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, Schedule]:
    """Return the schedules of `schedule_ids` that exist, unlocked. Cost: look-ups."""
    return {s.schedule_id: s for s in db.records(SQL.read_schedules, Schedule, schedule_ids=_json(schedule_ids))}


def lock_schedules(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, Schedule]:
    """Return the schedules of `schedule_ids` that exist, locked for a change until the block ends."""
    return {s.schedule_id: s for s in db.records(SQL.lock_schedules, Schedule, schedule_ids=_json(schedule_ids))}


def share_listening(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, Schedule]:
    """Return the schedules of `schedule_ids` that listen, locked against change until the block ends."""
    return {s.schedule_id: s for s in db.records(SQL.share_listening, Schedule, schedule_ids=_json(schedule_ids))}


def list_by_name(db: Db, name: str) -> list[Schedule]:
    """List the schedules of that name, of all apps. Cost: a look-up."""
    return db.records(SQL.list_by_name, Schedule, name=name)


def list_schedules(
    db: Db,
    *,
    app: tuple[Namespace, str] | None = None,
    program_id: ProgramId | None = None,
    event_key: EventKey | None = None,
    trigger_type: str = "",
    status: Status | None = None,
    after: tuple[str, str, str] = ("", "", ""),
    limit: int = ALL_ROWS,
) -> list[Schedule]:
    """List schedules by name, behind `after`: all, or those that fit each given filter.

    `event_key` goes with `program_id` alone, and gives all. Cost: the page with one filter, or with an app and another.
    With more filters: the schedules of the program, else those with the type of trigger.
    """
    if event_key is not None:
        found = db.records(SQL.list_by_event_key, Schedule, event_key=event_key)
        return [s for s in found if program_id in {None, s.program_id}]
    until = (LAST_TEXT, LAST_TEXT, LAST_TEXT)
    if app is not None:
        after, until = max(after, (*app, "")), (*app, LAST_TEXT)
    bounds: dict[str, Param] = {
        "after_namespace": after[0],
        "after_app": after[1],
        "after_name": after[2],
        "until_namespace": until[0],
        "until_app": until[1],
        "until_name": until[2],
        "limit": limit,
    }
    wanted = "" if status is None else status.value
    if program_id is not None:
        filters = {"program_id": program_id, "trigger_type": trigger_type, "status": wanted}
        return db.records(SQL.list_by_program, Schedule, **filters, **bounds)
    if trigger_type:
        return db.records(SQL.list_by_trigger_type, Schedule, trigger_type=trigger_type, status=wanted, **bounds)
    if status is not None:
        return db.records(SQL.list_by_status, Schedule, status=wanted, **bounds)
    return db.records(SQL.list_schedules, Schedule, **bounds)


def list_suspended(db: Db, since: datetime, until: datetime) -> list[Schedule]:
    """List the schedules that were suspended in [since, until), by name. Cost: their number."""
    return db.records(SQL.list_suspended, Schedule, since=since, until=until)


def list_passed(db: Db, schedule_id: ScheduleId) -> list[tuple[str, int, int, int, int, int]]:
    """List what the schedule was not fed while suspended: topic, number of messages, first and last position."""
    return db.records(SQL.list_passed, tuple[str, int, int, int, int, int], schedule_id=schedule_id)


def find_listeners(db: Db, event_keys: Iterable[EventKey]) -> dict[EventKey, list[tuple[ScheduleId, int]]]:
    """Find the listeners of each key: schedule and number of the leaf.

    Cost: look-ups of the keys, never the schedules.
    """
    found: dict[EventKey, list[tuple[ScheduleId, int]]] = {}
    listeners = db.records(SQL.read_trigger_keys, tuple[EventKey, ScheduleId, int], event_keys=_json(event_keys))
    for key, schedule_id, trigger_no in listeners:
        found.setdefault(key, []).append((schedule_id, trigger_no))
    return found


def read_timers(db: Db, schedule_id: ScheduleId) -> dict[int, datetime]:
    """Return the next look at each time trigger of the schedule, soonest first. An early run may have moved it."""
    return dict(db.records(SQL.read_timers, tuple[int, datetime], schedule_id=schedule_id))


def count_waiting(db: Db, schedule: Schedule) -> int:
    """Return the number of boundaries that wait for runs of their own. Cost: a look-up and that number, if not 0."""
    each = {
        trigger_no: leaf.every
        for trigger_no, leaf in enumerate(schedule.spec.trigger.leaves)
        if isinstance(leaf, WatermarkPassed) and leaf.mode is PassedMode.EACH
    }
    if not each:
        return 0
    queues = db.records(SQL.read_boundaries, tuple[int, datetime, datetime, str], schedule_id=schedule.schedule_id)
    return sum(
        Periods.of(each[trigger_no], zone).count(next_at, last_at)
        for trigger_no, next_at, last_at, zone in queues
        if trigger_no in each and next_at <= last_at
    )


def _json(texts: Iterable[str]) -> str:
    return json.dumps(sorted(set(texts)))
