"""Driver, runner and reaper struck down at each of their marks: the work is done once, and nothing is left open."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from tests.drivers import cold_drivers
from tests.run.conftest import Works
from tests.run.test_runner import Watcher, expire, until
from tests.spawners import PlayedDrivers
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.inbox.discovery import discover
from tidemill.lake.inbox.inbox import Inbox, InboxSpec, ensure_inbox
from tidemill.names import DatasetId, Namespace, RunId
from tidemill.run.processes.local_launcher import LocalLauncher
from tidemill.run.processes.runner import Runner
from tidemill.run.records.runs import RunState
from tidemill.shapes.formats import FileFormat, RawFormat
from tidemill.storage.locations import open_files
from tidemill.world import World

APP = """
from pathlib import Path

class Source:
    name = "shop"
    def find_program(self, name):
        return globals()[name]

app = Source()

def load(run):
    with open(Path(__file__).with_name("seen"), "a") as file:
        file.write(f"{run.attempt} {','.join(run.input('raw').files)}\\n")
"""

DRIVER = """
import os, signal
from pathlib import Path
from tidemill.run.processes.driver import main
from tidemill.world import World

struck = Path(os.environ["STRUCK"])

def marked(name):
    with open(os.environ["MARKS"], "a") as file:
        file.write(name + "\\n")
    if name == os.environ["STRIKE_AT"] and not struck.exists():
        struck.write_text(str(os.getpid()))
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))

main(World(marked=marked))
"""


class Mill:
    """An inbox, a program that reads it, and a runner whose drivers are struck."""

    def __init__(self, works: Works, folder: Path) -> None:
        self.works = works
        self.folder = folder
        self.mark, self.signal = "nowhere", signal.SIGKILL
        """The mark that strikes the driver which comes there first, and the signal."""
        self.spawner = PlayedDrivers("-c", DRIVER, environ=self._order)
        self.app_file = folder / "project" / "app.py"
        self.app_file.parent.mkdir()
        self.app_file.write_text(APP)
        location = open_files(str(folder / "raw"), World())
        location.prepare()
        spec = InboxSpec(RawFormat(FileFormat.CSV, "a INT, b INT"), settle=timedelta(0))
        dataset = Dataset(
            DatasetId("ds_raw"), Namespace("default"), "raw", DatasetKind.INBOX, location.url, write_plain(spec)
        )
        self.inbox = Inbox.of(works.catalog.write(lambda db: declare(db, dataset)))
        works.catalog.write(lambda db: ensure_inbox(db, dataset.dataset_id))
        self.program = works.program("load", app_file=str(self.app_file), reads=("default.raw",))
        self.runners: list[Runner] = []
        self.runner = self.new_runner()

    def _order(self, _: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that DRIVER reads."""
        return {
            "STRIKE_AT": self.mark,
            "SIGNAL": str(int(self.signal)),
            "STRUCK": str(self.folder / "struck"),
            "MARKS": str(self.folder / "marks"),
        }

    def new_runner(self, **world: object) -> Runner:
        """A runner on this machine, with drivers that are struck."""
        changed: World = dataclasses.replace(self.works.world, spawner=self.spawner, **world)
        options = cold_drivers(self.works.catalog.url, self.folder / "state", self.folder / "cache")
        self.runners.append(Runner(changed, self.works.catalog, LocalLauncher(changed, options)))
        return self.runners[-1]

    def land(self, name: str) -> None:
        """A file arrives and is found."""
        (self.folder / "raw" / name).write_text("a,b\n1,2\n")
        discover(self.works.catalog, self.inbox)

    def work(self, name: str, mark: str = "nowhere", how: signal.Signals = signal.SIGKILL) -> RunId:
        """Have a run process a new file of that name while its driver is struck at `mark`; step until it has ended."""
        run_id = self.launch(name, mark, how)
        until(lambda: self.works.run(run_id).state.ended, self.runner.step)
        self.runner.step()
        return run_id

    def launch(self, name: str, mark: str, how: signal.Signals) -> RunId:
        (self.folder / "struck").unlink(missing_ok=True)
        self.mark, self.signal = mark, how
        self.land(name)
        return self.works.start(self.program)

    def marks(self) -> list[str]:
        """The marks that drivers have reached, each once, in the order of the first time."""
        return list(dict.fromkeys((self.folder / "marks").read_text().split()))

    def assert_done_once(self, name: str) -> None:
        """The file was processed by exactly one committed run, and nothing is left open."""
        sql = self.works.sql
        assert sql(f"SELECT status FROM inbox_file WHERE name = '{name}'") == [("SUCCESS",)]
        assert sql(f"SELECT count(*) FROM run_input WHERE item = '{name}'") == [(1,)]
        assert sql("SELECT count(*) FROM tx WHERE state = 'in_progress'") == [(0,)]
        assert sql("SELECT count(*) FROM in_progress") == [(0,)]
        assert sql("SELECT count(*) FROM inbox_file WHERE status = 'IN_PROGRESS'") == [(0,)]
        assert sql("SELECT count(*) FROM slot") == [(0,)]


