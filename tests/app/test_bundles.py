"""Bundles: what was deployed is what runs, whatever becomes of the files of the project."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.app.test_deploy import redeploy
from tests.errors import raises_code
from tests.run.conftest import by_hand, rows_of
from tests.stage import Stage, staged
from tidemill.app.edits import Edits
from tidemill.app.packing import pack
from tidemill.doctor import examine
from tidemill.run.records import bundles
from tidemill.run.records.bundles import (
    Bundle,
    find_code,
    put_bundle,
    store_bundle,
)
from tidemill.run.records.programs import list_programs
from tidemill.world import Disk

APP = """
from pathlib import Path
import tidemill as tm
import helper

app = tm.App("shop")
files = app.inbox("files", "landing", format="text", settle="0s", list_every="1s")

@app.python(reads=[files])
def load(run):
    from late import word
    import package.deep
    with (Path(__file__).parent / "said.txt").open("a") as said:
        said.write(f"VERSION {helper.word} {word} {package.deep.word}\\n")

app.schedule("on_files", load, trigger=tm.NewFiles(files))
"""


DATA = """
import importlib.resources, pkgutil
from pathlib import Path
import package
import tidemill as tm

app = tm.App("shop")

@app.python()
def load(run):
    with (Path(__file__).parent / "said.txt").open("a") as said:
        print(importlib.resources.files("package").joinpath("query.sql").read_text(), file=said)
        print(pkgutil.get_data("package", "query.sql").decode(), file=said)
"""


@pytest.fixture
def stage(tmp_path, catalog_url, monkeypatch):
    """A project of several modules; `late` is imported by the program only when it runs.

    The code of the newest deployment alone is kept for a rollback.
    """
    monkeypatch.setattr("tidemill.app.deployments.KEPT", 1)
    (tmp_path / "helper.py").write_text("word = 'helper 1'")
    (tmp_path / "late.py").write_text("word = 'late 1'")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "deep.py").write_text("from pathlib import Path\nfrom . import other\nword = other.word\n")
    (tmp_path / "package" / "other.py").write_text("word = 'deep 1'")
    (tmp_path / "package" / "query.sql").write_text("SELECT 1")
    (tmp_path / "secrets.txt").write_text("hush")
    with staged(tmp_path, catalog_url, APP.replace("VERSION", "app 1")) as stage:
        yield stage


def start(stage: Stage) -> str:
    """Start the program by hand and work on it; how its run stands."""
    run_id = stage.mill.runs.start("shop.load").run_id
    stage.work()
    return stage.find(run_id).state


def test_an_edit_without_a_deployment_changes_nothing(stage):
    """An edit of the app file, of a module, or of a late import changes no run: all runs have the deployed code."""
    folder = stage.mill.project.config.folder
    stage.mill.project.config.app.write_text("this is half sav(")
    for name in ("helper.py", "late.py", "package/other.py"):
        (folder / name).write_text("word = 'edited'")
    stage.mill.runs.start("shop.load")
    (run,) = stage.work()

    assert stage.lines_of() == []  # the inbox is empty
    assert run.state == "COMPLETED"


def test_an_edit_of_equal_size_and_time_is_deployed(stage, monkeypatch):
    """Python would take it for what it compiled before, and declare an app from it that is not what is packed."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = stage.mill.project.config.folder
    written = (1_700_000_000, 1_700_000_000)
    edited = {path: path.read_text() for path in (stage.mill.project.config.app, folder / "helper.py")}
    for words in (("app 1", "helper 1"), ("app 2", "helper 2")):
        for (path, text), old, new in zip(edited.items(), ("app 1", "helper 1"), words, strict=True):
            path.write_text(text.replace(old, new))
            os.utime(path, written)
        stage.mill.deploy()
    (folder / "landing" / "one.txt").write_text("1\n")
    stage.mill.inboxes.scan("files")
    (run,) = stage.play()

    assert run.state == "COMPLETED"
    assert stage.lines_of() == ["app 2 helper 2 late 1 deep 1"]
    assert list(folder.rglob("*.pyc")) == []


