"""Jobs: schedules that something has fed, until a run exists or the job is dropped (seed 001).

A schedule has at most one open job; an index guards this. Messages and fires join the job, also while the job waits for
its constraints. A block that locks a job's row checks the job under its limits, makes the job due, or ends the job. The
end of a run relies on that: it wakes jobs that wait for its slot, and skips locked jobs.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Message
from tidemill.catalog.named import ALL_ROWS, FROM_LATEST, RowSet, load_sql
from tidemill.catalog.records import stored_times, to_json
from tidemill.errors import Conflict, Internal, NotFound
from tidemill.json_specs import shaped, write_plain, write_text
from tidemill.names import JobId, RunId, ScheduleId
from tidemill.schedule.data_triggers import MessageTrigger, WatermarkPassed
from tidemill.schedule.specs import Schedule
from tidemill.schedule.time_triggers import TimeTrigger
from tidemill.schedule.triggers import Fed
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.schedule.jobs_sql import Sql

SQL: Sql = load_sql(__file__)

_HISTORY_COLUMNS: Final = ("job_id", "schedule_id", "generation", "outcome", "run_id", "created_at", "detail")


class JobState(StrEnum):
    """PENDING_TRIGGER → PENDING_CONSTRAINT → gone: then there is a run, or a reason why not, in the history.

    The state PENDING_LAUNCH of the seed has no use: the check that finds the constraints satisfied makes the run. So a
    schedule has one job, which all its messages join, and the jobs that wait are never more than the schedules.
    """

    PENDING_TRIGGER = "PENDING_TRIGGER"
    PENDING_CONSTRAINT = "PENDING_CONSTRAINT"


class Outcome(StrEnum):
    """End of a job."""

    LAUNCHED = "launched"
    FORCED = "forced"
    TIMED_OUT = "timed_out"
    TRIGGER_TIMED_OUT = "trigger_timed_out"
    """The trigger was not satisfied within the schedule's `trigger_timeout`."""
    NEVER = "never"
    MISSING_SOURCE = "missing_source"
    SKIPPED = "skipped"
    """A constraint with `on_limit="skip"` did not hold."""
    SUSPENDED = "schedule_suspended"
    CHANGED = "schedule_changed"
    DELETED = "schedule_deleted"
    DROPPED = "dropped"


class JobEnded(Conflict):
    """A job that is no more: it has become a run, or was dropped."""

    code = "job_ended"
    hint = "look at what the job became: `tidemill job show JOB`"

    def __init__(self, job_id: str, outcome: str, run_id: str | None) -> None:
        self.job_id = job_id
        self.outcome = outcome
        self.run_id = run_id
        super().__init__(f"job {job_id} has ended already ({outcome}{f', {run_id}' if run_id else ''})")


class MessageRef(NamedTuple):
    """A message of a job, and the leaf of the trigger that it fed."""

    trigger_no: int
    topic: str
    seq: int
    n: int


@dataclass(frozen=True, slots=True)
class Progress:
    """Feed of a trigger's leaves within one job, by the numbers of the leaves."""

    fed: Mapping[int, Fed]


shaped(
    Progress,
    dict[str, Fed],
    lambda by_number: Progress({int(trigger_no): fed for trigger_no, fed in by_number.items()}),
    lambda progress: {str(trigger_no): fed for trigger_no, fed in progress.fed.items()},
)


@dataclass(frozen=True, slots=True)
class Job:
    """An open job. `progress` says what each leaf of the trigger was fed; `verdict` what the job waits for (JSON)."""

    job_id: JobId
    schedule_id: ScheduleId
    generation: int
    state: JobState
    created_at: datetime
    satisfied_at: datetime | None
    next_check_at: datetime | None
    priority: int
    deadline: datetime | None
    progress: Progress
    verdict: Mapping[str, object] | None
    revision: int

    @property
    def place(self) -> datetime | None:
        """The time from which the cap of the namespace lets the job start; None for a job that has no place."""
        launch = (self.verdict or {}).get("launch")
        return datetime.fromisoformat(str(launch["at"])) if isinstance(launch, dict) else None

    @property
    def fed(self) -> Mapping[int, Fed]:
        """Feed of each leaf."""
        return self.progress.fed

    def turn(self, now: datetime) -> Turn:
        """Place of the job among those that wait for the same slot."""
        return turn(now, self.priority, self.deadline, self.created_at, self.job_id)


