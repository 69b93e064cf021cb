"""Topics and their messages, as `Mill` offers them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.messages import (
    BEGINNING,
    Message,
    MessageRow,
    Position,
    Topic,
    behind_commit,
    check_kept,
    check_own,
    find_expired,
    find_position_at,
    read_messages,
    to_message,
    write_message,
)
from tidemill.catalog.named import FROM_NEWEST, Param, load_sql, range_of
from tidemill.durations import format_duration, parse_keeping
from tidemill.errors import NotFound, UserError
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, one_more, read_key, read_name, write_key
from tidemill.mill.period import read_begin
from tidemill.mill.project import Noun
from tidemill.names import check_name, nearest
from tidemill.upkeep.topic_records import (
    KnownTopic,
    TopicExists,
    create_topic,
    delete_topic,
    find_topic,
    keep_topic,
)

if TYPE_CHECKING:
    from tidemill.mill.topics_sql import Sql

SQL: Sql = load_sql(__file__)

_DIGITS: Final = 18
"""The most digits of a number that the catalog holds, whatever the digits are."""
_MOST_OUTSIDE: Final = 100
"""The most subscribers of other systems that are shown with a topic."""
_MOST_NEAR: Final = 1000
"""The most topics with which a name that is unknown is compared."""
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
    keep: timedelta | None
    """The time to live of its messages; None for that of the setting `retention.messages`."""
    expired: str
    """The position up to which messages have expired; empty if none have."""


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that was deleted, with the number of its messages."""

    topic: str
    messages: int


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
    seq: int | None
    n: int | None
    at: datetime | None


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
        wanted = "" if kind is None else check_filter("kind", kind, TopicKind)

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
            views = {view.topic: view for view in _views(db, found)}
            return cut(found, limit, lambda one: one.topic, lambda one: views[one.topic])

        return self._catalog.read(block)

    @operation(Right.READ, whole=True)
    def show(self, topic: str) -> TopicView:
        """Return a topic with the positions of its subscribers; `NotFound`. Cost: look-ups."""

        def block(db: Db) -> TopicView:
            return _show(db, topic)

        return self._catalog.read(block)

    @operation(Right.READ, whole=True, parts="messages")
    def read(
        self, topic: str, *, limit: int = PAGE, after: str = "", since: str | datetime | None = None
    ) -> Page[MessageView]:
        """List messages of a topic in order: those after the position `after`, or the newest. `NotFound`.

        `0` as `after` begins with the first message. Without `after`, `since` begins with the first message that was
        published at that time or later. The newest messages are the last page. `BadPeriod`, and `PositionExpired` if
        messages behind `after` have expired. Cost: the page; with `since` also about 20 look-ups.
        """
        position = read_position(after) if after else None
        most = one_more(limit)
        begin = None if since is None else read_begin(since)

        def block(db: Db) -> Page[MessageView]:
            check_topic(db, topic)
            # Of a topic that was deleted and made again, old messages may still be there.
            place, expired = position, find_expired(db, topic)
            if place is None and begin is not None:
                last = db.record(SQL.find_newest, Position, topic=topic) or BEGINNING
                place = find_position_at(db, topic, begin, last)
            if place is not None:
                found = read_messages(db, topic, max(place, expired), most)
                if position is not None and position.seq > 0:
                    check_kept(db, topic, position)  # after the read: messages may expire meanwhile
                return cut(found, limit, lambda message: show_position(*message.position), view_message)
            newest = [to_message(row) for row in db.records(SQL.read_newest, MessageRow, topic=topic, limit=limit)]
            return Page(tuple(view_message(message) for message in reversed(newest) if message.position > expired))

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

    @operation(Right.DEPLOY, whole=True, in_block=True, parts="messages")
    def publish(self, topic: str, payload: Mapping[str, object] | None = None, *, key: str = "") -> PublishedMessage:
        """Publish a message to a topic of your own, which the first message makes. Its time is that of the commit.

        `payload` has JSON values. `MessageOn(topic, key=…)` can listen to the messages of one `key`. `ReservedTopic`,
        `BadName`, `BadPayload`, `MessageTooLarge`.
        """
        message = write_message(topic, payload, key)

        def block(db: Db) -> PublishedMessage:
            seq = db.tick()
            for call in message.writes():
                db.call(call)
            self._note("publish", topic, key=key).write(db)
            return PublishedMessage(topic, show_position(seq, 0))

        return self._catalog.write(block)

    @operation(Right.DEPLOY, whole=True, in_block=True)
    def create(self, topic: str, *, keep: str | None = None) -> TopicView:
        """Create a topic of your own. `keep` is the time to live of its messages, such as `30d`.

        Without `keep`, messages stay as long as `retention.messages` says. A topic that was created equal stays as it
        is. `ReservedTopic`, `BadName`, `BadDuration`, `TopicExists`.
        """
        check_own(topic)
        time_to_live = None if keep is None else parse_keeping(keep)

        def block(db: Db) -> TopicView:
            db.tick()
            found = find_topic(db, topic)
            if found.created_at is None:
                newest = db.record(SQL.find_newest_at, _Newest, topic=topic)
                if newest is not None and (newest.seq or 0) > found.expired_seq:
                    raise TopicExists(topic)
                create_topic(db, topic, time_to_live)
                self._note("create", topic).between(None, {"keep": keep}).write(db)
            elif found.time_to_live != time_to_live:
                raise TopicExists(topic)
            return _show(db, topic)

        return self._catalog.write(block)

    @operation(Right.DEPLOY, whole=True, in_block=True)
    def update(self, topic: str, *, keep: str | None = None) -> TopicView:
        """Change the time to live of a topic's messages, also of a topic of Tidemill. `NotFound`, `BadDuration`.

        Without `keep`, messages stay as long as `retention.messages` says.
        """
        time_to_live = None if keep is None else parse_keeping(keep)

        def block(db: Db) -> TopicView:
            db.tick()
            check_topic(db, topic)
            before = find_topic(db, topic).time_to_live
            if before != time_to_live:
                keep_topic(db, topic, time_to_live)
                self._note("update", topic).between(_state(before), _state(time_to_live)).write(db)
            return _show(db, topic)

        return self._catalog.write(block)

    @operation(Right.DEPLOY, whole=True, no_key="messages are deleted in parts: a repetition deletes what is left")
    def delete(self, topic: str) -> DeletedTopic:
        """Delete a topic of your own with all its messages. A topic that is made again has none of them.

        Messages are deleted in parts: call an interrupted deletion again. `NotFound`, `ReservedTopic`, and `TopicInUse`
        while a schedule or subscriber, or a job or run that has not ended, needs the messages.
        """
        check_own(topic)
        self._catalog.read(lambda db: check_topic(db, topic))

        def note(db: Db) -> None:
            before = _state(find_topic(db, topic).time_to_live)
            self._note("delete", topic).between(before, None).write(db)

        return DeletedTopic(topic, delete_topic(self._catalog, topic, note))


