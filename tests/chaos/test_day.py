"""A day of schedules with two schedulers that crash, in a short form (tests/chaos/day.py)."""

from __future__ import annotations

import pytest

from tests.chaos.day import campaign


@pytest.mark.proof
@pytest.mark.share("sqlite")
def test_a_day_with_crashes_skips_and_doubles_no_time(catalog_url):
    """R8 with few schedules: hourly, daily and quarter-hourly ones in five zones, and some by duration."""
    figures = campaign(catalog_url, schedules=20, seed=1)

    assert figures.breaches == []
    assert figures.crashes > 0
    assert figures.outages > 0
