"""Schedules, as `Mill` offers them: what there is, what starts them when, and changes.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING

from tidemill.catalog.audit_log import NoteChange, write_note
from tidemill.catalog.db import Db
from tidemill.durations import format_duration
from tidemill.epoch import to_ms
from tidemill.errors import NotFound
from tidemill.json_specs import read_plain, write_plain
from tidemill.lake.datasets import Dataset
from tidemill.mill.apps import check_app
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import Noun, program_names
from tidemill.mill.scheduled import find_named
from tidemill.names import CommitSeq, ProgramId, dataset_events, qualified
from tidemill.run.programs import Program, find_program_by_id
from tidemill.schedule import schedules
from tidemill.schedule.specs import BadSchedule, Owner, Schedule, ScheduleSpec, Status
from tidemill.schedule.time_triggers import TimeTrigger

if TYPE_CHECKING:
    from tidemill.schedule.changes import Change


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
    waiting_periods: int
    """Ends of periods that wait for runs of their own (`WatermarkPassed` with `mode="each"`)."""


@dataclass(frozen=True, slots=True)
class FireView:
    """A time at which a schedule's time trigger fires: its logical time."""

    fire_at: int
    trigger: str


class Schedules(Noun):
    """Operations on schedules."""

    noun = "schedule"

    @operation(Right.READ)
    def list(self) -> Sequence[ScheduleView]:
        """List all schedules by name."""

        def block(db: Db) -> Sequence[ScheduleView]:
            names = program_names(db)
            return [_schedule_view(db, schedule, names) for schedule in schedules.list_schedules(db)]

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, name: str) -> ScheduleView:
        """Return a schedule; `NotFound` with the nearest name."""
        return self._catalog.read(lambda db: _schedule_view(db, find_named(self._project, db, name), program_names(db)))

    @operation(Right.READ)
    def next(self, name: str, *, limit: int = 5) -> Sequence[FireView]:
        """List the next times at which a schedule's time triggers fire, soonest first; none while it is suspended.

        Those of `Every` hold if nothing starts the program before.
        """

        def block(db: Db) -> Sequence[FireView]:
            schedule = find_named(self._project, db, name)
            timers = schedules.read_timers(db, schedule.schedule_id)
            leaves = schedule.spec.trigger.leaves
            fires = [
                FireView(to_ms(at), str(leaf))
                for trigger_no, first in timers.items()
                if isinstance(leaf := leaves[trigger_no], TimeTrigger)
                for at in islice(chain([first], leaf.fires_after(first)), limit)
            ]
            return sorted(fires, key=lambda fire: fire.fire_at)[:limit]

        return self._catalog.read(block)

    @operation(Right.READ)
    def triggered_by(self, name: str) -> Sequence[ScheduleView]:
        """List the schedules that listen to a data set, or to outputs of a program (`app.program`); `NotFound`."""

        def block(db: Db) -> Sequence[ScheduleView]:
            datasets = self._written_or_named(db, name)
            listening = {
                schedule.qualified_name: schedule
                for dataset in datasets
                for key in dataset_events(dataset.namespace, dataset.name)
                for schedule in schedules.list_schedules(db, event_key=key)
            }
            names = program_names(db)
            return [_schedule_view(db, schedule, names) for _, schedule in sorted(listening.items())]

        return self._catalog.read(block)

    @operation(Right.OPERATE)
    def suspend(self, name: str) -> int:
        """Suspend a schedule: it listens to nothing. Return the number of dropped pending jobs."""
        from tidemill.schedule.changes import Suspend

        def block(db: Db) -> int:
            seq = db.tick()
            found = find_named(self._project, db, name)
            already = found.status is Status.SUSPENDED
            note = None if already else self._note("suspend", found.qualified_name)
            return self._change_one(db, seq, Suspend(found.schedule_id), note)

        return self._catalog.write(block)

    @operation(Right.OPERATE)
    def resume(self, name: str) -> None:
        """Resume a schedule: it listens again, and work that waits in its program's inputs is announced."""
        from tidemill.schedule.changes import Resume

        def block(db: Db) -> None:
            seq = db.tick()
            found = find_named(self._project, db, name)
            already = found.status is not Status.SUSPENDED
            note = None if already else self._note("resume", found.qualified_name)
            self._change_one(db, seq, Resume(found.schedule_id), note)

        self._catalog.write(block)

    @operation(Right.DEPLOY)
    def create(
        self, name: str, program: str, *, trigger: object, suspended: bool = False, **options: object
    ) -> ScheduleView:
        """Create a schedule that no app declares (`app.schedule`) for `program`. It listens at once unless `suspended`.

        `trigger` and `options` are as in the JSON form of schedules: `constraints`, `arguments`, `description`,
        `timeout`, `on_timeout`, `priority`, `deadline`, `misfire`, `grace`. A deployment of the app with its schedules
        removes it. `ScheduleExists`, `BadSchedule`, `BadTrigger`, `ProgramRetired`, `NotFound`.
        """
        from tidemill.schedule.changes import Add

        namespace, (app, local) = self._project.split("schedule", name, 2)
        spec = read_plain(ScheduleSpec, write_plain({"trigger": trigger, **options}))

        def block(db: Db) -> None:
            seq = db.tick()
            check_app(db, namespace, app)
            found = self._project.startable(db, program)
            if found.kind.is_worker:
                raise BadSchedule(f"{name} would start {found.qualified_name}, a worker, which runs all the time")
            self._check(db, name, found, spec)
            note = self._note("create", qualified(namespace, app, local), program=found.qualified_name)
            self._change_one(db, seq, Add(namespace, app, local, found.program_id, spec, Owner.OPS, suspended), note)

        self._catalog.write(block)
        return self.show(name)

    @operation(Right.DEPLOY)
    def update(self, name: str, **options: object) -> int:
        """Delete and recreate a schedule with other options (as for `create`, and `trigger`).

        Options that are not named stay; so do name, program and status. Returns the number of dropped pending jobs.
        """
        from tidemill.schedule.changes import Update

        def block(db: Db) -> int:
            seq = db.tick()
            schedule = find_named(self._project, db, name)
            spec = read_plain(ScheduleSpec, write_plain(schedule.spec) | write_plain(options))
            self._check(db, name, find_program_by_id(db, schedule.program_id), spec)
            note = self._note("update", schedule.qualified_name, options=sorted(options))
            return self._change_one(db, seq, Update(schedule.schedule_id, spec), note)

        return self._catalog.write(block)

    @operation(Right.DEPLOY)
    def delete(self, name: str) -> int:
        """Delete a schedule, and return the number of dropped pending jobs."""
        from tidemill.schedule.changes import Delete

        def block(db: Db) -> int:
            seq = db.tick()
            found = find_named(self._project, db, name)
            return self._change_one(db, seq, Delete(found.schedule_id), self._note("delete", found.qualified_name))

        return self._catalog.write(block)

    def _change_one(self, db: Db, seq: CommitSeq, change: Change, note: NoteChange | None) -> int:
        """Make a change and announce what waits for its program; return the number of dropped jobs."""
        # More than half of what this module would load, and no list needs it.
        from tidemill.schedule.changes import announce_work, change_schedules

        changed = change_schedules(db, self._world, seq, [change])
        announce_work(db, changed)
        write_note(db, note)
        return changed[0].dropped_jobs

    def _check(self, db: Db, name: str, program: Program, spec: ScheduleSpec) -> None:
        from tidemill.schedule.changes import check_trigger

        program.bind(spec.arguments)
        check_trigger(db, name, spec.trigger)

    def _written_or_named(self, db: Db, name: str) -> Sequence[Dataset]:
        if "." in name:
            try:
                return [self._project.dataset(db, written) for written in self._project.program(db, name).writes]
            except NotFound:
                if name.count(".") > 1:
                    raise
        return [self._project.dataset(db, name)]


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
        waiting_periods=schedules.count_waiting(db, schedule),
    )
