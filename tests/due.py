"""Runs that are due now, as a runner looks for them."""

from __future__ import annotations

from tidemill.catalog.db import Db
from tidemill.run.step.attempts import due_runs


def is_any_due(db: Db) -> bool:
    """Return whether a run waits and is due now."""
    found = db.look(*due_runs(workers_only=False, with_spark=True, avoided=())).found
    return any(one is not None for one in found)
