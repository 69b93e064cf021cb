"""Spark drivers killed or stopped at random while they publish: readers see whole runs, each once, and nothing is left.

`python -m tests.chaos.spark --drivers 100 [--seed S]` (`make chaos-spark`): half of them on SQLite, half on PostgreSQL,
if `TIDEMILL_TEST_POSTGRES` names one. Its short form is tests/chaos/test_spark.py.

Two nodes work on one catalog, each a runner with one warm driver. This process steps the nodes; the drivers are real.
Each run is struck once, in one of four ways. Its driver is killed. Or the driver is stopped alone, and its own node
fences the run after the lease. Or the driver is stopped together with its node: the other node repeats the run, and the
driver continues later as a zombie. Or the driver is stopped for a moment only, which must do no harm. A killed driver
starts again beside the retry on the other node.

With `--cluster` Spark works on a standalone cluster of two workers, and four things are killed in turn: the driver, an
executor, a worker, the master. The last two are started again, as a site's supervisor does. Only the first costs an
attempt. With `--cluster cluster` drivers work on the workers. A worker may then take its driver along, and a fifth blow
stops the driver, which only its worker sees.

A start of Spark is most of the cost. With the options of `tests.spark_classes`, which `make` gives, it takes 5 s of
processor instead of 19 (tried).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import apsw
import psycopg
from pyarrow import parquet

from tests.manual_clock import backdoor_of
from tests.postgres_server import ADDRESS
from tests.processes import command_of, find_processes
from tests.spark_classes import OPTIONS, SHORT_LIVED
from tests.spawners import PlayedDrivers
from tests.yardstick import patience
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Snapshot
from tidemill.demo.cluster import LocalCluster, local_cluster
from tidemill.lake.janitor import CLEAN_SWEEPS, sweep
from tidemill.mill.mill import Mill, open_project
from tidemill.names import RunId, WritePointer
from tidemill.run.processes.assignments import DONE
from tidemill.run.processes.cluster import cluster_environ
from tidemill.run.processes.local_launcher import Driver, DriverOptions, LocalLauncher, ProfileOptions
from tidemill.run.processes.runner import Runner
from tidemill.run.processes.session import settings_of
from tidemill.run.records.bundles import find_code
from tidemill.run.records.programs import list_programs
from tidemill.run.records.runs import RunRecord, RunState, find_run
from tidemill.shapes.manifest import tx_directory
from tidemill.testing.clock import Backdoor
from tidemill.world import SystemClock, World

ROWS = 1000
"""Rows of one run, in four partitions, written by two write calls."""
LEASE = timedelta(seconds=5)
ANY_TIME = "at random"
FIRST_TASK = "first task"
FILES_CLOSED = "files closed"
MOMENTS = (
    FIRST_TASK,  # a task writes, and would go on for seconds
    FILES_CLOSED,  # a task has ended, and its files are whole
    "output.written",  # between two write calls
    "driver.before_commit",
    "driver.committed",  # before the marker
    "output.side_cars",
    "commit.before_message",
    "commit.after_message",
)
PUBLISHED = ("driver.committed", "commit.after_message")
"""Moments after which the rows are there."""
CORES = 4
"""Cores of a worker, for two drivers and their executors."""
EXECUTOR = "CoarseGrainedExecutorBackend"
_LOOK_EVERY = 0.25
_TRIES = 3

APP = """
import json, os, time
from pathlib import Path

from pyspark import TaskContext
from tidemill import App

HERE = Path("PROJECT")
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
            if order["moment"] == "at random":
                time.sleep(0.02)
            yield batch

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "10")
    ids = spark.range(order["first"], order["first"] + order["rows"], 1, 4)
    rows = ids.selectExpr("id", "'row ' || id AS text", "CAST(id % 4 AS INT) AS part")
    for half in ("part < 2", "part >= 2"):
        run.output(clicks).append(rows.where(half).mapInPandas(work, rows.schema))
