from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from itertools import count
from pathlib import Path

import apsw
import apsw.ext
import psycopg
import pytest

from tidemill.catalog.db import Catalog, CatalogUnavailable, Db, UnstorableText
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import LOCK_ORDER, RANKS, Call, Dialect, RowSet, Statement, Statements, load_sql
from tidemill.catalog.postgres import PostgresCatalog
from tidemill.catalog.sqlite import SqliteCatalog
from tidemill.errors import Internal
from tidemill.world import World
from tools.stubs import sql_files

SQL = load_sql(__file__)

LOCKING_READ = re.compile(r"\{(?:for_update|for_share|skip_locked)\}")


def _rows(name: str, *values: object) -> str:
    return json.dumps([{name: value} for value in values])


def _load(folder: Path, text: str) -> Statements:
    (folder / "some.sql").write_text(text)
    return load_sql(str(folder / "some.py"))


def test_a_list_of_numbers_is_compared_as_numbers(catalog: Catalog) -> None:
    """As text 10 would come before 9 and `0010` would not be 10; beyond 2^53 a float would round."""
    large = 2**62 + 1

    found = catalog.read(
        lambda db: db.all(SQL.pick_ints, rs=_rows("n", 9, 10, large, large - 1), wanted=json.dumps([large, 10, 11]))
    )

    assert found == [(10,), (large,)]


def test_a_row_set_is_read_by_statements_that_take_some_of_its_columns(catalog: Catalog) -> None:
    """A commit gives the same rows to several statements. Rows of the previous row set must never show in the next."""
    first = RowSet(("other", "n"), [("a", 9), ("b", 10)])
    wider = RowSet(("n", "other", "more"), [(11, None, 1)])

    def block(db: Db) -> list[object]:
        return [
            [db.all(SQL.leave_ints, rs=rows, left="[]") for _ in range(2)]
            for rows in (first, wider, RowSet(("n",), []))
        ]

    assert [catalog.read(block), catalog.write(block)] == [[[[(9,), (10,)]] * 2, [[(11,)]] * 2, [[], []]]] * 2


def test_a_row_set_of_a_statement_that_failed_is_forgotten(catalog: Catalog) -> None:
    """The block was rolled back; the next block of this thread has the same connection."""
    with pytest.raises(Internal):
        catalog.write(lambda db: db.one(SQL.leave_ints, rs=RowSet(("n",), [(1,), (2,)]), left="[]"))
    with pytest.raises((apsw.Error, psycopg.Error)):
        catalog.read(lambda db: db.all(SQL.leave_ints, rs=RowSet(("n",), [(3,)]), left="no list"))

    assert catalog.read(lambda db: db.all(SQL.leave_ints, rs=RowSet(("n",), [(4,)]), left="[]")) == [(4,)]


def test_all_rows_of_a_statement_have_one_time(catalog: Catalog) -> None:
    """Rows that one statement writes show one time. To ask for each row takes a tenth of the time of due schedules."""
    rows = RowSet(("n",), [(n,) for n in range(20_000)])

    found = catalog.read(lambda db: [db.all(SQL.date_ints, rs=given) for given in (rows, _rows("n", *range(20_000)))])

    assert [len({at for (at,) in dated}) for dated in found] == [1, 1]


class _ReadsRows(Effect):
    """Has a statement with a row set."""

    phase = Phase.FILES

    def writes(self) -> Sequence[Call]:
        return (SQL.leave_ints(rs=RowSet(("n",), [(1,), (2,)]), left="[]"),)


def test_two_row_sets_of_one_name_in_a_commit_are_refused(sqlite_catalog_url: str) -> None:
    """SQLite holds one of them at a time: both statements would read the rows of the second."""
    catalog = open_catalog(sqlite_catalog_url, World())

    with pytest.raises(Internal, match="two row sets rs"):
        catalog.apply([_ReadsRows(), _ReadsRows()])

    catalog.close()


def test_a_disk_that_fails_beside_a_row_set_is_a_catalog_that_is_away(sqlite_catalog_url: str) -> None:
    """Whichever statement meets it. After the commit it is no failure: the rows of the set are deleted by the next."""
    catalog = open_catalog(sqlite_catalog_url, World())
    assert isinstance(catalog, SqliteCatalog)
    connection = catalog._connection()
    outcomes = []
    for number in range(20):
        left = count(number, -1)

        def fail(*_: object, left: Iterator[int] = left) -> bool:
            if next(left) == 0:
                raise apsw.IOError
            return True

        connection.exec_trace = fail
        try:
            catalog.apply([_ReadsRows()])
            outcomes.append("done")
        except CatalogUnavailable:
            outcomes.append("away")
        connection.exec_trace = None
    catalog.close()

    assert list(dict.fromkeys(outcomes)) == ["away", "done"]


