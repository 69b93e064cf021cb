from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.durations import BadDuration, BadLease, format_duration, parse_duration, parse_lease


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4h", timedelta(hours=4)),
        ("30m", timedelta(minutes=30)),
        ("90s", timedelta(seconds=90)),
        ("1h30m", timedelta(hours=1, minutes=30)),
        ("7d", timedelta(days=7)),
        ("250ms", timedelta(milliseconds=250)),
        ("0s", timedelta(0)),
        ("15 min", timedelta(minutes=15)),
        ("1 day 12 hours", timedelta(days=1, hours=12)),
        ("2 weeks", timedelta(weeks=2)),
        ("4H", timedelta(hours=4)),
        ("5000 us", timedelta(milliseconds=5)),
    ],
)
def test_text_with_units_is_a_duration(text, expected):
    """The form in which everybody writes schedules, configuration and options."""
    assert parse_duration(text) == expected


@pytest.mark.parametrize(
    "given",
    [
        "",
        "4",
        4,
        4.0,
        None,
        True,
        "h",
        "-4h",
        "1.5h",
        "30m1h",
        "4h4h",
        "99999999d",
        "٤h",
        "1M",
        "1 month",
        "4 hh",
        "999999999 weeks",
        "7 ns",
    ],
)
def test_what_has_no_clear_unit_is_refused(given):
    """A bare 30 is minutes to one reader and seconds to the next."""
    with pytest.raises(BadDuration, match="is refused"):
        parse_duration(given)


def test_less_than_a_millisecond_is_refused():
    """The catalog stores milliseconds: what it cannot keep must not be accepted."""
    with pytest.raises(BadDuration):
        parse_duration(timedelta(microseconds=1500))


@given(st.integers(0, 10**12))
def test_what_is_written_is_read_back(milliseconds):
    """A schedule's stored form is text: a duration that changed on the way would change the schedule."""
    duration = timedelta(milliseconds=milliseconds)

    assert parse_duration(format_duration(duration)) == duration


@pytest.mark.parametrize("given", ["0s", "4999ms", "3601s", "10d", timedelta(days=10)])
def test_a_lease_has_the_bounds_of_a_run(given):
    """A claim of ten days whose owner died would hold its files for ten days."""
    with pytest.raises(BadLease, match="from 5s to 1h"):
        parse_lease(given)


@pytest.mark.parametrize("given", ["5s", "1h"])
def test_the_bounds_of_a_lease_are_leases(given):
    """The message names both bounds, so both must be accepted."""
    assert parse_lease(given) == parse_duration(given)
