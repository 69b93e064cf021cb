"""Runs that a test takes as a runner does."""

from __future__ import annotations

from typing import Any

from tidemill.catalog.db import Db
from tidemill.run.records.runs import RunRecord
from tidemill.run.step import attempts


def take_runs(db: Db, **options: Any) -> list[RunRecord]:
    """Take runs that are due, and return them without their programs."""
    return [run for run, _ in attempts.take_runs(db, **options)]
