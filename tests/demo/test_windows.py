"""The plain count that the demo's windows are compared with."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidemill.demo.windows import count_windows

HOUR = timedelta(hours=1)
TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)


def test_a_window_has_the_flights_of_its_hours_and_only_closed_ones_are_there():
    """A window that is still open would count too few."""
    flights = [TEN, TEN, TEN + 2 * HOUR]

    assert count_windows(flights, HOUR) == {(TEN, TEN + HOUR): 2, (TEN + 2 * HOUR, TEN + 3 * HOUR): 1}
    assert count_windows(flights, 2 * HOUR) == {
        (TEN - HOUR, TEN + HOUR): 2,
        (TEN, TEN + 2 * HOUR): 2,
        (TEN + HOUR, TEN + 3 * HOUR): 1,
    }
