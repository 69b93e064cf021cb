"""Promises of a catalog on PostgreSQL across a crash of its server."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.postgres_server import MortalServer, mortal_server
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Transaction, TransactionEnded, commit
from tidemill.errors import NotFound
from tidemill.names import RunId, WritePointer
from tidemill.world import World


@pytest.fixture
def server() -> Iterator[MortalServer]:
    """A server of this test's own, which writes its log to disk as late as it may."""
    with mortal_server() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
            connection.execute("SELECT pg_reload_conf()")
        yield server


def test_a_tick_that_was_given_is_never_given_again_after_a_crash(server):
    """A consumer's state is a tick: a transaction that began later with a lower tick would never come to that consumer.

    The block that takes the first of 32 values writes all 32 into the log. If that block is rolled back, it does not
    wait for the disk. Neither does a block that took another of the values and wrote nothing.
    """
    catalog = open_catalog(server.url, World())
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")  # the next value is written into the log
    never_begun = Transaction(WritePointer(1_000_000), catalog.incarnation, RunId("run_0"), 1, frozenset())
    with pytest.raises((TransactionEnded, NotFound)):
        commit(catalog, never_begun, [])
    given = catalog.write(lambda db: db.tick())

    server.crash()
    server.start()

    assert catalog.write(lambda db: db.tick()) > given
    catalog.close()
