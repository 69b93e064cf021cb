"""Triggers: what has to happen before a program starts (seed 001). Frozen values, valid by construction, pure.

A trigger is a tree whose leaves listen to event keys or to the clock. Leaves are numbered from the left
(`trigger_no`); a job keeps for each what it was fed (`Fed`), so that asking costs the number of leaves, never the
number of messages. A surplus is not carried over: it belongs to the job, and so to its run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import Final, Protocol

from tidemill.catalog.messages import Message
from tidemill.durations import format_duration, parse_duration
from tidemill.errors import UserError
from tidemill.names import EventKey, backlog_event, file_event, partition_event, qualified, split_qualified
from tidemill.schedule.answers import Answer, Satisfied, Waiting, all_of, any_of

VERSION: Final = 1
"""The version of the JSON form; a reader refuses others."""

_SHORTEST: Final = timedelta(seconds=1)


class BadTrigger(UserError):
    """A trigger that cannot be."""

    code = "bad_trigger"

    def __init__(self, trigger: str, why: str) -> None:
        self.trigger = trigger
        self.why = why
        super().__init__(f"trigger {trigger} is refused: {why}")


class Named(Protocol):
    """What a declared data set gives to a trigger: its name with the namespace."""

    @property
    def qualified_name(self) -> str:
        """`default.clicks`."""


@dataclass(frozen=True, slots=True)
class Fed:
    """What one leaf was fed within one job."""

    count: int = 0
    """New and appended partitions, or files; for a time trigger how often it fired."""
    backlog: bool = False
    """Whether a message said that work is left for the program: that is enough, whatever the number wanted."""
    fired_at: datetime | None = None
    """The logical time at which a time trigger fired."""


class Trigger(ABC):
    """A rule that says when a job is ready for its constraints.

    Implementations are frozen and pure. They give `leaves` in a fixed order, `check` against what these were fed, and
    `spec`, the JSON form without the version. Conformance: tests/schedule/test_triggers.py.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves from the left; a leaf's place is its `trigger_no`."""

    @abstractmethod
    def check(self, fed: Sequence[Fed]) -> Answer:
        """Say whether what the leaves were fed, in their order, is enough."""

    @abstractmethod
    def spec(self) -> dict[str, object]:
        """The JSON form, with the class under `type`."""

    @abstractmethod
    def __str__(self) -> str:
        """As people write it."""

    def __and__(self, other: Trigger) -> AllOf:
        """Both must occur."""
        return AllOf(self, other)

    def __or__(self, other: Trigger) -> AnyOf:
        """One of both is enough."""
        return AnyOf(self, other)


class Leaf(Trigger):
    """A trigger that is no combination of others."""

    __slots__ = ()

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Itself."""
        return (self,)

    @property
    @abstractmethod
    def event_keys(self) -> tuple[EventKey, ...]:
        """The keys of the messages that feed it; none for a time trigger."""


@dataclass(frozen=True, slots=True, init=False)
class DataTrigger(Leaf):
    """`n` new things in one data set; or a message that the program has work left there."""

    dataset: str
    n: int

    def __init__(self, dataset: str | Named, n: int = 1) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise BadTrigger(type(self).__name__, f"n must be a whole number of at least 1, not {n!r}")
        name = dataset if isinstance(dataset, str) else getattr(dataset, "qualified_name", None)
        if not isinstance(name, str):
            raise BadTrigger(type(self).__name__, f"a data set or its name is wanted, not {dataset!r}")
        namespace, (local,) = split_qualified("data set", name, 1)
        # A frozen class sets its fields this way: the arguments are wider than what is kept.
        object.__setattr__(self, "dataset", qualified(namespace, local))
        object.__setattr__(self, "n", n)

    def __str__(self) -> str:
        return f"{type(self).__name__}({self.dataset}{f', {self.n}' if self.n > 1 else ''})"

    @property
    def backlog_key(self) -> EventKey:
        """The key of messages about work left in the data set, for whichever consumer they name."""
        namespace, (name,) = split_qualified("data set", self.dataset, 1)
        return backlog_event(namespace, name)

    def feed(self, fed: Fed, message: Message) -> Fed:
        """What the leaf has after `message`, which counts what is new in its payload's `count`."""
        if message.event_key == self.backlog_key:
            return replace(fed, backlog=True)
        count = message.payload.get("count")
        return replace(fed, count=fed.count + count) if isinstance(count, int) else fed

    def _answer(self, fed: Fed, things: str) -> Answer:
        counted = f"{fed.count}/{self.n} new {things} of {self.dataset}"
        if fed.count >= self.n:
            return Satisfied(counted)
        return Satisfied(f"{counted}, and work left of earlier runs") if fed.backlog else Waiting(counted)


