"""Jobs → runs: from "satisfied" to the run's record is one transaction, under the locks of the job's limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Publish, Topic
from tidemill.catalog.named import load_sql
from tidemill.epoch import show_time
from tidemill.errors import UserError
from tidemill.names import JobId, RunId, ScheduleId
from tidemill.run.records.programs import Program, Value, find_programs
from tidemill.run.records.runs import NewRun, create_pending
from tidemill.run.records.workflows import plan_start
from tidemill.run.step.inputs import follows_changes
from tidemill.schedule.answers import Answer, Never, NotBefore, Satisfied, Waiting, all_of, verdict
from tidemill.schedule.argument_sources import MissingSource
from tidemill.schedule.arguments import bind_arguments, read_causes
from tidemill.schedule.causes import describe_causes
from tidemill.schedule.constraints import Constraint, Facts
from tidemill.schedule.data_triggers import DataTrigger
from tidemill.schedule.facts import FactSheet, probe_names, read_facts
from tidemill.schedule.jobs import (
    Job,
    JobEnding,
    JobState,
    Outcome,
    alike,
    end_jobs,
    lock_due_jobs,
    lock_job,
    lock_unchanged,
    read_job_messages,
    record_ends,
    store_checked,
)
from tidemill.schedule.probes import Probes
from tidemill.schedule.schedules import read_schedules
from tidemill.schedule.specs import BadSchedule, OnTimeout, Schedule, Status
from tidemill.schedule.subscriber import BACKLOG
from tidemill.schedule.triggers import Fed, Trigger
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.schedule.checker_sql import Sql

SQL: Sql = load_sql(__file__)

_AFTER_ERROR: Final = timedelta(minutes=1)

_log = logging.getLogger(__name__)

_SUSPENDED: Final = "the schedule is suspended"

BATCH: Final = 500
"""Jobs handled in one transaction."""


@dataclass(frozen=True, slots=True)
class Launch:
    """A run that a job has become; `why` counts what its trigger and constraints had."""

    schedule: str
    job_id: JobId
    run_id: RunId
    why: str
    state: JobState
    """The state of the job before."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of a check: the number of jobs that the check looked at, and the runs that it made."""

    jobs: int
    launches: tuple[Launch, ...]
    at: datetime
    unread: frozenset[str] = frozenset()
    """The probes of jobs that the check left as they were, for want of a reading."""


class _Ready(NamedTuple):
    """A job whose trigger is satisfied, and what its constraints answer."""

    job: Job
    schedule: Schedule
    trigger: Answer
    constraints: tuple[Answer, ...] = ()
    place: datetime | None = None
    """The time from which the cap of the namespace lets the job start, if the cap holds the job back."""
    needs: tuple[str, ...] = ()
    """The names of the facts that its constraints read."""

    @property
    def timeout_at(self) -> datetime:
        """Time by which the constraints must have held."""
        return (self.job.satisfied_at or self.job.created_at) + self.schedule.spec.timeout

    def is_forced(self, now: datetime) -> bool:
        """True if the job starts without its constraints: they did not hold in time, and may hold later."""
        never = any(isinstance(answer, Never) for answer in self.constraints)
        return now >= self.timeout_at and self.schedule.spec.on_timeout is OnTimeout.FORCE and not never

    @property
    def waits(self) -> dict[str, int | None]:
        """The keys that the job waits for, each with the `most` of its answers."""
        found: dict[str, int | None] = {}
        for answer in (one for one in self.constraints if isinstance(one, Waiting)):
            for key in answer.wake_on:
                before = found.get(key, answer.most)
                found[key] = None if before is None or answer.most is None else max(before, answer.most)
        return found


class _Overdue(NamedTuple):
    """A job to be ended without a run, if it is still as it was when that was decided."""

    job: Job
    outcome: Outcome
    why: str


