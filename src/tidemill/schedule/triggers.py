"""Triggers: what has to happen before a program starts (seed 001). Frozen values, valid by construction, pure.

A trigger is a tree whose leaves listen to event keys (`data_triggers`) or to the clock (`time_triggers`); its JSON
form is in `trigger_json`. Leaves are numbered from the left (`trigger_no`); a job keeps for each what it was fed
(`Fed`), so that asking costs the number of leaves, never the number of messages. A surplus is not carried over: it
belongs to the job, and so to its run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import accumulate, pairwise

from tidemill.errors import UserError
from tidemill.names import EventKey
from tidemill.schedule.answers import Answer, all_of, any_of


class BadTrigger(UserError):
    """A trigger that cannot be."""

    code = "bad_trigger"

    def __init__(self, trigger: str, why: str) -> None:
        self.trigger = trigger
        self.why = why
        super().__init__(f"trigger {trigger} is refused: {why}")


@dataclass(frozen=True, slots=True)
class Fed:
    """Feed of one leaf within one job."""

    count: int = 0
    """Partitions, files, bytes, …; for a time trigger how often it fired."""
    backlog: bool = False
    """True if a message announced a backlog of the program. A backlog is enough, whatever number the leaf wants."""
    fires: tuple[datetime, ...] = ()
    """The logical times at which it fired, oldest first: of a time trigger, or ends of periods."""
    first_at: datetime | None = None
    """The catalog's time of the first message or fire that fed the leaf."""
    last_at: datetime | None = None
    """The catalog's time of the last message or fire that fed the leaf."""

    def fired(self, logical_time: datetime) -> Fed:
        """After one more time at which it was due."""
        return replace(self, count=self.count + 1, fires=(*self.fires, logical_time))

    def touched(self, at: datetime) -> Fed:
        """Return the feed with the time of another message or fire. Messages of two topics may come out of order."""
        return replace(self, first_at=min(at, self.first_at or at), last_at=max(at, self.last_at or at))

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
        """Leaves of all its triggers, in order."""
        return tuple(leaf for trigger in self.triggers for leaf in trigger.leaves)

    def _ask(self, fed: Sequence[Fed], now: datetime) -> list[Answer]:
        bounds = pairwise(accumulate((len(trigger.leaves) for trigger in self.triggers), initial=0))
        return [trigger.check(fed[low:high], now) for trigger, (low, high) in zip(self.triggers, bounds, strict=True)]

    def _join(self, operator: str) -> str:
        return operator.join(f"({t})" if isinstance(t, _Composite) else str(t) for t in self.triggers)


class AllOf(_Composite):
    """Every one of its triggers (`&`): a program that joins several inputs waits for each (seed 001, story 8)."""

    __slots__ = ()

    def __str__(self) -> str:
        return self._join(" & ")

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied when all are."""
        return all_of(self._ask(fed, now))


class AnyOf(_Composite):
    """Trigger of which one part is enough (`|`): every 4 hours, or earlier with new data (seed 001, story 11)."""

    __slots__ = ()

    def __str__(self) -> str:
        return self._join(" | ")

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied when one is."""
        return any_of(self._ask(fed, now))
