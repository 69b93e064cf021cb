"""Arrival expectations: deadlines by duration and by the clock, and declarations that are refused."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill as tm
from tidemill.json_specs import read_plain, write_plain
from tidemill.shapes.expectation import ArrivalState, BadExpectation

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAILY = tm.Arrivals(cron="0 6 * * *", grace="2h")
MOMENTS = st.integers(0, 40 * 86_400_000).map(lambda ms: NOON + timedelta(milliseconds=ms))
EXPECTATIONS = st.one_of(
    st.builds(
        lambda every, grace: tm.Arrivals(every=timedelta(seconds=every), grace=timedelta(seconds=grace)),
        st.integers(1, 10**6),
        st.integers(0, 10**6),
    ),
    st.builds(
        lambda cron, zone, grace: tm.Arrivals(cron=cron, zone=zone, grace=timedelta(minutes=grace)),
        st.sampled_from(["0 6 * * *", "*/20 * * * *", "30 2 * * 1", "0 0 1 * *"]),
        st.sampled_from(["UTC", "Europe/Berlin", "America/New_York"]),
        st.integers(0, 3000),
    ),
)


def at(text: str) -> datetime:
    """Return the time of that day and hour in March 2026."""
    return datetime.strptime(f"2026-03-{text}", "%Y-%m-%d %H:%M").replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("arrived", "expected_by", "broken_at"),
    [
        (None, "02 06:00", "02 08:00"),
        ("01 06:30", "02 06:00", "02 08:00"),
        ("01 09:00", "03 06:00", "03 08:00"),
        ("02 05:00", "03 06:00", "03 08:00"),
        # Within the grace: for the period that has just ended, and not for the next.
        ("02 07:59", "03 06:00", "03 08:00"),
        ("02 08:00", "04 06:00", "04 08:00"),
        ("03 05:59", "04 06:00", "04 08:00"),
    ],
)
def test_by_the_clock_each_arrival_counts_for_one_period(arrived, expected_by, broken_at):
    """A delivery that is an hour late does not stand for the delivery of the next day."""
    deadline = DAILY.find_deadline(NOON, None if arrived is None else at(arrived))

    assert deadline == (at(expected_by), at(broken_at))


def test_a_duration_counts_from_the_last_arrival_or_from_the_declaration():
    """An arrival before the declaration gives no earlier deadline."""
    every = tm.Arrivals(every="6h", grace="1h")

    assert every.find_deadline(NOON, None) == (at("01 18:00"), at("01 19:00"))
    assert every.find_deadline(NOON, at("01 03:00")) == (at("01 18:00"), at("01 19:00"))
    assert every.find_deadline(NOON, at("01 17:00")) == (at("01 23:00"), at("02 00:00"))


@pytest.mark.parametrize(
    ("now", "state"),
    [("01 17:59", ArrivalState.KEPT), ("01 18:00", ArrivalState.LATE), ("01 19:00", ArrivalState.BROKEN)],
)
def test_an_expectation_is_late_for_its_grace_and_then_broken(now, state):
    """The grace is time for a look at the sender."""
    assert tm.Arrivals(every="6h", grace="1h").find_deadline(NOON, None).state(at(now)) is state


@given(EXPECTATIONS, MOMENTS, st.none() | MOMENTS, MOMENTS)
def test_deadlines_lie_ahead_and_never_move_back(expect, since, arrived, later):
    """A later arrival keeps the expectation at least as long, and no arrival leaves a deadline behind itself."""
    deadline = expect.find_deadline(since, arrived)
    last = max(later, arrived or later)
    moved = expect.find_deadline(since, last)

    assert since < deadline.expected_by <= deadline.broken_at
    assert moved.broken_at >= deadline.broken_at
    assert moved.broken_at > last


@given(EXPECTATIONS)
def test_the_json_form_is_read_as_the_same_expectation(expect):
    """The spec of the data set keeps it."""
    assert read_plain(tm.Arrivals, json.loads(json.dumps(write_plain(expect)))) == expect


@pytest.mark.parametrize(
    ("given_fields", "field", "why"),
    [
        ({}, "every", "give either every='1d' or cron="),
        ({"every": "1d", "cron": "@daily"}, "every", "give either every='1d' or cron="),
        ({"every": "0s"}, "every", "shorter than 1s"),
        ({"every": "-1d"}, "every", "use text with units"),
        ({"every": timedelta(days=-1)}, "every", "use text with units"),
        ({"every": 5}, "every", "use text with units"),
        ({"every": "1d", "grace": "soon"}, "grace", "use text with units"),
        ({"every": "1d", "zone": "Europe/Berlin"}, "zone", "only cron= has a zone"),
        ({"cron": "6 o'clock"}, "cron", "fields"),
        ({"cron": 6}, "cron", "must be text"),
        ({"cron": "@daily", "zone": "Europe/Berln"}, "cron", "Europe/Berlin"),
    ],
)
def test_a_wrong_declaration_is_refused_with_its_field_and_a_cure(given_fields, field, why):
    """When it is made: the line of the app file is the one of the error."""
    with pytest.raises(BadExpectation) as caught:
        tm.Arrivals(**given_fields)

    assert caught.value.field == field
    assert why in str(caught.value)


@pytest.mark.parametrize("declare", ["inbox", "fileset", "snapshot"])
def test_another_value_than_an_expectation_is_refused(declare):
    """As `expect="1d"` is."""
    app = tm.App("shop")
    given_fields = {
        "inbox": {"location": "landing", "format": "text"},
        "fileset": {"keys": {"day": "date"}},
        "snapshot": {},
    }

    with pytest.raises(BadExpectation, match=r"write expect=tm.Arrivals\(every='1d'\)"):
        getattr(app, declare)("raw", expect="1d", **given_fields[declare])
    assert app.datasets == {}
