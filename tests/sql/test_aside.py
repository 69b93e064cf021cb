"""Rows that count in no window: late rows, and rows outside the time of their partition, in the side table."""

from __future__ import annotations

import contextlib
import itertools
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.hours import HOP, HOUR, TUMBLE, open_plain
from tests.sql.test_window_program import MARKS, kill, play
from tidemill.lake.window.window_plan import Grid, Window, WindowShape
from tidemill.shapes.partition_time import Zone
from tidemill.sql.window_frames import find_shifts

SIDE = "count_hours_side"
_numbers = itertools.count()


@pytest.fixture
def open_hours(catalog_url, tmp_path):
    """Make hourly windows with policies."""
    with contextlib.ExitStack() as opened:

        def make(more, windows=TUMBLE):
            plain = open_plain(tmp_path / "project", catalog_url, windows=windows, more=more)
            opened.enter_context(contextlib.closing(plain.mill))
            return plain

        yield make


def amounts(plain):
    """The rows of the side table by their amounts, which are minutes here."""
    return sorted(int(line.split()[1]) for line in plain.lines(SIDE))


def names(plain):
    """The partitions of the side table that are there."""
    return [one.partition for one in plain.mill.datasets.partitions(SIDE)]


def left_out(plain):
    """The late rows and the rows outside, as `watermark show` counts them."""
    shown = plain.mill.watermarks.show("clicks").programs[0].left_out
    return shown.late_rows, shown.outside_rows


def notes(plain, run):
    """The notes in the facts of a run."""
    return [text for one in plain.mill.runs.show(run.run_id).facts["outputs"] for text in one.get("notes", [])]


