"""B16: the runs of B2, and a stream of files, with 1, 2, 4 and 8 nodes on one PostgreSQL that syncs its disk.

All nodes are on this machine and share its cores. So what is measured is whether they stand in each other's way: in the
catalog, for the inbox, and for the runs. Once each node has two slots, as a node has without settings: so a site adds
nodes. Once all nodes together have the eight slots of B2, so that one node has the best of all batches. Several nodes
alternate with one node, since a machine that others share changes its speed within minutes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import count as count_from
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.b2 import APP, SCHEDULES, SLOTS, count, measure_round
from benchmarks.project import running_project, wait_until
from benchmarks.table import Figure
from tidemill.mill.mill import Mill

NODES: Final = (2, 4, 8)
SLOTS_OF_A_NODE: Final = 2
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
WORK: Final = (
    (f"one message → {SCHEDULES} runs", "runs/s"),
    (f"{FILES:,} files, {FILES_A_RUN} a run", "files/s"),
)
_numbers = count_from()
_CLOSED: Final = "SELECT count(*) FROM inbox_file WHERE status = 'SUCCESS'"


def run(url: str) -> Iterator[Figure]:
    """Rates of all nodes together, and those of several nodes by the rate of one. PostgreSQL alone."""
    if url.startswith("sqlite"):
        return
    for slots, together in ((SLOTS_OF_A_NODE, False), (SLOTS, True)):
        for nodes in NODES:
            one = _measure(url, 1, slots)
            many = _measure(url, nodes, slots // nodes if together else slots)
            shown = f"{slots} slots {'together' if together else 'each'}"
            for (what, unit), alone, several in zip(WORK, one, many, strict=True):
                yield Figure("B16", f"{what}, {shown}, 1 node", "PostgreSQL", alone, unit)
                yield Figure("B16", f"{what}, {shown}, {nodes} nodes", "PostgreSQL", several, unit)
                ratios = [both / single for both, single in zip(sorted(several), sorted(alone), strict=True)]
                yield Figure("B16", f"{what}, {shown}, {nodes} nodes : 1 node", "PostgreSQL", ratios, "", "≥ 0.9")


def _measure(url: str, nodes: int, slots: int) -> tuple[list[float], list[float]]:
    """Return the rates of runs, and those of files, with so many nodes of so many slots each."""
    address = _database(url)
    with running_project(address, f"from pathlib import Path\n{APP}{STREAM}", slots=slots, nodes=nodes) as mill:
        runs = [measure_round(mill, number) for number in range(ROUNDS + 1)][1:]
        return runs, [_measure_files(mill, number) for number in range(ROUNDS + 1)][1:]


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


def _database(url: str) -> str:
    """Make a database of its own, so that no number of nodes works on the history of another."""
    name = f"b16_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return f"{url.rpartition('/')[0]}/{name}"