def check_due(
    catalog: Catalog, world: World, limit: int = BATCH, probes: Probes | None = None, *, most_launches: int = 0
) -> Checked:
    """Look at up to `limit` due jobs: make runs of those that may start, store what the others wait for.

    Jobs that others hold are left to them. A job that is to be cancelled is so in a transaction of its own, which
    publishes and so takes the clock first. Cost: some twenty statements for all jobs together.

    A namespace launches at most `most_launches` runs in any second, or any number if that is 0.
    """
    probes = probes or Probes()
    checked = _check_once(catalog, world, limit, probes, most_launches)
    if not checked.unread:
        return checked
    # Jobs whose probes are to be read stay due. Code of others runs here, between the transactions.
    probes.read(checked.unread, checked.at)
    world.mark("checker.probes_read")
    again = _check_once(catalog, world, limit, probes, most_launches)
    return replace(checked, launches=checked.launches + again.launches, unread=again.unread)


def launch_at_once(
    db: Db,
    world: World,
    jobs: Sequence[Job],
    schedules: Mapping[ScheduleId, Schedule],
    now: datetime,
    *,
    most_launches: int,
) -> list[Launch]:
    """Make runs of those of `jobs` that need no row, since they may start now; the caller inserts the others.

    No message has fed the jobs, and none of them has a row. The caller holds their schedules against change. A job
    that waits, or that has to be ended without a run, is left to `check_due`, and so is one whose constraints need a
    probe.
    """
    ready, _, _ = _ask_triggers(jobs, schedules, now)
    if probe_names(_needs(ready)):
        ready = [one for one in ready if not probe_names(one.needs)]
    if not ready:
        return []
    facts = read_facts(db, [one.schedule for one in ready], _needs(ready), (), now, {}, most_launches)
    starting, _ = _decide(facts, ready, now)
    launches, _ = _launch(db, world, starting, now, stored=False)
    facts.store(db)
    return launches


def force_job(db: Db, world: World, job_id: JobId) -> Launch:
    """Make a run of an open job now, whatever its trigger and constraints wait for. `NotFound`, `JobEnded`."""
    job = lock_job(db, job_id)
    schedule = read_schedules(db, {job.schedule_id})[job.schedule_id]
    forced = _Ready(job, schedule, Satisfied("started by hand"), (Never("not asked"),))
    launches, broken = _launch(db, world, [forced], db.now())
    if broken:
        raise BadSchedule(f"{schedule.qualified_name}: {broken[0].why}")
    return launches[0]


NEXT_CHECK: Final = SQL.find_next()
"""Finds the time at which the first job is due for a check."""


def _check_once(catalog: Catalog, world: World, limit: int, probes: Probes, most_launches: int) -> Checked:
    checked, overdue = catalog.write(lambda db: _check(db, world, limit, probes, most_launches))
    if overdue:
        world.mark("checker.before_cancel")
        catalog.write(lambda db: _cancel(db, overdue))
    return checked


