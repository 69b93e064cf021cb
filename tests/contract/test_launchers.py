"""Every implementation of `run.processes.launcher.Launcher` keeps this contract. A new launcher joins the fixture."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.run.test_programs import PROGRAM
from tests.stub_cluster import StubCluster, stub_cluster
from tests.yardstick import patience
from tidemill.catalog.engine import open_catalog
from tidemill.names import RunId
from tidemill.processes import LocalSpawner
from tidemill.run.processes import local_launcher
from tidemill.run.processes.assignments import Assignment, DriverSetup
from tidemill.run.processes.launcher import Ended, Launcher, Running, Uncertain
from tidemill.run.processes.local_launcher import DriverOptions, LocalLauncher, ProfileOptions
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.programs import ProgramKind
from tidemill.testing.clock import VirtualClock
from tidemill.testing.machine import InTurn, Machine, Process
from tidemill.world import World

DRIVER = """
import json
from pathlib import Path
from tidemill.processes import live_with_parent
lines = live_with_parent()
setup = json.loads(next(lines))
if setup["spark"]:
    with (Path(setup["folder"]) / "status").open("a") as file:
        file.write("ready\\n")
for line in lines:
    given = json.loads(line)
    if given["run_id"].startswith("run_dies"):
        raise SystemExit(3)
    if not given["run_id"].startswith("run_hangs"):
        with (Path(setup["folder"]) / "status").open("a") as file:
            file.write(f"done {given['run_id']} {given['epoch']}\\n")
    if not setup["warm"]:
        import time
        time.sleep(600)
