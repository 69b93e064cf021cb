"""A yardstick for time-outs: how slow this machine is, measured once at the start of a test run.

Time-outs are written for a machine that starts Python in `USUAL`. On a slower machine `patience` makes them longer, so
that a slow test is not taken for one that hangs. A process that is started by the tests inherits the measured figure.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Final

SLOWNESS: Final = "TIDEMILL_TEST_SLOWNESS"
USUAL: Final = 0.018
"""Seconds that `python -c pass` takes on the machine for which the time-outs are written."""
_MEASURED: Final = 5


def slowness() -> float:
    """Return the factor by which this machine is slower than the usual one, at least 1."""
    if SLOWNESS not in os.environ:
        os.environ[SLOWNESS] = str(round(max(1.0, _start_python() / USUAL), 1))
    return float(os.environ[SLOWNESS])


def patience(seconds: float) -> float:
    """Return the time-out of this machine for what takes less than `seconds` on the usual one."""
    return seconds * slowness()


def _start_python() -> float:
    """Return the median seconds of a few starts of Python."""
    durations = []
    for _ in range(_MEASURED):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        durations.append(time.perf_counter() - started)
    return statistics.median(durations)
