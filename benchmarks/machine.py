"""The machine of a benchmark: its parts, and how fast it does known work at the moment."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import apsw
import psutil
import psycopg

_REPEATED: Final = 5


def describe_machine(postgres: str, folder: str) -> dict[str, str]:
    """Return what the figures depend on. `postgres` is the server that they are measured with."""
    with psycopg.connect(postgres) as connection:
        server = connection.info.parameter_status("server_version")
        fsync = connection.execute("SHOW fsync").fetchone()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "Tidemill": f"{version('tidemill')}, commit {_commit()}",
        "cores": str(os.cpu_count()),
        "memory": f"{psutil.virtual_memory().total / 2**30:.0f} GiB",
        "load before": f"{os.getloadavg()[0]:.1f}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "SQLite": f"{apsw.sqlite_lib_version()} (apsw {version('apsw')}), synchronous FULL",
        "PostgreSQL": f"{server} (psycopg {version('psycopg')}), fsync {fsync[0] if fsync else '?'}",
        "disk": folder.rpartition("/")[0],
    }


def _commit() -> str:
    """Return the commit of the clone, with a mark if files were changed."""
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def measure_yardsticks(folder: str) -> dict[str, float]:
    """Return the medians of known work, in milliseconds, and the load: machines differ, and so do their hours."""
    file = Path(folder) / "yardstick"

    def start_python() -> None:
        subprocess.run([sys.executable, "-c", "pass"], check=True)

    def add() -> None:
        total = 0
        for number in range(1_000_000):
            total += number

    with file.open("wb") as written:

        def sync() -> None:
            written.write(b"x" * 4096)
            written.flush()
            os.fsync(written.fileno())

        return {
            "`python -c pass` (ms)": _repeat(start_python),
            "a million additions (ms)": _repeat(add),
            "fsync of 4 KiB (ms)": _repeat(sync),
            "load": round(os.getloadavg()[0], 1),
        }


def _repeat(work: Callable[[], None]) -> float:
    durations = []
    for _ in range(_REPEATED):
        started = time.perf_counter()
        work()
        durations.append((time.perf_counter() - started) * 1000)
    return round(statistics.median(durations), 2)