class NewFiles(DataTrigger):
    """At least `n` new files in an inbox."""

    __slots__ = ()

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """New files, and work left."""
        namespace, (name,) = split_qualified("inbox", self.dataset, 1)
        return (file_event(namespace, name), self.backlog_key)

    def check(self, fed: Sequence[Fed]) -> Answer:
        """Satisfied by `n` files, or at once by work left."""
        return self._answer(fed[0], "files")

    def spec(self) -> dict[str, object]:
        """`{"type": "new_files", "inbox": …, "n": …}`."""
        return {"type": "new_files", "inbox": self.dataset, "n": self.n}


class NewPartitions(DataTrigger):
    """At least `n` new or appended partitions in a file set."""

    __slots__ = ()

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """New partitions, and work left."""
        namespace, (name,) = split_qualified("file set", self.dataset, 1)
        return (partition_event(namespace, name), self.backlog_key)

    def check(self, fed: Sequence[Fed]) -> Answer:
        """Satisfied by `n` partitions, or at once by work left."""
        return self._answer(fed[0], "partitions")

    def spec(self) -> dict[str, object]:
        """`{"type": "new_partitions", "fileset": …, "n": …}`."""
        return {"type": "new_partitions", "fileset": self.dataset, "n": self.n}


@dataclass(frozen=True, slots=True, init=False)
class Every(Leaf):
    """A duration after the schedule's last launch (the first time: after its resumption); an early run moves it."""

    duration: timedelta

    def __init__(self, duration: str | timedelta) -> None:
        parsed = parse_duration(duration)
        if parsed < _SHORTEST:
            raise BadTrigger("Every", f"{duration!r} is shorter than {format_duration(_SHORTEST)}")
        object.__setattr__(self, "duration", parsed)

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """None: the clock feeds it."""
        return ()

    def __str__(self) -> str:
        return f"Every({format_duration(self.duration)})"

    def next_fire(self, counted_from: datetime) -> datetime:
        """The first time at which it is due."""
        return counted_from + self.duration

    def last_fire(self, counted_from: datetime, now: datetime) -> datetime | None:
        """The latest time at or before `now` at which it was due; None when it was not yet.

        It is due again each `duration` until a run is launched, so that a job that was cancelled does not end it.
        """
        times = (now - counted_from) // self.duration
        return counted_from + times * self.duration if times > 0 else None

    def feed(self, fed: Fed, due_at: datetime) -> Fed:
        """What the leaf has once it was due at `due_at`, its logical time."""
        return replace(fed, count=fed.count + 1, fired_at=due_at)

    def check(self, fed: Sequence[Fed]) -> Answer:
        """Satisfied once it has fired."""
        every = f"every {format_duration(self.duration)}"
        fired_at = fed[0].fired_at
        return (
            Satisfied(f"{every}: due {fired_at:%Y-%m-%dT%H:%M:%SZ}") if fired_at else Waiting(f"{every}: not due yet")
        )

    def spec(self) -> dict[str, object]:
        """`{"type": "every", "duration": "4h"}`."""
        return {"type": "every", "duration": format_duration(self.duration)}


