"""B13: how long a person waits: `tidemill --help`, a list, and `tidemill up` of a new project until it is ready.

Each sample is a process of its own, whose modules are compiled; beside it what Python and click alone take.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.table import Figure
from tidemill.catalog.engine import open_catalog
from tidemill.starter.starter import write_project
from tidemill.world import World

SAMPLES = 11
TIDEMILL = [sys.executable, "-c", "from tidemill.cli.main import main; main()"]


def run(url: str) -> Iterator[Figure]:
    """Measure on the database at `url`."""
    database = "SQLite" if url.startswith("sqlite") else "PostgreSQL"
    if database == "SQLite":
        yield Figure("B13", "python -c pass", "-", _repeat([sys.executable, "-c", "pass"]), "s")
        yield Figure("B13", "python -c 'import click'", "-", _repeat([sys.executable, "-c", "import click"]), "s")
        yield Figure("B13", "tidemill --help", "-", _repeat([*TIDEMILL, "--help"]), "s", "≤ 0.2 s")
    open_catalog(url, World()).close()
    with tempfile.TemporaryDirectory(prefix="tidemill-b13-") as folder:
        project = Path(folder) / "shop"
        write_project(World(), project)
        _until_ready(project, url)  # what is made once: compiled modules, the state folder
        listed = [*TIDEMILL, "--project", str(project), "--catalog", url, "run", "list"]
        yield Figure("B13", "tidemill run list", database, _repeat(listed), "s", "≤ 0.3 s")
        samples = [_until_ready(project, url) for _ in range(SAMPLES)]
    yield Figure("B13", "tidemill up until ready", database, samples, "s", "≤ 2 s")


def _repeat(command: list[str]) -> list[float]:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    once()
    return [once() for _ in range(SAMPLES)]


def _until_ready(project: Path, url: str) -> float:
    """From the start of the process to its line `ready`; Spark warms up meanwhile, and is ended with it."""
    start = time.perf_counter()
    up = subprocess.Popen(
        [*TIDEMILL, "--project", str(project), "--catalog", url, "up"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "TIDEMILL_SPARK_CLASS_DATA": "false"},
    )
    assert up.stdout is not None
    line = up.stdout.readline()
    taken = time.perf_counter() - start
    assert " ready " in line, line
    up.send_signal(signal.SIGINT)
    up.communicate()
    return taken