Turn: TypeAlias = tuple[bool, int, datetime, datetime, str]

_NO_DEADLINE: Final = datetime.max.replace(tzinfo=UTC)


def turn(now: datetime, priority: int, deadline: datetime | None, created_at: datetime, job_id: str) -> Turn:
    """Return the sort key of a job: past its deadline first, then by priority, deadline and age."""
    late = deadline is not None and deadline <= now
    return (not late, -priority, deadline or _NO_DEADLINE, created_at, job_id)


@dataclass(frozen=True, slots=True)
class EndedJob:
    """Job of the history. `detail` gives the reason, and names the messages of a dropped job."""

    job_id: JobId
    schedule_id: ScheduleId
    generation: int
    outcome: Outcome
    run_id: RunId | None
    created_at: datetime
    ended_at: datetime
    detail: Mapping[str, object]


class _WaitingJob(NamedTuple):
    """A job that waits for a key, with what its turn is made of. `most` is as in `job_waits`."""

    wait_key: str
    job_id: JobId
    most: int | None
    priority: int
    deadline: datetime | None
    created_at: datetime


class JobEnding(NamedTuple):
    """End of an open job: with a run, or without one and for a reason."""

    job: Job
    outcome: Outcome
    why: str
    run_id: RunId | None = None


class Fire(NamedTuple):
    """A fire of a time trigger or a passed boundary: its logical time, and the catalog's time at which it feeds."""

    logical_time: datetime
    at: datetime


Fact: TypeAlias = Message | Fire
"""A feed of a leaf."""

Schedules: TypeAlias = Mapping[ScheduleId, Schedule]


def feed_jobs(
    db: Db, world: World, facts: Mapping[ScheduleId, Sequence[tuple[int, Fact]]], schedules: Schedules
) -> dict[ScheduleId, JobId]:
    """Add `facts`, each with the number of its leaf, to the open jobs of their schedules, or to new ones; due at once.

    The caller has share-locked the schedules. A handful of statements for any number of facts.
    """
    fed: dict[ScheduleId, JobId] = {}
    left = sorted(facts)
    while left:
        open_jobs = {job.schedule_id: job for job in lock_open_jobs(db, left)}
        known = [
            {
                "job_id": job.job_id,
                "progress": write_text(_feed(job.fed, facts[schedule_id], schedules[schedule_id])),
            }
            for schedule_id, job in open_jobs.items()
        ]
        db.run(SQL.update_fed, jobs=json.dumps(known))
        fed |= {schedule_id: job.job_id for schedule_id, job in open_jobs.items()}
        new = {one: facts[one] for one in left if one not in open_jobs}
        fed |= insert_jobs(db, make_jobs(world, new, schedules, db.now()))
        left = [schedule_id for schedule_id in left if schedule_id not in fed]
    refs = [
        {"job_id": fed[schedule_id], **MessageRef(trigger_no, fact.topic, fact.seq, fact.n)._asdict()}
        for schedule_id, given in facts.items()
        for trigger_no, fact in given
        if isinstance(fact, Message)
    ]
    db.run(SQL.insert_messages, messages=json.dumps(refs))
    return fed


