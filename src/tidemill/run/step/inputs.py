"""Inputs of programs: the kinds of input, and the acts on all of them at each end of an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, TypeAlias

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.named import Call
from tidemill.catalog.transactions import Transaction
from tidemill.errors import UserError
from tidemill.lake import backlog
from tidemill.lake.backlog import Backlog
from tidemill.lake.claims import Blame, ClaimTable, Fail, Held, RefuseMoved, Return, find_held
from tidemill.lake.consumer.managed import find_readers
from tidemill.lake.datasets import Dataset
from tidemill.lake.fileset.fileset import Fileset, Unpin
from tidemill.lake.snapshot.changes import find_feed
from tidemill.names import RunId, ScheduleId
from tidemill.run.records.declared import find_dataset
from tidemill.run.records.programs import Code, Program, find_program
from tidemill.run.records.runs import RunRecord, find_with_program
from tidemill.run.records.workflows import find_workflow
from tidemill.run.step.change_input import ChangeInputs, ChangesInput, TakenChanges
from tidemill.run.step.chosen_input import GIVEN_KINDS, refuse_unread
from tidemill.run.step.file_input import FileInput, FileInputs, TakenFiles
from tidemill.run.step.held_inputs import HeldInputs
from tidemill.run.step.input_kind import ConsumerKind, InputKind, Leaving
from tidemill.run.step.partition_input import PartitionInput, PartitionInputs, TakenPartitions
from tidemill.run.step.version_input import SnapshotInput, TakenVersion, VersionInputs
from tidemill.run.step.window_input import WindowInputs
from tidemill.run.step.workspace import Workspace
from tidemill.world import World

Kind: TypeAlias = VersionInputs | ChangeInputs | PartitionInputs | FileInputs | WindowInputs
Taken: TypeAlias = TakenVersion | TakenChanges | TakenPartitions | TakenFiles
Input: TypeAlias = PartitionInput | FileInput | SnapshotInput | ChangesInput
"""Objects that programs get: the result of `Run.input` and of `Worker.input`."""
KINDS: Final = (VersionInputs, ChangeInputs, PartitionInputs, FileInputs, WindowInputs)
"""The kinds, in the order of a take: those that only look come first. A new kind of input is one more entry.