def test_a_declaration_of_equal_size_and_time_is_deployed(stage, monkeypatch):
    """Programs and schedules come from the text that is packed, not from byte code of an older text."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    app_file = stage.mill.project.config.app
    (app_file.parent / "helper.py").write_text("word = 'on_files'")
    text = app_file.read_text().replace('"on_files"', "helper.word")
    for name in ("on_files", "on_filed"):
        (app_file.parent / "helper.py").write_text(f"word = {name!r}")
        app_file.write_text(text)
        for path in (app_file, app_file.parent / "helper.py"):
            os.utime(path, (1_700_000_000, 1_700_000_000))
        stage.mill.deploy()

    assert [schedule.name for schedule in stage.mill.schedules.list().items] == ["default.shop.on_filed"]


def test_every_attempt_has_the_files_of_the_deployment(stage):
    """With the project gone, too: a node needs no checkout."""
    folder = stage.mill.project.config.folder
    (folder / "landing" / "one.txt").write_text("1\n")
    stage.mill.inboxes.scan("files")
    stage.mill.project.config.app.write_text("import nothing_of_that_name")
    for name in ("helper.py", "late.py"):
        (folder / name).unlink()
    shutil.rmtree(folder / "package")
    (run,) = stage.play()

    assert run.state == "COMPLETED"
    assert stage.lines_of() == ["app 1 helper 1 late 1 deep 1"]


COUNTS = """
from pathlib import Path
import tidemill as tm

app = tm.App("shop")
with (Path(__file__).parent / "executed.txt").open("a") as executed:
    executed.write("x")

@app.python()
def load(run):
    pass