def make_jobs(
    world: World, facts: Mapping[ScheduleId, Sequence[tuple[int, Fact]]], schedules: Schedules, now: datetime
) -> list[Job]:
    """Make a job of each schedule that `facts` feed, without a row yet; in order of schedule."""
    shared: dict[tuple[object, ...], Progress] = {}
    jobs: list[Job] = []
    for job_id, schedule_id in zip(world.new_ids("job", len(facts)), sorted(facts), strict=True):
        given, schedule = facts[schedule_id], schedules[schedule_id]
        if all(isinstance(fact, Fire) for _, fact in given):
            # Thousands of schedules with one trigger are due at one time. What is decided of the progress of their
            # jobs is decided once for all of them (`alike`).
            key = (id(schedule.spec.trigger), *given)
            progress = shared.get(key) or shared.setdefault(key, _feed({}, given, schedule))
        else:
            progress = _feed({}, given, schedule)
        jobs.append(
            Job(
                JobId(job_id),
                schedule_id,
                schedule.generation,
                JobState.PENDING_TRIGGER,
                created_at=now,
                satisfied_at=None,
                next_check_at=now,
                priority=schedule.spec.priority,
                deadline=None,
                progress=progress,
                verdict=None,
                revision=0,
            )
        )
    return jobs


def alike(job: Job, schedule: Schedule) -> tuple[int, int]:
    """Return a key that jobs of one block share if the same has fed the same trigger. Equal ones may have two keys."""
    return id(schedule.spec.trigger), id(job.progress)


def insert_jobs(db: Db, jobs: Sequence[Job]) -> dict[ScheduleId, JobId]:
    """Insert jobs of `make_jobs`, due at once. Return those that are there now.

    A schedule that got its open job from another process in the same instant gets none.
    """
    rows = [
        {
            "job_id": job.job_id,
            "schedule_id": job.schedule_id,
            "generation": job.generation,
            "priority": job.priority,
            "progress": write_text(job.progress),
        }
        for job in jobs
    ]
    made = set(db.records(SQL.insert_jobs, ScheduleId, jobs=json.dumps(rows)))
    return {job.schedule_id: job.job_id for job in jobs if job.schedule_id in made}


def lock_open_jobs(db: Db, schedule_ids: Collection[ScheduleId]) -> list[Job]:
    """The open jobs of the schedules, locked, in order of schedule."""
    return db.records(SQL.lock_open, Job, schedule_ids=json.dumps(sorted(schedule_ids)))


def lock_due_jobs(db: Db, now: datetime, limit: int) -> list[Job]:
    """Lock at most `limit` jobs that are due and not locked, and return them, longest due first."""
    return db.records(SQL.lock_due, Job, now=now, limit=limit)


def find_unfinished(db: Db, job_ids: Collection[JobId]) -> set[JobId]:
    """Return those of `job_ids` that are open, or whose run has not ended. Cost: two look-ups each."""
    return set(db.records(SQL.find_unfinished, JobId, job_ids=json.dumps(sorted(job_ids))))


def lock_unchanged(db: Db, jobs: Iterable[Job]) -> list[Job]:
    """Lock the jobs of `jobs` that are unchanged and open since they were read, and return them."""
    rows = [{"job_id": job.job_id, "revision": job.revision} for job in jobs]
    return db.records(SQL.lock_unchanged, Job, jobs=json.dumps(rows))


def lock_job(db: Db, job_id: JobId) -> Job:
    """An open job, locked; `NotFound`, or `JobEnded`."""
    while isinstance(job := find_job(db, job_id), Job):
        if locked := lock_unchanged(db, [job]):
            return locked[0]
    raise JobEnded(job_id, job.outcome, job.run_id)


def read_job_messages(db: Db, job_ids: Iterable[JobId]) -> dict[JobId, list[MessageRef]]:
    """The messages of each job, oldest first within a topic."""
    refs: dict[JobId, list[MessageRef]] = {}
    wanted = json.dumps(list(job_ids))
    for job_id, trigger_no, topic, seq, n in db.records(
        SQL.read_messages, tuple[JobId, int, str, int, int], job_ids=wanted
    ):
        refs.setdefault(job_id, []).append(MessageRef(trigger_no, topic, seq, n))
    return refs


