"""Schedules, as `Mill` offers them: what there is, what starts them when, and changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Db
from tidemill.epoch import EPOCH
from tidemill.errors import NotFound, UserError, check_generation
from tidemill.json_specs import list_tags, read_plain, write_plain
from tidemill.lake.datasets import Dataset
from tidemill.mill.apps import check_app, find_app_named
from tidemill.mill.new_schedules import NewSchedule, naming, read_entries
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, BadPage, Page, check_filter, cut, one_more, read_key, write_key
from tidemill.mill.period import read_period
from tidemill.mill.project import Noun, program_names
from tidemill.mill.schedule_views import ScheduleDetail, ScheduleView, detail_of, page_of
from tidemill.mill.scheduled import find_named
from tidemill.names import (
    CommitSeq,
    EventKey,
    ScheduleId,
    dataset_events,
    program_event,
    qualified,
    topic_event,
    window_event,
)
from tidemill.run.records.programs import Program, find_program_by_id
from tidemill.schedule import schedules
from tidemill.schedule.fires import LAST_TIME, list_fires
from tidemill.schedule.program_triggers import STATES
from tidemill.schedule.references import list_references
from tidemill.schedule.specs import Owner, Schedule, ScheduleSpec, Status, SuspendMode
from tidemill.schedule.triggers import Trigger

if TYPE_CHECKING:
    from tidemill.schedule.changes import Change, Changed

_MOST_TIMES: Final = 10_000
"""The most times on a page of a schedule's next times. A million took half a minute."""


@dataclass(frozen=True, slots=True)
class FireView:
    """A time at which a schedule's time trigger fires: its logical time."""

    fire_at: datetime
    schedule: str
    trigger: str


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    """A schedule that was suspended, resumed, changed or deleted, and the number of its pending jobs that were dropped.

    `status` is None after a deletion. `changed` is false if the schedule was suspended, listened, or had the options,
    already.
    """

    schedule: str
    status: Status | None
    dropped_jobs: int
    changed: bool


class BadMode(UserError):
    """A mode of suspension that there is not."""

    code = "bad_mode"

    def __init__(self, mode: str) -> None:
        self.mode = mode
        super().__init__(f"mode {mode!r} is refused", f"use {', '.join(SuspendMode)}", before=": ")


