"""No statement costs more because the past is long: each is run on a catalog with 300,000 rows in its tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final

import pytest

import tidemill
from tests.plans.effort import Effort, try_on_postgres, try_on_sqlite
from tests.plans.filling import fill_postgres, fill_sqlite
from tests.plans.parameters import make_call, unused_overrides
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Call, Dialect, RowSet, Statement, load_sql
from tidemill.catalog.postgres import PostgresCatalog
from tidemill.catalog.sqlite import SqliteCatalog
from tidemill.world import World

pytestmark = pytest.mark.slow

BIG: Final = 20_000
"""Rows from which on no table may be read as a whole. (Of 5,000 a hundred are found as fast by reading all.)"""
MOST_ROWS: Final = 2_000
"""The most rows that a statement may read on PostgreSQL. The longest list of parameters.py has 200 values."""
MOST_STEPS: Final = 60_000
"""Instructions of SQLite's machine: some 20 to 50 a row."""

READS_ALL: Final[Mapping[str, str]] = {
    "completed.find_commits_of_runs": "of what should not be there: runs without a record",
    "audit.list_declarations": "audits all that is declared",
    "audit.list_garbage": "audits all that is to be deleted",
    "audit.list_named": "audits data sets, of which there are few",
    "audit.list_pins": "audits all pins",
    "audit.list_slots": "audits all slots",
    "audit.list_backfills": "audits all items of backfills",
    "resets.forget_waiting": "deletes all that waits for a consumer that is reset, for a person who asks",
    "time_to_live.list_held": "the messages that open jobs hold, once an hour",
    "restore.find_greatest_tick": "restores: reads all messages",
    "restore.name_garbage": "restores: all that is to be deleted",
    "move.move_archived": "moves a project, for a person who asks: reads all files of inboxes",
    "move.move_archives": "moves a project: all inboxes",
    "move.move_logs": "moves a project, for a person who asks: reads all runs",
    "inbox.count_files": "counts all files of an inbox, for a person who asks",
    "discovery.select_listings": "lists all inboxes, for a process that starts",
}
"""Statements whose work is to read a table as a whole."""
READS_MORE: Final[Mapping[str, str]] = {
    "arrivals.count_arrivals": "counts the newest 5,000 files of an inbox, for a person who looks",
    "calendar.list_by_time": "lists 1,001 partitions, and looks for an earlier commit and a watermark of each",
    "calendar.list_by_key": "lists 1,001 partitions, and looks for an earlier commit of each",
    "calendar.list_slots": "lists the slots of a month of half hours, with the members of each",
    "partition_views.measure_days": "counts the newest 5,000 changes of a data set, for a person who looks",
    "changes.forget_all_unseen": "reads all that waits: of a feed a row or two, here 2,790",
    "changes.forget_unseen": "reads all that waits: of a feed a row or two, here 2,790",
    "difference.list_schedules": "reads all schedules of an app, 1,000, and their programs",
    "file_endings.retry_all": "reads all that waits in one inbox: 2,800 files",
    "time_to_live.list_causes": "the runs that have not ended, once an hour: 5,300",
    "managed.list_work": "sorts all that waits: 2,790 rows",
    "overview.list_failing": "reads the newest runs of each program, of which some have not ended: 310 programs",
    "overview.count_arrivals": "counts 24 hours of 50 data sets: 1,200 look-ups",
    "runs.list_pending": "reads all pending runs: 5,100",
    "runs.list_unloaded": "reads all pending runs: 5,100",
    "runs.list_lacking": "reads all pending runs: 5,100",
    "managed.measure_lag": "reads all that waits: 2,790 rows, and their changes",
}
"""Statements that may touch four times as much."""
KEEPS_PARAMETERS: Final[Mapping[str, str]] = {
    "janitor.find_committed": "LIMIT :most is guessed as a tenth of all commits: the general plan looks dear",
}
"""Statements with a long way when planned without parameters, which PostgreSQL therefore never chooses."""
HELD: Final[Mapping[str, str]] = {
    "discovery.select_unknown": "listed",
    "discovery.publish_found": "found",
    "discovery.insert_found": "found",
    "discovery.note_superseded": "found",
    "discovery.supersede_found": "found",
}
"""Statements whose rows the product gives as a `RowSet`, by the name of the parameter."""