@dataclass(frozen=True, slots=True, init=False)
class _Composite(Trigger):
    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        name = type(self).__name__
        if not triggers:
            raise BadTrigger(name, "it needs at least one trigger: an empty one would fire for ever, or never")
        for trigger in triggers:
            if not isinstance(trigger, Trigger):
                raise BadTrigger(name, f"{trigger!r} is no trigger")
        # `a & b & c` is one AllOf of three, as it is read.
        flat = (t.triggers if isinstance(t, _Composite) and type(t) is type(self) else (t,) for t in triggers)
        object.__setattr__(self, "triggers", tuple(trigger for group in flat for trigger in group))

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Those of its triggers, one after the other."""
        return tuple(leaf for trigger in self.triggers for leaf in trigger.leaves)

    def _ask(self, fed: Sequence[Fed]) -> list[Answer]:
        bounds = pairwise(accumulate((len(trigger.leaves) for trigger in self.triggers), initial=0))
        return [trigger.check(fed[low:high]) for trigger, (low, high) in zip(self.triggers, bounds, strict=True)]

    def _join(self, operator: str) -> str:
        return operator.join(f"({t})" if isinstance(t, _Composite) else str(t) for t in self.triggers)

    def _spec(self, name: str) -> dict[str, object]:
        return {"type": name, "triggers": [trigger.spec() for trigger in self.triggers]}


class AllOf(_Composite):
    """Every one of its triggers (`&`): a program that joins several inputs waits for each (seed 001, story 8)."""

    __slots__ = ()

    def __str__(self) -> str:
        return self._join(" & ")

    def check(self, fed: Sequence[Fed]) -> Answer:
        """Satisfied when all are."""
        return all_of(self._ask(fed))

    def spec(self) -> dict[str, object]:
        """`{"type": "all_of", "triggers": […]}`."""
        return self._spec("all_of")


class AnyOf(_Composite):
    """One of its triggers (`|`): every 4 hours, or sooner when the data has come (seed 001, story 11)."""

    __slots__ = ()

    def __str__(self) -> str:
        return self._join(" | ")

    def check(self, fed: Sequence[Fed]) -> Answer:
        """Satisfied when one is."""
        return any_of(self._ask(fed))

    def spec(self) -> dict[str, object]:
        """`{"type": "any_of", "triggers": […]}`."""
        return self._spec("any_of")


def trigger_to_json(trigger: Trigger) -> dict[str, object]:
    """The JSON form of `trigger`, with its version."""
    return {"version": VERSION, **trigger.spec()}


def trigger_from_json(value: object) -> Trigger:
    """Read what `trigger_to_json` wrote, or a person; raise `BadTrigger` for anything else."""
    if not isinstance(value, Mapping) or value.get("version") != VERSION:
        raise BadTrigger(_short(value), f'a JSON object with "version": {VERSION} is wanted')
    return _parse({key: field for key, field in value.items() if key != "version"})


def _parse(value: object) -> Trigger:
    match value:
        case {"type": "new_files", "inbox": str(inbox), **rest} if rest.keys() <= {"n"}:
            return NewFiles(inbox, _number(rest))
        case {"type": "new_partitions", "fileset": str(fileset), **rest} if rest.keys() <= {"n"}:
            return NewPartitions(fileset, _number(rest))
        case {"type": "every", "duration": str(duration), **rest} if not rest:
            return Every(duration)
        case {"type": "all_of", "triggers": list(triggers), **rest} if not rest:
            return AllOf(*map(_parse, triggers))
        case {"type": "any_of", "triggers": list(triggers), **rest} if not rest:
            return AnyOf(*map(_parse, triggers))
        case _:
            raise BadTrigger(
                _short(value),
                "known are new_files (inbox, n), new_partitions (fileset, n), every (duration), "
                "all_of (triggers) and any_of (triggers)",
            )


def _number(fields: Mapping[object, object]) -> int:
    n = fields.get("n", 1)
    if not isinstance(n, int):
        raise BadTrigger(_short(fields), f"n must be a whole number of at least 1, not {n!r}")
    return n


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"  # a line of a terminal
