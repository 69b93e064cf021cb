"""What programs read: the kinds of input, and what is done to all of them at each end of an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.lake.fileset.fileset import Fileset, Unpin
from tidemill.names import RunId, ScheduleId
from tidemill.run.change_input import Changes, TakenChanges
from tidemill.run.declared import find_dataset
from tidemill.run.file_input import Files, TakenFiles
from tidemill.run.input_kind import Blame, Leaving
from tidemill.run.partition_input import Partitions, TakenPartitions
from tidemill.run.programs import Code, Program
from tidemill.run.runs import RunRecord
from tidemill.run.version_input import TakenVersion, Versions
from tidemill.run.window_input import Windows
from tidemill.run.workspace import Workspace
from tidemill.world import World

Kind: TypeAlias = Versions | Changes | Partitions | Files | Windows
Taken: TypeAlias = TakenVersion | TakenChanges | TakenPartitions | TakenFiles
KINDS: Final = (Versions, Changes, Partitions, Files, Windows)
"""The order of a take: kinds that only look come first. Claims are returned in the reverse order.

Partitions come before files: no file is alone beside a partition, and consumers are locked before files.
"""


@dataclass(eq=False)
class Inputs:
    """What a program reads, by kind. `program` is None for a caller outside, who holds claims without a program."""

    program: Program | None = None
    kinds: Sequence[Kind] = ()

    @property
    def taken(self) -> Mapping[str, Taken]:
        """What the attempt has taken, by the qualified name of its data set."""
        return {name: taken for kind in self.kinds for name, taken in kind.taken.items()}

    @property
    def empty(self) -> bool:
        """Whether there are inputs that bring work, and nothing in any of them."""
        said = [taken.empty for taken in self.taken.values() if taken.empty is not None]
        return bool(said) and all(said)

    def count(self) -> list[dict[str, object]]:
        """Return how much was taken of each input, for people."""
        return [{"dataset": name, **taken.count()} for name, taken in self.taken.items()]

    def outputs(self, db: Db) -> dict[str, Fileset]:
        """Find the file sets that reading the inputs may write."""
        return {name: fileset for kind in self.kinds for name, fileset in kind.outputs(db).items()}

    def begin(self, record: RunRecord, world: World) -> list[Effect]:
        """Pin what will be read; claims of earlier attempts follow the new one."""
        return [effect for kind in self.kinds for effect in kind.begin(record, world)]

    def take(self, catalog: Catalog, tx: Transaction) -> None:
        """Take of all inputs."""
        for kind in self.kinds:
            kind.take(catalog, tx)

    def accept(self, catalog: Catalog, tx: Transaction, acceptors: Mapping[str, Code]) -> None:
        """Ask the acceptors, which are user code, and return what they do not want."""
        for kind in self.kinds:
            kind.accept(catalog, tx, acceptors)

    def verify(self, world: World) -> None:
        """Raise if what was read is not what was claimed."""
        for kind in self.kinds:
            kind.verify(world)

    def complete(self, tx: Transaction) -> list[Effect]:
        """Complete what was taken; the run keeps no pins."""
        return [*(effect for kind in self.kinds for effect in kind.complete(tx)), Unpin(tx.run_id)]

    def blame(self, run: Workspace, error: str, reason: str) -> Blame:
        """Find what of the claims a failure is about."""
        return Blame(reason, tuple(file for kind in self.kinds for file in kind.blame(run, error, reason)))

    def has_work(self, db: Db) -> bool:
        """Whether a take would find anything; true for a program that waits for nothing."""
        said = [has for kind in self.kinds if (has := kind.has_work(db)) is not None]
        return not said or any(said)

    def announce(self) -> list[Effect]:
        """Announce what can still be claimed: the last effects of a commit."""
        return [effect for kind in self.kinds for effect in kind.announce()]

    def leave(self, leaving: Leaving) -> list[Effect]:
        """Announce what a run leaves that ended without success."""
        return [effect for kind in self.kinds for effect in kind.leave(leaving)]


def find_inputs(db: Db, program: Program) -> Inputs:
    """Find what `program` reads, as it is deployed."""
    datasets = {name: find_dataset(db, name) for name in program.reads}
    return Inputs(program, [kind.of(db, program, datasets) for kind in KINDS])


def find_held_inputs(db: Db, run_id: RunId) -> Inputs:
    """Find the inputs of which a run without a program holds claims."""
    return Inputs(None, [held for kind in KINDS if (held := kind.held_by(db, run_id)) is not None])


def holds_any(db: Db, run_id: RunId) -> bool:
    """Whether the run holds any claims."""
    return any(kind.holds(db, run_id) for kind in KINDS)


def fail_claims(run_id: RunId, epoch: int, blame: Blame | None) -> list[Effect]:
    """The run goes on to another attempt: it keeps its claims, which count a failure if there was one."""
    counted = [] if blame is None else [effect for kind in KINDS for effect in kind.fail(run_id, epoch, blame)]
    return [Unpin(run_id), *counted]


def return_claims(run_id: RunId, epoch: int, blame: Blame | None, backoff: timedelta) -> list[Effect]:
    """The run has ended without success: others get what it held, at once, or after a failure at the back-off.

    `Inputs.leave` comes after it.
    """
    returned = [effect for kind in reversed(KINDS) for effect in kind.return_claims(run_id, epoch, blame, backoff)]
    return [Unpin(run_id), *returned]


def announce_waiting(db: Db, programs: Iterable[Program], schedules: Sequence[ScheduleId]) -> None:
    """Announce the work that waits in all inputs of `programs` to `schedules`; call it after a tick.

    Work is what no take has seen, what a take may claim, what has changed in followed snapshots, and closed windows.
    Locks consumers. Cost: a few look-ups for each input.
    """
    for kinds in zip(*(find_inputs(db, program).kinds for program in programs), strict=True):
        kind, ids = kinds[0], sorted({name for one in kinds for name in one.ids})
        for effect in [*kind.note_unseen(ids), *kind.publish(ids, schedules)]:
            for call in effect.writes():
                db.call(call)


def announce_due(catalog: Catalog) -> None:
    """Announce the postponed work whose time has come."""
    for kind in KINDS:
        kind.announce_due(catalog)


def find_next_due(db: Db) -> int | None:
    """Return when postponed work is to be announced next, epoch milliseconds, maybe past; None for never."""
    return min((due for kind in KINDS if (due := kind.next_due(db)) is not None), default=None)


def follows_changes(db: Db, program: Program, name: str) -> bool:
    """Whether `program` gets what changed in the data set of that (qualified) name, and not all of it."""
    return bool(Changes.of(db, program, {name: find_dataset(db, name)}).sources)
