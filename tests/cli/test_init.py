"""A new project, tried as its first user does. That `tidemill up` handles its files is in tests/first_minutes.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import tidemill as tm
from tests.errors import raises_code
from tidemill import Conflict
from tidemill.cli.main import main
from tidemill.starter.starter import write_project
from tidemill.world import World


def contents(project):
    """Return the paths of all files and folders of a project."""
    return {str(path.relative_to(project)) for path in project.rglob("*")}


def own_tests(project, *options):
    """Run the tests of `project` as its user does."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tidemill.testing.plugin", *options],
        cwd=project,
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_new_project_has_the_name_that_its_user_typed(tmp_path, capsys):
    """The README's first minutes run the new project's own test (tests/first_minutes.py)."""
    with pytest.raises(SystemExit) as ended:
        main(["--project", str(tmp_path), "init", "books", "--json"])
    told = json.loads(capsys.readouterr().out)

    assert ended.value.code == 0
    assert told["files"] == ["app.py", "tests/test_app.py", "tidemill.toml"]
    assert contents(tmp_path / "books") == {*told["files"], "data", "data/inbox", "tests"}


@pytest.mark.spark
@pytest.mark.long  # the walk through the README runs the same test of a project once
def test_the_test_of_a_project_outlives_an_edit_and_finds_a_program_without_a_schedule(tmp_path):
    """A test that names every program fails at the first edit, for nothing. The test leaves no trace in the project."""
    project = tmp_path / "books"
    write_project(World(), project)
    made = contents(project)
    app = project / "app.py"
    text = app.read_text(encoding="utf-8").replace("load", "read_orders")
    app.write_text(f'{text}app.schedule("daily", report, trigger=tm.Cron("@daily"))\n', encoding="utf-8")

    edited = own_tests(project, "-k", "schedule")
    app.write_text(f"{text}@app.python()\ndef forgotten(run):\n    pass\n", encoding="utf-8")
    forgotten = own_tests(project)

    assert "1 passed" in edited.stdout, edited.stdout
    assert "1 failed, 1 passed" in forgotten.stdout, forgotten.stdout
    assert "'forgotten'" in forgotten.stdout
    assert contents(project) == made


def test_a_new_project_is_deployed_under_its_name(tmp_path):
    """Other commands use the name that the user typed."""
    write_project(World(), tmp_path / "books")

    with tm.open(tmp_path / "books") as mill:
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


def test_no_file_of_a_user_is_overwritten(tmp_path):
    """Typed twice, or in the wrong folder: what is there stays."""
    write_project(World(), tmp_path / "books")
    (tmp_path / "books" / "app.py").write_text("mine", encoding="utf-8")

    with pytest.raises(Conflict, match="not empty"):
        write_project(World(), tmp_path / "books")
    with raises_code("bad_name"):
        write_project(World(), tmp_path / "my books")

    assert (tmp_path / "books" / "app.py").read_text(encoding="utf-8") == "mine"
    assert not (tmp_path / "my books").exists()