def _check(db: Db, world: World, limit: int, probes: Probes, most_launches: int) -> tuple[Checked, list[_Overdue]]:
    now = db.now()
    jobs = lock_due_jobs(db, now, limit)
    if not jobs:
        return Checked(0, (), now), []
    world.mark("checker.locked")
    schedules = read_schedules(db, {job.schedule_id for job in jobs})
    ready, stored, overdue = _ask_triggers(jobs, schedules, now)
    asked = probe_names(_needs(ready))
    readings = probes.known(asked, now)
    unread = asked - set(readings)
    left = {one.job.job_id for one in ready if not unread.isdisjoint(probe_names(one.needs))}
    ready = [one for one in ready if one.job.job_id not in left]
    decided = {job.job_id for job in jobs} - left
    facts = read_facts(db, [one.schedule for one in ready], _needs(ready), decided, now, readings, most_launches)
    starting, waiting = _decide(facts, ready, now)
    waits: dict[JobId, Mapping[str, int | None]] = {}
    for one in waiting:
        answer = all_of(one.constraints)
        if isinstance(answer, Never):
            overdue.append(_Overdue(one.job, Outcome.SKIPPED, _why_skipped(one)))
        elif one.place is not None:
            waits[one.job.job_id] = {}
            stored.append(replace(one.job, next_check_at=one.place, verdict=_held(one, one.place, most_launches)))
        elif now >= one.timeout_at:
            overdue.append(_Overdue(one.job, Outcome.TIMED_OUT, answer.why))
        else:
            waits[one.job.job_id] = one.waits if isinstance(answer, Waiting) else {}
            # At its deadline a job gets a better turn, and nothing else would wake it.
            times = [one.timeout_at, *([one.job.deadline] if one.job.deadline and one.job.deadline > now else [])]
            at = min(answer.at, one.timeout_at) if isinstance(answer, NotBefore) else min(times)
            stored.append(replace(one.job, next_check_at=at, verdict=_verdict(one.trigger, one.constraints)))
    world.mark("checker.before_runs")
    launches, broken = _launch(db, world, starting, now)
    facts.store(db)
    if broken:
        # These have no run after all. A job that waits for the slot of one is looked at again.
        stored = [replace(job, next_check_at=now) if waits.get(job.job_id) else job for job in stored]
    store_checked(db, stored, waits)
    world.mark("checker.before_commit")
    return Checked(len(jobs), tuple(launches), now, frozenset(unread)), overdue + broken


def _ask_triggers(
    jobs: Sequence[Job], schedules: Mapping[ScheduleId, Schedule], now: datetime
) -> tuple[list[_Ready], list[Job], list[_Overdue]]:
    """Split `jobs` into those whose trigger is satisfied, those that wait for it, and those to be ended."""
    ready: list[_Ready] = []
    stored: list[Job] = []
    overdue: list[_Overdue] = []
    answers: dict[tuple[int, int], Answer] = {}
    for job in jobs:
        schedule = schedules[job.schedule_id]
        if schedule.status is Status.SUSPENDED:
            stored.append(replace(job, next_check_at=None, verdict=_verdict(Waiting(_SUSPENDED))))
            continue
        key = alike(job, schedule)
        answer = answers.get(key) or answers.setdefault(key, _ask_trigger(job, schedule, now))
        if isinstance(answer, Satisfied):
            needs = schedule.spec.needs(schedule.program_id)
            ready.append(_Ready(_satisfied(job, schedule, now), schedule, answer, needs=needs))
        elif isinstance(answer, Never):
            overdue.append(_Overdue(job, Outcome.NEVER, answer.why))
        else:
            given_up_at = None if job.satisfied_at else schedule.spec.trigger_timeout_at(job.created_at)
            if given_up_at is not None and now >= given_up_at:
                overdue.append(_Overdue(job, Outcome.TRIGGER_TIMED_OUT, answer.why))
                continue
            times = [given_up_at, answer.at if isinstance(answer, NotBefore) else None]
            at = min((at for at in times if at is not None), default=None)
            stored.append(replace(job, next_check_at=at, verdict=_verdict(answer)))
    return ready, stored, overdue


def _ask_trigger(job: Job, schedule: Schedule, now: datetime) -> Answer:
    trigger = schedule.spec.trigger
    fed = [job.fed.get(trigger_no, Fed()) for trigger_no in range(len(trigger.leaves))]
    return _ask(trigger, lambda: trigger.check(fed, now), now)


def _satisfied(job: Job, schedule: Schedule, now: datetime) -> Job:
    at = job.satisfied_at or now
    deadline = None if schedule.spec.deadline is None else at + schedule.spec.deadline
    # `replace` takes twice as long, and thousands of jobs are satisfied at one time.
    return Job(
        job.job_id,
        job.schedule_id,
        job.generation,
        JobState.PENDING_CONSTRAINT,
        job.created_at,
        at,
        job.next_check_at,
        job.priority,
        deadline,
        job.progress,
        job.verdict,
        job.revision,
    )


