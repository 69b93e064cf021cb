"""Reasons of messages, schedules, jobs and runs: look-ups for the pure functions that explain them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Message, MessageRow, Position, Topic, find_position, to_message
from tidemill.catalog.named import Param, load_sql
from tidemill.errors import NotFound
from tidemill.lake.datasets import Dataset
from tidemill.mill.access import Access
from tidemill.mill.project import schedule_names
from tidemill.names import JobId, RunId, ScheduleId, dataset_events, program_limit
from tidemill.reasons import Because, Reason
from tidemill.run.records.explain import explain_run
from tidemill.run.records.programs import Program, find_program_by_id, list_programs
from tidemill.run.records.runs import RunKind, RunRecord, RunState, count_under_way, find_run, find_runs
from tidemill.run.records.workflows import find_workflow
from tidemill.schedule import schedules
from tidemill.schedule.explain import (
    SlotHolder,
    explain_ended,
    explain_idle,
    explain_job,
    explain_suspended,
    limit_keys_of,
)
from tidemill.schedule.jobs import EndedJob, Job, find_job
from tidemill.schedule.specs import Schedule, Status

if TYPE_CHECKING:
    from tidemill.mill.why_work_sql import Sql

SQL: Sql = load_sql(__file__)

_MOST_HOLDERS: Final = 20
_MOST_LISTENERS: Final = 20
_MOST_ENDED: Final = 20
"""Jobs of a schedule that are searched for a message: those that ended first after the message."""


@dataclass(frozen=True, slots=True)
class Explained:
    """A thing by its full name, its state, and the reasons."""

    thing: str
    state: str
    because: tuple[Because, ...]


def explain_job_of(db: Db, job_id: JobId) -> Explained:
    """Explain a job, open or ended; `NotFound`."""
    job = find_job(db, job_id)
    if isinstance(job, Job):
        return Explained(job_id, job.state, _of_open_job(db, job))
    reasons = [explain_ended(job, schedule_names(db, [job.schedule_id]).get(job.schedule_id, job.schedule_id))]
    if job.run_id is not None and (found := find_runs(db, [job.run_id])):
        reasons.append(_of_run(db, found[0]))
    return Explained(job_id, job.outcome, tuple(reasons))


def explain_run_of(db: Db, run_id: RunId) -> Explained:
    """Explain a run; `NotFound`."""
    run = find_run(db, run_id)
    return Explained(run_id, run.state, (_of_run(db, run),))


def explain_schedule(db: Db, schedule: Schedule) -> Explained:
    """Explain a schedule: its open job, or what it listens to."""
    program = find_program_by_id(db, schedule.program_id)
    reasons: tuple[Because, ...] = ()
    if program.retired:
        reasons += (_retired(program),)
    if schedule.status is Status.SUSPENDED:
        reasons += (explain_suspended(schedule),)
    else:
        jobs = list_open_jobs(db, [schedule.schedule_id])
        for job in jobs:
            reasons += _of_open_job(db, job)
        if not jobs:
            reasons += explain_idle(schedule, schedules.read_timers(db, schedule.schedule_id))
    return Explained(schedule.qualified_name, schedule.status, reasons)


def explain_message(db: Db, topic: str, seq: int, n: int) -> Explained:
    """Explain a message: the jobs and runs that it has fed; `NotFound`.

    Cost: look-ups for each of at most 20 schedules that listen to its event key, and 20 ended jobs of each.
    """
    row = db.record(SQL.find_message, MessageRow, topic=topic, seq=seq, n=n)
    shown = f"{topic}:{seq}.{n}"
    if row is None:
        raise NotFound("message", shown, hint=f"`tidemill topic read {topic}` lists messages")
    message = to_message(row)
    evidence = {"event_key": message.event_key, "event_type": message.event_type, "published_at": message.at}
    quarantines = db.records(SQL.list_quarantines, tuple[str, str, datetime], topic=topic, seq=seq, n=n)
    if quarantines:
        reasons: tuple[Because, ...] = tuple(
            Because(
                Reason.MESSAGE_QUARANTINED,
                f"subscriber {name} could not read {shown}: {why}",
                evidence | {"subscriber": name, "quarantined_at": at},
                "upgrade Tidemill if a newer version published the message; it is not read again",
            )
            for name, why, at in quarantines
        )
    else:
        reasons = _of_message(db, message, shown, evidence)
    return Explained(shown, reasons[0].code.value, reasons)


def explain_reader(db: Db, program: Program, dataset: Dataset) -> tuple[Because, ...]:
    """Say why no run of `program` has taken the work that waits for the program in `dataset`.

    Cost: look-ups, for the runs under way and the listening schedules of the program.
    """
    name = program.qualified_name
    holders = _list_holders(db, [program_limit(program.program_id)])
    active = sorted(find_runs(db, [one.run_id for one in holders]), key=lambda run: (run.created_at, run.run_id))
    for state, what in ((RunState.PENDING, "has not started"), (RunState.STARTING, "starts")):
        if run := next((one for one in reversed(active) if one.state is state), None):
            of_run = explain_run(run, db.now(), lambda: count_under_way(db))
            why = f"{run.run_id} of {name} {what}: `tidemill run show {run.run_id}` says why"
            return (replace(of_run, why=why, evidence={"run_id": run.run_id, "why": of_run.why, **of_run.evidence}),)
    if program.retired:
        return (_retired(program),)
    listening = {
        schedule.schedule_id: schedule
        for key in dataset_events(dataset.namespace, dataset.name)
        for schedule in schedules.list_schedules(db, event_key=key, program_id=program.program_id)
    }
    if not listening:
        cure = f"`tidemill run start {name}`"
        why = f"no schedule starts {name}: {cure} does"
        return (Because(Reason.PROGRAM_NOT_SCHEDULED, why, {"program": name, "dataset": dataset.qualified_name}, cure),)
    for job in list_open_jobs(db, listening):
        return _of_open_job(db, job)
    for schedule in listening.values():
        if schedule.status is Status.SUSPENDED:
            return (explain_suspended(schedule),)
    running = [run.run_id for run in active]
    named = next(iter(listening.values())).qualified_name
    why = f"{named} has no job for them yet: a scheduler makes one, as `tidemill up` has it"
    cure = "a scheduler handles the newest messages, or the runs under way end"
    return (Because(Reason.WAITS_FOR_SCHEDULER, why, {"schedule": named, "runs": running}, cure),)


def explain_readers(db: Db, dataset: Dataset, access: Access) -> tuple[Because, ...]:
    """Say of each program that reads a data set why no run has taken what waits there."""
    return tuple(reason for one in list_readers(db, dataset, access) for reason in explain_reader(db, one, dataset))


def list_readers(db: Db, dataset: Dataset, access: Access) -> list[Program]:
    """Return the programs that are given what arrives in a data set, of those that the caller may read."""
    seen = (one for one in list_programs(db) if access.sees(one.namespace))
    name = dataset.qualified_name
    return [one for one in seen if name in one.reads and name not in one.held and not one.retired]


def list_open_jobs(db: Db, schedule_ids: Iterable[ScheduleId]) -> list[Job]:
    """Return the open jobs of schedules, in order of schedule. Cost: look-ups."""
    rows = db.records(SQL.list_open, tuple[ScheduleId, JobId], schedule_ids=json.dumps(sorted(schedule_ids)))
    found = (find_job(db, job_id) for _, job_id in rows)
    return [job for job in found if isinstance(job, Job)]


def _of_open_job(db: Db, job: Job) -> tuple[Because, ...]:
    schedule = schedules.read_schedules(db, [job.schedule_id])[job.schedule_id]
    if schedule.status is Status.SUSPENDED:
        return (explain_suspended(schedule),)
    return explain_job(job, schedule, db.now(), _list_holders(db, limit_keys_of(job)))


def _of_run(db: Db, run: RunRecord) -> Because:
    because = explain_run(run, db.now(), lambda: count_under_way(db))
    because = replace(because, why=f"{run.run_id} {because.why}")
    if run.state.ended and run.state is not RunState.COMPLETED and (repeats := _find_repetition(db, run)):
        because = replace(because, unblock=f"{because.unblock}; {repeats}")
    row = find_workflow(db, run.run_id) if run.kind is RunKind.WORKFLOW else None
    if row is None or not row.fate:
        return because
    why = f"{because.why}; {row.fate}"
    if row.holds_until is None:
        return replace(because, why=why)
    cure, until = find_end_of_claims(db, run.run_id)
    return replace(
        because, why=why, evidence={**because.evidence, "holds_until": until}, unblock=cure, next_look_at=until
    )


def _find_repetition(db: Db, run: RunRecord) -> str:
    """Return what repeats a run that ended without success; empty for a run that nothing repeats."""
    if run.backfill_id is not None:
        return f"`tidemill backfill retry {run.backfill_id}` tries its item again"
    if run.workflow is not None:
        return f"`tidemill why {run.workflow}` says how its workflow goes on"
    if run.program_id is None:
        return ""
    program = find_program_by_id(db, run.program_id)
    if program.retired:
        return _retired(program).unblock
    if program.kind.is_worker:
        return f"runners start another run of {program.qualified_name} by themselves"
    return f"`tidemill run retry {run.run_id}` repeats it"


def find_end_of_claims(db: Db, run_id: RunId) -> tuple[str, datetime | None]:
    """Return what ends the claims of a run. With the time at which a failed workflow returns them by itself."""
    row = find_workflow(db, run_id)
    if row is None or row.holds_until is None:
        return "the run ends", None
    retry, kill = f"`tidemill run retry {run_id}` goes on with them", f"`tidemill run kill {run_id}` returns them"
    return f"{retry}; {kill}", row.holds_until


def _list_holders(db: Db, limit_keys: list[str]) -> list[SlotHolder]:
    if not limit_keys:
        return []
    return db.records(SQL.list_holders, SlotHolder, limit_keys=json.dumps(limit_keys), limit=_MOST_HOLDERS)


def _retired(program: Program) -> Because:
    name = program.qualified_name
    why = f"the app of {name} does not declare the program any more"
    return Because(Reason.PROGRAM_RETIRED, why, {"program": name}, "declare the program again, and `tidemill deploy`")


def _of_message(db: Db, message: Message, shown: str, evidence: Mapping[str, object]) -> tuple[Because, ...]:
    # A list of files, which asks for readers alone, must not wait for what this module loads.
    from tidemill.schedule.subscriber import NAME

    position = find_position(db, message.topic, NAME)
    found = (one for key in message.listened_keys for one in schedules.list_schedules(db, event_key=key))
    listening = list({one.schedule_id: one for one in found}.values())[:_MOST_LISTENERS]
    named = {**evidence, "schedules": [schedule.qualified_name for schedule in listening]}
    if not listening:
        of_user = message.topic not in set(Topic)
        why = f"no schedule listens to {f'topic {message.topic}' if of_user else message.event_key}"
        why += f", or to its key {message.event_key!r}" if of_user and message.event_key else ""
        return (Because(Reason.MESSAGE_UNHEARD, why, named),)
    if position is None or position < message.position:
        at = "-" if position is None else f"{position.seq}.{position.n}"
        why = f"{shown} waits for a scheduler, whose position is {at}"
        cure = "a scheduler handles the message, as `tidemill up` has it"
        return (Because(Reason.MESSAGE_WAITS_FOR_SCHEDULER, why, {**named, "position": at}, cure),)
    reasons: list[Because] = []
    for schedule in listening:
        reasons += _fed_by(db, message, shown, schedule, evidence)
    if reasons:
        return tuple(reasons)
    why = f"a scheduler has handled {shown}, and no job of the schedules that listen now has it"
    return (Because(Reason.MESSAGE_PASSED, why, named),)


def _fed_by(db: Db, message: Message, shown: str, schedule: Schedule, evidence: Mapping[str, object]) -> list[Because]:
    name = schedule.qualified_name
    of: dict[str, int] = {"seq": message.seq, "n": message.n}
    for job in list_open_jobs(db, [schedule.schedule_id]):
        if fed := db.records(SQL.find_fed, int, job_id=job.job_id, topic=message.topic, **of):
            why = f"{shown} is in {job.job_id} of {name}, which waits: `tidemill why {job.job_id}`"
            found = {**evidence, "schedule": name, "job_id": job.job_id, "triggers": fed}
            return [Because(Reason.MESSAGE_IN_JOB, why, found, "the job becomes a run")]
    params: dict[str, Param] = {"schedule_id": schedule.schedule_id, "since": message.at, "limit": _MOST_ENDED}
    for ended in db.records(SQL.list_ended_since, EndedJob, **params):
        found = {**evidence, "schedule": name, "job_id": ended.job_id, "outcome": str(ended.outcome)}
        if ended.run_id is None:
            named = [_lists(one)[1:] for one in _lists(ended.detail.get("messages"))]
            if [message.topic, message.seq, message.n] in named:
                why = f"{shown} was dropped with {ended.job_id} of {name} ({ended.outcome}): {ended.detail.get('why')}"
                return [Because(Reason.MESSAGE_DROPPED, why, found, "the next run takes the work that is left")]
        elif runs := [run for run in find_runs(db, [ended.run_id]) if _took(run, message)]:
            why = f"{shown} has fed {ended.job_id} of {name}, which became {ended.run_id} ({runs[0].state})"
            return [
                Because(Reason.MESSAGE_IN_RUN, why, {**found, "run_id": ended.run_id, "state": runs[0].state.value})
            ]
    return _passed_by(db, message, shown, schedule, evidence)


def _passed_by(
    db: Db, message: Message, shown: str, schedule: Schedule, evidence: Mapping[str, object]
) -> list[Because]:
    """Say that the schedule was suspended or changed, if the message is among those that it was not fed."""
    name = schedule.qualified_name
    for topic, messages, first_seq, first_n, last_seq, last_n in schedules.list_passed(db, schedule.schedule_id):
        first, last = Position(first_seq, first_n), Position(last_seq, last_n)
        if topic == message.topic and first <= message.position <= last:
            passed = {"messages": messages, "first": f"{first_seq}.{first_n}", "last": f"{last_seq}.{last_n}"}
            why = f"{shown} fed no job of {name}, which was suspended, or changed after the message"
            # A resumption announces waiting data. Other messages stay unheard.
            announced = schedule.status is Status.SUSPENDED and topic == Topic.DATA
            cure = f"`tidemill schedule resume {name}`" if announced else ""
            return [Because(Reason.MESSAGE_PASSED, why, {**evidence, "schedule": name, **passed}, cure)]
    return []


def _took(run: RunRecord, message: Message) -> bool:
    """Return whether a run's record names the message among those that fed its triggers."""
    wanted = [message.topic, message.seq, message.n]
    triggers = run.triggered_by.get("triggers")
    fed = [one.get("messages") for one in triggers if isinstance(one, dict)] if isinstance(triggers, list) else []
    return any(_position_of(one) == wanted for messages in fed for one in _lists(messages))


def _position_of(named: object) -> list[object]:
    if isinstance(named, dict):
        return [named.get("topic"), named.get("seq"), named.get("n")]
    return named[:3] if isinstance(named, list) else []


def _lists(value: object) -> list[object]:
    return value if isinstance(value, list) else []
