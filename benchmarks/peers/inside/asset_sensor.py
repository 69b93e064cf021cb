"""Definitions of Dagster: a sensor that starts a job at each event of an asset; loaded in its environment."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import dagster

BELL = dagster.AssetKey("bell")


@dagster.op
def note() -> None:
    """Write the clock of the machine into a file."""
    now = time.monotonic()
    with Path(os.environ["BENCH_LINES"]).open("a") as file:
        file.write(f"{now}\n")


@dagster.job
def first() -> None:
    """The job that the event starts."""
    note()


@dagster.asset_sensor(
    asset_key=BELL, job=first, minimum_interval_seconds=1, default_status=dagster.DefaultSensorStatus.RUNNING
)
def heard(context: dagster.SensorEvaluationContext, _event: dagster.EventLogEntry) -> Iterator[dagster.RunRequest]:
    """Start the job once for each event."""
    yield dagster.RunRequest(run_key=context.cursor)


definitions = dagster.Definitions(jobs=[first], sensors=[heard])
