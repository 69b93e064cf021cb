"""Transactions, as `Mill` offers them: open one, list, show, abort."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import Row, load_sql
from tidemill.catalog.transactions import EndTransaction, TransactionRow, TxState, find_transaction, list_transactions
from tidemill.lake.datasets import Dataset, find_some
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, cut, one_more, read_key, write_key
from tidemill.mill.project import MOST_SHOWN, Noun, fields_of
from tidemill.names import DatasetId, WritePointer
from tidemill.run.records.runs import Cause
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.mill.transactions_sql import Sql

SQL: Sql = load_sql(__file__)


@dataclass(frozen=True, slots=True)
class PublishedView:
    """Changes of one transaction to one data set."""

    dataset: str
    partition: str
    op: str
    files: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class TransactionDetail(TransactionRow):
    """A transaction with the changes that it published."""

    published: tuple[PublishedView, ...]


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction that was to be aborted, and its state afterwards."""

    write_pointer: WritePointer
    state: TxState


class Transactions(Noun):
    """Operations on transactions."""

    noun = "tx"

    @operation(Right.READ, whole=True)
    def list(self, *, open_only: bool = False, limit: int = PAGE, after: str = "") -> Page[TransactionRow]:
        """List transactions, newest first; open transactions oldest first. `after` is a write pointer."""
        (pointer,) = read_key(after, (0,))
        found = self._catalog.read(
            lambda db: list_transactions(
                db, limit=one_more(limit), open_only=open_only, after=WritePointer(pointer) if after else None
            )
        )
        return cut(found, limit, lambda row: write_key(row.write_pointer), lambda row: row)

    @operation(Right.READ, whole=True)
    def show(self, write_pointer: int) -> TransactionDetail:
        """Return a transaction with the changes that it published; `NotFound`."""

        def block(db: Db) -> TransactionDetail:
            row = find_transaction(db, WritePointer(write_pointer))
            rows = db.all(SQL.list_published, write_pointer=write_pointer, limit=MOST_SHOWN)
            by_id = find_some(db, (DatasetId(str(row[0])) for row in rows))
            published = tuple(_published_view(one, by_id) for one in rows)
            return TransactionDetail(**fields_of(row), published=published)

        return self._catalog.read(block)

    @operation(Right.OPERATE, whole=True)
    def abort(self, write_pointer: int) -> AbortedTransaction:
        """Abort an open transaction: it becomes invalid and its run KILLED."""
        from tidemill.run.step.attempts import AttemptEnd, end_attempt

        row = self._catalog.read(lambda db: find_transaction(db, WritePointer(write_pointer)))
        if row.state is TxState.IN_PROGRESS:
            end = AttemptEnd(Cause.KILLED, f"transaction {write_pointer} was aborted by hand", zombie=True)
            note = self._note("abort", str(write_pointer), run_id=row.run_id)
            if end_attempt(self._catalog, row.run_id, row.epoch, end, [note]) is None:

                def block(db: Db) -> None:
                    db.tick()  # no other commit ends it between the look and the end
                    if find_transaction(db, row.write_pointer).state is TxState.IN_PROGRESS:
                        for call in EndTransaction(row.write_pointer, TxState.INVALID, "aborted by hand").writes():
                            db.call(call)
                        note.write(db)

                self._catalog.write(block)
        state = self._catalog.read(lambda db: find_transaction(db, row.write_pointer)).state
        return AbortedTransaction(row.write_pointer, state)


def _published_view(row: Row, by_id: Mapping[DatasetId, Dataset]) -> PublishedView:
    dataset_id, key, op, files, size, rows = row
    fileset = Fileset.of(by_id[DatasetId(str(dataset_id))])
    shown = fileset.show(KeyText(str(key)))
    return PublishedView(
        fileset.qualified_name, shown, str(op), cast("int", files), cast("int", size), cast("int", rows or 0)
    )
