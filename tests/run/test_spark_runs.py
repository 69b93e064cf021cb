"""Programs on Spark, in real drivers that are warm (killed ones: tests/chaos/test_spark.py)."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.run.conftest import Works
from tests.yardstick import patience
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.names import DatasetId, Namespace, RunId, WritePointer
from tidemill.run.processes.local_launcher import DriverOptions, LocalLauncher, ProfileOptions
from tidemill.run.processes.runner import Runner
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.programs import Program, ProgramKind, code_digest
from tidemill.run.records.runs import RunRecord, RunState
from tidemill.run.records.workers import put_worker
from tidemill.shapes.manifest import is_marked
from tidemill.storage.locations import open_files
from tidemill.world import Disk, World

pytestmark = pytest.mark.spark

SETTINGS = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "512m"}

APP = """
import os, time
from pathlib import Path
from pyspark.sql import functions as F
import helper

class Source:
    name = "shop"
    def find_program(self, name):
        return globals()[name]

app = Source()
HERE = Path(__file__).parent

def rows(spark):
    return spark.range(0, 1000, 1, 4).withColumn("part", (F.col("id") % 4).cast("int"))

def publish(run, spark):
    print("publishing", run.id)
    run.output("clicks").append(rows(spark).where("part < 2"))
    run.output("clicks").append(rows(spark).where("part >= 2"))
    run.output("clicks").append(rows(spark).where("part = 0"))

def copy(run, spark):
    tagged = F.udf(helper.tag)
    new = run.input("clicks")
    print("partitions", len(new.partitions), flush=True)
    run.output("copies").append(new.read().withColumn("tag", tagged("id")))
    assert run.read("copies").count() == 1250
    spark.range(1).createOrReplaceGlobalTempView("left_behind")
    spark.range(1).createOrReplaceTempView("mine")
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    os.environ["LEFT_BEHIND"] = "x"
    os.chdir("/")

def once_more(run, spark):
    found = rows(spark).unionByName(spark.createDataFrame([(5, 5), (1000, 4), (1000, 4)], "id long, part int"))
    new = run.deduplicate(found, keys=["id"], against="copies", within="7d")
    run.output("copies").append(new.withColumn("tag", F.lit("late")))
    assert run.deduplicate(found, keys=["id"], against="copies").count() == 0

def first_load(run, spark):
    found = spark.createDataFrame([(1, 0), (1, 0), (2, 0)], "id long, part int")
    run.output("firsts").append(run.deduplicate(found, keys=["id"], against="firsts"))
    assert run.deduplicate(found, keys=["id"], against="firsts").count() == 0

def tend(run, spark):
    while run.take():
        new = run.input("clicks")
        assert len(new.partitions) == 1, new.partitions
        run.output("tended").append(new.read().withColumn("tag", F.lit(str(run.write_pointer))))
        assert run.read("clicks").count() == 1250
        run.commit()

def loses(run, spark):
    if run.attempt == 1:
        if (HERE / "killed").exists():
            os.kill(spark.sparkContext._gateway.proc.pid, 9)
        else:  # what the end of a worker does to the drivers on it
            spark.sparkContext._jsc.sc().stop()
    run.output("clicks").append(rows(spark))

def looks(run, spark):
    assert spark.catalog.listTables("global_temp") == [], spark.catalog.listTables("global_temp")
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert "LEFT_BEHIND" not in os.environ
    assert Path.cwd() == HERE, Path.cwd()
    assert type(spark).builder.getOrCreate() is spark
