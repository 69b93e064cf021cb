"""Schedulers that are killed while schedules fire each second, in a short form (tests/chaos/takeover.py)."""

from __future__ import annotations

import pytest

from tests.chaos.takeover import campaign


@pytest.mark.proof
def test_another_scheduler_takes_over_and_no_fire_is_skipped(postgres_catalog_url):
    """R15 with five kills."""
    figures = campaign(postgres_catalog_url, kills=5, seed=1)

    assert figures.breaches == []
    assert figures.fires >= 40
