"""Drivers on a worker of a standalone cluster: killed in each of their parts, killed on request, and without room."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import httpx
import pytest

import tidemill as tm
from tests.command import TIDEMILL
from tests.run.test_programs import PROGRAM
from tests.seed_of_the_day import TODAY
from tests.spark_cluster import LocalCluster, parents_of, processes_of, running_cluster
from tests.yardstick import patience
from tidemill.config import load_config
from tidemill.demo.cluster import SHORT_LIVED
from tidemill.names import RunId
from tidemill.run.processes.cluster import cluster_environ
from tidemill.run.processes.local_launcher import DriverOptions, LocalLauncher, ProfileOptions
from tidemill.run.processes.session import settings_of
from tidemill.run.records.bundles import AppCode
from tidemill.world import World

pytestmark = [pytest.mark.spark, pytest.mark.long]

PARTS = ("near end", "far end", "driver")

APP = """
import time
from pathlib import Path

import tidemill as tm
from pyspark.sql import functions as F

HERE = Path({folder!r})
app = tm.App("shop")
orders = app.inbox("orders", "landing", format="csv", schema="id long, day date", settle="0s")
clean = app.fileset("clean", keys={{"day": "date"}})


def wait(value):
    while not (HERE / "go").exists():
        (HERE / "writing").touch()
        time.sleep(0.1)
    return value


@app.spark(reads=[orders], writes=[clean])
def load(run, spark):
    rows = run.input(orders).read()
    run.output(clean).append(rows.withColumn("id", F.udf(wait, "long")("id")))


app.schedule("on_orders", load, trigger=tm.NewFiles(orders))
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A master and two workers."""
    with running_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def settings_for(cluster: LocalCluster) -> str:
    """Return the settings of a project whose drivers work on the cluster, and end after their run."""
    changed = cluster.settings().replace("shared = true\n", 'shared = true\ndeploy_mode = "cluster"\nwarm = 0\n')
    return f'{changed}"spark.driver.extraJavaOptions" = "{SHORT_LIVED}"\n'


def drivers_on(cluster: LocalCluster) -> dict[str, str]:
    """Return the state of each driver that the master knows."""
    known = httpx.get(f"http://127.0.0.1:{cluster.page_port}/json/", timeout=patience(20)).json()
    return {one["id"]: one["state"] for one in [*known["activedrivers"], *known["completeddrivers"]]}


def until(true: Callable[[], object], what: str) -> None:
    """Wait for what must become true."""
    give_up_at = time.monotonic() + patience(180)
    while not true():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.05)


class Site:
    """A project on the cluster, and its node."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self.folder = folder
        self.cluster = cluster
        (folder / "tidemill.toml").write_text(settings_for(cluster))
        (folder / "app.py").write_text(APP.format(folder=str(folder)))
        (folder / "landing").mkdir()

    def let_in(self, name: str, text: str) -> None:
        """Let a file come."""
        (self.folder / "landing" / name).write_text(f"id,day\n{text}")

    def await_task(self) -> None:
        """Wait until a task works."""
        (self.folder / "writing").unlink(missing_ok=True)
        until((self.folder / "writing").exists, "a task works")

    def near_end(self) -> int:
        """Return the process that stands for the driver on the node."""
        (folder,) = (self.folder / ".tidemill" / "drivers").iterdir()
        return processes_of(folder.name)[0]

    def await_end(self, facts: dict[str, object]) -> None:
        """Wait until nothing of a driver lives, neither here nor for the master."""
        until(lambda: not processes_of(str(facts["driver"])), "the driver has ended")
        until(lambda: drivers_on(self.cluster)[facts["spark_driver"]] in {"FAILED", "KILLED"}, "the master knows it")


@pytest.mark.parametrize("part", [PARTS[TODAY % len(PARTS)]])
def test_a_driver_that_loses_a_part_is_done_again_and_leaves_nothing(cluster, tmp_path, part):
    """Each day another part is killed while a task writes: the near end, the far end, the driver. No retry is used up.

    At last a run is killed on request. When its state says so, its driver is gone from the cluster.
    """
    site = Site(tmp_path, cluster)
    site.let_in("a.csv", "1,2026-01-01\n2,2026-01-02\n")

    with (
        subprocess.Popen([TIDEMILL, "up"], cwd=tmp_path, stdout=-1, stderr=-2, text=True) as up,
        tm.open(tmp_path) as mill,
    ):
        try:
            site.await_task()
            (run,) = mill.runs.list()
            facts = mill.runs.show(run.run_id).facts
            driver = processes_of(str(facts["driver"]))[0]
            killed = {"near end": site.near_end(), "far end": parents_of(driver)[1], "driver": driver}[part]
            os.kill(killed, signal.SIGKILL)
            site.await_end(facts)
            site.await_task()
            (tmp_path / "go").touch()
            until(lambda: mill.runs.list()[0].state == "COMPLETED", "the run is done again")
            done = mill.runs.show(run.run_id)
            told_in_log = [line.text for line in mill.runs.logs(run.run_id, attempt=1) if line.file == "stderr"]
            rows = sorted(row["id"] for row in mill.datasets.head("clean"))
            (tmp_path / "go").unlink()
            site.let_in("b.csv", "3,2026-01-01\n")
            site.await_task()
            asked = mill.runs.list()[0].run_id
            facts = mill.runs.show(asked).facts
            mill.runs.kill(asked)
            until(lambda: mill.runs.show(asked).state == "KILLED", "the run is killed")
            left = (drivers_on(cluster)[facts["spark_driver"]], processes_of(str(facts["driver"])))
        finally:
            up.terminate()
            told = up.communicate(timeout=patience(300))[0]

    assert (rows, done.epoch, done.failures) == ([1, 2], 2, 0), told
    # If the near end was killed, no process is left to tell it.
    assert part == "near end" or "on the cluster" in told_in_log[-1]
    assert left[0] in {"FAILED", "KILLED"}
    assert left[1] == []


def test_a_driver_without_room_is_ended_on_the_master(cluster, tmp_path):
    """A driver that waits for a worker would take the first room that there is, long after its run."""
    (tmp_path / "tidemill.toml").write_text(settings_for(cluster) + '"spark.driver.memory" = "64g"\n')
    (tmp_path / "app.py").write_text("")
    world = World()
    config = load_config(world, tmp_path)
    profile = ProfileOptions(settings_of(config), 0, partial(cluster_environ, world, config.spark), on_cluster=True)
    options = DriverOptions("sqlite:///nowhere", config.state, config.cache, {"": profile})
    before = drivers_on(cluster)

    with closing(LocalLauncher(world, options)) as launcher:
        launcher.start(RunId("run_1"), 1, PROGRAM, AppCode(str(tmp_path / "app.py"), "first"))
        until(lambda: drivers_on(cluster).keys() - before.keys(), "a driver is submitted")
        until(lambda: list(launcher.drivers[0].folder.glob("spark_driver")), "its id is known")
        (submitted,) = drivers_on(cluster).keys() - before.keys()
        waiting = drivers_on(cluster)[submitted]

    assert (waiting, drivers_on(cluster)[submitted]) == ("SUBMITTED", "KILLED")