"""
FIRST, SECOND, DIES = RunId("run_hangs_1"), RunId("run_hangs_2"), RunId("run_dies")


@dataclass
class Stage:
    """A launcher, and what a test does to its processes from outside."""

    launcher: Launcher
    world: World
    code: AppCode
    started: Callable[[], int]
    """Count the processes that the launcher has started."""
    living: Callable[[], int]
    """Count those that live."""
    stop: Callable[[], None]
    """Stop the newest process, as SIGSTOP does."""
    go_on: Callable[[], None]
    """Wake the stopped process, as SIGCONT does."""
    kind: ProgramKind = ProgramKind.PYTHON

    def start(self, run_id: RunId = FIRST, epoch: int = 1) -> None:
        """Start an attempt; those without Spark never have to wait."""
        program = dataclasses.replace(PROGRAM, kind=self.kind, app_file=self.code.app_file)
        waits = self.launcher.start(run_id, epoch, program, self.code)
        assert waits is None or self.kind.needs_spark
        if waits is not None:
            self.until(lambda: self.launcher.start(run_id, epoch, program, self.code) is None)

    def kill(self, run_id: RunId, epoch: int) -> None:
        """Kill an attempt, and wait for its end."""
        self.until(lambda: self.launcher.kill(run_id, epoch))

    def until(self, claim: Callable[[], bool]) -> None:
        """Let the processes work until `claim` holds."""
        for _ in range(int(patience(1000))):
            if claim():
                return
            self.launcher.tend()
            self.world.clock.sleep(timedelta(milliseconds=20))
        raise AssertionError("waited in vain")


class StubSpawner(LocalSpawner):
    """Starts drivers that only say that they are done."""

    def __init__(self) -> None:
        super().__init__()
        self.children: list[Any] = []

    def start(self, argv, **how):  # noqa: ARG002  # it is another program
        """Start one."""
        self.children.append(super().start([sys.executable, "-c", DRIVER], **how))
        return self.children[-1]

    def count(self) -> int:
        """Count the drivers."""
        return len(self.children)

    def count_living(self) -> int:
        """Count the drivers that live."""
        return sum(child.poll() is None for child in self.children)

    def newest(self) -> int:
        """Return the driver that was started last."""
        return int(self.children[-1].pid)


class StubDriver:
    """Such a driver, as a played process."""

    spark = None

    def __init__(self, process: Process, setup: DriverSetup) -> None:
        self._process = process
        self.start = setup

    @property
    def usable(self) -> bool:
        """A cold driver serves one attempt."""
        return self.start.warm

    def work(self, assignment: Assignment) -> None:
        """Work on an attempt."""
        if assignment.run_id.startswith("run_dies"):
            raise ChildProcessError("it dies")
        if not assignment.run_id.startswith("run_hangs"):
            done = f"done {assignment.run_id} {assignment.epoch}\n"
            self._process.world.disk.append(Path(self.start.folder) / "status", done)
            return
        self._process.sleep(timedelta(days=1))


class PlayedMachine(Machine):
    """A machine whose drivers do no work."""

    def make_driver(self, process: Process, start: DriverSetup, tag: str) -> Any:  # noqa: ARG002  # same signature
        """Make a driver that only says that it is done."""
        return StubDriver(process, start)


Play = Callable[[Callable[[Stage], None]], None]


def _stage_of(
    launcher: Launcher,
    world: World,
    code: AppCode,
    processes: StubSpawner | StubCluster,
    kind: ProgramKind = ProgramKind.PYTHON,
) -> Stage:
    """Return a stage of real processes."""
    return Stage(
        launcher,
        world,
        code,
        processes.count,
        processes.count_living,
        lambda: os.kill(processes.newest(), signal.SIGSTOP),
        lambda: os.kill(processes.newest(), signal.SIGCONT),
        kind,
    )


@pytest.fixture(params=["local-warm", "local-cold", "played-warm", "played-cold", "client-warm", "cluster-warm"])
def play(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """Play a test on each launcher: without Spark, and with drivers of a Spark cluster in both of its modes."""
    monkeypatch.setattr(local_launcher, "_START_BESIDE_AFTER", timedelta(0))
    where, _, plain = request.param.partition("-")
    app = tmp_path / "project" / "app.py"
    app.parent.mkdir()
    app.write_text("")
    code = AppCode(str(app), "")
    options = DriverOptions(
        "sqlite:///nowhere", tmp_path / "state", tmp_path / "cache", plain=1 if plain == "warm" else 0
    )

    def locally(test: Callable[[Stage], None]) -> None:
        spawner = StubSpawner()
        world = dataclasses.replace(World(), spawner=spawner)
        with closing(LocalLauncher(world, options)) as launcher:
            test(_stage_of(launcher, world, code, spawner))

    def with_spark(test: Callable[[Stage], None]) -> None:
        spawner = StubSpawner() if where == "client" else LocalSpawner()
        world = dataclasses.replace(World(), spawner=spawner)
        with stub_cluster(tmp_path / "cluster", DRIVER) as cluster:
            profile = ProfileOptions(cluster.settings, 1, lambda: cluster.environ, on_cluster=where == "cluster")
            launcher = LocalLauncher(world, dataclasses.replace(options, profiles={"": profile}))
            launcher._spark_env = {}  # no JVM is started
            with closing(launcher):
                processes = spawner if isinstance(spawner, StubSpawner) else cluster
                test(_stage_of(launcher, world, code, processes, ProgramKind.SPARK))

    def played(test: Callable[[Stage], None]) -> None:
        clock = VirtualClock()
        catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db", dataclasses.replace(World(), clock=clock))
        machine = PlayedMachine(catalog, clock, InTurn(), random.Random(0), None)

        def body(process: Process) -> None:
            test(
                Stage(
                    LocalLauncher(process.world, options),
                    process.world,
                    code,
                    lambda: len(machine.children),
                    lambda: sum(child.poll() is None for child in machine.children),
                    lambda: machine.hold(machine.children[-1].process, timedelta(days=1)),
                    lambda: machine.hold(machine.children[-1].process, timedelta(0)),
                )
            )

        process = machine.start("runner", body, machine.group("node", "here"))
        with closing(catalog):
            while not process.finished and machine.step():
                pass
            machine.stop()
        if process.error is not None:
            raise process.error
        assert process.finished

    return {"local": locally, "played": played}.get(where, with_spark)


def test_a_started_attempt_is_alive(play):
    """The runner renews its lease."""

    def body(stage: Stage) -> None:
        stage.start()

        assert stage.launcher.poll(FIRST, 1) == Running()

    play(body)


def test_an_attempt_that_is_started_again_has_one_process(play):
    """A runner that has not heard the reply asks once more."""

    def body(stage: Stage) -> None:
        stage.start()
        stage.start()

        assert stage.started() == 1

    play(body)


def test_each_epoch_of_a_run_is_an_attempt_of_its_own(play):
    """The end of a lost attempt must not end the next one."""

    def body(stage: Stage) -> None:
        stage.start(FIRST, 1)
        stage.start(FIRST, 2)
        stage.kill(FIRST, 1)

        assert isinstance(stage.launcher.poll(FIRST, 1), Ended)
        assert stage.launcher.poll(FIRST, 2) == Running()

    play(body)


def test_nothing_of_a_killed_attempt_is_left(play):
    """The runner ends the attempt in the catalog only when nothing of it still writes."""

    def body(stage: Stage) -> None:
        stage.start()
        stage.kill(FIRST, 1)
        left = stage.living()
        stage.kill(FIRST, 1)

        assert left == 0
        assert isinstance(stage.launcher.poll(FIRST, 1), Ended)

    play(body)


def test_a_kill_of_an_attempt_that_was_never_started_does_nothing(play):
    """A runner that died before the start, and its successor, may both ask for it."""

    def body(stage: Stage) -> None:
        stage.start()
        stage.kill(SECOND, 1)
        stage.kill(FIRST, 2)

        assert stage.launcher.poll(FIRST, 1) == Running()

    play(body)


def test_the_end_of_a_process_has_a_cause(play):
    """The cause stands in the run's exit reason."""

    def body(stage: Stage) -> None:
        stage.start(DIES)
        stage.until(lambda: stage.launcher.poll(DIES, 1) != Running())

        life = stage.launcher.poll(DIES, 1)
        assert isinstance(life, Ended)
        assert "exit code" in life.how

    play(body)


def test_a_stopped_process_has_not_ended_and_does_not_work(play):
    """Its lease runs out: another node may have the run. A process that goes on in time keeps the run."""

    def body(stage: Stage) -> None:
        stage.start()
        stage.world.clock.sleep(timedelta(milliseconds=10))
        stage.stop()
        stage.until(lambda: stage.launcher.poll(FIRST, 1) != Running())

        assert isinstance(stage.launcher.poll(FIRST, 1), Uncertain)

        stage.go_on()
        stage.until(lambda: stage.launcher.poll(FIRST, 1) == Running())

    play(body)


def test_an_attempt_that_is_over_is_not_killed_any_more(play):
    """Its process may serve the next attempt, which a late kill would end."""

    def body(stage: Stage) -> None:
        stage.start(FIRST)
        stage.launcher.release(FIRST, 1, committed=True)
        stage.launcher.release(FIRST, 1, committed=True)
        stage.start(SECOND)
        stage.kill(FIRST, 1)

        assert stage.launcher.poll(SECOND, 1) == Running()

    play(body)


def test_no_process_is_left_after_the_end(play):
    """Ctrl-C ends every process, and may come twice."""

    def body(stage: Stage) -> None:
        stage.start(FIRST)
        stage.start(SECOND)
        stage.launcher.close()
        stage.launcher.close()

        assert stage.living() == 0
        assert isinstance(stage.launcher.poll(FIRST, 1), Ended)

    play(body)
