"""A new project, tried as its first user does. That `tidemill up` handles its files is in tests/test_readme.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tidemill.cli.main import main
from tidemill.errors import Conflict
from tidemill.mill.mill import open_project
from tidemill.names import BadName
from tidemill.starter.starter import write_project
from tidemill.world import World


def own_tests(project):
    """Run the tests of `project` as its user does."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=project,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_project_passes_its_own_test(tmp_path, capsys):
    """Without Spark, under a name of one's own, and without a trace in the project."""
    with pytest.raises(SystemExit) as ended:
        main(["--project", str(tmp_path), "init", "books", "--json"])
    told = json.loads(capsys.readouterr().out)

    done = own_tests(tmp_path / "books")

    assert ended.value.code == 0
    assert told["files"] == ["app.py", "tests/test_app.py", "tidemill.toml"]
    assert "2 passed" in done.stdout, done.stdout
    left = {str(path.relative_to(tmp_path / "books")) for path in (tmp_path / "books").rglob("*")}
    assert left == {*told["files"], "data", "data/inbox", "tests"}


def test_a_project_that_was_edited_passes_its_own_test(tmp_path):
    """A test that names what the app declares would fail at the first edit, for nothing."""
    write_project(World(), tmp_path / "books")
    app = tmp_path / "books" / "app.py"
    text = app.read_text(encoding="utf-8").replace("load", "read_orders").replace("orders_clean", "good_orders")
    app.write_text(f'{text}app.schedule("daily", report, trigger=tm.Cron("@daily"))\n', encoding="utf-8")

    edited = own_tests(tmp_path / "books")
    app.write_text(f"{text}@app.python()\ndef forgotten(run):\n    pass\n", encoding="utf-8")
    forgotten = own_tests(tmp_path / "books")

    assert "2 passed" in edited.stdout, edited.stdout
    assert "1 failed, 1 passed" in forgotten.stdout, forgotten.stdout
    assert "'forgotten'" in forgotten.stdout


def test_a_new_project_is_deployed_under_its_name(tmp_path):
    """What other commands call it is what was typed."""
    write_project(World(), tmp_path / "books")

    with open_project(tmp_path / "books", create=True) as mill:
        (deployed,) = mill.deploy()

    assert (
        deployed.sentence()
        == "books: 1 inbox, 2 file sets, 2 programs, 2 schedules   schedules: added on_orders, on_clean"
    )


def test_up_without_pyspark_says_what_to_install(tmp_path, capsys, monkeypatch):
    """`pip install tidemill` brings no Spark, and a traceback was all that a new user got."""
    write_project(World(), tmp_path / "books")
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)

    with pytest.raises(SystemExit) as ended:
        main(["--project", str(tmp_path / "books"), "up", "--until-idle"])
    errors = capsys.readouterr().err

    assert ended.value.code == 5
    assert errors.count("\n") == 1
    assert 'pip install "tidemill[spark]"' in errors
    assert "[no_spark]" in errors


def test_no_file_of_anybody_is_overwritten(tmp_path):
    """Typed twice, or in the wrong folder: what is there stays."""
    write_project(World(), tmp_path / "books")
    (tmp_path / "books" / "app.py").write_text("mine", encoding="utf-8")

    with pytest.raises(Conflict, match="not empty"):
        write_project(World(), tmp_path / "books")
    with pytest.raises(BadName):
        write_project(World(), tmp_path / "my books")

    assert (tmp_path / "books" / "app.py").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "my books").exists()
