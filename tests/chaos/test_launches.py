"""Schedulers that are killed while they launch runs under limits, in a short form (tests/chaos/launches.py)."""

from __future__ import annotations

import pytest

from tests.chaos.launches import campaign


@pytest.mark.proof
@pytest.mark.long
def test_killed_schedulers_lose_and_double_no_launch_and_pass_no_limit(postgres_catalog_url):
    """Four processes on one catalog, of which one is killed every half second."""
    figures = campaign(postgres_catalog_url, launches=60, seed=1, kill_every=0.5)

    assert figures.breaches == []
    assert figures.kills > 0
    assert (figures.most["program"], figures.most["group"]) == (2, 4)
