"""Change feeds: what differs between the version that a program has seen last and the one that is current.

A feed is a consumer of a snapshot. Its position is the write pointer of the transaction that committed with it last:
what that saw is what the program has seen, and is kept for it. A run gets the difference from there to what its own
transaction sees, and moves the position in its commit, by compare-and-set: so every change is in the input of exactly
one committed run, however many run at once, and a roll-back is a change like any other.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Snapshot as TransactionSnapshot
from tidemill.catalog.transactions import Transaction
from tidemill.errors import Conflict, UserError
from tidemill.lake.consumer.managed import SQL as CONSUMERS
from tidemill.lake.consumer.managed import Consumer, Lag
from tidemill.lake.snapshot.snapshot import SnapshotDataset, Version, VersionGone, find_visible
from tidemill.names import DatasetId, Namespace

if TYPE_CHECKING:
    from tidemill.lake.snapshot.changes_sql import Sql

SQL: Sql = load_sql(__file__)


@refusal
class FeedMoved(Conflict):
    """Another run has committed with the same changes, or a person has reset the consumer."""

    code = "feed_moved"

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        super().__init__(
            f"another run of {consumer} has committed with these changes, or its consumer was reset meanwhile",
            "run again to get those since then",
        )


class BaseGone(UserError):
    """The version that a feed was to start from is no longer there."""

    code = "base_gone"

    def __init__(self, dataset: str, consumer: str, version: int) -> None:
        self.dataset = dataset
        self.consumer = consumer
        self.version = version
        super().__init__(
            f"{consumer} cannot get what changed in {dataset} since version {version}, which has expired",
            f"`tidemill consumer reset {dataset} {consumer} --to beginning` gives it all rows as inserted",
        )


@dataclass(frozen=True, slots=True)
class FeedChange:
    """Changes of a feed in one transaction: from `old` (None: nothing yet) to `new` (None: no version yet)."""

    snapshot: SnapshotDataset
    consumer: Consumer
    old: Version | None
    new: Version | None

    @property
    def empty(self) -> bool:
        """True if nothing has changed."""
        return self.new is None or (self.old is not None and self.old.version == self.new.version)


def find_feed(db: Db, dataset_id: DatasetId, name: str) -> Consumer | None:
    """The feed of the program of that name, if it has one of this snapshot."""
    return db.record(CONSUMERS.find_consumer, Consumer, dataset_id=dataset_id, name=name)


def forget_feeds(db: Db, namespace: Namespace, app: str, followed: Collection[tuple[DatasetId, str]]) -> None:
    """Forget the feeds of an app's programs, retired programs included, except `followed`: snapshot and name.

    No program asks for these feeds any more, so that no version is kept for them. A run that was given their changes
    cannot commit.
    """
    feeds = db.all(SQL.lock_feeds, namespace=namespace, app=app)
    gone = [str(feed_id) for feed_id, dataset_id, name in feeds if (dataset_id, name) not in followed]
    if gone:
        db.run(SQL.forget_all_unseen, feeds=json.dumps(gone))
        db.run(SQL.forget_feeds, feeds=json.dumps(gone))


def find_changes(db: Db, snapshot: SnapshotDataset, consumer: Consumer, tx: Transaction) -> FeedChange:
    """Return the changes of the feed for this transaction.

    `BaseGone` if a reset has moved the feed to a version that retention has expired.
    """
    new = find_visible(db, snapshot.dataset_id, tx)
    position = consumer.state.start_version
    if position >= tx.write_pointer:
        return FeedChange(snapshot, consumer, new, new)  # one that began later has committed: going back would double
    try:
        old = find_visible(db, snapshot.dataset_id, TransactionSnapshot(position, tx.incarnation))
    except VersionGone as error:
        raise BaseGone(snapshot.qualified_name, consumer.name, error.version) from None
    return FeedChange(snapshot, consumer, old, new)


def measure_feed(db: Db, consumer: Consumer) -> Lag:
    """Measure the lag of the feed: 1 if there is a newer version, and the time of that version.

    Bytes are the version's.
    """
    unseen = db.record(
        SQL.find_unseen,
        tuple[int, datetime],
        dataset_id=consumer.dataset_id,
        position=consumer.state.start_version,
    )
    return Lag(1, *unseen) if unseen else Lag(0, 0, None)


@dataclass(frozen=True, slots=True)
class MoveFeed(Effect):
    """Consume the changes that the transaction was given.

    `FeedMoved` if another run has consumed them, or a reset has moved the feed.
    """

    phase = Phase.CLAIMS

    tx: Transaction
    consumer: Consumer

    def writes(self) -> Sequence[Call]:
        """Compare, and set."""
        place: dict[str, Param] = {
            "consumer_id": self.consumer.consumer_id,
            "position": self.consumer.state.start_version,
        }
        return (
            SQL.refuse_if_feed_moved(**place, name=self.consumer.name),
            SQL.move_feed(**place, write_pointer=self.tx.write_pointer),
            SQL.forget_unseen(consumer_id=self.consumer.consumer_id, write_pointer=self.tx.write_pointer),
        )
