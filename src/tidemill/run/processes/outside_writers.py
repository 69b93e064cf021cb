"""Transactions of engines outside: begun, renewed and ended by requests of their own, from any process.

Such a transaction is the one of `open_transaction`, with the same run of kind external, fence and reaper. Only its
block is another one: no process of ours renews its lease, and the files are written by the caller. Such a transaction
may also take partitions with its begin. Its commit completes them, and any other end returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import (
    Transaction,
    TransactionEnded,
    TransactionOpen,
    TransactionRow,
    TxState,
    find_transaction,
)
from tidemill.durations import format_duration, parse_lease
from tidemill.errors import Conflict, Fenced, UserError
from tidemill.lake.claims import find_held
from tidemill.lake.consumer.claims import PARTITIONS
from tidemill.lake.datasets import DatasetKind, find_some
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp, find_schema
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.lake.snapshot.snapshot import NotASnapshot
from tidemill.names import CommitSeq, RunId, WritePointer
from tidemill.run.processes.external import begin_step, commit_step, create_run, end_failed, renewed, resume_step
from tidemill.run.records.runs import Cause, RunKind, RunRecord, find_run
from tidemill.run.step.attempts import AttemptEnd, end_attempt, renew
from tidemill.run.step.inputs import Inputs, find_held_inputs
from tidemill.run.step.outside_reads import (
    TakenPartition,
    TransactionInput,
    describe_inputs,
    find_reads,
)
from tidemill.run.step.outside_writes import (
    WRITE_CALL,
    CommitDiffers,
    FileChecker,
    OutsideCommit,
    OutsideRead,
    list_declared,
    note_commit,
)
from tidemill.run.step.step import Step
from tidemill.shapes.filters import make_filter
from tidemill.shapes.manifest import tx_directory
from tidemill.storage.locations import open_files, path_for_readers
from tidemill.world import World

WRITES: Final = "writes"
"""The entry of `triggered_by` with the names of the file sets that an outside writer has declared."""
READS: Final = "reads"
"""The entry of `triggered_by` with the file sets of which a transaction takes partitions, each with its consumer."""
_LEASE: Final = "lease"


class NotAnOutsideWriter(UserError):
    """A transaction that its own process renews and commits."""

    code = "not_an_outside_writer"

    def __init__(self, write_pointer: int) -> None:
        self.write_pointer = write_pointer
        super().__init__(
            f"transaction {write_pointer} was not begun by `tidemill tx begin`: its own process renews and commits it",
            f"`tidemill tx show {write_pointer}` names its run",
        )


@dataclass(frozen=True, slots=True)
class TransactionOutput:
    """File set that an outside writer may write: `location` is the folder below which its files are put.

    `columns` are those of the files, as Spark's JSON, without those of the key; None before the first commit.
    """

    dataset: str
    location: str
    format: str
    keys: Mapping[str, str]
    columns: str | None


@dataclass(frozen=True, slots=True)
class OutsideTransaction:
    """Open transaction of an outside writer, whose lease ends after `lease` unless it is renewed."""

    write_pointer: WritePointer
    run_id: RunId
    lease: str
    leased_until: datetime | None
    outputs: tuple[TransactionOutput, ...]
    inputs: tuple[TransactionInput, ...]


@dataclass(frozen=True, slots=True)
class PartitionTake:
    """Partitions that an engine outside has taken. Its transaction publishes nothing, and ends as any other.

    `write_pointer` names the transaction. None, with no partitions, if no partition waits.
    """

    write_pointer: WritePointer | None
    run_id: RunId | None
    lease: str
    leased_until: datetime | None
    dataset: str
    consumer: str
    location: str
    format: str
    keys: Mapping[str, str]
    partitions: tuple[TakenPartition, ...]


@dataclass(frozen=True, slots=True)
class CommittedTransaction:
    """Committed transaction of an engine outside: how much it has published, and how many partitions it had taken."""

    write_pointer: WritePointer
    run_id: RunId
    commit_seq: CommitSeq
    partitions: int
    files: int
    rows: int
    bytes: int
    taken: int = 0


@dataclass(frozen=True, slots=True)
class FailedTransaction:
    """Transaction of an engine outside that failed, with the reason that the engine gave."""

    write_pointer: WritePointer
    run_id: RunId
    state: TxState
    reason: str


def begin_outside(
    catalog: Catalog,
    world: World,
    filesets: Sequence[Fileset],
    reads: Sequence[tuple[Fileset, OutsideRead]] = (),
    *,
    owner: str,
    lease: timedelta,
    earlier: RunId | None = None,
    also: Callable[[RunId], Sequence[Effect]] = lambda _: (),
) -> OutsideTransaction:
    """Begin a transaction that may write these file sets, and takes partitions by `reads`.

    The answer says where to put the files of each output, and which files each taken partition has.

    What `also` gives for the id of the run comes with the run, and again with its transaction. `earlier` is the run of
    an earlier try of the same request: as long as the run lasts, its transaction is the answer.
    """
    named = {fileset.qualified_name: fileset for fileset in filesets}
    for name, fileset in named.items():
        if fileset.dataset.kind is DatasetKind.SNAPSHOT:
            raise NotASnapshot(name, "is a snapshot, whose guards compare whole versions: a program refreshes it")
    for fileset, read in reads:
        if fileset.qualified_name in named:
            raise UserError(
                f"the transaction reads and writes {fileset.qualified_name}",
                f"write another file set: {read.consumer} would take what it has published, for ever",
            )
    for fileset in named.values():
        open_files(fileset.dataset.location, world).prepare(again=True)
    found = [find_reads(catalog, reads)] if reads else []
    return _begin(catalog, world, named, Inputs(None, found), owner=owner, lease=lease, earlier=earlier, also=also)


def _begin(
    catalog: Catalog,
    world: World,
    named: Mapping[str, Fileset],
    inputs: Inputs,
    *,
    owner: str,
    lease: timedelta,
    earlier: RunId | None,
    also: Callable[[RunId], Sequence[Effect]],
) -> OutsideTransaction:
    cause: dict[str, object] = {
        "asked": "by an outside writer" if named else "by a take of partitions",
        WRITES: sorted(named),
        _LEASE: format_duration(lease),
        READS: [{"dataset": one.dataset, "consumer": one.consumer} for one in describe_inputs(inputs)],
    }
    record = None if earlier is None else catalog.read(lambda db: find_run(db, earlier))
    if record is None or not record.state.live:
        record = create_run(catalog, world, owner=owner, lease=lease, cause=cause, also=also)
    try:
        if record.write_pointer is None:
            step = begin_step(catalog, record, named, also=also(record.run_id), inputs=inputs)
        else:
            pointer = record.write_pointer
            step = _resume(catalog, catalog.read(lambda db: find_transaction(db, pointer)), record, inputs)
        step.take()
        world.mark("outside_writer.taken")
    except (Fenced, TransactionOpen):
        # The run has ended, or is that of a later try of the same request.
        raise
    except BaseException as error:
        end_failed(catalog, record.run_id, error, Cause.LOST)
        raise
    columns = catalog.read(lambda db: {name: find_schema(db, one.dataset_id) for name, one in named.items()})
    outputs = tuple(_describe_output(step, name, fileset, columns[name]) for name, fileset in named.items())
    return OutsideTransaction(
        step.tx.write_pointer,
        record.run_id,
        format_duration(lease),
        record.lease_until,
        outputs,
        describe_inputs(inputs),
    )


def take_outside(
    catalog: Catalog,
    world: World,
    fileset: Fileset,
    read: OutsideRead,
    *,
    owner: str,
    lease: timedelta,
    earlier: RunId | None = None,
    also: Callable[[RunId], Sequence[Effect]] = lambda _: (),
) -> PartitionTake:
    """Begin a transaction that publishes nothing, and takes partitions. If none waits, there is no transaction.

    `earlier` and `also` are those of `begin_outside`.
    """
    partitions = find_reads(catalog, [(fileset, read)])
    inputs = Inputs(None, [partitions])
    begun = None
    if earlier is not None or catalog.read(partitions.has_work):
        begun = _begin(catalog, world, {}, inputs, owner=owner, lease=lease, earlier=earlier, also=also)
        if not begun.inputs[0].partitions:
            # `also` has the guard of this try: a later one may have taken something by now.
            end_attempt(catalog, begun.run_id, 1, AttemptEnd(Cause.KILLED, "no partition waits"), also(begun.run_id))
            begun = None
    (taken,) = describe_inputs(inputs)
    return PartitionTake(
        begun.write_pointer if begun else None,
        begun.run_id if begun else None,
        format_duration(lease),
        begun.leased_until if begun else None,
        taken.dataset,
        taken.consumer,
        taken.location,
        taken.format,
        taken.keys,
        taken.partitions,
    )


def renew_outside(catalog: Catalog, write_pointer: WritePointer, lease: timedelta) -> None:
    """Keep a transaction for `lease` from now. An expired lease may be renewed until a reaper has fenced it.

    `TransactionEnded`, `NotAnOutsideWriter`.
    """
    row, run = catalog.read(lambda db: _find(db, write_pointer))
    if not catalog.write(lambda db: renew(db, [(run.run_id, row.epoch)], lease), urgent=True):
        row = catalog.read(lambda db: find_transaction(db, write_pointer))
        raise TransactionEnded(str(write_pointer), row.state, row.reason or "")


def commit_outside(
    catalog: Catalog, world: World, write_pointer: WritePointer, wanted: OutsideCommit, also: Sequence[Effect] = ()
) -> CommittedTransaction:
    """Commit what an outside writer has written and what it has taken, with `also`.

    The same commit again has the same answer.

    The files are compared with the storage first. What that refuses may be corrected, since the transaction stays open.
    A refusal by what others have committed ends the transaction: it can never commit. While the storage or the catalog
    is away, ask again. Errors: `FilesRefused`, `CommitDiffers`, `TransactionEnded`, `NotAnOutput`, `PartitionConflict`.
    """
    digest = wanted.digest

    def answer() -> CommittedTransaction:
        return _answer_ended(*catalog.read(lambda db: _find(db, write_pointer)), digest)

    row, run = catalog.read(lambda db: _find(db, write_pointer))
    if row.state is not TxState.IN_PROGRESS:
        return _answer_ended(row, run, digest)
    with renewed(catalog, world, run.run_id, _lease_of(catalog, run)):
        try:
            inputs, held = catalog.read(
                lambda db: (find_held_inputs(db, run.run_id), find_held(db, PARTITIONS, run.run_id))
            )
            step = _resume(catalog, row, run, inputs)
            published = {**_write(step, wanted), "taken": held.claims}
        except TransactionEnded:
            # Its declared outputs went with its end.
            return answer()
        if not catalog.write(lambda db: note_commit(db, run.run_id, row.epoch, digest)):
            return answer()
        world.mark("outside_writer.noted")
        try:
            commit_step(step, {"commit": digest, "published": published}, also)
        except Fenced:
            return answer()
        except (Conflict, UserError) as error:
            # A conflict is the fault of no partition.
            end_failed(catalog, run.run_id, error, Cause.LOST if isinstance(error, Conflict) else Cause.FAILED)
            raise
    return answer()


def fail_outside(
    catalog: Catalog, write_pointer: WritePointer, error: str, also: Sequence[Effect] = ()
) -> FailedTransaction:
    """End a transaction because its engine has failed with `error`, with `also`.

    A failure is counted against the partitions that the transaction has taken, as for a run. The same call again has
    the same answer. `TransactionEnded` if the transaction has ended otherwise, `NotAnOutsideWriter`.
    """
    _, run = catalog.read(lambda db: _find(db, write_pointer))
    end = AttemptEnd(Cause.FAILED, error)
    end_attempt(catalog, run.run_id, run.epoch, end, also)
    row, run = catalog.read(lambda db: _find(db, write_pointer))
    if run.exit_cause is not Cause.FAILED or run.exit_reason != end.shown_reason:
        raise TransactionEnded(str(write_pointer), row.state, row.reason or "")
    return FailedTransaction(write_pointer, run.run_id, row.state, end.shown_reason)


def _lease_of(catalog: Catalog, run: RunRecord) -> timedelta:
    """Return the lease to renew by while a commit goes on: never less than what is left of the writer's own."""
    lease = parse_lease(str(run.triggered_by[_LEASE]))
    now = catalog.read(lambda db: db.now())
    return lease if run.lease_until is None else max(lease, run.lease_until - now)


