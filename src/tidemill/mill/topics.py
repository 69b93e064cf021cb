"""Topics and their messages, as `Mill` offers them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Message, MessageRow, Position, Topic, read_messages, to_message, write_message
from tidemill.catalog.named import ALL_ROWS, FROM_NEWEST, Param, load_sql, range_of
from tidemill.errors import NotFound, UserError
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, one_more, read_key, read_name, write_key
from tidemill.mill.project import Noun
from tidemill.names import check_name, nearest

if TYPE_CHECKING:
    from tidemill.mill.topics_sql import Sql

SQL: Sql = load_sql(__file__)

_DIGITS: Final = 18
_MOST_OUTSIDE: Final = 100
"""The most subscribers of other systems that are shown with a topic."""
"""The most digits of a number that the catalog holds, whatever the digits are."""


_BUILT_IN: Final[Mapping[str, Param]] = {"built_in": json.dumps([*Topic])}


class TopicKind(StrEnum):
    """Kinds of topics: those of Tidemill's commits and hooks, and those to which users publish."""

    BUILT_IN = "built_in"
    OWN = "own"


class BadPosition(UserError):
    """A position that is no number of a commit."""

    code = "bad_position"

    def __init__(self, given: str, also: tuple[str, ...] = ()) -> None:
        self.given = given
        words = "".join(f", {word}" for word in also)
        super().__init__(
            f"position {given!r} is refused",
            f"write it as `topic read` shows it, 17.0, or 17 for all of it{words}",
            before=": ",
        )


_Positions: TypeAlias = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic: its newest message, the position of each subscriber, and how many messages none could read.

    `subscribers` are those of Tidemill, such as the scheduler. `outside` are the first 100 of other systems by name;
    `tidemill subscriber list` lists all. `newest` is empty, and `newest_at` None, for a topic without messages.
    """

    topic: str
    newest: str
    newest_at: datetime | None
    subscribers: Mapping[str, str]
    outside: Mapping[str, str]
    quarantined: int


@dataclass(frozen=True, slots=True)
class MessageView:
    """A message; `position` is what a reader goes on behind."""

    topic: str
    position: str
    published_at: datetime
    event_type: str
    event_key: str
    payload: Mapping[str, object]
    flaw: str
    """Reason for which the payload cannot be read; else empty."""


@dataclass(frozen=True, slots=True)
class QuarantinedMessageView:
    """A message that a subscriber could not read and has passed over."""

    position: str
    event_key: str
    subscriber: str
    reason: str
    quarantined_at: datetime


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    """The position of a message that was published."""

    topic: str
    position: str


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest message of a topic."""

    topic: str
    seq: int
    n: int
    at: datetime


@dataclass(frozen=True, slots=True)
class _Quarantined:
    """A row of a quarantined message."""

    seq: int
    n: int
    name: str
    reason: str
    at: datetime
    event_key: str | None