def _needs(ready: Sequence[_Ready]) -> set[str]:
    return {name for one in ready for name in one.needs}


def _decide(facts: FactSheet, ready: Sequence[_Ready], now: datetime) -> tuple[list[_Ready], list[_Ready]]:
    """Split `ready` into those that start and the others, the better turn first, under their limits.

    A job starts if its constraints hold or its time-out forces it, unless the cap of the namespace is reached.
    """
    starting: list[_Ready] = []
    waiting: list[_Ready] = []
    for one in sorted(ready, key=lambda one: one.job.turn(now)):
        known = facts.read(one.job, one.schedule, one.needs)
        answers = tuple([_ask_constraint(constraint, known, now) for constraint in one.schedule.spec.constraints])
        answered = _Ready(one.job, one.schedule, one.trigger, answers, needs=one.needs)
        if not (_hold(answers) or answered.is_forced(now)):
            waiting.append(answered)
        elif (place := facts.admit(one.job, one.schedule)) is not None:
            waiting.append(answered._replace(place=place))
        else:
            facts.launch(one.schedule)
            starting.append(answered)
    return starting, waiting


def _ask_constraint(constraint: Constraint, facts: Facts, now: datetime) -> Answer:
    return _ask(constraint, lambda: constraint.check(facts, now), now)


def _ask(asked: Trigger | Constraint, check: Callable[[], Answer], now: datetime) -> Answer:
    """Ask a trigger or constraint. An error of a plug-in means "not yet": the other jobs of the batch go on.

    An answer that breaks the contract is an error too. A `NotBefore` that is no later than `now` would repeat the check
    without end.
    """
    try:
        answer = check()
        if type(answer) is Satisfied:
            return answer
        if isinstance(answer, Answer) and not (isinstance(answer, NotBefore) and answer.at <= now):
            return answer
        why = f"its answer is {answer!r}"
        _log.error("%s failed: %s", asked, why)
    except Exception as error:  # noqa: BLE001  # code of others: whatever it raises
        _log.exception("%s failed", asked)
        why = f"{type(error).__name__}: {error}"
    return NotBefore(now + _AFTER_ERROR, f"{asked} failed: {why}")


def _launch(
    db: Db, world: World, starting: Sequence[_Ready], now: datetime, *, stored: bool = True
) -> tuple[list[Launch], list[_Overdue]]:
    """Make the runs of `starting` and end their jobs. Return the jobs whose program does not get its arguments.

    Jobs that are not `stored` have no row, and no message has fed them.
    """
    programs = find_programs(db, {one.schedule.program_id for one in starting})
    bound: list[tuple[_Ready, Mapping[str, Value]]] = []
    broken: list[_Overdue] = []
    messages = read_job_messages(db, [one.job.job_id for one in starting]) if stored else {}
    of_starting = [(one.job, one.schedule) for one in starting]
    causes = read_causes(db, of_starting, messages)
    for one in starting:
        program, cause = programs[one.schedule.program_id], causes[one.job.job_id]
        try:
            arguments = bind_arguments(program, cause, one.schedule.spec.arguments)
            plan_start(db, program, arguments)  # refuses a workflow that would never end
            bound.append((one, arguments))
        except MissingSource as error:
            broken.append(_Overdue(one.job, Outcome.MISSING_SOURCE, str(error)))
        except UserError as error:
            broken.append(_Overdue(one.job, Outcome.NEVER, str(error)))
    described = describe_causes([(one.job, one.schedule) for one, _ in bound], messages, now)
    # In the order of their turns: only the ids order runs of one millisecond.
    run_ids = map(RunId, world.new_ids("run", len(bound)))
    runs = [
        NewRun(
            run_id=run_id,
            program_id=one.schedule.program_id,
            arguments=arguments,
            triggered_by=cause,
            schedule_id=one.schedule.schedule_id,
            job_id=one.job.job_id,
            priority=one.job.priority,
            deadline=one.job.deadline,
            came_at=one.job.created_at,
            limits=one.schedule.spec.slots(one.schedule.program_id),
        )
        for run_id, (one, arguments), cause in zip(run_ids, bound, described, strict=True)
    ]
    # Jobs come before runs in the order of locks.
    launches = [
        Launch(one.schedule.qualified_name, one.job.job_id, run.run_id, _why(one), one.job.state)
        for (one, _), run in zip(bound, runs, strict=True)
    ]
    endings = [
        JobEnding(one.job, _outcome(one), launch.why, launch.run_id)
        for (one, _), launch in zip(bound, launches, strict=True)
    ]
    if stored:
        end_jobs(db, endings)
    else:
        record_ends(db, endings, messages)
    create_pending(db, runs)
    return launches, broken


