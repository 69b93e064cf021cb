from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from tests.catalog.conftest import OpenCatalog
from tests.catalog.test_db import Does
from tests.catalog.test_named import SQL
from tests.catalog.tiny import AddKeys, read_keys
from tidemill.catalog.db import Catalog
from tidemill.catalog.effects import Effect
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import (
    EndTransaction,
    Transaction,
    TransactionEnded,
    TransactionOpen,
    TransactionRow,
    TxState,
    begin,
    commit,
    find_in_progress,
    find_transaction,
    list_transactions,
)
from tidemill.errors import NotFound
from tidemill.names import DatasetId, RunId, WritePointer
from tidemill.world import World

CLICKS, LINES = DatasetId("clicks"), DatasetId("lines")


class Crash(BaseException):
    """The process dies here."""


@dataclass(frozen=True)
class Book:
    """A catalog, and runs with names."""

    catalog: Catalog

    def begin(self, run: str, *writes: DatasetId, epoch: int = 1, effects: Sequence[Effect] = ()) -> Transaction:
        return begin(self.catalog, run_id=RunId(run), epoch=epoch, writes=writes, effects=effects)

    def commit(self, tx: Transaction, *keys: str, dataset: DatasetId = CLICKS) -> int:
        return commit(self.catalog, tx, [AddKeys(dataset, tx.write_pointer, keys)] if keys else [])

    def end(self, tx: Transaction, state: TxState = TxState.ABORTED, reason: str = "why not") -> None:
        self.catalog.apply([EndTransaction(tx.write_pointer, state, reason)])

    def row(self, tx: Transaction) -> TransactionRow:
        return self.catalog.read(lambda db: find_transaction(db, tx.write_pointer))

    def keys(self, tx: Transaction, dataset: DatasetId = CLICKS) -> list[str]:
        return self.catalog.read(lambda db: read_keys(db, dataset, tx))

    def in_progress(self, tx: Transaction, dataset: DatasetId = CLICKS) -> list[WritePointer]:
        return self.catalog.read(lambda db: find_in_progress(db, dataset, tx))


@pytest.fixture
def book(catalog: Catalog) -> Book:
    """A new catalog's."""
    return Book(catalog)


def test_a_transaction_is_a_row_from_begin_to_commit(book: Book) -> None:
    """A Spark job holds one for hours: no database transaction would last that long."""
    tx = book.begin("run_1", CLICKS)
    opened = book.row(tx)
    seq = book.commit(tx)
    closed = book.row(tx)

    assert (opened.state, opened.commit_seq, opened.ended_at) == (TxState.IN_PROGRESS, None, None)
    assert (closed.state, closed.commit_seq) == (TxState.COMMITTED, seq)
    assert tx.write_pointer < seq
    assert tx.read_pointer == tx.write_pointer - 1
    assert (closed.run_id, closed.epoch) == ("run_1", 1)
    assert closed.ended_at is not None
    assert opened.began_at <= closed.ended_at
    assert tx.incarnation == book.catalog.incarnation


def test_a_transaction_sees_what_committed_before_it_began(book: Book) -> None:
    """Whenever it looks: what commits while it works stays out of its sight."""
    early, reader = book.begin("run_1", CLICKS), None
    book.commit(early, "hour=10")
    late = book.begin("run_2", CLICKS)
    reader = book.begin("run_3")
    before = book.keys(reader)
    book.commit(late, "hour=11")

    assert before == ["hour=10"]
    assert book.keys(reader) == ["hour=10"]
    assert book.keys(book.begin("run_4")) == ["hour=10", "hour=11"]


def test_the_in_progress_list_is_the_same_later(book: Book) -> None:
    """A consumer computes it after its work; what committed meanwhile has to be on it still, or is never read."""
    slow, fast = book.begin("run_1", CLICKS), book.begin("run_2", CLICKS)
    other = book.begin("run_3", LINES)
    book.commit(fast, "hour=11")
    reader = book.begin("run_4")
    later = book.begin("run_5", CLICKS)
    at_once = book.in_progress(reader)
    book.commit(slow, "hour=10")
    book.commit(later, "hour=12")
    book.commit(other, "x", dataset=LINES)

    assert at_once == [slow.write_pointer]
    assert book.in_progress(reader) == [slow.write_pointer]


@pytest.mark.parametrize("state", [TxState.ABORTED, TxState.INVALID])
def test_an_ended_transaction_leaves_a_hint_for_the_janitor(book: Book, state: TxState) -> None:
    """The transaction leaves only files: its end records the intent to delete them, once for each data set."""
    tx = book.begin("run_1", CLICKS, LINES)
    book.end(tx, state)
    row = book.row(tx)
    garbage = book.catalog.read(lambda db: db.all(load_sql(__file__).read_garbage))

    assert (row.state, row.reason, row.commit_seq) == (state, "why not", None)
    assert book.in_progress(book.begin("run_2")) == []
    assert garbage == [("clicks", tx.write_pointer, state), ("lines", tx.write_pointer, state)]


def test_a_commit_leaves_no_garbage(book: Book) -> None:
    """The janitor must never hear of what was published."""
    tx = book.begin("run_1", CLICKS)
    book.commit(tx, "hour=10")
    book.end(tx)

    assert book.catalog.read(lambda db: db.all(load_sql(__file__).read_garbage)) == []
    assert book.row(tx).state is TxState.COMMITTED


def test_the_first_end_stays(book: Book) -> None:
    """A runner and a reaper may both end a lost transaction: the second changes nothing."""
    tx = book.begin("run_1", CLICKS)
    book.end(tx, TxState.INVALID, "fenced")
    book.end(tx, TxState.ABORTED, "gave up")

    assert (book.row(tx).state, book.row(tx).reason) == (TxState.INVALID, "fenced")


