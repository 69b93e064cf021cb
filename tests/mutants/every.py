"""All mutants, in the order of their rooms."""

from __future__ import annotations

from typing import Final

from tests.mutants import (
    of_consumers,
    of_retention,
    of_runs,
    of_scheduler,
    of_snapshots,
    of_transactions,
    of_windows,
)

MUTANTS: Final = (
    *of_transactions.MUTANTS,
    *of_consumers.MUTANTS,
    *of_runs.MUTANTS,
    *of_scheduler.MUTANTS,
    *of_snapshots.MUTANTS,
    *of_windows.MUTANTS,
    *of_retention.MUTANTS,
)
