from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest

from tests.catalog.conftest import OpenCatalog
from tests.catalog.proxy import Fate, Proxy
from tests.catalog.test_named import SQL
from tests.catalog.test_transactions import CLICKS, Book
from tidemill.catalog import db as catalog_db
from tidemill.catalog import postgres
from tidemill.catalog.db import CatalogUnavailable, LostReply
from tidemill.catalog.messages import Publish, Topic
from tidemill.catalog.transactions import TransactionEnded, TxState, list_transactions
from tidemill.errors import Unavailable
from tidemill.names import EventKey
from tidemill.world import SystemClock, World


@pytest.fixture
def line(postgres_catalog_url: str) -> Iterator[Proxy]:
    """A line to the catalog's server."""
    with Proxy(postgres_catalog_url) as proxy:
        yield proxy


@pytest.fixture
def direct(postgres_catalog_url: str, open_at: OpenCatalog) -> Book:
    """The catalog by another line, which is never cut."""
    return Book(open_at(postgres_catalog_url))


@pytest.fixture
def book(line: Proxy, direct: Book, open_at: OpenCatalog) -> Book:
    """The catalog behind the line."""
    return Book(open_at(line.url))


FATES = [
    [Fate.REPLY_LOST],
    [Fate.REQUEST_LOST],
    [Fate.REQUEST_LOST, Fate.PASS, Fate.REPLY_LOST],
    [Fate.REPLY_LOST, Fate.REPLY_LOST, Fate.REQUEST_LOST],
    [Fate.REQUEST_LOST, Fate.REQUEST_LOST, Fate.REPLY_LOST, Fate.PASS, Fate.REQUEST_LOST],
]


@pytest.mark.parametrize("fates", FATES, ids=", ".join)
def test_a_commit_happens_once_whatever_is_lost(line: Proxy, book: Book, direct: Book, fates: list[Fate]) -> None:
    """The outcome is asked for: never guessed, and never sent twice."""
    tx = book.begin("run_1", CLICKS)
    line.fates = list(fates)

    seq = book.commit(tx, "hour=10")

    assert line.fates == []
    assert direct.row(tx).commit_seq == seq
    assert direct.keys(direct.begin("run_2")) == ["hour=10"]


@pytest.mark.parametrize("fates", FATES, ids=", ".join)
def test_a_begin_happens_once_whatever_is_lost(line: Proxy, book: Book, direct: Book, fates: list[Fate]) -> None:
    """A second transaction would stay open for ever."""
    line.fates = list(fates)

    tx = book.begin("run_1", CLICKS)

    opened = direct.catalog.read(lambda db: list_transactions(db, limit=9, open_only=True))
    assert line.fates == []
    assert [row.write_pointer for row in opened] == [tx.write_pointer]


def test_a_commit_that_arrives_late_happens_once(line: Proxy, direct: Book, open_at: OpenCatalog) -> None:
    """The line broke, the outcome was asked for ("not committed"), it was sent again: then the first one arrived."""
    tries: list[str] = []

    def late(mark: str) -> None:
        if mark == "apply.before_commit" and tries.append(mark) is None and len(tries) == 2:
            line.deliver_late()

    tx = direct.begin("run_1", CLICKS)
    book = Book(open_at(line.url, World(marked=late)))
    line.fates = [Fate.REQUEST_LATE]

    seq = book.commit(tx, "hour=10")

    assert len(tries) == 2
    assert direct.row(tx).commit_seq == seq
    assert direct.keys(direct.begin("run_2")) == ["hour=10"]


def test_a_begin_that_arrives_late_happens_once(line: Proxy, direct: Book, open_at: OpenCatalog) -> None:
    """As above: without the guard against a second one both would be open."""
    tries: list[str] = []

    def late(mark: str) -> None:
        if mark == "apply.before_commit" and tries.append(mark) is None and len(tries) == 2:
            line.deliver_late()

    book = Book(open_at(line.url, World(marked=late)))
    line.fates = [Fate.REQUEST_LATE]

    tx = book.begin("run_1", CLICKS)

    opened = direct.catalog.read(lambda db: list_transactions(db, limit=9, open_only=True))
    assert len(tries) == 2
    assert [row.write_pointer for row in opened] == [tx.write_pointer]


