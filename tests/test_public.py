"""The public names: there, and usable together, as a notebook or another scheduler uses them."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

import tidemill as tm

ROOT: Final = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", tm.__all__)
def test_every_public_name_is_there(name):
    """They are imported at their first use: a wrong home would be noticed by a user."""
    assert getattr(tm, name) is not None


def test_all_that_is_public_can_be_listed():
    """A shell completes by it."""
    assert dir(tm) == tm.__all__
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = tm.nothing_like_it


def test_help_loads_no_room():
    """`tidemill --help` in 0.2 s: it needs neither a catalog nor Spark, nor what is built on them."""
    code = (
        "import sys\nfrom tidemill.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([name for name in sys.modules if name.startswith(('tidemill.lake', 'tidemill.run', 'apsw', 'psycopg'))])"
    )

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert printed.splitlines()[-1] == "[]"


def publish_and_fail(mill, frame):
    """A cell that raises after it has written."""
    with mill.transaction() as tx:
        tx.fileset("clean").append(frame)
        raise ZeroDivisionError


@pytest.mark.spark
def test_a_notebook_publishes_and_follows_what_it_published(sqlite_catalog_url, tmp_path, spark):
    """Without any app running: a transaction in this process, and the seed's consumer over it."""
    from tests.app.conftest import APP
    from tidemill.mill.mill import open_project

    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    with open_project(tmp_path, create=True) as mill:
        mill.deploy()
        consumer = tm.PartitionConsumer(mill, "clean")
        frame = spark.sql("SELECT id, date'2026-01-01' + cast(id % 2 AS int) AS day FROM range(10)")

        with mill.transaction(["clean"]) as tx:
            tx.fileset("clean").append(frame)
        first = [(partition.key, partition.rows) for partition in consumer.consume_partitions()]
        state = tm.PartitionConsumerState.from_bytes(consumer.state.to_bytes())
        with pytest.raises(ZeroDivisionError):
            publish_and_fail(mill, frame)
        with mill.transaction() as tx:
            tx.fileset("clean").append(frame.limit(1))
        second = mill.consumers.consume_partitions("clean", state).partitions

        assert [(str(key["day"]), rows) for key, rows in first] == [("2026-01-01", 5), ("2026-01-02", 5)]
        assert [partition.rows for partition in second] == [1]
        assert sum(file.rows for file in mill.datasets.files("clean")) == 11
        assert [run.state for run in mill.runs.list()] == ["COMPLETED", "FAILED", "COMPLETED"]


INSIDE: Final = {
    "tests/acceptance": 114,
    "tests/app": 94,
    "tests/cli": 4,
    "tests/demo": 49,
    "tests/testing": 13,
    "pages": 11,
}
"""The most names from inside the package that tests of promises import, in each folder. A number only falls."""


def test_tests_of_promises_import_public_names():
    """A promise is tested through the door that users have: then a change behind the door breaks no test."""
    found: Counter[str] = Counter()
    for file in sorted((ROOT / "tests").rglob("*.py")):
        folder = f"tests/{file.relative_to(ROOT).parts[1]}"
        room = "pages" if file.name.endswith("_page.py") or file.name == "test_readme.py" else folder
        if room in INSIDE:
            found[room] += sum(map(names_from_inside, ast.walk(ast.parse(file.read_text(encoding="utf-8")))))

    assert {room: number for room, number in found.items() if number > INSIDE[room]} == {}


def names_from_inside(node: ast.AST) -> int:
    """Return the number of imported names that are neither public, nor of the test kit, nor the command line."""
    match node:
        case ast.ImportFrom(module=str(module), names=names) if module.startswith("tidemill."):
            return 0 if module.startswith(("tidemill.testing", "tidemill.cli.main")) else len(names)
        case _:
            return 0
