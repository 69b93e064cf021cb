"""Moments and epoch milliseconds: what is cut off, and that order stays."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.records import to_json, to_stored
from tidemill.epoch import EPOCH, floor_ms, from_micros, from_ms, show_time, to_micros, to_ms

ZONES = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30)), timezone(-timedelta(hours=8))])
SINCE = st.timedeltas(timedelta(days=-25_000), timedelta(days=80_000))
MOMENTS = st.builds(lambda since, zone: (EPOCH + since).astimezone(zone), SINCE, ZONES)
EARLIER_AND_LATER = st.builds(lambda at, by: (at, at + timedelta(microseconds=by)), MOMENTS, st.integers(0, 3000))


@given(MOMENTS)
def test_a_moment_comes_back_from_the_catalog_as_the_begin_of_its_millisecond(moment: datetime) -> None:
    """Also before 1970: nothing is rounded up into a millisecond that has not come."""
    assert from_ms(to_ms(moment)) == floor_ms(moment)
    assert timedelta(0) <= moment - floor_ms(moment) < timedelta(milliseconds=1)


@given(MOMENTS)
def test_a_moment_of_a_partition_comes_back_whole(moment: datetime) -> None:
    """Partition times and the times of files are in microseconds, as those of Python."""
    assert from_micros(to_micros(moment)) == moment


@given(EARLIER_AND_LATER)
def test_moments_compare_in_python_as_their_milliseconds_do_in_sql(pair: tuple[datetime, datetime]) -> None:
    """A time of a user with microseconds is not after the time of the catalog in the same millisecond."""
    one, other = pair

    assert (floor_ms(one) < floor_ms(other)) == (to_ms(one) < to_ms(other))
    assert (floor_ms(one) == floor_ms(other)) == (to_ms(one) == to_ms(other))
    assert (show_time(one) < show_time(other)) == (to_ms(one) < to_ms(other))


@given(MOMENTS, st.timedeltas(timedelta(0), timedelta(days=40)))
def test_times_in_the_rows_of_a_parameter_are_as_those_of_a_parameter_itself(at: datetime, wait: timedelta) -> None:
    """Both go through one function."""
    rows = [{"at": at, "wait": wait, "deadline": None, "fires": (at, EPOCH)}]

    plain = [{"at": to_stored(at), "wait": to_stored(wait), "deadline": None, "fires": [to_ms(at), 0]}]
    assert json.loads(to_json(rows)) == plain
