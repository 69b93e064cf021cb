"""Messages: published by the commit that they announce, read after a position, in order (seed 001).

A message's `seq` is its commit sequence, so that it is not visible before what it announces, never lost, never doubled,
and no open transaction of hours delays it. Several messages of one commit are numbered `n` = 0, 1, …
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, load_sql
from tidemill.errors import UserError
from tidemill.names import EventKey, check_event_key, check_name, message_event
from tidemill.texts import printable

if TYPE_CHECKING:
    from tidemill.catalog.messages_sql import Sql

SQL: Sql = load_sql(__file__)

Payload: TypeAlias = Mapping[str, object]


class Topic(StrEnum):
    """Topic of a message. All namespaces share the topics."""

    DATA = "data"
    PROGRAM = "program"
    HOOK = "hook"


HOOK_EVENT: Final = "hook"
"""The event type of messages of hooks."""


class ReservedTopic(UserError):
    """A topic whose messages are published by the commits that they announce."""

    code = "reserved_topic"

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic} is Tidemill's own: only commits publish to it", "use a topic of another name")


class BadPayload(UserError):
    """A payload of a user's message that is no JSON object."""

    code = "bad_payload"

    def __init__(self, topic: str, why: str) -> None:
        self.topic = topic
        self.why = why
        super().__init__(
            f"the payload of a message for topic {topic} is refused: {why}", "give a mapping of JSON values"
        )


class Position(NamedTuple):
    """Position in a topic: all messages up to number `n` of commit `seq` are read."""

    seq: int
    n: int


BEGINNING: Final = Position(0, 0)
"""Before the first message of each topic."""


class PositionExpired(UserError):
    """A position behind which messages have expired: a reader that goes on there would not know what it misses."""

    code = "position_expired"

    def __init__(self, topic: str, position: str, expired: str) -> None:
        self.topic = topic
        self.position = position
        self.expired = expired
        super().__init__(
            f"messages of topic {topic} behind position {position} have expired, up to {expired}",
            f"go on behind {expired}, and read what was missed from its source",
        )


@refusal
class MessageTooLarge(UserError):
    """A payload above the limit."""

    code = "message_too_large"
    hint = "put the data into a file set, and publish where they are"

    def __init__(self, event_key: str, size: str, most: str) -> None:
        self.event_key = event_key
        self.size = size
        self.most = most
        super().__init__(f"the payload of a message {event_key} has {size} bytes, more than {most}")


MOST_PAYLOAD_BYTES: Final = 500_000
"""The most bytes of a payload. A commit that announces more is cut into messages, or was refused before it began."""


@dataclass(frozen=True, slots=True)
class Message:
    """An event that committed: `at` is when, aware; `payload` is what it says.

    `flaw` says why the payload cannot be read, which is empty then: it was damaged, or is of a newer Tidemill.
    """

    topic: str
    seq: int
    n: int
    at: datetime
    event_type: str
    event_key: EventKey
    payload: Payload
    flaw: str = ""

    @property
    def position(self) -> Position:
        """The position of a reader that has just passed it."""
        return Position(self.seq, self.n)

    @property
    def listened_keys(self) -> tuple[EventKey, ...]:
        """The keys under which schedules listen to the message. Users choose the event keys of their own messages."""
        return _list_listened(self.topic, self.event_key)


def _list_listened(topic: str, event_key: EventKey) -> tuple[EventKey, ...]:
    if topic in set(Topic):
        return (event_key,)
    return tuple(dict.fromkeys((message_event(topic), message_event(topic, event_key))))


class MessageRow(NamedTuple):
    """A row of `message`; its payload is text that may be damaged."""

    topic: str
    seq: int
    n: int
    at: datetime
    event_type: str
    event_key: EventKey
    payload: str


@dataclass(frozen=True, slots=True)
class Publish(Effect):
    """Announce an event with the commit."""

    phase = Phase.ANNOUNCE

    topic: str
    event_type: str
    event_key: EventKey
    payload: Payload

    def writes(self) -> Sequence[Call]:
        """Return the insert of one message. Its number follows the earlier messages of this commit in the topic."""
        payload = json.dumps(self.payload, separators=(",", ":"))
        if len(payload) > MOST_PAYLOAD_BYTES:
            raise MessageTooLarge(self.event_key, str(len(payload)), str(MOST_PAYLOAD_BYTES))
        params = {
            "topic": self.topic,
            "event_type": self.event_type,
            "event_key": self.event_key,
            "payload": payload,
            "listened": json.dumps(_list_listened(self.topic, self.event_key)),
        }
        return (SQL.publish(**params),)


