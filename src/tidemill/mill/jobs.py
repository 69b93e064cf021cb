"""Jobs, as `Mill` offers them: what was triggered, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import FROM_LATEST
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, one_more, read_key, read_name, write_key
from tidemill.mill.project import Noun, fields_of, schedule_names
from tidemill.mill.scheduled import find_named
from tidemill.names import JobId, RunId, ScheduleId
from tidemill.reasons import Because
from tidemill.run.records.runs import RunState, find_run, find_runs
from tidemill.run.records.triggers import TriggerFeed, leaves_of, read_triggers
from tidemill.schedule import jobs
from tidemill.schedule.causes import leaves_of_dropped, leaves_of_job
from tidemill.schedule.jobs import EndedJob, Job, JobEnded, JobEnding, JobState, Outcome, end_jobs, lock_job
from tidemill.schedule.parts import ConstraintPart, TriggerPart, list_constraint_parts, list_trigger_parts
from tidemill.schedule.schedules import read_schedules


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that waits; `why` says for what."""

    job_id: str
    schedule: str
    state: str
    created_at: datetime
    next_check_at: datetime | None
    priority: int
    why: str
    verdict: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class JobDetail(JobView):
    """A job that waits, with the feed of each leaf of its schedule's trigger, and the reasons of `tidemill why`.

    `parts` are the trigger as a tree, and `constraints` the constraints, with their answers now.
    """

    triggers: tuple[TriggerFeed, ...]
    because: tuple[Because, ...]
    parts: tuple[TriggerPart, ...]
    constraints: tuple[ConstraintPart, ...]


@dataclass(frozen=True, slots=True)
class EndedJobView:
    """A job that has become a run, or was dropped. `run_state` is the state of its run, None for a deleted run."""

    job_id: str
    schedule: str
    outcome: str
    run_id: str | None
    run_state: RunState | None
    created_at: datetime
    ended_at: datetime
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EndedJobDetail(EndedJobView):
    """A job that has ended, with the feed of each leaf of its schedule's trigger, and the reasons of `tidemill why`."""

    triggers: tuple[TriggerFeed, ...]
    because: tuple[Because, ...]


@dataclass(frozen=True, slots=True)
class DroppedJob:
    """A job that ended without a run; `changed` is false if it was dropped already."""

    job_id: JobId
    outcome: Outcome
    changed: bool


@dataclass(frozen=True, slots=True)
class ForcedJob:
    """A job that became a run, whatever the job waited for; `changed` is false if it was a run already."""

    job_id: JobId
    run_id: RunId
    changed: bool


