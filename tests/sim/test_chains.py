"""Simulated schedules of sessions and cascades; the whole campaign is `python -m tests.sim.chains`."""

from __future__ import annotations

from typing import Final

import pytest

from tests.seed_of_the_day import TODAY
from tests.sim.chains import open_chain
from tests.sim.stories import play_each

FIXED: Final = range(6)
OF_THE_DAY: Final = range(TODAY * 1000, TODAY * 1000 + 6)


@pytest.mark.proof
@pytest.mark.parametrize(
    "seeds",
    [FIXED, OF_THE_DAY, pytest.param(range(6, 60), marks=pytest.mark.long)],
    ids=["fixed", "of the day", "more"],
)
def test_races_and_kills_lose_and_double_no_session_and_no_window_of_windows(memory_folder, seeds):
    """Two runs at once, each stopped or killed at a mark, with late data, other gaps and resets."""
    broken = {seed: said for seed, said in play_each(open_chain, "chains", seeds, memory_folder) if said}

    assert broken == {}
