"""Runners and drivers as processes that are stopped, killed and continued: a zombie commits nothing, work is done once.

Each node is what `tidemill up --no-deploy` runs, on a machine of the name that the test gives it: what a runner may end
by itself on its own machine, it has to fence on another.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import apsw
import pytest

import tidemill as tm
from tests.manual_clock import backdoor_of
from tests.processes import find_processes
from tests.yardstick import patience
from tidemill import Mill
from tidemill.mill.run_views import RunView
from tidemill.testing.clock import Backdoor

pytestmark = [pytest.mark.slow, pytest.mark.share("sqlite", "sqlite-False", "sqlite-True", "postgres-True")]

MARK = "TIDEMILL_TEST_NODE"
APP = """
import os, time
from pathlib import Path

from tidemill import App, Concurrency, NewFiles

HERE = Path(__file__).parent
app = App("shop")
raw = app.inbox("raw", "landing", format="text", settle="0s", list_every="200ms")


@app.python(reads=[raw])
def load(run):
    if (HERE / "middle").exists():
        return
    if (HERE / "forks").exists() and os.fork() == 0:
        os.setsid()
        time.sleep(600)
    (HERE / "middle").write_text(f"{os.getpid()}.")
    while not (HERE / "go").exists():
        time.sleep(0.02)


app.schedule("load", load, trigger=NewFiles(raw), constraints=[Concurrency(1)])
"""
SETTINGS = """
catalog = "{catalog}"
[runner]
slots = 1
lease = "5s"
"""
NODE = """
import sys
from pathlib import Path
from tidemill.mill.mill import open_project
from tidemill.processes import LocalChild, LocalSpawner
from tidemill.roles.up import run_node
from tidemill.world import World

project, host, powerless = sys.argv[1:]

class OutOfReach(LocalChild):
    def kill(self):
        pass

class Spawner(LocalSpawner):
    def host(self):
        return host

    def start(self, argv, **how):
        child = super().start(argv, **how)
        return OutOfReach(child.process, child.stdin, child.tag) if powerless == "True" else child

with open_project(Path(project), world=World(spawner=Spawner())) as mill:
    run_node(mill, echo=lambda line: print(line, flush=True), deploy=False)
"""


class Node:
    """A process with all roles."""

    def __init__(self, project: Path, host: str, *, powerless: bool) -> None:
        self.mark = uuid.uuid4().hex
        self.output = project / f"{self.mark}.out"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-c", NODE, str(project), host, str(powerless)],
                env={**os.environ, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def processes(self) -> set[int]:
        """The node and all that it has started, as far as it lives."""
        return set(find_processes(re.escape(self.mark)))

    def end(self) -> None:
        """Kill it with all that it has started."""
        self.process.kill()
        self.process.wait()
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Site:
    """A project with an inbox, and the nodes that work on it."""

    def __init__(self, folder: Path, mill: Mill, sql: Backdoor) -> None:
        self.folder = folder
        self.mill = mill
        self.sql = sql
        self.nodes: list[Node] = []

    def start(self, host: str = "here", *, powerless: bool = False) -> Node:
        """Start a node, and wait until it works; a powerless one cannot end its drivers."""
        node = Node(self.folder, host, powerless=powerless)
        self.nodes.append(node)
        until(lambda: "ready" in node.output.read_text())
        return node

    def land(self, name: str) -> None:
        """Let a file arrive in one step."""
        (self.folder / name).write_text("x\n")
        (self.folder / name).rename(self.folder / "landing" / name)

    def wait_for_middle(self) -> int:
        """Wait until the program is in its middle; the process id of its driver."""
        path = self.folder / "middle"
        until(lambda: path.exists() and path.read_text().endswith("."))
        return int(path.read_text().rstrip("."))

    def go_on(self, *pids: int) -> None:
        """Continue processes, and the program with them."""
        (self.folder / "go").touch()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)

    def stop(self, *pids: int) -> None:
        """Stop processes, but none inside a transaction, which on SQLite all others would have to await."""

        def stopped() -> bool:
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
            until(lambda: all(state(pid) == "T" for pid in pids))
            if self.mill.project.catalog.dialect != "sqlite":
                return True
            try:
                self.sql("BEGIN IMMEDIATE; ROLLBACK")
            except apsw.BusyError:
                for pid in pids:
                    os.kill(pid, signal.SIGCONT)
                return False
            return True

        until(stopped)

    def run(self) -> RunView:
        """The newest run."""
        return self.mill.runs.list()[0]

    def wait_for_success(self, name: str) -> None:
        """Wait until the file has been processed."""
        until(lambda: self.sql(f"SELECT status FROM inbox_file WHERE name = '{name}'") == [("SUCCESS",)])

    def work(self) -> dict[str, list[tuple[Any, ...]]]:
        """Return the work that is done, and the work that is under way."""
        return {
            "files": self.sql("SELECT name, status FROM inbox_file ORDER BY name"),
            "taken": self.sql("SELECT item, count(*) FROM run_input GROUP BY item ORDER BY item"),
            "transactions": self.sql("SELECT state FROM tx ORDER BY write_pointer"),
            "announced": self.sql("SELECT event_key FROM message WHERE topic = 'program' ORDER BY seq"),
            "left": self.sql("SELECT limit_key FROM slot") + self.sql("SELECT write_pointer FROM in_progress"),
        }

    def log(self, run: RunView, attempt: int) -> str:
        """Return what an attempt printed."""
        return (self.mill.project.config.state / "logs" / run.run_id / str(attempt) / "stderr").read_text()


def done(*states: str, transactions: list[str]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the work when one.csv was processed once, by runs that ended in `states`."""
    return {
        "files": [("one.csv", "SUCCESS")],
        "taken": [("one.csv", 1)],
        "transactions": [(state,) for state in transactions],
        "announced": [(f"program:default.shop.load:{state}",) for state in states],
        "left": [],
    }


