"""`PartitionInput`: the partitions of a file set that a run works on, claimed by the consumer of its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Transaction
from tidemill.errors import UserError
from tidemill.lake.consumer.consumer import ConsumedPartition, describe
from tidemill.lake.consumer.discards import Discard, find_untold
from tidemill.lake.consumer.take import Delivery
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition
from tidemill.lake.keys import KeyText, KeyValue
from tidemill.names import ConsumerId
from tidemill.run.reads import Reads
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


class NotTaken(UserError):
    """A partition is put back that the run does not have, or has put back already."""

    code = "not_taken"

    def __init__(self, dataset: str, partition: str) -> None:
        self.dataset = dataset
        self.partition = partition
        super().__init__(f"this run does not have {partition} of {dataset}: put back what stands in `partitions`")


@dataclass(slots=True)
class TakenPartitions:
    """What a run has taken of a file set by a consumer; `deliveries` are what it still has."""

    fileset: Fileset
    consumer_id: ConsumerId
    deliveries: list[Delivery]
    wait: timedelta
    """How long at least what is put back waits."""
    discards: Sequence[Discard] | None = None
    """What was given up of it before and nobody was told of; None until the program asks."""


@dataclass(frozen=True, slots=True)
class DiscardedPartition:
    """A partition that failed too often, alone, or that changed where that is an error; `error` is what was said."""

    key: Mapping[str, KeyValue]
    error: str


class PartitionRun(Protocol):
    """The run, as its partitions need it."""

    world: World

    @property
    def reads(self) -> Reads:
        """The changes that the attempt has read."""

    @property
    def spark(self) -> SparkSession:
        """The session of this attempt."""

    def ask(self, block: Callable[[Db, Transaction], T]) -> T:
        """Return what `block` reads of the catalog."""

    def columns_of(self, fileset: Fileset) -> ColumnSchema | None:
        """Return the columns in a file set's files."""

    def put_back(self, taken: TakenPartitions, keys: Sequence[KeyText]) -> None:
        """Return claims of an input."""


class PartitionInput:
    """The partitions of a file set that this run got, and no other run of its consumer."""

    def __init__(self, run: PartitionRun, taken: TakenPartitions) -> None:
        self._run = run
        self._fileset = taken.fileset
        self._taken = taken

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """What was delivered, in the order of the consumer's terms: the oldest first, if they say nothing."""
        return tuple(self._taken.deliveries)

    @property
    def partitions(self) -> list[dict[str, KeyValue]]:
        """Their keys, in the same order."""
        keys = self._fileset.keys
        return [dict(zip(keys.names, keys.decode(d.partition_key), strict=True)) for d in self.deliveries]

    @property
    def discarded(self) -> list[DiscardedPartition]:
        """Partitions that were given up: no run gets them any more, until `tidemill consumer requeue`.

        Each is told to one committed run of this program that asks.
        """
        taken, keys = self._taken, self._fileset.keys
        if taken.discards is None:
            taken.discards = self._run.ask(lambda db, _: find_untold(db, taken.consumer_id))
        return [
            DiscardedPartition(dict(zip(keys.names, keys.decode(one.partition_key), strict=True)), one.error)
            for one in taken.discards
        ]

    @property
    def delivered(self) -> list[ConsumedPartition]:
        """Each with its key, its kind (new, appended, overwritten), its rows, and its files for other engines.

        The values of the key are not in the files.
        """
        return [
            describe(self._fileset, delivery.kind, Partition(delivery.partition_key, delivery.changes))
            for delivery in self.deliveries
        ]

    def put_back(self, *partitions: Mapping[str, KeyValue]) -> None:
        """Return some of `partitions`, without a failure: this run does not complete them, a later one gets them.

        After a while, at least the program's back-off, and the longer they have waited the later, up to an hour. At
        once, whether or not the run succeeds. `NotTaken` for what the run does not have.
        """
        keys = self._fileset.keys
        chosen = {keys.encode(keys.check(partition)) for partition in partitions}
        missing = chosen - {delivery.partition_key for delivery in self._taken.deliveries}
        if missing:
            raise NotTaken(self._fileset.qualified_name, self._fileset.show(min(missing)))
        self._run.put_back(self._taken, sorted(chosen))

    def read(self) -> DataFrame:
        """Exactly what was delivered: of new and overwritten partitions all, of appended ones what was added."""
        from tidemill.lake.spark import read_partitions as read_frame

        parts = [Partition(delivery.partition_key, delivery.changes) for delivery in self.deliveries]
        columns = self._run.columns_of(self._fileset)
        frame = read_frame(self._run.world, self._run.spark, self._fileset, parts, columns)
        self._run.reads.add(self._fileset, parts)
        return frame
