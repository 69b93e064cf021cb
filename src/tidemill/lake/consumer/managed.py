"""Managed consumers: the records that the catalog keeps of them, and of what waits for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, cast

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.named import Row, load_sql
from tidemill.errors import Conflict, NotFound
from tidemill.json_specs import read_text, write_checked
from tidemill.lake.consumer.consumer import FROM_BEGINNING, PartitionConsumerState
from tidemill.lake.consumer.starts import Position
from tidemill.lake.consumer.terms import BadTerms, Terms
from tidemill.lake.keys import KeyText
from tidemill.names import CommitSeq, ConsumerId, DatasetId, RunId, WritePointer, nearest, split_qualified

if TYPE_CHECKING:
    from tidemill.lake.consumer.managed_sql import Sql

SQL: Sql = load_sql(__file__)


class WorkState(StrEnum):
    """How far a change has come in the working set of a consumer; `DISCARDED` is what failed too often, alone."""

    NEW = "new"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    DISCARDED = "discarded"


@refusal
class ConsumerMoved(Conflict):
    """Somebody has reset the consumer meanwhile."""

    code = "consumer_moved"

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        super().__init__(f"consumer {consumer} was reset meanwhile: look at it again")


@dataclass(frozen=True, slots=True)
class Consumer:
    """A consumer whose state the catalog keeps; a program's is named `<namespace>.<app>.<program>`.

    Commits before `since_seq` do not concern the consumer. `dropped` counts the partitions that were dropped before a
    run processed them, since the last reset.
    """

    consumer_id: ConsumerId
    dataset_id: DatasetId
    name: str
    state: PartitionConsumerState
    since_seq: CommitSeq
    terms: Terms
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """A row of a working set, for people."""

    write_pointer: WritePointer
    partition_key: KeyText
    state: WorkState
    failures: int
    not_before: datetime | None
    run_id: RunId | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Lag:
    """What a consumer has not taken yet; `oldest` is when the longest waiting change committed."""

    partitions: int
    bytes: int
    oldest: datetime | None


def ensure_consumer(
    db: Db, dataset_id: DatasetId, name: str, terms: Terms | None = None, position: Position | None = None
) -> Consumer:
    """Give the consumer of this name with these terms; made, if there was none, at `position`, else the beginning."""
    # Made from what it is unique by, so that two deployments at once make the same. One that was dropped, whose rows
    # stay as its history, gets another id when it comes again.
    lives = db.all(SQL.count_lives, dataset_id=dataset_id, name=name)[0][0]
    unique = f"{dataset_id}/{name}" if lives == 0 else f"{dataset_id}/{name}/{lives!r}"
    digest = hashlib.sha256(unique.encode()).hexdigest()
    state = FROM_BEGINNING if position is None else position.state
    terms = terms or Terms()
    db.run(
        SQL.put_consumer,
        consumer_id=f"consumer_{digest[:26]}",
        dataset_id=dataset_id,
        name=name,
        since_seq=0 if position is None else position.since_seq,
        start_version=state.start_version,
        versions_to_check=json.dumps(state.versions_to_check),
        spec=json.dumps(write_checked(terms, BadTerms)),
        attempts=terms.attempts,
    )
    return find_consumer(db, dataset_id, name)


def find_consumer(db: Db, dataset_id: DatasetId, name: str) -> Consumer:
    """The consumer of this name; `NotFound` with the nearest."""
    row = db.one(SQL.find_consumer, dataset_id=dataset_id, name=name)
    if row is None:
        known = [consumer.name for consumer in list_consumers(db) if consumer.dataset_id == dataset_id]
        raise NotFound("consumer", name, nearest(name, known), hint="`tidemill consumer list` shows those there are")
    return to_consumer(row)


def find_readers(db: Db, wanted: Iterable[tuple[str, str]]) -> list[Consumer]:
    """Return those consumers that exist, named by (qualified data set, consumer). Cost: a look-up for each name."""
    names = [(*split_qualified("data set", dataset, 1), name) for dataset, name in sorted(set(wanted))]
    rows = [{"namespace": namespace, "dataset": local, "consumer": name} for namespace, (local,), name in names]
    return [to_consumer(row) for row in db.all(SQL.find_readers, wanted=json.dumps(rows))]


def list_consumers(db: Db) -> list[Consumer]:
    """All consumers, by name."""
    return [to_consumer(row) for row in db.all(SQL.list_consumers)]


def list_work(db: Db, consumer_id: ConsumerId, state: WorkState, limit: int) -> list[Work]:
    """At most `limit` rows of the working set that are in `state`, oldest write pointer first; completed ones never.

    Cost: how many are in the state.
    """
    return db.records(SQL.list_work, Work, consumer_id=consumer_id, state=state, limit=limit)


def count_work(db: Db, consumer_id: ConsumerId) -> tuple[int, int]:
    """Return the number of changes that runs hold, and of those that are discarded. Cost: these numbers."""
    return db.records(SQL.count_work, tuple[int, int], consumer_id=consumer_id)[0]


def measure_lag(db: Db, consumer: Consumer) -> Lag:
    """How far the consumer is behind. Cost: what waits."""
    return db.records(
        SQL.measure_lag,
        Lag,
        consumer_id=consumer.consumer_id,
        dataset_id=consumer.dataset_id,
        start_version=consumer.state.start_version,
        versions_to_check=json.dumps(consumer.state.versions_to_check),
    )[0]


def to_consumer(row: Row) -> Consumer:
    """A row of the columns that `find_consumer` selects, as a record."""
    consumer_id, dataset_id, name, start_version, versions, since_seq, spec, dropped = row
    late = tuple(map(WritePointer, json.loads(str(versions))))
    state = PartitionConsumerState(WritePointer(cast("int", start_version)), late)
    return Consumer(
        ConsumerId(str(consumer_id)),
        DatasetId(str(dataset_id)),
        str(name),
        state,
        CommitSeq(cast("int", since_seq)),
        read_text(Terms, str(spec)),
        cast("int", dropped),
    )