@pytest.fixture
def mill(works: Works, tmp_path: Path) -> Iterator[Mill]:
    """The mill, with all its drivers ended afterwards."""
    mill = Mill(works, tmp_path)
    yield mill
    for runner in mill.runners:
        runner.launcher.close()


@pytest.mark.slow
@pytest.mark.share("sqlite")
def test_a_driver_killed_at_any_mark_does_its_work_once(mill):
    """Before the commit nothing has happened, after it everything has; there is no third."""
    mill.work("clean.csv")
    until(lambda: "driver.committed" in mill.marks(), lambda: None)  # reached after the run has ended
    marks = mill.marks()

    runs = {mark: mill.work(f"{number}.csv", mark) for number, mark in enumerate(marks)}

    ended = {mark: mill.works.run(run_id) for mark, run_id in runs.items()}
    assert {"driver.registered", "driver.claimed", "driver.before_commit", "driver.committed"} <= set(marks)
    assert all(run.state is RunState.COMPLETED for run in ended.values())
    assert ended["driver.before_commit"].epoch == 2
    assert ended["driver.committed"].epoch == 1
    for number in range(len(marks)):
        mill.assert_done_once(f"{number}.csv")


@pytest.mark.parametrize("mark", ["driver.registered", "driver.begun", "driver.claimed", "commit.before_message"])
def test_a_stopped_driver_that_goes_on_after_it_was_fenced_commits_nothing(mill, mark):
    """Runner and driver hang for longer than the lease; a runner on another machine takes over; then they go on."""
    run_id = mill.launch("one.csv", mark, signal.SIGSTOP)
    struck = mill.folder / "struck"
    until(lambda: struck.exists() and struck.read_text(), mill.runner.step)
    zombie = int(struck.read_text())
    mill.works.sql("UPDATE run SET host = 'elsewhere'")
    expire(mill.works)
    fenced = Watcher(mill.works).look(10, times=7)
    other = mill.new_runner()
    until(lambda: mill.works.run(run_id).state.ended, other.step)

    os.kill(zombie, signal.SIGCONT)
    until(lambda: not Path(f"/proc/{zombie}").exists() or stopped_working(zombie), lambda: None)
    mill.runner.step()

    run = mill.works.run(run_id)
    log = (mill.folder / "state" / "logs" / run_id / "1" / "stderr").read_text()
    assert fenced == [run_id]
    assert (run.state, run.epoch) == (RunState.COMPLETED, 2)
    assert "is fenced" in log
    mill.assert_done_once("one.csv")


