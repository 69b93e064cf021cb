"""What a trigger or a constraint answers when it is asked whether a program may start now."""

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
    """Not before `at` (aware). Asked again then, it may say so once more: the time may be early, never late."""

    at: datetime
    why: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Not until something happens: a message, or what wakes the keys `wake_on` (`slots:program:…`)."""

    why: str
    wake_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Never:
    """Not in the life of this job."""

    why: str


Answer: TypeAlias = Satisfied | NotBefore | Waiting | Never


def all_of(answers: Sequence[Answer]) -> Answer:
    """What holds when all of `answers` must: one `Never` wins over any "not yet", and a wait over a time.

    Who waits for a message is asked again when it comes, so its time is not needed until then. Of several times the
    latest counts: before it they cannot all hold.
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
    """What holds when one of `answers` is enough: the first time of any, unless one is satisfied already.

    For triggers, whose waits are ended by messages: an answer that is a time would not keep another's `wake_on`.
    """
    if satisfied := [answer for answer in answers if isinstance(answer, Satisfied)]:
        return Satisfied(_join(satisfied))
    open_ones = [answer for answer in answers if not isinstance(answer, Never)]
    if not open_ones:
        return Never(_join(answers))
    if times := [answer.at for answer in open_ones if isinstance(answer, NotBefore)]:
        return NotBefore(min(times), _join(open_ones, " or "))
    return Waiting(_join(open_ones, " or "))


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
