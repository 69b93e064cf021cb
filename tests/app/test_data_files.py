"""Data files of an app travel with its code: every node reads them as they were deployed."""

from __future__ import annotations

import shutil
import sys

import pytest

from tests.app.test_deploy import redeploy
from tests.errors import raises_code
from tests.stage import staged

APP = """
from pathlib import Path
import tidemill as tm
from package import deep

app = tm.App("shop", files=["sql/*.sql", "models/**/*.bin"])
HERE = Path(__file__).parent
NAMED = (HERE / "sql" / "name.sql").read_text()

@app.python(arguments={"name": NAMED})
def load(run):
    model = (HERE / "models" / "eu" / "x.bin").read_bytes().decode()
    with Path(SAID).open("a") as file:
        print((HERE / "sql" / "x.sql").read_text(), model, deep.read(), run.arguments["name"], file=file)
"""
DEEP = """
from pathlib import Path

def read():
    return (Path(__file__).parent.parent / "sql" / "x.sql").read_text()
"""


@pytest.fixture
def stage(tmp_path, catalog_url):
    """A project with data files, some of which the app declares."""
    folder = tmp_path / "project"
    for name, content in {
        "sql/x.sql": "SELECT 1",
        "sql/name.sql": "one",
        "sql/.hidden.sql": "hidden",
        "sql/notes.txt": "notes",
        "models/x.bin": "top",
        "models/eu/x.bin": "eu",
        "package/__init__.py": "",
        "package/deep.py": DEEP,
        "secrets.txt": "hush",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    text = APP.replace("SAID", repr(str(tmp_path / "said.txt")))
    with staged(folder, catalog_url, text) as stage:
        stage.said = lambda: (tmp_path / "said.txt").read_text().splitlines()
        stage.text = text
        yield stage


def work(stage) -> str:
    """Start the program and work on its run, as a driver does that has imported nothing of the project."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "package"]:
        del sys.modules[name]
    stage.mill.runs.start("shop.load")
    (run,) = stage.work()
    return f"{run.state} {run.exit_reason}"


def test_a_program_reads_its_files_as_they_were_deployed(stage):
    """Relative to its module, as in the project; an edit waits for the next deployment."""
    folder = stage.mill.project.config.folder
    (folder / "sql" / "x.sql").write_text("edited")
    first = work(stage)
    stage.mill.deploy()
    second = work(stage)

    assert (first, second) == ("COMPLETED ", "COMPLETED ")
    assert stage.said() == ["SELECT 1 eu SELECT 1 one", "edited eu edited one"]


def test_a_node_needs_no_project_folder(stage):
    """The files are on every node that unpacks the bundle."""
    folder = stage.mill.project.config.folder
    for name in ("sql", "models", "package"):
        shutil.rmtree(folder / name)
    (folder / "app.py").unlink()

    assert work(stage) == "COMPLETED "
    assert stage.said() == ["SELECT 1 eu SELECT 1 one"]


def test_a_rollback_brings_the_files_back(stage):
    """Also those that the app file reads while it loads."""
    folder = stage.mill.project.config.folder
    (folder / "sql" / "x.sql").write_text("SELECT 2")
    (folder / "sql" / "name.sql").write_text("two")
    stage.mill.deploy()
    work(stage)
    stage.mill.apps.rollback("shop")
    work(stage)

    assert stage.said() == ["SELECT 2 eu SELECT 2 two", "SELECT 1 eu SELECT 1 one"]


def test_a_plan_names_files_of_the_user_alone(stage):
    """The list of declared files is Tidemill's, and no file of the project."""
    (stage.mill.project.config.folder / "sql" / "new.sql").write_text("SELECT 3")
    (planned,) = stage.mill.plan()

    assert [one.field for change in planned.changes for one in change.fields] == ["code", "file sql/new.sql"]


def test_only_the_declared_files_travel(stage):
    """Settings, secrets and hidden files stay behind."""
    (first,) = stage.mill.apps.history("shop")
    state = stage.mill.project.config.state / "bundles" / first.code
    work(stage)
    files = {str(path.relative_to(state)) for path in state.rglob("*") if path.is_file() and path.suffix != ".pyc"}

    assert files - {"app.py", "package/__init__.py", "package/deep.py"} == {
        ".tidemill-files",
        "models/eu/x.bin",
        "models/x.bin",
        "sql/name.sql",
        "sql/x.sql",
    }


def test_a_pattern_without_a_file_is_refused(stage):
    """A typing error would be noticed by a run on another node."""
    with raises_code("missing_files", match=r"no file matches 'sqll/\*\.sql'"):
        redeploy(stage.mill, stage.text.replace("sql/*.sql", "sqll/*.sql"))


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "sql/../../x", "", "sql/", "./x"])
def test_a_pattern_beyond_the_folder_of_the_app_is_refused(stage, pattern):
    """A bundle has only files of its project."""
    with raises_code("broken_app", match="name files below the folder of the app file"):
        redeploy(stage.mill, stage.text.replace("models/**/*.bin", pattern))


def test_a_text_instead_of_a_list_is_refused(stage):
    """Its characters would be patterns."""
    with raises_code("broken_app", match=r"write a list, files=\['sql/x\.sql'\]"):
        redeploy(stage.mill, stage.text.replace('["sql/*.sql", "models/**/*.bin"]', '"sql/x.sql"'))


def test_too_large_files_are_refused(stage, monkeypatch):
    """They count like the code."""
    monkeypatch.setattr("tidemill.app.packing.MOST_BYTES", 5000)
    (stage.mill.project.config.folder / "models" / "x.bin").write_bytes(b"0" * 6000)

    with raises_code("bundle_too_large", match=r"above all models/x\.bin"):
        stage.mill.deploy()


def test_links_in_a_circle_end(stage):
    """A link to the folder that holds it has no end."""
    folder = stage.mill.project.config.folder
    (folder / "models" / "again").symlink_to(folder / "models")
    stage.mill.deploy()

    assert work(stage) == "COMPLETED "
