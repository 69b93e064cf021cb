"""Calls of window functions: their arguments by place and by name, intervals, offsets, and what one run computes."""

from __future__ import annotations

from datetime import datetime

import pytest

from tidemill.lake.window.window_plan import Grid, Limits, Reached, Stored, WindowShape, plan
from tidemill.shapes.partition_time import Instant, Zone, from_wall, to_wall
from tidemill.sql.dialect import BadStatement
from tidemill.sql.windows import read_query

SECOND = 1_000_000
MINUTE, HOUR = 60 * SECOND, 3600 * SECOND
DAY = 24 * HOUR
HOURS = [f"INTERVAL '{number}' HOUR" for number in range(4)]
TS = "DESCRIPTOR(ts)"
HALF = "INTERVAL '30' MINUTE"


def shape_of(call: str) -> WindowShape:
    """Return the windows of a call."""
    return read_query(f"INSERT INTO o SELECT window_end FROM TABLE({call})").shape


@pytest.mark.parametrize(
    ("interval", "micros"),
    [
        ("'90' MINUTES", 90 * MINUTE),
        ("'5' MICROSECONDS", 5),
        ("'1.5' SECOND", 1_500_000),
        ("'1 12' DAY TO HOUR", 36 * HOUR),
        ("'1 02:03:04.000005' DAY TO SECOND", 26 * HOUR + 3 * MINUTE + 4 * SECOND + 5),
        ("'01:30' HOUR TO MINUTE", 90 * MINUTE),
        ("'2:30' MINUTE TO SECOND", 150 * SECOND),
    ],
)
def test_a_size_is_any_day_time_interval(interval, micros):
    """As Flink and Spark write them."""
    assert shape_of(f"TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL {interval})") == WindowShape(micros, micros, 0)


@pytest.mark.parametrize(
    "interval",
    ["'1.5' HOUR", "'1' YEAR", "'1 2' HOUR TO MINUTE TO", "'1' DAY TO HOUR", "'a' HOUR", "'1-2' YEAR TO MONTH"],
)
def test_another_interval_is_refused(interval):
    """A month has no fixed length, and half an hour is 30 minutes."""
    with pytest.raises(BadStatement):
        shape_of(f"TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL {interval})")


@pytest.mark.parametrize(
    ("call", "shape"),
    [
        ("TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' DAY, INTERVAL '-8' HOURS)", WindowShape(DAY, DAY, -8 * HOUR)),
        ("TUMBLE(TABLE c, DESCRIPTOR(ts), INTERVAL '1' DAY, -INTERVAL '8' HOUR)", WindowShape(DAY, DAY, -8 * HOUR)),
        (
            "TUMBLE(OFFSET => INTERVAL '8' HOUR, SIZE => INTERVAL '1' DAY, TIMECOL => DESCRIPTOR(ts), DATA => TABLE c)",
            WindowShape(DAY, DAY, 8 * HOUR),
        ),
        (
            f"HOP(DATA => TABLE c, SIZE => {HOURS[3]}, SLIDE => {HOURS[1]}, OFFSET => {HALF}, TIMECOL => {TS})",
            WindowShape(3 * HOUR, HOUR, 30 * MINUTE),
        ),
        (
            "CUMULATE(TABLE c, DESCRIPTOR(ts), INTERVAL '6' HOUR, INTERVAL '1' DAY, INTERVAL '6' HOUR)",
            WindowShape(DAY, 6 * HOUR, 6 * HOUR, cumulative=True),
        ),
    ],
)
def test_arguments_are_given_by_place_or_by_name(call, shape):
    """With an offset, which is shorter than the slide, or the size of CUMULATE."""
    assert shape_of(call) == shape


@pytest.mark.parametrize(
    ("shape", "windows"),
    [
        (WindowShape(DAY, DAY, 8 * HOUR), [("18T08", "19T08")]),
        (WindowShape(DAY, DAY, -8 * HOUR), [("18T16", "19T16")]),
        (
            WindowShape(3 * HOUR, HOUR, HOUR // 2),
            [("19T03:30", "19T06:30"), ("19T04:30", "19T07:30"), ("19T05:30", "19T08:30")],
        ),
        (
            WindowShape(DAY, 12 * HOUR, 6 * HOUR, cumulative=True),
            [("18T06", "19T06"), ("19T06", "19T18"), ("19T06", "20T06")],
        ),
    ],
)
def test_an_offset_moves_the_begin_of_each_window(shape, windows):
    """A row of 05:59 and, of CUMULATE, one of 06:00 too, on the 19th."""
    late = to_wall(datetime(2021, 3, 19, 6 if shape.cumulative else 5, 0 if shape.cumulative else 59))  # noqa: DTZ001  # wall clock
    early = to_wall(datetime(2021, 3, 19, 5, 59))  # noqa: DTZ001  # as above

    found = [(from_wall(start), from_wall(end)) for start, end in shape.list_between(early, late)]

    assert [*map(str, (time for window in found for time in window))] == [
        str(datetime.fromisoformat(f"2021-03-{time}")) for window in windows for time in window
    ]


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        (Limits(100, 100, 1000), 6),
        (Limits(100, 4, 1000), 2),
        (Limits(100, 100, 29), 1),
        (Limits(100, 100, 1), 1),
        (Limits(3, 100, 1000), 3),
    ],
)
def test_a_run_stops_at_the_first_of_its_limits(limits, taken):
    """Six hours of two partitions with 10 bytes each; one window is computed however large it is."""
    hours = range(6)
    stored = [Stored(f"{hour}-{of}", hour * HOUR, (hour + 1) * HOUR, 10) for hour in hours for of in ("eu", "us")]
    reached = Reached(None, 0, Instant(6 * HOUR), 1)

    planned = plan(Grid(WindowShape(HOUR, HOUR, 0), Zone("UTC")), reached, stored, set(), (), limits)

    assert [window.start // HOUR for window in planned.new] == [*range(taken)]
    assert (planned.computed, planned.more) == (taken * HOUR, taken < 6)
