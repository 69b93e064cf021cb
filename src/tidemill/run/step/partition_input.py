"""`PartitionInput`: the partitions of a file set that a run works on, claimed by the consumer of its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Self

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.errors import UserError
from tidemill.lake.claims import ClaimTable
from tidemill.lake.consumer.claims import PARTITIONS, SkipOwn
from tidemill.lake.consumer.consumer import ConsumedPartition, describe
from tidemill.lake.consumer.discards import Discard, ReportDiscards, find_unreported
from tidemill.lake.consumer.managed import Consumer, Lag, find_consumer, find_holding, measure_lag
from tidemill.lake.consumer.take import Delivery, has_work, return_claims, take_claims
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, find_some
from tidemill.lake.fileset.fileset import Fileset, Partition
from tidemill.names import ConsumerId, RunId, WritePointer
from tidemill.run.records.programs import BACKOFF, Code, Program
from tidemill.run.step.acceptors import choose
from tidemill.run.step.input_kind import ConsumerKind, TakenInput
from tidemill.run.step.workspace import Workspace
from tidemill.shapes.keys import KeyText, KeyValue

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class NotTaken(UserError):
    """A partition is returned that the run does not have, or has returned already."""

    code = "not_taken"

    def __init__(self, dataset: str, partition: str) -> None:
        self.dataset = dataset
        self.partition = partition
        super().__init__(
            f"this run does not have {partition} of {dataset}", "return only partitions in `partitions`", before=": "
        )


class NoClaims(UserError):
    """A partition is returned by a run whose input was chosen: no later run would get the partition."""

    code = "no_claims"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"the input of this run was chosen, so that it has no claims on {dataset} to return",
            "start another run with fewer partitions",
        )


class SharedInput(UserError):
    """A node returns partitions that another node of its workflow may have worked on."""

    code = "shared_input"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"partitions of {dataset} cannot be returned: another node of the workflow may have worked on them",
            "return partitions in the first node that reads them",
        )


@dataclass(frozen=True, slots=True)
class DiscardedPartition:
    """Partition that failed too often, alone, or that changed although that is an error. `error` is the last error."""

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
        """Taken partitions, in the order of the consumer's terms. Default: the oldest first."""
        return tuple(self._taken.deliveries)

    @property
    def partitions(self) -> list[dict[str, KeyValue]]:
        """Keys of the delivered partitions, in the same order."""
        keys = self._fileset.keys
        return [dict(zip(keys.names, keys.decode(d.partition_key), strict=True)) for d in self.deliveries]

    @property
    def discarded(self) -> list[DiscardedPartition]:
        """Discarded partitions. No run gets them until `tidemill consumer requeue`.

        Each is reported to one committed run of this program that asks.
        """
        taken, keys = self._taken, self._fileset.keys
        if taken.discards is None:
            taken.discards = self._run.ask(lambda db, _: find_unreported(db, taken.consumer_id))
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
        once, whether or not the run succeeds. `NotTaken` for what the run does not have. `NoClaims` if its input was
        chosen.
        """
        if self._taken.is_chosen:
            raise NoClaims(self._fileset.qualified_name)
        if self._taken.shared:
            raise SharedInput(self._fileset.qualified_name)
        keys = self._fileset.keys
        chosen = {keys.encode(keys.check(partition)) for partition in partitions}
        missing = chosen - {delivery.partition_key for delivery in self._taken.deliveries}
        if missing:
            raise NotTaken(self._fileset.qualified_name, self._fileset.show(min(missing)))
        self._run.return_claims(self._taken.consumer_id, sorted(chosen), self._taken.wait, self._taken.tx)
        self._taken.deliveries = [one for one in self._taken.deliveries if one.partition_key not in chosen]

    def read(self) -> DataFrame:
        """Exactly what was delivered: of new and overwritten partitions all, of appended ones what was added."""
        from tidemill.frames.spark import read_partitions as read_frame

        parts = [Partition(delivery.partition_key, delivery.changes) for delivery in self.deliveries]
        columns = self._run.columns_of(self._fileset)
        frame = read_frame(self._run.world, self._run.spark, self._fileset, parts, columns)
        self._run.reads.add(self._fileset, parts)
        return frame


@dataclass(slots=True)
class TakenPartitions(TakenInput):
    """Partitions of a file set that a run has taken by a consumer. `deliveries` are those that the run still holds."""

    fileset: Fileset
    consumer_id: ConsumerId
    deliveries: list[Delivery]
    wait: timedelta
    """The shortest wait of a returned partition."""
    discards: Sequence[Discard] | None = None
    """Discarded partitions that no committed run has reported. None until the program asks."""
    is_chosen: bool = False
    """True if the run was given them, and has no claims."""
    tx: Transaction | None = None
    """The transaction that names the owner of the claims; None for that of the attempt."""
    shared: bool = False
    """True if another node of the workflow may work on the same partitions."""

    @property
    def empty(self) -> bool:
        """True if no partition is left."""
        return not self.deliveries

    def open(self, run: Workspace) -> PartitionInput:
        """Return what the program sees."""
        return PartitionInput(run, self)

    def count(self) -> dict[str, object]:
        """Return the number of partitions and rows."""
        rows = sum(change.manifest.total_rows for delivery in self.deliveries for change in delivery.changes)
        return {"kind": "fileset", "count": len(self.deliveries), "of": "partition", "rows": rows}

    def return_some(self, catalog: Catalog, tx: Transaction, keys: Sequence[KeyText], wait: timedelta | None) -> None:
        """Return claims without a failure: for the next run, or for one after `wait`."""
        return_claims(catalog, tx, self.consumer_id, keys, wait)


@dataclass(eq=False)
class PartitionInputs(ConsumerKind):
    """The file sets that a program reads, each by its consumer."""

    claims: ClassVar[ClaimTable | None] = PARTITIONS
    source_kind = DatasetKind.FILESET
    delivers_partitions = True

    program: Program | None
    """None for an engine outside, whose consumers belong to no program."""
    sources: Mapping[str, tuple[Fileset, Consumer]]
    limits: Mapping[str, int] = field(default_factory=dict)
    """The most partitions that the take claims, by the names of `sources`, where the terms allow more."""
    taken: Mapping[str, TakenPartitions] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, db: Db, program: Program, datasets: Mapping[str, Dataset], consumers: Mapping[str, Consumer]
    ) -> PartitionInputs:
        """Find the consumers of the program; `NotFound` for one that is missing."""
        sources = {
            name: (
                Fileset.of(dataset),
                consumers.get(name) or find_consumer(db, dataset.dataset_id, program.qualified_name),
            )
            for name, dataset in datasets.items()
            if dataset.kind is cls.source_kind
        }
        return cls(program, sources)

    @classmethod
    def held_by(cls, db: Db, run_id: RunId) -> Self | None:
        """Find the consumers by which the run holds partitions."""
        held = find_holding(db, run_id)
        datasets = find_some(db, (consumer.dataset_id for consumer in held))
        filesets = [(Fileset.of(datasets[consumer.dataset_id]), consumer) for consumer in held]
        return (
            cls(None, {fileset.qualified_name: (fileset, consumer) for fileset, consumer in filesets}) if held else None
        )

    @classmethod
    def find_fault(cls, dataset: Dataset, program: Program) -> str | None:
        """Refuse another data set than a file set: only partitions are taken on terms."""
        del program
        if dataset.kind is cls.source_kind:
            return None
        name = dataset.qualified_name
        return f"reads {name} on terms, but that is a data set of kind {dataset.kind}, not a file set"

    @classmethod
    def show_item(cls, dataset: Dataset, write_pointer: WritePointer, item: str) -> str:
        """Return the partition."""
        del write_pointer
        return Fileset.of(dataset).show(KeyText(item))

    @classmethod
    def measure(cls, db: Db, consumer: Consumer) -> Lag:
        """Measure the partitions that wait."""
        return measure_lag(db, consumer)

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Claim of all consumers at once."""
        del beside
        consumers = {consumer.consumer_id: self._terms(name) for name, (_, consumer) in self.sources.items()}
        delivered = take_claims(catalog, tx, consumers) if consumers else {}
        self.taken = {
            name: TakenPartitions(fileset, consumer.consumer_id, delivered[consumer.consumer_id], self.backoff)
            for name, (fileset, consumer) in self.sources.items()
        }

    @property
    def backoff(self) -> timedelta:
        """The shortest wait of a returned partition."""
        return self.program.backoff if self.program else BACKOFF

    def _terms(self, name: str) -> Terms:
        terms = self.sources[name][1].terms
        if (limit := self.limits.get(name)) is None:
            return terms
        return replace(terms, partitions=min(limit, terms.partitions), old_percent=0)

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
        # Claims of a read that was taken out of the program are those of earlier attempts.
        effects = [*super().complete(tx)] if self.sources or tx.epoch > 1 else []
        effects += self.report(tx.run_id)
        if self.program and not self.program.deliver_own:
            own = [consumer for name, (_, consumer) in self.sources.items() if name in self.program.writes]
            effects += [SkipOwn(tx, consumer.dataset_id, consumer.name) for consumer in own]
        return effects

    def report(self, run_id: RunId) -> list[Effect]:
        """Return what records that the run has reported discarded partitions."""
        return [
            ReportDiscards(run_id, self.sources[name][1], told)
            for name, taken in self.taken.items()
            if (told := taken.discards)
        ]

    def has_work(self, db: Db) -> bool | None:
        """Return whether a take of one of the consumers would find work."""
        return any(has_work(db, consumer) for _, consumer in self.sources.values()) if self.sources else None
