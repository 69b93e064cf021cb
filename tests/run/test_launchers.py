"""Which driver gets an attempt, and when one is replaced; with drivers that only say that they are done."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.run.test_programs import PROGRAM
from tests.run.test_runner import SteppedClock, until
from tidemill.names import RunId
from tidemill.processes import LocalChild, LocalSpawner
from tidemill.run.bundles import AppCode
from tidemill.run.java import NoJava
from tidemill.run.launchers import Driver, DriverOptions, Launcher
from tidemill.run.programs import Program, ProgramKind
from tidemill.world import World

STUB = """
import json
from pathlib import Path
from tidemill.processes import live_with_parent
lines = live_with_parent()
start = json.loads(next(lines))
status = Path(start["folder"]) / "status"
status.write_text("ready\\n")
for line in lines:
    given = json.loads(line)
    if given["run_id"] == "run_hangs":
        continue
    with status.open("a") as file:
        file.write(f"done {given['run_id']} {given['epoch']}\\n")
    if not start["warm"]:
        break
"""


class StubSpawner(LocalSpawner):
    """Starts such drivers."""

    def start(self, argv, **how) -> LocalChild:  # noqa: ARG002  # it is another program
        """Start one."""
        return super().start([sys.executable, "-c", STUB], **how)


class Pool:
    """A launcher, an app file, and a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.app_file = folder / "project" / "app.py"
        self.app_file.parent.mkdir()
        self.app_file.write_text("")
        self.clock = SteppedClock()
        self.world = dataclasses.replace(World(), spawner=StubSpawner())
        self.options = DriverOptions("sqlite:///nowhere", folder / "state", folder / "cache", runs_per_driver=3)
        self.launcher = Launcher(self.world, self.options)
        self.launcher._spark_env = {}  # no Java is needed
        self.program: Program = dataclasses.replace(PROGRAM, app_file=str(self.app_file))
        self.code = AppCode(str(self.app_file), "first")

    def launch(self, run: str = "run_1", **changes: object) -> Driver:
        """Have an attempt worked on."""
        return self.launcher.launch(RunId(run), 1, dataclasses.replace(self.program, **changes), self.code)

    def serve(self, run: str = "run_1") -> Driver:
        """Have an attempt worked on to its end."""
        driver = self.launch(run)
        self.launcher.release(driver, committed=True)
        until(lambda: driver.assignment is None or driver not in self.launcher.drivers, self.launcher.tend)
        return driver


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    """A launcher with one warm driver for the app file."""
    pool = Pool(tmp_path)
    pool.launcher.warm_up(pool.code)
    until(pool.launcher.is_warm, pool.launcher.tend)
    yield pool
    pool.launcher.close()


def test_a_warm_driver_serves_one_run_after_the_other(pool):
    """A cold start costs seconds."""
    first, second = pool.serve("run_1"), pool.serve("run_2")

    assert first is second
    assert first.warm


def test_a_busy_warm_driver_is_never_shared(pool):
    """A session is one run's."""
    first = pool.launch("run_hangs")

    second = pool.launch("run_2")

    assert second is not first
    assert not second.warm


def test_a_driver_that_has_committed_gets_the_next_run_at_once(pool):
    """It is still putting markers beside its files: milliseconds, against a cold start of seconds."""
    first = pool.launch("run_hangs")
    pool.launcher.release(first, committed=True)

    second = pool.launch("run_2")

    assert second is first


def test_a_driver_that_was_fenced_gets_no_other_run(pool):
    """Nobody knows whether it still works on the last one."""
    first = pool.launch("run_hangs")
    pool.launcher.release(first, committed=False)

    second = pool.launch("run_2")

    assert second is not first


