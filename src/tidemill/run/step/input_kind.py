"""The contract of a kind of input: partitions, files, whole versions, changes of a snapshot, windows.

A kind is one module with two classes: an `InputKind`, which has all inputs of that kind of one program, and a
`TakenInput`, which has what one attempt took of one data set. `inputs.py` lists the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import ClassVar, Self

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.lake.backlog import Announce, Backlog, NoteUnseen, Postpone
from tidemill.lake.claims import Blamed, ClaimTable, Complete, Restamp
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.lake.consumer.managed import Consumer, Lag, ensure_consumer
from tidemill.lake.consumer.starts import StartPosition
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import RunId, ScheduleId, WritePointer
from tidemill.run.records.programs import Code, Program
from tidemill.run.records.runs import RunRecord
from tidemill.run.step.workspace import Workspace
from tidemill.world import World


@dataclass(frozen=True, slots=True)
class Leaving:
    """End of a run without success. `wait` is the shortest wait before another run may try the same work."""

    launched: bool
    """A job launched the run, and the run has used up the job's messages."""
    held: bool
    """The run had claims."""
    killed: bool
    failed: bool
    wait: timedelta

    @property
    def at_once(self) -> bool:
        """True if another run may get the waiting work at once.

        Not if the run failed before its take: the next run would fail too.
        """
        return self.killed or (self.failed and self.held)


class TakenInput(ABC):
    """Part of one data set that an attempt has taken.

    `open` returns the object that programs use; each kind has its own.
    """

    @property
    @abstractmethod
    def empty(self) -> bool | None:
        """True if there is nothing to process. None if the part does not decide whether there is work."""

    @abstractmethod
    def count(self) -> dict[str, object]:
        """Return how much it is, for people: its kind, its count and of what, its rows."""

    def check_location(self, world: World) -> None:
        """Raise `StorageUnavailable` if the location is away: then the program is not to blame for a failure."""

    def describe_reading(self) -> dict[str, object]:
        """Return how the program has read it, for people."""
        return {}

    def describe_closed(self) -> list[dict[str, object]]:
        """Return what the commit closes without success, for people."""
        return []


