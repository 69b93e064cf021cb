"""What a catalog on PostgreSQL promises across a crash of its server."""

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
    """A consumer's state is a tick: what begins below it later would never come to that consumer.

    A sequence writes 32 values ahead into the log, on behalf of whoever took the first of them; rolled back, that one
    waits for no disk, and neither does a transaction that took one of the others and wrote nothing.
    """
    catalog = open_catalog(server.url, World())
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CHECKPOINT")  # the next value is written into the log
    nobody = Transaction(WritePointer(1_000_000), catalog.incarnation, RunId("run_0"), 1, frozenset())
    with pytest.raises((TransactionEnded, NotFound)):
        commit(catalog, nobody, [])
    given = catalog.write(lambda db: db.tick())

    server.crash()
    server.start()

    assert catalog.write(lambda db: db.tick()) > given
    catalog.close()
