"""Simulated schedules of window programs over two tables; the whole campaign is `python -m tests.sim.joins`."""

from __future__ import annotations

from typing import Final

import pytest

from tests.seed_of_the_day import TODAY
from tests.sim.joins import open_joined
from tests.sim.stories import play_each
from tidemill.lake.window.reach import WindowReach

FIXED: Final = range(8)
OF_THE_DAY: Final = range(TODAY * 1000, TODAY * 1000 + 8)


@pytest.mark.proof
@pytest.mark.parametrize(
    "seeds",
    [FIXED, OF_THE_DAY, pytest.param(range(8, 60), marks=pytest.mark.long)],
    ids=["fixed", "of the day", "more"],
)
def test_races_and_kills_lose_and_double_no_row_of_a_join(memory_folder, seeds):
    """Two runs at once, each stopped or killed at a mark, with late data of either table and an idle table."""
    broken = {seed: said for seed, said in play_each(open_joined, "joins", seeds, memory_folder) if said}

    assert broken == {}


@pytest.mark.proof
@pytest.mark.parametrize("method", ["closed_by", "needs", "touches"])
def test_a_forgotten_reach_is_found(memory_folder, monkeypatch, method):
    """A simulation that finds nothing would look just like one that cannot find anything."""
    right = getattr(WindowReach, method)
    monkeypatch.setattr(WindowReach, method, lambda _, *given: right(WindowReach(), *given))

    found = any(said for _, said in play_each(open_joined, "joins", range(60), memory_folder / method))

    assert found