def stopped_working(pid: int) -> bool:
    """Return whether the process has ended and only waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Struck(BaseException):
    """The process of the runner is gone."""


@pytest.mark.parametrize(
    "mark",
    ["runner.taken", "runner.launched", "runner.driver_ended", "end_attempt.before_commit", "end_attempt.after_commit"],
)
def test_the_work_of_a_runner_that_vanishes_at_any_mark_is_done_once(mill, mark):
    """The next runner ends whatever the earlier one had begun."""
    strikes: list[str] = []

    def marked(name: str) -> None:
        if name == mark and not strikes:
            strikes.append(name)
            raise Struck

    first = mill.new_runner(marked=marked)
    catalog = mill.works.catalog
    catalog.world = dataclasses.replace(catalog.world, marked=marked)  # the marks of what runners call
    run_id = mill.launch("one.csv", "driver.claimed", signal.SIGKILL)
    with pytest.raises(Struck):
        until(lambda: False, first.step)
    first.launcher.close()  # its drivers die with it

    second = mill.new_runner()
    if mill.works.run(run_id).state.live:
        expire(mill.works)
        Watcher(mill.works).look(10, times=7)
    until(lambda: mill.works.run(run_id).state.ended, second.step)

    assert mill.works.run(run_id).state is RunState.COMPLETED
    mill.assert_done_once("one.csv")


@pytest.mark.parametrize("mark", ["reaper.before_fence", "reaper.after_fence"])
def test_a_reaper_that_vanishes_leaves_the_fence_to_the_next(mill, mark):
    """The run continues, whether the reaper has fenced it or not."""

    def marked(name: str) -> None:
        if name == mark:
            raise Struck

    run_id = mill.launch("one.csv", "driver.claimed", signal.SIGSTOP)
    until((mill.folder / "struck").exists, mill.runner.step)
    expire(mill.works)
    struck = Watcher(mill.works, marked=marked)
    with pytest.raises(Struck):
        struck.look(10, times=7)

    Watcher(mill.works).look(10, times=7)
    other = mill.new_runner()
    until(lambda: mill.works.run(run_id).state.ended, other.step)

    assert mill.works.run(run_id).state is RunState.COMPLETED
    mill.assert_done_once("one.csv")


def test_a_failed_run_returns_its_files(mill):
    """FAILED: they are in ERROR and come again by themselves, at the back-off; nothing is lost with the run."""
    mill.app_file.write_text(APP + "\ndef load(run):\n    raise ValueError('always')\n")

    run_id = mill.work("one.csv")

    files = mill.works.sql("SELECT status, run_id, not_before > 0, failures FROM inbox_file")
    assert mill.works.run(run_id).state is RunState.FAILED
    assert [(status, bool(waits), failures) for status, _, waits, failures in files] == [("ERROR", True, 1)]


def test_a_run_without_input_does_not_call_its_program(mill):
    """COMPLETED with `no_input`, and no message that would trigger others."""
    mill.work("one.csv")

    run_id = mill.works.start(mill.program)
    until(lambda: mill.works.run(run_id).state.ended, mill.runner.step)

    seen = (mill.app_file.parent / "seen").read_text().splitlines()
    assert mill.works.run(run_id).exit_reason == "no_input"
    assert seen == ["1 one.csv"]
    assert mill.works.sql("SELECT count(*) FROM message WHERE topic = 'program'") == [(1,)]


def test_work_that_is_left_is_announced_at_the_end_of_a_run(mill):
    """Files that came during the run, or were returned, must not wait for the next arrival."""
    spec = write_plain(dataclasses.replace(mill.inbox.spec, max_files=1))
    dataset = dataclasses.replace(mill.inbox.dataset, spec=spec)
    mill.works.catalog.write(lambda db: declare(db, dataset))
    mill.land("zero.csv")

    mill.work("one.csv")

    assert mill.works.sql("SELECT event_key FROM message WHERE event_type = 'backlog'") == [("backlog:default.raw",)]


@pytest.mark.parametrize(
    ("run_on_empty", "logical_time", "called"), [(None, 1000, True), (None, None, False), (False, 1000, False)]
)
def test_a_program_that_a_time_trigger_started_is_called_without_input_too(mill, run_on_empty, logical_time, called):
    """A report of an hour in which nothing came is due as well; unless the program says otherwise."""
    program = mill.works.program("load", app_file=str(mill.app_file), reads=("default.raw",), run_on_empty=run_on_empty)

    run_id = mill.works.start(program, triggered_by={"logical_time": logical_time})
    until(lambda: mill.works.run(run_id).state.ended, mill.runner.step)

    assert mill.works.run(run_id).state is RunState.COMPLETED
    assert (mill.app_file.parent / "seen").exists() == called
