"""Projects on a catalog: checkouts, moves, wrong folders, catalogs that are gone, app files that do not load."""

from __future__ import annotations

import shutil
from datetime import timedelta

import pytest

from tests.app.test_deploy import redeploy
from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import staged
from tidemill.app.loading import load_declared
from tidemill.mill.mill import begin_project, open_project
from tidemill.narration import Narrator
from tidemill.roles.up import run_node
from tidemill.world import World

APP = """
from pathlib import Path
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="text", settle="0s", list_every="1s", after="archive", archive="archive")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")

@app.python(reads=[raw])
def load(run):
    with Path("PROJECT/said.txt").open("a") as said:
        said.write(" ".join(sorted(run.input(raw).files)) + "\\n")

app.schedule("on_raw", load, trigger=tm.NewFiles(raw))
"""


@pytest.fixture
def stage(tmp_path, catalog_url):
    """A project in a folder that can be moved; its catalog lies elsewhere."""
    folder = tmp_path / "first"
    folder.mkdir()
    with staged(folder, catalog_url, APP.replace("PROJECT", str(tmp_path))) as stage:
        yield stage


def other(stage, name="second"):
    """Another checkout of the project, on the same catalog."""
    folder = stage.mill.project.config.folder
    target = folder.with_name(name)
    shutil.copytree(folder, target)
    return open_project(target, world=stage.world)


def test_a_second_checkout_does_not_move_data_sets_to_itself(stage):
    """Before, the second checkout silently moved the inbox to its own folder."""
    with other(stage) as second, raises_code("other_project") as refused:
        second.deploy()

    message = str(refused.value)
    assert str(stage.mill.project.config.folder) in message
    assert str(second.project.config.folder) in message
    assert "tidemill catalog move" in message
    assert stage.mill.datasets.show("raw").location.endswith("/first/landing")


def test_a_second_checkout_of_absolute_locations_may_deploy(stage, tmp_path):
    """From a build server: nothing belongs to a folder."""
    text = (
        APP.replace('"landing"', repr(str(tmp_path / "landing")))
        .replace('archive="archive"', f"archive={str(tmp_path / 'archive')!r}")
        .replace('keys={"hour"', f'location={str(tmp_path / "lines")!r}, keys={{"hour"')
        .replace('"lines", ', '"others", ')
        .replace('"raw", ', '"others_raw", ')
        .replace('App("shop")', 'App("other")')
    )
    redeploy(stage.mill, text)
    with other(stage) as second:
        second.deploy()

    assert stage.mill.apps.show("other").file == str(second.project.config.app)


def test_a_moved_project_goes_on_with_all_that_it_had(stage):
    """Processed files are not processed again, waiting ones are. Archived and published files are found."""
    folder = stage.mill.project.config.folder
    (folder / "landing" / "one.txt").write_text("1\n")
    stage.mill.inboxes.scan("raw")
    stage.play()
    stage.publish("lines", "hour=1")
    (folder / "landing" / "two.txt").write_text("2\n")
    target = folder.with_name("moved")
    folder.rename(target)
    with open_project(target, world=stage.world) as mill:
        with raises_code("other_project"):
            mill.deploy()
        moved = mill.catalog.move()
        mill.deploy()
        stage.mill = mill
        stage.mill.inboxes.scan("raw")
        stage.play()
        said = (target.parent / "said.txt").read_text().splitlines()
        checked = (mill.catalog.audit().clean, mill.catalog.fsck().clean)
        location = mill.datasets.show("lines").location
        logged = [(entry.action, entry.detail) for entry in mill.audit.log(subject="catalog")]

    assert logged == [("catalog.move", {"before": {"folder": moved.old}, "after": {"folder": str(target)}})]
    assert moved.datasets == ("default.lines", "default.raw")
    assert said == ["one.txt", "two.txt"]
    assert checked == (True, True)
    assert location == f"{target.as_uri()}/.tidemill/data/default/lines"
    assert not folder.exists()


