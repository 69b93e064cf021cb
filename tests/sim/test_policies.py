"""Simulated schedules over tables of other kinds; the whole campaign is `python -m tests.sim.policies`."""

from __future__ import annotations

from typing import Final

import pytest

from tests.seed_of_the_day import TODAY
from tests.sim.policies import open_policy
from tests.sim.stories import play_each

FIXED: Final = range(4)
OF_THE_DAY: Final = range(TODAY * 1000, TODAY * 1000 + 6)


@pytest.mark.proof
@pytest.mark.parametrize(
    "seeds",
    [FIXED, *(pytest.param(seeds, marks=pytest.mark.long) for seeds in (OF_THE_DAY, range(4, 24)))],
    ids=["fixed", "of the day", "more"],
)
def test_races_and_kills_lose_and_double_no_window_whatever_the_table_is(memory_folder, seeds):
    """Rows outside that count, custom extractors, monitored tables, windows on demand, and a window or two a run."""
    broken = {seed: said for seed, said in play_each(open_policy, "policies", seeds, memory_folder) if said}

    assert broken == {}
