"""`PartitionInput`: the partitions of a file set that a run works on, claimed by the consumer of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.errors import UserError
from tidemill.lake.consumer.backlog import NoteUnread, next_due, publish_due
from tidemill.lake.consumer.claims import CompleteClaims, FailClaims, RestampClaims, ReturnClaims, SkipOwn, holds_any
from tidemill.lake.consumer.consumer import ConsumedPartition, describe
from tidemill.lake.consumer.discards import Discard, TellDiscards, find_untold
from tidemill.lake.consumer.managed import Consumer, find_consumer
from tidemill.lake.consumer.take import Delivery, has_work, return_claims, take_claims
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import Fileset, Partition
from tidemill.lake.keys import KeyText, KeyValue
from tidemill.names import ConsumerId, RunId
from tidemill.run.acceptors import choose
from tidemill.run.input_kind import Blame, ConsumerKind, TakenInput
from tidemill.run.programs import Code, Program
from tidemill.run.runs import RunRecord
from tidemill.run.workspace import Workspace
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class NotTaken(UserError):
    """A partition is returned that the run does not have, or has returned already."""

    code = "not_taken"

    def __init__(self, dataset: str, partition: str) -> None:
        self.dataset = dataset
        self.partition = partition
        super().__init__(f"this run does not have {partition} of {dataset}: return only partitions in `partitions`")


@dataclass(frozen=True, slots=True)
class DiscardedPartition:
    """A partition that failed too often, alone, or that changed where that is an error; `error` is what was said."""

    key: Mapping[str, KeyValue]
    error: str


class PartitionInput:
    """The partitions of a file set that this run got, and no other run of its consumer."""

    def __init__(self, run: Workspace, taken: TakenPartitions) -> None:
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

    def return_partitions(self, *partitions: Mapping[str, KeyValue]) -> None:
        """Return some of `partitions`, without a failure: this run does not complete them, a later one gets them.

        After a while, at least the program's back-off, and the longer they have waited the later, up to an hour. At
        once, whether or not the run succeeds. `NotTaken` for what the run does not have.
        """
        keys = self._fileset.keys
        chosen = {keys.encode(keys.check(partition)) for partition in partitions}
        missing = chosen - {delivery.partition_key for delivery in self._taken.deliveries}
        if missing:
            raise NotTaken(self._fileset.qualified_name, self._fileset.show(min(missing)))
        self._run.return_claims(self._taken.consumer_id, sorted(chosen), self._taken.wait)
        self._taken.deliveries = [one for one in self._taken.deliveries if one.partition_key not in chosen]

    def read(self) -> DataFrame:
        """Exactly what was delivered: of new and overwritten partitions all, of appended ones what was added."""
        from tidemill.lake.spark import read_partitions as read_frame

        parts = [Partition(delivery.partition_key, delivery.changes) for delivery in self.deliveries]
        columns = self._run.columns_of(self._fileset)
        frame = read_frame(self._run.world, self._run.spark, self._fileset, parts, columns)
        self._run.reads.add(self._fileset, parts)
        return frame


@dataclass(slots=True)
class TakenPartitions(TakenInput):
    """What a run has taken of a file set by a consumer; `deliveries` are what it still has."""

    fileset: Fileset
    consumer_id: ConsumerId
    deliveries: list[Delivery]
    wait: timedelta
    """The shortest wait of a returned partition."""
    discards: Sequence[Discard] | None = None
    """What was given up of it before and nobody was told of; None until the program asks."""

    @property
    def empty(self) -> bool:
        """Whether no partition is left."""
        return not self.deliveries

    def open(self, run: Workspace) -> PartitionInput:
        """Return what the program sees."""
        return PartitionInput(run, self)

    def count(self) -> dict[str, object]:
        """Return the number of partitions and rows."""
        rows = sum(change.manifest.total_rows for delivery in self.deliveries for change in delivery.changes)
        return {"kind": "fileset", "count": len(self.deliveries), "rows": rows}

    def return_some(self, catalog: Catalog, tx: Transaction, keys: Sequence[KeyText], wait: timedelta | None) -> None:
        """Return claims without a failure: for the next run, or for one after `wait`."""
        return_claims(catalog, tx, self.consumer_id, keys, wait)


@dataclass(eq=False)
class Partitions(ConsumerKind):
    """The file sets that a program reads, each by its consumer."""

    program: Program
    sources: Mapping[str, tuple[Fileset, Consumer]]
    taken: Mapping[str, TakenPartitions] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, db: Db, program: Program, datasets: Mapping[str, Dataset]) -> Partitions:
        """Find the consumers of the program."""
        sources = {
            name: (Fileset.of(dataset), find_consumer(db, dataset.dataset_id, program.qualified_name))
            for name, dataset in datasets.items()
            if dataset.kind is DatasetKind.FILESET
        }
        return cls(program, sources)

    def begin(self, record: RunRecord, world: World) -> Sequence[Effect]:
        """Hand the claims over."""
        del world
        return (RestampClaims(record.run_id, record.epoch),)

    def take(self, catalog: Catalog, tx: Transaction) -> None:
        """Claim of all consumers at once."""
        consumers = {consumer.consumer_id: consumer.terms for _, consumer in self.sources.values()}
        delivered = take_claims(catalog, tx, consumers) if consumers else {}
        self.taken = {
            name: TakenPartitions(fileset, consumer.consumer_id, delivered[consumer.consumer_id], self.program.backoff)
            for name, (fileset, consumer) in self.sources.items()
        }

    def accept(self, catalog: Catalog, tx: Transaction, acceptors: Mapping[str, Code]) -> None:
        """Ask the acceptors in the order of the deliveries.

        What stands behind a stop goes to the next run at once, if this one works on anything; else it would begin with
        the same, and so on: then it waits, as what was skipped does.
        """
        for name, acceptor in acceptors.items():
            taken = self.taken[name]
            chosen = choose(taken.fileset, taken.deliveries, acceptor)
            taken.deliveries = chosen.accepted
            taken.return_some(catalog, tx, [one.partition_key for one in chosen.skipped], taken.wait)
            wait = None if chosen.accepted else taken.wait
            taken.return_some(catalog, tx, [one.partition_key for one in chosen.left], wait)

    def complete(self, tx: Transaction) -> Sequence[Effect]:
        """Complete the claims, and those of partitions that the run itself publishes and does not want."""
        effects: list[Effect] = [CompleteClaims(tx.run_id, tx.epoch)]
        effects += [
            TellDiscards(tx.run_id, consumer, told)
            for name, (_, consumer) in self.sources.items()
            if (told := self.taken[name].discards)
        ]
        if not self.program.deliver_own:
            own = [consumer for name, (_, consumer) in self.sources.items() if name in self.program.writes]
            effects += [SkipOwn(tx, consumer.dataset_id, consumer.name) for consumer in own]
        return effects

    def has_work(self, db: Db) -> bool | None:
        """Whether a take of one of the consumers would find anything."""
        return any(has_work(db, consumer) for _, consumer in self.sources.values()) if self.sources else None

    @staticmethod
    def note_unseen(ids: Sequence[str]) -> Sequence[Effect]:
        """Put the first changes that no take has seen into the working sets."""
        return (NoteUnread([ConsumerId(one) for one in ids]),)

    @staticmethod
    def next_due(db: Db) -> int | None:
        """Return when the next partition may be claimed again."""
        return next_due(db)

    @staticmethod
    def announce_due(catalog: Catalog) -> None:
        """Announce the consumers whose partitions may be claimed again."""
        publish_due(catalog)

    @staticmethod
    def holds(db: Db, run_id: RunId) -> bool:
        """Whether the run has claims of partitions."""
        return holds_any(db, run_id)

    @staticmethod
    def fail(run_id: RunId, epoch: int, blame: Blame) -> Sequence[Effect]:
        """Count a failure of all partitions that the run holds."""
        return (FailClaims(run_id, epoch, blame.error),)

    @staticmethod
    def return_claims(run_id: RunId, epoch: int, blame: Blame | None, backoff: timedelta) -> Sequence[Effect]:
        """Return the partitions; one that failed alone and too often is discarded."""
        return (ReturnClaims(run_id, epoch, blame is not None, blame.error if blame else "", backoff),)
