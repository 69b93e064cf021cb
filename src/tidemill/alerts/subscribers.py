"""Subscribers outside of Tidemill: each a named position in a topic, from which it reads, or is sent to in order.

Messages stay in their topic: nothing is copied into the outbox. A subscriber that reads moves its position when it has
processed what it read. To a receiver that is pushed to, messages are sent one after the other, and each record of a
message that was taken moves the position. A crash between the two sends the message again, with the same id. So each
message comes at least once, in order, and no subscriber waits for another.

A receiver that does not answer is waited for. If a receiver answers a message with an error for a day, the message is a
dead delivery of the outbox, which a person can have tried again, and the next message follows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.alerts.connecting import NotDelivered
from tidemill.alerts.outbox import GIVE_UP_AFTER, TRY_FOR, back_off, show_error
from tidemill.alerts.targets import Target
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Message, Position, PositionExpired, check_kept, read_messages
from tidemill.catalog.named import ALL_ROWS, Call, Param, load_sql
from tidemill.epoch import show_time
from tidemill.errors import Conflict, NotFound
from tidemill.json_specs import read_text
from tidemill.names import nearest
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.alerts.subscribers_sql import Sql

SQL: Sql = load_sql(__file__)

_ABOUT: Final = "subscriber "
MOST_COUNTED: Final = 10_001
_MOST_LANES: Final = 100
_PART: Final = 50
"""Messages that are read at once: a message may have a megabyte."""
_MOST_PASSED: Final = 1000
"""Messages that one read looks at, whatever its filter leaves out."""
_MOST_BYTES: Final = 8_000_000


class Kind(StrEnum):
    """Kinds of subscribers: a reader pulls messages, and a receiver has them pushed to it."""

    PULL = "pull"
    PUSH = "push"


class State(StrEnum):
    """States of a subscriber: its next message failed, messages wait behind its position, or neither."""

    FAILING = "failing"
    BEHIND = "behind"
    CURRENT = "current"


class SubscriberExists(Conflict):
    """A subscriber of that name, with another topic, filter or target."""

    code = "subscriber_exists"

    def __init__(self, name: str, topic: str) -> None:
        self.name = name
        self.topic = topic
        super().__init__(
            f"there is a subscriber {name} of topic {topic} already",
            f"delete it by `tidemill subscriber delete {name}`, or choose another name",
        )


class PositionMoved(Conflict):
    """A position that is not where the caller expects it."""

    code = "position_moved"

    def __init__(self, name: str, expected: str, found: str) -> None:
        self.name = name
        self.expected = expected
        self.found = found
        super().__init__(
            f"subscriber {name} is at {found}, no longer at {expected}: another reader has moved it", "read again"
        )


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A subscriber as stored: its topic, filter, target as JSON, and position."""

    name: str
    topic: str
    event_type: str
    key_prefix: str
    target: str | None
    seq: int
    n: int
    created_at: datetime
    attempt: int
    failures: int
    refused_since: datetime | None
    error: str | None
    next_try_at: datetime

    @property
    def position(self) -> Position:
        """The position: all messages up to it are processed."""
        return Position(self.seq, self.n)

    def wants(self, message: Message) -> bool:
        """Tell whether the filter lets a message through."""
        return self.event_type in ("", message.event_type) and message.event_key.startswith(self.key_prefix)


@dataclass(frozen=True, slots=True)
class ReadPart:
    """Messages behind a position that a filter lets through, and the position behind all that were looked at."""

    messages: tuple[Message, ...]
    position: Position
    more: bool


def find_subscriber(db: Db, name: str) -> Subscriber:
    """Return the subscriber of that name; `NotFound`."""
    found = db.record(SQL.find_subscriber, Subscriber, name=name)
    if found is None:
        raise NotFound("subscriber", name, nearest(name, db.records(SQL.list_nearest, str, limit=1000)))
    return found


def add_subscriber(
    db: Db, name: str, topic: str, event_type: str, key_prefix: str, target: str | None, position: Position
) -> bool:
    """Add a subscriber; return whether it is new. `SubscriberExists` for another one of that name.

    An equal one keeps its position: a repeated request changes nothing.
    """
    wanted = {"topic": topic, "event_type": event_type, "key_prefix": key_prefix, "target": target}
    if db.run(SQL.insert_subscriber, name=name, **wanted, seq=position.seq, n=position.n):
        return True
    found = find_subscriber(db, name)
    if any(getattr(found, field) != value for field, value in wanted.items()):
        raise SubscriberExists(name, found.topic)
    return False