class Jobs(Noun):
    """Operations on jobs."""

    noun = "job"

    @operation(Right.READ)
    def list(
        self, *, schedule: str | None = None, state: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[JobView]:
        """List the jobs that wait by id, which is about oldest first; those of a schedule or in a state, if given.

        `after` is the id of a job. `BadFilter`, `NotFound`. Cost: the page; for a caller of one namespace, the
        schedules of the namespace.
        """
        behind = read_name(after)
        wanted = None if state is None else check_filter("state", state, JobState)

        def block(db: Db) -> Page[JobView]:
            of = None if schedule is None else find_named(self._project, db, schedule).schedule_id
            found = self._rows(
                lambda place, most: jobs.list_jobs(
                    db, schedule_id=of, namespace=self._project.access.only, state=wanted, after=place, limit=most
                ),
                behind,
                limit,
                lambda job: job.job_id,
            )
            names = schedule_names(db, (job.schedule_id for job in found))
            return cut(found, limit, lambda job: job.job_id, lambda job: view_job(job, names))

        return self._catalog.read(block)

    @operation(Right.READ, command="job list")
    def history(self, schedule: str, *, limit: int = PAGE, after: str = "") -> Page[EndedJobView]:
        """List the jobs of a schedule that have ended, newest first."""
        before = read_key(after, FROM_LATEST)

        def block(db: Db) -> Page[EndedJobView]:
            found = find_named(self._project, db, schedule)
            names = {found.schedule_id: found.qualified_name}
            ended = jobs.list_ended_jobs(db, found.schedule_id, most=one_more(limit), before=before)
            states = _states_of(db, ended)
            return cut(
                ended,
                limit,
                lambda job: write_key(job.ended_at, job.job_id),
                lambda job: _ended_view(job, names, states),
            )

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, job_id: str) -> JobDetail | EndedJobDetail:
        """Return a job, waiting or ended, with the messages that fed it and the reasons for its state; `NotFound`."""
        # A list needs none of what this module would load.
        from tidemill.mill.why_work import explain_job_of

        def block(db: Db) -> JobDetail | EndedJobDetail:
            self._project.check_job(db, job_id)
            because = explain_job_of(db, JobId(job_id)).because
            job = jobs.find_job(db, JobId(job_id))
            names = schedule_names(db, [job.schedule_id])
            if isinstance(job, Job):
                schedule = read_schedules(db, [job.schedule_id])[job.schedule_id]
                return JobDetail(
                    **fields_of(view_job(job, names)),
                    triggers=read_triggers(db, leaves_of_job(db, job, schedule)),
                    because=because,
                    parts=list_trigger_parts(schedule, job, db.now()),
                    constraints=list_constraint_parts(schedule, job),
                )
            if job.run_id is None:
                found = read_schedules(db, [job.schedule_id]).get(job.schedule_id)
                leaves = leaves_of_dropped(db, job, found)
            else:
                leaves = leaves_of(find_run(db, job.run_id).triggered_by)
            view = fields_of(_ended_view(job, names, _states_of(db, [job])))
            return EndedJobDetail(**view, triggers=read_triggers(db, leaves), because=because)

        return self._catalog.read(block)

    @operation(Right.OPERATE, in_block=True)
    def drop(self, job_id: str) -> DroppedJob:
        """End a job without a run; its messages are recorded as dropped. No effect on a job that is dropped.

        `NotFound`, and `JobEnded` for a job that has ended in another way.

        What the program has left to take stays: the schedule's next run takes it.
        """

        def block(db: Db) -> DroppedJob:
            self._project.check_job(db, job_id)
            try:
                job = lock_job(db, JobId(job_id))
            except JobEnded as error:
                if error.outcome != Outcome.DROPPED:
                    raise
                return DroppedJob(JobId(job_id), Outcome.DROPPED, changed=False)
            end_jobs(db, [JobEnding(job, Outcome.DROPPED, "dropped by hand")])
            self._note("drop", job_id).between({"state": job.state}, {"state": Outcome.DROPPED}).write(db)
            return DroppedJob(job.job_id, Outcome.DROPPED, changed=True)

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def force(self, job_id: str) -> ForcedJob:
        """Make a run of a job now, whatever the job waits for. No effect on a job that has become a run.

        `NotFound`, and `JobEnded` for a job that has ended without a run.
        """
        # Most of what this module would load, and no list needs it.
        from tidemill.schedule.checker import force_job

        def block(db: Db) -> ForcedJob:
            self._project.check_job(db, job_id)
            try:
                launch = force_job(db, self._world, JobId(job_id))
            except JobEnded as error:
                if error.run_id is None:
                    raise
                return ForcedJob(JobId(job_id), RunId(error.run_id), changed=False)
            self._note("force", job_id).between({"state": launch.state}, {"run_id": launch.run_id}).write(db)
            return ForcedJob(JobId(job_id), launch.run_id, changed=True)

        return self._catalog.write(block)


def view_job(job: Job, names: Mapping[ScheduleId, str]) -> JobView:
    """Return a waiting job as a caller sees it."""
    verdict = job.verdict or {}
    return JobView(
        job.job_id,
        names.get(job.schedule_id, job.schedule_id),
        job.state,
        job.created_at,
        job.next_check_at,
        job.priority,
        explain_verdict(verdict),
        verdict,
    )


def explain_verdict(verdict: Mapping[str, object] | None) -> str:
    """Say what a job waits for: the answer of its trigger, then the answers of its constraints."""
    verdict = verdict or {}
    answers = [verdict.get("trigger"), *cast("list[object]", verdict.get("constraints", [])), verdict.get("launch")]
    return "; ".join(str(answer["why"]) for answer in answers if isinstance(answer, dict)) or "not checked yet"


def _states_of(db: Db, ended: Sequence[EndedJob]) -> Mapping[RunId, RunState]:
    """Return the states of the runs of jobs, by run. Cost: look-ups."""
    wanted = [job.run_id for job in ended if job.run_id is not None]
    return {run.run_id: run.state for run in find_runs(db, wanted)} if wanted else {}


def _ended_view(job: EndedJob, names: Mapping[ScheduleId, str], states: Mapping[RunId, RunState]) -> EndedJobView:
    return EndedJobView(
        job.job_id,
        names.get(job.schedule_id, job.schedule_id),
        job.outcome,
        job.run_id,
        states.get(job.run_id) if job.run_id is not None else None,
        job.created_at,
        job.ended_at,
        job.detail,
    )