def write_message(topic: str, payload: Payload | None, key: str) -> Publish:
    """Return the message that a user publishes. `ReservedTopic`, `BadName`, `BadPayload`, `MessageTooLarge`."""
    return Publish(check_own(topic), "message", check_event_key(key), check_payload(topic, payload))


def check_own(topic: str) -> str:
    """Return the name of a topic of users. `ReservedTopic`, `BadName`."""
    if topic in set(Topic):
        raise ReservedTopic(topic)
    return check_name("topic", topic)


def check_payload(topic: str, payload: Payload | None) -> Payload:
    """Return a copy of what a user gives as the payload of a message, as JSON keeps it.

    `BadPayload`, `MessageTooLarge`.
    """
    try:
        text = json.dumps(payload or {}, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise BadPayload(topic, str(error)) from None
    if not isinstance(payload, Mapping | None):
        raise BadPayload(topic, f"{text[:80]} is no mapping")
    if len(text) > MOST_PAYLOAD_BYTES:
        raise MessageTooLarge(topic, str(len(text)), str(MOST_PAYLOAD_BYTES))
    return read_payload(text)[0]


def read_messages(db: Db, topic: str, after: Position, limit: int) -> list[Message]:
    """At most `limit` messages of `topic` behind `after`, in order of (seq, n). Repeatable; cost: what is given."""
    rows = db.records(SQL.read_after, MessageRow, topic=topic, seq=after.seq, n=after.n, limit=limit)
    return [to_message(row) for row in rows]


def behind_commit(seq: int) -> Position:
    """Return the position behind all messages of a commit."""
    return Position(seq, 2**31)


def find_expired(db: Db, topic: str) -> Position:
    """Return the position up to which messages of a topic have expired; `BEGINNING` if none have."""
    return max(BEGINNING, db.record(SQL.find_expired, Position, topic=topic) or BEGINNING)


def check_kept(db: Db, topic: str, position: Position) -> None:
    """Raise `PositionExpired` if messages behind a position of a reader outside of Tidemill have expired."""
    expired = find_expired(db, topic)
    if position < expired:
        raise PositionExpired(topic, f"{position.seq}.{position.n}", f"{expired.seq}.{expired.n}")


def find_position_at(db: Db, topic: str, at: datetime, newest: Position) -> Position:
    """Return the position before the first message of a topic that was published at a time or later.

    A later commit has a later time, unless the clock of the machine is set to an earlier time. Cost: some 20 look-ups.
    """
    low, high = find_expired(db, topic).seq, newest.seq + 1
    while low < high:
        middle = (low + high) // 2
        found = db.record(SQL.seek, _Sought, topic=topic, seq=middle)
        if found is None or found.at >= at:
            high = middle
        else:
            low = found.seq + 1
    return behind_commit(low - 1)


class _Sought(NamedTuple):
    seq: int
    n: int
    at: datetime


def lock_position(db: Db, topic: str, subscriber: str) -> Position | None:
    """Lock the position of `subscriber` until the block ends and return it; None while another process holds it.

    Looks before it adds the row: an insertion would wait for the process that holds the position.
    """
    held = db.record(SQL.lock_position, Position, topic=topic, name=subscriber)
    if held is None and find_position(db, topic, subscriber) is None:
        db.run(SQL.add_position, topic=topic, name=subscriber)
        held = db.record(SQL.lock_position, Position, topic=topic, name=subscriber)
    return held


def find_position(db: Db, topic: str, subscriber: str) -> Position | None:
    """Return the position of `subscriber`, unlocked; None before its first message."""
    return db.record(SQL.find_position, Position, topic=topic, name=subscriber)


def move_position(db: Db, topic: str, subscriber: str, position: Position) -> None:
    """Store how far `subscriber` has read, in the transaction that did what the messages cause."""
    db.run(SQL.move_position, topic=topic, name=subscriber, seq=position.seq, n=position.n)


def quarantine_messages(db: Db, topic: str, subscriber: str, flaws: Mapping[Position, str]) -> None:
    """Record why `subscriber` passes over messages; in the transaction that moves its position behind them."""
    rows = [{"seq": seq, "n": n, "reason": printable(why)} for (seq, n), why in flaws.items()]
    if rows:
        db.run(SQL.quarantine, topic=topic, name=subscriber, messages=json.dumps(rows))


def to_message(row: MessageRow) -> Message:
    """Return the message of a row, with its payload read."""
    payload, flaw = read_payload(row.payload)
    return Message(row.topic, row.seq, row.n, row.at, row.event_type, row.event_key, payload, flaw)


def read_payload(text: str) -> tuple[Payload, str]:
    """Return the payload and an empty flaw, or an empty payload and its flaw."""
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        return {}, f"its payload is not JSON: {error}"
    if not isinstance(payload, dict):
        return {}, f"its payload is not a JSON object: {text[:50]}"
    return payload, ""
