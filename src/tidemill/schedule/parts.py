"""Parts of a schedule as they stand: its trigger as a tree with live counts, and its constraints with their answers.

Pure functions over the feeds and the verdict of the schedule's open job, or over none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise, zip_longest

from tidemill.durations import format_duration
from tidemill.json_specs import write_plain
from tidemill.schedule.answers import NotBefore, Satisfied
from tidemill.schedule.explain import stored_answers
from tidemill.schedule.jobs import Job
from tidemill.schedule.specs import Schedule
from tidemill.schedule.triggers import AllOf, AtLeast, Composite, Fed, Silence, Trigger


@dataclass(frozen=True, slots=True)
class TriggerPart:
    """A part of a trigger, and its answer now. `depth` is its place in the tree; the parts below it come next.

    `count` is what the part was fed: partitions, files, fires; of a composite part that of all below. `since` is the
    time of the first feed. `not_before` is the time from which the part may hold by itself.
    """

    depth: int
    type: str
    text: str
    holds: bool
    why: str
    count: int
    since: datetime | None
    not_before: datetime | None


@dataclass(frozen=True, slots=True)
class ConstraintPart:
    """A constraint with the answer of its last check. `holds` is None before the first check of the open job."""

    type: str
    text: str
    holds: bool | None
    why: str
    not_before: datetime | None


def list_trigger_parts(schedule: Schedule, job: Job | None, now: datetime) -> tuple[TriggerPart, ...]:
    """Return the parts of a schedule's trigger, each before the parts below it. Without a job nothing was fed."""
    trigger = schedule.spec.trigger
    fed = {} if job is None else job.fed
    feeds = [fed.get(trigger_no, Fed()) for trigger_no in range(len(trigger.leaves))]
    return tuple(_walk(trigger, feeds, now, 0))


def list_constraint_parts(schedule: Schedule, job: Job | None) -> tuple[ConstraintPart, ...]:
    """Return the constraints of a schedule with their last answers for the open job."""
    answers = [] if job is None else stored_answers(job)
    constraints = schedule.spec.constraints
    return tuple(
        ConstraintPart(
            str(write_plain(constraint)["type"]),
            str(constraint),
            None if answer is None else answer.get("answer") == "satisfied",
            "" if answer is None else str(answer.get("why", "")),
            datetime.fromisoformat(at) if answer and isinstance(at := answer.get("at"), str) else None,
        )
        for constraint, answer in zip_longest(constraints, answers[: len(constraints)])
    )


def _walk(trigger: Trigger, feeds: Sequence[Fed], now: datetime, depth: int) -> Iterator[TriggerPart]:
    answer = trigger.check(feeds, now)
    since = min((one.first_at for one in feeds if one.first_at is not None), default=None)
    yield TriggerPart(
        depth,
        str(write_plain(trigger)["type"]),
        _short(trigger),
        isinstance(answer, Satisfied),
        answer.why,
        sum(one.count for one in feeds),
        since,
        answer.at if isinstance(answer, NotBefore) else None,
    )
    if isinstance(trigger, Composite):
        places = pairwise(accumulate((len(one.leaves) for one in trigger.triggers), initial=0))
        for below, (begin, end) in zip(trigger.triggers, places, strict=True):
            yield from _walk(below, feeds[begin:end], now, depth + 1)


def _short(trigger: Trigger) -> str:
    """Return a trigger as people say it: a composite without the parts below it."""
    match trigger:
        case AllOf(patience=None):
            return "all of"
        case AllOf(patience=patience) if patience is not None:
            return f"all of, or {format_duration(patience)} after the first"
        case AtLeast(k=k):
            return f"at least {k} of"
        case Silence(duration=duration):
            return f"nothing more for {format_duration(duration)} after"
        case Composite():
            return "any of"
        case _:
            return str(trigger)
