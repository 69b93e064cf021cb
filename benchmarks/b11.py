"""B11: `tidemill up` with 5,000 schedules and nothing due, alone and with 100 watched inboxes; beside an idle Airflow.

Without server and without Spark. `up` has its warm Python drivers. Airflow has one DAG, which waits for an asset; its
servers run, since its tasks need them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from benchmarks.idle import figures_of, measure_idle
from benchmarks.peers.airflow import running_airflow
from benchmarks.peers.environments import measure_peer
from benchmarks.project import running_project, wait_until
from benchmarks.table import Figure

SCHEDULES = 5_000
SECONDS: Final = {0: 90.0, 100: 360.0}
"""Seconds of the measurement, by the number of inboxes. With inboxes there is a commit each 90 s.

A PostgreSQL makes a checkpoint each five minutes, and writes most for the first commit after it.
"""
SECONDS_OF_PEER = 60.0
"""Airflow commits many times a second, so a shorter time is enough for it."""
SETTLE = 10.0
"""Seconds until an idle process has done what it does at its start."""
TARGETS: Final = {"processor": "≤ 0.5", "memory": "≤ 120", "commits": "≤ 60", "written": "≤ 20"}

APP: Final = """
import tidemill as tm

app = tm.App("bench")


@app.python()
def load(run):
    pass


for n in range({schedules}):
    app.schedule(f"s{{n:05}}", load, trigger=tm.Cron("30 2 29 2 *"))
for n in range({inboxes}):
    app.inbox(f"i{{n:03}}", f"landing/i{{n:03}}", schema="id int")
"""


def run(url: str) -> Iterator[Figure]:
    """Measure on the database at `url`."""
    database = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    for inboxes, seconds in SECONDS.items():
        address = url.replace(".db", f"-{inboxes}.db")
        text = APP.format(schedules=SCHEDULES, inboxes=inboxes)
        # The app of the first round is deployed again, with inboxes, on the one PostgreSQL.
        with running_project(address, text, command=("up", "--no-server")) as mill:
            log = Path(mill.project.config.folder) / "up.log"
            wait_until(lambda log=log: " ready " in log.read_text(), every=0.5)  # type: ignore[misc]  # as below
            up = next(one for one in psutil.Process().children() if "up" in one.cmdline())
            time.sleep(SETTLE)
            measured = measure_idle(lambda up=up: [up, *up.children(recursive=True)], address, seconds)  # type: ignore[misc]  # mypy infers no default
        what = f"idle, with {inboxes} inboxes" if inboxes else "idle"
        yield from figures_of("B11", what, database, measured, TARGETS)
    gaps = figures_of("B11", "idle", database, {}, {})
    yield from measure_peer("Airflow", partial(_measure_airflow, url, database), gaps)


def _measure_airflow(url: str, database: str, python: Path) -> list[Figure]:
    with running_airflow(python, url, 1) as airflow:
        time.sleep(SETTLE)
        measured = measure_idle(airflow.processes, airflow.database_url, SECONDS_OF_PEER)
    return figures_of("B11", "idle", database, measured, {})
