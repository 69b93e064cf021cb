"""WatermarkStands: each stand that is long enough fires once, at its time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from tidemill.schedule.misfires import find_stand
from tidemill.schedule.standstill_triggers import WatermarkStands

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@given(st.integers(1, 20), st.lists(st.integers(1, 60), max_size=12))
def test_each_stand_fires_once_and_in_time(minutes, gaps):
    """While a scheduler is at work, whatever the moves are: the timer misses no stand, and is not late."""
    leaf = WatermarkStands("clicks", minutes * MINUTE)
    moves = [NOON, *(NOON + minute * MINUTE for minute in accumulate(gaps))]
    end = moves[-1] + timedelta(hours=2)
    expected = [since + leaf.duration for since, until in pairwise([*moves, end]) if since + leaf.duration < until]
    fired, looks, timer = [], 0, None

    for since, until in pairwise([*moves, end]):
        timer = timer or since + leaf.duration
        while timer is not None and timer < until:
            due = find_stand(leaf, since, timer)
            fired += due.fires
            assert due.fires in ((), (timer,))
            assert due.parked or due.next_fire > timer
            timer, looks = None if due.parked else due.next_fire, looks + 1

    assert fired == expected
    assert looks <= 2 * len(moves)
