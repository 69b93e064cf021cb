"""Triggers: what has to happen before a program starts (seed 001). Frozen values, valid by construction, pure.

A trigger is a tree whose leaves listen to event keys (`data_triggers`) or to the clock (`time_triggers`); its JSON
form is in `trigger_json`. Leaves are numbered from the left (`trigger_no`); a job keeps for each what it was fed
(`Fed`), so that asking costs the number of leaves, never the number of messages. A surplus is not carried over: it
belongs to the job, and so to its run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from typing import Final

from tidemill.durations import BadDuration, format_duration, parse_duration
from tidemill.errors import UserError
from tidemill.names import EventKey
from tidemill.schedule.answers import Answer, Never, NotBefore, Satisfied, all_of, any_of, at_least

MOST_TIMES: Final = 10_000
"""Limit of the logical times that a leaf keeps within one job: the latest ones.

A job may wait for data for months while a cron fires each minute."""

SHORTEST_WAIT: Final = timedelta(seconds=1)
"""The shortest duration of a trigger."""


class BadTrigger(UserError):
    """A trigger that cannot be."""

    code = "bad_trigger"
    hint = "correct the trigger as the reason says"

    def __init__(self, trigger: str, why: str) -> None:
        self.trigger = trigger
        self.why = why
        super().__init__(f"trigger {trigger} is refused: {why}")


def read_wait(trigger: str, field: str, given: object) -> timedelta:
    """Return the duration `given` as `field` of a trigger, at least `SHORTEST_WAIT`; `BadTrigger` names the field."""
    try:
        parsed = parse_duration(given)  # type: ignore[arg-type]  # what is no text and no timedelta is refused too
    except BadDuration as error:
        raise BadTrigger(trigger, f"{field} is no duration: {error}") from None
    if parsed < SHORTEST_WAIT:
        raise BadTrigger(trigger, f"{field} {given!r} is shorter than {format_duration(SHORTEST_WAIT)}")
    return parsed


@dataclass(frozen=True, slots=True)
class Fed:
    """Feed of one leaf within one job."""

    count: int = 0
    """Partitions, files, bytes, …; for a time trigger how often it fired."""
    backlog: bool = False
    """True if a message announced a backlog of the program. A backlog is enough, whatever number the leaf wants."""
    fires: tuple[datetime, ...] = ()
    """The latest logical times at which it fired, in order: of a time trigger, or ends of periods."""
    first_at: datetime | None = None
    """The catalog's time of the first message or fire that fed the leaf."""
    last_at: datetime | None = None
    """The catalog's time of the last message or fire that fed the leaf."""
    partition: str = ""
    """Key of the last partition that fed the leaf, as output shows keys; empty if none did."""

    def fired(self, logical_time: datetime) -> Fed:
        """After one more time at which it was due."""
        fires = (*self.fires, logical_time)[-MOST_TIMES:]
        # `replace` takes six times as long, and thousands of jobs are fed at one time.
        return Fed(self.count + 1, self.backlog, fires, self.first_at, self.last_at, self.partition)

    def touched(self, at: datetime) -> Fed:
        """Return the feed with the time of another message or fire. Messages of two topics may come out of order."""
        first_at, last_at = min(at, self.first_at or at), max(at, self.last_at or at)
        return Fed(self.count, self.backlog, self.fires, first_at, last_at, self.partition)

    @property
    def fired_at(self) -> datetime | None:
        """The latest of `fires`."""
        return self.fires[-1] if self.fires else None


