"""Consumers, as `Mill` offers them: the managed ones, and the one whose state the caller keeps.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.catalog.db import Db
from tidemill.lake.consumer import FROM_BEGINNING, PartitionConsumerResult, PartitionConsumerState, consume_partitions
from tidemill.lake.datasets import Dataset
from tidemill.lake.fileset import Fileset
from tidemill.lake.managed import Consumer, WorkState, find_consumer, list_consumers, list_work, measure_lag
from tidemill.mill.project import MOST_SHOWN, Project, datasets_by_id
from tidemill.schedule import jobs


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """A managed consumer of a file set: its state, and what waits for it.

    `waiting` counts what it has not taken yet; `in_progress` and `discarded` what it has.
    """

    dataset: str
    name: str
    waiting: int
    bytes: int
    oldest_at: int | None
    in_progress: int
    discarded: int
    start_version: int
    versions_to_check: tuple[int, ...]


class Consumers(Project):
    """Operations on consumers."""

    def list_consumers(self, *, dataset: str | None = None) -> list[ConsumerView]:
        """All consumers (of one data set) by name, with what waits for each."""

        def block(db: Db) -> list[ConsumerView]:
            only = None if dataset is None else self._dataset(db, dataset).dataset_id
            by_id = datasets_by_id(db)
            found = [c for c in list_consumers(db) if only in {None, c.dataset_id}]
            return [_consumer_view(db, consumer, by_id) for consumer in found]

        return self.catalog.read(block)

    def show_consumer(self, dataset: str, name: str) -> ConsumerView:
        """One consumer; `NotFound`."""

        def block(db: Db) -> ConsumerView:
            found = self._dataset(db, dataset)
            consumer = find_consumer(db, found.dataset_id, name)
            return _consumer_view(db, consumer, {found.dataset_id: found})

        return self.catalog.read(block)

    def consume_partitions(
        self, dataset: str, state: PartitionConsumerState = FROM_BEGINNING
    ) -> PartitionConsumerResult:
        """What is new in a file set since `state`, oldest first, and the state to store with what becomes of it.

        For whoever keeps the state by themselves (seed 000); `PartitionConsumer` keeps it in memory. `NotFound`.
        """
        fileset = Fileset.of(self.catalog.read(lambda db: self._dataset(db, dataset)))
        return consume_partitions(self.catalog, fileset, state)


def _consumer_view(db: Db, consumer: Consumer, by_id: Mapping[str, Dataset]) -> ConsumerView:
    lag = measure_lag(db, consumer)
    held = {
        state: len(list_work(db, consumer.consumer_id, state, MOST_SHOWN))
        for state in (WorkState.IN_PROGRESS, WorkState.DISCARDED)
    }
    return ConsumerView(
        by_id[consumer.dataset_id].qualified_name,
        consumer.name,
        lag.partitions,
        lag.bytes,
        None if lag.oldest is None else jobs.to_ms(lag.oldest),
        held[WorkState.IN_PROGRESS],
        held[WorkState.DISCARDED],
        consumer.state.start_version,
        tuple(consumer.state.versions_to_check),
    )
