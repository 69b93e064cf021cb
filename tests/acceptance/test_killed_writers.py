"""Spark drivers killed with -9 at different moments of a write: nothing half visible, nothing that goes on, no orphan.

Five kills here, as many as `TIDEMILL_TEST_KILLS` says elsewhere (`make kill-spark`: 20). Two warm drivers stand ready,
so that each kill costs the start of one Spark, which goes on beside the retry on the other.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.janitor import CLEAN_SWEEPS, sweep
from tidemill.lake.manifest import tx_directory
from tidemill.mill import Mill, open_project
from tidemill.names import RunId, WritePointer
from tidemill.processes import LocalChild, LocalSpawner
from tidemill.run.launchers import DriverOptions, Launcher
from tidemill.run.runner import Runner
from tidemill.run.runs import RunRecord, RunState, find_run
from tidemill.world import SystemClock, World

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("TIDEMILL_TEST_KILLS", "5"))
ROWS = 1000
COMMITTED = "driver.committed"
MOMENTS = (
    "first task",  # a task writes, and would go on for seconds
    "files closed",  # a task has ended, and its files are whole
    "output.written",  # between two write calls
    "driver.before_commit",
    COMMITTED,  # before the marker
    "output.side_cars",
    "commit.before_message",
    "commit.after_message",
)
WRITING = MOMENTS[:2]
"""Moments in a Spark job, whose files a JVM that sees the end coming may still remove."""
PUBLISHED = (COMMITTED, "commit.after_message")
"""Moments after which the rows are there."""

APP = """
import json, os, time
from pathlib import Path

from pyspark import TaskContext
from pyspark.sql import functions as F
from tidemill import App

HERE = Path(__file__).parent
app = App("shop")
clicks = app.fileset("clicks", keys={"part": "int"})


@app.spark(writes=[clicks])
def publish(run, spark):
    order = json.loads((HERE / "order.json").read_text())
    if order["forks"] and os.fork() == 0:
        os.setsid()
        time.sleep(600)

    def work(batches):
        for batch in batches:
            slow_from = {"first task": 0, "files closed": 1}.get(order["moment"])
            if slow_from is not None and TaskContext.get().partitionId() >= slow_from:
                (HERE / "writing").touch()
                time.sleep(0.3)
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    ids = spark.range(order["first"], order["first"] + order["rows"], 1, 4)
    rows = ids.selectExpr("id", "'row ' || id AS text", "CAST(id % 4 AS INT) AS part")
    for half in ("part < 2", "part >= 2"):
        run.output(clicks).append(rows.where(half).mapInPandas(work, rows.schema))
"""

DRIVER = """
import json, os, time
from pathlib import Path
from tidemill.run.driver import main
from tidemill.world import World

project = Path(os.environ["PROJECT"])

def marked(name):
    if json.loads((project / "order.json").read_text())["moment"] == name:
        (project / "reached").touch()
        time.sleep(600)

main(World(marked=marked))
"""
SETTINGS = """
[spark]
master = "local[2]"
conf = {"spark.driver.memory" = "512m", "spark.sql.shuffle.partitions" = "2"}
"""


class PausingSpawner(LocalSpawner):
    """Starts drivers that wait for their end at the mark that is ordered."""

    def start(self, argv, **how) -> LocalChild:  # noqa: ARG002  # it is another program
        """Start one."""
        return super().start([sys.executable, "-c", DRIVER], **how)


class LaterClock(SystemClock):
    """A clock that the test sets forward."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


class Project:
    """A project with one file set, and a runner with two warm drivers that the test steps."""

    def __init__(self, folder: Path, mill: Mill) -> None:
        self.folder = folder
        self.mill = mill
        config = mill.config
        options = DriverOptions(
            mill.catalog.url,
            config.state,
            config.cache,
            spark_settings={"spark.master": config.spark_master, **config.spark_conf},
            warm=2,
        )
        self.launcher = Launcher(mill.world, options)
        self.runner = Runner(mill.world, mill.catalog, self.launcher, slots=1)
        self.location = Path(mill.show_dataset("default.clicks").location.removeprefix("file://"))

    def order(self, number: int, moment: str, *, forks: bool) -> None:
        """What the next attempt does, and where it waits for its end."""
        order = {"moment": moment, "forks": forks, "first": number * ROWS, "rows": ROWS}
        (self.folder / "order.json").write_text(json.dumps(order))

    def reached(self, moment: str, run: RunRecord) -> bool:
        """Whether the attempt is at that moment."""
        match moment:
            case "first task":
                return (self.folder / "writing").exists() and any("_temporary" in name for name in self.files(run))
            case "files closed":
                return any("/_temporary/0/task_" in name and name.endswith(".parquet") for name in self.files(run))
            case _:
                return (self.folder / "reached").exists()

    def until(self, claim: Callable[[], bool], *, taking: bool = True, seconds: float = 280) -> None:
        """Step the runner until `claim` holds."""
        deadline = time.monotonic() + seconds
        while not claim():
            assert time.monotonic() < deadline, "waited in vain"
            self.runner.step(taking=taking)
            time.sleep(0.02)

    def run(self, run_id: RunId) -> RunRecord:
        """How the run stands."""
        return self.mill.catalog.read(lambda db: find_run(db, run_id))

    def directory(self, run: RunRecord) -> Path:
        """Where the run's last attempt writes."""
        pointer = WritePointer(-1 if run.write_pointer is None else run.write_pointer)
        return self.location / tx_directory(Snapshot(pointer, self.mill.catalog.incarnation))

    def files(self, run: RunRecord) -> dict[str, tuple[int, int]]:
        """What stands in its directory, Spark's own files and hidden ones too: size and time of the last write."""
        return contents(self.directory(run))

    def published(self) -> list[tuple[int, str, object]]:
        """All rows that readers see: id, text, part."""
        return sorted(
            (row["id"], row["text"], file.key["part"])
            for file in self.mill.list_files("default.clicks")
            for row in parquet.ParquetFile(file.path).read().to_pylist()
        )


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """All files below `folder`, with size and time."""
    found = {}
    for path in folder.rglob("*"):
        try:
            stat = path.stat()
        except FileNotFoundError:  # Spark moves what is whole
            continue
        if path.is_file():
            found[str(path)] = (stat.st_size, stat.st_mtime_ns)
    return found