def test_a_driver_that_does_not_come_to_an_end_is_killed(pool):
    """After its run is over it has ten seconds."""
    driver = pool.launch("run_hangs")
    pool.launcher.world = dataclasses.replace(pool.world, clock=pool.clock)
    pool.launcher.release(driver, committed=True)
    pool.launcher.tend()
    kept = driver in pool.launcher.drivers

    pool.clock.time += timedelta(seconds=11)
    pool.launcher.tend()

    assert kept
    assert driver.child.poll() is not None
    assert not driver.folder.exists()


def test_a_driver_of_other_code_gets_no_run_and_is_replaced(pool):
    """It has imported what is no longer so."""
    first = pool.serve()
    pool.code = dataclasses.replace(pool.code, digest="second")

    second = pool.launch("run_2")
    pool.launcher.tend()

    assert second is not first
    assert first not in pool.launcher.drivers
    assert sum(driver.warm for driver in pool.launcher.drivers) == 1


def test_a_driver_is_replaced_after_so_many_runs(pool):
    """What user code leaks does not add up for ever."""
    drivers = [pool.serve(f"run_{number}") for number in range(4)]

    assert drivers[0] is drivers[1] is drivers[2]
    assert drivers[3] is not drivers[0]


def test_a_warm_driver_that_died_is_replaced(pool):
    """By the kernel, for its memory; the next run finds a warm one again."""
    (driver,) = pool.launcher.drivers
    pool.world.spawner.kill_alone(driver.child.pid)

    until(lambda: driver not in pool.launcher.drivers, pool.launcher.tend)

    assert [other.warm for other in pool.launcher.drivers] == [True]


def test_a_program_without_spark_gets_a_process_of_its_own(pool):
    """It starts in half a second, and leaves the warm one to those who need it."""
    driver = pool.launch(kind=ProgramKind.PYTHON)

    assert not driver.warm
    assert not driver.spark


@pytest.mark.parametrize("trouble", [NoJava("no Java"), OSError(28, "No space left on device")])
def test_a_warm_driver_that_cannot_be_started_stops_nobody(pool, monkeypatch, caplog, trouble):
    """Without Java, plain Python programs run; it is said once, and tried again when a run needs Spark."""
    (driver,) = pool.launcher.drivers
    pool.launcher.end(driver)

    def refuse(*_, **__):
        raise trouble

    with monkeypatch.context() as broken:
        broken.setattr(pool.launcher, "_find_spark_env", refuse)
        pool.launcher.tend()
        pool.launcher.tend()
        plain = pool.launch(kind=ProgramKind.PYTHON)
        with pytest.raises(type(trouble)):
            pool.launch()
    without = list(pool.launcher.drivers)
    retry = pool.launch()

    assert without == [plain]
    assert len(caplog.messages) == 1
    assert retry.warm


def test_a_log_that_cannot_be_cut_stops_nobody(pool, monkeypatch):
    """A full disk must not end the runner."""
    pool.launch("run_hangs")

    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pool.launcher, "_cap_logs", refuse)
    pool.launcher.tend()

    assert pool.launcher.drivers


def test_a_driver_whose_program_failed_gets_the_next_run_when_it_says_so(pool):
    """A failure is no reason to start Spark again."""
    first = pool.launch("run_1")
    until(lambda: pool.launcher._has_served(first), lambda: None)
    pool.launcher.release(first, committed=False)

    second = pool.launch("run_2")

    assert second is first


def test_no_driver_is_left_after_the_end(pool):
    """Ctrl-C ends every child."""
    pool.launch("run_hangs")
    children = [driver.child for driver in pool.launcher.drivers]

    pool.launcher.close()

    assert all(child.poll() is not None for child in children)
    assert pool.launcher.drivers == []


def test_a_retry_after_a_kill_starts_one_spark_not_two(pool):
    """The driver for the retry becomes the warm one that is missing; two starting at once take twice as long."""
    killed = pool.launch("run_hangs")
    pool.launcher.end(killed)

    retry = pool.launch("run_hangs")
    pool.launcher.tend()

    assert retry.warm
    assert pool.launcher.drivers == [retry]