def test_rows_outside_their_partition_are_in_the_side_table_once(open_hours):
    """Three windows read the partition, by three runs. A rewrite of the partition replaces its rows there."""
    plain = open_hours("outside='side'", HOP)
    plain.add("2021-03-19 08:00", 1, 60, -1, 2)
    run = plain.run()
    for hour in (9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
        plain.settle()
    first = amounts(plain), names(plain), left_out(plain), plain.results()["08:00"]
    plain.add("2021-03-19 08:00", 7, 61, how="overwrite")
    plain.settle()
    second = amounts(plain), left_out(plain)
    plain.add("2021-03-19 08:00", 7, how="overwrite")
    plain.settle()

    place = "side_reason=outside side_partition=day=2021-03-19/hour=8"
    assert first == ([-1, 60], [place], (0, 2), 4)
    said = "2 rows of default.clicks (day=2021-03-19 hour=8) lie outside the time of their partition and are in "
    assert f"{said}default.{SIDE}" in notes(plain, run)
    assert second == ([61], (0, 1))
    assert (amounts(plain), names(plain), left_out(plain)) == ([], [], (0, 0))


def test_late_rows_that_count_in_no_open_window_are_in_the_side_table(open_hours):
    """Computed up to 10:00: a row of 08:05 still counts in [08:00, 11:00), a row of 07:03 counts nowhere."""
    plain = open_hours("late='side'", HOP)
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()

    plain.add("2021-03-19 08:00", 5)
    plain.add("2021-03-19 07:00", 3, 4)
    told = plain.is_more()
    run = plain.run()
    kept = amounts(plain), left_out(plain)
    plain.add("2021-03-19 10:00", 1)
    plain.settle()

    assert told
    assert kept == ([3, 4], (2, 0))
    assert notes(plain, run) == [
        f"2 late rows of default.clicks (day=2021-03-19 hour=7) are in default.{SIDE}: their windows are computed"
    ]
    assert plain.results() == {"06:00": 1, "07:00": 2, "08:00": 4}
    assert amounts(plain) == [3, 4]


def test_late_rows_beyond_the_allowed_lateness_are_in_the_side_table(open_hours):
    """Computed up to 11:00, allowed is an hour: [09:00, 10:00) is final, and [10:00, 11:00) is computed again."""
    plain = open_hours("allowed_lateness='1h'")
    for hour in (8, 9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()

    for hour in (8, 9, 10):
        plain.add(f"2021-03-19 {hour:02}:00", hour)
    plain.settle()

    assert plain.results() == {"08:00": 1, "09:00": 1, "10:00": 2}
    assert (amounts(plain), left_out(plain)) == ([8, 9], (2, 0))


def test_rows_of_a_late_partition_outside_its_time_are_no_late_rows(open_hours):
    """The partition is in no batch of the run. Its rows outside are replaced as a whole, its late rows are added."""
    plain = open_hours("late='side', outside='side'")
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()

    for minute in (2, 3):
        plain.add("2021-03-19 08:00", minute, 60 + minute)
        plain.settle()

    assert (amounts(plain), left_out(plain)) == ([2, 3, 62, 63], (2, 2))
    assert len(set(names(plain))) == 2


def test_a_reset_takes_late_rows_out_of_the_side_table(open_hours):
    """All windows are computed again, from all rows: a row counts in its window or is in the side table."""
    plain = open_hours("late='side'")
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    plain.add("2021-03-19 08:00", 2)
    plain.settle()
    before = amounts(plain)

    plain.mill.watermarks.reset("shop.count_hours")
    plain.settle()

    assert before == [2]
    assert (amounts(plain), left_out(plain)) == ([], (0, 0))
    assert plain.results() == {"08:00": 2, "09:00": 1}


def test_late_data_may_be_an_error_until_a_person_decides(open_hours):
    """Nothing is published meanwhile, also no other window."""
    plain = open_hours("late='error'")
    for hour in (8, 9):
        plain.add(f"2021-03-19 {hour:02}:00", 1)
    plain.settle()
    plain.add("2021-03-19 08:00", 2)
    plain.add("2021-03-19 10:00", 1)

    started = play(plain)
    run = plain.mill.runs.list(limit=1)[0]
    before = plain.results()
    plain.mill.watermarks.reset("shop.count_hours")
    plain.settle()

    assert (started, run.state) == (1, "FAILED")
    assert "computed their windows ([2021-03-19 08:00:00, 2021-03-19 09:00:00))" in run.exit_reason
    assert before == {"08:00": 1, "09:00": 1}
    assert plain.results() == {"08:00": 2, "09:00": 1, "10:00": 1}


@pytest.mark.parametrize(("shifted", "asked"), [(99, True), (98, False)])
def test_a_partition_that_lies_five_hours_off_asks_for_the_time_zone(open_hours, shifted, asked):
    """99 of 100 rows are 20 quarter hours after their partition; with 98 it may be something else."""
    plain = open_hours("outside='drop'")
    inside = [1] * (100 - shifted)
    plain.add("2021-03-19 08:00", *inside, *(300 + number % 60 for number in range(shifted)))

    run = plain.run()

    text = (
        "all but 1 % of the rows of default.clicks (day=2021-03-19 hour=8) lie 5h after their partition: is "
        "'partition.time-zone'='UTC' right?"
    )
    assert (text in notes(plain, run)) == asked


def test_a_shift_fits_all_lengths_of_partitions():
    """A partition of 20 minutes is a quarter hour and a rest: a row may lie in the rest or not."""
    assert find_shifts({(8, True): 50, (9, True): 50}, 1, 100) == {8}
    assert find_shifts({(8, True): 50, (9, False): 50}, 1, 100) == set()
    assert find_shifts({(8, True): 99, (40, True): 1}, 1, 100) == {7, 8}
    assert find_shifts({(0, False): 100}, 4, 100) == {-3, -2, -1}
    assert find_shifts({}, 4, 0) == set()


@pytest.mark.parametrize(
    ("zone", "at", "start"),
    [
        ("UTC", "2021-03-19 10:00", "2021-03-19 08:00"),
        ("Europe/Berlin", "2021-10-31 00:30", "2021-10-31 00:00"),  # 02:30, for the first time: [00:00, 03:00) is open
    ],
)
def test_the_first_open_window_begins_where_all_earlier_rows_are_late(zone, at, start):
    """Windows of three hours, one each hour. The instants are in UTC."""
    grid = Grid(WindowShape(3 * HOUR, HOUR, 0), Zone(zone))
    instant, wanted = (Zone("UTC").opens(datetime.fromisoformat(text)) for text in (at, start))

    found = grid.first_open(instant)

    assert found == wanted
    assert grid.closes(Window(found, found + 3 * HOUR)) > instant
    assert grid.closes(Window(found - HOUR, found + 2 * HOUR)) <= instant


@settings(max_examples=10, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(["late='side'", "allowed_lateness='2h'"]),
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 6), st.sets(st.integers(-5, 64), min_size=1, max_size=3)),
            st.tuples(st.just("run"), st.just(0), st.just(set())),
            st.tuples(st.just("kill"), st.integers(0, 6), st.just(set())),
        ),
        min_size=2,
        max_size=10,
    ),
)
def test_each_row_counts_in_its_window_or_is_in_the_side_table(memory_folder, policy, events):
    """Once, whatever order the rows come in, and whatever runs die."""
    folder = memory_folder / f"side{next(_numbers)}"
    plain = open_plain(folder, f"sqlite:///{folder}.db", more=f"outside='side', {policy}")
    with contextlib.closing(plain.mill):
        for event, number, minutes in events:
            match event:
                case "add":
                    plain.add(f"2021-03-19 {number:02}:00", *minutes)
                case "run":
                    assert plain.run().state == "COMPLETED", plain.spawner.complaints
                case _:
                    kill(plain, MARKS[number])
        plain.add("2021-03-19 07:00", 1)
        plain.settle()

        counted = sum(int(line.split()[2]) for line in plain.lines("hourly"))
        assert counted + len(plain.lines(SIDE)) == len(plain.lines("clicks"))
        assert sum(left_out(plain)) == len(plain.lines(SIDE))
