"""Time to live: messages expire, unless anything still needs them.

A message expires only after each subscriber of Tidemill has passed it, and when no open job and no unfinished run names
it. A message of Tidemill's own topics stays also while audits compare it. Each part is one transaction, in the order of
the topic, and the topic records how far its messages are deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.messages import Position, Topic, find_expired
from tidemill.catalog.named import GREATEST, load_sql
from tidemill.names import RunId
from tidemill.run.records.triggers import leaves_of

if TYPE_CHECKING:
    from tidemill.upkeep.time_to_live_sql import Sql

SQL: Sql = load_sql(__file__)

KEEP_MESSAGES: Final = timedelta(days=7)
"""The time to live of messages, unless their topic or the project (`retention.messages`) says otherwise."""
_PART: Final = 500
"""The most messages that one transaction deletes."""


class Needed(NamedTuple):
    """The oldest message of a topic that open work names, and such work with the way to end it."""

    seq: int
    user: str
    cure: str


class OldestMessage(NamedTuple):
    """A message that may be deleted: its place and its time."""

    seq: int
    n: int
    at: datetime

    @property
    def position(self) -> Position:
        """The position of a reader that has just passed the message."""
        return Position(self.seq, self.n)


def expire_messages(catalog: Catalog, keep: timedelta, compared_up_to: int) -> int:
    """Delete the messages that have outlived their topic's time to live, or `keep`; return their number.

    Of Tidemill's own topics, messages behind the commit `compared_up_to` stay for audits. Cost: what is deleted, open
    jobs and unfinished runs.
    """
    topics = catalog.read(lambda db: db.records(SQL.list_topics, tuple[str, timedelta | None]))
    deleted = 0
    for topic, time_to_live in topics:
        bound = compared_up_to + 1 if topic in set(Topic) else GREATEST
        while part := delete_part(catalog, partial(_expire, topic=topic, below=bound, keep=time_to_live or keep)):
            deleted += part
    return deleted


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
            list_oldest(db, topic),
        )
    )
    if oldest:
        # After the positions: a scheduler that moves its position gives the messages to jobs in the same transaction.
        held = find_needed(db).get(topic)
        oldest = [one for one in oldest if held is None or one.seq < held.seq]
    if oldest:
        last = oldest[-1].position
        db.run(SQL.note_expired, topic=topic, seq=last.seq, n=last.n)
        delete_quarantined(db, topic, last)
        delete_messages(db, topic, last)
    return len(oldest)


def list_oldest(db: Db, topic: str) -> list[OldestMessage]:
    """Return the oldest messages of a topic, in order; at most as many as one transaction deletes."""
    return db.records(SQL.list_oldest, OldestMessage, topic=topic, most=_PART)


def find_needed(db: Db) -> Mapping[str, Needed]:
    """Return, by topic, the oldest message that an open job or an unfinished run names."""
    held = {
        topic: Needed(seq, job_id, f"wait until {job_id} has ended, or drop it: `tidemill job drop {job_id}`")
        for topic, seq, job_id in db.records(SQL.list_held, tuple[str, int, str])
    }
    for run_id, cause in db.records(SQL.list_causes, tuple[RunId, dict[str, Any]]):
        for leaf in leaves_of(cause):
            for place in leaf.places:
                if place.topic not in held or place.seq < held[place.topic].seq:
                    cure = f"wait until {run_id} has ended, or end it: `tidemill run kill {run_id}`"
                    held[place.topic] = Needed(place.seq, run_id, cure)
    return held


def delete_messages(db: Db, topic: str, last: Position) -> None:
    """Delete the messages of a topic up to the position `last`."""
    db.run(SQL.delete_messages, topic=topic, seq=last.seq, n=last.n)


def delete_quarantined(db: Db, topic: str, last: Position) -> None:
    """Delete the records of unreadable messages of a topic up to the position `last`."""
    db.run(SQL.delete_quarantined, topic=topic, seq=last.seq, n=last.n)


def delete_part(catalog: Catalog, block: Callable[[Db], int]) -> int:
    """Run `block`, which deletes a part of the messages of a topic, in a transaction; return the number it gives."""
    catalog.world.mark("topics.before_part")
    deleted = catalog.write(block)
    catalog.world.mark("topics.part_deleted")
    return deleted
