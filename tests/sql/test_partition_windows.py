"""Windows by partition: each row gets the windows that it would get by its own time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.lake.window.window_plan import WindowShape
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import FileTimes
from tidemill.shapes.partition_time import Zone, to_wall
from tidemill.sql.partition_windows import find_windows

MINUTE = 60_000_000
HOUR = 60 * MINUTE
SHAPES = [
    WindowShape(HOUR, HOUR, 0),
    WindowShape(HOUR // 2, HOUR // 2, 10 * MINUTE),
    WindowShape(2 * HOUR, HOUR, 0),
    WindowShape(3 * HOUR, HOUR, 0, cumulative=True),
]
# On these days the clocks go back by an hour, on by an hour, and back by half an hour.
CHANGES = {
    "America/New_York": 1_636_264_800_000_000,
    "Europe/Berlin": 1_616_893_200_000_000,
    "Australia/Lord_Howe": 1_617_462_000_000_000,
}


@st.composite
def partitions(draw):
    """A zone, and the minutes of the rows of two partitions, near the change of the zone's clock."""
    zone = draw(st.sampled_from([*CHANGES, "UTC"]))
    near = CHANGES.get(zone, 0)
    begin = st.integers(-8, 3).map(lambda tens: near + tens * 10 * MINUTE)
    rows = st.tuples(begin, st.lists(st.integers(0, 59), min_size=1, max_size=4))
    found = draw(st.lists(rows, min_size=2, max_size=2))
    return Zone(zone), [[first + minute * MINUTE for minute in minutes] for first, minutes in found]


@settings(max_examples=500)
@given(partitions(), st.sampled_from(SHAPES), st.integers(0, 3))
def test_each_row_has_the_windows_of_its_partition_or_there_are_none(drawn, shape, left_out):
    """Some windows are not wanted: they are computed already."""
    zone, rows_of = drawn
    local = [[to_wall(zone.local(row)) for row in rows] for rows in rows_of]
    ends = [wall for walls in local for wall in walls]
    windows = sorted({*shape.list_between(min(ends), max(ends))})[left_out:]
    keys = [KeyText("a"), KeyText("b")]
    times = {key: FileTimes("ts", min(rows), max(rows)) for key, rows in zip(keys, rows_of, strict=True)}

    found = find_windows(times, shape, windows, zone)

    by_row = {
        key: [{window for window in windows if window.start <= wall < window.end} for wall in walls]
        for key, walls in zip(keys, local, strict=True)
    }
    if found is None:
        return
    for key, each in by_row.items():
        assert all(one == {window for of, window in found if of == key} for one in each)


def test_an_hourly_partition_has_its_window():
    """The usual case must not fall back to the times of rows."""
    shape, zone = WindowShape(HOUR, HOUR, 0), Zone("America/New_York")
    times = {KeyText(str(n)): FileTimes("ts", n * HOUR, (n + 1) * HOUR - 1) for n in range(30)}
    windows = list(shape.list_between(to_wall(zone.local(0)), to_wall(zone.local(30 * HOUR - 1))))

    found = find_windows(times, shape, windows, zone)

    assert found == list(zip(times, windows, strict=True))