"""


class Mill:
    """A SQLite catalog with two file sets, and a runner."""

    def __init__(self, works: Works, folder: Path, warm: int) -> None:
        self.works = works
        self.folder = folder
        self.app_file = folder / "project" / "app.py"
        self.app_file.parent.mkdir()
        self.app_file.write_text(APP)
        (self.app_file.parent / "helper.py").write_text("def tag(value):\n    return f'tag {value}'\n")
        self.filesets = {name: self.fileset(name) for name in ("clicks", "copies", "firsts", "tended")}
        self.usual = ProfileOptions(SETTINGS, warm)
        options = DriverOptions(works.catalog.url, folder / "state", folder / "cache", {"": self.usual})
        self.launcher = LocalLauncher(works.world, options)
        self.runner = Runner(works.world, works.catalog, self.launcher)

    def fileset(self, name: str) -> Fileset:
        location = open_files(str(self.folder / "data" / name), self.works.world)
        location.prepare()
        dataset = Dataset(
            DatasetId(f"ds_{name}"),
            Namespace("default"),
            name,
            DatasetKind.FILESET,
            location.url,
            {"keys": {"part": "int"}},
        )
        return Fileset.of(self.works.catalog.write(lambda db: declare(db, dataset)))

    def program(
        self,
        name: str,
        kind: ProgramKind,
        reads: tuple[str, ...] = (),
        writes: tuple[str, ...] = (),
        terms: Terms | None = None,
    ) -> Program:
        program = self.works.program(
            name,
            kind=kind,
            app_file=str(self.app_file),
            reads=tuple(f"default.{read}" for read in reads),
            writes=tuple(f"default.{write}" for write in writes),
        )
        for read in reads:
            dataset_id = self.filesets[read].dataset_id
            self.works.catalog.write(lambda db, d=dataset_id: ensure_consumer(db, d, program.qualified_name, terms))
        return program

    def start(self, name: str, *, reads: tuple[str, ...] = (), writes: tuple[str, ...] = ()) -> RunId:
        return self.works.start(self.program(name, ProgramKind.SPARK, reads, writes))

    def until(self, claim: Callable[[], bool], seconds: float = 120) -> None:
        deadline = time.monotonic() + patience(seconds)
        while not claim():
            assert time.monotonic() < deadline, "waited in vain"
            self.runner.step()
            time.sleep(0.02)

    def finish(self, run_id: RunId) -> RunRecord:
        self.until(lambda: self.works.run(run_id).state.ended)
        run = self.works.run(run_id)
        log = Path(run.log_location or "", "stderr")
        assert run.state is RunState.COMPLETED, (run.exit_reason, log.exists() and log.read_text()[-3000:])
        return run

    def count(self, name: str) -> int:
        """Rows that are published, by the manifests."""

        def block(db):
            snapshot = Snapshot(WritePointer(10**15), self.works.catalog.incarnation)
            return sum(part.rows for part in read_partitions(db, self.filesets[name].dataset_id, snapshot))

        return self.works.catalog.read(block)


@pytest.fixture
def make_mill(sqlite_catalog_url: str, world: World, tmp_path: Path) -> Iterator[Callable[[int], Mill]]:
    """Make the mill with so many warm drivers."""
    mills = []

    def make(warm: int) -> Mill:
        mills.append(Mill(Works(open_catalog(sqlite_catalog_url, world), world), tmp_path, warm))
        return mills[-1]

    yield make
    for mill in mills:
        mill.runner.close()
        mill.works.catalog.close()


@pytest.mark.parametrize("way", ["killed", "stopped"])
def test_a_spark_that_ends_during_a_run_uses_up_no_retry(make_mill, way):
    """A worker of a cluster took its driver's JVM along, and the program was blamed (seen in a campaign)."""
    mill = make_mill(1)
    (mill.app_file.parent / way).touch()

    run = mill.finish(mill.start("loses", writes=("clicks",)))

    assert (run.epoch, run.failures) == (2, 0)
    assert mill.count("clicks") == 1000
    assert run.core_time