def _find(db: Db, write_pointer: WritePointer) -> tuple[TransactionRow, RunRecord]:
    row = find_transaction(db, write_pointer)
    run = find_run(db, row.run_id)
    if run.kind is not RunKind.EXTERNAL or WRITES not in run.triggered_by:
        raise NotAnOutsideWriter(write_pointer)
    return row, run


def _answer_ended(row: TransactionRow, run: RunRecord, digest: str) -> CommittedTransaction:
    """Return the answer to a commit of a transaction that has committed it; raise why it cannot be committed."""
    if row.state is TxState.COMMITTED and row.commit_seq is not None and run.facts.get("commit") == digest:
        published = run.facts["published"]
        assert isinstance(published, Mapping), "as the commit has stored it"  # noqa: S101
        return CommittedTransaction(row.write_pointer, run.run_id, row.commit_seq, **published)
    if row.state in {TxState.COMMITTED, TxState.IN_PROGRESS}:
        raise CommitDiffers(row.write_pointer, row.state)
    raise TransactionEnded(str(row.write_pointer), row.state, row.reason or "")


def _resume(catalog: Catalog, row: TransactionRow, run: RunRecord, inputs: Inputs) -> Step:
    def find(db: Db) -> dict[str, Fileset]:
        declared = list_declared(db, row.write_pointer)
        return {one.qualified_name: Fileset.of(one) for one in find_some(db, declared).values()}

    filesets = catalog.read(find)
    if run.triggered_by[WRITES] and not filesets:
        raise TransactionEnded(str(row.write_pointer), row.state)
    declared = frozenset(fileset.dataset_id for fileset in filesets.values())
    tx = Transaction(row.write_pointer, catalog.incarnation, run.run_id, row.epoch, declared)
    return resume_step(catalog, run, tx, filesets, inputs)