def test_a_row_set_with_a_text_that_no_database_can_keep_is_refused(catalog: Catalog) -> None:
    """The error is ours on both databases, and none of a driver."""
    rows = RowSet(("n",), [("\ud800",)])

    with pytest.raises(UnstorableText):
        catalog.read(lambda db: db.all(SQL.leave_ints, rs=rows, left="[]"))


def test_rows_outside_a_list_are_found(catalog: Catalog) -> None:
    """And all of them where the list is empty."""
    found = [
        catalog.read(lambda db, left=left: db.all(SQL.leave_ints, rs=_rows("n", 9, 10, 11), left=json.dumps(left)))
        for left in ([9, 11], [])
    ]

    assert found == [[(10,)], [(9,), (10,), (11,)]]


@pytest.mark.parametrize(
    "hostile", ["", "'; DROP TABLE tx; --", "back\\slash", 'quo"te', "é 日本 🙂", ":name $1 %s {x}", "\n\t"]
)
def test_texts_arrive_as_they_were_sent(catalog: Catalog, hostile: str) -> None:
    """Keys and names come from outside: they are data, never SQL."""
    found = catalog.read(
        lambda db: (
            db.all(SQL.pick_texts, rs=_rows("t", hostile, "other"), wanted=json.dumps([hostile])),
            db.all(SQL.echo, number=-1, text=hostile, bytes=hostile.encode()),
        )
    )

    assert found == ([(hostile,)], [(-1, hostile, hostile.encode())])


def test_parameters_may_be_empty(catalog: Catalog) -> None:
    """None is NULL on both, also where nothing else says the type."""
    found = catalog.read(lambda db: db.all(SQL.echo, number=None, text=None, bytes=None))

    assert found == [(None, None, None)]


def test_a_row_set_keeps_types_and_bytes(catalog: Catalog) -> None:
    """A commit hands over thousands of change rows as one parameter, their manifests as bytes."""
    manifest = bytes(range(256))
    rows = json.dumps(
        [
            {"a": 2, "b": "x", "c": base64.b64encode(manifest).decode()},
            {"a": 1, "b": None, "c": base64.b64encode(b"").decode()},
        ]
    )

    found = catalog.read(lambda db: db.all(SQL.read_rows, rs=rows))

    assert found == [(1, None, b""), (2, "x", manifest)]


def test_a_statement_may_have_a_text_for_each_database(catalog: Catalog) -> None:
    """Texts that cannot be shared stand side by side, under one name."""
    found = catalog.read(lambda db: db.all(SQL.own_text))

    assert found == [(catalog.dialect,)]


def test_a_statement_of_the_other_database_is_refused(catalog: Catalog) -> None:
    """Else it would be found by a syntax error, or not at all."""
    if catalog.dialect is Dialect.SQLITE:
        assert catalog.read(lambda db: db.all(SQL.sqlite_alone)) == [(1,)]
        return
    with pytest.raises(Internal, match="sqlite_alone has no text for postgres"):
        catalog.read(lambda db: db.all(SQL.sqlite_alone))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("-- name: a\nSELECT 1\n-- name: a\nSELECT 2\n", "defines a twice"),
        ("-- name: a\nSELECT 1\n-- name: a\n-- only: sqlite\nSELECT 2\n", "defines a twice for sqlite"),
        ("-- name: a\nSELECT {skip_lokked}\n", "unknown token at '{skip_lokked}"),
        ("-- name: a\nSELECT {int:x}\n", "unknown token at '{int:x}"),
        ("SELECT 1\n", "holds no statement"),
    ],
)
def test_a_slip_in_a_file_of_statements_is_named(tmp_path: Path, text: str, complaint: str) -> None:
    """At loading, not when the statement is used for the first time, in the night."""
    with pytest.raises(Internal, match=complaint):
        _load(tmp_path, text)


def test_tokens_and_parameters_in_comments_are_none(tmp_path: Path) -> None:
    """A reason given in a comment may name both."""
    statements = _load(tmp_path, "-- name: a\n-- {commit_seq} would be :wrong here\nSELECT 1 -- {no} :thing\n")

    assert statements.a.texts == dict.fromkeys(Dialect, "SELECT 1")
    assert statements.a.parameters == ()
    assert not statements.a.dated


@pytest.mark.parametrize("params", [{}, {"run_id": "x", "more": 1}, {"run": "x"}])
def test_a_call_has_exactly_the_parameters_of_its_statement(params: dict[str, str]) -> None:
    """A misspelt one would be NULL on SQLite."""
    with pytest.raises(Internal, match=r"test_named.lock_run takes \['run_id'\]"):
        SQL.lock_run(**params)


