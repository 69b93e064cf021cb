"""Starts of consumers: the beginning, now, or a time, and their meaning in ticks of the clock.

A start is a tick s: changes that committed at s or later are delivered, and no earlier ones. As a state of a consumer,
the start is s with the transactions that were open at s. A take with write pointer s would have left the same state.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import Snapshot, find_in_progress
from tidemill.epoch import floor_ms
from tidemill.errors import UserError
from tidemill.lake.consumer.consumer import FROM_BEGINNING, PartitionConsumerState
from tidemill.names import CommitSeq, DatasetId, WritePointer, advise

if TYPE_CHECKING:
    from tidemill.lake.consumer.starts_sql import Sql

SQL: Sql = load_sql(__file__)


class BadStart(UserError):
    """A start of a consumer that is neither a word that is known nor a time that has been."""

    code = "bad_start"
    hint = "start at beginning, at now, or at a time that has been"

    def __init__(self, given: str, why: str) -> None:
        self.given = given
        super().__init__(f"a consumer cannot start at {given!r}: {why}")


class NamedStart(StrEnum):
    """The starts that have a name."""

    BEGINNING = "beginning"
    """All that there is, and all that comes."""
    NOW = "now"
    """Only what commits from now on."""


@dataclass(frozen=True, slots=True)
class Start:
    """Start of a consumer. `time`, if given, takes the place of a name."""

    named: NamedStart = NamedStart.BEGINNING
    time: datetime | None = None

    @classmethod
    def parse(cls, given: str | datetime) -> Start:
        """`beginning`, `now`, or a time: an aware datetime, or its text in ISO 8601 (UTC without an offset)."""
        if isinstance(given, datetime):
            if given.tzinfo is None:
                raise BadStart(str(given), "the time has no zone; say `datetime(…, tzinfo=UTC)`")
            return cls(NamedStart.NOW, given.astimezone(UTC))
        if given in {start.value for start in NamedStart}:
            return cls(NamedStart(given))
        try:
            time = datetime.fromisoformat(given)
            return cls(NamedStart.NOW, time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC))
        except (ValueError, OverflowError):
            usual = "use beginning, now or a time like 2026-01-31T06:00:00Z"
            raise BadStart(given, advise(given, [start.value for start in NamedStart], usual)) from None

    def __str__(self) -> str:
        return self.named.value if self.time is None else self.time.isoformat()


@dataclass(frozen=True, slots=True)
class StartPosition:
    """A start in ticks: which commits are delivered, and the state that delivers them."""

    since_seq: CommitSeq
    state: PartitionConsumerState


def find_position(db: Db, dataset_id: DatasetId, start: Start, tick: CommitSeq) -> StartPosition:
    """Return the position of `start` in a data set. `tick` was taken just before, or in this transaction.

    A time is compared with the clock at each commit. The position lies behind the last change that committed before the
    time, in the order of commits. So no later change is skipped, even if a person has set the clock back between the
    commits. `BadStart` for a time in the future. Cost: the changes that will be delivered.
    """
    if start.named is NamedStart.BEGINNING:
        return StartPosition(CommitSeq(0), FROM_BEGINNING)
    since = tick
    if start.time is not None:
        moment = floor_ms(start.time)
        if moment > db.now():
            raise BadStart(str(start), "that time is still to come; use now")
        row = db.one(SQL.find_last_before, dataset_id=dataset_id, moment=moment)
        since = CommitSeq(0) if row is None else CommitSeq(int(str(row[0])) + 1)
    # The list can be computed at any later time: what is open now and began before, and what has committed since.
    late = find_in_progress(db, dataset_id, Snapshot(WritePointer(since), ""))
    return StartPosition(since, PartitionConsumerState(WritePointer(since), tuple(late)))
