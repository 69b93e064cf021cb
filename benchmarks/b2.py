"""B2: one message starts 300 schedules, each a run of its own in a driver process: begin, one partition, commit.

Measured from the return of the commit that publishes the message until the last run record is COMPLETED. After ours,
Airflow: one asset event starts 300 DAGs, each with one task that has an outlet, until the last run has ended.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.peers import airflow
from benchmarks.peers.environments import measure_peer
from benchmarks.project import publish, running_project, wait_until
from benchmarks.table import Figure
from tidemill.catalog.db import Db
from tidemill.catalog.named import Dialect, Statement
from tidemill.mill.mill import Mill

SCHEDULES = 300
ROUNDS = 3

APP = f"""
from itertools import count

import tidemill as tm
from benchmarks.project import register

app = tm.App("bench")
bell = app.fileset("bell", keys={{"n": "int"}})
out = app.fileset("out", keys={{"n": "int"}})


@app.python(writes=[out])
def work(run):
    register(run, "default.out", run.write_pointer)


for number in range({SCHEDULES}):
    app.schedule(f"s{{number}}", work, trigger=tm.NewPartitions(bell), constraints=[])
"""
_COUNT = "SELECT count(*) FROM run WHERE state = 'COMPLETED' AND program_id IS NOT NULL"


def run(url: str) -> Iterator[Figure]:
    """Runs a second on the database at `url`."""
    database = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    with running_project(url, APP) as mill:
        rates = []
        for number in range(ROUNDS + 1):
            committed = publish(mill, "default.bell", number)
            wait_until(partial(_all_done, mill, SCHEDULES * (number + 1)), every=0.02)
            rates.append(SCHEDULES / (time.monotonic() - committed))
    ours = Figure("B2", f"one message → {SCHEDULES} runs", database, rates[1:], "runs/s", "≥ 30")
    yield ours
    gap = replace(ours, values=(), target="")

    def measure(python: Path) -> list[Figure]:
        return [replace(gap, values=airflow.measure_runs(url, SCHEDULES, ROUNDS, python))]

    yield from measure_peer("Airflow", measure, [gap])


def _all_done(mill: Mill, wanted: int) -> bool:
    statement = Statement("count_completed", dict.fromkeys(Dialect, _COUNT), (), (), (), None, frozenset(), _COUNT)

    def block(db: Db) -> bool:
        row = db.one(statement)
        return row is not None and row[0] == wanted

    return mill.project.catalog.read(block)
