"""Transactions: begin, commit, end without commit, and what a transaction sees (seed 000; the clock is of Tephra).

A transaction is a row, not a database transaction: a Spark job may hold one open for hours. Its begin takes a tick of
the clock, the write pointer w; its commit another, the commit sequence. It sees exactly the changes with
`commit_seq < w`, whenever it looks, and its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import FROM_NEWEST, Call, Param, load_sql
from tidemill.errors import Conflict, Fenced, NotFound, UserError
from tidemill.names import CommitSeq, DatasetId, RunId, WritePointer

if TYPE_CHECKING:
    from tidemill.catalog.transactions_sql import Sql

SQL: Sql = load_sql(__file__)

LONGEST_LIFE: Final = timedelta(hours=25)
"""A transaction is fenced after this time, even if its lease is renewed. All later transactions carry an open
transaction in their in-progress lists."""


class TxState(StrEnum):
    """Only `INVALID` may still have a zombie that writes: it was fenced, not ended by its owner."""

    IN_PROGRESS = "in_progress"
    COMMITTED = "committed"
    ABORTED = "aborted"
    INVALID = "invalid"


@refusal
class TransactionEnded(Fenced):
    """The transaction is not open any more, or another attempt of its run has taken over."""

    code = "transaction_ended"

    def __init__(self, write_pointer: str, state: str, reason: str = "") -> None:
        self.write_pointer = int(write_pointer)
        self.state = state
        self.reason = reason
        because = f" ({reason})" if reason else ""
        super().__init__(f"transaction {write_pointer}", f"it is {state}{because}")


@refusal
class TransactionOpen(Conflict):
    """The attempt has an open transaction already."""

    code = "transaction_open"

    def __init__(self, write_pointer: str, run_id: str) -> None:
        self.write_pointer = int(write_pointer)
        self.run_id = run_id
        super().__init__(
            f"transaction {write_pointer} of {run_id} is open", "commit or abort it before the next begin", before=": "
        )


@refusal
class DatasetDropped(UserError):
    """A transaction is to write to a data set that was dropped meanwhile."""

    code = "dataset_dropped"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(
            f"{dataset} was dropped; nothing was begun", "name another data set, or make it again", before=": "
        )


@refusal
class UndeclaredOutput(UserError):
    """A commit to a data set that the transaction's begin did not declare."""

    code = "undeclared_output"

    def __init__(self, dataset: str, write_pointer: str) -> None:
        self.dataset = dataset
        self.write_pointer = int(write_pointer)
        super().__init__(
            f"transaction {write_pointer} did not declare that it writes {dataset}",
            "name it in `writes=` of the program, or at begin",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Snapshot of the catalog: a transaction sees all commits before its begin, and no later ones."""

    write_pointer: WritePointer
    incarnation: str
    """Names this catalog's life in directory names: a restored catalog has another."""

    @property
    def read_pointer(self) -> int:
        """The greatest tick that it sees; fixed at begin."""
        return self.write_pointer - 1


@dataclass(frozen=True, slots=True)
class Transaction(Snapshot):
    """An open transaction of attempt `epoch` of a run, which may commit to the data sets in `writes`."""

    run_id: RunId
    epoch: int
    writes: frozenset[DatasetId]
    claimant: tuple[RunId, int] | None = None
    """The run, with its epoch, to which the claims of this transaction belong; None for the run itself."""

    @property
    def claims_of(self) -> tuple[RunId, int]:
        """The run, with its epoch, to which the claims belong."""
        return self.claimant or (self.run_id, self.epoch)


@dataclass(frozen=True, slots=True)
class TransactionRow:
    """Row of a transaction."""

    write_pointer: WritePointer
    state: TxState
    commit_seq: CommitSeq | None
    run_id: RunId
    epoch: int
    began_at: datetime
    ended_at: datetime | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class _BeginTransaction(Effect):
    phase = Phase.TRANSACTION

    run_id: RunId
    epoch: int
    declared: frozenset[DatasetId]
    spans: Mapping[DatasetId, tuple[int, int]]
    first: bool

    def guards(self) -> Sequence[Call]:
        return () if self.first else (SQL.refuse_second(run_id=self.run_id, epoch=self.epoch),)

    def writes(self) -> Sequence[Call]:
        calls = [SQL.insert_tx(run_id=self.run_id, epoch=self.epoch)]
        if self.declared:
            spans = {dataset_id: self.spans.get(dataset_id, (None, None)) for dataset_id in sorted(self.declared)}
            rows = [{"dataset_id": name, "from_time": low, "to_time": high} for name, (low, high) in spans.items()]
            calls.append(SQL.declare_writes(declared=json.dumps(rows)))
        return calls


@dataclass(frozen=True, slots=True)
class _CommitTransaction(Effect):
    phase = Phase.TRANSACTION

    write_pointer: WritePointer
    epoch: int
    declared: frozenset[DatasetId]

    def guards(self) -> Sequence[Call]:
        return (SQL.refuse_unless_open(write_pointer=self.write_pointer, epoch=self.epoch),)

    def writes(self) -> Sequence[Call]:
        committed = SQL.commit_tx(write_pointer=self.write_pointer)
        return (committed, SQL.forget_declared(write_pointer=self.write_pointer)) if self.declared else (committed,)


@dataclass(frozen=True, slots=True)
class EndTransaction(Effect):
    """End a transaction without commit: `ABORTED` by its owner, `INVALID` when fenced; nothing if it has ended."""

    phase = Phase.TRANSACTION

    write_pointer: WritePointer
    state: TxState
    reason: str

    def writes(self) -> Sequence[Call]:
        """Set the state once; turn its declarations into garbage, what it may have written to each data set."""
        params: dict[str, Param] = {
            "write_pointer": self.write_pointer,
            "state": self.state,
            "reason": self.reason,
        }
        return (
            SQL.end_tx(**params),
            SQL.leave_garbage(write_pointer=self.write_pointer),
            SQL.forget_ended(write_pointer=self.write_pointer),
        )


def begin(
    catalog: Catalog,
    *,
    run_id: RunId,
    epoch: int,
    writes: Iterable[DatasetId] = (),
    spans: Mapping[DatasetId, tuple[int, int]] = MappingProxyType({}),
    effects: Sequence[Effect] = (),
    first: bool = False,
) -> Transaction:
    """Open a transaction for attempt `epoch` of a run; it has committed before anything is read by it.

    `spans` say of which time the partitions are that it may write, as instants `[low, high)` in microseconds: they hold
    watermarks back until it ends. What it adds of other times holds nothing.
    `effects` (the run's guard, claims that follow the new attempt) happen in the same message. Begin and a read in one
    statement missed a change that had committed one pointer earlier (tried). Raises `TransactionOpen` when the attempt
    has one already. That is not asked for its `first`: then `effects` refuse an attempt that has begun.
    """
    declared = frozenset(writes)
    # After a lost reply the row is found by its run and epoch, which have one open transaction at a time.
    outcome = SQL.find_begun(run_id=run_id, epoch=epoch)
    seq = catalog.apply([_BeginTransaction(run_id, epoch, declared, spans, first), *effects], outcome=outcome)
    catalog.world.mark("begin.after_commit")
    return Transaction(WritePointer(seq), catalog.incarnation, run_id, epoch, declared)


def commit(catalog: Catalog, tx: Transaction, effects: Sequence[Effect]) -> CommitSeq:
    """Commit `effects` with the transaction, all or nothing, and give the commit sequence.

    Raises `TransactionEnded` when it is not open with this epoch any more, and what the effects' guards refuse. An
    outcome that is unknown because the reply was lost is asked for by the write pointer, under a lock.
    """
    catalog.world.mark("commit.before_message")
    outcome = SQL.find_committed(write_pointer=tx.write_pointer, epoch=tx.epoch)
    seq = catalog.apply([_CommitTransaction(tx.write_pointer, tx.epoch, tx.writes), *effects], outcome=outcome)
    catalog.world.mark("commit.after_message")
    return seq


def lock_open(db: Db, tx: Transaction) -> None:
    """Lock the transaction, so that an end of the attempt waits. Raises `TransactionEnded` when it is not open."""
    if db.one(SQL.lock_open, write_pointer=tx.write_pointer, epoch=tx.epoch) is None:
        row = find_transaction(db, tx.write_pointer)
        raise TransactionEnded(str(tx.write_pointer), row.state, row.reason or "")


def find_in_progress(db: Db, dataset_id: DatasetId, snapshot: Snapshot) -> list[WritePointer]:
    """The in-progress list of `snapshot` for one data set, ascending, at any later time.

    Those that are open with a lower write pointer, and those that began below and committed after it (without the
    second half partitions are lost; tried on 200,000 random histories). Call it after the begin has committed. Cost:
    what is open, and what committed to the data set since.
    """
    return db.records(SQL.find_in_progress, WritePointer, dataset_id=dataset_id, write_pointer=snapshot.write_pointer)


def find_transaction(db: Db, write_pointer: WritePointer) -> TransactionRow:
    """Return the row of a transaction. `NotFound` if no transaction has that write pointer."""
    row = db.record(SQL.find_tx, TransactionRow, write_pointer=write_pointer)
    if row is None:
        raise NotFound("transaction", str(write_pointer))
    return row


def list_transactions(
    db: Db, *, limit: int, open_only: bool = False, state: TxState | None = None, after: WritePointer | None = None
) -> list[TransactionRow]:
    """List transactions (in a state), newest first, from the one behind `after` on.

    Open transactions come oldest first, since an old one is what people look for.
    """
    if open_only or state is TxState.IN_PROGRESS:
        return db.records(SQL.list_open, TransactionRow, after=after or 0, limit=limit)
    before = FROM_NEWEST[0] if after is None else after
    match state:
        case None:
            return db.records(SQL.list_newest, TransactionRow, before=before, limit=limit)
        case TxState.COMMITTED:
            return db.records(SQL.list_committed, TransactionRow, before=before, limit=limit)
        case _:
            return db.records(SQL.list_failed, TransactionRow, state=state, before=before, limit=limit)
