"""Decisions about the items of a backfill."""

from __future__ import annotations

import pytest

from tidemill.run.step.needs import ItemNeed
from tidemill.schedule.backfills import decide_item


@pytest.mark.parametrize(
    ("need", "state"),
    [
        (ItemNeed.MISSING, "RUNNING"),
        (ItemNeed.FAILED, "RUNNING"),
        (ItemNeed.DONE, "DROPPED"),
        (ItemNeed.WAITING, "FAILED"),
        (ItemNeed.RUNNING, "FAILED"),
    ],
)
def test_the_need_of_an_item_decides_what_becomes_of_it(need, state):
    """A partition that another run has is not processed beside that run."""
    decided, why = decide_item(need)

    assert (decided, why != "") == (state, state != "RUNNING")