def _outcome(one: _Ready) -> Outcome:
    return Outcome.LAUNCHED if _hold(one.constraints) else Outcome.FORCED


def _hold(answers: Iterable[Answer]) -> bool:
    return all([isinstance(answer, Satisfied) for answer in answers])  # noqa: C419  # a generator takes twice as long


def _why(one: _Ready) -> str:
    return "; ".join([answer.why for answer in (one.trigger, *one.constraints)])


def _why_skipped(one: _Ready) -> str:
    answers = zip(one.schedule.spec.constraints, one.constraints, strict=True)
    return "; ".join(f"{constraint}: {answer.why}" for constraint, answer in answers if isinstance(answer, Never))


def _verdict(trigger: Answer, constraints: Sequence[Answer] = ()) -> dict[str, object]:
    return {"trigger": verdict(trigger), "constraints": [verdict(answer) for answer in constraints]}


def _held(one: _Ready, place: datetime, most_launches: int) -> dict[str, object]:
    """Return the verdict of a job that only the cap of its namespace holds back."""
    cap = f"namespace {one.schedule.namespace} is at its cap of {most_launches} launches a second"
    launch = verdict(NotBefore(place, f"{cap}; the job starts at {show_time(place)}"))
    return _verdict(one.trigger, one.constraints) | {"launch": launch}


def _cancel(db: Db, overdue: Sequence[_Overdue]) -> None:
    """End jobs without a run, and say that their work is left, so that it comes again."""
    db.tick()
    decided = {one.job.job_id: one for one in overdue}
    # A job that changed since was fed, or looked at by another checker. The other process decides about that job.
    found = {job.job_id: job for job in lock_unchanged(db, [one.job for one in overdue])}
    schedules = read_schedules(db, {job.schedule_id for job in found.values()})
    programs = find_programs(db, {schedule.program_id for schedule in schedules.values()})
    end_jobs(db, [JobEnding(job, decided[job_id].outcome, decided[job_id].why) for job_id, job in found.items()])
    for job_id, job in found.items():
        if decided[job_id].outcome is Outcome.TIMED_OUT:
            schedule = schedules[job.schedule_id]
            for publish in _work_left(db, job, schedule, programs[schedule.program_id]):
                for call in publish.writes():
                    db.call(call)


def _work_left(db: Db, job: Job, schedule: Schedule, program: Program) -> list[Publish]:
    """Return a backlog message for each data set of which messages have fed the job."""
    leaves = schedule.spec.trigger.leaves
    told = [leaf for no in job.fed if isinstance(leaf := leaves[no], DataTrigger)]
    # A program that reads a snapshot as a whole has no backlog: the next refresh serves.
    fed = {
        leaf.backlog_key: leaf
        for leaf in told
        if leaf.of_kind != "snapshot" or follows_changes(db, program, leaf.dataset)
    }
    return [
        Publish(
            Topic.DATA,
            BACKLOG,
            key,
            {} if leaf.of_kind == "inbox" else {"consumer": program.qualified_name},
        )
        for key, leaf in fed.items()
    ]
