"""Changes of schedules, as `Mill` offers them: create, update, delete, suspend, resume."""

from __future__ import annotations

from tidemill.catalog.db import Db
from tidemill.json_specs import read_plain, write_plain
from tidemill.mill.apps import check_app
from tidemill.mill.schedules import Schedules, ScheduleView
from tidemill.names import CommitSeq
from tidemill.run.programs import Program, find_program_by_id
from tidemill.schedule.changes import (
    Add,
    Change,
    Delete,
    Resume,
    Suspend,
    Update,
    announce_work,
    change_schedules,
    check_trigger,
)
from tidemill.schedule.specs import BadSchedule, Owner, ScheduleSpec


class ScheduleChanges(Schedules):
    """Operations that change schedules. No list needs what they load."""

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

    def create_schedule(
        self, name: str, program: str, *, trigger: object, suspended: bool = False, **options: object
    ) -> ScheduleView:
        """Make a schedule of ops' own (`app.schedule`) for `program`; it listens at once unless `suspended`.

        `trigger` and `options` are as in the JSON form of schedules: `constraints`, `arguments`, `description`,
        `timeout`, `on_timeout`, `priority`, `deadline`, `misfire`, `grace`. A deployment of the app with its schedules
        removes it. `ScheduleExists`, `BadSchedule`, `BadTrigger`, `ProgramRetired`, `NotFound`.
        """
        namespace, (app, local) = self._split("schedule", name, 2)
        spec = read_plain(ScheduleSpec, write_plain({"trigger": trigger, **options}))

        def block(db: Db) -> None:
            seq = db.tick()
            check_app(db, namespace, app)
            found = self._startable(db, program)
            if found.kind.is_worker:
                raise BadSchedule(f"{name} would start {found.qualified_name}, a worker, which runs all the time")
            self._check(db, name, found, spec)
            self._change_one(db, seq, Add(namespace, app, local, found.program_id, spec, Owner.OPS, suspended))

        self.catalog.write(block)
        return self.show_schedule(name)

    def update_schedule(self, name: str, **options: object) -> int:
        """Delete and recreate a schedule with other options (as for `create_schedule`, and `trigger`).

        What is not named is kept; name, program and status are. How many pending jobs that dropped.
        """

        def block(db: Db) -> int:
            seq = db.tick()
            schedule = self._schedule(db, name)
            spec = read_plain(ScheduleSpec, write_plain(schedule.spec) | write_plain(options))
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

    def _check(self, db: Db, name: str, program: Program, spec: ScheduleSpec) -> None:
        program.bind(spec.arguments)
        check_trigger(db, name, spec.trigger)