def test_a_move_is_refused_while_a_run_is_under_way(stage):
    """The run writes where the project was."""
    run_id = stage.mill.runs.start("shop.load").run_id
    stopped: list[str] = []

    def move() -> None:
        with raises_code("still_running") as refused:
            mill.catalog.move()
        stopped.append(refused.value.run_id)

    stage.at["driver.begun"] = move
    with other(stage) as mill:
        stage.work()

    assert stopped == [run_id]
    assert stage.find(run_id).state == "COMPLETED"


def test_a_run_waits_for_a_disk_that_is_not_mounted_and_an_empty_folder_may_be_accepted(stage):
    """The mount point stays as an empty folder: the run was COMPLETED without its file, which was lost for good."""
    folder = stage.mill.project.config.folder
    (folder / "landing" / "one.txt").write_text("1\n")
    stage.mill.inboxes.scan("raw")
    (folder / "landing").rename(folder / "away")
    (folder / "landing").mkdir()
    stage.schedule()

    (waits,) = stage.work()
    with raises_code("storage_unavailable", match="tidemill inbox reconcile"):
        stage.mill.inboxes.scan("raw", reconcile=True)
    stage.mill.inboxes.scan("raw", reconcile=True, accept_empty=True)
    rows_of(stage.mill.project.catalog, "UPDATE run SET not_before = 0 RETURNING 1")
    (done,) = stage.work()
    (skipped,) = stage.mill.inboxes.files("raw")
    (folder / "landing").rmdir()
    (folder / "away").rename(folder / "landing")
    again = stage.mill.inboxes.scan("raw", reconcile=True)

    assert (waits.state, waits.failures, waits.losses) == ("PENDING", 0, 0)
    assert "not mounted" in waits.exit_reason
    assert (done.state, skipped.status) == ("COMPLETED", "SKIPPED")
    assert again.found == ("one.txt",)


def test_data_sets_of_a_deleted_app_belong_to_its_project(stage):
    """A second checkout moved the inbox to its own folder, in silence."""
    stage.mill.apps.delete("shop")
    gone = stage.mill.apps.list()
    with other(stage) as second, raises_code("other_project"):
        second.deploy()
    location = stage.mill.datasets.show("raw").location
    stage.mill.deploy()

    assert list(gone) == []
    assert location.endswith("/first/landing")
    assert [app.name for app in stage.mill.apps.list()] == ["default.shop"]


def test_a_deployment_names_the_apps_that_left_the_app_file(stage):
    """A renamed app continued beside the new one until a user looked."""
    new = 'import tidemill as tm\napp = tm.App("new")\n'
    told = redeploy(stage.mill, new)
    with other(stage) as second:
        of_other_project = second.deploy()
    stage.mill.apps.delete("shop")
    after = redeploy(stage.mill, new)

    assert told.apps_left == ("default.shop",)
    assert "tidemill app delete default.shop" in told.sentence()
    assert [one.apps_left for one in of_other_project] == [()]
    assert after.apps_left == ()


def test_an_app_file_that_was_renamed_leaves_no_app_unnamed(stage):
    """Another app file of the project, which is there, may have its apps."""
    folder = stage.mill.project.config.folder
    (folder / "main.py").write_text('import tidemill as tm\napp = tm.App("new")\n')
    with open_project(folder, options={"app": "main.py"}, world=stage.world) as mill:
        (beside,) = mill.deploy()
        (folder / "app.py").unlink()
        (alone,) = mill.deploy()

    assert (beside.apps_left, alone.apps_left) == ((), ("default.shop",))


def test_a_move_to_where_nothing_lies_is_refused(stage, tmp_path):
    """The catalog would name what is not there."""
    folder = tmp_path / "empty"
    folder.mkdir()
    shutil.copy(stage.mill.project.config.folder / "tidemill.toml", folder)
    with open_project(folder, world=stage.world) as mill, raises_code("not_moved", match="move the folder first"):
        mill.catalog.move()
    with raises_code("not_moved", match="already"):
        stage.mill.catalog.move()