"""

# At the mark that is ordered it waits until something else is ordered, as a zombie too.
DRIVER = """
import json, os, time
from pathlib import Path
from tidemill.run.processes.driver import main
from tidemill.world import World

project = Path(os.environ["PROJECT"])

def ordered():
    return json.loads((project / "order.json").read_text())["moment"]

def marked(name):
    if ordered() == name:
        (project / "reached").touch()
        while ordered() == name:
            time.sleep(0.02)

main(World(marked=marked))
"""

# PostgreSQL asks no World for the time.
LATER_NOW = (
    "FUNCTION tidemill_now() RETURNS BIGINT LANGUAGE sql VOLATILE "
    "AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + {ahead}'"
)


class Blow(StrEnum):
    """Kind of a blow to a driver."""

    KILL = "killed"
    STOP = "stopped alone"
    SLEEP = "stopped with its node"
    NAP = "stopped for a moment"
    EXECUTOR = "executor killed"
    WORKER = "worker killed"
    MASTER = "master killed"


ON_CLUSTER = {
    "client": (Blow.KILL, Blow.EXECUTOR, Blow.WORKER, Blow.MASTER),
    "cluster": (Blow.KILL, Blow.EXECUTOR, Blow.WORKER, Blow.MASTER, Blow.STOP),
}
"""The blows to a cluster, in turn, by its deploy mode."""
WHILE_TASKS_RUN = (FIRST_TASK, FILES_CLOSED, ANY_TIME)


@dataclass(frozen=True, slots=True)
class Strike:
    """Strike at one driver, `delay` after its start if at random.

    If `whole`, its JVM and workers are stopped with it.
    """

    blow: Blow
    moment: str
    forks: bool = False
    whole: bool = True
    delay: timedelta = timedelta(0)

    def __str__(self) -> str:
        after = f" ({self.delay.total_seconds():.1f} s)" if self.moment == ANY_TIME else ""
        part = "" if self.blow is Blow.KILL or self.whole else ", its JVM goes on"
        return f"{self.blow} {self.moment}{after}{part}{', has forked' if self.forks else ''}"


def draw(seed: str, most: int, deploy_mode: str = "") -> list[Strike]:
    """Draw the strikes at that many drivers from a seed; with a deploy mode, those of a cluster."""
    chance = random.Random(seed)
    if deploy_mode:
        blows = itertools.islice(itertools.cycle(ON_CLUSTER[deploy_mode]), most)
        delays = (timedelta(seconds=chance.uniform(0, 2.5)) for _ in itertools.count())
        # No driver on a worker waits at a mark.
        at_marks = MOMENTS if deploy_mode == "client" else WHILE_TASKS_RUN
        return [
            Strike(blow, chance.choice(at_marks if blow is Blow.KILL else WHILE_TASKS_RUN), delay=next(delays))
            for blow in blows
        ]
    return [_draw_one(chance) for _ in range(most)]


def _draw_one(chance: random.Random) -> Strike:
    blow = chance.choices(list(Blow), [72, 10, 12, 6])[0]
    # Most of the untested moments lie between the named ones.
    moment = chance.choice((*MOMENTS, ANY_TIME, ANY_TIME, ANY_TIME, ANY_TIME))
    forks = blow is Blow.KILL and chance.random() < 0.5
    delay = timedelta(seconds=chance.uniform(0, 2.5))
    return Strike(blow, moment, forks, chance.random() < 0.6, delay)


class LaterClock(SystemClock):
    """A clock that can be set forward."""

    ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


@dataclass(slots=True)
class Found:
    """Findings by kind, and counts."""

    wrong: list[tuple[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def check(self, holds: bool, kind: str, text: object) -> None:  # noqa: FBT001  # a claim
        """Remember what does not hold."""
        if not holds:
            self.wrong.append((kind, str(text)))
            print(f"WRONG, {kind}: {text}", flush=True)


class Site:
    """A project with one file set, and two nodes that are stepped here."""

    def __init__(self, folder: Path, mill: Mill, sql: Backdoor, cluster: LocalCluster | None = None) -> None:
        self.folder = folder
        self.cluster = cluster
        self.mill = mill
        self.sql = sql
        self.found = Found()
        self.location = Path(mill.datasets.show("default.clicks").location.removeprefix("file://"))
        program = next(one for one in mill.project.catalog.read(list_programs) if one.kind.needs_spark)
        self._code = find_code(mill.project.catalog, mill.project.config.state, program, program.bundle)
        self.nodes = [self._node(name) for name in ("here", "elsewhere")]
        self.asleep: list[Runner] = []
        self.runs = 0
        self._ids: dict[str, tuple[tuple[int, int], list[int]]] = {}
        self._looked_at = 0.0

    def _node(self, name: str) -> Runner:
        config = self.mill.project.config
        settings = {
            **settings_of(config),
            "spark.driver.memory": "512m",
            "spark.sql.shuffle.partitions": "2",
            # In the deploy mode `cluster` the JVM of a driver does not have the environment of its runner.
            "spark.driver.extraJavaOptions": os.environ.get(OPTIONS, SHORT_LIVED),
            # One driver must leave cores of a cluster to the other one.
            "spark.cores.max": "2",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
        }
        driver = () if config.spark.on_cluster else ("-c", DRIVER)
        world = World(spawner=PlayedDrivers(*driver, host=name), environ={**os.environ, "PROJECT": str(self.folder)})
        find_environ = partial(cluster_environ, world, config.spark)
        profile = ProfileOptions(settings, 1, find_environ, config.spark.on_cluster)
        options = DriverOptions(self.mill.project.catalog.url, config.state, config.cache, {"": profile})
        launcher = LocalLauncher(world, options)
        launcher.keep(self._code, "")
        return Runner(world, self.mill.project.catalog, launcher, slots=1, lease=LEASE)

    def close(self) -> None:
        """End all drivers; nothing of them must be left."""
        drivers = [driver for node in self.nodes for driver in node.launcher.drivers]
        tags = [driver.child.tag for driver in drivers]
        tags += [f"TIDEMILL_SPARK_DRIVER={submitted}" for submitted in filter(None, map(submitted_of, drivers))]
        for node in self.nodes:
            node.close()
        if self.cluster is not None:
            # Executors see that their driver is gone, and end by themselves.
            wait(lambda: not any(map(find_processes, tags)), seconds=120)
        left = sum(len(find_processes(tag)) for tag in tags)
        self.found.check(left == 0, "orphans", f"{left} processes outlive their node")

    def order(self, number: int, moment: str, *, forks: bool = False) -> None:
        """Order the next attempt's blow, and the mark at which the attempt waits."""
        order = {"moment": moment, "forks": forks, "first": number * ROWS, "rows": ROWS}
        part = self.folder / "order.part"
        part.write_text(json.dumps(order))
        part.rename(self.folder / "order.json")

    def reached(self, moment: str, run: RunRecord) -> bool:
        """Return whether the attempt is at that moment."""
        match moment:
            case "at random":
                return run.pid is not None
            case "first task":
                return (self.folder / "writing").exists() and any("_temporary" in name for name in self.files(run))
            case "files closed":
                return any("/_temporary/0/task_" in name and name.endswith(".parquet") for name in self.files(run))
            case _:
                return (self.folder / "reached").exists()

    def until(self, claim: Callable[[], bool], *, taking: bool = False, seconds: float = 280) -> None:
        """Step the nodes that are awake until `claim` holds, and look as a reader does now and then."""
        deadline = time.monotonic() + patience(seconds)
        while not claim():
            assert time.monotonic() < deadline, "waited in vain"
            for node in self.nodes:
                if node not in self.asleep:
                    # An attempt in a driver that still starts Spark would make the whole campaign wait.
                    node.step(taking=taking and node.launcher.is_warm())
            if time.monotonic() - self._looked_at > _LOOK_EVERY:
                self.look()
            time.sleep(0.02)

    def run(self, run_id: RunId) -> RunRecord:
        """Return the record of the run."""
        return self.mill.project.catalog.read(lambda db: find_run(db, run_id))

    def directory(self, run: RunRecord) -> Path:
        """Directory into which the run's last attempt writes."""
        pointer = WritePointer(-1 if run.write_pointer is None else run.write_pointer)
        return self.location / tx_directory(Snapshot(pointer, self.mill.project.catalog.incarnation))

    def files(self, run: RunRecord) -> dict[str, tuple[int, int]]:
        """Return size and time of the last write of each file in the run's directory.

        Spark's own and hidden files are included.
        """
        return contents(self.directory(run))

    def look(self) -> None:
        """Look as a reader: whatever a transaction shows is all of a run, and its files are there."""
        self._looked_at = time.monotonic()
        rows: Counter[str] = Counter()
        for file in self.mill.datasets.files("default.clicks"):
            rows[Path(file.path).relative_to(self.location).parts[0]] += file.rows
            size = Path(file.path).stat().st_size if Path(file.path).exists() else -1
            self.found.check(size == file.bytes, "partial", f"{file.path} has {size} bytes instead of {file.bytes}")
        self.found.counts["looks of readers"] += 1
        for directory, count in rows.items():
            self.found.check(count == ROWS, "partial", f"{directory} shows {count} rows of {ROWS}")

    def compare(self, runs: int, when: str) -> None:
        """Read all rows: those of the first `runs` runs are there, each once, and no others."""
        self.look()
        seen: dict[int, list[int]] = {}
        for file in self.mill.datasets.files("default.clicks"):
            for row_id in self._read(file.path, file.key["part"]):
                seen.setdefault(row_id // ROWS, []).append(row_id)
        for number in range(max(runs, *seen, 0) + 1 if seen else runs):
            ids = sorted(seen.get(number, []))
            expected = list(range(number * ROWS, (number + 1) * ROWS)) if number < runs else []
            if ids != expected:
                kind = "lost" if not ids else "doubled" if len(set(ids)) < len(ids) or not expected else "partial"
                self.found.check(False, kind, f"run {number} shows {len(ids)} rows of {len(expected)}, {when}")

    def _read(self, path: str, part: object) -> list[int]:
        """The ids in a file, each row of which is as it was made."""
        stat = Path(path).stat()
        known = (stat.st_size, stat.st_mtime_ns)
        if self._ids.get(path, (None,))[0] != known:
            rows = parquet.ParquetFile(path).read().to_pylist()
            wrong = [row for row in rows if row["text"] != f"row {row['id']}" or row["id"] % 4 != part]
            self.found.check(not wrong, "partial", f"{path} has rows that nobody wrote: {wrong[:3]}")
            self._ids[path] = known, [row["id"] for row in rows]
        return self._ids[path][1]

    def stop(self, pids: Sequence[int]) -> None:
        """Stop processes, but none inside a transaction, which on SQLite all others would have to await."""
        while True:
            signal_all(pids, signal.SIGSTOP)
            wait(lambda: all(state_of(pid) in "TZX" for pid in pids))
            if self.mill.project.catalog.dialect != "sqlite":
                return
            try:
                self.sql("BEGIN IMMEDIATE; ROLLBACK")
            except apsw.BusyError:
                signal_all(pids, signal.SIGCONT)
                time.sleep(0.01)
            else:
                return

    def strike(self, strike: Strike) -> str:
        """Start a run, strike its driver, let the nodes cope; what came of it.

        On a busy machine a run may end, or lose its attempt, before this process sees the moment of the strike. Then
        another run is started.
        """
        for _ in range(_TRIES):
            for node in self.nodes:
                # A worker that is killed may end a driver that still starts. Its node keeps none from then on.
                node.launcher.keep(self._code, "")
            number = self.runs
            self.runs += 1
            for name in ("reached", "writing"):
                (self.folder / name).unlink(missing_ok=True)
            self.order(number, strike.moment, forks=strike.forks)
            run_id = self.mill.runs.start("shop.publish").run_id
            if self._sees(strike, run_id):
                return self._strike(number, strike, run_id)
            self._retry(number, run_id)
            self.compare(number + 1, f"after run {number} has ended before its strike")
            self.found.counts["runs not struck"] += 1
        raise AssertionError(f"{_TRIES} runs ended, or lost their driver, before they were {strike}")

    def _sees(self, strike: Strike, run_id: RunId) -> bool:
        """Wait for the moment of the strike; False if the run has no driver then."""
        seen = False

        def look() -> bool:
            nonlocal seen
            run = self.run(run_id)
            seen = self.reached(strike.moment, run)
            return seen or run.state.ended

        self.until(look, taking=True)
        later = time.monotonic() + strike.delay.total_seconds()
        if strike.moment == ANY_TIME:
            self.until(lambda: time.monotonic() > later)
        return seen and self.run(run_id).pid is not None

    def _strike(self, number: int, strike: Strike, run_id: RunId) -> str:
        match strike.blow:
            case Blow.KILL:
                self._kill(number, strike, run_id)
            case Blow.NAP:
                self._nap(number, strike, run_id)
            case Blow.STOP | Blow.SLEEP:
                self._stop(number, strike, run_id)
            case Blow.EXECUTOR | Blow.WORKER | Blow.MASTER:
                self._strike_cluster(number, strike, run_id)
        run = self.run(run_id)
        self.compare(number + 1, f"after run {number} has ended")
        self.found.check(run.state is RunState.COMPLETED, "not repeated", f"{run_id} is {run.state}")
        self.found.check(run.failures == 0, "not repeated", f"{run_id} used up {run.failures} retries")
        self.found.counts["attempts"] += run.epoch
        return "done again" if run.epoch > 1 else "done once"

    def _retry(self, number: int, run_id: RunId) -> None:
        """Let the run end."""
        self.order(number, "none")
        self.until(lambda: self.run(run_id).state.ended, taking=True)

    def _course(self, run_id: RunId) -> str:
        """Return the attempts of a run, with the reason of each lost transaction."""
        reasons = {one.epoch: one.reason for one in self.mill.runs.show(run_id).attempts}
        return f"{run_id} had {self.run(run_id).epoch} attempts: {reasons}"

    def _committed(self, strike: Strike, run: RunRecord) -> bool:
        """Return whether the attempt that was struck had committed; at a mark that is known beforehand."""
        committed = run.state is RunState.COMPLETED
        if strike.moment != ANY_TIME:
            expected = strike.moment in PUBLISHED
            self.found.check(committed == expected, "not repeated", f"{run.run_id} is {run.state} at {strike.moment}")
        return committed

    def _kill(self, number: int, strike: Strike, run_id: RunId) -> None:
        struck = self.run(run_id)
        assert struck.pid is not None
        os.kill(struck.pid, signal.SIGKILL)
        self.until(lambda: self.run(run_id).state in {RunState.PENDING, RunState.COMPLETED})
        # Of a run that has committed, only its runner's next look finds the dead driver.
        self.until(lambda: not self._has_driver(struck))

        tag = str(struck.facts["driver"])
        if self.cluster is not None:
            # Executors see that their driver is gone, and end by themselves.
            self.until(lambda: not find_processes(tag))
        orphans = find_processes(tag)
        self.found.check(not orphans, "orphans", f"{len(orphans)} processes outlive their driver")
        left = self.files(struck)
        committed = self._committed(strike, self.run(run_id))
        self.compare(number + committed, f"after run {number} was killed")
        self._retry(number, run_id)
        epoch = self.run(run_id).epoch
        self.found.check(epoch == (1 if committed else 2), "not repeated", self._course(run_id))
        self.found.check(self.files(struck) == left, "late writes", f"{self.directory(struck)} has changed")

    def _has_driver(self, run: RunRecord) -> bool:
        """Return whether a launcher has the driver of an attempt."""
        submitted = run.facts.get("spark_driver")
        drivers = [driver for node in self.nodes for driver in node.launcher.drivers]
        return any(one.child.pid == run.pid or submitted == submitted_of(one) for one in drivers)

    def _strike_cluster(self, number: int, strike: Strike, run_id: RunId) -> None:
        assert self.cluster is not None
        match strike.blow:
            case Blow.EXECUTOR:
                pids = find_processes(str(self.run(run_id).facts["driver"]))
                signal_all([pid for pid in pids if EXECUTOR in command_of(pid)][:1], signal.SIGKILL)
            case Blow.WORKER:
                struck = next(one for one in self.cluster.workers if one.poll() is None)
                os.kill(struck.pid, signal.SIGKILL)
                self.cluster.add_worker(cores=CORES, memory="2g")
            case _:
                self.cluster.kill_master()
                self.cluster.start_master(port=urlsplit(self.cluster.master).port or 0)
        self._retry(number, run_id)
        epoch = self.run(run_id).epoch
        most = 2 if strike.blow is Blow.WORKER and self.mill.project.config.spark.on_cluster else 1
        self.found.check(epoch <= most, "not repeated", self._course(run_id))

    def _nap(self, number: int, strike: Strike, run_id: RunId) -> None:
        struck = self.run(run_id)
        assert struck.pid is not None
        pids = find_processes(str(struck.facts["driver"])) if strike.whole else [struck.pid]
        self.stop(pids)
        later = time.monotonic() + LEASE.total_seconds() / 4
        self.until(lambda: time.monotonic() > later)
        signal_all(pids, signal.SIGCONT)
        self._retry(number, run_id)
        epoch = self.run(run_id).epoch
        self.found.check(epoch == 1, "not repeated", f"{run_id} was given up after a quarter of its lease")

    def _stop(self, number: int, strike: Strike, run_id: RunId) -> None:
        struck = self.run(run_id)
        assert struck.pid is not None
        tag = str(struck.facts["driver"])
        pids = find_processes(tag) if strike.whole else [struck.pid]
        owner = next(node for node in self.nodes if node.runner_id == struck.owner)
        self.stop(pids)
        if strike.blow is Blow.SLEEP:
            self.asleep.append(owner)
        self.until(lambda: self.run(run_id).state in {RunState.PENDING, RunState.COMPLETED})
        committed = self._committed(strike, self.run(run_id))
        self.compare(number + committed, f"after run {number} was stopped")
        self._retry(number, run_id)
        epoch = self.run(run_id).epoch
        self.found.check(epoch == (1 if committed else 2), "not repeated", self._course(run_id))
        if strike.blow is Blow.STOP:
            if strike.moment != ANY_TIME or not committed:
                self.until(lambda: state_of(struck.pid) in "ZX")
            signal_all(pids, signal.SIGCONT)  # of a driver that stood still between two runs
            return

        self.asleep.clear()
        signal_all(pids, signal.SIGCONT)
        done = f"{DONE} {run_id} {struck.epoch}"
        status = self.mill.project.config.state / "drivers" / tag / "status"
        self.until(lambda: state_of(struck.pid) in "ZX" or (status.exists() and done in status.read_text()))
        assert struck.log_location is not None
        said = (Path(struck.log_location) / "stderr").read_text()
        if not committed:
            self.found.counts["zombies that went on"] += 1
            self.found.counts["of them said to be fenced"] += "is fenced" in said
        if struck.write_pointer is None:
            return  # stopped before its begin
        state = self.sql(f"SELECT state FROM tx WHERE write_pointer = {struck.write_pointer}")
        expected = [("committed",)] if committed else [("invalid",)]
        self.found.check(state in (expected, []), "doubled", f"{run_id}: {state}")

    def clean_up(self) -> None:
        """Let a janitor sweep until it looks for nothing any more: what is published stays, and nothing else."""
        clock = LaterClock()
        catalog = open_catalog(self.mill.project.catalog.url, World(clock=clock))
        self.found.counts["directories deleted"] += sweep(catalog).deleted
        for _ in range(CLEAN_SWEEPS + 1):
            clock.ahead += timedelta(days=3)  # longer than the longest wait between two sweeps
            if catalog.dialect == "postgres":
                self.sql(f"CREATE OR REPLACE {LATER_NOW.format(ahead=clock.ahead // timedelta(milliseconds=1))}")
            self.found.counts["directories deleted"] += sweep(catalog).deleted
        catalog.close()
        waiting = self.sql("SELECT count(*) FROM garbage")
        self.found.check(waiting == [(0,)], "dirty", f"{waiting} rows of garbage are left")

        named = {file.path for file in self.mill.datasets.files("default.clicks")}
        side_cars = {
            str(self.location / tx / name)
            for tx in {Path(name).relative_to(self.location).parts[0] for name in named}
            for name in ("_manifest.json", "_committed")
        }
        checksums = {f"{path.parent}/.{path.name}.crc" for path in map(Path, named)}  # Hadoop's
        there = set(contents(self.location)) - checksums
        self.found.check(there == named | side_cars, "dirty", f"too many or too few: {there ^ (named | side_cars)}")
        open_ones = self.sql("SELECT count(*) FROM in_progress")
        self.found.check(open_ones == [(0,)], "dirty", f"{open_ones} transactions are open")
        findings = self.mill.catalog.audit().findings
        self.found.check(not findings, "audited", findings)
        self.compare(self.runs, "at the end")


def submitted_of(driver: Driver) -> str:
    """Return the id of a driver on the cluster; empty for a driver of this machine, and before it has one."""
    path = driver.folder / "spark_driver"
    return path.read_text() if path.exists() else ""


def contents(folder: Path) -> dict[str, tuple[int, int]]:
    """All files below `folder`, with size and time."""
    found = {}
    for above, _, names in os.walk(folder):  # which passes over folders that go meanwhile, as those of Spark's tasks do
        for path in (Path(above, name) for name in names):
            with suppress(FileNotFoundError):  # Spark moves what is whole
                stat = path.stat()
                found[str(path)] = (stat.st_size, stat.st_mtime_ns)
    return found


def state_of(pid: int) -> str:
    """The kernel's letter for what the process does; Z when it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Signal those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def wait(claim: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until `claim` holds."""
    deadline = time.monotonic() + patience(seconds)
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


@contextmanager
def open_site(folder: Path, catalog_url: str, deploy_mode: str = "") -> Iterator[Site]:
    """A deployed project whose drivers are getting warm; at the end they are gone. With a deploy mode, on a cluster."""
    (folder / "app.py").write_text(APP.replace("PROJECT", str(folder)))
    with ExitStack() as stack:
        spark, cluster = '[spark]\nmaster = "local[2]"\n', None
        if deploy_mode:
            cluster = stack.enter_context(local_cluster(World(), folder / "cluster", folder / "cache", workers=0))
            for _ in range(2):
                cluster.add_worker(cores=CORES, memory="2g")
            spark = cluster.settings().replace("shared = true\n", f'shared = true\ndeploy_mode = "{deploy_mode}"\n')
        (folder / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n{spark}')
        mill = stack.enter_context(open_project(folder, create=True))
        mill.deploy()
        site = Site(folder, mill, stack.enter_context(backdoor_of(catalog_url)), cluster)
        stack.callback(site.close)
        yield site


@contextmanager
def new_schema(server_url: str) -> Iterator[str]:
    """Make a schema for a catalog on that PostgreSQL, and drop the schema at the end."""
    schema = f"t_{uuid.uuid4().hex}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            yield f"{server_url}?options=-csearch_path%3D{schema}"
        finally:
            connection.execute("SET lock_timeout = '20s'")
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def main() -> int:
    """Strike that many drivers and print what was seen; 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--drivers", type=int, default=100)
    parser.add_argument("--seed", default=date.today().isoformat(), help="default: today")  # noqa: DTZ011
    parser.add_argument("--catalog", choices=("sqlite", "postgres", "both"))
    parser.add_argument(
        "--cluster",
        choices=tuple(ON_CLUSTER),
        nargs="?",
        const="client",
        default="",
        help="work on a standalone cluster in this deploy mode (client), and kill its parts too",
    )
    asked = parser.parse_args()
    lent = os.environ.get(ADDRESS)
    which = asked.catalog or ("both" if lent else "sqlite")
    if which != "sqlite" and not lent:
        parser.error(f"{ADDRESS} names no PostgreSQL")

    strikes = draw(asked.seed, asked.drivers, asked.cluster)
    half = len(strikes) // 2 if which == "both" else 0
    lots = {"sqlite": strikes[half:] if which != "postgres" else [], "postgres": strikes[:half] or strikes}
    lots = {name: lot for name, lot in lots.items() if lot and which in {name, "both"}}
    begun = time.monotonic()
    found: dict[str, Found] = {}
    with tempfile.TemporaryDirectory(prefix="tidemill-chaos-") as name:
        base = Path(name)
        progress = itertools.count(1)
        for database, lot in lots.items():
            folder = base / database
            folder.mkdir()
            with ExitStack() as stack:
                url = f"sqlite:///{folder / 'catalog.db'}" if database == "sqlite" else ""
                if not url:
                    assert lent is not None
                    url = stack.enter_context(new_schema(lent))
                with open_site(folder, url, asked.cluster) as site:
                    found[database] = site.found
                    for strike in lot:
                        outcome = site.strike(strike)
                        seconds = round(time.monotonic() - begun)
                        print(
                            f"{next(progress):4}/{len(strikes)} {seconds:5} s  {database}: {strike}: {outcome}",
                            flush=True,
                        )
                    site.clean_up()
    wrong = [one for one in found.values() for one in one.wrong]
    print_table(asked.seed, lots, found, timedelta(seconds=round(time.monotonic() - begun)))
    if wrong:
        how = f"--drivers {asked.drivers} --seed {asked.seed}{asked.cluster and f' --cluster {asked.cluster}'}"
        print(f"see it again: python -m tests.chaos.spark {how}")
    return 1 if wrong else 0


def print_table(seed: str, lots: Mapping[str, Sequence[Strike]], found: Mapping[str, Found], took: timedelta) -> None:
    """All figures, a line each, the databases side by side."""
    import pyspark

    drawn, seen = lots.values(), found.values()
    counted = sorted({name for one in seen for name in one.counts})
    wrong = ("partial", "lost", "doubled", "orphans", "late writes", "not repeated", "dirty", "audited")
    rows = [
        ("drivers struck", [len(lot) for lot in drawn]),
        *((f"  {blow}", [sum(strike.blow is blow for strike in lot) for lot in drawn]) for blow in Blow),
        *((f"  … {at}", [sum(strike.moment == at for strike in lot) for lot in drawn]) for at in (*MOMENTS, ANY_TIME)),
        *((name, [one.counts[name] for one in seen]) for name in counted),
        *((kind, [sum(kind == its for its, _ in one.wrong) for one in seen]) for kind in wrong),
    ]
    versions = f"Spark {pyspark.__version__}, Python {sys.version.split()[0]}"
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, seed {seed}, {took}, {versions}")
    print(f"{'':28}" + "".join(f"{name:>10}" for name in lots))
    for name, figures in rows:
        print(f"{name:28}" + "".join(f"{figure:>10}" for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