Partitions come before files, since consumers are locked before files.
"""


class TakesWork(UserError):
    """A run that takes what waits for its program was to be quiet, or part of a backfill by times.

    The runs of schedules would miss the work, and consumers of the output its results.
    """

    code = "takes_work"

    def __init__(self, program: str, datasets: Sequence[str], *, is_workflow: bool = False) -> None:
        self.program = program
        self.datasets = list(datasets)
        self.is_workflow = is_workflow
        super().__init__(
            f"a run of {program} takes what waits in {', '.join(datasets)}, so the run can neither be quiet nor part "
            "of a backfill by times",
            "declare a program of its own for the past, and choose its input: a workflow is given none"
            if is_workflow
            else "choose the input: by `partitions` or `files` of a run, or by=partitions of a backfill",
        )


@dataclass(eq=False)
class Inputs:
    """Inputs of a program, by kind. `program` is None for an external caller, whose claims belong to no program.

    `held` are the inputs of a node whose claims belong to its workflow. With `is_chosen` the run was given its input.
    """

    program: Program | None = None
    kinds: Sequence[Kind] = ()
    held: HeldInputs | None = None
    is_chosen: bool = False

    @property
    def taken(self) -> Mapping[str, Taken]:
        """The parts that the attempt has taken, by the qualified name of their data sets."""
        own = {name: taken for kind in self.kinds for name, taken in kind.taken.items()}
        return own if self.held is None else {**own, **self.held.taken}

    @property
    def empty(self) -> bool:
        """True if some inputs bring work, and none of them has any."""
        said = [taken.empty for taken in self.taken.values() if taken.empty is not None]
        return bool(said) and all(said)

    def count(self) -> list[dict[str, object]]:
        """Return how much was taken of each input, for people."""
        return [{"dataset": name, **taken.count()} for name, taken in self.taken.items()]

    def outputs(self, db: Db) -> dict[str, Fileset]:
        """Find the file sets that reading the inputs may write."""
        kinds = self.kinds if self.held is None else [*self.kinds, self.held.files]
        return {name: fileset for kind in kinds for name, fileset in kind.outputs(db).items()}

    def begin(self, record: RunRecord, world: World) -> list[Effect]:
        """Pin what will be read; claims of earlier attempts follow the new one."""
        return [effect for kind in self.kinds for effect in kind.begin(record, world)]

    def take(self, catalog: Catalog, tx: Transaction) -> None:
        """Take of all inputs; `NotRead`."""
        if self.is_chosen and self.program is not None:
            catalog.read(partial(refuse_unread, run_id=tx.run_id, program=self.program))
        beside: list[ClaimTable] = []
        for kind in self.kinds:
            kind.take(catalog, tx, beside)
            beside += [] if kind.claims is None else [kind.claims]
        if self.held is not None:
            self.held.take(catalog, tx)

    def accept(self, catalog: Catalog, tx: Transaction, acceptors: Mapping[str, Code]) -> None:
        """Ask the acceptors, which are user code, and return what they do not want."""
        for kind in self.kinds:
            kind.accept(catalog, tx, acceptors)

    def verify(self, world: World) -> None:
        """Raise if what was read is not what was claimed."""
        for kind in self.kinds:
            kind.verify(world)
        if self.held is not None:
            self.held.verify(world)

    def complete(self, tx: Transaction) -> list[Effect]:
        """Complete what was taken; the run keeps no pins."""
        return [*(effect for kind in self.kinds for effect in kind.complete(tx)), Unpin(tx.run_id)]

    def blame(self, run: Workspace, error: str, reason: str) -> Blame:
        """Find what of the claims a failure is about."""
        blamed = [claim for kind in self.kinds for claim in kind.blame(run, error, reason)]
        return Blame(reason, blamed if self.held is None else [*blamed, *self.held.blame(run, error, reason)])

    def has_work(self, db: Db) -> bool:
        """Return whether a take would find work. True for a program that waits for nothing."""
        said = [has for kind in self.kinds if (has := kind.has_work(db)) is not None]
        return not said or any(said)

    def announce(self) -> list[Effect]:
        """Announce what can still be claimed: the last effects of a commit."""
        return [effect for kind in self.kinds for effect in kind.announce()]

    def leave(self, leaving: Leaving) -> list[Effect]:
        """Announce what a run leaves that ended without success."""
        return [effect for kind in self.kinds for effect in kind.leave(leaving)]


def kind_of(dataset: Dataset) -> type[InputKind]:
    """Return the kind of input by which a program reads `dataset`, unless the program says terms of another kind."""
    return next(kind for kind in KINDS if kind.source_kind is dataset.kind)


def consumer_kind_of(dataset: Dataset) -> type[ConsumerKind]:
    """Return the kind of input by which consumers read `dataset`."""
    kinds: Iterable[type[InputKind]] = KINDS
    return next(kind for kind in kinds if issubclass(kind, ConsumerKind) and kind.source_kind is dataset.kind)


def find_inputs(db: Db, program: Program, record: RunRecord | None = None) -> Inputs:
    """Find what `program` reads, as it is deployed: by its consumers, or what the run was given if that was chosen.

    For the run of a node also what its workflow holds.
    """
    if record is not None and record.is_chosen:
        return Inputs(program, _find_kinds(db, program, program.reads, GIVEN_KINDS), is_chosen=True)
    workflow = None if record is None or not program.held else record.workflow
    held = None if record is None or workflow is None else _find_held(db, program, record.node, workflow)
    names = [name for name in program.reads if name not in program.held]
    return Inputs(program, _find_kinds(db, program, names, KINDS), held)


def refuse_taking(db: Db, program: Program) -> None:
    """Raise `TakesWork` if a run of `program` takes work that waits, or a run of a node of the workflow does.

    Work is partitions, files, changes of snapshots, and windows. A snapshot that is read whole is none.
    """
    nodes = () if program.workflow is None else program.workflow.nodes
    for one in (program, *(find_program(db, program.namespace, program.app, node.name) for node in nodes)):
        if taken := {name for kind in find_inputs(db, one).kinds for name in kind.list_waiting(db)}:
            raise TakesWork(program.qualified_name, sorted(taken), is_workflow=program.workflow is not None)


def _find_kinds(db: Db, program: Program, names: Iterable[str], kinds: Iterable[type[Kind]]) -> list[Kind]:
    datasets = {name: find_dataset(db, name) for name in names}
    readers = find_readers(db, [(name, program.qualified_name) for name in datasets]) if datasets else []
    by_id = {consumer.dataset_id: consumer for consumer in readers}
    consumers = {name: by_id[one.dataset_id] for name, one in datasets.items() if one.dataset_id in by_id}
    return [kind.of(db, program, datasets, consumers) for kind in kinds]


def _find_held(db: Db, program: Program, node: str, workflow_id: RunId) -> HeldInputs:
    run, workflow = find_with_program(db, workflow_id)
    row = find_workflow(db, workflow_id)
    assert workflow is not None  # noqa: S101  # runs of workflows have both
    assert row is not None  # noqa: S101
    kinds = _find_kinds(db, workflow, [name for name in workflow.reads if name in row.spec.held], KINDS)
    (partitions,) = (kind for kind in kinds if isinstance(kind, PartitionInputs))
    (files,) = (kind for kind in kinds if isinstance(kind, FileInputs))
    read = set(program.held)
    return HeldInputs(
        workflow_id,
        run.epoch,
        whole=(partitions, files),
        partitions=PartitionInputs(workflow, {name: one for name, one in partitions.sources.items() if name in read}),
        files=FileInputs({name: one for name, one in files.sources.items() if name in read}, workflow_id),
        shared=row.spec.shares(node),
        unread=row.spec.follows_reader(node) and not program.writes,
    )


def find_held_inputs(db: Db, run_id: RunId) -> Inputs:
    """Find the inputs of which a run without a program holds claims."""
    return Inputs(None, [held for kind in KINDS if (held := kind.held_by(db, run_id)) is not None])


def find_claims(db: Db, run_id: RunId) -> dict[ClaimTable, Held]:
    """Find what the run holds, in each table of claims."""
    return {kind.claims: find_held(db, kind.claims, run_id) for kind in KINDS if kind.claims is not None}


def holds_any(db: Db, run_id: RunId) -> bool:
    """Return whether the run holds any claim."""
    return any(held.claims for held in find_claims(db, run_id).values())


def fail_claims(
    run_id: RunId, epoch: int, blame: Blame | None, claims: Mapping[ClaimTable, Held], *, is_chosen: bool = False
) -> list[Effect]:
    """Keep the claims of a run that goes on to another attempt, and count the failure if there was one.

    `claims` are what the run held when that was decided; `ClaimsMoved` if it holds something else. A run with chosen
    input keeps its pins too.
    """
    unpinned = [] if is_chosen else [Unpin(run_id)]
    if blame is None:
        return [*unpinned]
    alone = _is_alone(claims)
    failed = [Fail(table, run_id, epoch, blame, alone) for table in claims]
    return [*unpinned, *_refuse_moved(run_id, epoch, blame, claims), *failed]


def return_claims(
    run_id: RunId,
    epoch: int,
    blame: Blame | None,
    backoff: timedelta,
    claims: Mapping[ClaimTable, Held],
    *,
    closes_some: bool = False,
) -> list[Effect]:
    """Return the claims of a run that has ended without success: at once, or after a failure at the back-off.

    `Inputs.leave` comes after it. `claims` as for `fail_claims`. `closes_some` says that the same commit closes some of
    `claims` first. A claim that is left was not the only one that a failed program has read.
    """
    alone = _is_alone(claims) and not closes_some
    returned = [Return(table, run_id, epoch, blame, backoff, alone) for table in claims]
    return [Unpin(run_id), *_refuse_moved(run_id, epoch, blame, claims if alone else {}), *returned]


def _is_alone(claims: Mapping[ClaimTable, Held]) -> bool:
    """Return whether the run holds one claim: beside it nothing else can have been the cause of a failure."""
    return sum(held.claims for held in claims.values()) == 1


def _refuse_moved(
    run_id: RunId, epoch: int, blame: Blame | None, claims: Mapping[ClaimTable, Held]
) -> Iterable[Effect]:
    if blame is None or not _is_alone(claims):
        return ()
    return [RefuseMoved(table, run_id, epoch, held.claims) for table, held in claims.items()]


def _list_backlogs() -> Iterable[Backlog]:
    """Return the backlogs of all kinds; partitions and changes share one."""
    return dict.fromkeys(kind.backlog for kind in KINDS if kind.backlog is not None)


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
    """Announce the postponed work whose time has come. Cost: one look when there is none."""
    kinds = list(_list_backlogs())
    look = catalog.read(lambda db: db.look(*next_due_times()))
    for number, one in enumerate(kinds):
        due = look.time(number)
        if due is not None and due <= look.now:
            backlog.publish_due(catalog, one)


def next_due_times() -> list[Call]:
    """Return the reads of the times, maybe past, at which postponed work of a kind is to be announced next."""
    return [one.find_next_due() for one in _list_backlogs()]


def follows_changes(db: Db, program: Program, name: str) -> bool:
    """Return whether `program` gets the changes of the data set with that (qualified) name, not its content."""
    return find_feed(db, find_dataset(db, name).dataset_id, program.qualified_name) is not None