def rows_of(numbers: range) -> list[tuple[int, str, int]]:
    """What the runs of these numbers publish."""
    ids = range(numbers.start * ROWS, numbers.stop * ROWS)
    return [(number, f"row {number}", number % 4) for number in ids]


def count_processes(tag: str) -> int:
    """How many processes carry `tag` in their environment."""
    count = 0
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            count += tag.encode() in path.read_bytes()
        except OSError:
            continue
    return count


@pytest.fixture
def project(tmp_path: Path, sqlite_catalog_url: str) -> Iterator[Project]:
    """A deployed project whose drivers are getting warm."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n{SETTINGS}')
    environ = {**os.environ, "PROJECT": str(tmp_path)}
    world = World(spawner=PausingSpawner(), environ=environ)
    with open_project(tmp_path, create=True, world=world) as mill:
        mill.deploy()
        project = Project(tmp_path, mill)
        project.launcher.warm_up(str(mill.config.app))
        yield project
        project.runner.close()


def kill(project: Project, number: int, moment: str, *, forks: bool) -> dict[str, Any]:
    """Kill a run's driver at `moment`, let a runner find out and repeat the run; what could be seen on the way."""
    for name in ("reached", "writing"):
        (project.folder / name).unlink(missing_ok=True)
    project.order(number, moment, forks=forks)
    run_id = project.mill.start_run("shop.publish")
    project.until(lambda: project.reached(moment, project.run(run_id)))
    killed = project.run(run_id)
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    project.until(lambda: project.run(run_id).state in {RunState.PENDING, RunState.COMPLETED}, taking=False)
    # Of a run that has committed, only its runner's next look finds the dead driver.
    project.until(lambda: all(driver.child.pid != killed.pid for driver in project.launcher.drivers), taking=False)

    seen: dict[str, Any] = {
        "processes": count_processes(str(killed.facts["driver"])),
        "left": project.files(killed),
        "dead": project.directory(killed),
        "rows": project.published(),
    }
    project.order(number, "none", forks=False)
    project.until(lambda: project.run(run_id).state.ended)
    run = project.run(run_id)
    seen |= {"later": project.files(killed), "run": (run.state, run.failures, run.epoch)}
    return seen


def test_a_driver_killed_at_any_moment_of_a_write_leaves_nothing_behind(project):
    """A JVM outlived its killed Python, whose child held the pipe, and wrote eight more files (tried)."""
    dead: dict[Path, dict[str, tuple[int, int]]] = {}
    for number, moment in zip(range(KILLS), itertools.cycle(MOMENTS), strict=False):
        forks = (number + number // len(MOMENTS)) % 2 == 0  # each moment once so, once so
        seen = kill(project, number, moment, forks=forks)

        committed = moment in PUBLISHED
        assert seen["processes"] == 0, moment
        assert seen["rows"] == rows_of(range(number + committed)), moment
        assert seen["left"] or moment in WRITING, moment
        assert seen["later"] == seen["left"], moment
        assert seen["run"] == (RunState.COMPLETED, 0, 1 if committed else 2), moment
        assert project.published() == rows_of(range(number + 1)), moment
        if not committed:
            dead[seen["dead"]] = seen["left"]

    assert {path: contents(path) for path in dead} == dead  # nobody has written since
    assert_only_what_is_published_stays(project, dead)


def assert_only_what_is_published_stays(project: Project, dead: dict[Path, dict[str, tuple[int, int]]]) -> None:
    """Let a janitor sweep until it looks for nothing any more."""
    clock = LaterClock()
    catalog = open_catalog(project.mill.catalog.url, World(clock=clock))
    first = sweep(catalog)
    later = 0
    for _ in range(CLEAN_SWEEPS + 1):
        clock.ahead += timedelta(days=3)  # longer than the longest wait between two sweeps
        later += sweep(catalog).deleted
    catalog.close()

    named = {file.path for file in project.mill.list_files("default.clicks")}
    side_cars = {
        str(project.location / tx / name)
        for tx in {Path(name).relative_to(project.location).parts[0] for name in named}
        for name in ("_manifest.json", "_committed")
    }
    assert (first.deleted, later) == (len(dead), 0)
    checksums = {f"{path.parent}/.{path.name}.crc" for path in map(Path, named)}  # Hadoop's
    assert set(contents(project.location)) - checksums == named | side_cars
    assert project.published() == rows_of(range(KILLS))
