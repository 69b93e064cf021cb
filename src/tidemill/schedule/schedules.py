"""The schedule store: the only truth of schedules, with an index from event keys to them (seed 001).

`changes` changes schedules. It needs much more of the product, which a listing must not wait for.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import Row, load_sql
from tidemill.durations import to_milliseconds
from tidemill.epoch import from_ms
from tidemill.errors import NotFound
from tidemill.json_specs import read_text
from tidemill.names import CommitSeq, EventKey, Namespace, ProgramId, ScheduleId, nearest, qualified
from tidemill.schedule.data_triggers import PassedMode, WatermarkPassed
from tidemill.schedule.specs import Owner, Schedule, ScheduleSpec, Status

if TYPE_CHECKING:
    from tidemill.schedule.schedules_sql import Sql

SQL: Sql = load_sql(__file__)


def find_schedule(db: Db, namespace: Namespace, app: str, name: str) -> Schedule:
    """The schedule of that name; `NotFound` with the nearest name."""
    row = db.one(SQL.find_schedule, namespace=namespace, app=app, name=name)
    if row is None:
        wanted = qualified(namespace, app, name)
        raise NotFound("schedule", wanted, nearest(wanted, (s.qualified_name for s in list_schedules(db))))
    return _schedule(row)


def read_schedules(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, Schedule]:
    """Those of `schedule_ids` that exist, unlocked. Cost: look-ups."""
    return {s.schedule_id: s for s in _schedules(db.all(SQL.read_schedules, schedule_ids=_json(schedule_ids)))}


def lock_schedules(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, Schedule]:
    """Those of `schedule_ids` that exist, locked for a change until the block ends."""
    return {s.schedule_id: s for s in _schedules(db.all(SQL.lock_schedules, schedule_ids=_json(schedule_ids)))}


def share_listening(db: Db, schedule_ids: Iterable[ScheduleId]) -> dict[ScheduleId, Schedule]:
    """Those of `schedule_ids` that listen, locked against change until the block ends."""
    return {s.schedule_id: s for s in _schedules(db.all(SQL.share_listening, schedule_ids=_json(schedule_ids)))}


def list_schedules(db: Db, *, program_id: ProgramId | None = None, event_key: EventKey | None = None) -> list[Schedule]:
    """All schedules, or those that start a program, or listen to an event key; in order of their names."""
    if event_key is not None:
        found = _schedules(db.all(SQL.list_by_event_key, event_key=event_key))
        return [s for s in found if program_id in {None, s.program_id}]
    if program_id is not None:
        return _schedules(db.all(SQL.list_by_program, program_id=program_id))
    return _schedules(db.all(SQL.list_schedules))


def find_listeners(db: Db, event_keys: Iterable[EventKey]) -> dict[EventKey, list[tuple[ScheduleId, int]]]:
    """Who listens to each key: schedule and number of the leaf. Cost: look-ups of the keys, never the schedules."""
    found: dict[EventKey, list[tuple[ScheduleId, int]]] = {}
    for key, schedule_id, trigger_no in db.all(SQL.read_trigger_keys, event_keys=_json(event_keys)):
        found.setdefault(EventKey(str(key)), []).append((ScheduleId(str(schedule_id)), cast(int, trigger_no)))
    return found


def read_timers(db: Db, schedule_id: ScheduleId) -> dict[int, datetime]:
    """When each time trigger of the schedule is looked at next, soonest first (an early run may have moved it)."""
    rows = db.all(SQL.read_timers, schedule_id=schedule_id)
    return {cast(int, trigger_no): from_ms(cast(int, at)) for trigger_no, at in rows}


def count_waiting(db: Db, schedule: Schedule) -> int:
    """Return the number of boundaries that wait for runs of their own. Cost: a look-up, if there can be any."""
    each = {
        trigger_no: to_milliseconds(leaf.every)
        for trigger_no, leaf in enumerate(schedule.spec.trigger.leaves)
        if isinstance(leaf, WatermarkPassed) and leaf.mode is PassedMode.EACH
    }
    rows = db.all(SQL.read_boundaries, schedule_id=schedule.schedule_id) if each else []
    queues = cast("list[tuple[int, int, int]]", rows)
    return sum(
        (last_at - next_at) // each[trigger_no] + 1
        for trigger_no, next_at, last_at in queues
        if trigger_no in each and next_at <= last_at
    )


def _json(texts: Iterable[str]) -> str:
    return json.dumps(sorted(set(texts)))


@lru_cache(maxsize=4096)
def _spec(text: str) -> ScheduleSpec:
    """Read once what every message and every check asks for: parsing was half of the scheduler's time."""
    return read_text(ScheduleSpec, text)


def _schedules(rows: Iterable[Row]) -> list[Schedule]:
    return [_schedule(row) for row in rows]


def _schedule(row: Row) -> Schedule:
    schedule_id, namespace, app, name, generation, since_seq, since_at, program_id, spec, owner, status = row
    return Schedule(
        schedule_id=ScheduleId(str(schedule_id)),
        namespace=Namespace(str(namespace)),
        app=str(app),
        name=str(name),
        generation=cast(int, generation),
        since_seq=CommitSeq(cast(int, since_seq)),
        since_at=from_ms(cast(int, since_at)),
        program_id=ProgramId(str(program_id)),
        spec=_spec(str(spec)),
        owner=Owner(str(owner)),
        status=Status(str(status)),
    )
