"""Archive of Spark's classes: its Spark and Java, its trainer, and drivers without an archive."""

from __future__ import annotations

import dataclasses
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.run.test_local_launcher import STUB, Pool
from tests.run.test_runner import until
from tests.spawners import PlayedDrivers
from tidemill.json_specs import write_text
from tidemill.run.processes.class_data import JAVA_OPTIONS, ClassArchive, Training, find_archive
from tidemill.run.processes.java import Java
from tidemill.run.processes.local_launcher import ProfileOptions
from tidemill.world import World

JAVA = Java(Path("/java"), "17.0.9", "PATH")


def test_each_spark_on_each_java_has_an_archive_of_its_own(tmp_path):
    """A JVM refuses the archive of another: an upgrade must find that there is none yet."""
    paths = {
        find_archive(tmp_path, java, settings).path
        for java in (JAVA, Java(Path("/java"), "21.0.1", "PATH"), Java(Path("/other"), "17.0.9", "PATH"))
        for settings in ({}, {"spark.driver.extraClassPath": "/driver.jar"})
    }

    assert len(paths) == 6
    assert find_archive(tmp_path, JAVA, {}) == find_archive(tmp_path, JAVA, {"spark.sql.shuffle.partitions": "8"})
    assert all("17.0.9" in path.name or "21.0.1" in path.name for path in paths)


class TrainingSpawner(PlayedDrivers):
    """Spawner that keeps the trainer's command and input for the test."""

    def __init__(self) -> None:
        super().__init__("-c", STUB)
        self.trainings: list[list[str]] = []

    def start(self, argv, **how):
        """Start a driver's stub, also for a trainer: it waits until it is killed."""
        if "tidemill.run.processes.class_data" in argv:
            self.trainings.append(list(argv))
        return super().start(argv, **how)


@pytest.fixture
def pool(tmp_path):
    """A launcher that may have an archive made, and has found a Java."""
    pool = Pool(tmp_path)
    pool.world = dataclasses.replace(pool.world, spawner=TrainingSpawner())
    pool.launcher.world = pool.world
    archive = ClassArchive(tmp_path / "cache" / "class-data" / "spark.jsa")
    pool.launcher._archives, pool.launcher._wanted = {"": archive}, {"": archive}
    yield pool
    pool.launcher.close()


def test_one_training_run_begins_beside_a_driver_that_waits(pool):
    """Not before: two Sparks that start at once take twice as long, and the run is waited for."""
    pool.launcher.tend()
    before = list(pool.world.spawner.trainings)
    pool.launcher.keep(pool.code, "")
    until(pool.launcher.is_warm, pool.launcher.tend)
    for _ in range(3):
        pool.launcher.tend()

    assert before == []
    assert len(pool.world.spawner.trainings) == 1
    assert pool.world.spawner.trainings[0][:3] == ["nice", "-n", "19"]


def test_the_training_run_ends_with_the_launcher(pool, tmp_path):
    """`up` that ends leaves no process, and no folder, behind."""
    pool.launcher.keep(pool.code, "")
    until(lambda: pool.world.spawner.trainings, pool.launcher.tend)
    trainer = pool.launcher._trainer

    pool.launcher.close()

    assert trainer.poll() is not None
    assert list((tmp_path / "state" / "drivers").iterdir()) == []


def test_drivers_share_the_classes_once_they_are_there(pool):
    """Also at a site with Java options of its own. Before and without an archive, drivers get no option."""
    pool.launcher.options = dataclasses.replace(pool.options, profiles={"": ProfileOptions({JAVA_OPTIONS: "-Xss4m"})})
    without = pool.launcher._settings("")
    archive = pool.launcher._archives[""].path
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"classes")

    assert without == {JAVA_OPTIONS: "-Xss4m"}
    assert pool.launcher._settings("")[JAVA_OPTIONS].startswith(f'-Xss4m "-XX:SharedArchiveFile={archive}" ')


@pytest.mark.parametrize("there", ["spark.jsa", "spark.failed"])
def test_what_was_made_or_has_failed_is_not_made_again(tmp_path, there):
    """40 s of a core at each start for nothing would be a bad bargain."""
    archive = ClassArchive(tmp_path / "spark.jsa")
    wanted = archive.is_wanted(World())
    (tmp_path / there).write_bytes(b"")

    assert (wanted, archive.is_wanted(World())) == (True, False)


_HOLDER = """
import sys
from pathlib import Path
from tidemill.world import World
print(World().disk.lock(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""


def test_only_one_process_has_the_lock_and_its_death_releases_it(tmp_path):
    """Two `up` on one machine make one archive. A killed trainer keeps no other from making the archive."""
    holder = subprocess.Popen(
        [
            sys.executable,
            "-c",
            _HOLDER,
            str(tmp_path / "lock"),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ,
    )
    held = holder.stdout.readline()

    during = World().disk.lock(tmp_path / "lock")
    holder.kill()
    holder.communicate()

    assert (held, during) == (b"True\n", False)
    assert World().disk.lock(tmp_path / "lock")


@pytest.mark.spark
def test_a_jvm_goes_on_without_an_archive_that_it_cannot_use(tmp_path):
    """Cut by a full disk, or of another Java: slower, and nothing else."""
    from tidemill.run.processes.java import find_java

    broken = ClassArchive(tmp_path / "spark.jsa")
    broken.path.write_bytes(b"no classes")
    java = find_java(World(), tmp_path / "cache")

    told = subprocess.run(
        [java.home / "bin" / "java", *shlex.split(broken.options(World())), "-version"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert "version" in told.stderr
    assert told.stdout == ""


def test_a_training_survives_its_way_through_a_line():
    """The order comes by standard input, like a driver's."""
    training = Training("/cache/a.jsa", "/state/t", {"spark.master": "local"})

    assert "\n" not in write_text(training)
    assert "/cache/a.jsa" in write_text(training)