@pytest.mark.parametrize("state", [TxState.ABORTED, TxState.INVALID])
def test_what_has_ended_is_not_committed(book: Book, state: TxState) -> None:
    """The fence: a driver that was stopped for longer than its lease comes back and commits."""
    tx = book.begin("run_1", CLICKS)
    book.end(tx, state, "its lease ran out")

    with pytest.raises(TransactionEnded, match="its lease ran out") as refused:
        book.commit(tx, "hour=10")

    assert refused.value.state == state
    assert refused.value.exit_code == 3
    assert book.keys(book.begin("run_2")) == []


def test_a_transaction_commits_once(book: Book) -> None:
    """The second call is a mistake of the caller, not a second commit."""
    tx = book.begin("run_1", CLICKS)
    book.commit(tx, "hour=10")

    with pytest.raises(TransactionEnded, match="it is committed"):
        book.commit(tx, "hour=11")

    assert book.keys(book.begin("run_2")) == ["hour=10"]


def test_a_transaction_that_never_began_does_not_commit(book: Book) -> None:
    """The write pointer may come from a catalog that was restored from an older copy."""
    tx = replace(book.begin("run_1", CLICKS), write_pointer=WritePointer(10**6))

    with pytest.raises(TransactionEnded, match="it is unknown"):
        book.commit(tx, "hour=10")


def test_another_attempt_does_not_commit_it(book: Book) -> None:
    """The epoch fences even where the write pointer is right."""
    tx = replace(book.begin("run_1", CLICKS, epoch=1), epoch=2)

    with pytest.raises(TransactionEnded, match="newer attempt"):
        book.commit(tx, "hour=10")


def test_an_attempt_has_one_open_transaction(book: Book) -> None:
    """A begin sent again after a lost reply would leave the first open for ever, in every in-progress list."""
    tx = book.begin("run_1", CLICKS)
    with pytest.raises(TransactionOpen, match=f"transaction {tx.write_pointer} of run_1"):
        book.begin("run_1", CLICKS)
    next_attempt = book.begin("run_1", CLICKS, epoch=2)
    book.commit(tx, "hour=10")
    again = book.begin("run_1", CLICKS)

    assert tx.write_pointer < next_attempt.write_pointer < again.write_pointer


def test_begin_does_what_comes_with_it_or_nothing(book: Book) -> None:
    """The new attempt's claims move with its begin; a begin that is refused leaves no transaction open."""
    limit = SQL.write_limit(limit_key="with begin")
    refuse = SQL.refuse_if_limit(limit_key="with begin")

    book.begin("run_1", CLICKS, effects=[Does((refuse,), (limit,))])
    with pytest.raises(Exception, match="with begin and again"):
        book.begin("run_2", CLICKS, effects=[Does((refuse,))])

    assert book.catalog.read(lambda db: db.all(SQL.read_limits)) == [("with begin",)]
    assert [row.run_id for row in book.catalog.read(lambda db: list_transactions(db, limit=9, open_only=True))] == [
        "run_1"
    ]


def test_transactions_are_listed_newest_first_and_open_ones_oldest_first(book: Book) -> None:
    """An old open one is what people look for: it keeps every consumer's list long."""
    first, second, third = (book.begin(f"run_{n}", CLICKS) for n in range(3))
    book.commit(second)

    newest = book.catalog.read(lambda db: list_transactions(db, limit=2, open_only=False))
    still_open = book.catalog.read(lambda db: list_transactions(db, limit=9, open_only=True))

    assert [row.write_pointer for row in newest] == [third.write_pointer, second.write_pointer]
    assert [row.write_pointer for row in still_open] == [first.write_pointer, third.write_pointer]


def test_an_unknown_transaction_is_not_found(book: Book) -> None:
    """Exit code 4."""
    with pytest.raises(NotFound) as refused:
        book.catalog.read(lambda db: find_transaction(db, WritePointer(77)))

    assert refused.value.exit_code == 4


@pytest.mark.parametrize("mark", ["apply.before_commit", "apply.before_reply", "begin.after_commit"])
def test_a_crash_in_begin_leaves_nothing_visible(open_again: OpenCatalog, mark: str) -> None:
    """Return whether the row is there or not: nothing was published, and the next attempt begins."""
    survivor = Book(open_again())
    dying = Book(open_again(world=_dies_at(mark)))

    with pytest.raises(Crash):
        dying.begin("run_1", CLICKS)

    left = survivor.catalog.read(lambda db: list_transactions(db, limit=9, open_only=True))
    assert len(left) == (0 if mark == "apply.before_commit" else 1)
    survivor.begin("run_1", CLICKS, epoch=2)


@pytest.mark.parametrize(
    ("mark", "done"),
    [
        ("commit.before_message", False),
        ("apply.before_commit", False),
        ("apply.before_reply", True),
        ("commit.after_message", True),
    ],
)
def test_a_crash_in_commit_is_all_or_nothing(open_again: OpenCatalog, mark: str, *, done: bool) -> None:
    """The driver dies at every step: a reader finds the whole commit, or an open transaction."""
    survivor = Book(open_again())
    tx = survivor.begin("run_1", CLICKS)
    dying = Book(open_again(world=_dies_at(mark)))

    with pytest.raises(Crash):
        dying.commit(tx, "hour=10", "hour=11")

    assert survivor.row(tx).state == (TxState.COMMITTED if done else TxState.IN_PROGRESS)
    assert survivor.keys(survivor.begin("run_2")) == (["hour=10", "hour=11"] if done else [])


def _dies_at(mark: str) -> World:
    def marked(name: str) -> None:
        if name == mark:
            raise Crash

    return World(marked=marked)
