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
    """While a scheduler is at work: the timer looks about once a duration, misses no stand, and is not late."""
    leaf = WatermarkStands("clicks", minutes * MINUTE)
    moves = [NOON, *(NOON + minute * MINUTE for minute in accumulate(gaps))]
    end = moves[-1] + timedelta(hours=2)
    expected = [since + leaf.duration for since, until in pairwise([*moves, end]) if since + leaf.duration < until]
    fired, at, last, looks = [], leaf.next_fire(NOON), None, 0

    while at < end:
        since = max(move for move in moves if move <= at)
        due = find_stand(leaf, since, last, at)
        fired += due.fires
        assert all(fire == at for fire in due.fires)
        assert due.next_fire > at
        at, last, looks = due.next_fire, due.counted_from, looks + 1

    # A move at the very end of a duration may come before or after the look.
    assert [fire for fire in fired if fire not in moves] == [fire for fire in expected if fire not in moves]
    assert looks <= 2 * (end - NOON) / leaf.duration + 1


@given(st.lists(st.integers(1, 60), max_size=12), st.lists(st.integers(0, 90), max_size=30))
def test_a_scheduler_that_comes_and_goes_fires_no_stand_twice(gaps, looks):
    """A look comes at any time after the timer is due."""
    leaf = WatermarkStands("clicks", "30m")
    moves = [NOON, *(NOON + minute * MINUTE for minute in accumulate(gaps))]
    fired, at, last = [], leaf.next_fire(NOON), None

    for look in looks:
        now = at + look * MINUTE
        due = find_stand(leaf, max(move for move in moves if move <= now), last, now)
        fired += due.fires
        at, last = due.next_fire, due.counted_from

    assert len(set(fired)) == len(fired)
    assert {fire - leaf.duration for fire in fired} <= set(moves)