def _statements() -> dict[str, Statement]:
    source = Path(tidemill.__file__).parent
    files = [path.with_suffix(".py") for path in sorted(source.rglob("*.sql")) if path.parent.name != "migrations"]
    return {statement.name: statement for file in files for statement in load_sql(str(file))}


STATEMENTS: Final = _statements()


def _check(
    subtests: pytest.Subtests,
    dialect: Dialect,
    most: int,
    attempt: Callable[[Statement], Effort],
    names: Collection[str] = STATEMENTS.keys(),
) -> None:
    for name in names:
        statement = STATEMENTS[name]
        if dialect not in statement.texts:
            continue
        with subtests.test(name):
            effort = attempt(statement)
            text = statement.texts[dialect]
            guard = "tidemill_refuse" in text and "INSERT" not in text
            allowed = most * 4 if name in READS_MORE else most
            assert (effort.rows == 0) == guard, f"a guard must pass, others find something:\n{effort}"
            assert name in READS_ALL or (not effort.objections and effort.read <= allowed), str(effort)


def _held(statement: Statement) -> Call:
    call, parameter = make_call(statement), HELD[statement.name]
    rows = json.loads(str(call.params[parameter]))
    columns = tuple(rows[0])
    held = RowSet(columns, [tuple(row[column] for column in columns) for row in rows])
    return statement(**{**call.params, parameter: held})


@pytest.mark.long
def test_no_statement_reads_the_history_on_sqlite(subtests: pytest.Subtests, sqlite_catalog_url: str):
    """Without ANALYZE, SQLite knows no sizes, so a common key looks as good to it as a rare key."""
    catalog = open_catalog(sqlite_catalog_url, World())
    assert isinstance(catalog, SqliteCatalog)
    connection = catalog._connection()
    big = fill_sqlite(connection, BIG)

    _check(subtests, Dialect.SQLITE, MOST_STEPS, lambda one: try_on_sqlite(connection, make_call(one), big))
    # A table is another thing to the planner than JSON: it might begin with the files of the inbox.
    _check(subtests, Dialect.SQLITE, MOST_STEPS, lambda one: try_on_sqlite(connection, _held(one), big), HELD)
    catalog.close()


@pytest.mark.long
def test_no_statement_reads_the_history_on_postgres(subtests: pytest.Subtests, postgres_catalog_url: str):
    """PostgreSQL plans with the parameters, and after five executions perhaps without: both ways must be short."""
    catalog = open_catalog(postgres_catalog_url, World())
    assert isinstance(catalog, PostgresCatalog)
    with catalog._pool.connection() as connection:
        big = fill_postgres(connection, BIG)

        def plan_with(statement: Statement) -> Effort:
            return try_on_postgres(connection, make_call(statement), big, "force_custom_plan")

        def plan_without(statement: Statement) -> Effort:
            mode = "auto" if statement.name in KEEPS_PARAMETERS else "force_generic_plan"
            return try_on_postgres(connection, make_call(statement), big, mode)

        _check(subtests, Dialect.POSTGRES, MOST_ROWS, plan_with)
        _check(subtests, Dialect.POSTGRES, MOST_ROWS, plan_without)
    catalog.close()


def test_the_tables_of_exceptions_name_what_there_is():
    """An exception or a parameter of a statement that is gone would hide the next one of that name."""
    gone = [name for name in (*READS_ALL, *READS_MORE, *KEEPS_PARAMETERS) if name not in STATEMENTS]

    assert gone + unused_overrides(STATEMENTS) == []
