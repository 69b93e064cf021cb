"""A short storm over real processes on each database; the long one is `make chaos` (docs/proof.md)."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from tests.chaos.campaign import run_campaign
from tests.chaos.site import Site, rows_of
from tests.chaos.verdict import Judge
from tests.manual_clock import backdoor_of
from tests.seed_of_the_day import TODAY
from tidemill.catalog.engine import open_catalog
from tidemill.run.processes.external import open_transaction
from tidemill.testing.plain import write_texts
from tidemill.world import World

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


def test_the_judge_waits_for_the_janitor_to_delete_unfinished_uploads(tmp_path: Path):
    """A process that is killed while it marks a commit leaves one. `tidemill catalog fsck` names it for a day."""
    site = Site(tmp_path / "site", f"sqlite:///{tmp_path / 'catalog.db'}", timedelta(seconds=5))
    site.set_up()
    with backdoor_of(site.catalog_url) as sql, closing(open_catalog(site.catalog_url, World())) as catalog:
        with open_transaction(catalog, World(), ["default.lines"], lease=site.lease, writer=write_texts) as tx:
            tx.fileset("default.lines").append({(0, 0): rows_of(0, 0)})
        (directory,) = (site.folder / "data" / "lines").glob("tx-*")
        upload = directory / "_committed#1"
        upload.touch()

        verdict = Judge(site, catalog, sql).judge()

    assert verdict.audited == []
    assert not upload.exists()
