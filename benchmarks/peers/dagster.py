"""Dagster beside B1: its daemon with a sensor that looks each second, and starts a job at each event of an asset."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Final

from benchmarks.peers.environments import INSIDE, PeerMissing
from benchmarks.processes import ending_processes
from benchmarks.project import lines_of

SAMPLES: Final = 10
_PATIENCE: Final = 60.0
_QUIET: Final = 2.0


def measure_first_lines(python: Path) -> list[float]:
    """Return milliseconds from the event's return to the first line of the job's step. Raises `PeerMissing`."""
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-dagster-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        (home / "dagster.yaml").touch()
        environment = {**os.environ, "DAGSTER_HOME": folder, "BENCH_LINES": str(home / "lines")}
        environment.pop("PYTHONPATH", None)
        daemon = [str(python.with_name("dagster-daemon")), "run", "-f", str(INSIDE / "asset_sensor.py")]
        with (home / "log").open("wb") as log, ending_processes():
            process = subprocess.Popen(
                daemon, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True
            )
            events = subprocess.Popen(
                [str(python), "-P", str(INSIDE / "asset_events.py")],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            # The first event is the warm-up: it waits for the daemon too.
            return [_sample(events, process, home / "lines", number) for number in range(1 + SAMPLES)][1:]


def _sample(events: subprocess.Popen[str], daemon: subprocess.Popen[bytes], lines: Path, number: int) -> float:
    assert events.stdin is not None
    assert events.stdout is not None
    events.stdin.write("\n")
    events.stdin.flush()
    answer = events.stdout.readline()
    if not answer:
        raise PeerMissing(f"its events failed with exit code {events.wait()}")
    deadline = time.monotonic() + _PATIENCE
    while len(lines_of(lines)) <= number:
        if daemon.poll() is not None or time.monotonic() > deadline:
            raise PeerMissing(f"its job did not begin within {_PATIENCE:.0f} s")
        time.sleep(0.005)
    time.sleep(_QUIET)
    return (float(lines_of(lines)[number]) - float(answer)) * 1000