def store_checked(db: Db, jobs: Sequence[Job], waits: Mapping[JobId, Mapping[str, int | None]]) -> None:
    """Store what a check found of `jobs`, which the caller holds, and the keys that each waits for.

    A key has the number below which the slots in use and the jobs ahead must be, or None: see `job_waits`.
    """
    rows = [
        {
            "job_id": job.job_id,
            "state": job.state.value,
            "satisfied_at": job.satisfied_at,
            "deadline": job.deadline,
            "next_check_at": job.next_check_at,
            "verdict": None if job.verdict is None else json.dumps(job.verdict),
        }
        for job in jobs
    ]
    db.run(SQL.update_checked, jobs=to_json(rows))
    checked = json.dumps([job.job_id for job in jobs])
    keys = json.dumps(
        [
            {"wait_key": key, "job_id": job_id, "most": most}
            for job_id, wanted in waits.items()
            for key, most in wanted.items()
        ]
    )
    db.run(SQL.wake_behind, job_ids=checked, waits=keys)
    db.run(SQL.delete_waits, job_ids=checked)
    db.run(SQL.insert_waits, waits=keys)


def list_waiting(db: Db, wait_keys: Sequence[str], now: datetime) -> dict[str, list[tuple[JobId, int | None, Turn]]]:
    """List the jobs that wait for each key, with their `most` (see `job_waits`) and their turns. Cost: their number."""
    waiting: dict[str, list[tuple[JobId, int | None, Turn]]] = {}
    wanted = json.dumps(wait_keys)
    for one in db.records(SQL.list_waiting, _WaitingJob, wait_keys=wanted):
        own = turn(now, one.priority, one.deadline, one.created_at, one.job_id)
        waiting.setdefault(one.wait_key, []).append((one.job_id, one.most, own))
    return waiting


def drop_jobs(db: Db, schedules: Mapping[ScheduleId, Outcome]) -> dict[ScheduleId, int]:
    """End all jobs of `schedules` without a run, for the reason given, and give how many each had."""
    jobs = lock_open_jobs(db, schedules)
    end_jobs(db, [JobEnding(job, schedules[job.schedule_id], schedules[job.schedule_id].value) for job in jobs])
    return {s: sum(job.schedule_id == s for job in jobs) for s in schedules}


def hold_jobs(db: Db, schedule_ids: Collection[ScheduleId]) -> None:
    """Keep the jobs of schedules from becoming runs; `release_jobs` ends that.

    The jobs are due once more: a checker takes them out of the queues for slots, and leaves them until then.
    """
    db.run(SQL.hold_jobs, schedule_ids=json.dumps(sorted(schedule_ids)))


def release_jobs(db: Db, schedule_ids: Collection[ScheduleId]) -> None:
    """Make the jobs of schedules due, as new jobs with their feeds: all time-outs and `deadline` begin again."""
    db.run(SQL.release_jobs, schedule_ids=json.dumps(sorted(schedule_ids)))


def lock_limits(db: Db, limits: Collection[str], jobs: Collection[JobId]) -> None:
    """Lock `limits`, and the limits for whose slots `jobs` wait, in the order of locks."""
    db.all(SQL.lock_limits, limit_keys=json.dumps(sorted(limits)), job_ids=json.dumps(sorted(jobs)))


def end_jobs(db: Db, endings: Sequence[JobEnding]) -> None:
    """Move jobs, whose rows the caller holds, to the history.

    The feed and the messages of those that end without a run go there; those of the others are in their run's record.
    """
    dropped = [ending.job.job_id for ending in endings if ending.run_id is None]
    messages = read_job_messages(db, dropped)
    if dropped:
        lock_limits(db, (), dropped)
        db.run(SQL.wake_beside, job_ids=json.dumps(dropped))
    record_ends(db, endings, messages)
    ended = json.dumps([ending.job.job_id for ending in endings])
    for statement in (SQL.delete_waits, SQL.delete_messages, SQL.delete_jobs):
        db.run(statement, job_ids=ended)


