"""Pipelines on Spark, by the driver's own code: seed 002 on real databases, guards, every kind of source and sink."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from tests.mariadb_server import PASSWORD, MariaDb, running_mariadb, why_not
from tests.stage import Stage, staged
from tidemill.frames.jdbc import _DRIVERS, DRIVERS_SETTING, Database, MissingDriver, _Driver, _load_driver
from tidemill.world import World

pytestmark = [pytest.mark.spark, pytest.mark.jdbc]

FOUR = (
    "CREATE TABLE users (id INT PRIMARY KEY, name VARCHAR(20));INSERT INTO users VALUES (1,'a'),(2,'b'),(3,'c'),(4,'d')"
)


@pytest.fixture
def site(tmp_path: Path, sqlite_catalog_url: str, spark) -> Iterator[Stage]:
    """A project with a driver on the tests' Spark; secrets are in its environment."""
    with staged(tmp_path, sqlite_catalog_url, spark=spark, environ={"CRM_PASSWORD": PASSWORD}) as site:
        yield site


def _skip_without_driver(database: Database) -> None:
    """Skip the test where the JDBC driver of `database` is missing: no package index has Debian's drivers."""
    driver = _DRIVERS[database]
    if not Path(driver.jar).exists():
        pytest.skip(f"no JDBC driver for {database} here ({driver.jar} is missing): install {driver.package}")


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDb]:
    """A MariaDB for these tests."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    _skip_without_driver(Database.MARIADB)
    with running_mariadb() as server:
        yield server


@dataclass
class Source:
    """A database to mirror: how the app names it, and how its owner changes it."""

    declared: str
    execute: Callable[[str], object]


@pytest.fixture
def postgres(postgres_url: str) -> Iterator[Source]:
    """A schema of its own in the tests' PostgreSQL."""
    _skip_without_driver(Database.POSTGRESQL)
    schema = f"crm_{uuid.uuid4().hex}"
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"SET search_path TO {schema}")
        where = f'"{postgres_url}?currentSchema={schema}"'
        yield Source(where, connection.execute)
        connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Iterator[Source]:
    """Each kind of database."""
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
        return
    server: MariaDb = request.getfixturevalue("mariadb")
    yield Source(f'"{server.url}", password="env:CRM_PASSWORD"', server.execute)
    server.execute("DROP TABLE IF EXISTS users")


def test_each_refresh_shows_insertions_and_deletions_of_the_source(site, database):
    """The seed's test, step by step: with its table sink the deleted entry stayed for ever (seed 002)."""
    database.execute(FOUR)
    site.declare(
        'users = app.snapshot("users", key=["id"])\n'
        f'app.pipeline("mirror", source=tm.Jdbc({database.declared}, table="users"), sink=users)\n'
    )
    steps = [
        ("SELECT 1", [(1, "a"), (2, "b"), (3, "c"), (4, "d")]),
        ("INSERT INTO users VALUES (5, 'e')", [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]),
        ("DELETE FROM users WHERE id = 2", [(1, "a"), (3, "c"), (4, "d"), (5, "e")]),
        ("INSERT INTO users VALUES (6, 'f')", [(1, "a"), (3, "c"), (4, "d"), (5, "e"), (6, "f")]),
    ]
    for change, expected in steps:
        database.execute(change)

        assert site.outcome("shop.mirror") == ("COMPLETED", "")
        assert site.rows("users") == expected


def test_a_source_that_changes_during_a_parallel_read_gives_one_state(site, postgres, postgres_url):
    """Each of Spark's readers is a connection of its own: one exported snapshot makes them see the same."""
    postgres.execute("CREATE TABLE users AS SELECT id, 0 AS generation FROM generate_series(1, 20000) AS id")
    schema = postgres.execute("SELECT current_schema()").fetchone()[0]
    source = f'tm.Jdbc({postgres.declared}, table="users", partition_column="id")'
    site.declare(f'users = app.snapshot("users")\napp.pipeline("mirror", source={source}, sink=users)\n')
    stopped = threading.Event()

    def change() -> None:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            while not stopped.is_set():
                connection.execute(f"UPDATE {schema}.users SET generation = generation + 1")

    changer = threading.Thread(target=change)
    changer.start()
    try:
        ended = site.outcome("shop.mirror")
    finally:
        stopped.set()
        changer.join()

    rows = site.rows("users")
    assert ended == ("COMPLETED", "")
    assert len(site.mill.datasets.files("users")) > 1  # it was read in parallel
    assert [row[0] for row in rows] == list(range(1, 20001))
    assert len({row[1] for row in rows}) == 1


