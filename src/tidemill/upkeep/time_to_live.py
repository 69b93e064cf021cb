"""Topics: their messages expire after a time to live, and a topic of users can be created and deleted.

A message expires only after each subscriber of Tidemill has passed it, and when no open job and no unfinished run names
it. A message of Tidemill's own topics stays also while audits compare it. Each part is one transaction, in the order of
the topic, and the topic records how far its messages are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Position, Topic, find_expired
from tidemill.catalog.named import GREATEST, load_sql
from tidemill.errors import Conflict
from tidemill.names import RunId, topic_event
from tidemill.run.records.triggers import leaves_of

if TYPE_CHECKING:
    from tidemill.upkeep.time_to_live_sql import Sql

SQL: Sql = load_sql(__file__)

KEEP_MESSAGES: Final = timedelta(days=7)
"""The time to live of messages, unless their topic or the project (`retention.messages`) says otherwise."""
_PART: Final = 500


class TopicExists(Conflict):
    """A topic of that name, with another time to live, or that its messages have made."""

    code = "topic_exists"

    def __init__(self, topic: str) -> None:
        self.topic = topic
        super().__init__(
            f"there is a topic {topic} already",
            f"publish to it, change it by `tidemill topic update {topic}`, or choose another name",
        )


class TopicInUse(Conflict):
    """A topic whose messages a schedule, a subscriber, an open job or an unfinished run still needs."""

    code = "topic_in_use"

    def __init__(self, topic: str, user: str, cure: str) -> None:
        self.topic = topic
        self.user = user
        super().__init__(f"topic {topic} is not deleted: {user} needs its messages", cure)


@dataclass(frozen=True, slots=True)
class KnownTopic:
    """Facts about a topic beside its messages."""

    created_at: datetime | None
    time_to_live: timedelta | None
    expired_seq: int
    expired_n: int


class _Needed(NamedTuple):
    """The oldest message of a topic that open work names, and such work with the way to end it."""

    seq: int
    user: str
    cure: str


class _Oldest(NamedTuple):
    seq: int
    n: int
    at: datetime

    @property
    def position(self) -> Position:
        return Position(self.seq, self.n)


def find_topic(db: Db, topic: str) -> KnownTopic:
    """Return the facts about a topic; of most topics there are none."""
    return db.record(SQL.find_topic, KnownTopic, topic=topic) or KnownTopic(None, None, 0, -1)


def create_topic(db: Db, topic: str, time_to_live: timedelta | None) -> None:
    """Record a topic of users with the time to live of its messages; None for that of the project.

    The caller holds the clock.
    """
    db.run(SQL.create_topic, topic=topic, time_to_live=time_to_live)


def keep_topic(db: Db, topic: str, time_to_live: timedelta | None) -> None:
    """Store the time to live of a topic's messages; None for that of the project. The caller holds the clock."""
    db.run(SQL.keep_for, topic=topic, time_to_live=time_to_live)


def expire_messages(catalog: Catalog, keep: timedelta, compared_up_to: int) -> int:
    """Delete the messages that have outlived their topic's time to live, or `keep`; return their number.

    Of Tidemill's own topics, messages behind the commit `compared_up_to` stay for audits. Cost: what is deleted, open
    jobs and unfinished runs.
    """
    topics = catalog.read(lambda db: db.records(SQL.list_topics, tuple[str, timedelta | None]))
    deleted = 0
    for topic, time_to_live in topics:
        bound = compared_up_to + 1 if topic in set(Topic) else GREATEST
        while part := _delete_part(catalog, partial(_expire, topic=topic, below=bound, keep=time_to_live or keep)):
            deleted += part
    return deleted


def _find_needed(db: Db) -> Mapping[str, _Needed]:
    """Return, by topic, the oldest message that an open job or an unfinished run names."""
    held = {
        topic: _Needed(seq, job_id, f"wait until {job_id} has ended, or drop it: `tidemill job drop {job_id}`")
        for topic, seq, job_id in db.records(SQL.list_held, tuple[str, int, str])
    }
    for run_id, cause in db.records(SQL.list_causes, tuple[RunId, dict[str, Any]]):
        for leaf in leaves_of(cause):
            for place in leaf.places:
                if place.topic not in held or place.seq < held[place.topic].seq:
                    cure = f"wait until {run_id} has ended, or end it: `tidemill run kill {run_id}`"
                    held[place.topic] = _Needed(place.seq, run_id, cure)
    return held


def _expire(db: Db, *, topic: str, below: int, keep: timedelta) -> int:
    """Delete some of the oldest messages of a topic."""
    passed = min(db.records(SQL.list_positions, Position, topic=topic), default=None)
    if passed is None and topic == Topic.DATA:
        return 0  # no scheduler has begun to read
    before, expired = db.now() - keep, find_expired(db, topic)
    oldest = list(
        takewhile(
            # What has expired before is left of a topic whose deletion was interrupted.
            lambda one: (
                (one.at < before or one.position <= expired)
                and one.seq < below
                and (passed is None or one.position <= passed)
            ),
            db.records(SQL.list_oldest, _Oldest, topic=topic, most=_PART),
        )
    )
    if oldest:
        # After the positions: a scheduler that moves its position gives the messages to jobs in the same transaction.
        held = _find_needed(db).get(topic)
        oldest = [one for one in oldest if held is None or one.seq < held.seq]
    if oldest:
        place: dict[str, Any] = {"topic": topic, **oldest[-1].position._asdict()}
        db.run(SQL.note_expired, **place)
        db.run(SQL.delete_quarantined, **place)
        db.run(SQL.delete_messages, **place)
    return len(oldest)


def delete_topic(catalog: Catalog, topic: str, note: Callable[[Db], None]) -> int:
    """Delete a topic of users, then all its messages, part by part; return the number of messages.

    A topic that is made again has none of these messages: they have expired from the first transaction on. Should the
    deletion be interrupted, the janitor deletes the rest. `note` is called in the first transaction; messages that are
    published later stay. Raises `TopicInUse`.
    """

    def first(db: Db) -> int:
        tick = db.tick()
        _check_unused(db, topic)
        note(db)
        db.run(SQL.delete_positions, topic=topic)
        db.run(SQL.note_deleted, topic=topic, tick=tick)
        db.run(SQL.delete_quarantined, topic=topic, seq=tick, n=0)
        return tick

    def part(db: Db) -> int:
        found = db.records(SQL.list_oldest, _Oldest, topic=topic, most=_PART)
        oldest = [one for one in found if one.seq <= last]
        if oldest:
            db.run(SQL.delete_messages, topic=topic, **oldest[-1].position._asdict())
        else:
            db.run(SQL.forget_deleted, topic=topic, tick=last)
        return len(oldest)

    last, deleted = _delete_part(catalog, first), 0
    while found := _delete_part(catalog, part):
        deleted += found
    return deleted


def _check_unused(db: Db, topic: str) -> None:
    user = db.value(SQL.find_listener, str, topic=topic, event_key=topic_event(topic))
    if user is not None:
        raise TopicInUse(topic, user, f"delete {user} first")
    if (held := _find_needed(db).get(topic)) is not None:
        raise TopicInUse(topic, held.user, held.cure)


def _delete_part(catalog: Catalog, block: Callable[[Db], int]) -> int:
    catalog.world.mark("topics.before_part")
    deleted = catalog.write(block)
    catalog.world.mark("topics.part_deleted")
    return deleted
