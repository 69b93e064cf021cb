"""The contract of a kind of input: partitions, files, whole versions, changes of a snapshot, windows.

A kind is one module with two classes: an `InputKind`, which has all inputs of that kind of one program, and a
`TakenInput`, which has what one attempt took of one data set. `inputs.py` lists the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Self

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.lake.consumer.backlog import PostponeBacklog, PublishBacklog
from tidemill.lake.consumer.managed import Consumer
from tidemill.lake.datasets import Dataset
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.inbox.file_endings import BlamedFile
from tidemill.names import ConsumerId, RunId, ScheduleId
from tidemill.run.programs import Code, Program
from tidemill.run.runs import RunRecord
from tidemill.run.workspace import Workspace
from tidemill.texts import printable
from tidemill.world import World


@dataclass(frozen=True, slots=True)
class Blame:
    """What the claims of an attempt learn of its failure; `files` are those that could not be read."""

    error: str
    files: tuple[BlamedFile, ...] = ()

    def __post_init__(self) -> None:
        """Keep of the error what the catalog can: it comes from user code."""
        object.__setattr__(self, "error", printable(self.error))


@dataclass(frozen=True, slots=True)
class Leaving:
    """How a run has ended without success; `wait` is the shortest wait before another run may try the same."""

    launched: bool
    """By a job, whose messages are used up with the run."""
    held: bool
    """The run had claims."""
    killed: bool
    failed: bool
    wait: timedelta

    @property
    def at_once(self) -> bool:
        """Whether others may have at once what is left: a run that failed before it took would start its like."""
        return self.killed or (self.failed and self.held)


class TakenInput(ABC):
    """What an attempt has taken of one data set. `open` gives the class that programs see; each kind has its own."""

    @property
    @abstractmethod
    def empty(self) -> bool | None:
        """Whether there is nothing to work on; None where what was taken says nothing about work."""

    @abstractmethod
    def count(self) -> dict[str, object]:
        """Return how much it is, for people: its kind, its count, its rows."""

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
    """What `take` has taken, by the qualified name of its data set."""

    @classmethod
    @abstractmethod
    def of(cls, db: Db, program: Program, datasets: Mapping[str, Dataset]) -> InputKind:
        """Find the inputs of this kind among the data sets that a program reads, by qualified name."""

    @classmethod
    def held_by(cls, db: Db, run_id: RunId) -> Self | None:
        """Find the inputs of which a run without a program holds claims."""
        return None

    def outputs(self, db: Db) -> Mapping[str, Fileset]:
        """Find the file sets that reading these inputs may write, by qualified name."""
        return {}

    def begin(self, record: RunRecord, world: World) -> Sequence[Effect]:
        """Return what the begin does: it pins what will be read, and claims of earlier attempts follow the new one."""
        return ()

    def take(self, catalog: Catalog, tx: Transaction) -> None:
        """Fill `taken` with what the inputs have to give; what an earlier attempt holds still, if it holds anything.

        Called once, after the begin, in the order of the kinds: those that only look come first. A run that has
        nothing to look at must claim nothing, or its claims would count the failures.
        """

    def accept(self, catalog: Catalog, tx: Transaction, acceptors: Mapping[str, Code]) -> None:
        """Ask the acceptors, by qualified name, and return the claims that they do not accept."""

    def verify(self, world: World) -> None:
        """Raise if what was read is not what was claimed: after the program has returned, before the commit."""

    def complete(self, tx: Transaction) -> Sequence[Effect]:
        """Return what the commit does to what was taken."""
        return ()

    def blame(self, run: Workspace, error: str, reason: str) -> tuple[BlamedFile, ...]:
        """Find what of the claims a failure is about: `error` is the whole text with causes, `reason` its line."""
        return ()

    def has_work(self, db: Db) -> bool | None:
        """Whether a take would find anything; None where nothing is waited for."""
        return None

    # The backlog: what waits, announced at once or at a later time.

    @property
    def ids(self) -> Sequence[str]:
        """The ids by which a backlog is kept: of consumers, of inboxes, of a program."""
        return ()

    @staticmethod
    def publish(ids: Sequence[str], schedules: Sequence[ScheduleId] = ()) -> Sequence[Effect]:
        """Announce each of `ids` that has work to claim now, to `schedules` or else to all that listen."""
        return ()

    @staticmethod
    def postpone(ids: Sequence[str], wait: timedelta) -> Sequence[Effect]:
        """Announce the work later: after `wait` at the soonest, the longer it has waited the later."""
        return ()

    @staticmethod
    def note_unseen(ids: Sequence[str]) -> Sequence[Effect]:
        """Count as work what no take has seen; stands before the announcement."""
        return ()

    def announce(self) -> Sequence[Effect]:
        """Announce what can still be claimed: the last effects of a commit."""
        return self.publish(self.ids)

    def leave(self, leaving: Leaving) -> Sequence[Effect]:
        """Announce what a run leaves that ended without success: at once or later, so that nothing sticks or spins."""
        unseen = self.note_unseen(self.ids) if leaving.launched and not leaving.held else ()
        return [*unseen, *(self.publish(self.ids) if leaving.at_once else self.postpone(self.ids, leaving.wait))]

    @staticmethod
    def next_due(db: Db) -> int | None:
        """Return when postponed work is to be announced next, epoch milliseconds, maybe past; None for never."""
        return None

    @staticmethod
    def announce_due(catalog: Catalog) -> None:
        """Announce the postponed work whose time has come; the discoverer calls it."""

    # Claims, by run.

    @staticmethod
    def holds(db: Db, run_id: RunId) -> bool:
        """Whether the run has claims of this kind."""
        return False

    @staticmethod
    def fail(run_id: RunId, epoch: int, blame: Blame) -> Sequence[Effect]:
        """Count a failure against the claims, which the run keeps for its next attempt."""
        return ()

    @staticmethod
    def return_claims(run_id: RunId, epoch: int, blame: Blame | None, backoff: timedelta) -> Sequence[Effect]:
        """Return the claims at the end of a run: at once, or after a failure at the back-off."""
        return ()


class ConsumerKind(InputKind):
    """Inputs that a program reads by consumers, which keep the backlog."""

    sources: Mapping[str, tuple[object, Consumer]]
    """Each data set with the consumer of the program, by qualified name."""

    @property
    def ids(self) -> Sequence[str]:
        """The consumers."""
        return sorted(consumer.consumer_id for _, consumer in self.sources.values())

    @staticmethod
    def publish(ids: Sequence[str], schedules: Sequence[ScheduleId] = ()) -> Sequence[Effect]:
        """Announce the consumers that have work."""
        return (PublishBacklog([ConsumerId(one) for one in ids], schedules),)

    @staticmethod
    def postpone(ids: Sequence[str], wait: timedelta) -> Sequence[Effect]:
        """Give the work of each consumer a time."""
        return (PostponeBacklog([ConsumerId(one) for one in ids], wait),)