def test_a_refused_refresh_leaves_the_old_version_until_it_is_allowed_once(site, postgres):
    """A source that is empty by mistake; and one that a person knows to be empty."""
    postgres.execute(FOUR)
    site.declare(
        'users = app.snapshot("users", key=["id"], check_key=True, checks={"named": "name <> \'\'"})\n'
        f'app.pipeline("mirror", source=tm.Jdbc({postgres.declared}, table="users"), sink=users,\n'
        '    transform="SELECT id % 10 AS id, name FROM source")\n'
    )
    assert site.outcome("shop.mirror") == ("COMPLETED", "")
    postgres.execute("INSERT INTO users VALUES (11, ''), (12, 'z')")
    doubled = site.outcome("shop.mirror")
    kept = site.rows("users")
    postgres.execute("DELETE FROM users")
    refused = site.outcome("shop.mirror")
    allowed = site.outcome("shop.mirror", allow="empty")

    assert doubled[0] == refused[0] == "FAILED"
    assert "2 keys stand in more than one row; 1 rows break the check 'named'" in doubled[1]
    assert "start the run with --arg allow=key,check" in doubled[1]
    assert kept == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    assert "it has no rows. To let it pass once, start the run with --arg allow=empty" in refused[1]
    assert allowed == ("COMPLETED", "")
    assert site.rows("users") == []


def test_the_password_is_nowhere_but_in_the_environment(site, mariadb):
    """Not in the catalog, the app file, a log, or the error of a run that fails over it."""
    mariadb.execute(FOUR)
    source = f'tm.Jdbc("{mariadb.url}", table="users", password="env:CRM_PASSWORD")'
    site.declare(f'users = app.snapshot("users")\napp.pipeline("mirror", source={source}, sink=users)\n')
    good = site.outcome("shop.mirror")
    mariadb.execute("DROP TABLE users")
    bad = site.outcome("shop.mirror")

    written = [path for path in site.mill.project.config.folder.rglob("*") if path.is_file()]
    catalog = Path(site.mill.project.catalog.url.removeprefix("sqlite:///"))
    assert (good[0], bad[0]) == ("COMPLETED", "FAILED")
    assert "crm.users' doesn't exist" in bad[1]
    for path in [*written, *catalog.parent.iterdir()]:
        assert PASSWORD.encode() not in path.read_bytes(), path


def test_what_a_database_refuses_is_reported_in_a_line(site, postgres, spark):
    """A person reads it in the run's reason."""
    postgres.execute(FOUR)

    def ended(options: str) -> str:
        site.declare(
            'users = app.snapshot("users")\n'
            f"app.pipeline('mirror', source=tm.Jdbc({postgres.declared}, {options}), sink=users)\n"
        )
        return site.outcome("shop.mirror")[1]

    assert 'relation "nothing" does not exist' in ended('table="nothing"')
    assert "partition column name has no order of numbers, dates" in ended('table="users", partition_column="name"')
    assert 'column "idd" does not exist' in ended('table="users", partition_column="idd"')
    assert "there is no secret env:ABSENT" in ended('table="users", password="env:ABSENT"')


