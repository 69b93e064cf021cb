"""Topics and their messages, as `Mill` offers them.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Message, MessageRow, Position, Publish, Topic, read_messages, to_message
from tidemill.catalog.named import Param, load_sql
from tidemill.epoch import to_ms
from tidemill.errors import NotFound, UserError
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import Noun
from tidemill.names import EventKey, check_name, nearest

if TYPE_CHECKING:
    from tidemill.mill.topics_sql import Sql

SQL: Sql = load_sql(__file__)


class ReservedTopic(UserError):
    """A topic whose messages are published by the commits that they announce."""

    code = "reserved_topic"

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(f"topic {topic} is Tidemill's own: only commits publish to it; use a topic of another name")


class BadPosition(UserError):
    """A position that is no number of a commit."""

    code = "bad_position"

    def __init__(self, given: str) -> None:
        self.given = given
        super().__init__(f"position {given!r} is refused: write it as `topic read` shows it, 17.0, or 17 for all of it")


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic: its newest message, the position of each subscriber, and how many messages none could read."""

    topic: str
    newest: str
    newest_at: int
    subscribers: Mapping[str, str]
    quarantined: int


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message; `position` is what a reader goes on behind."""

    topic: str
    position: str
    published_at: int
    event_type: str
    event_key: str
    payload: Mapping[str, object]
    flaw: str
    """Why the payload cannot be read; else empty."""


@dataclass(frozen=True, slots=True)
class QuarantinedMessageView:
    """A message that a subscriber could not read and has passed over."""

    position: str
    event_key: str
    subscriber: str
    reason: str
    quarantined_at: int


class Topics(Noun):
    """Operations on topics."""

    noun = "topic"

    @operation(Right.READ)
    def list(self) -> Sequence[TopicView]:
        """List all topics that have messages, by name."""

        def block(db: Db) -> Sequence[TopicView]:
            positions: dict[str, dict[str, str]] = {}
            for topic, name, seq, n in db.all(SQL.list_positions):
                positions.setdefault(str(topic), {})[str(name)] = _shown(seq, n)
            bad = {str(topic): cast("int", number) for topic, number in db.all(SQL.count_quarantined)}
            return [
                TopicView(
                    str(topic), _shown(seq, n), cast("int", at), positions.get(str(topic), {}), bad.get(str(topic), 0)
                )
                for topic, seq, n, at in db.all(SQL.list_newest)
            ]

        return self._catalog.read(block)

    @operation(Right.READ)
    def read(self, topic: str, *, after: str | None = None, limit: int = 20) -> Sequence[MessageView]:
        """List at most `limit` messages of a topic in order: after position `after`, or the newest. `NotFound`."""
        position = None if after is None else _position(after)

        def block(db: Db) -> Sequence[MessageView]:
            _check_topic(db, topic)
            if position is not None:
                return [_view(message) for message in read_messages(db, topic, position, limit)]
            newest = [to_message(row) for row in db.records(SQL.read_newest, MessageRow, topic=topic, limit=limit)]
            return [_view(message) for message in reversed(newest)]

        return self._catalog.read(block)

    @operation(Right.READ)
    def quarantined(self, topic: str, *, limit: int = 20) -> Sequence[QuarantinedMessageView]:
        """List at most `limit` messages of a topic that a subscriber could not read, newest first. `NotFound`."""

        def block(db: Db) -> Sequence[QuarantinedMessageView]:
            _check_topic(db, topic)
            return [
                QuarantinedMessageView(_shown(seq, n), str(key or ""), str(name), str(reason), cast("int", at))
                for seq, n, name, reason, at, key in db.all(SQL.list_quarantined, topic=topic, limit=limit)
            ]

        return self._catalog.read(block)

    @operation(Right.DEPLOY)
    def publish(self, topic: str, event_key: str, payload: Mapping[str, object] | None = None) -> str:
        """Publish a message to a topic of your own, which the first message makes, and return its position."""
        if topic in set(Topic):
            raise ReservedTopic(topic)
        message = Publish(check_name("topic", topic), "message", EventKey(event_key), payload or {})
        note = self._note("publish", topic, event_key=event_key)
        return f"{self._catalog.apply([message, note])}.0"


def _check_topic(db: Db, topic: str) -> None:
    known = {*(str(row[0]) for row in db.all(SQL.list_newest)), *(own.value for own in Topic)}
    if topic not in known:
        raise NotFound("topic", topic, nearest(topic, known))


def _position(text: str) -> Position:
    seq, _, n = text.partition(".")
    if not seq.isdecimal() or (n and not n.isdecimal()):
        raise BadPosition(text)
    # Behind the whole commit when no number in it is given.
    return Position(int(seq), int(n) if n else 2**31)


def _shown(seq: Param, n: Param) -> str:
    return f"{cast('int', seq)}.{cast('int', n)}"


def _view(message: Message) -> MessageView:
    return MessageView(
        message.topic,
        _shown(*message.position),
        to_ms(message.at),
        message.event_type,
        message.event_key,
        message.payload,
        message.flaw,
    )