"""


def test_a_driver_executes_the_app_file_of_a_deployment_once(stage):
    """An app with 300 schedules cost each run of a warm driver 12 ms, which was most of its time."""
    stage.declare(COUNTS)
    executed = stage.mill.project.config.folder / "executed.txt"
    before = len(executed.read_text())
    runs = [stage.mill.runs.start("shop.load").run_id for _ in range(2)]

    taken = stage.take()
    driver = stage.driver(taken[0])
    for run in taken:
        driver.work(stage.assignment(run))

    assert [stage.find(run_id).state for run_id in runs] == ["COMPLETED", "COMPLETED"]
    assert len(executed.read_text()) == before + 1


def test_data_in_a_package_are_those_of_the_deployment(stage):
    """By both ways in which Python reads the data of a package."""
    redeploy(stage.mill, DATA)
    (stage.mill.project.config.folder / "package" / "query.sql").write_text("edited")
    sys.modules.pop("package", None)  # the deployment's, in this process; a driver is a process of its own
    start(stage)

    assert stage.lines_of() == ["SELECT 1", "SELECT 1"]


def test_a_deployment_replaces_the_code_of_the_next_attempt(stage):
    """The run record names the code of its attempt."""
    folder = stage.mill.project.config.folder
    (first,) = list(stage.mill.project.catalog.read(list_programs))
    (folder / "helper.py").write_text("word = 'helper 2'")
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    (second,) = list(stage.mill.project.catalog.read(list_programs))
    (folder / "landing" / "one.txt").write_text("1\n")
    stage.mill.inboxes.scan("files")
    (run,) = stage.play()

    assert stage.lines_of() == ["app 2 helper 2 late 1 deep 1"]
    assert first.bundle != second.bundle
    assert stage.mill.runs.show(run.run_id).bundle == second.bundle
    assert stage.mill.runs.show(run.run_id).facts["code"] == second.bundle


def test_a_node_that_cannot_load_the_code_blames_neither_program_nor_file(stage):
    """A library is missing there: the run waits for another node for ever; five such attempts ended it FAILED."""
    folder = stage.mill.project.config.folder
    (folder / "landing" / "good.txt").write_text("1\n")
    stage.mill.inboxes.scan("files")
    stage.schedule()
    for _ in range(5 + 2):
        rows_of(stage.mill.project.catalog, "UPDATE run SET not_before = 0 RETURNING 1")
        spoil(stage)
        (run,) = stage.work()
    files = rows_of(stage.mill.project.catalog, "SELECT status, failures FROM inbox_file")
    shown = stage.mill.runs.show(run.run_id)
    found = next(one for one in examine(folder, world=stage.world).findings if one.subject == "code")

    assert (run.state, run.failures, run.losses) == ("PENDING", 0, 0)
    assert run.exit_cause == "unloaded"
    assert shown.why.startswith("waits for a node that can load its code; the last attempt ended: code_unavailable")
    assert f"cannot be loaded on {stage.spawner.host()}: " in shown.why
    assert "library_of_no_node" in shown.why
    assert (found.good, "library_of_no_node" in found.found) == (False, True)
    assert files == [("NEW", 0)]


def test_a_run_that_waited_for_a_node_goes_on_with_code_that_loads(stage):
    """Another node, or another deployment: the run has all its attempts still."""
    folder = stage.mill.project.config.folder
    (folder / "landing" / "good.txt").write_text("1\n")
    stage.mill.inboxes.scan("files")
    stage.schedule()
    spoil(stage)
    stage.work()

    (folder / "helper.py").write_text("word = 'helper 2'")
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    rows_of(stage.mill.project.catalog, "UPDATE run SET not_before = 0 RETURNING 1")
    (run,) = stage.work()
    found = next(one for one in examine(folder, world=stage.world).findings if one.subject == "code")

    assert (run.state, run.failures, run.exit_cause) == ("COMPLETED", 0, None)
    assert found.good


def test_up_until_idle_does_not_wait_for_another_node(stage):
    """The command reports what the run waits for, and ends: alone it would wait for ever."""
    stage.mill.runs.start("shop.load")
    spoil(stage)

    (waits,) = [line for line in stage.up() if " waits " in line]
    assert "until a node can load its code: code_unavailable" in waits
    assert [run.state for run in stage.runs()] == ["PENDING"]


def spoil(stage: Stage) -> None:
    """Have the unpacked code import what this node does not have."""
    (program,) = stage.mill.project.catalog.read(list_programs)
    code = find_code(stage.mill.project.catalog, stage.mill.project.config.state, program, program.bundle)
    (Path(code.folder) / "helper.py").write_text("import library_of_no_node")
    sys.modules.pop("helper", None)


def test_a_program_that_was_deployed_again_before_its_attempt_began_is_returned(stage):
    """Declaration and code belong together: the attempt costs the run nothing."""
    stage.at["driver.assigned"] = lambda: redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    run_id = stage.mill.runs.start("shop.load").run_id
    (run,) = stage.work()
    state, losses, failures = run.state, run.losses, run.failures
    (again,) = stage.work()

    assert (state, losses, failures) == ("PENDING", 0, 0)
    assert (again.run_id, again.state) == (run_id, "COMPLETED")


def test_what_travels_is_what_the_app_imports_and_its_packages(stage):
    """Not the data, settings and secrets that lie beside it."""
    packed = pack(Disk(), stage.mill.project.config.app)

    assert set(packed.files) == {
        "app.py",
        "helper.py",
        "late.py",
        "package/__init__.py",
        "package/deep.py",
        "package/other.py",
        "package/query.sql",
    }
    assert Bundle.from_zip(packed.to_zip()).digest == packed.digest


def test_too_much_data_in_a_package_is_refused(stage, monkeypatch):
    """A bundle is unpacked on each node."""
    monkeypatch.setattr("tidemill.app.packing.MOST_BYTES", 100)
    (stage.mill.project.config.folder / "package" / "data.bin").write_bytes(b"0" * 2000)

    with raises_code("bundle_too_large", match=r"above all package/data\.bin"):
        stage.mill.deploy()


def test_of_too_much_data_only_the_size_is_read(stage, monkeypatch):
    """The data may be larger than the memory."""
    monkeypatch.setattr("tidemill.app.packing.MOST_BYTES", 10_000)
    (stage.mill.project.config.folder / "package" / "data.bin").write_bytes(b"0" * 20_000)
    read_bytes, read = Disk.read_bytes, []

    def look(disk: Disk, path: Path) -> bytes:
        read.append(path.name)
        return read_bytes(disk, path)

    monkeypatch.setattr(Disk, "read_bytes", look)
    with raises_code("bundle_too_large", match=r"above all package/data\.bin"):
        pack(Disk(), stage.mill.project.config.app)

    assert "data.bin" not in read


def test_links_in_a_circle_are_packed_once(stage):
    """Two of them multiplied the files of a package by two to the power of forty."""
    package = stage.mill.project.config.folder / "package"
    (package / "again").symlink_to(package)
    (package / "other_way").symlink_to(".")
    packed = pack(Disk(), stage.mill.project.config.app)

    assert {name for name in packed.files if name.endswith("query.sql")} == {"package/query.sql"}


def test_a_large_bundle_lies_below_the_data(stage, monkeypatch):
    """The catalog stays small; a node unpacks it from there."""
    monkeypatch.setattr(bundles, "MOST_IN_CATALOG", 10)
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    (program,) = stage.mill.project.catalog.read(list_programs)
    stage.mill.deploy()
    stored = list((Path(stage.mill.project.config.data) / "_bundles").iterdir())

    assert [path.name.split("-")[0] for path in stored] == [program.bundle]
    assert start(stage) == "COMPLETED"


def test_a_large_bundle_whose_file_is_gone_comes_back_with_the_same_deployment(stage, monkeypatch):
    """A restored catalog names a bundle that the janitor has deleted since the backup."""
    monkeypatch.setattr(bundles, "MOST_IN_CATALOG", 10)
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    for path in (Path(stage.mill.project.config.data) / "_bundles").iterdir():
        path.unlink()
    stage.mill.deploy()

    assert start(stage) == "COMPLETED"


def test_the_file_of_a_deployment_that_was_killed_is_deleted(stage, monkeypatch):
    """Without a row that names the file, it would stay for ever."""
    catalog = stage.mill.project.catalog
    folder = Path(stage.mill.project.config.data) / "_bundles"
    monkeypatch.setattr(bundles, "MOST_IN_CATALOG", 10)

    def die(*_: object, **__: object) -> None:
        raise Died

    with monkeypatch.context() as killed:
        killed.setattr("tidemill.mill.deployment.deploy", die)
        killed.setattr("tidemill.mill.deployment.delete_unused", lambda *_: None)  # a kill tidies nothing
        with pytest.raises(Died):
            redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    stage.sweep()
    soon = len(list(folder.iterdir()))
    stage.at["bundles.abandoned"] = die
    rows_of(catalog, "UPDATE bundle_upload SET begun_at = begun_at - 7200000 RETURNING 1")
    with pytest.raises(Died):
        stage.sweep()
    stage.sweep()
    later = list(folder.iterdir())
    stage.mill.deploy()
    stage.sweep()

    assert (soon, later) == (1, [])
    assert start(stage) == "COMPLETED"
    assert len(list(folder.iterdir())) == 1


def test_a_slow_deployment_never_names_a_file_that_the_janitor_deletes(stage, monkeypatch):
    """Whichever commits first decides; and what the slow one writes afterwards is deleted, too."""
    catalog = stage.mill.project.catalog
    monkeypatch.setattr(bundles, "MOST_IN_CATALOG", 10)
    stored = store_bundle(catalog, stage.mill.project.config.data, Bundle({"app.py": b"x = 1"}))
    path = Path(stored.location.removeprefix("file://"))
    rows_of(catalog, "UPDATE bundle_upload SET begun_at = begun_at - 7200000 RETURNING 1")
    stage.sweep()
    path.write_bytes(b"late")

    with raises_code("upload_abandoned", match="deploy again"):
        catalog.write(lambda db: put_bundle(db, stored))
    stage.sweep()
    rows_of(catalog, "UPDATE bundle_upload SET begun_at = 0 RETURNING 1")
    stage.sweep()

    assert not path.exists()
    assert stored.bundle.digest not in digests(stage)
    assert rows_of(catalog, "SELECT * FROM bundle_upload") == []


def test_a_damaged_bundle_is_not_unpacked(stage):
    """The digest says what the code is."""
    (program,) = stage.mill.project.catalog.read(list_programs)
    other = Bundle({"app.py": b"x = 1"}).to_zip()
    damage = by_hand("UPDATE bundle SET content = :content", "content")
    stage.mill.project.catalog.write(lambda db: db.run(damage, content=other))

    with raises_code("code_unavailable", match="damaged"):
        find_code(stage.mill.project.catalog, stage.mill.project.config.state, program, program.bundle)


def test_bundles_that_nothing_names_are_deleted(stage, monkeypatch):
    """From the catalog, from the data, and where they were unpacked; never those of an attempt under way."""
    catalog, state = stage.mill.project.catalog, stage.mill.project.config.state
    monkeypatch.setattr(bundles, "MOST_IN_CATALOG", 10)
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    start(stage)
    (large,) = catalog.read(list_programs)
    stage.at["driver.begun"] = lambda: (
        redeploy(stage.mill, APP.replace("VERSION", "app 3")),
        stage.sweep(),
        kept.append(digests(stage)),
    )
    kept: list[set[str]] = []
    start(stage)
    (last,) = catalog.read(list_programs)
    stage.sweep()

    assert large.bundle in kept[0]
    assert digests(stage) == {last.bundle}
    assert [path.name.split("-")[0] for path in (Path(stage.mill.project.config.data) / "_bundles").iterdir()] == [
        last.bundle
    ]
    assert not (state / "bundles" / large.bundle).exists()


def test_a_deletion_that_was_cut_short_does_not_harm_the_same_code_deployed_again(stage, monkeypatch):
    """The janitor died between its intent and the deletion; meanwhile the old text is deployed again."""
    monkeypatch.setattr(bundles, "MOST_IN_CATALOG", 10)
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    redeploy(stage.mill, APP.replace("VERSION", "app 3"))

    def die() -> None:
        raise Died

    stage.at["bundles.leaving"] = die
    with pytest.raises(Died):
        stage.sweep()
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))
    stage.sweep()

    assert start(stage) == "COMPLETED"


class Died(BaseException):
    """The end of a process."""


def test_a_folder_that_was_deleted_in_part_is_never_loaded(stage, monkeypatch):
    """The janitor died while it deleted the unpacked code; then the same code is deployed again."""
    catalog, state = stage.mill.project.catalog, stage.mill.project.config.state
    start(stage)
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))

    def remove_some(_disk: Disk, path: Path) -> None:
        (path / "late.py").unlink()
        raise Died

    with monkeypatch.context() as patched:
        patched.setattr(Disk, "remove", remove_some)
        with pytest.raises(Died):
            stage.sweep()
    redeploy(stage.mill, APP.replace("VERSION", "app 1"))

    start(stage)
    (program,) = catalog.read(list_programs)
    whole = (state / "bundles" / program.bundle / "late.py").exists()
    stage.sweep()

    assert whole
    assert {path.name for path in (state / "bundles").iterdir()} == digests(stage)


def test_code_that_is_unpacked_during_a_sweep_stays(stage, monkeypatch):
    """A deployment between the two looks of a janitor: at the folder, and at the catalog."""
    catalog, state = stage.mill.project.catalog, stage.mill.project.config.state
    start(stage)
    list_folder = Disk.list_folder
    deploying = [lambda: (redeploy(stage.mill, APP.replace("VERSION", "app 2")), start(stage))]

    def list_later(disk: Disk, path: Path):
        while path == state / "bundles" and deploying:
            deploying.pop()()
        return list_folder(disk, path)

    monkeypatch.setattr(Disk, "list_folder", list_later)
    stage.sweep()
    (program,) = catalog.read(list_programs)

    assert (state / "bundles" / program.bundle / "late.py").exists()


def test_a_folder_that_cannot_be_deleted_ends_no_janitor(stage, monkeypatch, caplog):
    """Two nodes may share a state folder: the other janitor is faster."""
    start(stage)
    redeploy(stage.mill, APP.replace("VERSION", "app 2"))

    def refuse(*_: object) -> None:
        raise FileNotFoundError("deleted by another")

    monkeypatch.setattr(Disk, "remove", refuse)
    stage.sweep()

    assert "is not deleted: deleted by another" in caplog.text


def test_a_full_disk_of_a_node_is_no_fault_of_the_run(stage, monkeypatch):
    """The attempt is lost like one whose code does not load; its input is never blamed."""
    (program,) = stage.mill.project.catalog.read(list_programs)

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "write_bytes", refuse)

    with raises_code("code_unavailable", match=r"cannot be unpacked into .*No space left"):
        find_code(stage.mill.project.catalog, stage.mill.project.config.state, program, program.bundle)


def test_a_wrong_byte_anywhere_in_a_bundle_is_damage():
    """A wrong byte in compressed data too, for which Python's zip module raises errors of other modules."""
    good = Bundle({"app.py": bytes(range(256))}).to_zip()
    refused = 0
    for place in range(len(good)):
        try:
            Bundle.from_zip(good[:place] + bytes([good[place] ^ 0xFF]) + good[place + 1 :])
        except zipfile.BadZipFile:
            refused += 1

    assert refused > len(good) / 2


