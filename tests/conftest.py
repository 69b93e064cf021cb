"""Fixtures for all tests: both databases, each test with a catalog of its own."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import spark_classes
from tests.postgres_server import ADDRESS, running_server
from tests.s3_server import S3Server, running_s3_server
from tests.s3_stub import S3Stub, running_s3_stub
from tests.schemas import Schemas, copy_catalog
from tests.yardstick import patience
from tidemill.catalog.engine import open_catalog
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MANY = 4
"""The number of cases from which CI plays each case on one database alone, in turn; `make test-both` has the others."""
TURNS = ("alerts", "cli", "client", "mill", "server")
"""Folders whose files play each case so, however few: their rooms have no SQL, and each statement has tests on both.

Tests of other folders with fewer cases take turns as well, but only in `make test`: `make test-long` has the others."""
EMPTIED = ("alerts", "app", "cli", "client", "lake", "mill", "run", "schedule", "server", "sql")
"""Folders whose tests do not ask how a catalog is made: they take an emptied one (PostgreSQL) or a copy (SQLite)."""

# A deadline for each example would measure how busy the machine is.
hypothesis.settings.register_profile("tidemill", deadline=None)
hypothesis.settings.load_profile("tidemill")


os.environ.setdefault(spark_classes.OPTIONS, spark_classes.SHORT_LIVED)
# Training runs beside the tests would take the cores from them, and write into the user's cache.
os.environ.setdefault("TIDEMILL_SPARK_CLASS_DATA", "false")
# Tests run beside each other, and beside the servers of the developer.
os.environ.setdefault("TIDEMILL_SERVER_PORT", "0")


def pytest_configure(config: pytest.Config) -> None:
    """Give each test as much more time as this machine is slow; pytest asks for the figure before each test."""
    # pytest has no other way to change a setting of its own once a plugin can be asked.
    config._inicache["faulthandler_timeout"] = patience(float(config.getini("faulthandler_timeout") or 0))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as `long` each case of a test with a `share` that is not in the share, before `-m` selects tests.

    Of each case on both databases mark one as `twin` in a test with many cases or in a folder of `TURNS`, else as
    `long`.
    """
    _mark_twins(items)
    kept: dict[tuple[Path, tuple[str, ...]], set[str]] = {}
    for item in items:
        share = item.get_closest_marker("share")
        if share is None:
            continue
        case = item.callspec.id if isinstance(item, pytest.Function) and hasattr(item, "callspec") else ""
        kept.setdefault((item.path, share.args), set()).add(case)
        if case not in share.args:
            item.add_marker(pytest.mark.long)
    if any("::" in argument for argument in config.args):
        return
    for (path, cases), met in kept.items():
        if missing := set(cases) - met:
            raise pytest.UsageError(f"{path}: the share of `make test` names cases that are not there: {missing}")


def _mark_twins(items: list[pytest.Item]) -> None:
    tests: dict[tuple[Path, str], dict[str, dict[str, pytest.Item]]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            others = dict(item.callspec.params)
            if (database := others.pop("catalog_url", None)) is not None:
                name = f"{getattr(item.cls, '__name__', '')}.{item.originalname}"
                group = "" if _room(item.path) in TURNS else name
                tests.setdefault((item.path, group), {}).setdefault(f"{name}{others!r}", {})[database] = item
    few: dict[Path, list[dict[str, pytest.Item]]] = {}
    for (path, group), cases in tests.items():
        if not group or len(cases) >= MANY:
            _take_turns([*cases.values()], pytest.mark.twin)
        else:
            few.setdefault(path, []).extend(cases.values())
    for of_file in few.values():
        _take_turns(of_file, pytest.mark.long)


@cache
def _room(path: Path) -> str:
    """Return the folder of `tests/` in which a file is, or the name of a file outside of all folders."""
    return path.relative_to(Path(__file__).parent).parts[0] if path.is_relative_to(Path(__file__).parent) else path.name


def _take_turns(cases: list[dict[str, pytest.Item]], mark: pytest.MarkDecorator) -> None:
    """Mark each case on one of its databases, in turn."""
    for number, case in enumerate(one for one in cases if len(one) > 1):
        item = case["sqlite" if number % 2 else "postgres"]
        if item.get_closest_marker("share") is None or mark.name != pytest.mark.long.name:
            item.add_marker(mark)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A PostgreSQL server for the whole run: the one that `make test` lends, else one of our own."""
    lent = os.environ.get(ADDRESS)
    with contextlib.nullcontext(lent) if lent else running_server() as url:
        yield url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """An S3 server for the whole run of one worker."""
    with running_s3_server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_stub() -> Iterator[S3Stub]:
    """A stub of S3 for the whole run of one worker: it counts, and knows conditions on copies."""
    with running_s3_stub() as stub:
        yield stub


@pytest.fixture
def memory_folder() -> Iterator[Path]:
    """A new folder in memory (where /dev/shm is): for catalogs, whose many small syncs a disk would dominate."""
    shared_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tidemill-test-", dir=shared_memory) as folder:
        yield Path(folder)


@pytest.fixture
def sqlite_catalog_url(memory_folder: Path) -> str:
    """The address of a new SQLite catalog."""
    return f"sqlite:///{memory_folder / 'catalog.db'}"


@pytest.fixture(scope="session")
def made_catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a SQLite catalog without work: to make one costs 14 ms of CPU, to copy one 3 ms."""
    path = tmp_path_factory.mktemp("made") / "catalog.db"
    open_catalog(f"sqlite:///{path}", World()).close()
    return path


@pytest.fixture(scope="session")
def schemas(postgres_url: str) -> Iterator[Schemas]:
    """Schemas of the PostgreSQL server."""
    lent = Schemas(postgres_url)
    yield lent
    lent.close()


@pytest.fixture
def postgres_catalog_url(request: pytest.FixtureRequest, schemas: Schemas) -> Iterator[str]:
    """The address of a PostgreSQL catalog: a schema for the test alone.

    The schema is new and without tables, or, in the folders of `EMPTIED`, holds a catalog that was emptied.
    """
    with schemas.used() if _room(request.path) in EMPTIED else schemas.new() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgres"])
def catalog_url(request: pytest.FixtureRequest) -> str:
    """The address of an empty catalog, once on each database: what works on one has to work on the other.

    In the folders of `EMPTIED` a SQLite catalog is there as well: a copy, with an incarnation of its own.
    """
    url: str = request.getfixturevalue(f"{request.param}_catalog_url")
    if request.param == "sqlite" and _room(request.path) in EMPTIED:
        copy_catalog(request.getfixturevalue("made_catalog"), url.removeprefix("sqlite:///"))
    return url


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of all tests that need a session and no driver; it starts once.

    Tasks are tried four times; its time zone has an hour that happens twice. Its Python workers are this interpreter
    (they took another from the PATH: tried).
    """
    from pyspark.sql import SparkSession

    from tidemill.frames.local_files import set_permissions_in_jvm
    from tidemill.frames.spark import PINNED, USUAL

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        **PINNED,
        **USUAL,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "Europe/Berlin",
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
    }
    session = SparkSession.builder.master("local[2,4]").config(map=settings).getOrCreate()
    set_permissions_in_jvm(session)
    yield session
    session.stop()
