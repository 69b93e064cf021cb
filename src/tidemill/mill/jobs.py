"""Jobs, as `Mill` offers them: what was triggered, and what became of it.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from tidemill.catalog.db import Db
from tidemill.epoch import to_ms
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import Noun
from tidemill.mill.scheduled import find_named
from tidemill.names import JobId, RunId, ScheduleId
from tidemill.schedule import jobs, schedules
from tidemill.schedule.jobs import EndedJob, Ending, Job, Outcome, end_jobs, lock_job


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


class Jobs(Noun):
    """Operations on jobs."""

    noun = "job"

    @operation(Right.READ)
    def list(self) -> Sequence[JobView]:
        """List the jobs that wait, oldest first."""

        def block(db: Db) -> Sequence[JobView]:
            names = _schedule_names(db)
            return [_job_view(job, names) for job in jobs.list_jobs(db)]

        return self._catalog.read(block)

    @operation(Right.READ, command="job list")
    def history(self, schedule: str, *, limit: int = 20) -> Sequence[EndedJobView]:
        """List the newest jobs of a schedule that have ended, newest first."""

        def block(db: Db) -> Sequence[EndedJobView]:
            found = find_named(self._project, db, schedule)
            names = {found.schedule_id: found.qualified_name}
            return [_ended_view(job, names) for job in jobs.list_ended_jobs(db, found.schedule_id, most=limit)]

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, job_id: str) -> JobView | EndedJobView:
        """Return a job, waiting or ended; `NotFound`."""

        def block(db: Db) -> JobView | EndedJobView:
            names = _schedule_names(db)
            job = jobs.find_job(db, JobId(job_id))
            return _job_view(job, names) if isinstance(job, Job) else _ended_view(job, names)

        return self._catalog.read(block)

    @operation(Right.OPERATE)
    def drop(self, job_id: str) -> None:
        """End a job without a run; its messages are recorded as dropped. `NotFound`, `JobEnded`.

        What the program has left to take stays: the schedule's next run takes it.
        """
        dropped = (Outcome.DROPPED, "dropped by hand")

        def block(db: Db) -> None:
            end_jobs(db, [Ending(lock_job(db, JobId(job_id)), *dropped)])
            self._note("drop", job_id).write(db)

        self._catalog.write(block)

    @operation(Right.OPERATE)
    def force(self, job_id: str) -> RunId:
        """Make a run of a job now, whatever the job waits for. `NotFound`, `JobEnded`."""
        # Most of what this module would load, and no list needs it.
        from tidemill.schedule.checker import force_job

        def block(db: Db) -> RunId:
            run_id = force_job(db, self._world, JobId(job_id)).run_id
            self._note("force", job_id, run_id=run_id).write(db)
            return run_id

        return self._catalog.write(block)


def _schedule_names(db: Db) -> dict[ScheduleId, str]:
    return {schedule.schedule_id: schedule.qualified_name for schedule in schedules.list_schedules(db)}


def _job_view(job: Job, names: Mapping[ScheduleId, str]) -> JobView:
    verdict = job.verdict or {}
    return JobView(
        job.job_id,
        names.get(job.schedule_id, job.schedule_id),
        job.state,
        to_ms(job.created_at),
        None if job.next_check_at is None else to_ms(job.next_check_at),
        job.priority,
        explain_verdict(verdict),
        verdict,
    )


def explain_verdict(verdict: Mapping[str, object] | None) -> str:
    """Say what a job waits for: the answer of its trigger, then the answers of its constraints."""
    verdict = verdict or {}
    answers = [verdict.get("trigger"), *cast("list[object]", verdict.get("constraints", []))]
    return "; ".join(str(answer["why"]) for answer in answers if isinstance(answer, dict)) or "not checked yet"


def _ended_view(job: EndedJob, names: Mapping[ScheduleId, str]) -> EndedJobView:
    return EndedJobView(
        job.job_id,
        names.get(job.schedule_id, job.schedule_id),
        job.outcome,
        job.run_id,
        to_ms(job.created_at),
        to_ms(job.ended_at),
        job.detail,
    )
