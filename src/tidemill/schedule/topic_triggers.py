"""Triggers that messages of users feed: those on topics of their own, and hooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidemill.catalog.messages import Message, Topic
from tidemill.names import EventKey, check_event_key, check_name, hook_event, message_event, qualified, split_qualified
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.data_triggers import MessageTrigger
from tidemill.schedule.triggers import BadTrigger, Fed


@dataclass(frozen=True, slots=True, init=False)
class MessageOn(MessageTrigger):
    """`n` new messages on a topic of the users' own. With `key`, only messages of that event key count."""

    topic: str
    key: str | None = None
    n: int = 1

    def __init__(self, topic: str, key: str | None = None, n: int = 1) -> None:
        if not isinstance(topic, str):
            raise BadTrigger("MessageOn", f"topic must be the name of a topic, not {topic!r}")
        if topic in set(Topic):
            raise BadTrigger("MessageOn", f"topic {topic} is Tidemill's own; use a trigger of data, or RunEnded")
        if key is not None and (not isinstance(key, str) or not key):
            raise BadTrigger("MessageOn", f"key must be the event key of messages, not {key!r}")
        if key is not None:
            check_event_key(key)
        object.__setattr__(self, "topic", check_name("topic", topic))
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "n", _read_number("MessageOn", n))

    @property
    def heard_topic(self) -> str:
        """The topic of the users' own."""
        return self.topic

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """The messages of the topic, or those of the key."""
        return (message_event(self.topic, self.key or ""),)

    def __str__(self) -> str:
        key = "" if self.key is None else f", key={self.key!r}"
        return f"MessageOn({self.topic}{key}{f', n={self.n}' if self.n > 1 else ''})"

    def feed(self, fed: Fed, message: Message) -> Fed:  # each message of its keys counts
        """Return what the leaf was fed, with one message added."""
        return replace(fed, count=fed.count + 1)

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by `n` messages."""
        of_key = "" if self.key is None else f" of key {self.key}"
        counted = f"{fed[0].count}/{self.n} messages{of_key} on topic {self.topic}"
        return Satisfied(counted) if fed[0].count >= self.n else Waiting(counted)


@dataclass(frozen=True, slots=True, init=False)
class Hook(MessageTrigger):
    """`n` deliveries of a hook, a named signal from outside: `tidemill hook fire NAME`."""

    name: str
    n: int = 1

    def __init__(self, name: str, n: int = 1) -> None:
        if not isinstance(name, str):
            raise BadTrigger("Hook", f"name must be the name of a hook, not {name!r}")
        namespace, (local,) = split_qualified("hook", name, 1)
        object.__setattr__(self, "name", qualified(namespace, local))
        object.__setattr__(self, "n", _read_number("Hook", n))

    @property
    def heard_topic(self) -> str:
        """The topic of hooks."""
        return Topic.HOOK

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """The deliveries of the hook."""
        namespace, (local,) = split_qualified("hook", self.name, 1)
        return (hook_event(namespace, local),)

    def __str__(self) -> str:
        return f"Hook({self.name}{f', n={self.n}' if self.n > 1 else ''})"

    def feed(self, fed: Fed, message: Message) -> Fed:  # a message is a delivery
        """Return what the leaf was fed, with one delivery added."""
        return replace(fed, count=fed.count + 1)

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by `n` deliveries."""
        counted = f"{fed[0].count}/{self.n} deliveries of hook {self.name}"
        return Satisfied(counted) if fed[0].count >= self.n else Waiting(counted)


def _read_number(trigger: str, n: object) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise BadTrigger(trigger, f"n must be a whole number of at least 1, not {n!r}")
    return n
