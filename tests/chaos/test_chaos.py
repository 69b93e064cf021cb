"""A short storm over real processes on each database; the long one is `make chaos` (docs/proof.md)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.chaos.campaign import run_campaign
from tests.seed_of_the_day import TODAY

SEEDS = (1, TODAY)


@pytest.mark.proof
@pytest.mark.slow
@pytest.mark.share("sqlite-0")
@pytest.mark.parametrize(("database", "crashes"), [("sqlite", 0), ("postgres", 1)])
def test_nothing_is_lost_doubled_dirty_or_orphaned_when_processes_die(database: str, crashes: int, tmp_path: Path):
    """Killed and stopped at any moment, and PostgreSQL crashed as well: what was committed is there, once."""
    outcome = run_campaign(
        database, seconds=10, seeds=SEEDS, lease=timedelta(seconds=2), crashes=crashes, folder=tmp_path
    )

    again = f"TIDEMILL_SEED={SEEDS[-1]} to see the same faults again; look at {outcome.folder}"
    assert outcome.verdict.holds, (outcome.verdict.findings, again)
    assert len(outcome.crashes) == crashes
    assert outcome.verdict.counts["runs of programs completed"] > 0