@pytest.mark.parametrize(
    ("name", "table"),
    [
        ("lock_run", "run"),
        ("lock_job", "job"),
        ("share_schedule", "schedule"),
        ("look_at_job", None),
        ("renew_run", "run"),
        ("change_job_at_the_limit", "slot_limit"),
        ("read_now", None),
    ],
)
def test_a_statement_knows_which_rows_it_locks(name: str, table: str | None) -> None:
    """The lock order can only be held by what knows its place in it."""
    rank = getattr(SQL, name).rank

    assert rank == (None if table is None else LOCK_ORDER.index(table))


def test_only_changes_with_a_waiter_wake() -> None:
    """A renewal of each lease every few seconds must not wake every scheduler."""
    waking = {statement.name for statement in SQL if statement.wakes}

    assert waking == {"test_named.change_job_at_the_limit", "test_named.wake_schedulers"}


def _all_statements() -> list[str]:
    package = Path(str(resources.files("tidemill")))
    files = [path for path in package.rglob("*.sql") if path.with_suffix(".py").exists()]
    return [
        f"{path.relative_to(package).with_suffix('')}:{name}"
        for path in sorted(files)
        for name in sorted({s.name.partition(".")[2] for s in load_sql(str(path.with_suffix(".py")))})
    ]


def test_every_statement_of_the_product_is_understood(catalog: Catalog) -> None:
    """A misspelt column, or a parameter whose type PostgreSQL cannot infer, shows here and not at its first use."""
    package = Path(str(resources.files("tidemill")))
    wrong = {}
    for place in _all_statements():
        file, _, name = place.partition(":")
        statement = getattr(load_sql(str(package / f"{file}.py")), name)
        if catalog.dialect not in statement.texts:
            continue
        try:
            match catalog:
                case SqliteCatalog():
                    nothing = dict.fromkeys(statement.parameters)
                    catalog._connection().execute(f"EXPLAIN {statement.text(catalog.dialect)}", nothing)
                case PostgresCatalog():
                    with catalog._pool.connection() as connection:
                        catalog.send(connection, [statement], "SELECT 1")
        except (apsw.Error, psycopg.Error, Internal) as error:
            wrong[place] = str(error)

    assert wrong == {}


def _columns(catalog: Catalog, statement: Statement) -> list[str]:
    match catalog:
        case SqliteCatalog():
            return [
                column
                for column, _ in apsw.ext.query_info(catalog._connection(), statement.text(catalog.dialect)).description
            ]
        case PostgresCatalog():
            with catalog._pool.connection() as connection:
                connection.pgconn.prepare(b"", statement.positional.encode())
                told = connection.pgconn.describe_prepared(b"")
                return [told.fname(place).decode() for place in range(told.nfields)]


def _statements(catalog: Catalog) -> list[Statement]:
    files = [load_sql(str(file.with_suffix(".py"))) for file in sql_files()]
    return [statement for file in files for statement in file if catalog.dialect in statement.texts]


def test_headers_say_which_columns_a_statement_gives(catalog: Catalog) -> None:
    """Records are read by these names; the decoder would blame a column that the statement does not have."""
    wrong = {}
    for statement in _statements(catalog):
        acts = re.search(r"\btidemill_refuse\(|\bsetval\(", statement.text(catalog.dialect))
        if not acts and list(statement.gives) != (found := _columns(catalog, statement)):
            wrong[statement.name] = found

    assert wrong == {}


def test_headers_say_which_rows_a_statement_locks() -> None:
    """A statement without its header would stand nowhere in the lock order, and could deadlock."""
    wrong = {}
    for file in sql_files():
        bodies = re.split(r"^-- name: (\w+)$", file.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        statements = load_sql(str(file.with_suffix(".py")))
        for name, body in zip(bodies[::2], bodies[1::2], strict=True):
            text = re.sub(r"--[^\n]*", "", body)
            changed = {table for table in re.findall(r"\b(?:UPDATE|DELETE FROM)\s+([a-z_]+)\b", text) if table in RANKS}
            read = {table for table in re.findall(r"\bFROM\s+([a-z_]+)", text) if table in RANKS}
            locks = set(getattr(statements, name).locks)
            # Of a read that locks, the text alone does not say which of its tables the lock is for.
            named = (
                changed <= locks <= changed | read and bool(locks) if LOCKING_READ.search(text) else locks == changed
            )
            # PostgreSQL's own text of a statement stands below the other, whose header counts for both.
            if not named and "-- only: postgres" not in body and (changed or read):
                wrong[f"{file.stem}.{name}"] = sorted(changed | read)

    assert wrong == {}


def test_names_of_statements_are_unique() -> None:
    """PostgreSQL knows a prepared statement by its name alone; `a/x.sql` and `b/x.sql` would share theirs."""
    names = [f"{place.rpartition('/')[2]}" for place in _all_statements()]

    assert sorted(names) == sorted(set(names))