def _state(time_to_live: timedelta | None) -> dict[str, str | None]:
    """Return the state of a topic in the audit log."""
    return {"keep": None if time_to_live is None else format_duration(time_to_live)}


def _show(db: Db, topic: str) -> TopicView:
    found = db.record(SQL.find_newest_at, _Newest, topic=topic)
    if found is None:
        check_topic(db, topic)
    (view,) = _views(db, [found or _Newest(topic, None, None, None)])
    return view


def _views(db: Db, found: Sequence[_Newest]) -> list[TopicView]:
    names = [one.topic for one in found]
    positions, outside = _positions(db, names)
    bad = dict(db.records(SQL.count_quarantined, tuple[str, int], topics=json.dumps(names)))
    views = []
    for one in found:
        known = find_topic(db, one.topic)
        newest = None if one.seq is None or one.n is None else Position(one.seq, one.n)
        if newest is not None and newest <= (known.expired_seq, known.expired_n):
            newest = None  # of a topic that was deleted and made again, old messages may still be there
        views.append(
            TopicView(
                one.topic,
                show_position(*newest) if newest else "",
                one.at if newest else None,
                positions.get(one.topic, {}),
                outside.get(one.topic, {}),
                bad.get(one.topic, 0),
                known.time_to_live,
                _show_expired(known),
            )
        )
    return views


def _show_expired(known: KnownTopic) -> str:
    return show_position(known.expired_seq, known.expired_n) if known.expired_seq else ""


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
    """Raise `NotFound`, with the nearest name, for a topic without messages that is none of Tidemill's.

    Cost: a look-up. A name that is unknown is compared with the first 1,000 topics.
    """
    built_in = [*map(str, Topic)]
    if topic in built_in or db.value(SQL.has_topic, bool, topic=topic):
        return
    there = db.records(SQL.list_newest, _Newest, kind="", **range_of(""), **_BUILT_IN, after="", limit=_MOST_NEAR)
    raise NotFound("topic", topic, nearest(topic, [*built_in, *(one.topic for one in there)]))


def read_position(text: str) -> Position:
    """Return a position as people write it; `BadPosition`."""
    seq, _, n = text.partition(".")
    if not seq.isdecimal() or (n and not n.isdecimal()) or max(len(seq), len(n)) > _DIGITS:
        raise BadPosition(text)
    return Position(int(seq), int(n)) if n else behind_commit(int(seq))


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
