"""A few kills of drivers that compute windows; the many are `python -m tests.chaos.windows` (docs/proof.md)."""

from __future__ import annotations

import pytest

from tests.chaos.window_projects import Kind
from tests.chaos.windows import Campaign


@pytest.mark.proof
@pytest.mark.share("sqlite")
def test_windows_are_there_once_though_their_drivers_are_killed(catalog_url, memory_folder):
    """At whatever step a driver dies, the next driver continues from there."""
    campaign = Campaign(memory_folder, catalog_url, Kind.HOP, seed=1)

    campaign.play(kills=3)
    figures = campaign.judge()
    campaign.plain.mill.close()

    assert figures["drivers killed (-9)"] >= 3
    assert figures["windows"] > 0
