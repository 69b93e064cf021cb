"""Fill a new catalog with a long past: most of it done, little open, as a catalog looks after a year."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import apsw
import psycopg

from tidemill.catalog.named import Dialect, load_sql

Execute = Callable[[str], Iterable[tuple[Any, ...]]]

SQL = load_sql(__file__)
CLOCK = 700_000
"""Above every write pointer and commit sequence of the filling."""

_INDEXES = {
    Dialect.SQLITE: "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL",
    Dialect.POSTGRES: """
        SELECT indexname, indexdef FROM pg_indexes
         WHERE schemaname = current_schema()
           AND indexname NOT IN (SELECT conname FROM pg_constraint WHERE connamespace = current_schema()::regnamespace)
    """,
}
_SET_CLOCK = {
    Dialect.SQLITE: f"UPDATE clock SET value = {CLOCK}",
    Dialect.POSTGRES: f"SELECT setval('tidemill_clock', {CLOCK})",
}


def fill_sqlite(connection: apsw.Connection, big: int) -> frozenset[str]:
    """Fill, and give the tables with at least `big` rows."""
    connection.execute("PRAGMA cache_size = -200000; PRAGMA synchronous = OFF; BEGIN IMMEDIATE")
    _fill(lambda query: connection.execute(query).fetchall(), Dialect.SQLITE)
    connection.execute("COMMIT; PRAGMA cache_size = -2000")
    tables = [str(row[0]) for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
    return frozenset(
        table for table in tables if int(str(connection.execute(f"SELECT count(*) FROM {table}").get)) >= big
    )


def fill_postgres(connection: psycopg.Connection[tuple[Any, ...]], big: int) -> frozenset[str]:
    """Fill, do what autovacuum will have done, and give the tables with at least `big` rows."""

    def execute(query: str) -> list[tuple[Any, ...]]:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []

    connection.execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
    with connection.transaction():
        _fill(execute, Dialect.POSTGRES)
    connection.execute("VACUUM (ANALYZE)")
    query = """
        SELECT relname FROM pg_class
         WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND reltuples >= %s
    """
    return frozenset(str(row[0]) for row in connection.execute(query, (big,)))


def _fill(execute: Execute, dialect: Dialect) -> None:
    """Insert all rows; the indexes are made afterwards, in a fraction of the time that keeping them takes."""
    indexes = list(execute(_INDEXES[dialect]))
    for name, _ in indexes:
        execute(f"DROP INDEX {name}")
    now = str(int(time.time() * 1000))
    for statement in SQL:
        execute(statement.text(dialect).replace(":now", now))
    for _, definition in indexes:
        execute(definition)
    execute(_SET_CLOCK[dialect])
