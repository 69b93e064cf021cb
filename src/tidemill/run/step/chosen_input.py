"""Kinds of input of a run whose input was chosen: it works on what its record names, and on nothing else.

Its consumers, inboxes and feeds are neither read nor changed: nothing is claimed, so nothing is completed, returned or
announced. Inputs that were not chosen are empty. A snapshot is read in its current version, unless the run was given a
version: a replay is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Snapshot, Transaction
from tidemill.errors import UserError
from tidemill.lake.chosen import (
    ChosenInput,
    choose,
    choose_again,
    list_given,
    read_deliveries,
    read_files,
    read_versions,
)
from tidemill.lake.claims import Blamed, ClaimTable
from tidemill.lake.consumer.terms import Order
from tidemill.lake.datasets import find_by_id, find_some
from tidemill.lake.fileset.fileset import Fileset, lock_kept
from tidemill.lake.inbox.file_checks import sort_out
from tidemill.lake.snapshot.changes import FeedChange
from tidemill.names import DatasetId, RunId, WritePointer
from tidemill.run.records.programs import Code, Program
from tidemill.run.records.runs import RunRecord
from tidemill.run.step.change_input import ChangeInputs, TakenChanges
from tidemill.run.step.file_input import FileInputs, TakenFiles
from tidemill.run.step.partition_input import PartitionInputs, TakenPartitions
from tidemill.run.step.version_input import TakenVersion, VersionInputs
from tidemill.run.step.workspace import Workspace
from tidemill.shapes.keys import KeyText
from tidemill.world import World


class BadChosenFile(UserError):
    """A chosen file that cannot be read, or is no longer what was chosen."""

    code = "bad_chosen_file"
    hint = "correct the file, or start a run without the file"

    def __init__(self, dataset: str, file: str, why: str) -> None:
        self.dataset = dataset
        self.file = file
        self.why = why
        super().__init__(f"file {file} of {dataset}, which was chosen for this run: {why}")


class NothingToRepeat(UserError):
    """A run that took no input was to be repeated on its input."""

    code = "nothing_to_repeat"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"run {run_id} has taken no input", "choose what it should have taken by partitions")


class NotRead(UserError):
    """A run was given input of data sets that its program does not read: another program was deployed meanwhile."""

    code = "input_not_read"

    def __init__(self, program: str, datasets: Sequence[str]) -> None:
        self.program = program
        self.datasets = list(datasets)
        super().__init__(
            f"the run was given input of {', '.join(datasets)}, which {program} does not read any more",
            "start a run with input of data sets that the program reads",
        )


@dataclass(eq=False)
class GivenPartitions(PartitionInputs):
    """The chosen partitions of the file sets that a program reads."""

    claims = None
    backlog = None

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Read what was chosen, in the order of the program's terms."""
        del beside
        taken = {}
        for name, (fileset, consumer) in self.sources.items():
            chosen = catalog.read(partial(read_deliveries, run_id=tx.run_id, dataset_id=fileset.dataset_id))
            ordered = chosen if consumer.terms.order is Order.OLDEST else chosen[::-1]
            # Discarded partitions are reported to runs that take of the consumer.
            taken[name] = TakenPartitions(
                fileset, consumer.consumer_id, ordered, timedelta(0), discards=(), is_chosen=True
            )
        self.taken = taken

    def accept(self, catalog: Catalog, tx: Transaction, acceptors: Mapping[str, Code]) -> None:
        """Accept all: a person has chosen."""

    def has_work(self, db: Db) -> None:
        """Return None: a chosen input never waits."""
        del db


@dataclass(eq=False)
class GivenFiles(FileInputs):
    """The chosen files of the inboxes that a program reads."""

    claims = None
    backlog = None

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Read what was chosen, and look at each file; `BadChosenFile`, since no later run would get a bad one."""
        del beside
        taken = {}
        for name, inbox in self.sources.items():
            files = catalog.read(partial(read_files, run_id=tx.run_id, inbox=inbox))
            good, others = sort_out(catalog.world, [inbox], files)
            if others:
                bad = others[0]
                raise BadChosenFile(name, bad.name, bad.error or "it was deleted or written again")
            taken[name] = TakenFiles(inbox, good, is_chosen=True)
        self.taken = taken

    def complete(self, tx: Transaction) -> Sequence[Effect]:
        """Close nothing."""
        del tx
        return ()

    def blame(self, run: Workspace, error: str, reason: str) -> Sequence[Blamed]:
        """Blame no file: the inbox counts failures of its own runs."""
        del run, error, reason
        return ()


@dataclass(eq=False)
class GivenVersions(VersionInputs):
    """The snapshots that a program reads whole, in the version that the run was given."""

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Find the versions; `NoVersionYet`."""
        super().take(catalog, tx, beside)
        taken = dict(self.taken)
        for name, snapshot in self.sources.items():
            given = catalog.read(partial(read_versions, run_id=tx.run_id, snapshot=snapshot))
            if given:
                taken[name] = TakenVersion(snapshot, given[-1])
        self.taken = taken


@dataclass(eq=False)
class GivenChanges(ChangeInputs):
    """The feeds of a program: the two versions that the run was given, the first alone, or no change."""

    backlog = None

    def begin(self, record: RunRecord, world: World) -> Sequence[Effect]:
        """Pin nothing."""
        del record, world
        return ()

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Find the versions."""
        del beside
        taken = {}
        for name, (snapshot, feed) in self.sources.items():
            given = catalog.read(partial(read_versions, run_id=tx.run_id, snapshot=snapshot))
            old, new = [None, None, *given][-2:]
            taken[name] = TakenChanges(FeedChange(snapshot, feed, old, new))
        self.taken = taken

    def complete(self, tx: Transaction) -> Sequence[Effect]:
        """Move no feed."""
        del tx
        return ()


def refuse_unread(db: Db, run_id: RunId, program: Program) -> None:
    """Raise `NotRead` if a run was given input that `program` would never see."""
    given = find_some(db, list_given(db, run_id)).values()
    if unread := sorted({one.qualified_name for one in given} - {*program.reads}):
        raise NotRead(program.qualified_name, unread)


def choose_partitions(db: Db, pointer: WritePointer, dataset_id: DatasetId, keys: Sequence[str]) -> ChosenInput:
    """Choose partitions of a file set by their stored keys, so that the run can be made; `NotFound`, `MissingInput`.

    `pointer` as for `choose`. Locks the data set.
    """
    return _lock(db, choose(db, pointer, [(Fileset.of(find_by_id(db, dataset_id)), [KeyText(key) for key in keys])]))


def repeat_input(db: Db, pointer: WritePointer, program: Program, run_id: RunId) -> ChosenInput:
    """Choose exactly what another run of `program` had, so that the run can be made.

    `pointer` as for `choose`. `MissingInput`, `NotKept`, `NothingToRepeat`. Locks the data sets.
    """
    chosen = choose_again(db, pointer, run_id)
    if program.reads and not chosen.items:
        raise NothingToRepeat(run_id)
    return _lock(db, chosen)


def _lock(db: Db, chosen: ChosenInput) -> ChosenInput:
    for dataset_id, pointers in sorted(chosen.pins.items()):
        lock_kept(db, dataset_id, Snapshot(min(pointers), ""))
    return chosen


GIVEN_KINDS = (GivenVersions, GivenChanges, GivenPartitions, GivenFiles)
"""The kinds for a run with chosen input, in the order of a take. Window programs have no such runs."""