class Trigger(ABC):
    """A rule that says when a job is ready for its constraints.

    Implementations are frozen and pure. They give `leaves` in a fixed order, and `check` against what these were
    fed and the time. `trigger_json` knows their JSON. Conformance: tests/schedule/test_triggers.py.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves from the left; a leaf's place is its `trigger_no`."""

    @abstractmethod
    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Say whether what the leaves were fed, in their order, is enough at `now`, the catalog's time.

        Only an answer `NotBefore` leads to another check without a new feed.
        """

    @abstractmethod
    def __str__(self) -> str:
        """Return the trigger as people write it."""

    def __and__(self, other: Trigger) -> AllOf:
        """Both must occur."""
        return AllOf(self, other)

    def __or__(self, other: Trigger) -> AnyOf:
        """Return a trigger for which this one or `other` is enough."""
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
class Composite(Trigger):
    """A trigger that is made of others."""

    triggers: tuple[Trigger, ...]

    def __init__(self, *triggers: Trigger) -> None:
        name = type(self).__name__
        if not triggers:
            raise BadTrigger(name, "it needs at least one trigger: an empty one would fire for ever, or never")
        for trigger in triggers:
            _check_trigger(name, trigger)
        object.__setattr__(self, "triggers", triggers)

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """Leaves of all its triggers, in order."""
        return tuple(leaf for trigger in self.triggers for leaf in trigger.leaves)

    def _ask(self, fed: Sequence[Fed], now: datetime) -> list[Answer]:
        bounds = pairwise(accumulate((len(trigger.leaves) for trigger in self.triggers), initial=0))
        return [trigger.check(fed[low:high], now) for trigger, (low, high) in zip(self.triggers, bounds, strict=True)]

    def _join(self, operator: str) -> str:
        return operator.join(f"({t})" if isinstance(t, AllOf | AnyOf) else str(t) for t in self.triggers)


@dataclass(frozen=True, slots=True, init=False)
class AllOf(Composite):
    """Every one of its triggers (`&`): a program that joins several inputs waits for each (seed 001, story 8).

    With `patience`, the trigger is also satisfied that long after the first message or fire of any of its parts.
    """

    patience: timedelta | None = None

    def __init__(self, *triggers: Trigger, patience: str | timedelta | None = None) -> None:
        Composite.__init__(self, *_flat(triggers, lambda one: isinstance(one, AllOf) and one.patience is None))
        object.__setattr__(self, "patience", None if patience is None else read_wait("AllOf", "patience", patience))

    def __str__(self) -> str:
        if self.patience is None:
            return self._join(" & ")
        return f"AllOf({', '.join(map(str, self.triggers))}, patience='{format_duration(self.patience)}')"

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied when all are, or when the patience has ended."""
        answer = all_of(self._ask(fed, now))
        first_at = min((one.first_at for one in fed if one.first_at is not None), default=None)
        if self.patience is None or first_at is None or isinstance(answer, Satisfied | Never):
            return answer
        until = first_at + self.patience
        if now >= until:
            return Satisfied(f"{answer.why}; {format_duration(self.patience)} have passed since the first")
        return NotBefore(min(until, answer.at) if isinstance(answer, NotBefore) else until, answer.why)


class AnyOf(Composite):
    """Trigger of which one part is enough (`|`): every 4 hours, or earlier with new data (seed 001, story 11)."""

    __slots__ = ()

    def __init__(self, *triggers: Trigger) -> None:
        Composite.__init__(self, *_flat(triggers, lambda one: isinstance(one, AnyOf)))

    def __str__(self) -> str:
        return self._join(" | ")

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied when one is."""
        return any_of(self._ask(fed, now))


@dataclass(frozen=True, slots=True, init=False)
class AtLeast(Composite):
    """At least `k` of its triggers, whichever they are."""

    k: int

    def __init__(self, k: int, *triggers: Trigger) -> None:
        Composite.__init__(self, *triggers)
        if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= len(triggers):
            raise BadTrigger("AtLeast", f"k must be a whole number from 1 to {len(triggers)}, not {k!r}")
        object.__setattr__(self, "k", k)

    def __str__(self) -> str:
        return f"AtLeast({self.k}, {', '.join(map(str, self.triggers))})"

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied when `k` are."""
        return at_least(self.k, self._ask(fed, now))


@dataclass(frozen=True, slots=True, init=False)
class Silence(Composite):
    """Its trigger is satisfied, and nothing has fed the trigger for `duration` (seed 001, story 9).

    For data that arrives in parts: the program starts when no more parts come.
    """

    duration: timedelta

    def __init__(self, trigger: Trigger, duration: str | timedelta) -> None:
        Composite.__init__(self, trigger)
        quiet = read_wait("Silence", "duration", duration)
        if not any(leaf.event_keys for leaf in trigger.leaves):
            raise BadTrigger("Silence", f"no message feeds {trigger}; give a trigger of data, such as NewFiles")
        object.__setattr__(self, "duration", quiet)

    def __str__(self) -> str:
        return f"Silence({self.triggers[0]}, '{format_duration(self.duration)}')"

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied when its trigger is, `duration` after the last feed."""
        answer = self.triggers[0].check(fed, now)
        last_at = max((one.last_at for one in fed if one.last_at is not None), default=None)
        if last_at is None or not isinstance(answer, Satisfied):
            return answer
        quiet = format_duration(self.duration)
        if now >= last_at + self.duration:
            return Satisfied(f"{answer.why}, and nothing more for {quiet}")
        return NotBefore(last_at + self.duration, f"{answer.why}, and not yet {quiet} without more")


def _check_trigger(name: str, given: object) -> None:
    if not isinstance(given, Trigger):
        raise BadTrigger(name, f"{given!r} is no trigger")


def _flat(triggers: Sequence[Trigger], alike: Callable[[Trigger], bool]) -> list[Trigger]:
    """Return the triggers, with the parts of those that are `alike` in their place: `a & b & c` is one `AllOf`."""
    return [
        part
        for trigger in triggers
        for part in (trigger.triggers if isinstance(trigger, Composite) and alike(trigger) else (trigger,))
    ]
