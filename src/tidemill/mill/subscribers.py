"""Subscribers outside of Tidemill, as `Mill` offers them: named positions in topics.

They are a noun of their own, and no verbs of topics: a subscriber has a name, a state and an end of its own, and its
topic may have no message yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

from tidemill.alerts import outbox, subscribers
from tidemill.alerts.subscribers import Kind, PositionMoved, State, Subscriber, find_subscriber
from tidemill.alerts.targets import Target, check_target
from tidemill.catalog.db import Db
from tidemill.catalog.messages import BEGINNING, Position, find_expired, find_position_at
from tidemill.catalog.named import LAST_TEXT
from tidemill.errors import UserError
from tidemill.json_specs import read_plain, read_text, write_text
from tidemill.lake.consumer.starts import NamedStart
from tidemill.mill.alerts import DeliveryView, view_delivery
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, one_more, read_name
from tidemill.mill.period import BadPeriod, read_begin
from tidemill.mill.project import Noun
from tidemill.mill.topics import BadPosition, MessageView, check_topic, read_position, show_position, view_message
from tidemill.names import check_name


class PositionAhead(UserError):
    """A position behind which no message can be yet."""

    code = "position_ahead"

    def __init__(self, topic: str, position: str, newest: str) -> None:
        self.topic = topic
        self.position = position
        self.newest = newest
        super().__init__(
            f"position {position} of topic {topic} is refused: the newest message is at {newest}, and messages to "
            "come would be passed over",
            "use a position that a read gave",
        )


@dataclass(frozen=True, slots=True)
class SubscriberView:
    """A subscriber: its topic, filter, target and position, and what waits behind the position.

    `waiting` counts the messages of the topic without the filter, up to 10,001. `oldest_at` is when the first came.
    """

    name: str
    topic: str
    event_type: str
    key_prefix: str
    to: str | None
    """The receiver to which messages are pushed. None for a subscriber that reads."""
    state: State
    """`failing` after a failed try of the next message, else `behind` if a message waits, else `current`."""
    position: str
    newest: str | None
    waiting: int
    oldest_at: datetime | None
    failures: int
    """Tries of the next message that failed, one after the other."""
    error: str | None
    next_try_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """Messages behind the position of a subscriber. Acknowledge `position`, also if the filter left no message."""

    name: str
    topic: str
    messages: tuple[MessageView, ...]
    position: str
    more: bool
    """True if the next read may give messages at once."""


@dataclass(frozen=True, slots=True)
class MovedSubscriber:
    """The position of a subscriber; `changed` is false if it was there before, or further."""

    name: str
    position: str
    changed: bool


@dataclass(frozen=True, slots=True)
class DeletedSubscriber:
    """A subscriber that was deleted."""

    name: str


class Subscribers(Noun):
    """Operations on subscribers."""

    noun = "subscriber"

    @operation(Right.READ, whole=True)
    def list(
        self,
        *,
        topic: str | None = None,
        kind: str | None = None,
        state: str | None = None,
        limit: int = PAGE,
        after: str = "",
    ) -> Page[SubscriberView]:
        """List subscribers by name, with their positions and what waits for them: all, or those that fit each filter.

        A kind is `pull` or `push`. A state is `failing` if the next message failed, else `behind` if messages wait,
        else `current`. `BadFilter`, and `NotFound` for a topic without messages and subscribers. Cost: the page; with
        a filter also the subscribers between those of the page.
        """
        behind = read_name(after)
        of_kind = None if kind is None else check_filter("kind", kind, Kind)
        in_state = None if state is None else check_filter("state", state, State)

        def block(db: Db) -> Page[SubscriberView]:
            rows = subscribers.list_subscribers(
                db, topic=topic, kind=of_kind, state=in_state, after=behind, limit=one_more(limit)
            )
            if topic is not None and not (rows or subscribers.has_subscriber(db, topic)):
                check_topic(db, topic)
            views = dict(zip((row.name for row in rows), _view(db, rows), strict=True))
            return cut(rows, limit, lambda row: row.name, lambda row: views[row.name])

        return self._catalog.read(block)

    @operation(Right.READ, whole=True)
    def show(self, name: str) -> SubscriberView:
        """Show a subscriber. `NotFound`."""
        return self._catalog.read(lambda db: _view(db, [find_subscriber(db, name)])[0])

    @operation(Right.READ, whole=True)
    def read(self, name: str, *, limit: int = PAGE, after: str = "") -> ReadMessages:
        """Read the messages behind the position of a subscriber, in order, or those behind `after`. `NotFound`.

        A read moves nothing: the same messages come again until the position is acknowledged. One read gives at most
        8 MB, and looks at 1,000 messages. `PositionExpired` if messages behind the position have expired: `reset` then
        says where to go on.
        """
        behind = read_position(after) if after else None
        most = one_more(limit) - 1

        def block(db: Db) -> ReadMessages:
            subscriber = find_subscriber(db, name)
            part = subscribers.read_part(db, subscriber, behind or subscriber.position, most)
            messages = tuple(view_message(one) for one in part.messages)
            return ReadMessages(name, subscriber.topic, messages, show_position(*part.position), part.more)

        return self._catalog.read(block)

    @operation(Right.READ, whole=True)
    def deliveries(self, name: str, *, limit: int = PAGE, after: str = "") -> Page[DeliveryView]:
        """List the messages that the receiver of a subscriber refused for a day: the newest first, for 30 days.

        `mill.alerts.retry(delivery_id)` tries one of them again. `NotFound`.
        """
        behind = read_name(after) or LAST_TEXT

        def block(db: Db) -> Page[DeliveryView]:
            find_subscriber(db, name)
            rows = outbox.list_deliveries(db, behind, one_more(limit), about=subscribers.about(name))
            return cut(rows, limit, lambda row: row.delivery_id, view_delivery)

        return self._catalog.read(block)

    @operation(Right.DEPLOY, whole=True, in_block=True)
    def create(
        self,
        name: str,
        topic: str,
        *,
        start: str | datetime = "now",
        event_type: str = "",
        key_prefix: str = "",
        to: object = None,
    ) -> SubscriberView:
        """Create a subscriber of a topic, which needs no message yet. An equal one stays as it is.

        `start` is `now`, `beginning`, a position, or a time: then the first message is the first that was published at
        that time or later. `event_type` and the prefix of event keys leave out other messages.
        `to` is a target (`tm.WebHook("https://…")` or its JSON) to which messages are pushed; without it the subscriber
        reads. `BadName`, `BadPosition`, `BadPeriod`, `PositionAhead`, `BadTarget`, `SubscriberExists`.

        Cost: look-ups; with a time some 20.
        """
        check_name("subscriber", name)
        check_name("topic", topic)
        wanted = _read_start(start)
        target = None if to is None else check_target(to if isinstance(to, Target) else read_plain(Target, to))

        def block(db: Db) -> SubscriberView:
            position = _find_start(db, topic, wanted, Position(db.tick(), 0))
            if isinstance(wanted, Position):
                _check_ahead(db, topic, position, str(start))
            written = None if target is None else write_text(target)
            if subscribers.add_subscriber(db, name, topic, event_type, key_prefix, written, position):
                record = {"topic": topic, "start": str(start), "to": None if target is None else str(target)}
                record |= {"event_type": event_type, "key_prefix": key_prefix}
                self._note("create", name).between(None, record).write(db)
            return _view(db, [find_subscriber(db, name)])[0]

        return self._catalog.write(block)

    @operation(Right.DEPLOY, whole=True, in_block=True)
    def acknowledge(self, name: str, position: str, *, expected: str = "") -> MovedSubscriber:
        """Move the position of a subscriber forward: all messages up to `position` are processed. `NotFound`.

        A position that is there already, or further, changes nothing, so that a repeated request does no harm. With
        `expected` the position moves only from there: of two readers one gets `PositionMoved`. `BadPosition`,
        `PositionAhead`.
        """
        to = read_position(position)
        before = read_position(expected) if expected else None

        def block(db: Db) -> MovedSubscriber:
            db.tick()
            subscriber = find_subscriber(db, name)
            _check_ahead(db, subscriber.topic, to, position)
            if before is not None and subscriber.position not in (before, to):
                raise PositionMoved(name, expected, show_position(*subscriber.position))
            changed = to > subscriber.position
            if changed:
                self._move(db, "acknowledge", subscriber, to)
            return MovedSubscriber(name, show_position(*(to if changed else subscriber.position)), changed)

        return self._catalog.write(block)

    @operation(Right.DEPLOY, whole=True, in_block=True)
    def reset(self, name: str, start: str | datetime) -> MovedSubscriber:
        """Move the position of a subscriber to `now`, `beginning`, a position or a time, also back.

        A time moves the position before the first message that was published at that time or later. Messages behind
        the position come again, in order. A message under way may come once more. `NotFound`, `BadPosition`,
        `BadPeriod`, `PositionAhead`.
        """
        wanted = _read_start(start)

        def block(db: Db) -> MovedSubscriber:
            now = Position(db.tick(), 0)
            subscriber = find_subscriber(db, name)
            to = _find_start(db, subscriber.topic, wanted, now)
            if isinstance(wanted, Position):
                _check_ahead(db, subscriber.topic, to, str(start))
            changed = to != subscriber.position
            if changed:
                self._move(db, "reset", subscriber, to)
            return MovedSubscriber(name, show_position(*to), changed)

        return self._catalog.write(block)

    @operation(Right.DEPLOY, whole=True, in_block=True)
    def delete(self, name: str) -> DeletedSubscriber:
        """Delete a subscriber. Its messages stay in their topic. `NotFound`."""

        def block(db: Db) -> DeletedSubscriber:
            db.tick()
            subscriber = find_subscriber(db, name)
            db.run(subscribers.SQL.delete_subscriber, name=name)
            record = {"topic": subscriber.topic, "position": show_position(*subscriber.position)}
            self._note("delete", name).between(record, None).write(db)
            return DeletedSubscriber(name)

        return self._catalog.write(block)

    def _move(self, db: Db, action: str, subscriber: Subscriber, to: Position) -> None:
        db.run(subscribers.SQL.move_by_hand, name=subscriber.name, seq=to.seq, n=to.n)
        before, after = ({"position": show_position(*one)} for one in (subscriber.position, to))
        self._note(action, subscriber.name).between(before, after).write(db)


def _read_start(given: str | datetime) -> NamedStart | Position | datetime:
    """Return the start that a person names; `BadPosition`, or `BadPeriod` for a time that cannot be read."""
    if isinstance(given, datetime):
        return read_begin(given)
    if given in {*NamedStart}:
        return NamedStart(given)
    try:
        return read_position(given)
    except BadPosition:
        if given[:4].isdecimal():  # a year: a time is meant
            return read_begin(given)
        raise BadPosition(given, also=(*NamedStart, "or a time such as 2026-01-31T06:00")) from None


def _find_start(db: Db, topic: str, start: NamedStart | Position | datetime, now: Position) -> Position:
    """Return the position of a start. `now` was taken in this transaction. `BadPeriod` for a time to come."""
    match start:
        case Position():
            return start
        case NamedStart.NOW:
            return now
        case NamedStart.BEGINNING:
            return find_expired(db, topic)
        case datetime():
            if start > db.now():
                # No position leaves out the messages from now until then.
                raise BadPeriod(start.isoformat(), None, "that time is still to come")
            newest = db.record(subscribers.SQL.find_newest, Position, topic=topic) or BEGINNING
            found = find_position_at(db, topic, start, newest)
            # Without a message since then, behind the newest: a position ahead of its topic could pass over a message.
            return max(min(found, newest), find_expired(db, topic))
        case _:
            assert_never(start)


def _check_ahead(db: Db, topic: str, position: Position, given: str) -> None:
    """Raise `PositionAhead` for a commit after the newest message: a later message could lie before it."""
    newest = db.record(subscribers.SQL.find_newest, Position, topic=topic) or BEGINNING
    if position.seq > newest.seq:
        raise PositionAhead(topic, given, show_position(*newest))


def _view(db: Db, rows: list[Subscriber]) -> list[SubscriberView]:
    views = []
    for row, (newest, waiting, oldest_at) in zip(rows, subscribers.iterate_lag(db, rows), strict=True):
        views.append(
            SubscriberView(
                row.name,
                row.topic,
                row.event_type,
                row.key_prefix,
                None if row.target is None else str(read_text(Target, row.target)),
                State.FAILING if row.failures else State.BEHIND if waiting else State.CURRENT,
                show_position(*row.position),
                None if newest is None else show_position(*newest),
                waiting,
                oldest_at,
                row.failures,
                row.error,
                row.next_try_at if row.failures else None,
                row.created_at,
            )
        )
    return views
