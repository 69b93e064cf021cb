"""The course of a run: its attempts, each a transaction, and the messages that its commit published."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import TxState
from tidemill.names import CommitSeq, RunId, WritePointer

if TYPE_CHECKING:
    from tidemill.mill.run_course_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_ATTEMPTS: Final = 50
"""The newest attempts of a run that are shown."""
MOST_PUBLISHED: Final = 50
"""Messages of one commit that are shown."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """An attempt of a run that has begun its transaction. `reason` says why the transaction ended without a commit."""

    epoch: int
    write_pointer: WritePointer
    state: TxState
    commit_seq: CommitSeq | None
    began_at: datetime
    ended_at: datetime | None
    reason: str | None


class PublishedMessageRow(NamedTuple):
    """Row of a message that a commit published."""

    topic: str
    seq: int
    n: int
    event_type: str
    event_key: str


@dataclass(frozen=True, slots=True)
class AnnouncedMessage:
    """A message that the commit of a run published: its topic and position, its type and its key."""

    topic: str
    position: str
    event_type: str
    event_key: str


def read_attempts(db: Db, run_id: RunId) -> tuple[AttemptView, ...]:
    """Return the attempts of a run, oldest first, at most the newest 50. Cost: look-ups for these.

    A worker has one transaction for each of its commits. An attempt that could not begin a transaction is not there.
    """
    newest = db.records(SQL.list_attempts, AttemptView, run_id=run_id, limit=MOST_ATTEMPTS)
    return tuple(reversed(newest))


def read_published(db: Db, commit_seq: CommitSeq) -> tuple[AnnouncedMessage, ...]:
    """Return the first 50 messages that a commit published, by topic. Cost: a look at each topic."""
    rows = db.records(SQL.list_published, PublishedMessageRow, seq=commit_seq, limit=MOST_PUBLISHED)
    return tuple(AnnouncedMessage(one.topic, f"{one.seq}.{one.n}", one.event_type, one.event_key) for one in rows)
