"""Managed consumers: the records that the catalog keeps of them, and of what waits for them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.named import ALL_ROWS, load_sql
from tidemill.errors import Conflict, NotFound
from tidemill.json_specs import read_text, write_checked
from tidemill.lake.consumer.consumer import FROM_BEGINNING, PartitionConsumerState
from tidemill.lake.consumer.starts import StartPosition
from tidemill.lake.consumer.terms import BadTerms, Terms
from tidemill.lake.datasets import find_by_id
from tidemill.names import (
    CommitSeq,
    ConsumerId,
    DatasetId,
    RunId,
    WritePointer,
    namespace_of_consumer,
    nearest,
    split_qualified,
)
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.lake.consumer.managed_sql import Sql

SQL: Sql = load_sql(__file__)


class WorkState(StrEnum):
    """State of a change in the working set of a consumer.

    `DISCARDED` is a change that failed too often, the last time alone.
    """

    NEW = "new"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    DISCARDED = "discarded"


@refusal
class ConsumerMoved(Conflict):
    """A person has reset the consumer meanwhile."""

    code = "consumer_moved"

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        super().__init__(f"consumer {consumer} was reset meanwhile", "look at it again", before=": ")


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
    spec: str
    dropped: int = 0

    @property
    def terms(self) -> Terms:
        """The terms in `spec`."""
        return _read_terms(self.spec)


@lru_cache(maxsize=1024)
def _read_terms(spec: str) -> Terms:
    # On demand, since a list shows the text: the first spec that a process reads costs it 50 ms.
    return read_text(Terms, spec)


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
    """Changes that a consumer has not taken yet. `oldest` is the commit time of the change that waits longest."""

    partitions: int
    bytes: int
    oldest: datetime | None


def ensure_consumer(
    db: Db, dataset_id: DatasetId, name: str, terms: Terms | None = None, position: StartPosition | None = None
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
    """The consumer of this name; `NotFound` with the nearest, unless the nearest is of another namespace."""
    found = db.record(SQL.find_consumer, Consumer, dataset_id=dataset_id, name=name)
    if found is None:
        namespace = find_by_id(db, dataset_id).namespace
        names = (consumer.name for consumer in list_consumers(db, dataset_id=dataset_id))
        known = [one for one in names if namespace_of_consumer(one) in (None, namespace)]
        raise NotFound("consumer", name, nearest(name, known), hint="`tidemill consumer list` lists them all")
    return found


def find_readers(db: Db, wanted: Iterable[tuple[str, str]]) -> list[Consumer]:
    """Return those consumers that exist, named by (qualified data set, consumer). Cost: a look-up for each name."""
    names = [(*split_qualified("data set", dataset, 1), name) for dataset, name in sorted(set(wanted))]
    rows = [{"namespace": namespace, "dataset": local, "consumer": name} for namespace, (local,), name in names]
    return db.records(SQL.find_readers, Consumer, wanted=json.dumps(rows))


def find_holding(db: Db, run_id: RunId) -> list[Consumer]:
    """Return the consumers by which the run holds partitions. Cost: what the run holds."""
    return db.records(SQL.find_holding, Consumer, run_id=run_id)


def list_consumers(
    db: Db,
    *,
    dataset_id: DatasetId | None = None,
    name: str | None = None,
    after: tuple[str, str] = ("", ""),
    limit: int = ALL_ROWS,
) -> list[Consumer]:
    """List consumers (of a data set; of a name) by name, from the name and data set behind `after` on."""
    only = {"dataset_id": dataset_id or "", "name": name or ""}
    after_name, after_dataset = after
    place = {"after_name": after_name, "after_dataset": after_dataset}
    return db.records(SQL.list_consumers, Consumer, **only, **place, limit=limit)


def list_work(db: Db, consumer_id: ConsumerId, state: WorkState, limit: int) -> list[Work]:
    """At most `limit` rows of the working set that are in `state`, oldest write pointer first; completed ones never.

    Cost: how many are in the state.
    """
    return db.records(SQL.list_work, Work, consumer_id=consumer_id, state=state, limit=limit)


def count_work(db: Db, consumer_id: ConsumerId) -> tuple[int, int]:
    """Return the number of changes that runs hold, and of those that are discarded. Cost: these numbers."""
    return db.records(SQL.count_work, tuple[int, int], consumer_id=consumer_id)[0]


def measure_lag(db: Db, consumer: Consumer) -> Lag:
    """Measure the lag of the consumer. Cost: the waiting changes."""
    return db.records(
        SQL.measure_lag,
        Lag,
        consumer_id=consumer.consumer_id,
        dataset_id=consumer.dataset_id,
        start_version=consumer.state.start_version,
        versions_to_check=json.dumps(consumer.state.versions_to_check),
    )[0]
