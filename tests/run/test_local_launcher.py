"""The local launcher: drivers that get attempts and are replaced. These drivers only say that they are done."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.run.test_programs import PROGRAM
from tests.run.test_runner import until
from tests.spawners import PlayedDrivers
from tidemill.names import RunId
from tidemill.run.processes.java import NoJava
from tidemill.run.processes.launcher import DriverNotStarted
from tidemill.run.processes.local_launcher import Driver, DriverOptions, LocalLauncher, ProfileOptions
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.programs import Program, ProgramKind
from tidemill.testing.clock import VirtualClock
from tidemill.world import World

STUB = """
import json
from pathlib import Path
from tidemill.processes import live_with_parent
lines = live_with_parent()
start = json.loads(next(lines))
status = Path(start["folder"]) / "status"
if (Path(start["code"]["app_file"]).parent / f"broken{start['profile']}").exists():
    raise SystemExit(1)
if not (Path(start["code"]["app_file"]).parent / "slow").exists():
    status.write_text("ready\\n")
for line in lines:
    given = json.loads(line)
    if given["run_id"].startswith("run_hangs"):
        continue
    with status.open("a") as file:
        if given["run_id"] == "run_leaves":
            file.write("last\\n")
        file.write(f"done {given['run_id']} {given['epoch']}\\n")
    if not start["warm"]:
        break
"""


class Pool:
    """A launcher, an app file, and a clock that the test moves."""

    def __init__(self, folder: Path) -> None:
        self.app_file = folder / "project" / "app.py"
        self.app_file.parent.mkdir()
        self.app_file.write_text("")
        self.clock = VirtualClock()
        self.clock.elapsed = World().clock.monotonic()
        self.world = dataclasses.replace(World(), spawner=PlayedDrivers("-c", STUB))
        self.options = DriverOptions("sqlite:///nowhere", folder / "state", folder / "cache", runs_per_driver=3)
        self.launcher = LocalLauncher(self.world, self.options)
        self.launcher._spark_env = {}  # no Java is needed
        self.program: Program = dataclasses.replace(PROGRAM, app_file=str(self.app_file))
        self.code = AppCode(str(self.app_file), "first")

    def ask(self, run: str = "run_1", **changes: object) -> Driver | None:
        """Ask once for a driver for an attempt; None while the attempt waits."""
        self.launcher.start(RunId(run), 1, dataclasses.replace(self.program, **changes), self.code)
        return self.launcher._find(RunId(run), 1)

    def launch(self, run: str = "run_1", **changes: object) -> Driver:
        """Have an attempt worked on by whichever driver is free first."""
        given: list[Driver] = []
        until(lambda: given or given.extend(filter(None, [self.ask(run, **changes)])) or given, self.launcher.tend)
        return given[0]

    def release(self, driver: Driver, *, committed: bool) -> None:
        """Note that the attempt of a driver is over."""
        self.launcher.release(driver.assignment.run_id, driver.assignment.epoch, committed=committed)

    def serve(self, run: str = "run_1", **changes: object) -> Driver:
        """Have an attempt worked on to its end."""
        driver = self.launch(run, **changes)
        self.release(driver, committed=True)
        until(lambda: driver.assignment is None or driver not in self.launcher.drivers, self.launcher.tend)
        return driver


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    """A launcher with one warm driver for the app file."""
    pool = Pool(tmp_path)
    pool.launcher.keep(pool.code, "")
    until(pool.launcher.is_warm, pool.launcher.tend)
    yield pool
    pool.launcher.close()


def test_a_warm_driver_serves_one_run_after_the_other(pool):
    """A cold start costs seconds."""
    first, second = pool.serve("run_1"), pool.serve("run_2")

    assert first is second
    assert first.warm


def test_a_busy_warm_driver_is_never_shared(pool):
    """A session is one run's: the other run waits for the first driver that is free."""
    first = pool.launch("run_hangs")

    second = pool.ask("run_2")

    assert second is None
    assert pool.launcher.drivers == [first]


def test_a_run_that_waits_gets_the_driver_that_is_free_first(pool):
    """A start of Spark takes seconds: in most of them a driver that works comes to its end."""
    first = pool.launch("run_1")
    waits = pool.ask("run_2")
    pool.release(first, committed=True)

    second = pool.ask("run_2")

    assert waits is None
    assert second is first
    assert pool.launcher.drivers == [first]