def record_ends(db: Db, endings: Iterable[JobEnding], messages: Mapping[JobId, Sequence[MessageRef]]) -> None:
    """Write the ends of jobs, with or without rows of their own, to the history."""
    # Jobs that are launched for one reason, without messages, have one text.
    known: dict[str, str] = {}
    stored = stored_times()
    rows: list[tuple[str | int | None, ...]] = []
    for ending in endings:
        job, refs = ending.job, messages.get(ending.job.job_id, [])
        if refs or ending.run_id is None:
            detail = to_json({"why": ending.why, "messages": refs} | _fed_if_dropped(ending))
        else:
            detail = known.get(ending.why) or known.setdefault(ending.why, to_json({"why": ending.why, "messages": []}))
        rows.append(
            (
                job.job_id,
                job.schedule_id,
                job.generation,
                ending.outcome.value,
                ending.run_id,
                stored(job.created_at),
                detail,
            )
        )
    db.run(SQL.insert_history, jobs=RowSet(_HISTORY_COLUMNS, rows))


def _fed_if_dropped(ending: JobEnding) -> dict[str, object]:
    return {} if ending.run_id is not None else {"fed": write_plain(ending.job.progress)}


def find_job(db: Db, job_id: JobId) -> Job | EndedJob:
    """The job with that id, open or ended; `NotFound`."""
    job = db.record(SQL.find_job, Job, job_id=job_id) or db.record(SQL.find_ended, EndedJob, job_id=job_id)
    if job is None:
        raise NotFound("job", job_id)
    return job


def list_jobs(
    db: Db,
    *,
    schedule_id: ScheduleId | None = None,
    namespace: str | None = None,
    state: JobState | None = None,
    after: str = "",
    limit: int = ALL_ROWS,
) -> list[Job]:
    """List open jobs by id, which is about oldest first, from the id behind `after` on.

    Cost: the page; of a namespace, the schedules of the namespace.
    """
    wanted = "" if state is None else state.value
    if schedule_id is not None:
        of = {"schedule_id": schedule_id, "state": wanted}
        return db.records(SQL.list_by_schedule, Job, **of, after=after, limit=limit)
    if namespace is not None:
        within = {"namespace": namespace, "state": wanted}
        return db.records(SQL.list_in_namespace, Job, **within, after=after, limit=limit)
    if state is not None:
        return db.records(SQL.list_by_state, Job, state=wanted, after=after, limit=limit)
    return db.records(SQL.list_jobs, Job, after=after, limit=limit)


def list_ended_jobs(
    db: Db, schedule_id: ScheduleId, *, most: int, before: tuple[datetime, str] = FROM_LATEST
) -> list[EndedJob]:
    """List the jobs of a schedule that have ended, newest first, from the time of the end and id `before` on."""
    ended_at, job_id = before
    return db.records(
        SQL.list_ended, EndedJob, schedule_id=schedule_id, ended_before=ended_at, before=job_id, most=most
    )


def _feed(fed: Mapping[int, Fed], facts: Sequence[tuple[int, Fact]], schedule: Schedule) -> Progress:
    leaves = schedule.spec.trigger.leaves
    after = dict(fed)
    for trigger_no, fact in facts:
        before = after.get(trigger_no, Fed()).touched(fact.at)
        match leaves[trigger_no], fact:
            case MessageTrigger() as leaf, Message():
                after[trigger_no] = leaf.feed(before, fact)
            case TimeTrigger() | WatermarkPassed(), Fire():
                after[trigger_no] = before.fired(fact.logical_time)
            case leaf, _:
                raise Internal(f"leaf {trigger_no} of schedule {schedule.qualified_name}, {leaf}, was fed {fact}")
    return Progress(after)
