"""Spark drivers killed -9 while they write, or stopped: nothing half visible, nothing that goes on, no orphan.

Kills at two of five moments, each day others, and a driver that is stopped with its node: the short form of `python -m
tests.chaos.spark` (`make chaos-spark`). And kills of two parts of a Spark cluster: the short form of `make
chaos-cluster`.
"""

from __future__ import annotations

import random

import pytest

from tests.chaos.spark import MOMENTS, ON_CLUSTER, Blow, Strike, draw, open_site
from tests.seed_of_the_day import TODAY

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof, pytest.mark.long]

SEED = str(TODAY)
MODE = tuple(ON_CLUSTER)[TODAY % len(ON_CLUSTER)]
KILLS = [Strike(Blow.KILL, moment, forks=number % 2 == 0) for number, moment in enumerate(MOMENTS[:5])]


@pytest.fixture
def site(tmp_path, sqlite_catalog_url):
    """A deployed project whose drivers are getting warm."""
    (tmp_path / "project").mkdir()
    with open_site(tmp_path / "project", sqlite_catalog_url) as site:
        yield site


@pytest.fixture
def cluster_site(tmp_path, sqlite_catalog_url):
    """The same on a cluster of two workers, each day with the other place of drivers."""
    (tmp_path / "project").mkdir()
    with open_site(tmp_path / "project", sqlite_catalog_url, MODE) as site:
        yield site


def test_a_cluster_that_loses_a_part_of_any_kind_publishes_each_run_once(cluster_site):
    """A driver, an executor, a worker or the master, each day another part, is killed while a task writes.

    Only the end of a driver costs an attempt.
    """
    for strike in random.Random(SEED).sample(draw(SEED, len(ON_CLUSTER[MODE]), MODE), 1):
        cluster_site.strike(strike)
    cluster_site.clean_up()
    cluster_site.close()

    assert cluster_site.found.wrong == [], f"see it again with TIDEMILL_SEED={SEED}"


def test_drivers_that_are_struck_while_they_write_publish_whole_runs_once_and_leave_nothing(site):
    """A JVM outlived its killed Python, whose child held the pipe, and wrote eight more files (tried)."""
    dice = random.Random(SEED)
    zombie = Strike(Blow.SLEEP, dice.choice(MOMENTS))
    strikes = [dice.choice(KILLS), zombie]

    for strike in strikes:
        site.strike(strike)
    site.clean_up()
    site.close()

    assert site.found.wrong == [], f"{zombie}; see it again with TIDEMILL_SEED={SEED}"
    assert site.found.counts["looks of readers"] > len(strikes)