def _write(step: Step, wanted: OutsideCommit) -> dict[str, int]:
    """Have the outputs of a step publish what is wanted, in its order. Writes nothing yet. Return what is published."""
    outputs, catalog = step.outputs, step.catalog
    checkers: dict[str, FileChecker] = {}
    waiting: dict[str, list[PartitionWrite]] = {}
    for change in wanted.changes:
        name = change.dataset
        fileset = outputs.fileset(name)
        if change.op is WriteOp.DROP:
            # A drop also drops what the same commit has written before it.
            if name in waiting:
                outputs.register(name, waiting.pop(name), checkers[name].columns, base=checkers[name].base)
            key = dict(zip(fileset.keys.names, fileset.keys.read(change.key), strict=True))
            outputs.drop(name, make_filter(fileset.keys, key))
            continue
        if name not in checkers:
            files = open_files(fileset.dataset.location, catalog.world)
            checkers[name] = FileChecker(fileset, files, tx_directory(step.tx), _read_columns(catalog, fileset))
        waiting.setdefault(name, []).append(checkers[name].check(change))
    for name, writes in waiting.items():
        outputs.register(name, writes, checkers[name].columns, base=checkers[name].base)
    for message in wanted.messages:
        step.workspace.publish(message.topic, message.payload, message.key)
    names = dict.fromkeys(change.dataset for change in wanted.changes)
    written = [write for name in names for write in outputs.written(name)]
    return {
        "partitions": len(written),
        "files": sum(len(write.manifest.files) for write in written),
        "rows": sum(write.manifest.total_rows for write in written),
        "bytes": sum(write.manifest.total_bytes for write in written),
    }


def _read_columns(catalog: Catalog, fileset: Fileset) -> ColumnSchema | None:
    return catalog.read(lambda db: find_schema(db, fileset.dataset_id))


def _describe_output(step: Step, name: str, fileset: Fileset, columns: ColumnSchema | None) -> TransactionOutput:
    directory = f"{tx_directory(step.tx)}/{WRITE_CALL}"
    return TransactionOutput(
        name,
        path_for_readers(fileset.dataset.location, directory),
        fileset.storing.format,
        fileset.keys.types,
        None if columns is None else columns.text,
    )
