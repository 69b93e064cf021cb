"""Answers of triggers and constraints, when a checker asks them if a program may start now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias, assert_never


@dataclass(frozen=True, slots=True)
class Satisfied:
    """Yes; `why` counts what was needed and what there is (`12/5 new partitions of default.clicks`)."""

    why: str


@dataclass(frozen=True, slots=True)
class NotBefore:
    """Answer "not before `at`" (aware). A later check may answer the same: the time may be early, never late."""

    at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Answer "not until something happens": a message, or a wake of the keys `wake_on` (`slots:program:…`).

    With `most`, a wake has no use before the slots in use and the jobs with the better turn together are fewer.
    """

    why: str
    wake_on: tuple[str, ...] = ()
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Never:
    """Answer "not in the life of this job"."""

    why: str


Answer: TypeAlias = Satisfied | NotBefore | Waiting | Never


def all_of(answers: Sequence[Answer]) -> Answer:
    """Combine `answers` that must all hold. A `Never` wins over any "not yet", and a wait for a message over a time.

    A message that comes leads to another check, so times are not needed until then. Of several times the latest counts:
    before that time the answers cannot all hold.
    """
    missing = [answer for answer in answers if not isinstance(answer, Satisfied)]
    if not missing:
        return Satisfied(_join(answers))
    if never := [answer for answer in missing if isinstance(answer, Never)]:
        return Never(_join(never))
    if waiting := [answer for answer in missing if isinstance(answer, Waiting)]:
        return Waiting(_join(missing), _keys(waiting))
    return NotBefore(max(answer.at for answer in missing if isinstance(answer, NotBefore)), _join(missing))


def any_of(answers: Sequence[Answer]) -> Answer:
    """Combine `answers` of which one is enough: satisfied if one is, else the earliest time of any.

    Only for triggers, whose waits are ended by messages: an answer that is a time drops another answer's `wake_on`.
    """
    if satisfied := [answer for answer in answers if isinstance(answer, Satisfied)]:
        return Satisfied(_join(satisfied))
    open_ones = [answer for answer in answers if not isinstance(answer, Never)]
    if not open_ones:
        return Never(_join(answers))
    if times := [answer.at for answer in open_ones if isinstance(answer, NotBefore)]:
        return NotBefore(min(times), _join(open_ones, " or "))
    return Waiting(_join(open_ones, " or "))


def at_least(k: int, answers: Sequence[Answer]) -> Answer:
    """Combine `answers` of which `k` must hold: else the earliest time at which enough of them can.

    Only for triggers, as `any_of`.
    """
    satisfied = [answer for answer in answers if isinstance(answer, Satisfied)]
    counted = f"{len(satisfied)}/{k} of {len(answers)} triggers"
    if len(satisfied) >= k:
        return Satisfied(f"{counted}: {_join(satisfied)}")
    open_ones = [answer for answer in answers if not isinstance(answer, Satisfied | Never)]
    if len(satisfied) + len(open_ones) < k:
        return Never(f"{counted}: {_join(answers)}")
    why = f"{counted}: {_join(open_ones, ' or ')}"
    times = sorted(answer.at for answer in open_ones if isinstance(answer, NotBefore))
    missing = k - len(satisfied)
    return NotBefore(times[missing - 1], why) if len(times) >= missing else Waiting(why)


def verdict(answer: Answer) -> dict[str, object]:
    """The JSON form of an answer, as jobs keep it and `job show` tells it."""
    match answer:
        case Satisfied(why):
            return {"answer": "satisfied", "why": why}
        case NotBefore(at, why):
            return {"answer": "not_before", "at": at.isoformat(), "why": why}
        case Waiting(why, wake_on):
            return {"answer": "waiting", "why": why} | ({"wake_on": list(wake_on)} if wake_on else {})
        case Never(why):
            return {"answer": "never", "why": why}
        case _:
            assert_never(answer)


def _join(answers: Sequence[Answer], between: str = "; ") -> str:
    return between.join(answer.why for answer in answers)


def _keys(waiting: Sequence[Waiting]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(key for answer in waiting for key in answer.wake_on))
