"""B1: how long after a commit the first line of the program runs that it triggers, in the program's driver process.

One partition is published by another process while `tidemill up` is idle and its drivers are warm; the program writes
the monotonic clock of the machine, which all processes share, into a file. Once for plain Python, once for Spark, which
also notes when its first job is done. At the end a shorter series of plain Python beside many schedules that listen to
something else, and many open transactions.

Beside it Airflow, from the answer to an asset event to the first line of the task that it triggers, and Dagster, from
the report of an event to the first line of the job that a sensor starts. These run after ours, not between: they would
use the machine meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from benchmarks.peers import airflow, dagster
from benchmarks.peers.environments import measure_peer
from benchmarks.project import lines_of, publish, running_project, wait_until
from benchmarks.table import Figure
from tidemill.catalog.db import Db
from tidemill.mill.mill import Mill
from tidemill.names import Namespace
from tidemill.run.processes.external import open_transaction
from tidemill.run.records.programs import find_program
from tidemill.schedule.changes import Add, change_schedules
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.specs import ScheduleSpec

SAMPLES = {"plain": 200, "spark": 60}
CROWDED_SAMPLES = 40
SCHEDULES = 5_000
OPEN_TRANSACTIONS = 100
WARM_UP = 6
QUIET = 0.25
"""Seconds between the end of a run and the next commit: the runner looks again after 0.2 s."""

APP = """
import time
from pathlib import Path

import tidemill as tm

HERE = Path(__file__).parent
app = tm.App("bench")
plain_in = app.fileset("plain_in", keys={"n": "int"})
spark_in = app.fileset("spark_in", keys={"n": "int"})
other = app.fileset("other", keys={"n": "int"})


@app.python(reads=[plain_in])
def plain(run):
    now = time.monotonic()
    with (HERE / "plain").open("a") as file:
        file.write(f"{now}\\n")


@app.spark(reads=[spark_in])
def spark(run, spark):
    now = time.monotonic()
    assert spark.range(10).count() == 10
    with (HERE / "spark").open("a") as file:
        file.write(f"{now} {time.monotonic()}\\n")


app.schedule("plain", plain, trigger=tm.NewPartitions(plain_in), constraints=[])
app.schedule("spark", spark, trigger=tm.NewPartitions(spark_in), constraints=[])
"""


def run(url: str) -> Iterator[Figure]:
    """Measure on the database at `url`."""
    database = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    with running_project(url, APP) as mill:
        for kind, samples in SAMPLES.items():
            taken = [_sample(mill, kind, number) for number in range(WARM_UP + samples)][WARM_UP:]
            first = [times[0] for times in taken]
            yield Figure("B1", f"commit → first line, {kind}", database, first, "ms", "≤ 60")
            yield Figure("B1", f"the same, 99th percentile, {kind}", database, [_percentile(first)], "ms", "≤ 200")
            if kind == "spark":
                yield Figure("B1", "commit → first Spark job done", database, [t[1] for t in taken], "ms", "≤ 300")
        with _crowd(mill):
            numbers = range(WARM_UP + SAMPLES["plain"], 2 * WARM_UP + SAMPLES["plain"] + CROWDED_SAMPLES)
            taken = [_sample(mill, "plain", number) for number in numbers][WARM_UP:]
            crowd = f"beside {SCHEDULES:,} schedules and {OPEN_TRANSACTIONS} open transactions"
            yield Figure("B1", f"commit → first line, plain, {crowd}", database, [t[0] for t in taken], "ms", "≤ 60")
    yield from _beside(url, Figure("B1", "commit → first line, plain", database, (), "ms"))


def _beside(url: str, gap: Figure) -> Iterator[Figure]:
    """Measure the peers; `gap` is the figure that they fill."""

    def measure_airflow(python: Path) -> list[Figure]:
        return [replace(gap, values=airflow.measure_first_lines(url, python))]

    def measure_dagster(python: Path) -> list[Figure]:
        return [replace(gap, values=dagster.measure_first_lines(python))]

    yield from measure_peer("Airflow", measure_airflow, [gap])
    if url.startswith("sqlite"):  # where Dagster keeps its state by default
        yield from measure_peer("Dagster", measure_dagster, [gap])


def _crowd(mill: Mill) -> ExitStack:
    """Add schedules that listen to another file set, and open transactions, which end with the stack."""

    def block(db: Db) -> None:
        seq = db.tick()
        namespace = Namespace("default")
        program_id = find_program(db, namespace, "bench", "plain").program_id
        spec = ScheduleSpec(NewPartitions("default.other"))
        names = [f"crowd_{number}" for number in range(SCHEDULES)]
        adds = [Add(namespace, "bench", name, program_id, spec) for name in names]
        change_schedules(db, mill.project.world, seq, adds)

    mill.project.catalog.write(block)
    stack = ExitStack()
    for _ in range(OPEN_TRANSACTIONS):
        stack.enter_context(
            open_transaction(mill.project.catalog, mill.project.world, ["default.other"], lease=timedelta(hours=1))
        )
    return stack


def _sample(mill: Mill, kind: str, number: int) -> list[float]:
    """Milliseconds from the commit to each moment that the program notes."""
    file = Path(mill.project.config.folder) / kind
    committed = publish(mill, f"default.{kind}_in", number)
    wait_until(lambda: len(lines_of(file)) > number)
    wait_until(lambda: all(run.state == "COMPLETED" for run in mill.runs.list(program=f"bench.{kind}", limit=1)))
    time.sleep(QUIET)
    return [(float(moment) - committed) * 1000 for moment in lines_of(file)[number].split()]


def _percentile(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]
