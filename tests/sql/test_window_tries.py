"""Computing windows of which some fail: how much is tried, and what is made of it. Windows are numbers here."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tidemill.errors import Unavailable
from tidemill.lake.window.window_plan import Window
from tidemill.shapes.manifest import DamagedFiles
from tidemill.sql.window_tries import MOST_FAILING, Tries, WindowFailed

WINDOWS = [Window(number, number + 1) for number in range(240)]


class Some(Tries):
    """Windows of which `bad` ones fail; each `per` of them need one partition."""

    def __init__(self, bad: Iterable[int], per: int = 1, error: Exception | None = None) -> None:
        self.writes = 0
        self._bad = {*bad}
        self._per = per
        self._error = error or ValueError("a bad row")
        super().__init__(self._put, self._name, self._suspects)

    def _put(self, windows):
        self.writes += 1
        if any(window.start in self._bad for window in windows):
            raise self._error

    def _name(self, window, error):
        return WindowFailed(str(window.start), [str(window.start // self._per)], str(error))

    def _suspects(self, window, failed, others):
        del failed
        alike = [one for one in others if one.start // self._per == window.start // self._per]
        return {one: self._name(one, "not tried") for one in alike}


def numbers(windows: Iterable[Window]) -> list[int]:
    """By which they are called here."""
    return sorted(window.start for window in windows)


@pytest.mark.parametrize("place", [0, 5, 60, 119])
def test_one_window_that_fails_is_found_and_no_other_is_left(place):
    """Also where others need the same partition: a query may fail at a row of one window alone."""
    tries = Some([place], per=12)

    reached = tries.compute(WINDOWS[:120])

    assert reached == 120
    assert (numbers(tries.failed), numbers(tries.untried)) == ([place], [])
    assert numbers(tries.done) == [one for one in range(120) if one != place]
    assert tries.writes < 30


def test_of_a_bad_partition_some_windows_are_tried_and_the_rest_is_taken_to_fail():
    """So that what it costs does not grow with the number of its windows."""
    tries = Some(range(24, 144), per=120)

    reached = tries.compute(WINDOWS)

    assert reached == 240
    assert numbers(tries.done) == [*range(24), *range(144, 240)]
    assert numbers([*tries.failed, *tries.untried]) == [*range(24, 144)]
    assert len(tries.failed) == MOST_FAILING
    assert tries.writes < 80


def test_what_comes_after_too_many_failures_is_left():
    """Each has a cause of its own: to find them all might take hours."""
    tries = Some(range(1, 100))

    reached = tries.compute(WINDOWS)

    assert reached == 1 + MOST_FAILING
    assert (numbers(tries.done), numbers(tries.failed)) == ([0], [*range(1, 9)])


def test_a_query_that_always_fails_is_not_tried_at_each_window():
    """The run has to fail soon, and postpones nothing: there may be thousands of windows."""
    tries = Some(range(240), per=12)

    reached = tries.compute(WINDOWS)
    sound = tries.find_sound(WINDOWS[reached:])

    assert (tries.done, sound) == (set(), False)
    assert tries.writes < 40


def test_a_query_is_sound_when_a_window_that_is_left_can_be_computed():
    """Wherever most of the bad ones are."""
    assert Some(range(200)).find_sound(WINDOWS)
    assert Some(range(100, 240)).find_sound(WINDOWS)
    assert not Some(range(240)).find_sound([])


def test_a_damaged_partition_is_its_windows_doing_and_a_store_that_is_away_is_not():
    """The file may never come back; the store does."""
    damaged = Some([3], error=DamagedFiles("default.clicks", "hour=3", ["a is gone"]))
    away = Some([3], error=Unavailable("the store does not answer"))

    damaged.compute(WINDOWS)
    with pytest.raises(Unavailable, match="does not answer"):
        away.compute(WINDOWS)

    assert numbers(damaged.failed) == [3]
    assert len(damaged.done) == 239