def read_part(db: Db, subscriber: Subscriber, after: Position, limit: int) -> ReadPart:
    """Return at most `limit` messages behind `after`, 8 MB of payload, or what 1,000 messages have for the filter.

    Raises `PositionExpired`.
    """
    found: list[Message] = []
    position, passed, taken = after, 0, 0
    while passed < _MOST_PASSED:
        part = read_messages(db, subscriber.topic, position, _PART)
        # After the read: messages may expire meanwhile.
        check_kept(db, subscriber.topic, position)
        for message in part:
            if subscriber.wants(message):
                taken += len(json.dumps(message.payload))
                if len(found) == limit or (found and taken > _MOST_BYTES):
                    return ReadPart(tuple(found), position, more=True)
                found.append(message)
            position = message.position
        passed += len(part)
        if len(part) < _PART:
            return ReadPart(tuple(found), position, more=False)
    return ReadPart(tuple(found), position, more=True)


def write_event(message: Message) -> str:
    """Return a message as a CloudEvent. Its id is the same for each subscriber and each try."""
    event: dict[str, object] = {
        "specversion": "1.0",
        "id": f"{message.topic}/{message.seq}/{message.n}",
        "source": "/tidemill",
        "type": f"tidemill.{message.topic}.{message.event_type}",
        "subject": message.event_key or message.topic,
        "time": show_time(message.at),
        "datacontenttype": "application/json",
        "topic": message.topic,
        "position": f"{message.seq}.{message.n}",
        "data": message.payload,
    }
    return json.dumps(event | ({"flaw": message.flaw} if message.flaw else {}))


class _FailedPush(NamedTuple):
    message: Message
    body: str
    error: str
    answered: bool


