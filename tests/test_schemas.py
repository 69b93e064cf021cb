"""Schemas for tests: what a test leaves in one, the next test does not find."""

from __future__ import annotations

import psycopg
import pytest

from tests.manual_clock import ManualClock, backdoor_of
from tests.schemas import Schemas, copy_catalog
from tidemill.catalog.engine import open_catalog
from tidemill.world import World

CONTENT = (
    "SELECT (xpath('/row/c/text()', query_to_xml(format('SELECT count(*) AS c FROM %I.%I', schemaname, tablename), "
)
CONTENT += (
    "false, true, '')))[1]::text, tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
)


@pytest.fixture
def lent(postgres_url):
    """Schemas that no other test has used."""
    made = Schemas(postgres_url)
    yield made
    made.close()


def rows_of(url):
    """Return the number of rows of each table."""
    with psycopg.connect(url) as connection:
        return connection.execute(CONTENT).fetchall()


def tick_and_incarnation(url):
    """Return the next tick of a catalog, and its incarnation."""
    catalog = open_catalog(url, World(), create=False)
    seq = catalog.apply([])
    catalog.close()
    return seq, catalog.incarnation


def test_the_next_test_finds_a_new_catalog(lent):
    """Rows, ticks, the clock and the incarnation of one test would explain the failure of another."""
    with lent.used() as url:
        first, rows = tick_and_incarnation(url), rows_of(url)
        clock = ManualClock()
        with backdoor_of(url) as behind:
            clock.rule(behind, "postgres")
            behind("INSERT INTO slot_limit (limit_key) VALUES ('a')")
    with lent.used() as again:
        second, kept = tick_and_incarnation(again), rows_of(again)
        with psycopg.connect(again) as connection:
            (now,) = connection.execute("SELECT tidemill_now() > 1700000000000").fetchone()

    assert again == url
    assert kept == rows
    assert second[0] == first[0]
    assert second[1] != first[1]
    assert now


def test_a_schema_with_another_shape_is_not_used_again(lent):
    """A test may drop an index to see a guard fail."""
    with lent.used() as url, psycopg.connect(url, autocommit=True) as connection:
        (index,) = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND indexname = 'dataset_kind'"
        ).fetchone()
        connection.execute(f"DROP INDEX {index}")
    with lent.used() as again:
        pass

    assert again != url


def test_copies_of_a_sqlite_catalog_are_catalogs_with_incarnations_of_their_own(memory_folder):
    """Processes keep what they know of a catalog by its incarnation: two tests must not share one."""
    made = memory_folder / "made.db"
    open_catalog(f"sqlite:///{made}", World()).close()

    for name in ("first.db", "second.db"):
        copy_catalog(made, memory_folder / name)

    catalogs = [open_catalog(f"sqlite:///{path}", World(), create=False) for path in memory_folder.glob("*.db")]
    for catalog in catalogs:
        catalog.close()
    assert len({catalog.incarnation for catalog in catalogs}) == 3
