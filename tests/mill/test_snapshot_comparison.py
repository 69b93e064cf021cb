"""Comparison of two versions of a snapshot without Spark: in Python, on the command line and by REST."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.errors import raises_code
from tests.served import serving
from tests.stage import Stage, staged
from tidemill.cli.main import main
from tidemill.client.connect import connect
from tidemill.lake.snapshot.comparison import RetypedColumn

APP = """
import tidemill as tm

app = tm.App("shop")
users = app.snapshot("users", key=["id"], max_versions=20)
lines = app.fileset("lines", keys={"hour": "int"})
"""


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A project with a snapshot."""
    with staged(tmp_path, catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as made:
        yield made


def refresh(stage: Stage, *rows: dict[str, object]) -> int:
    """Commit a version with these rows, and return its number."""
    with stage.transaction("users") as tx:
        tx.snapshot("default.users").replace(list(rows), allow=["drop", "schema"])
    return int(tx.write_pointer)


def test_a_comparison_shows_rows_bytes_and_columns(stage):
    """A refresh that lost half of its rows, or a column, is seen at one glance."""
    old = refresh(stage, {"id": 1, "name": "ann", "age": 5}, {"id": 2, "name": "bob", "age": 6})
    new = refresh(stage, {"id": 1, "name": 7, "city": "Ulm"})

    found = stage.mill.snapshots.compare("users", old, new)

    assert (found.dataset, found.old.version, found.new.version) == ("default.users", old, new)
    assert (found.old.rows, found.new.rows, found.more_rows) == (2, 1, -1)
    assert found.more_bytes == found.new.bytes - found.old.bytes
    assert (found.same_files, found.files_added, found.files_removed, found.identical) == (0, 1, 1, False)
    assert (found.columns_added, found.columns_removed) == (("city",), ("age",))
    assert found.columns_retyped == (RetypedColumn("name", "string", "long"),)


def test_a_version_that_was_rolled_back_to_is_identical(stage):
    """No row differs, so nothing has to be compared row by row."""
    old = refresh(stage, {"id": 1})
    other = refresh(stage, {"id": 2})
    made = stage.mill.snapshots.rollback("users", old).version

    same = stage.mill.snapshots.compare("users", old, made)
    another = stage.mill.snapshots.compare("users", other, made)

    assert (same.identical, same.same_files, same.files_added) == (True, 1, 0)
    assert (another.identical, another.more_rows) == (False, 0)


def test_a_version_that_is_not_there_or_no_snapshot_is_refused(stage):
    """The error names the command that lists the versions."""
    old = refresh(stage, {"id": 1})
    gone = refresh(stage, {"id": 2})
    refresh(stage, {"id": 3})
    stage.mill.snapshots.expire("users", [gone])

    with raises_code("not_found"):
        stage.mill.snapshots.compare("users", old, 999_999)
    with raises_code("version_gone"):
        stage.mill.snapshots.compare("users", gone, old)
    with raises_code("not_a_snapshot"):
        stage.mill.snapshots.compare("lines", 1, 2)


def test_rest_client_and_command_line_compare_the_same(stage, capsys):
    """A server has no Spark to compare rows."""
    old, new = refresh(stage, {"id": 1}), refresh(stage, {"id": 2})
    expected = stage.mill.snapshots.compare("users", old, new)
    with serving(stage.mill, "viewer") as (url, secret), connect(url, token=secret) as far:
        assert far.snapshots.compare("users", old, new) == expected
    words = ["snapshot", "compare", "users", str(old), str(new), "--json"]
    with pytest.raises(SystemExit, match="0"):
        main(["--project", str(stage.mill.project.config.folder), *words])

    assert json.loads(capsys.readouterr().out)["more_rows"] == 0
