"""Schedules and their jobs, as `Mill` offers them.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tidemill.catalog.db import Db
from tidemill.durations import format_duration
from tidemill.mill.project import Project, program_names
from tidemill.names import JobId, ProgramId, ScheduleId
from tidemill.schedule import jobs, schedules
from tidemill.schedule.jobs import EndedJob, Job
from tidemill.schedule.schedules import Resume, Suspend, change_schedules
from tidemill.schedule.specs import Schedule


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
    next_fire_at: int | None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that waits; `why` says for what."""

    job_id: str
    schedule: str
    state: str
    created_at: int
    next_check_at: int | None
    priority: int
    why: str
    verdict: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EndedJobView:
    """A job that has become a run, or was dropped."""

    job_id: str
    schedule: str
    outcome: str
    run_id: str | None
    created_at: int
    ended_at: int
    detail: Mapping[str, object]


class Schedules(Project):
    """Operations on schedules and jobs."""

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
            change = Suspend(self._schedule(db, name).schedule_id)
            return change_schedules(db, self.world, seq, [change])[0].dropped_jobs

        return self.catalog.write(block)

    def resume_schedule(self, name: str) -> None:
        """Let a schedule listen to what comes from now on."""

        def block(db: Db) -> None:
            seq = db.tick()
            change_schedules(db, self.world, seq, [Resume(self._schedule(db, name).schedule_id)])

        self.catalog.write(block)

    def list_jobs(self) -> list[JobView]:
        """All jobs that wait, oldest first."""

        def block(db: Db) -> list[JobView]:
            names = _schedule_names(db)
            return [_job_view(job, names) for job in jobs.list_jobs(db)]

        return self.catalog.read(block)

    def list_ended_jobs(self, schedule: str, *, limit: int = 20) -> list[EndedJobView]:
        """The newest jobs of a schedule that have ended, newest first."""

        def block(db: Db) -> list[EndedJobView]:
            found = self._schedule(db, schedule)
            names = {found.schedule_id: found.qualified_name}
            return [_ended_view(job, names) for job in jobs.list_ended_jobs(db, found.schedule_id, most=limit)]

        return self.catalog.read(block)

    def show_job(self, job_id: str) -> JobView | EndedJobView:
        """A job, waiting or ended; `NotFound`."""

        def block(db: Db) -> JobView | EndedJobView:
            names = _schedule_names(db)
            job = jobs.find_job(db, JobId(job_id))
            return _job_view(job, names) if isinstance(job, Job) else _ended_view(job, names)

        return self.catalog.read(block)


def _schedule_names(db: Db) -> dict[ScheduleId, str]:
    return {schedule.schedule_id: schedule.qualified_name for schedule in schedules.list_schedules(db)}


def _schedule_view(db: Db, schedule: Schedule, names: Mapping[ProgramId, str]) -> ScheduleView:
    fires_at = schedules.next_timer(db, schedule.schedule_id)
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
        next_fire_at=None if fires_at is None else jobs.to_ms(fires_at),
    )


def _job_view(job: Job, names: Mapping[ScheduleId, str]) -> JobView:
    verdict = job.verdict or {}
    return JobView(
        job.job_id,
        names.get(job.schedule_id, job.schedule_id),
        job.state,
        jobs.to_ms(job.created_at),
        None if job.next_check_at is None else jobs.to_ms(job.next_check_at),
        job.priority,
        _why(verdict),
        verdict,
    )


def _why(verdict: Mapping[str, object]) -> str:
    """What a job waits for, in words: its trigger's answer, then those of its constraints."""
    answers = [verdict.get("trigger"), *cast("list[object]", verdict.get("constraints", []))]
    return "; ".join(str(answer["why"]) for answer in answers if isinstance(answer, dict))


def _ended_view(job: EndedJob, names: Mapping[ScheduleId, str]) -> EndedJobView:
    return EndedJobView(
        job.job_id,
        names.get(job.schedule_id, job.schedule_id),
        job.outcome,
        job.run_id,
        jobs.to_ms(job.created_at),
        jobs.to_ms(job.ended_at),
        job.detail,
    )