def test_every_kind_of_source_goes_into_every_kind_of_sink(site):
    """A snapshot and a file set are read whole into a snapshot; what is new is appended to a file set."""
    site.declare(
        'raw = app.inbox("raw", "landing", format="csv", settle="0s", schema="id int, day string")\n'
        'days = app.fileset("days", keys={"day": "string"})\n'
        'copies = app.fileset("copies", keys={"day": "string"})\n'
        'whole = app.snapshot("whole")\n'
        'again = app.snapshot("again", max_drop=None)\n'
        'made = app.snapshot("made")\n'
        "def make(run, spark):\n"
        '    return spark.sql("SELECT 7 AS id")\n'
        'app.pipeline("land", source=raw, sink=days)\n'
        'app.pipeline("gather", source=days, sink=whole)\n'
        'app.pipeline("select", source=whole, transform="SELECT id FROM source WHERE day = \'b\'", sink=again)\n'
        'app.pipeline("spread", source=whole, sink=copies)\n'
        'app.pipeline("make", source=make, sink=made)\n'
        'app.pipeline("nothing", source=print, sink=made)\n'
    )
    early = site.outcome("shop.select")
    (site.mill.project.config.folder / "landing" / "1.csv").write_text("id,day\n1,a\n2,b\n", encoding="utf-8")
    site.mill.inboxes.scan("raw")

    ends = [
        site.outcome(f"shop.{name}") for name in ("land", "gather", "select", "spread", "spread", "make", "nothing")
    ]

    assert early[0] == "FAILED"
    assert early[1] == "no_version_yet: default.whole has no version yet: run the program that refreshes it first"
    assert [state for state, _ in ends] == ["COMPLETED"] * 6 + ["FAILED"]
    assert "the source of pipeline nothing gave NoneType: it must give a data frame" in ends[-1][1]
    assert site.rows("whole") == [(1, "a"), (2, "b")]
    assert site.rows("again") == [(2,)]
    assert site.rows("copies", "id") == [(1,), (2,)]
    assert '"tx"' not in site.mill.datasets.show("copies").schema
    assert site.rows("made") == [(7,)]


def test_a_driver_that_is_missing_is_named_with_the_cure(spark):
    """The jar is no package of Python's: a person has to install it."""
    absent = _Driver("org.absent.Driver", "absent", "/nowhere/absent.jar", "libabsent-java")

    with pytest.raises(
        MissingDriver, match=r"Install Debian's package libabsent-java, or name its jar in tidemill\.toml"
    ):
        _load_driver(World(), spark, absent)
    assert spark.conf.get(DRIVERS_SETTING, "") == ""


def test_versions_are_read_by_number_and_compared_by_key(site, postgres, spark):
    """The difference between two refreshes has both sides of each row."""
    postgres.execute(FOUR)
    source = f'tm.Jdbc({postgres.declared}, table="users")'
    site.declare(
        f'users = app.snapshot("users", key=["id"])\napp.pipeline("mirror", source={source}, sink=users)\n'
        "@app.spark(reads=[users], arguments={'old': int, 'new': int})\n"
        "def look(run, spark):\n"
        "    old, new = run.arguments['old'], run.arguments['new']\n"
        "    assert run.input(users).version == new\n"
        "    assert [run.read(users, version=v).count() for v in (old, new)] == [4, 4]\n"
        "    assert run.diff(users, old, new).count() == 3\n"
    )
    site.outcome("shop.mirror")
    postgres.execute("DELETE FROM users WHERE id = 1")
    postgres.execute("UPDATE users SET name = 'z' WHERE id = 2")
    postgres.execute("INSERT INTO users VALUES (5, NULL)")
    site.outcome("shop.mirror")
    new, old = (one.version for one in site.mill.snapshots.versions("users"))

    with site.mill.transaction([]) as tx:
        rows = tx.diff(spark, "default.users", old, new).orderBy("id").collect()
        before = tx.read_version(spark, "default.users", old).count()

    assert [(row.change, row.id, row.before, row.after) for row in rows] == [
        ("deleted", 1, (1, "a"), None),
        ("updated", 2, (2, "b"), (2, "z")),
        ("inserted", 5, None, (5, None)),
    ]
    assert before == 4
    ended = site.outcome("shop.look", old=old, new=new)
    assert ended[0] == "COMPLETED", ended
