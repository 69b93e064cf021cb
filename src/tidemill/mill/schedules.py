"""Schedules, as `Mill` offers them.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, islice

from tidemill.catalog.db import Db
from tidemill.durations import format_duration
from tidemill.epoch import to_ms
from tidemill.errors import NotFound
from tidemill.lake.datasets import Dataset
from tidemill.mill.apps import check_app
from tidemill.mill.project import program_names
from tidemill.mill.scheduled import Scheduled
from tidemill.names import CommitSeq, ProgramId, advise, dataset_events
from tidemill.run.inputs import find_dataset
from tidemill.run.programs import Program, find_program_by_id
from tidemill.schedule import schedules
from tidemill.schedule.constraints import Concurrency, constraint_to_json
from tidemill.schedule.schedules import (
    Add,
    Change,
    Delete,
    Resume,
    Suspend,
    Update,
    announce_work,
    change_schedules,
)
from tidemill.schedule.specs import BadSchedule, Owner, Schedule, ScheduleSpec, spec_from_json, spec_to_json
from tidemill.schedule.time_triggers import TimeTrigger
from tidemill.schedule.trigger_json import trigger_from_json, trigger_to_json
from tidemill.schedule.triggers import Trigger


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule; trigger and constraints as people write them."""

    name: str
    program: str
    status: str
    owner: str
    generation: int
    trigger: str
    constraints: str
    arguments: Mapping[str, object]
    description: str
    priority: int
    timeout: str
    misfire: str
    next_fire_at: int | None


@dataclass(frozen=True, slots=True)
class FireView:
    """A time at which a schedule's time trigger fires: its logical time."""

    fire_at: int
    trigger: str


class Schedules(Scheduled):
    """Operations on schedules."""

    def list_schedules(self) -> list[ScheduleView]:
        """All schedules by name."""

        def block(db: Db) -> list[ScheduleView]:
            names = program_names(db)
            return [_schedule_view(db, schedule, names) for schedule in schedules.list_schedules(db)]

        return self.catalog.read(block)

    def show_schedule(self, name: str) -> ScheduleView:
        """One schedule; `NotFound` with the nearest name."""
        return self.catalog.read(lambda db: _schedule_view(db, self._schedule(db, name), program_names(db)))

    def suspend_schedule(self, name: str) -> int:
        """Let a schedule listen to nothing; how many pending jobs that dropped."""

        def block(db: Db) -> int:
            seq = db.tick()
            return self._change_one(db, seq, Suspend(self._schedule(db, name).schedule_id))

        return self.catalog.write(block)

    def resume_schedule(self, name: str) -> None:
        """Let a schedule listen again; work that waits in its program's inputs is announced."""

        def block(db: Db) -> None:
            seq = db.tick()
            self._change_one(db, seq, Resume(self._schedule(db, name).schedule_id))

        self.catalog.write(block)

    def next_fires(self, name: str, *, limit: int = 5) -> list[FireView]:
        """The next times at which a schedule's time triggers fire, soonest first; none while it is suspended.

        Those of `Every` hold if nothing starts the program before.
        """

        def block(db: Db) -> list[FireView]:
            schedule = self._schedule(db, name)
            timers = schedules.read_timers(db, schedule.schedule_id)
            leaves = schedule.spec.trigger.leaves
            fires = [
                FireView(to_ms(at), str(leaf))
                for trigger_no, first in timers.items()
                if isinstance(leaf := leaves[trigger_no], TimeTrigger)
                for at in islice(chain([first], leaf.fires_after(first)), limit)
            ]
            return sorted(fires, key=lambda fire: fire.fire_at)[:limit]

        return self.catalog.read(block)

    def find_triggered(self, name: str) -> list[ScheduleView]:
        """The schedules that listen to a data set, or to what a program (`app.program`) writes; by name. `NotFound`."""

        def block(db: Db) -> list[ScheduleView]:
            datasets = self._written_or_named(db, name)
            listening = {
                schedule.qualified_name: schedule
                for dataset in datasets
                for key in dataset_events(dataset.namespace, dataset.name)
                for schedule in schedules.list_schedules(db, event_key=key)
            }
            names = program_names(db)
            return [_schedule_view(db, schedule, names) for _, schedule in sorted(listening.items())]

        return self.catalog.read(block)

    def create_schedule(
        self, name: str, program: str, *, trigger: object, resume: bool = False, **options: object
    ) -> ScheduleView:
        """Make a schedule of ops' own (`app.schedule`) for `program`; suspended unless `resume`.

        `trigger` and `options` are as in the JSON form of schedules: `constraints`, `arguments`, `description`,
        `timeout`, `on_timeout`, `priority`, `deadline`, `misfire`, `grace`. A deployment of the app with its schedules
        removes it. `ScheduleExists`, `BadSchedule`, `BadTrigger`, `ProgramRetired`, `NotFound`.
        """
        namespace, (app, local) = self._split("schedule", name, 2)
        first = ScheduleSpec(trigger if isinstance(trigger, Trigger) else trigger_from_json(_versioned(trigger)))
        spec = _changed(first, options)

        def block(db: Db) -> None:
            seq = db.tick()
            check_app(db, namespace, app)
            found = self._startable(db, program)
            if found.kind.is_worker:
                raise BadSchedule(f"{name} would start {found.qualified_name}, a worker, which runs all the time")
            self._check(db, name, found, spec)
            self._change_one(db, seq, Add(namespace, app, local, found.program_id, spec, Owner.OPS, resume))

        self.catalog.write(block)
        return self.show_schedule(name)

    def update_schedule(self, name: str, **options: object) -> int:
        """Delete and recreate a schedule with other options (as for `create_schedule`, and `trigger`).

        What is not named is kept; name, program and status are. How many pending jobs that dropped.
        """

        def block(db: Db) -> int:
            seq = db.tick()
            schedule = self._schedule(db, name)
            spec = _changed(schedule.spec, options)
            self._check(db, name, find_program_by_id(db, schedule.program_id), spec)
            return self._change_one(db, seq, Update(schedule.schedule_id, spec))

        return self.catalog.write(block)

    def delete_schedule(self, name: str) -> int:
        """Remove a schedule; how many pending jobs that dropped."""

        def block(db: Db) -> int:
            seq = db.tick()
            return self._change_one(db, seq, Delete(self._schedule(db, name).schedule_id))

        return self.catalog.write(block)

    def _change_one(self, db: Db, seq: CommitSeq, change: Change) -> int:
        """Make a change and announce what waits for its program; return the number of dropped jobs."""
        changed = change_schedules(db, self.world, seq, [change])
        announce_work(db, changed)
        return changed[0].dropped_jobs

    def _written_or_named(self, db: Db, name: str) -> list[Dataset]:
        if "." in name:
            try:
                return [find_dataset(db, written) for written in self._program(db, name).writes]
            except NotFound:
                if name.count(".") > 1:
                    raise
        return [self._dataset(db, name)]

    def _check(self, db: Db, name: str, program: Program, spec: ScheduleSpec) -> None:
        program.bind(spec.arguments)
        schedules.check_trigger(db, name, spec.trigger)


