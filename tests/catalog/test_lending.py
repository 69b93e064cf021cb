"""Connections of a process to PostgreSQL: few threads get one at once, others wait a moment before one is opened."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta

import pytest
from psycopg_pool import ConnectionPool

from tests.yardstick import patience
from tidemill.catalog.lending import FEW, Lender

MANY = 8


@pytest.fixture
def pool(postgres_url: str) -> Iterator[ConnectionPool]:
    """Opens connections as they are asked for."""
    with ConnectionPool(postgres_url, min_size=0, max_size=16, open=True) as opened:
        yield opened


def at_once(work: Callable[[], None]) -> None:
    """Have many threads begin `work` together, and wait for all of them."""
    begins = threading.Barrier(MANY)
    threads = [threading.Thread(target=lambda: (begins.wait(), work())) for _ in range(MANY)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience(20))
        assert not thread.is_alive()


def test_threads_that_ask_together_for_a_moment_share_few_connections(pool: ConnectionPool) -> None:
    """The loops of a node ask at the same moments. Each had a connection of its own, and an idle node kept six."""
    lender = Lender(pool, timedelta(minutes=5))

    def ask() -> None:
        for _ in range(20):
            with lender.lend() as connection:
                connection.execute("SELECT pg_sleep(0.001)")

    at_once(ask)

    assert pool.get_stats()["pool_size"] <= FEW


def test_threads_that_keep_their_connections_have_one_each(pool: ConnectionPool) -> None:
    """A long transaction must not hold up others, and none of them must wait for what another one waits for."""
    lender = Lender(pool)
    all_have_one = threading.Barrier(MANY)

    def keep() -> None:
        with lender.lend():
            all_have_one.wait(patience(20))

    at_once(keep)

    assert not all_have_one.broken
    assert pool.get_stats()["pool_size"] >= MANY


def test_a_pool_that_has_grown_shrinks_while_threads_ask_together_for_a_moment(pool: ConnectionPool) -> None:
    """The pool closes a connection only if it was not needed for ten minutes. All of them were needed, each minute."""
    with ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(pool.connection())
    lender = Lender(pool, timedelta(minutes=5))

    def ask() -> None:
        with lender.lend() as connection:
            connection.execute("SELECT pg_sleep(0.001)")

    sizes = []
    for _ in range(MANY):
        pool._shrink_pool()  # as its timer does
        at_once(ask)
        sizes.append(pool.get_stats()["pool_size"])

    assert sizes[0] <= MANY
    assert sizes[-1] <= FEW


def test_threads_take_what_is_idle_at_once(pool: ConnectionPool) -> None:
    """Once there are many connections, no thread waits while two of them are left."""
    with ExitStack() as stack:
        for _ in range(MANY):
            stack.enter_context(pool.connection())
    lender = Lender(pool, timedelta(days=1))
    has_all_but_one = threading.Event()

    def take() -> None:
        with ExitStack() as stack:
            for _ in range(MANY - 1):
                stack.enter_context(lender.lend())
            has_all_but_one.set()

    threading.Thread(target=take, daemon=True).start()

    assert has_all_but_one.wait(patience(20))


def test_an_error_within_the_block_returns_the_connection(pool: ConnectionPool) -> None:
    """Else the process would wait for a moment at each of its statements, from then on."""
    lender = Lender(pool, timedelta(minutes=5))
    for _ in range(2 * FEW):
        with pytest.raises(ZeroDivisionError), lender.lend():
            1 / 0  # noqa: B018

    with lender.lend() as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