def test_a_run_takes_only_a_driver_of_its_profile(pool):
    """Settings such as the memory are those of the process. The free driver with other settings stays free."""
    named = {"": ProfileOptions(), "big": ProfileOptions({"spark.driver.memory": "8g"}), "other": ProfileOptions()}
    pool.launcher.options = dataclasses.replace(pool.options, profiles=named)
    (usual,) = pool.launcher.drivers

    big = pool.serve("run_1", spark_profile="big")
    again = pool.serve("run_2", spark_profile="big")
    other = pool.serve("run_3", spark_profile="other")
    first = pool.serve("run_4")

    assert (big is again, first is usual) == (True, True)
    assert [driver.pool for driver in (big, other, usual)] == ["big", "other", ""]
    assert pool.launcher._settings("big") == {"spark.driver.memory": "8g"}
    assert pool.launcher._settings("") == {}


def test_each_profile_keeps_its_own_number_of_drivers(pool):
    """A dead driver is replaced, however many of other profiles wait. With 0 each run has a process of its own."""
    named = {"": ProfileOptions(), "big": ProfileOptions(warm=2), "cold": ProfileOptions(warm=0)}
    pool.launcher.options = dataclasses.replace(pool.options, profiles=named)
    pool.launcher.keep(pool.code, "big")
    once = pool.serve("run_1", spark_profile="cold")
    until(lambda: once not in pool.launcher.drivers, pool.launcher.tend)
    killed = next(driver for driver in pool.launcher.drivers if driver.pool == "big")
    killed.child.kill()
    until(lambda: killed not in pool.launcher.drivers, pool.launcher.tend)
    pool.launcher.keep(pool.code, "big")

    assert sorted(driver.pool for driver in pool.launcher.drivers) == ["", "big", "big"]
    assert not once.warm


def test_a_profile_that_cannot_start_fails_its_own_runs_only(pool):
    """A master that is away, or settings that Spark refuses."""
    named = {"": ProfileOptions(), "big": ProfileOptions()}
    pool.launcher.options = dataclasses.replace(pool.options, profiles=named)
    (pool.app_file.parent / "brokenbig").touch()

    with pytest.raises(DriverNotStarted):
        pool.launch("run_1", spark_profile="big")

    assert pool.launch("run_2").pool == ""


def test_while_all_drivers_stay_busy_one_more_is_started(pool):
    """A run of an hour does not hold up all others; but one start is enough for all runs that wait."""
    first = pool.launch("run_hangs")
    pool.launcher.world = dataclasses.replace(pool.world, clock=pool.clock)
    waits = [pool.ask("run_2"), pool.ask("run_3")]
    pool.clock.elapsed += timedelta(seconds=6)
    waits += [pool.ask("run_2"), pool.ask("run_3")]

    second = pool.launch("run_2")

    assert waits == [None] * 4
    assert second is not first
    assert len(pool.launcher.drivers) == 2


def test_a_driver_beyond_those_to_be_kept_is_ended_when_no_run_needs_it(pool):
    """Each holds the memory of a Spark."""
    pool.launch("run_hangs")
    pool.launcher.world = dataclasses.replace(pool.world, clock=pool.clock)
    pool.ask("run_2")
    pool.clock.elapsed += timedelta(seconds=6)
    spare = pool.serve("run_2")

    pool.launcher.tend()
    kept = spare in pool.launcher.drivers
    pool.clock.elapsed += timedelta(minutes=3)
    pool.launcher.tend()

    assert kept
    assert spare not in pool.launcher.drivers


def test_a_start_that_fails_ends_the_attempt_that_waits_for_it(pool):
    """Else a wrong setting would start Spark again and again, in silence."""
    (driver,) = pool.launcher.drivers
    pool.launcher._end(driver)
    (pool.app_file.parent / "broken").touch()
    first = pool.ask("run_1")
    with pytest.raises(DriverNotStarted, match="stderr") as failed:
        pool.launch("run_1")
    pool.launcher.tend()

    assert first is None
    assert failed.value.code == "driver_not_started"
    assert pool.launcher.drivers == []


def test_a_start_that_never_ends_is_given_up(pool):
    """The error of the run that waits for Spark names the log."""
    (driver,) = pool.launcher.drivers
    pool.launcher._end(driver)
    (pool.app_file.parent / "slow").touch()
    pool.ask("run_1")
    pool.launcher.world = dataclasses.replace(pool.world, clock=pool.clock)
    pool.clock.elapsed = World().clock.monotonic() + timedelta(minutes=6)

    pool.launcher.tend()

    with pytest.raises(DriverNotStarted, match="5m"):
        pool.ask("run_1")


def test_a_driver_in_which_a_program_left_something_running_gets_no_other_run(pool):
    """Also when it has committed: what is left would write into the next run's log, or hold its locks."""
    first = pool.launch("run_leaves")
    until(lambda: "last" in pool.launcher._status(first), lambda: None)
    pool.release(first, committed=True)

    second = pool.launch("run_2")

    assert second is not first


