"""Triggers that messages about data feed: new files, new partitions, and work that is left."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tidemill.catalog.messages import Message
from tidemill.names import EventKey, backlog_event, file_event, partition_event, qualified, split_qualified
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.triggers import BadTrigger, Fed, Leaf


class Named(Protocol):
    """What a declared data set gives to a trigger: its name with the namespace."""

    @property
    def qualified_name(self) -> str:
        """`default.clicks`."""


class MessageTrigger(Leaf):
    """A leaf that messages feed."""

    __slots__ = ()

    @abstractmethod
    def feed(self, fed: Fed, message: Message) -> Fed:
        """What the leaf has after `message`, whose key is one of its `event_keys`."""


@dataclass(frozen=True, slots=True, init=False)
class DataTrigger(MessageTrigger):
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