def digests(stage: Stage) -> set[str]:
    """The bundles of the catalog."""
    return {str(row[0]) for row in rows_of(stage.mill.project.catalog, "SELECT digest FROM bundle")}


def test_an_edit_that_is_not_deployed_is_reported_once(stage):
    """The report covers a half-saved file too. A deployed or reverted edit is not reported."""
    told: list[str] = []
    edits = Edits(stage.mill.project.catalog, stage.mill.project.config, told.append)
    edits.step()
    unedited = list(told)
    for text in ("word = 'helper 2'", "word = 'helper 2'", "word = 'helper 1'", "word = 'helper 2'"):
        (stage.mill.project.config.folder / "helper.py").write_text(text)
        edits.step()
    stage.mill.project.config.app.write_text("half sav(")
    edits.step()

    assert unedited == []
    assert told == [
        "app.py differs from what is deployed (helper.py): restart `up` or run `tidemill deploy`",
        "app.py differs from what is deployed (helper.py): restart `up` or run `tidemill deploy`",
        "app.py does not compile ('(' was never closed (<unknown>, line 1)); what is deployed runs on",
    ]


def test_an_edit_of_a_declared_data_file_is_reported(stage):
    """Like an edit of the code: the edit is not deployed."""
    redeploy(stage.mill, APP.replace('App("shop")', 'App("shop", files=["*.txt"])'))
    told: list[str] = []
    edits = Edits(stage.mill.project.catalog, stage.mill.project.config, told.append)
    for text in ("hush", "edited", "edited"):
        (stage.mill.project.config.folder / "secrets.txt").write_text(text)
        edits.step()

    assert told == ["app.py differs from what is deployed (secrets.txt): restart `up` or run `tidemill deploy`"]


def test_an_app_file_that_changes_while_it_is_read_is_read_again(stage):
    """The bundle has the code that declared the programs."""
    folder = stage.mill.project.config.folder
    redeploy(
        stage.mill,
        APP.replace("VERSION", "app 2")
        + "\ncount = Path(__file__).parent / 'count'\n"
        + "if not count.exists():\n    count.touch()\n    count.with_name('helper.py').write_text('word = 3')\n",
    )
    (program,) = stage.mill.project.catalog.read(list_programs)
    code = find_code(stage.mill.project.catalog, stage.mill.project.config.state, program, program.bundle)

    assert (Path(code.folder) / "helper.py").read_text() == (folder / "helper.py").read_text() == "word = 3"


def test_an_app_file_that_always_changes_is_refused(stage):
    """A deployment must not have code that no process has read as a whole."""
    with raises_code("broken_app", match="changes all the time"):
        redeploy(
            stage.mill,
            APP + "\nhelp = Path(__file__).with_name('helper.py')\nhelp.write_text(help.read_text() + '#')\n",
        )