def test_a_driver_that_has_committed_gets_the_next_run_at_once(pool):
    """The driver still puts markers beside its files: milliseconds, against a cold start of seconds."""
    first = pool.launch("run_hangs")
    pool.release(first, committed=True)

    second = pool.launch("run_2")

    assert second is first


def test_a_driver_that_was_fenced_gets_no_other_run(pool):
    """The driver may still work on the fenced attempt."""
    first = pool.launch("run_hangs")
    pool.release(first, committed=False)

    second = pool.ask("run_2")

    assert second is None


def test_a_driver_that_does_not_come_to_an_end_is_killed(pool):
    """After its run is over it has ten seconds."""
    driver = pool.launch("run_hangs")
    pool.launcher.world = dataclasses.replace(pool.world, clock=pool.clock)
    pool.release(driver, committed=True)
    pool.launcher.tend()
    kept = driver in pool.launcher.drivers

    pool.clock.elapsed += timedelta(seconds=11)
    pool.launcher.tend()

    assert kept
    assert driver.child.poll() is not None
    assert not driver.folder.exists()


def test_a_driver_of_other_code_gets_no_run_and_is_replaced(pool):
    """The driver has imported the previous code."""
    first = pool.serve()
    pool.code = dataclasses.replace(pool.code, digest="second")

    second = pool.launch("run_2")
    pool.launcher.tend()

    assert second is not first
    assert first not in pool.launcher.drivers
    assert sum(driver.warm for driver in pool.launcher.drivers) == 1


def test_a_driver_is_replaced_after_so_many_runs(pool):
    """Leaks of user code do not add up for ever."""
    drivers = [pool.serve(f"run_{number}") for number in range(4)]

    assert drivers[0] is drivers[1] is drivers[2]
    assert drivers[3] is not drivers[0]


def test_a_warm_driver_that_died_is_replaced(pool):
    """By the kernel, for its memory; the next run finds a warm one again."""
    (driver,) = pool.launcher.drivers
    pool.world.spawner.kill_alone(driver.child.pid)

    until(lambda: driver not in pool.launcher.drivers, pool.launcher.tend)
    pool.launcher.tend()

    assert [other.warm for other in pool.launcher.drivers] == [True]


def test_a_driver_without_spark_serves_one_run_after_the_other(pool):
    """A process and its imports for each run would cost half a second of it."""
    first, second = (pool.serve(run, kind=ProgramKind.PYTHON) for run in ("run_1", "run_2"))

    assert first is second
    assert not first.spark


def test_runs_without_spark_at_the_same_time_have_a_process_each(pool):
    """Such runs wait for nothing, and leave the driver with Spark to runs that need Spark."""
    first, second = (pool.ask(f"run_hangs_{number}", kind=ProgramKind.PYTHON) for number in range(2))

    assert first is not None
    assert second is not None
    assert first is not second


def test_a_worker_has_a_process_of_its_own(pool):
    """A worker never returns its driver."""
    worker = pool.ask("run_hangs", kind=ProgramKind.SPARK_WORKER)

    assert worker is not None
    assert not worker.warm


@pytest.mark.parametrize("trouble", [NoJava("no Java"), OSError(28, "No space left on device")])
def test_a_warm_driver_that_cannot_be_started_stops_no_other_run(pool, monkeypatch, caplog, trouble):
    """Without Java, plain Python programs run. One warning is logged, and a run that needs Spark tries again."""
    (driver,) = pool.launcher.drivers
    pool.launcher._end(driver)

    def refuse(*_, **__):
        raise trouble

    with monkeypatch.context() as broken:
        broken.setattr(pool.launcher, "_find_spark_env", refuse)
        pool.launcher.tend()
        pool.launcher.tend()
        plain = pool.launch(kind=ProgramKind.PYTHON)
        with pytest.raises(type(trouble)):
            pool.ask("run_2")
    without = list(pool.launcher.drivers)
    retry = pool.launch("run_2")

    assert without == [plain]
    assert len(caplog.messages) == 1
    assert retry.warm


def test_a_log_that_cannot_be_cut_stops_no_run(pool, monkeypatch):
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
    pool.release(first, committed=False)

    second = pool.launch("run_2")

    assert second is first


def test_drivers_that_start_together_are_not_replaced_together(pool):
    """The starts of eight drivers at one time took the cores from all runs."""
    pool.launcher.options = dataclasses.replace(pool.options, runs_per_driver=160)
    drivers = [pool.launch(f"run_hangs_{number}") for number in range(3)]

    assert [driver.most_runs for driver in drivers[1:]] == [150, 140]


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
    pool.launcher._end(killed)

    retry = pool.launch("run_hangs")
    pool.launcher.tend()

    assert retry.warm
    assert pool.launcher.drivers == [retry]