def _schedule_view(db: Db, schedule: Schedule, names: Mapping[ProgramId, str]) -> ScheduleView:
    fires_at = next(iter(schedules.read_timers(db, schedule.schedule_id).values()), None)
    return ScheduleView(
        name=schedule.qualified_name,
        program=names.get(schedule.program_id, schedule.program_id),
        status=schedule.status,
        owner=schedule.owner,
        generation=schedule.generation,
        trigger=str(schedule.spec.trigger),
        constraints=", ".join(str(constraint) for constraint in schedule.spec.constraints),
        arguments=schedule.spec.arguments,
        description=schedule.spec.description,
        priority=schedule.spec.priority,
        timeout=format_duration(schedule.spec.timeout),
        misfire=schedule.spec.misfire.value,
        next_fire_at=None if fires_at is None else to_ms(fires_at),
    )


def _changed(spec: ScheduleSpec, options: Mapping[str, object]) -> ScheduleSpec:
    """`spec` with `options` in their JSON form, or as the objects that they stand for."""
    before = spec_to_json(spec)
    for name in options:
        if name not in before:
            raise BadSchedule(f"it has no {name!r}; {advise(name, before, ', '.join(before))}")
    return spec_from_json({**before, **{name: _plain(value) for name, value in options.items()}})


def _plain(value: object) -> object:
    match value:
        case Trigger():
            return trigger_to_json(value)
        case Concurrency():
            return constraint_to_json(value)
        case {"type": _}:
            return _versioned(value)
        case list() | tuple():
            return [_plain(one) for one in value]
        case _:
            return value


def _versioned(value: object) -> object:
    """A trigger or constraint as people write it: of the version of today."""
    return {"version": 1, **value} if isinstance(value, Mapping) else value
