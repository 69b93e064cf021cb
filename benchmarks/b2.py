"""B2: one message starts 300 schedules, each a run of its own in a driver process: begin, one partition, commit.

Measured from the return of the commit that publishes the message until the last run record is COMPLETED. After ours,
Airflow: one asset event starts 300 DAGs, each with one task that has an outlet, until the last run has ended. Airflow
has eight tasks at one time as well. With its default of 32, its workers keep two cores so busy that requests to its
server time out, and the tasks fail. Airflow has one round, since a round takes minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
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
SLOTS = 8
"""Runs at one time: a run waits for the database half of its time."""

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
_COMPLETED = """
    SELECT count(*) FROM run WHERE state = 'COMPLETED'
       AND program_id = (SELECT program_id FROM program WHERE name = 'work')
"""


def run(url: str) -> Iterator[Figure]:
    """Runs a second on the database at `url`."""
    database = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    with running_project(url, APP, slots=SLOTS) as mill:
        rates = [measure_round(mill, number) for number in range(ROUNDS + 1)]
    ours = Figure("B2", f"one message → {SCHEDULES} runs", database, rates[1:], "runs/s", "≥ 100")
    yield ours
    gap = replace(ours, values=(), target="")

    def measure(python: Path) -> list[Figure]:
        return [replace(gap, values=[airflow.measure_runs(url, SCHEDULES, SLOTS, python)])]

    yield from measure_peer("Airflow", measure, [gap])


def measure_round(mill: Mill, number: int) -> float:
    """Return the runs a second that a message starts; `number` counts the rounds before."""
    committed = publish(mill, "default.bell", number)
    wait_until(lambda: count(mill, _COMPLETED) == SCHEDULES * (number + 1), every=0.05)
    return SCHEDULES / (time.monotonic() - committed)


def count(mill: Mill, text: str) -> int:
    """Return the number that a query of the benchmarks gives."""
    # The catalog prepares a statement once for its name.
    name = f"count_{abs(hash(text))}"
    statement = Statement(name, dict.fromkeys(Dialect, text), (), (), (), None, frozenset(), text)

    def block(db: Db) -> int:
        row = db.one(statement)
        assert row is not None
        return int(str(row[0]))

    return mill.project.catalog.read(block)
