"""Reasons of jobs and schedules: pure functions over the stored feeds and verdicts.

The code of a reason follows from the type of the trigger or constraint, as its JSON names the type. A type that this
module does not know gets the general code, with its type as evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import zip_longest
from typing import Any, Final, cast

from tidemill.json_specs import write_plain
from tidemill.names import RunId
from tidemill.reasons import Because, Reason
from tidemill.schedule.answers import NotBefore, Satisfied
from tidemill.schedule.constraints import Constraint, idle_key, slots_key
from tidemill.schedule.jobs import EndedJob, Job, Outcome
from tidemill.schedule.specs import OnTimeout, Schedule
from tidemill.schedule.time_triggers import TimeTrigger
from tidemill.schedule.triggers import Fed, Leaf

_KEYS: Final = (slots_key(""), idle_key(""))
"""Begins of the wake keys that name a limit: for the runs under the limit the job waits."""

_OF_TRIGGER: Final[Mapping[str, Reason]] = {
    "new_files": Reason.WAITS_FOR_FILES,
    "new_partitions": Reason.WAITS_FOR_PARTITIONS,
    "new_data": Reason.WAITS_FOR_DATA,
    "refreshed": Reason.WAITS_FOR_REFRESH,
    "watermark_passed": Reason.WAITS_FOR_WATERMARK,
    "windows_recomputed": Reason.WAITS_FOR_RECOMPUTATION,
    "missing": Reason.WAITS_FOR_MISSING_DATA,
    "run_ended": Reason.WAITS_FOR_RUN_END,
    "message_on": Reason.WAITS_FOR_MESSAGE,
    "watermark_stands": Reason.WAITS_FOR_TIME,
    "hook": Reason.WAITS_FOR_HOOK,
    "cron": Reason.WAITS_FOR_TIME,
    "anytime": Reason.WAITS_FOR_TIME,
    "every": Reason.WAITS_FOR_TIME,
}
_OF_CONSTRAINT: Final[Mapping[str, Reason]] = {
    "concurrency": Reason.WAITS_FOR_SLOT,
    "group_concurrency": Reason.WAITS_FOR_SLOT,
    "rate": Reason.WAITS_FOR_RATE,
    "delay": Reason.WAITS_FOR_DELAY,
    "time_range": Reason.WAITS_FOR_TIME_RANGE,
    "since_last_run": Reason.WAITS_AFTER_LAST_RUN,
    "probe": Reason.WAITS_FOR_PROBE,
}
_OF_OUTCOME: Final[Mapping[Outcome, Reason]] = {
    Outcome.LAUNCHED: Reason.JOB_LAUNCHED,
    Outcome.FORCED: Reason.JOB_LAUNCHED,
    Outcome.TIMED_OUT: Reason.JOB_TIMED_OUT,
    Outcome.TRIGGER_TIMED_OUT: Reason.JOB_TRIGGER_TIMED_OUT,
    Outcome.SKIPPED: Reason.JOB_SKIPPED,
    Outcome.NEVER: Reason.JOB_REFUSED,
    Outcome.MISSING_SOURCE: Reason.JOB_REFUSED,
}
WAITING: Final = tuple(
    dict.fromkeys(
        (
            *_OF_TRIGGER.values(),
            Reason.WAITS_FOR_TRIGGER,
            *_OF_CONSTRAINT.values(),
            Reason.WAITS_FOR_CONSTRAINT,
            Reason.WAITS_FOR_LAUNCH,
            Reason.WAITS_FOR_SCHEDULER,
            Reason.SCHEDULE_SUSPENDED,
        )
    )
)
"""The reasons that `stored_reasons` gives."""


@dataclass(frozen=True, slots=True)
class SlotHolder:
    """A run that has a slot of a limit."""

    limit_key: str
    run_id: RunId
    taken_at: datetime


def explain_job(job: Job, schedule: Schedule, now: datetime, holders: Sequence[SlotHolder]) -> tuple[Because, ...]:
    """Return what an open job waits for: one reason for each trigger and constraint that does not hold yet.

    `holders` are the runs that have slots of the limits in the job's verdict (`limit_keys_of`).
    """
    subject = f"{job.job_id} of {schedule.qualified_name}"
    due = job.next_check_at is not None and job.next_check_at <= now
    # A trigger that was satisfied may wait again: a part has come during a silence, or a watermark was moved back.
    reasons = _of_trigger(job, schedule, subject, now) or _of_constraints(job, schedule, subject, holders)
    if due or not reasons:
        at = job.next_check_at or now
        why = f"{subject} waits for a scheduler, which has not looked at the job yet"
        cure = "a scheduler looks at the job at once, as `tidemill up` has it"
        reasons = (Because(Reason.WAITS_FOR_SCHEDULER, why, {"due_at": at}, cure, at), *reasons)
    return reasons


def stored_reasons(
    spec: Mapping[str, Any], verdict: Mapping[str, Any], *, suspended: bool, due: bool
) -> frozenset[Reason]:
    """Return what an open job waits for, by its last check and the JSON of its schedule: cheap, to count many jobs.

    A trigger of several parts gives one code. `explain_job` has those of the parts.
    """
    if suspended:
        return frozenset({Reason.SCHEDULE_SUSPENDED})
    trigger, found = verdict.get("trigger", {}), set()
    if trigger and trigger["answer"] != "satisfied":
        whole = Reason.WAITS_FOR_TIME if trigger["answer"] == "not_before" else Reason.WAITS_FOR_TRIGGER
        found.add(_OF_TRIGGER.get(spec["trigger"]["type"], whole))
    else:
        for constraint, answer in zip(spec.get("constraints", ()), verdict.get("constraints", ()), strict=False):
            if answer["answer"] != "satisfied":
                found.add(_OF_CONSTRAINT.get(constraint["type"], Reason.WAITS_FOR_CONSTRAINT))
        if verdict.get("launch"):
            found.add(Reason.WAITS_FOR_LAUNCH)
    return frozenset({*found, Reason.WAITS_FOR_SCHEDULER} if due or not found else found)


def limit_keys_of(job: Job) -> list[str]:
    """Return the limits for whose runs a job waits, by its stored verdict."""
    return sorted({limit for answer in stored_answers(job) for limit in _limits_in(answer)})


def explain_ended(job: EndedJob, schedule: str) -> Because:
    """Return how a job has ended. `schedule` is the name of its schedule."""
    why = str(job.detail.get("why") or job.outcome)
    messages = cast("list[list[object]]", job.detail.get("messages") or [])
    evidence = {
        "outcome": str(job.outcome),
        "schedule": schedule,
        "run_id": job.run_id,
        "ended_at": job.ended_at,
        "messages": [f"{topic}:{seq}.{n}" for _, topic, seq, n in messages],
    }
    code = _OF_OUTCOME.get(job.outcome, Reason.JOB_DROPPED)
    if job.run_id is not None:
        return Because(code, f"{job.job_id} of {schedule} became {job.run_id}: {why}", evidence)
    cure = "" if code is Reason.JOB_REFUSED else "the next run of the program takes the work that is left"
    return Because(code, f"{job.job_id} of {schedule} ended without a run ({job.outcome}): {why}", evidence, cure)


def explain_idle(schedule: Schedule, fires: Mapping[int, datetime]) -> tuple[Because, ...]:
    """Return what a schedule without a job waits for. `fires` is the next time of each of its time triggers."""
    leaves = schedule.spec.trigger.leaves
    return tuple(
        _waiting(leaf, trigger_no, Fed(), leaf.check([Fed()], schedule.since_at).why, schedule.qualified_name, at)
        for trigger_no, leaf in enumerate(leaves)
        for at in [fires.get(trigger_no)]
    )


def explain_suspended(schedule: Schedule) -> Because:
    """Return the reason of a suspended schedule, or of its job."""
    name = schedule.qualified_name
    cure = f"`tidemill schedule resume {name}`"
    evidence = {"schedule": name, "mode": schedule.suspended_mode, "suspended_at": schedule.suspended_at}
    return Because(Reason.SCHEDULE_SUSPENDED, f"{name} is suspended: {cure}", evidence, cure)


def _of_trigger(job: Job, schedule: Schedule, subject: str, now: datetime) -> tuple[Because, ...]:
    trigger = schedule.spec.trigger
    feeds = [job.fed.get(trigger_no, Fed()) for trigger_no in range(len(trigger.leaves))]
    whole = trigger.check(feeds, now)
    if isinstance(whole, Satisfied):
        return ()
    waiting = []
    for trigger_no, (leaf, fed) in enumerate(zip(trigger.leaves, feeds, strict=True)):
        answer = leaf.check([fed], now)
        if not isinstance(answer, Satisfied):
            at = answer.at if isinstance(answer, NotBefore) else job.next_check_at
            waiting.append(_waiting(leaf, trigger_no, fed, answer.why, f"{subject} waits", at))
    if waiting and not isinstance(whole, NotBefore):
        return tuple(waiting)
    # A composite waits by itself: for the end of its patience, or of a silence.
    at, code = (whole.at, Reason.WAITS_FOR_TIME) if isinstance(whole, NotBefore) else (None, Reason.WAITS_FOR_TRIGGER)
    evidence = {"type": str(write_plain(trigger)["type"]), "trigger": str(trigger)}
    cure = "the time comes, or a message that feeds the trigger arrives"
    return (*waiting, Because(code, f"{subject} waits: {whole.why}", evidence, cure, at))


def _waiting(leaf: Leaf, trigger_no: int, fed: Fed, why: str, subject: str, at: datetime | None) -> Because:
    tag = str(write_plain(leaf)["type"])
    evidence = {"type": tag, "trigger_no": trigger_no, "trigger": str(leaf), "count": fed.count}
    evidence |= {"event_keys": list(leaf.event_keys)} if leaf.event_keys else {}
    timed = at is not None and isinstance(leaf, TimeTrigger)
    cure = "the time comes" if timed else "a message that feeds the trigger arrives"
    return Because(_OF_TRIGGER.get(tag, Reason.WAITS_FOR_TRIGGER), f"{subject}: {why}", evidence, cure, at)


def _of_constraints(job: Job, schedule: Schedule, subject: str, holders: Sequence[SlotHolder]) -> tuple[Because, ...]:
    spec = schedule.spec
    since = {"satisfied_at": job.satisfied_at}
    if job.satisfied_at is not None:
        since |= {"timeout_at": job.satisfied_at + spec.timeout}
    waiting = []
    for constraint, answer in zip_longest(spec.constraints, stored_answers(job)[: len(spec.constraints)]):
        if answer is None or answer.get("answer") == "satisfied":
            continue
        waiting.append(_constrained(constraint, answer, job, subject, since, holders, spec.on_timeout))
    if job.place is not None:
        why = f"{subject} waits for its place among the launches of namespace {schedule.namespace}"
        cure = f"the time comes, or `tidemill job force {job.job_id}`; a higher schedules.max_launches_per_second helps"
        evidence = {"namespace": schedule.namespace, "place": job.place, **since}
        waiting.append(Because(Reason.WAITS_FOR_LAUNCH, why, evidence, cure, job.place))
    return tuple(waiting)


def _constrained(
    constraint: Constraint,
    answer: Mapping[str, object],
    job: Job,
    subject: str,
    since: Mapping[str, object],
    holders: Sequence[SlotHolder],
    on_timeout: OnTimeout,
) -> Because:
    tag = str(write_plain(constraint)["type"])
    limits = _limits_in(answer)
    evidence: dict[str, object] = {"type": tag, "constraint": str(constraint), **since}
    at = answer.get("at")
    given_up = "starts anyway" if on_timeout is OnTimeout.FORCE else "is cancelled"
    cure = f"the constraint holds, or `tidemill job force {job.job_id}`; at its time-out the job {given_up}"
    code = _OF_CONSTRAINT.get(tag, Reason.WAITS_FOR_CONSTRAINT)
    if limits:
        held = [{"run_id": one.run_id, "since": one.taken_at} for one in holders if one.limit_key in limits]
        evidence["held_by"] = held
        cure = f"one of these runs ends, or `tidemill job force {job.job_id}`; at its time-out the job {given_up}"
    look = datetime.fromisoformat(at) if isinstance(at, str) else job.next_check_at
    return Because(code, f"{subject} waits: {answer.get('why')}", evidence, cure, look)


def _limits_in(answer: Mapping[str, object]) -> set[str]:
    keys = [str(key) for key in cast("list[object]", answer.get("wake_on", []))]
    return {key.removeprefix(begin) for key in keys for begin in _KEYS if key.startswith(begin)}


def stored_answers(job: Job) -> list[Mapping[str, object]]:
    """Return the answers of a job's constraints at its last check, in their order."""
    stored = (job.verdict or {}).get("constraints", [])
    return [answer for answer in stored if isinstance(answer, dict)] if isinstance(stored, list) else []