def test_two_apps_of_one_name_are_refused(tmp_path):
    """The second would replace the first."""
    path = tmp_path / "app.py"
    path.write_text("import tidemill as tm\none = tm.App('shop')\ntwo = tm.App('shop')\n")

    with raises_code("broken_app", match="two apps named 'shop'"):
        load_declared(path)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"import sys\nsys.exit()\n", r"line 2: it calls sys\.exit\(None\)"),
        (b"import sys\nsys.exit(0)\n", r"line 2: it calls sys\.exit\(0\)"),
        ("import tidemill as tm\nname = 'caf\u00e9'\napp = tm.App('shop')\n".encode("latin-1"), "save it as UTF-8"),
        ("import tidemill as tm\n# caf\u00e9\napp = tm.App('shop')\n".encode("latin-1"), "save it as UTF-8"),
    ],
)
def test_an_app_file_that_ends_its_reader_or_is_not_utf8_is_refused(tmp_path, content, why):
    """Before, `deploy` ended with 0, or with the error that the file declares no app."""
    path = tmp_path / "app.py"
    path.write_bytes(content)

    with raises_code("broken_app", match=why):
        load_declared(path)


def test_an_app_file_in_another_encoding_runs_where_it_says_so(stage):
    """By Python's own rule, in its first line; also from a bundle."""
    text = (
        "# coding: latin-1\n" + APP.replace("PROJECT", str(stage.mill.project.config.folder.parent)) + "# caf\u00e9\n"
    )
    stage.mill.project.config.app.write_bytes(text.encode("latin-1"))
    stage.mill.deploy()
    run_id = stage.mill.runs.start("shop.load").run_id
    stage.work()

    assert stage.find(run_id).state == "COMPLETED"


def test_a_folder_without_an_app_file_gets_no_catalog(tmp_path):
    """`up` in a wrong folder left one there."""
    with raises_code("no_project", match="tidemill init"):
        begin_project(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_new_catalog_beside_old_data_has_to_be_asked_for(tmp_path):
    """After the loss of a catalog a user restores a backup, and does not begin again by accident."""
    (tmp_path / "app.py").write_text(APP)
    with begin_project(tmp_path) as mill:
        mill.deploy()
    begin_project(tmp_path).close()
    for path in (tmp_path / ".tidemill").glob("catalog.db*"):
        path.unlink()
    with raises_code("old_data", match="tidemill catalog restore"):
        begin_project(tmp_path)
    begin_project(tmp_path, new=True).close()

    begin_project(tmp_path).close()


def test_a_namespace_on_another_disk_is_old_data_too(tmp_path):
    """Its folder is then a link, and a new catalog beside it would begin by accident."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "disk").mkdir()
    (tmp_path / ".tidemill" / "data").mkdir(parents=True)
    (tmp_path / ".tidemill" / "data" / "main").symlink_to(tmp_path / "disk")

    with raises_code("old_data"):
        begin_project(tmp_path)


def test_up_says_that_its_catalog_was_deleted(tmp_path):
    """Without the error, `up` would continue in a file that has no name any more."""
    (tmp_path / "app.py").write_text("import tidemill as tm\napp = tm.App('shop')\n")
    told: list[str] = []

    def tell(line: str) -> None:
        told.append(line)
        for path in (tmp_path / ".tidemill").glob("catalog.db*"):
            path.unlink()

    with begin_project(tmp_path) as mill, raises_code("catalog_gone", match="deleted or replaced while Tidemill ran"):
        run_node(mill, echo=tell, drain=timedelta(0))
    assert told


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), BrokenPipeError(32, "Broken pipe")])
def test_a_full_standard_output_ends_no_role(error):
    """A line is lost, and the next one is tried."""
    lines: list[str] = []

    def echo(line: str) -> None:
        lines.append(line)
        raise error

    narrator = Narrator(World(), echo, as_json=False)
    narrator.tell("one", "subject", "text")
    narrator.tell("two", "subject", "text")

    assert len(lines) == 2