class InputKind(ABC):
    """All inputs of one kind of one program: what a begin, a take, a commit and an end of an attempt do to them.

    Methods without `self` work on whatever a run holds, also of inputs that its program no longer has.
    """

    taken: Mapping[str, TakenInput] = MappingProxyType({})
    """The parts that `take` has taken, by the qualified name of their data sets."""

    @classmethod
    @abstractmethod
    def of(
        cls, db: Db, program: Program, datasets: Mapping[str, Dataset], consumers: Mapping[str, Consumer]
    ) -> InputKind:
        """Find the inputs of this kind among the data sets that a program reads, by qualified name.

        `consumers` are those of the program, by the same names; a consumer of a snapshot is a feed.
        """

    source_kind: ClassVar[DatasetKind | None] = None
    """The kind of the data sets that programs read by this kind of input; None if programs do not name them."""

    @classmethod
    def find_fault(cls, dataset: Dataset, program: Program) -> str | None:
        """Return why `program` cannot read `dataset` in this way, for the error of a deployment; None if it can."""
        del cls, dataset, program
        return None

    @classmethod
    def register(
        cls, db: Db, dataset: Dataset, program: Program, terms: Terms | None, position: StartPosition | None
    ) -> None:
        """Store what reading `dataset` needs in the catalog, when the program is deployed; None stands for defaults."""

    @classmethod
    def show_item(cls, dataset: Dataset, write_pointer: WritePointer, item: str) -> str:
        """Return for people what a run has recorded as its input: `item` of `dataset`."""
        del cls, dataset, write_pointer
        return item

    @classmethod
    def held_by(cls, db: Db, run_id: RunId) -> Self | None:
        """Find the inputs of which a run without a program holds claims."""
        return None

    def outputs(self, db: Db) -> Mapping[str, Fileset]:
        """Find the file sets that reading these inputs may write, by qualified name."""
        return {}

    def begin(self, record: RunRecord, world: World) -> Sequence[Effect]:
        """Return what the begin does: it pins what will be read, and claims of earlier attempts follow the new one."""
        del world
        first = record.epoch == 1  # no other attempt has claimed
        return () if self.claims is None or first else (Restamp(self.claims, record.run_id, record.epoch),)

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Fill `taken` with what the inputs have to give; what an earlier attempt holds still, if it holds anything.

        Called once, after the begin, in the order of the kinds: those that only look come first. A run that has
        nothing to look at must claim nothing, or its claims would count the failures. `beside` are the tables of claims
        that were taken of before.
        """

    def accept(self, catalog: Catalog, tx: Transaction, acceptors: Mapping[str, Code]) -> None:
        """Ask the acceptors, by qualified name, and return the claims that they do not accept."""

    def verify(self, world: World) -> None:
        """Raise if what was read is not what was claimed: after the program has returned, before the commit."""

    def complete(self, tx: Transaction) -> Sequence[Effect]:
        """Return what the commit does to what was taken."""
        return () if self.claims is None else (Complete(self.claims, tx.run_id, tx.epoch),)

    def blame(self, run: Workspace, error: str, reason: str) -> Sequence[Blamed]:
        """Find what of the claims a failure is about: `error` is the whole text with causes, `reason` its line."""
        return ()

    def has_work(self, db: Db) -> bool | None:
        """Return whether a take would find work. None if the program waits for nothing of this kind."""
        return None

    def list_waiting(self, db: Db) -> Collection[str]:
        """Return the data sets of which a take takes work that waits. A snapshot that is read whole brings none."""
        return ()

    claims: ClassVar[ClaimTable | None] = None
    """The claims of this kind; None for inputs that a run does not claim."""

    # The backlog: what waits, announced at once or at a later time.

    backlog: ClassVar[Backlog | None] = None
    """The table in which the work of this kind waits; None for inputs that bring no work."""

    @property
    def ids(self) -> Sequence[str]:
        """The ids by which the backlog is kept: of consumers, of inboxes, of a program."""
        return ()

    @classmethod
    def publish(cls, ids: Sequence[str], schedules: Sequence[ScheduleId] = ()) -> Sequence[Effect]:
        """Announce each of `ids` that has work to claim now, to `schedules` or else to all that listen."""
        return () if cls.backlog is None else (Announce(cls.backlog, ids, schedules),)

    @classmethod
    def postpone(cls, ids: Sequence[str], wait: timedelta) -> Sequence[Effect]:
        """Announce the work later: after `wait` at the soonest, the longer it has waited the later."""
        return () if cls.backlog is None else (Postpone(cls.backlog, ids, wait),)

    @classmethod
    def note_unseen(cls, ids: Sequence[str]) -> Sequence[Effect]:
        """Count as work what no take has seen; stands before the announcement."""
        return () if cls.backlog is None else (NoteUnseen(cls.backlog, ids),)

    def announce(self) -> Sequence[Effect]:
        """Announce what can still be claimed: the last effects of a commit."""
        return self.publish(self.ids)

    def leave(self, leaving: Leaving) -> Sequence[Effect]:
        """Announce what a run leaves that ended without success: at once or later, so that nothing sticks or spins."""
        unseen = self.note_unseen(self.ids) if leaving.launched and not leaving.held else ()
        return [*unseen, *(self.publish(self.ids) if leaving.at_once else self.postpone(self.ids, leaving.wait))]


class ConsumerKind(InputKind):
    """Inputs that a program reads by consumers, which keep the backlog."""

    backlog: ClassVar[Backlog | None] = CONSUMERS
    delivers_partitions: ClassVar[bool] = False
    """True if takes choose among partitions, so that a person may look at them before, and choose too."""

    @classmethod
    def register(
        cls, db: Db, dataset: Dataset, program: Program, terms: Terms | None, position: StartPosition | None
    ) -> None:
        """Bring the consumer of the program up to date; a new one begins at `position`."""
        ensure_consumer(db, dataset.dataset_id, program.qualified_name, terms, position)

    @classmethod
    @abstractmethod
    def measure(cls, db: Db, consumer: Consumer) -> Lag:
        """Measure what `consumer` has not been given yet."""

    sources: Mapping[str, tuple[object, Consumer]]
    """Each data set with the consumer of the program, by qualified name."""

    def list_waiting(self, db: Db) -> Collection[str]:
        """Return the data sets."""
        del db
        return self.sources

    @property
    def ids(self) -> Sequence[str]:
        """The consumers."""
        return sorted(consumer.consumer_id for _, consumer in self.sources.values())