def test_each_profile_has_a_spark_of_its_own(make_mill):
    """The settings of a program are in force, and its run says which they were."""
    mill = make_mill(1)
    profiles = {"": mill.usual, "small": ProfileOptions({**SETTINGS, "spark.master": "local[1]"})}
    mill.launcher.options = dataclasses.replace(mill.launcher.options, profiles=profiles)
    usual = mill.program("publish", ProgramKind.SPARK, writes=("clicks",))
    small = mill.works.program("looks", kind=ProgramKind.SPARK, app_file=str(mill.app_file), spark_profile="small")
    runs = [mill.works.start(program) for program in (usual, small)]
    mill.until(lambda: all(mill.works.run(run_id).state.ended for run_id in runs))
    first, second, again = [mill.finish(run_id) for run_id in (*runs, mill.works.start(small))]

    assert second.facts["spark_conf"]["spark.master"] == "local[1]"
    assert first.facts["spark_conf"]["spark.master"] != "local[1]"
    assert [run.facts.get("spark_profile") for run in (first, second, again)] == [None, "small", "small"]
    assert again.facts["spark"] == second.facts["spark"] != first.facts["spark"]


@pytest.mark.long
def test_a_warm_driver_serves_runs_one_after_the_other(make_mill):
    """Spark starts once; each run has a session, logs and surroundings of its own, and nothing of the one before."""
    mill = make_mill(1)
    mill.launcher.keep(AppCode(str(mill.app_file), code_digest(Disk(), mill.app_file)), "")
    mill.until(mill.launcher.is_warm)

    published = mill.finish(mill.start("publish", writes=("clicks",)))
    copied = mill.finish(mill.start("copy", reads=("clicks",), writes=("copies",)))
    looked = mill.finish(mill.start("looks"))
    again = mill.finish(mill.start("copy", reads=("clicks",), writes=("copies",)))
    once = mill.finish(mill.start("once_more", writes=("copies",)))
    first = mill.finish(mill.start("first_load", writes=("firsts",)))

    assert {published.pid, copied.pid, looked.pid, again.pid} == {published.pid}
    assert (mill.count("clicks"), mill.count("copies")) == (1250, 1251)
    # Of 1,003 rows three ids are there twice or thrice, and what was published of the 1,000 is left out.
    assert once.facts["duplicates"][0] == {
        "against": "default.copies",
        "keys": ["id"],
        "rows_in": 1003,
        "within": 2,
        "published": 1000,
        "rows_out": 1,
    }
    # On the first load nothing is published, and no column is known of what is.
    assert first.facts["duplicates"][0]["rows_out"] == mill.count("firsts") == 2
    # What the program has only looked at is not known to have come whole.
    assert once.facts["duplicates"][1]["rows_out"] is None
    assert again.exit_reason == "no_input"
    # The tasks of a run count for that run alone.
    assert 0.02 < copied.core_time.total_seconds() > again.core_time.total_seconds()
    outputs = copied.facts["outputs"]
    assert [(o["dataset"], o["count"], o["rows"]) for o in outputs] == [("default.copies", 4, 1250)]
    assert [(i["dataset"], i["count"], i["rows"]) for i in copied.facts["inputs"]] == [("default.clicks", 4, 1250)]
    assert (Path(copied.log_location) / "stdout").read_text() == "partitions 4\n"
    assert "DAGScheduler" in (Path(copied.log_location) / "spark.log").read_text()
    tx = Snapshot(copied.write_pointer, mill.works.catalog.incarnation)
    assert is_marked(open_files(mill.filesets["copies"].dataset.location, World()), tx)

    # A worker commits again and again, in a driver of its own: the warm one stays free for runs.
    tend = mill.program("tend", ProgramKind.SPARK_WORKER, ("clicks",), ("tended",), Terms(partitions=1))
    mill.works.catalog.write(lambda db: put_worker(db, tend.program_id, 1))
    mill.until(lambda: mill.count("tended") == mill.count("clicks"))
    ((tended_by, pid, facts),) = mill.works.sql(
        "SELECT r.state, r.pid, r.facts FROM run AS r JOIN program AS p ON p.program_id = r.program_id"
        " WHERE p.name = 'tend'"
    )
    assert tended_by == "RUNNING"
    assert pid != published.pid
    assert json.loads(facts)["commits"] == 4