class Schedules(Noun):
    """Operations on schedules."""

    noun = "schedule"

    @operation(Right.READ)
    def list(
        self,
        *,
        app: str | None = None,
        program: str | None = None,
        trigger: str | None = None,
        status: str | None = None,
        limit: int = PAGE,
        after: str = "",
    ) -> Page[ScheduleView]:
        """List schedules by name: all, or those that fit each filter.

        `trigger` is a type of the JSON form, such as `cron`; it means the trigger itself or a part of it. `BadFilter`
        for a type or status that there is not, `NotFound`. Cost: the page; with several filters perhaps the schedules
        of the program, else those with the type of trigger.
        """
        place = read_key(after, ("", "", ""))
        kind = "" if trigger is None else check_filter("trigger", trigger, list_tags(Trigger))
        state = None if status is None else check_filter("status", status, Status)

        def block(db: Db) -> Page[ScheduleView]:
            of_app = find_app_named(self._project, db, app)
            program_id = None if program is None else self._project.program(db, program).program_id
            found = self._rows(
                lambda behind, most: schedules.list_schedules(
                    db,
                    app=of_app,
                    program_id=program_id,
                    trigger_type=kind,
                    status=state,
                    after=behind,
                    limit=most,
                ),
                place,
                limit,
                lambda one: (str(one.namespace), one.app, one.name),
                lambda rows: [one.namespace for one in rows],
                by_namespace=True,
            )
            return page_of(db, found, limit)

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, name: str) -> ScheduleDetail:
        """Return a schedule, and what its open job waits for; `NotFound` with the nearest name."""
        return self._catalog.read(lambda db: detail_of(db, find_named(self._project, db, name)))

    @operation(Right.READ)
    def next(
        self,
        name: str | None = None,
        *,
        start: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 5,
        after: str = "",
    ) -> Page[FireView]:
        """List the next times at which time triggers fire, soonest first: those of a schedule, or of all schedules.

        Only times from `start` on and before `until`. A suspended schedule has none. A start of the program by another
        trigger moves the times of `Every`. The list ends with the year 9999. `BadPage` for a `limit` above 10,000,
        `BadPeriod`, `NotFound`. Cost: the page and, for all schedules, the triggers that fire before it.
        """
        place = read_key(after, (EPOCH, "", 0))
        if limit > _MOST_TIMES:
            raise BadPage("limit", str(limit), most=_MOST_TIMES)
        begin, end = read_period(start or EPOCH, until or LAST_TIME)

        def block(db: Db) -> Page[FireView]:
            of = None if name is None else find_named(self._project, db, name).schedule_id
            most = one_more(limit)
            if of is not None or self._project.access.only is None:
                fires = list_fires(db, of, place, begin, end, most)
            else:  # of each schedule by itself: those of other namespaces between them have no end
                seen = (one.schedule_id for one in schedules.list_schedules(db) if self._sees(one))
                each = [fire for one in seen for fire in list_fires(db, one, place, begin, end, most)]
                fires = sorted(each, key=lambda fire: fire.place)[:most]
            return cut(fires, limit, lambda fire: write_key(*fire.place), lambda fire: FireView(*fire.shown))

        return self._catalog.read(block)

    @operation(Right.READ)
    def triggered_by(self, name: str, *, limit: int = PAGE, after: str = "") -> Page[ScheduleView]:
        """List the schedules that listen to a data set, a program (`app.program`) or a topic; `NotFound`.

        Those of a program listen to its outputs, to the ends of its runs, or to its windows. Cost: the number of these
        schedules.
        """
        place = read_key(after, ("", "", ""))

        def block(db: Db) -> Page[ScheduleView]:
            listening = {
                (schedule.namespace, schedule.app, schedule.name): schedule
                for key in self._announced(db, name)
                for schedule in schedules.list_schedules(db, event_key=key)
                if self._sees(schedule)
            }
            found = [schedule for names, schedule in sorted(listening.items()) if names > place]
            return page_of(db, found[: one_more(limit)], limit)

        return self._catalog.read(block)

    @operation(Right.OPERATE, in_block=True)
    def suspend(self, name: str, *, mode: str = SuspendMode.DROP, if_generation: int | None = None) -> ScheduleChange:
        """Suspend a schedule: it starts no run until it is resumed.

        With the mode `drop`, its pending jobs are dropped, and what comes meanwhile feeds no job. `hold` keeps its
        jobs, and feeds them. `backlog` drops its jobs, and keeps what comes meanwhile for the resumption. A suspended
        schedule may change its mode. With `if_generation` the schedule must have this generation, else
        `ChangedMeanwhile`. `BadMode`, `NotFound`.
        """
        from tidemill.schedule.changes import Suspend

        chosen = _read_mode(mode)

        def block(db: Db) -> ScheduleChange:
            seq = db.tick()
            found = self._find(db, name, if_generation)
            already = found.suspended_mode is chosen
            note = None if already else self._moved("suspend", found, chosen)
            dropped = self._change_one(db, seq, Suspend(found.schedule_id, chosen), note)
            return ScheduleChange(found.qualified_name, Status.SUSPENDED, dropped, not already)

        return self._catalog.write(block)

    @operation(Right.OPERATE, command="schedule suspend", in_block=True)
    def suspend_all(self, *, app: str | None = None, mode: str = SuspendMode.DROP) -> Sequence[ScheduleChange]:
        """Suspend all schedules that are not suspended, of one app or of all apps, in one transaction; return them.

        `mode` is as for `suspend`. `BadMode`, `NotFound` for an app that is not there.
        """
        from tidemill.schedule.changes import Suspend

        chosen = _read_mode(mode)

        def block(db: Db) -> Sequence[ScheduleChange]:
            seq = db.tick()
            named = schedules.list_schedules(db, app=find_app_named(self._project, db, app), status=Status.SCHEDULED)
            found = [one for one in named if self._sees(one)]
            changes = [Suspend(one.schedule_id, chosen) for one in found]
            return self._change_many(db, seq, found, changes, [self._moved("suspend", one, chosen) for one in found])

        return self._catalog.write(block)

    @operation(Right.OPERATE, command="schedule resume", in_block=True)
    def resume_suspended(self, *, since: datetime | str, until: datetime | str) -> Sequence[ScheduleChange]:
        """Resume the schedules whose `suspended_at` is in [since, until), in one transaction; return them. `BadPeriod`.

        A time is a `datetime`, or text in ISO 8601. Without a zone it is in UTC.
        """
        from tidemill.schedule.changes import Resume

        begin, end = read_period(since, until)

        def block(db: Db) -> Sequence[ScheduleChange]:
            seq = db.tick()
            found = [
                one for one in schedules.list_suspended(db, begin, end) if self._project.access.sees(one.namespace)
            ]
            changes = [Resume(one.schedule_id) for one in found]
            return self._change_many(db, seq, found, changes, [self._moved("resume", one, None) for one in found])

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def resume(self, name: str, *, if_generation: int | None = None) -> ScheduleChange:
        """Resume a schedule: it listens again, and work that waits in its program's inputs is announced.

        With `if_generation` the schedule must have this generation, else `ChangedMeanwhile`. `NotFound`.
        """
        from tidemill.schedule.changes import Resume

        def block(db: Db) -> ScheduleChange:
            seq = db.tick()
            found = self._find(db, name, if_generation)
            already = found.status is not Status.SUSPENDED
            note = None if already else self._moved("resume", found, None)
            dropped = self._change_one(db, seq, Resume(found.schedule_id), note)
            return ScheduleChange(found.qualified_name, Status.SCHEDULED, dropped, not already)

        return self._catalog.write(block)

    @operation(Right.DEPLOY, in_block=True)
    def create(
        self, name: str, program: str, *, trigger: object, suspended: bool | None = None, **options: object
    ) -> ScheduleView:
        """Create a schedule that no app declares (`app.schedule`) for `program`. It listens at once unless `suspended`.

        Without `suspended`, the setting `schedules.suspended` says so.
        `trigger` and `options` are as in the JSON form of schedules: `constraints`, `arguments`, `description`,
        `timeout`, `on_timeout`, `trigger_timeout`, `priority`, `deadline`, `misfire`, `grace`. A deployment of the app
        with its schedules removes it. `ScheduleExists`, `BadSchedule`, `BadTrigger`, `ProgramRetired`, `NotFound`.
        """
        self._project.split("schedule", name, 2)  # a wrong name is refused before a wrong spec
        spec = read_plain(ScheduleSpec, write_plain({"trigger": trigger, **options}))
        wanted = NewSchedule(name, program, spec, suspended)

        def block(db: Db) -> ScheduleView:
            (schedule_id,) = self._add(db, [wanted])
            return page_of(db, [schedules.read_schedules(db, [schedule_id])[schedule_id]], 1)[0]

        return self._catalog.write(block)

    @operation(Right.DEPLOY, command="schedule create", in_block=True)
    def create_many(self, entries: Sequence[Mapping[str, object]]) -> Sequence[ScheduleView]:
        """Create schedules as `create` does, all of them or none.

        Each entry has the arguments of `create` by name: `{"name": …, "program": …, "trigger": …, "priority": 3}`.
        `BadEntry` names the first entry that is refused. `ScheduleExists` names the schedules that exist.
        """
        wanted = read_entries(entries)

        def block(db: Db) -> Sequence[ScheduleView]:
            ids = self._add(db, wanted)
            found = schedules.read_schedules(db, ids)
            return page_of(db, [found[one] for one in ids if one in found], len(ids)).items

        return self._catalog.write(block)

    @operation(Right.DEPLOY, in_block=True)
    def update(self, name: str, *, if_generation: int | None = None, **options: object) -> ScheduleChange:
        """Delete and recreate a schedule with other options (as for `create`, and `trigger`).

        Options that are not named stay; so do name, program and status. Pending jobs are dropped. An update that
        changes no option has no effect. With `if_generation` the schedule must have this generation, else
        `ChangedMeanwhile`.
        """
        from tidemill.schedule.changes import Update

        def block(db: Db) -> ScheduleChange:
            seq = db.tick()
            schedule = self._find(db, name, if_generation)
            spec = read_plain(ScheduleSpec, write_plain(schedule.spec) | write_plain(options))
            if spec == schedule.spec:
                return ScheduleChange(schedule.qualified_name, schedule.status, 0, changed=False)
            self._check(db, name, find_program_by_id(db, schedule.program_id), spec)
            before, after = (
                {name: _record_of(one).get(name) for name in sorted(options)} for one in (schedule.spec, spec)
            )
            note = self._note("update", schedule.qualified_name).between(before, after)
            dropped = self._change_one(db, seq, Update(schedule.schedule_id, spec), note)
            return ScheduleChange(schedule.qualified_name, schedule.status, dropped, changed=True)

        return self._catalog.write(block)

    @operation(Right.DEPLOY, in_block=True)
    def delete(self, name: str, *, if_generation: int | None = None) -> ScheduleChange:
        """Delete a schedule, and drop its pending jobs.

        With `if_generation` the schedule must have this generation, else `ChangedMeanwhile`. `NotFound`.
        """
        return self._catalog.write(lambda db: self._delete(db, [name], if_generation)[0])

    @operation(Right.DEPLOY, command="schedule delete", in_block=True)
    def delete_many(self, names: Sequence[str]) -> Sequence[ScheduleChange]:
        """Delete schedules, all of them or none, and drop their pending jobs. `NotFound` for the first that is not."""
        return self._catalog.write(lambda db: self._delete(db, names, None))

    def _delete(self, db: Db, names: Sequence[str], if_generation: int | None) -> Sequence[ScheduleChange]:
        from tidemill.schedule.changes import Delete

        seq = db.tick()
        found = {one.schedule_id: one for one in (self._find(db, name, if_generation) for name in names)}
        programs = program_names(db, (one.program_id for one in found.values()))
        notes = [
            self._note("delete", one.qualified_name).between(
                {"program": programs[one.program_id], **_state(one), **_record_of(one.spec)}, None
            )
            for one in found.values()
        ]
        changed = self._change(db, seq, [Delete(schedule_id) for schedule_id in found], notes)
        return [
            ScheduleChange(found[one.schedule_id].qualified_name, None, one.dropped_jobs, changed=True)
            for one in changed
        ]

    def _find(self, db: Db, name: str, if_generation: int | None) -> Schedule:
        """Return the schedule of that name, to be changed in this transaction; `NotFound`, `ChangedMeanwhile`."""
        found = find_named(self._project, db, name)
        check_generation("schedule", found.qualified_name, found.generation, if_generation)
        return found

    def _sees(self, schedule: Schedule) -> bool:
        return self._project.access.sees(schedule.namespace)

    def _add(self, db: Db, wanted: Sequence[NewSchedule]) -> Sequence[ScheduleId]:
        """Add schedules that no app declares, and return their ids in the same order. An error names the entry."""
        from tidemill.schedule.changes import Add

        seq = db.tick()
        added, notes = [], []
        suspend_new = self._project.config.suspend_new
        for one in wanted:
            with naming(one):
                namespace, (app, local) = self._project.split("schedule", one.name, 2)
                check_app(db, namespace, app, everywhere=self._project.everywhere)
                program = self._project.startable(db, one.program)
                self._check(db, one.name, program, one.spec)
                suspended = suspend_new if one.suspended is None else one.suspended
                added.append(Add(namespace, app, local, program.program_id, one.spec, Owner.OPS, suspended))
            state = Status.SUSPENDED if suspended else Status.SCHEDULED
            record = {"program": program.qualified_name, "status": state, **_record_of(one.spec)}
            notes.append(self._note("create", qualified(namespace, app, local)).between(None, record))
        return [one.schedule_id for one in self._change(db, seq, added, notes)]

    def _moved(self, verb: str, schedule: Schedule, mode: SuspendMode | None) -> NoteChange:
        """Return the audit row of a suspension with a mode, or of a resumption."""
        after = {"status": Status.SCHEDULED if mode is None else Status.SUSPENDED, "mode": mode}
        return self._note(verb, schedule.qualified_name).between(_state(schedule), after)

    def _change_one(self, db: Db, seq: CommitSeq, change: Change, note: NoteChange | None) -> int:
        """Make a change and announce what waits for its program; return the number of dropped jobs."""
        return self._change(db, seq, [change], [] if note is None else [note])[0].dropped_jobs

    def _change(
        self, db: Db, seq: CommitSeq, changes: Sequence[Change], notes: Iterable[NoteChange]
    ) -> Sequence[Changed]:
        """Make changes and announce what waits for their programs."""
        # More than half of what this module would load, and no list needs it.
        from tidemill.schedule.changes import announce_work, change_schedules

        changed = change_schedules(db, self._world, seq, changes)
        announce_work(db, changed)
        for note in notes:
            note.write(db)
        return changed

    def _change_many(
        self, db: Db, seq: CommitSeq, found: Sequence[Schedule], changes: Sequence[Change], notes: Iterable[NoteChange]
    ) -> Sequence[ScheduleChange]:
        """Make changes of `found`, in their order, and announce what waits for the programs."""
        from tidemill.schedule.changes import Suspend

        changed = self._change(db, seq, changes, notes)
        return tuple(
            ScheduleChange(
                one.qualified_name,
                Status.SUSPENDED if isinstance(change, Suspend) else Status.SCHEDULED,
                done.dropped_jobs,
                changed=True,
            )
            for one, change, done in zip(found, changes, changed, strict=True)
        )

    def _check(self, db: Db, name: str, program: Program, spec: ScheduleSpec) -> None:
        from tidemill.schedule.arguments import check_arguments
        from tidemill.schedule.changes import check_trigger

        self._project.check_references(list_references(spec))
        check_trigger(db, name, program, spec.trigger)
        check_arguments(db, program, spec.trigger.leaves, spec.arguments)

    def _announced(self, db: Db, name: str) -> Sequence[EventKey]:
        """Return the keys of the messages about a program, a data set or a topic."""
        if "." in name:
            try:
                program = self._project.program(db, name)
            except NotFound:
                if name.count(".") > 1:
                    raise
            else:
                seen = (one for one in program.writes if self._project.access.sees_name(one))
                written = [self._project.dataset(db, one) for one in seen]
                names = (program.namespace, program.app, program.name)
                ends = [program_event(*names, state) for state in STATES]
                return [*_events(written), *ends, window_event(program.qualified_name)]
        try:
            return _events([self._project.dataset(db, name)])
        except NotFound:
            topic = topic_event(name)
            if not schedules.list_schedules(db, event_key=topic):
                raise
            return [topic]


def _state(schedule: Schedule) -> Mapping[str, object]:
    return {"status": schedule.status, "mode": schedule.suspended_mode}


def _record_of(spec: ScheduleSpec) -> Mapping[str, object]:
    """Return what the audit log has of a spec: of arguments the names alone, since a value may be a secret."""
    plain: dict[str, object] = write_plain(spec)
    return plain | {"arguments": sorted(spec.arguments)}


def _read_mode(mode: str) -> SuspendMode:
    try:
        return SuspendMode(mode)
    except ValueError:
        raise BadMode(mode) from None


def _events(datasets: Iterable[Dataset]) -> list[EventKey]:
    return [key for dataset in datasets for key in dataset_events(dataset.namespace, dataset.name)]