def test_a_commit_that_was_fenced_while_its_line_was_cut_says_so(
    line: Proxy, direct: Book, open_at: OpenCatalog
) -> None:
    """Not "unavailable", and not "committed"."""
    tries: list[str] = []

    def fence(mark: str) -> None:
        if mark == "apply.before_commit" and tries.append(mark) is None and len(tries) == 2:
            direct.end(tx, TxState.INVALID, "fenced meanwhile")

    tx = direct.begin("run_1", CLICKS)
    book = Book(open_at(line.url, World(marked=fence)))
    line.fates = [Fate.REQUEST_LOST]

    with pytest.raises(TransactionEnded, match="fenced meanwhile"):
        book.commit(tx, "hour=10")

    assert direct.keys(direct.begin("run_2")) == []


def test_an_outcome_that_cannot_be_found_stays_unknown(
    line: Proxy, book: Book, direct: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`CatalogUnavailable` would read as "nothing happened", and a caller would delete the files."""
    monkeypatch.setattr(catalog_db, "RETRY_FOR", timedelta(0))
    book.catalog._pool.timeout = 0.5  # type: ignore[attr-defined]  # the test need not wait for ten seconds
    tx = book.begin("run_1", CLICKS)
    line.fates = [Fate.LAST_REPLY_LOST]

    with pytest.raises(LostReply, match="not known yet"):
        book.commit(tx, "hour=10")

    assert direct.row(tx).state is TxState.COMMITTED


@pytest.mark.parametrize("fate", [Fate.REPLY_LOST, Fate.REQUEST_LOST])
def test_what_cannot_be_asked_for_is_raised_as_unknown(line: Proxy, book: Book, fate: Fate) -> None:
    """A commit without a row of its own, and a block: the caller looks again."""
    publish = Publish(Topic.DATA, "t", EventKey("partition:default.clicks"), {})
    book.catalog.apply([publish])
    line.fates = [fate, fate]

    with pytest.raises(LostReply):
        book.catalog.apply([publish])
    with pytest.raises(LostReply):
        book.catalog.write(lambda db: db.run(SQL.write_limit, limit_key="a"))


@pytest.mark.parametrize("breaks", [1, 2])
def test_a_line_that_breaks_before_the_commit_is_no_riddle(line: Proxy, book: Book, direct: Book, breaks: int) -> None:
    """Nothing was committed, so the block is run again on a fresh connection, which may be one of those that died."""
    tries: list[int] = []

    def block(db: catalog_db.Db) -> int:
        tries.append(1)
        changed = db.run(SQL.write_limit, limit_key="a")
        if len(tries) <= breaks:
            line.cut()
            db.now()
        return changed

    assert book.catalog.write(block) == 1
    assert len(tries) == breaks + 1
    assert direct.catalog.read(lambda db: db.all(SQL.read_limits)) == [("a",)]


def _open_connections(book: Book, number: int) -> None:
    """Leave so many idle connections in the pool."""
    all_at_once = threading.Barrier(number)
    threads = [
        threading.Thread(target=book.catalog.read, args=(lambda db: (db.now(), all_at_once.wait(10)),))
        for _ in range(number)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)


def test_connections_that_died_after_the_pool_looked_do_not_count(
    line: Proxy, book: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool opens connections in the background: each of them may die before its first statement."""
    _open_connections(book, 6)
    monkeypatch.setattr(book.catalog._pool, "check", lambda: None)  # type: ignore[attr-defined]
    line.cut()

    assert book.catalog.write(lambda db: db.run(SQL.write_limit, limit_key="a")) == 1


def test_idle_connections_that_died_are_not_noticed(line: Proxy, book: Book) -> None:
    """A restart of PostgreSQL ends every idle connection: not each of them costs a failure."""
    _open_connections(book, 4)
    line.cut()

    tx = book.begin("run_1", CLICKS)
    line.cut()
    keys = book.keys(tx)
    line.cut()
    book.commit(tx, "hour=10")

    assert keys == []
    assert book.row(tx).state is TxState.COMMITTED


def test_a_catalog_that_is_away_is_reported_and_works_when_it_is_back(line: Proxy, book: Book) -> None:
    """A role keeps its object through an outage; nothing has to be started again."""
    catalog = book.catalog
    catalog._pool.timeout = 1.0  # type: ignore[attr-defined]  # the test need not wait for ten seconds
    waiter = catalog.waiter()
    tx = book.begin("run_1", CLICKS)

    line.stop()
    for _ in range(2):
        with pytest.raises(CatalogUnavailable) as refused:
            book.keys(tx)
    woken_by_the_outage = waiter.wait(timedelta(seconds=10))
    still_away = waiter.wait(timedelta(seconds=10))
    line.start()
    catalog._pool.timeout = 20.0  # type: ignore[attr-defined]
    book.commit(tx, "hour=10")
    woken_by_the_return = waiter.wait(timedelta(seconds=10))
    waiter.close()

    assert refused.value.exit_code == 5
    assert woken_by_the_outage
    assert still_away
    assert woken_by_the_return


def test_a_waiter_of_a_catalog_that_is_away_says_so(line: Proxy, book: Book) -> None:
    """As every other call, by an error of ours."""
    line.stop()

    with pytest.raises(CatalogUnavailable):
        book.catalog.waiter()


def paused(direct: Book) -> None:
    """Wait until the server has ended each session that pauses inside a transaction."""
    with psycopg.connect(direct.catalog.url, autocommit=True) as connection:
        schema = connection.execute("SELECT current_schema()").fetchone()
        query = (
            "SELECT count(*) FROM pg_locks AS l JOIN pg_class AS c ON c.oid = l.relation"
            " WHERE c.relname = 'slot_limit' AND c.relnamespace = CAST(%s AS regnamespace)"
        )
        while connection.execute(query, schema).fetchone() != (0,):
            pass


@pytest.mark.parametrize("then", ["reads on", "commits"])
def test_a_block_that_paused_too_long_is_run_again(
    direct: Book, open_at: OpenCatalog, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """A stopped process stops no other for longer than five seconds. When it continues, it does not fail for that."""
    impatient = f"{postgres._SETTINGS}; SET idle_in_transaction_session_timeout = '100ms'"
    monkeypatch.setattr(postgres, "_SETTINGS", impatient)
    catalog = open_at(direct.catalog.url)
    tries: list[int] = []

    def block(db: catalog_db.Db) -> int:
        tries.append(1)
        changed = db.run(SQL.write_limit, limit_key="a")
        if len(tries) == 1:
            paused(direct)
            if then == "reads on":
                db.now()
        return changed

    assert catalog.write(block) == 1
    assert len(tries) == 2
    assert direct.catalog.read(lambda db: db.all(SQL.read_limits)) == [("a",)]


def test_a_block_that_pauses_each_time_is_unavailable(
    direct: Book, open_at: OpenCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of ours, on which a role waits and goes on; the driver's own error ended `up`."""
    impatient = f"{postgres._SETTINGS}; SET idle_in_transaction_session_timeout = '100ms'"
    monkeypatch.setattr(postgres, "_SETTINGS", impatient)
    catalog = open_at(direct.catalog.url)

    def block(db: catalog_db.Db) -> None:
        db.run(SQL.write_limit, limit_key="a")
        paused(direct)

    # Its reason comes with the end of the connection, and is sometimes lost with it: then it was a lost reply.
    with pytest.raises(Unavailable):
        catalog.write(block)


def test_a_commit_that_waited_too_long_for_its_turn_is_sent_again(
    direct: Book, open_at: OpenCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may hold the clock longer than a statement may take (5 s): no attempt may lose its work by that."""
    monkeypatch.setattr(postgres, "_SETTINGS", f"{postgres._SETTINGS}; SET statement_timeout = '100ms'")
    tx = direct.begin("run_1", CLICKS)
    waits: list[timedelta] = []

    with psycopg.connect(direct.catalog.url) as holder:
        holder.execute("SELECT tidemill_tick()")

        class Releasing(SystemClock):
            """A clock on which the first wait is long enough for the holder to end."""

            def sleep(self, duration: timedelta) -> None:
                waits.append(duration)
                holder.rollback()

        book = Book(open_at(direct.catalog.url, dataclasses.replace(World(), clock=Releasing())))
        seq = book.commit(tx, "hour=10")

    assert len(waits) == 1
    assert direct.row(tx).commit_seq == seq
