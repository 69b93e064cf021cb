"""Logs of attempts on other nodes: put into a location that all nodes reach, and read from there."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.drivers import cold_drivers
from tests.run.conftest import Works
from tests.run.test_runner import until
from tests.s3_server import S3Server
from tidemill.names import RunId
from tidemill.run.processes.local_launcher import LocalLauncher
from tidemill.run.processes.runner import Runner
from tidemill.run.records.logs import LogElsewhere, LogKeeper, LogReader
from tidemill.run.records.runs import RunState
from tidemill.world import World

APP = """
import os
import time
from pathlib import Path

from tidemill import App

app = App("shop")

@app.python()
def load(run):
    print("load", run.attempt, flush=True)
    if run.attempt == 1:
        os.kill(os.getpid(), 9)

@app.python()
def waits(run):
    print("it waits", flush=True)
    (Path(__file__).parent / "waits").touch()
    time.sleep(600)
"""


@dataclass
class Node:
    """A node that puts its logs into a location."""

    works: Works
    folder: Path
    runner: Runner
    world: World
    location: str

    @property
    def logs(self) -> Path:
        """The folder of all logs of this node."""
        return self.folder / "state" / "logs"

    def start(self, name: str) -> RunId:
        """Start a program."""
        return self.works.start(self.works.program(name, app_file=str(self.folder / "project" / "app.py")))

    def until(self, claim: Callable[[], bool]) -> None:
        """Let the node work until `claim` holds."""
        until(claim, self.runner.step)

    def finish(self, name: str) -> RunId:
        """Start a program, and let the node work until the run has ended."""
        run_id = self.start(name)
        self.until(lambda: self.works.run(run_id).state.ended)
        self.runner.close()
        return run_id

    def keep(self) -> None:
        """Look once for logs to put, as a process that was just started does."""
        LogKeeper(self.works.catalog, self.world, self.logs, self.location).step()

    def waiting(self) -> list[str]:
        """Return the names of the attempts whose log is still to be put."""
        return [path.name for path in (self.logs / "waiting").iterdir()]

    def read(self, run_id: RunId, attempt: int | None = None, *, kept: bool = True) -> list[str]:
        """Return the output of an attempt."""
        location = self.location if kept else ""
        reader = LogReader(self.works.catalog, self.world, run_id, attempt=attempt, whole=False, kept=location)
        return [line.text for line in reader.read_on(last=True)]


@pytest.fixture(params=["folder", "s3"])
def node(request: pytest.FixtureRequest, works: Works, tmp_path: Path) -> Iterator[Node]:
    """A node whose logs go into a folder, or into a bucket."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "app.py").write_text(APP)
    world, location = works.world, str(tmp_path / "kept")
    if request.param == "s3":
        server: S3Server = request.getfixturevalue("s3_server")
        world, location = server.world, f"s3://{server.make_bucket()}/logs"
    options = replace(cold_drivers(works.catalog.url, tmp_path / "state", tmp_path / "cache"), keeps_logs=True)
    runner = Runner(works.world, works.catalog, LocalLauncher(works.world, options))
    yield Node(works, tmp_path, runner, world, location)
    runner.close()


def test_another_node_reads_the_log_of_each_attempt_that_is_over(node):
    """An attempt that was killed has a log too, which says most."""
    run_id = node.finish("load")
    node.keep()
    shutil.rmtree(node.logs / run_id)  # as on another machine

    assert node.read(run_id) == ["load 2"]
    assert node.read(run_id, attempt=1) == ["load 1"]


def test_lines_that_came_after_the_end_of_an_attempt_are_put_too(node):
    """A driver tidies up after the commit, and may complain."""
    run_id = node.finish("load")
    node.keep()
    with (node.logs / run_id / "2" / "stdout").open("a") as log:
        log.write("late\n")
    node.keep()
    node.keep()
    shutil.rmtree(node.logs / run_id)

    assert node.read(run_id) == ["load 2", "late"]
    assert node.waiting() == []


def test_the_log_of_an_attempt_under_way_stays_on_its_machine(node):
    """After a kill of the node the next start puts the log: the note is on the disk before the attempt begins."""
    run_id = node.start("waits")
    node.until((node.folder / "project" / "waits").exists)
    node.keep()
    (node.logs / run_id).rename(node.folder / "hidden")
    with pytest.raises(LogElsewhere, match=f"attempt 1, is on .*, in {node.logs}/{run_id}/1, and not yet in "):
        node.read(run_id)
    (node.folder / "hidden").rename(node.logs / run_id)
    node.runner.close()

    assert node.works.run(run_id).state is RunState.PENDING
    node.keep()
    shutil.rmtree(node.logs / run_id)
    assert node.read(run_id) == ["it waits"]


def test_a_log_on_another_machine_is_an_error_that_names_the_machine(node):
    """The log seemed to be empty: a folder that is missing was taken for a program that wrote nothing."""
    run_id = node.finish("load")
    shutil.rmtree(node.logs / run_id)

    with pytest.raises(LogElsewhere, match=f"attempt 2, is on .*, in {node.logs}/{run_id}/2") as found:
        node.read(run_id, kept=False)
    assert "set `logs`" in str(found.value.hint)


def test_a_bucket_that_is_away_costs_no_log(node, s3_server):
    """The log is put when the bucket is back."""
    bucket = s3_server.make_bucket()
    node.world, node.location = s3_server.world, f"s3://{bucket}-away/logs"
    run_id = node.finish("load")
    node.keep()
    waiting = node.waiting()
    node.location = f"s3://{bucket}/logs"
    node.keep()
    shutil.rmtree(node.logs / run_id)

    assert sorted(waiting) == [f"{run_id}.1", f"{run_id}.2"]
    assert node.read(run_id) == ["load 2"]
