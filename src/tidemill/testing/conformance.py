"""Conformance checks for triggers and constraints: those of plug-ins, and Tidemill's own.

A check raises an `AssertionError` that names the example and the rule that the example breaks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import FrozenInstanceError, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Final

from tidemill.json_specs import read_text, write_text
from tidemill.names import ProgramId
from tidemill.schedule.answers import Answer, Never, NotBefore, Satisfied, Waiting
from tidemill.schedule.constraints import Constraint, Facts, LastRun, ProbeReading, idle_key, limit_of, slots_key
from tidemill.schedule.specs import ScheduleSpec
from tidemill.schedule.time_triggers import Every
from tidemill.schedule.triggers import Fed, Leaf, Trigger

_NOW: Final = datetime(2026, 3, 29, 0, 30, tzinfo=UTC)
"""Half an hour before the clocks of Europe change."""
_PROGRAM: Final = ProgramId("prog_1")
_MANY: Final = 10**15
_STEPS: Final = 1000
"""So often a trigger may answer "not before" until it is satisfied."""


def check_constraint(kind: type[Constraint], examples: Sequence[Constraint]) -> None:
    """Check that a class of constraints keeps the contract of `Constraint`. Raise `AssertionError`."""
    _check_values(kind, Constraint, examples)
    for example in examples:
        ScheduleSpec(Every("1h"), (example,), timeout=timedelta(days=36_500))
        needs = example.needs(_PROGRAM)
        guards = [limit for limit in map(limit_of, needs) if limit is not None]
        keys = {key for limit in guards for key in (slots_key(limit), idle_key(limit))}
        for facts in _possible_facts(needs):
            answer = _ask_twice(example, example.check(facts, _NOW), example.check(facts, _NOW))
            if isinstance(answer, Waiting):
                _must(example, bool(answer.wake_on), "waits for no key, and so until the time-out")
                _must(example, set(answer.wake_on) <= keys, f"waits for {answer.wake_on}, which no end of a run wakes")


def check_trigger(kind: type[Trigger], examples: Sequence[Trigger]) -> None:
    """Check that a class of triggers keeps the contract of `Trigger`. Raise `AssertionError`."""
    _check_values(kind, Trigger, examples)
    for example in examples:
        leaves = example.leaves
        _must(example, bool(leaves), "has no leaves")
        _must(example, all(isinstance(leaf, Leaf) for leaf in leaves), "has a leaf that is no Leaf")
        _must(example, example.leaves == leaves, "gives other leaves the second time")
        unfed = [Fed()] * len(leaves)
        _ask_twice(example, example.check(unfed, _NOW), example.check(unfed, _NOW))
        _must(example, not isinstance(example.check(unfed, _NOW), Satisfied), "is satisfied by nothing")
        full = Fed(_MANY, backlog=True, fires=(_NOW,), first_at=_NOW, last_at=_NOW)
        _check_satisfiable(example, [full] * len(leaves))


def _check_values(kind: type, base: type, examples: Sequence[object]) -> None:
    assert issubclass(kind, base), f"{kind.__name__} is no {base.__name__}"
    assert examples, f"there is no example of {kind.__name__}"
    for example in examples:
        assert type(example) is kind, f"{example!r} is no {kind.__name__}"
        _must(example, is_dataclass(example), "is no dataclass")
        _check_frozen(example)
        _must(example, hash(example) == hash(example), "has no hash")
        _must(example, bool(str(example)) and "object at" not in str(example), "has no text for people")
        read: object = read_text(base, write_text(example))
        _must(example, read == example, f"is {read!r} when it is read from its JSON")


def _check_frozen(example: object) -> None:
    assert is_dataclass(example)
    for field in fields(example):
        try:
            setattr(example, field.name, getattr(example, field.name))
        except (FrozenInstanceError, AttributeError):
            continue
        _must(example, False, f"lets its field {field.name} be changed")


def _check_satisfiable(example: Trigger, fed: Sequence[Fed]) -> None:
    now = _NOW
    for _ in range(_STEPS):
        answer = _ask_twice(example, example.check(fed, now), example.check(fed, now), now)
        if not isinstance(answer, NotBefore):
            _must(example, isinstance(answer, Satisfied), f"is not satisfied by all that can come: {answer}")
            return
        now = answer.at
    _must(example, False, f"answers {_STEPS} times that it is not yet time")


def _ask_twice(example: object, answer: Answer, again: Answer, now: datetime = _NOW) -> Answer:
    _must(example, isinstance(answer, Satisfied | NotBefore | Waiting | Never), f"answers {answer!r}")
    _must(example, answer == again, f"answers {answer}, then {again}, to the same question")
    _must(example, bool(answer.why), "gives no reason")
    if isinstance(answer, NotBefore):
        _must(example, answer.at.tzinfo is not None, "answers a time without a zone")
        _must(example, answer.at > now, f"answers at {now} that it is not yet {answer.at}")
    return answer


def _possible_facts(needs: Iterable[str]) -> Iterator[Facts]:
    names = sorted(set(needs))
    for values in product(*(_possible_values(name) for name in names)):
        for satisfied_at, fed_at in ((_NOW, _NOW), (_NOW - timedelta(days=400), _NOW - timedelta(days=399))):
            yield Facts(_PROGRAM, satisfied_at, fed_at, dict(zip(names, values, strict=True)))


def _possible_values(name: str) -> Sequence[object]:
    seconds = [timedelta(seconds=seconds) for seconds in (0, 1, 100)]
    match name.partition(":")[0]:
        case "last_success":
            old = timedelta(days=400)
            return (None, LastRun(_NOW, _NOW), LastRun(_NOW - old, _NOW), LastRun(_NOW - old, _NOW - old))
        case "starts":
            return ((), (_NOW,), tuple(_NOW - second for second in seconds))
        case "probe":
            return (
                *(ProbeReading(_NOW, value) for value in (-1e9, 0.0, 0.5, 1.0, 1e9)),
                ProbeReading(_NOW, None, "no answer"),
            )
        case _:
            return (0, 1, 2, _MANY)


def _must(example: object, holds: bool, breach: str) -> None:  # noqa: FBT001  # as an assertion
    assert holds, f"{example}: {breach}"