class Topics(Noun):
    """Operations on topics."""

    noun = "topic"

    @operation(Right.READ, whole=True)
    def list(self, *, kind: str | None = None, prefix: str = "", limit: int = PAGE, after: str = "") -> Page[TopicView]:
        """List the topics that have messages, by name: all, or those that fit each filter.

        A kind is `built_in` or `own`. `prefix` is the begin of the name. `after` is the name of a topic. `BadFilter`,
        `BadName`. Cost: a look-up for each topic between those of the page.
        """
        behind, begin = read_name(after), prefix and check_name("topic", prefix)
        wanted = "" if kind is None else TopicKind(check_filter("kind", kind.lower(), [*TopicKind]))

        def block(db: Db) -> Page[TopicView]:
            found = db.records(
                SQL.list_newest,
                _Newest,
                kind=wanted,
                **range_of(begin),
                **_BUILT_IN,
                after=behind,
                limit=one_more(limit),
            )
            topics = json.dumps([one.topic for one in found])
            positions, outside = _positions(db, [one.topic for one in found])
            bad = dict(db.records(SQL.count_quarantined, tuple[str, int], topics=topics))

            def view(one: _Newest) -> TopicView:
                return TopicView(
                    one.topic,
                    show_position(one.seq, one.n),
                    one.at,
                    positions.get(one.topic, {}),
                    outside.get(one.topic, {}),
                    bad.get(one.topic, 0),
                )

            return cut(found, limit, lambda one: one.topic, view)

        return self._catalog.read(block)

    @operation(Right.READ, whole=True)
    def show(self, topic: str) -> TopicView:
        """Return a topic with the positions of its subscribers; `NotFound`. Cost: look-ups."""

        def block(db: Db) -> TopicView:
            newest = db.record(SQL.find_newest, _Newest, topic=topic)
            if newest is None:
                check_topic(db, topic)
            only = json.dumps([topic])
            positions, outside = _positions(db, [topic])
            bad = dict(db.records(SQL.count_quarantined, tuple[str, int], topics=only))
            return TopicView(
                topic,
                "" if newest is None else show_position(newest.seq, newest.n),
                None if newest is None else newest.at,
                positions.get(topic, {}),
                outside.get(topic, {}),
                bad.get(topic, 0),
            )

        return self._catalog.read(block)

    @operation(Right.READ, whole=True)
    def read(self, topic: str, *, limit: int = PAGE, after: str = "") -> Page[MessageView]:
        """List messages of a topic in order: those after the position `after`, or the newest. `NotFound`.

        `0` as `after` begins with the first message. The newest messages are the last page.
        """
        position = read_position(after) if after else None
        most = one_more(limit)

        def block(db: Db) -> Page[MessageView]:
            check_topic(db, topic)
            if position is not None:
                found = read_messages(db, topic, position, most)
                return cut(found, limit, lambda message: show_position(*message.position), view_message)
            newest = [to_message(row) for row in db.records(SQL.read_newest, MessageRow, topic=topic, limit=limit)]
            return Page(tuple(view_message(message) for message in reversed(newest)))

        return self._catalog.read(block)

    @operation(Right.READ, whole=True)
    def quarantined(self, topic: str, *, limit: int = PAGE, after: str = "") -> Page[QuarantinedMessageView]:
        """List the messages of a topic that a subscriber could not read, newest first. `NotFound`."""
        last, text = FROM_NEWEST
        seq, n, name = read_key(after, (last, last, text))

        def block(db: Db) -> Page[QuarantinedMessageView]:
            check_topic(db, topic)
            place: dict[str, Param] = {"before_seq": seq, "before_n": n, "before_name": name}
            found = db.records(SQL.list_quarantined, _Quarantined, topic=topic, **place, limit=one_more(limit))
            return cut(
                found,
                limit,
                lambda one: write_key(one.seq, one.n, one.name),
                lambda one: QuarantinedMessageView(
                    show_position(one.seq, one.n), one.event_key or "", one.name, one.reason, one.at
                ),
            )

        return self._catalog.read(block)

    @operation(Right.DEPLOY, whole=True, in_block=True)
    def publish(self, topic: str, payload: Mapping[str, object] | None = None, *, key: str = "") -> PublishedMessage:
        """Publish a message to a topic of your own, which the first message makes. Its time is that of the commit.

        `payload` has JSON values. `MessageOn(topic, key=…)` can listen to the messages of one `key`. `ReservedTopic`,
        `BadName`, `BadPayload`, `MessageTooLarge`.
        """
        message = write_message(topic, payload, key)
        message.writes()  # what is too large is refused before anything is locked

        def block(db: Db) -> PublishedMessage:
            seq = db.tick()
            for call in message.writes():
                db.call(call)
            self._note("publish", topic, key=key).write(db)
            return PublishedMessage(topic, show_position(seq, 0))

        return self._catalog.write(block)


def _positions(db: Db, topics: Sequence[str]) -> tuple[_Positions, _Positions]:
    """Return the positions of subscribers by topic and name: of those of Tidemill, and of those outside."""
    own: _Positions = {}
    outside: _Positions = {}
    for topic, name, seq, n in db.records(SQL.list_positions, tuple[str, str, int, int], topics=json.dumps(topics)):
        own.setdefault(topic, {})[name] = show_position(seq, n)
    for topic in topics:
        rows = db.records(SQL.list_outside, tuple[str, int, int], topic=topic, limit=_MOST_OUTSIDE)
        outside[topic] = {name: show_position(seq, n) for name, seq, n in rows}
    return own, outside


def check_topic(db: Db, topic: str) -> None:
    """Raise `NotFound`, with the nearest name, for a topic without messages that is none of Tidemill's."""
    there = db.records(SQL.list_newest, _Newest, kind="", **range_of(""), **_BUILT_IN, after="", limit=ALL_ROWS)
    known = {*(one.topic for one in there), *map(str, Topic)}
    if topic not in known:
        raise NotFound("topic", topic, nearest(topic, known))


def read_position(text: str) -> Position:
    """Return a position as people write it; `BadPosition`."""
    seq, _, n = text.partition(".")
    if not seq.isdecimal() or (n and not n.isdecimal()) or max(len(seq), len(n)) > _DIGITS:
        raise BadPosition(text)
    # Behind the whole commit when no number in it is given.
    return Position(int(seq), int(n) if n else 2**31)


def show_position(seq: int, n: int) -> str:
    """Return a position as people read it."""
    return f"{seq}.{n}"


def view_message(message: Message) -> MessageView:
    """Return a message as lists show it."""
    return MessageView(
        message.topic,
        show_position(*message.position),
        message.at,
        message.event_type,
        message.event_key,
        message.payload,
        message.flaw,
    )
