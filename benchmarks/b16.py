"""B16: the runs of B2, and a stream of files, with 1, 2, 4 and 8 nodes on one PostgreSQL that syncs its disk.

All nodes are on this machine and share its cores, so more nodes cannot be faster here. What is measured is whether they
stand in each other's way: in the catalog, for the inbox, and for the runs. The nodes together have as many slots as one
node alone. Else the time goes to the starts of more drivers, which one machine does not need.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.b2 import APP, SCHEDULES, SLOTS, count, measure_round
from benchmarks.project import running_project, wait_until
from benchmarks.table import Figure
from tidemill.mill.mill import Mill

NODES: Final = (1, 2, 4, 8)
ROUNDS: Final = 3
FILES: Final = 1000
FILES_A_RUN: Final = 20
STREAM: Final = f"""
raw = app.inbox("raw", "landing", format="csv", schema="line string", settle="0s", max_files={FILES_A_RUN})


@app.python(reads=[raw], writes=[out])
def load(run):
    for name in run.input(raw).files:
        (Path(__file__).parent / "landing" / name).read_text()
    register(run, "default.out", run.write_pointer)


app.schedule("on_raw", load, trigger=tm.NewFiles(raw), constraints=[])
"""
_CLOSED: Final = "SELECT count(*) FROM inbox_file WHERE status = 'SUCCESS'"


def run(url: str) -> Iterator[Figure]:
    """Rates of all nodes together, and those of several nodes by the rate of one. PostgreSQL alone."""
    if url.startswith("sqlite"):
        return
    runs: dict[int, list[float]] = {}
    files: dict[int, list[float]] = {}
    for nodes in NODES:
        address = _database(url, f"b16_{nodes}")
        with running_project(
            address, f"from pathlib import Path\n{APP}{STREAM}", slots=SLOTS // nodes, nodes=nodes
        ) as mill:
            runs[nodes] = [measure_round(mill, number) for number in range(ROUNDS + 1)][1:]
            files[nodes] = [_measure_files(mill, number) for number in range(ROUNDS + 1)][1:]
    yield from _figures(f"one message → {SCHEDULES} runs", runs, "runs/s")
    yield from _figures(f"{FILES:,} files, {FILES_A_RUN} a run", files, "files/s")


def _figures(what: str, rates: dict[int, list[float]], unit: str) -> Iterator[Figure]:
    one = rates[NODES[0]]
    for nodes, seen in rates.items():
        yield Figure("B16", f"{what}, {nodes} node{'s' if nodes > 1 else ''}", "PostgreSQL", seen, unit)
        if nodes > 1:
            ratios = [many / single for many, single in zip(sorted(seen), sorted(one), strict=True)]
            yield Figure("B16", f"{what}, {nodes} nodes : 1 node", "PostgreSQL", ratios, "", "≥ 0.9")


def _measure_files(mill: Mill, number: int) -> float:
    """Return the files a second from the moment at which all are there until the last one is closed."""
    landing = mill.project.config.folder / "landing"
    _write_files(landing, number)
    started = time.monotonic()
    wait_until(lambda: count(mill, _CLOSED) == FILES * (number + 1), every=0.05)
    return FILES / (time.monotonic() - started)


def _write_files(landing: Path, number: int) -> None:
    landing.mkdir(exist_ok=True)
    for name in range(FILES):
        (landing / f"{number}-{name}.csv").write_text(f"line\n{number} {name}\n")


def _database(url: str, name: str) -> str:
    """Make a database of its own, so that no number of nodes works on the history of another."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url.rpartition('/')[0]}/{name}"
