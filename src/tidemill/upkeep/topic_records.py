"""Records of topics: a topic of users can be created and deleted, and each topic has a time to live of its messages.

`time_to_live.py` deletes the messages that have outlived that time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Position
from tidemill.catalog.named import load_sql
from tidemill.errors import Conflict
from tidemill.names import topic_event
from tidemill.upkeep.time_to_live import delete_messages, delete_part, delete_quarantined, find_needed, list_oldest

if TYPE_CHECKING:
    from tidemill.upkeep.topic_records_sql import Sql

SQL: Sql = load_sql(__file__)


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
        delete_quarantined(db, topic, Position(tick, 0))
        return tick

    def part(db: Db) -> int:
        oldest = [one for one in list_oldest(db, topic) if one.seq <= last]
        if oldest:
            delete_messages(db, topic, oldest[-1].position)
        else:
            db.run(SQL.forget_deleted, topic=topic, tick=last)
        return len(oldest)

    last, deleted = delete_part(catalog, first), 0
    while found := delete_part(catalog, part):
        deleted += found
    return deleted


def _check_unused(db: Db, topic: str) -> None:
    user = db.value(SQL.find_listener, str, topic=topic, event_key=topic_event(topic))
    if user is not None:
        raise TopicInUse(topic, user, f"delete {user} first")
    if (held := find_needed(db).get(topic)) is not None:
        raise TopicInUse(topic, held.user, held.cure)
