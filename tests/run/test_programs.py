"""Programs: what is registered, how its arguments are bound, how its code is found again."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import NotFound, UserError
from tidemill.names import Namespace, ProgramId
from tidemill.run.records.programs import (
    Argument,
    ArgumentType,
    BadArgument,
    BadProgram,
    BrokenApp,
    Program,
    ProgramKind,
    choose_program,
    code_digest,
    find_program,
    list_programs,
    load_apps,
)
from tidemill.world import Disk

PROGRAM = Program(
    ProgramId("prg_1"),
    Namespace("default"),
    "shop",
    "load",
    ProgramKind.SPARK,
    "/project/app.py",
    reads=("default.raw",),
    writes=("default.clean",),
    retries=3,
    backoff=timedelta(minutes=1),
    run_on_empty=None,
    deliver_own=False,
    arguments=(Argument("day", ArgumentType.STRING), Argument("share", ArgumentType.FLOAT, 0.5)),
)

APP = """
class Source:
    def __init__(self, name): self.name = name
    def find_program(self, name): return {"load": load}[name]
def load(run): return 1
shop, other = Source("shop"), Source("other")
again = shop
"""


def test_a_program_comes_back_from_the_catalog_as_it_was(works):
    """A driver reads the program as it was deployed."""
    works.program("load", **{f.name: getattr(PROGRAM, f.name) for f in dataclasses.fields(PROGRAM) if f.name != "name"})

    found = works.catalog.read(lambda db: find_program(db, Namespace("default"), "shop", "load"))

    assert found == PROGRAM


def test_a_program_that_has_not_changed_is_decoded_once(works):
    """A scheduler reads a program at each batch of messages and at each check: decoding was a tenth of their work."""
    works.program("load")
    (first,) = works.catalog.read(list_programs)

    (again,) = works.catalog.read(list_programs)
    works.program("load", retries=7)
    (changed,) = works.catalog.read(list_programs)

    assert again is first
    assert changed.retries == 7


def test_a_program_keeps_its_id_through_deployments(works):
    """Runs, slots and schedules name it."""
    works.program("load")
    works.program("load", program_id=ProgramId("prg_other"), retries=7)

    (found,) = works.catalog.read(list_programs)

    assert (found.program_id, found.retries) == ("prg_load", 7)


def test_an_unknown_program_names_the_nearest(works):
    """Exit code 4, with a hint."""
    works.program("load")

    with pytest.raises(NotFound, match=r"did you mean 'default.shop.load'"):
        works.catalog.read(lambda db: find_program(db, Namespace("default"), "shop", "laod"))


def test_arguments_are_completed_by_their_defaults():
    """A run's record says all of them, so that a retry after a deployment is the same run."""
    assert PROGRAM.bind({"day": "2026-01-01"}) == {"day": "2026-01-01", "share": 0.5}
    assert PROGRAM.bind({"day": "x", "share": 1}) == {"day": "x", "share": 1.0}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "must be given"),
        ({"day": 1}, "of type string"),
        ({"day": "x", "share": "1"}, "of type float"),
        ({"day": "x", "share": True}, "of type float"),
        ({"dya": "x"}, "did you mean 'day'"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(given, why):
    """Checked when a run is made, not when its program fails on it."""
    with pytest.raises(BadArgument, match=why):
        PROGRAM.bind(given)


@pytest.mark.parametrize("retries", [-1, 101, True, 1.5, "3"])
def test_retries_have_bounds(retries):
    """A program that is tried for ever hides that it is broken."""
    with pytest.raises(BadProgram):
        dataclasses.replace(PROGRAM, retries=retries)


def test_an_argument_cannot_be_declared_twice():
    """Without the refusal, one of the two would silently win."""
    with pytest.raises(BadProgram, match="twice"):
        dataclasses.replace(PROGRAM, arguments=(PROGRAM.arguments[0],) * 2)


@given(st.text())
def test_names_that_could_lead_elsewhere_are_refused(name):
    """They end in paths, URLs and event keys."""
    try:
        program = dataclasses.replace(PROGRAM, name=name)
    except UserError:
        return
    assert program.name.isascii()
    assert not {"/", ".", "\0"} & set(program.name)


@pytest.fixture
def app_file(tmp_path: Path) -> Path:
    """An app file with two apps, one of them under two names."""
    path = tmp_path / f"app_{tmp_path.name}.py"
    path.write_text(APP)
    return path


def test_apps_are_found_in_their_order_once(app_file):
    """An app that has a second name in the file is still one."""
    assert [app.name for app in load_apps(app_file)] == ["shop", "other"]


def test_the_code_of_a_program_is_found_by_its_name(app_file):
    """A driver has the file and the name."""
    code = choose_program(load_apps(app_file), app_file, dataclasses.replace(PROGRAM, app_file=str(app_file))).code

    assert code(None) == 1


def test_a_program_of_an_app_that_is_gone_is_refused(app_file):
    """The file was changed after the deployment."""
    with pytest.raises(BrokenApp, match="no app 'gone'"):
        choose_program(load_apps(app_file), app_file, dataclasses.replace(PROGRAM, app="gone"))


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("x = (", "never closed"),
        ("import os\n1 / 0", "line 2: ZeroDivisionError"),
        ("import nothing_of_that_name", "line 1: ModuleNotFoundError"),
        ("open('/nowhere/at/all')", "line 1: FileNotFoundError"),
    ],
)
def test_a_broken_app_file_says_what_and_where(tmp_path, code, why):
    """A user gets one line and exit code 2."""
    path = tmp_path / f"broken_{tmp_path.name}.py"
    path.write_text(code)

    with pytest.raises(BrokenApp, match=why) as error:
        load_apps(path)
    assert error.value.exit_code == 2


def test_an_app_file_that_is_missing_says_so(tmp_path):
    """Not a traceback of the import system."""
    with pytest.raises(BrokenApp, match="there is no such file"):
        load_apps(tmp_path / "app.py")


def test_the_digest_changes_with_what_the_app_can_import(app_file):
    """A warm driver that has imported a helper of yesterday must be replaced."""
    folder, disk = app_file.parent, Disk()
    digests = [code_digest(disk, app_file)]
    (folder / "helper.py").write_text("x = 1")
    digests.append(code_digest(disk, app_file))
    (folder / "package").mkdir()
    (folder / "package" / "__init__.py").write_text("")
    digests.append(code_digest(disk, app_file))
    (folder / "package" / "deep.py").write_text("y = 1")
    digests.append(code_digest(disk, app_file))

    (folder / "data").mkdir()
    (folder / "data" / "not_code.py.csv").write_text("1")
    (folder / "data" / "not_imported.py").write_text("1")

    assert len(set(digests)) == 4
    assert code_digest(disk, app_file) == digests[-1]


def test_what_an_editor_leaves_for_a_moment_is_no_code(app_file):
    """Emacs locks a file by a link to nowhere, others rename: neither may end the runner or replace a driver."""
    digest = code_digest(Disk(), app_file)

    class Renaming(Disk):
        """A disk on which the file that was listed is gone."""

        def read_bytes(self, path):
            if path.name == "helper.py":
                raise FileNotFoundError(path)
            return super().read_bytes(path)

    (app_file.parent / ".#app.py").symlink_to("somebody@somewhere.1")
    (app_file.parent / "helper.py").write_text("x = 1")

    assert code_digest(Renaming(), app_file) == digest