class Pusher:
    """Sends messages to the targets of subscribers. Several may work at once: a subscriber is of one of them."""

    def __init__(self, catalog: Catalog, world: World, send: Callable[[Target, str], None]) -> None:
        self._catalog = catalog
        self._world = world
        self._send = send

    def push_due(self) -> None:
        """Send all that is due, one subscriber after the other."""
        while due := self.list_due():
            for name in due:
                self.work_off(name)

    def list_due(self) -> list[str]:
        """Return the subscribers that have messages to send now. Cost: look-ups for each subscriber with a target."""
        return self._catalog.read(lambda db: db.records(SQL.list_due, str, limit=_MOST_LANES))

    def next_try(self) -> Call:
        """Return the read of the time of the next try after a failure. Messages come with their commits."""
        return SQL.find_next_try()

    def work_off(self, name: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Send the messages behind the position of a subscriber in order, a part after the other, or until `stopped`.

        A failure ends the work until the time of its next try.
        """
        more = True
        while more and not stopped():
            more = self._send_part(name, stopped)

    def _send_part(self, name: str, stopped: Callable[[], bool]) -> bool:
        """Send some messages; return whether there may be more to send now."""

        def begin(db: Db) -> Subscriber | None:
            return db.record(SQL.begin_push, Subscriber, name=name, next_try_at=db.now() + TRY_FOR)

        begun = subscriber = self._catalog.write(begin)
        if begun is None or subscriber is None:
            return False
        self._world.mark("push.begun")
        try:
            part = self._catalog.read(lambda db: read_part(db, begun, begun.position, _PART))
        except PositionExpired as error:
            expired = str(error)
            self._catalog.write(lambda db: self._wait_for_reset(db, begun, expired))
            return False
        for message in part.messages:
            if stopped():
                break
            moved = self._push(subscriber, message)
            if moved is None:
                return False
            subscriber = moved
        else:
            subscriber = replace(subscriber, seq=part.position.seq, n=part.position.n)
        return self._record(subscriber, lease=False) and part.more

    def _push(self, subscriber: Subscriber, message: Message) -> Subscriber | None:
        """Send a message and record it; return the subscriber behind it. None if the subscriber is to wait."""
        body = write_event(message)
        moved = replace(subscriber, seq=message.seq, n=message.n, failures=0, refused_since=None)
        try:
            self._send(read_text(Target, subscriber.target or ""), body)
        except Exception as failed:  # noqa: BLE001  # whatever a receiver does, the others go on
            self._world.mark("push.failed")
            failure = _FailedPush(
                message, body, show_error(failed), isinstance(failed, NotDelivered) and failed.answered
            )
            given_up = self._catalog.write(lambda db: self._fail(db, subscriber, moved, failure))
            return moved if given_up else None
        self._world.mark("push.sent")
        return moved if self._record(moved, lease=True) else None

    def _record(self, subscriber: Subscriber, *, lease: bool) -> bool:
        """Move the position, and keep the subscriber or leave it; return whether no other sender has it."""

        def block(db: Db) -> bool:
            until = db.now() + TRY_FOR if lease else 0
            return _move(db, subscriber, until)

        moved = self._catalog.write(block)
        self._world.mark("push.recorded")
        return moved

    def _wait_for_reset(self, db: Db, subscriber: Subscriber, error: str) -> None:
        """Record that the next messages have expired. A person decides where the subscriber goes on."""
        self._try_later(db, subscriber, error, db.now(), refused_since=None)

    def _try_later(
        self, db: Db, subscriber: Subscriber, error: str, now: datetime, *, refused_since: datetime | None
    ) -> None:
        failures = subscriber.failures + 1
        db.run(
            SQL.record_failure,
            name=subscriber.name,
            attempt=subscriber.attempt,
            failures=failures,
            refused_since=refused_since,
            error=error,
            next_try_at=now + back_off(self._world, failures),
        )

    def _fail(self, db: Db, before: Subscriber, behind: Subscriber, failure: _FailedPush) -> bool:
        """Record a failure; return whether the message was given up, so that the next one may follow."""
        db.tick()
        now = db.now()
        since = before.refused_since or (now if failure.answered else None)
        if not failure.answered or since is None or now - since < GIVE_UP_AFTER:
            self._try_later(db, before, failure.error, now, refused_since=since)
            return False
        if not _move(db, behind, now + TRY_FOR):
            return False
        db.run(
            SQL.bury,
            delivery_id=self._world.new_id("delivery"),
            target=before.target or "",
            about=about(before.name),
            event=failure.message.event_type,
            body=failure.body,
            failures=before.failures + 1,
            error=failure.error,
        )
        return True


def _move(db: Db, subscriber: Subscriber, until: datetime | int) -> bool:
    changed = db.run(
        SQL.record_push,
        name=subscriber.name,
        attempt=subscriber.attempt,
        seq=subscriber.seq,
        n=subscriber.n,
        next_try_at=until,
    )
    return changed > 0


def about(name: str) -> str:
    """Return the thing that deliveries of a subscriber are about."""
    return f"{_ABOUT}{name}"


def is_about_subscriber(thing: str) -> bool:
    """Return whether deliveries about this thing are messages of a subscriber; others are notices of alerts."""
    return thing.startswith(_ABOUT)


def list_subscribers(
    db: Db,
    *,
    topic: str | None = None,
    kind: Kind | None = None,
    state: State | None = None,
    after: str = "",
    limit: int = ALL_ROWS,
) -> list[Subscriber]:
    """List subscribers by name, from the name behind `after` on: all, or those that fit each filter."""
    wanted: dict[str, Param] = {"topic": topic or "", "kind": kind or "", "state": state or ""}
    return db.records(SQL.list_subscribers, Subscriber, **wanted, after=after, limit=limit)


def has_subscriber(db: Db, topic: str) -> bool:
    """Return whether a topic has a subscriber."""
    return bool(list_subscribers(db, topic=topic, limit=1))


def iterate_lag(db: Db, subscribers: list[Subscriber]) -> Iterator[tuple[Position | None, int, datetime | None]]:
    """Yield of each subscriber: the newest position of its topic, the messages behind it, the time of the first."""
    newest: Mapping[str, Position | None] = {
        topic: db.record(SQL.find_newest, Position, topic=topic) for topic in {one.topic for one in subscribers}
    }
    for one in subscribers:
        first = read_messages(db, one.topic, one.position, 1)
        place: dict[str, Param] = {"topic": one.topic, "seq": one.seq, "n": one.n}
        number = 0 if not first else db.value(SQL.count_behind, int, **place, limit=MOST_COUNTED) or 0
        yield newest[one.topic], min(number, MOST_COUNTED), first[0].at if first else None
