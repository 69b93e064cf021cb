"""Schedules as `Mill` shows them: the record, and how it is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.catalog.db import Db
from tidemill.durations import format_duration
from tidemill.errors import NotFound
from tidemill.json_specs import write_plain
from tidemill.mill.page import Page, cut, write_key
from tidemill.mill.project import fields_of, program_names
from tidemill.mill.usual import longest_usual_waits, usual_run
from tidemill.names import JobId, ProgramId, split_qualified
from tidemill.run.records.programs import find_program
from tidemill.schedule import schedules
from tidemill.schedule.jobs import list_jobs
from tidemill.schedule.not_installed import ConstraintNotInstalled, TriggerNotInstalled
from tidemill.schedule.parts import ConstraintPart, TriggerPart, list_constraint_parts, list_trigger_parts
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.specs import Misfire, Schedule
from tidemill.schedule.window_triggers import WindowsRecomputed


@dataclass(frozen=True, slots=True)
class PassedMessages:
    """Messages of a topic that a schedule was not fed: their number, and the positions of the first and the last."""

    topic: str
    messages: int
    first: str
    last: str


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
    deadline: str
    """The longest wait behind runs of a higher priority. Empty: however long."""
    timeout: str
    on_timeout: str
    trigger_timeout: str
    """The longest wait of a job for its trigger. Empty: however long."""
    misfire: str
    grace: str
    """The age at which `misfire="skip"` leaves a time out. Empty for the other rules."""
    next_fire_at: datetime | None
    broken: str
    """Why a part of the trigger can never be satisfied: the programs that the trigger names and no app declares."""
    suspended_at: datetime | None
    suspended_mode: str
    """The fate of jobs while the schedule is suspended: `drop`, `hold` or `backlog`. Empty: it is not suspended."""
    passed_messages: tuple[PassedMessages, ...]
    """The messages that fed no job, because the schedule was suspended in the mode `drop`, or changed after them."""
    waiting_periods: int
    """Ends of periods that wait for runs of their own (`WatermarkPassed` with `mode="each"`)."""


@dataclass(frozen=True, slots=True)
class ScheduleDetail(ScheduleView):
    """A schedule as it stands: its trigger as a tree with live counts, and its constraints with their answers now.

    `job_id` is its open job, `job_since` the begin of that job, and `fed` what has fed the job: the work that a
    suspension would drop. `longest_wait` is that of its last jobs, `usual_run` the median of its program's last runs.
    """

    job_id: JobId | None
    job_since: datetime | None
    job_state: str
    fed: int
    parts: tuple[TriggerPart, ...]
    constraint_parts: tuple[ConstraintPart, ...]
    longest_wait: timedelta | None
    usual_run: timedelta | None


def detail_of(db: Db, schedule: Schedule) -> ScheduleDetail:
    """Return a schedule with the state of its open job. Cost: look-ups, and the rows of its last 20 jobs and runs."""
    job = next(iter(list_jobs(db, schedule_id=schedule.schedule_id, limit=1)), None)
    parts = list_trigger_parts(schedule, job, db.now())
    return ScheduleDetail(
        **fields_of(page_of(db, [schedule], 1)[0]),
        job_id=None if job is None else job.job_id,
        job_since=None if job is None else job.created_at,
        job_state="" if job is None else job.state,
        fed=parts[0].count,
        parts=parts,
        constraint_parts=list_constraint_parts(schedule, job),
        longest_wait=longest_usual_waits(db, [schedule.schedule_id]).get(schedule.schedule_id),
        usual_run=usual_run(db, schedule.program_id),
    )


def page_of(db: Db, found: Sequence[Schedule], limit: int) -> Page[ScheduleView]:
    """Return the first `limit` of `found` as a page."""
    names = program_names(db, (schedule.program_id for schedule in found))
    return cut(
        found,
        limit,
        lambda schedule: write_key(schedule.namespace, schedule.app, schedule.name),
        lambda schedule: _view_of(db, schedule, names),
    )


def _find_broken(db: Db, schedule: Schedule) -> str:
    lost = []
    watching = [leaf for leaf in schedule.spec.trigger.leaves if isinstance(leaf, RunEnded | WindowsRecomputed)]
    for watched in {leaf.program for leaf in watching}:
        namespace, (app, name) = split_qualified("program", watched, 2)
        with suppress(NotFound):
            if not find_program(db, namespace, app, name).retired:
                continue
        lost.append(watched)
    parts = (*schedule.spec.trigger.leaves, *schedule.spec.constraints)
    absent = sorted({one.kind for one in parts if isinstance(one, TriggerNotInstalled | ConstraintNotInstalled)})
    reasons = []
    if lost:
        reasons.append(f"no app declares {', '.join(sorted(lost))} any more")
    if absent:
        reasons.append(f"no installed package has {', '.join(absent)}")
    return "; ".join(reasons)


def _view_of(db: Db, schedule: Schedule, names: Mapping[ProgramId, str]) -> ScheduleView:
    fires_at = next(iter(schedules.read_timers(db, schedule.schedule_id).values()), None)
    return ScheduleView(
        name=schedule.qualified_name,
        program=names.get(schedule.program_id, schedule.program_id),
        status=schedule.status,
        owner=schedule.owner,
        generation=schedule.generation,
        trigger=str(schedule.spec.trigger),
        constraints=", ".join(str(constraint) for constraint in schedule.spec.constraints),
        arguments=write_plain(schedule.spec.arguments),
        description=schedule.spec.description,
        priority=schedule.spec.priority,
        deadline=format_duration(limit) if (limit := schedule.spec.deadline) else "",
        timeout=format_duration(schedule.spec.timeout),
        on_timeout=schedule.spec.on_timeout.value,
        trigger_timeout=format_duration(limit) if (limit := schedule.spec.trigger_timeout) else "",
        misfire=schedule.spec.misfire.value,
        grace=format_duration(schedule.spec.grace) if schedule.spec.misfire is Misfire.SKIP else "",
        next_fire_at=fires_at,
        broken=_find_broken(db, schedule),
        suspended_at=schedule.suspended_at,
        suspended_mode=schedule.suspended_mode or "",
        passed_messages=tuple(
            PassedMessages(topic, messages, f"{first_seq}.{first_n}", f"{last_seq}.{last_n}")
            for topic, messages, first_seq, first_n, last_seq, last_n in schedules.list_passed(db, schedule.schedule_id)
        ),
        waiting_periods=schedules.count_waiting(db, schedule),
    )