def until(claim: Callable[[], bool], seconds: float = 90) -> None:
    """Wait until `claim` holds."""
    deadline = time.monotonic() + patience(seconds)
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def state(pid: int) -> str:
    """The kernel's letter for what the process does; Z when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


@pytest.fixture
def site(tmp_path: Path, catalog_url: str) -> Iterator[Site]:
    """A deployed project, on each database."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "tidemill.toml").write_text(SETTINGS.format(catalog=catalog_url))
    with ExitStack() as stack:
        mill = stack.enter_context(tm.open(tmp_path))
        mill.deploy()
        site = Site(tmp_path, mill, stack.enter_context(backdoor_of(catalog_url)))
        yield site
        for node in site.nodes:
            node.end()


def test_a_runner_and_its_driver_that_were_stopped_for_longer_than_the_lease_commit_nothing(site):
    """A machine that was put to sleep wakes up in the middle of its work, which another one has done meanwhile."""
    sleeper = site.start("here")
    site.land("one.csv")
    driver = site.wait_for_middle()
    other = site.start("elsewhere")

    site.stop(sleeper.process.pid, driver)
    site.wait_for_success("one.csv")
    site.go_on(sleeper.process.pid, driver)
    run = site.run()
    until(lambda: "is fenced" in site.log(run, 1))  # the driver is refused, and may serve other runs
    work = site.work()
    other.process.terminate()
    other.process.wait()
    site.land("two.csv")
    site.wait_for_success("two.csv")  # by the one that was asleep

    assert (run.state, run.epoch, run.failures) == ("COMPLETED", 2, 0)
    assert "is fenced" in site.log(run, 1)
    assert work == done("COMPLETED", transactions=["invalid", "committed"])


@pytest.mark.parametrize("powerless", [False, True])
def test_a_stopped_driver_whose_run_is_killed_commits_nothing(site, powerless):
    """Its runner ends it; and where that is beyond a runner's power, the catalog refuses what comes from it."""
    site.start(powerless=powerless)
    site.land("one.csv")
    driver = site.wait_for_middle()
    run = site.run()

    site.stop(driver)
    site.mill.runs.kill(run.run_id)
    site.wait_for_success("one.csv")  # by a run that the file's release has launched
    outlived = state(driver) != "Z"
    if outlived:
        site.go_on(driver)
        until(lambda: state(driver) == "Z")

    states = {view.run_id: view.state for view in site.mill.runs.list()}
    assert outlived == powerless
    # The driver's watchdog may see first that the runner has ended it, and end it before it can report.
    assert site.log(run, 1) == "" or (powerless and "is fenced" in site.log(run, 1))
    assert states.pop(run.run_id) == "KILLED"
    assert list(states.values()) == ["COMPLETED"]
    assert site.work() == done("KILLED", "COMPLETED", transactions=["aborted", "committed"])


def test_a_driver_that_is_stopped_alone_for_longer_than_the_lease_is_given_up(site):
    """A lease is not renewed for a process that stands still. Else one `kill -STOP` would hold its files for ever."""
    site.start()
    site.land("one.csv")
    driver = site.wait_for_middle()

    site.stop(driver)
    site.wait_for_success("one.csv")
    until(lambda: state(driver) == "Z")

    assert (site.run().state, site.run().epoch) == ("COMPLETED", 2)
    assert site.work() == done("COMPLETED", transactions=["invalid", "committed"])


def test_the_driver_of_a_killed_runner_dies_and_another_runner_does_the_work(site):
    """Also when user code has left a child behind that no signal of the kernel reaches."""
    (site.folder / "forks").touch()
    killed = site.start()
    site.land("one.csv")
    driver = site.wait_for_middle()
    site.start()

    killed.process.kill()
    killed.process.wait()
    until(lambda: state(driver) == "Z", seconds=2)
    site.wait_for_success("one.csv")

    assert killed.processes() == set()
    assert (site.run().state, site.run().epoch) == ("COMPLETED", 2)
    assert site.work() == done("COMPLETED", transactions=["invalid", "committed"])


def test_an_interrupt_ends_a_node_with_all_its_children_and_returns_its_run(site):
    """Ctrl-C, perhaps pressed twice: at once, nothing left, and the next node goes on without waiting for a lease."""
    node = site.start()
    site.land("one.csv")
    site.wait_for_middle()

    node.process.send_signal(signal.SIGINT)
    node.process.send_signal(signal.SIGINT)
    exit_code = node.process.wait(10)
    left = node.processes()
    run = site.run()
    site.start()
    site.wait_for_success("one.csv")

    assert (exit_code, left) == (0, set())
    assert (run.state, run.failures, run.losses) == ("PENDING", 0, 0)
    assert site.work() == done("COMPLETED", transactions=["aborted", "committed"])
