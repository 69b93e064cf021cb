"""Calendars, growth, partitions, slots and arrivals: numbers that were made by hand, on both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.errors import raises_code
from tests.server.lake import APP, fill_lake, hour
from tests.stage import Stage, staged
from tidemill.mill import calendar
from tidemill.mill.page import iterate


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A project with hours that are late, missing and rewritten."""
    with staged(tmp_path, catalog_url, APP) as opened:
        yield fill_lake(opened)


def states(cells) -> dict[str, str]:
    """Return the cells that are neither there nor empty."""
    return {one.slot: str(one.state) for one in cells if one.state not in {"present", "empty"}}


def test_a_calendar_zooms_from_years_to_slots(stage):
    """A person follows a hole of a year down to its hour, and each level tells the same of it."""
    show = stage.mill.datasets.calendar

    week, years, year = show("flights"), show("flights", within="all"), show("flights", within="2026")
    month, day = show("flights", within="2026-01"), show("flights", within="2026-01-02")

    assert (week.level, week.within, week.by, week.zone) == ("week", "2026-W01", "watermark", "UTC")
    assert states(week.cells) == {
        "2026-01-01 04:00": "late",
        "2026-01-02 08:00": "missing",
        "2026-01-03 03:00": "rewritten",
        "2026-01-03 15:00": "awaited",
    }
    assert [(one.slot, one.partitions, one.within) for one in years.cells] == [("2026", 58, "2026")]
    assert [one.partitions for one in year.cells] == [58] + 11 * [0]
    assert [(one.partitions, one.missing, str(one.state)) for one in month.cells[:4]] == [
        (20, 0, "late"),
        (23, 1, "incomplete"),
        (15, 0, "rewritten"),
        (0, 0, "empty"),
    ]
    assert [one.partitions for one in day.cells] == 8 * [1] + [0] + 15 * [1]
    assert (day.previous, day.next) == ("2026-01-01", "2026-01-03")
    assert (week.previous, week.next, month.previous) == (None, None, None)


def test_a_calendar_has_the_rows_of_each_cell(stage):
    """Shades show where the rows are: hour n of 1 January has n + 1 rows, but the late hour 4, which has one."""
    cells = stage.mill.datasets.calendar("flights", within="2026-01-01").cells

    assert [one.rows for one in cells] == [0, 0, 0, 0, 1, *range(6, 25)]
    assert cells[5].partition == "day=2026-01-01 hour=5"


def test_days_of_keys_are_missing_where_an_expectation_wants_them(stage):
    """A file set without a watermark has days in its keys, and an expectation of one each day."""
    found = stage.mill.datasets.calendar("days")

    assert (found.by, found.level, found.first, found.last) == ("day", "month", "2026-01-01", "2026-01-05")
    assert [str(one.state) for one in found.cells[:6]] == ["present", *3 * ["missing"], "present", "awaited"]
    assert [one.partition for one in found.partitions] == ["day=2026-01-01", "day=2026-01-05"]


def test_a_calendar_without_times_or_partitions_is_empty(stage):
    """Keys without a time have no calendar; a new file set has one without partitions."""
    lines, empty = stage.mill.datasets.calendar("lines"), stage.mill.datasets.calendar("empty")

    assert (lines.by, lines.cells) == ("", ())
    assert (empty.by, empty.first, states(empty.cells)) == ("day", None, {})


@pytest.mark.parametrize("within", ["x", "2026-13", "2026-W54", "0000", "2026-02-30", "99999", "2026-1"])
def test_a_period_that_cannot_be_is_refused(stage, within):
    """A link with a wrong period says which periods there are."""
    with raises_code("bad_filter", "2026-W02"):
        stage.mill.datasets.calendar("flights", within=within)


@pytest.mark.parametrize("within", ["0001", "0001-01", "0001-W01", "0001-01-01", "9999", "9999-12", "9999-12-31"])
def test_the_ends_of_the_calendar_are_periods_too(stage, within):
    """A partition of the year 9999 is a mistake that a person must be able to look at."""
    assert stage.mill.datasets.calendar("flights", within=within).within == within


def test_cells_of_too_many_partitions_stop_counting(stage, monkeypatch):
    """A million partitions must not be read to draw twelve cells."""
    monkeypatch.setattr(calendar, "_LISTED", 50)
    monkeypatch.setattr(calendar, "_COUNTED", 31 * 21)

    found = stage.mill.datasets.calendar("flights", within="2026-01")

    assert found.counted
    assert [(one.partitions, one.more) for one in found.cells[:4]] == [
        (20, False),
        (21, True),
        (16 - 1, False),
        (0, False),
    ]
    assert found.partitions == ()


def test_growth_counts_what_was_written_by_day(stage):
    """Rows that were overwritten were written too; a drop writes none."""
    found, days = stage.mill.datasets.growth("flights"), stage.mill.datasets.growth("days")
    today = stage.mill.project.world.clock.now().date()

    assert sum(one.rows for one in found.days) == sum(range(6, 25)) + 23 + 15 + 1 + 1
    assert {one.day for one in found.days} <= {today, today - timedelta(days=1)}
    assert (sum(one.changes for one in days.days), sum(one.rows for one in days.days)) == (4, 3)
    assert found.since is None
    assert isinstance(found.days[0].day, date)


def test_a_partition_knows_its_past_its_files_and_its_readers(stage):
    """A number changed: the reason is a change of its partition, by a run, and other runs have used the old rows."""
    stage.mill.runs.start("shop.sum_up")
    (run,) = [one for one in stage.play() if one.program_id and one.state == "COMPLETED"][-1:]
    stage.publish("flights", hour(3, 3), op="overwrite")

    one = stage.mill.datasets.partition("flights", "day=2026-01-03/hour=3")

    assert (one.partition, one.current, one.rows, one.files) == ("day=2026-01-03 hour=3", True, 1, 1)
    assert [(change.op, change.replaced_by is None) for change in one.changes] == [
        ("overwrite", True),
        ("overwrite", False),
        ("append", False),
    ]
    assert [(taker.run_id, taker.program) for taker in one.taken] == [(run.run_id, "default.shop.sum_up")]
    assert one.stored[0].path.endswith("day=2026-01-03/hour=3/part-0.txt")


def test_a_dropped_partition_is_shown_without_files(stage):
    """A link to a partition outlives the partition."""
    one = stage.mill.datasets.partition("days", {"day": date(2026, 1, 2)})

    assert (one.current, one.files, [change.op for change in one.changes]) == (False, 0, ["drop", "append"])
    with raises_code("not_found", "dataset partitions"):
        stage.mill.datasets.partition("days", "day=2020-01-01")


def test_slots_are_listed_newest_first_page_by_page(stage):
    """The strip shows what holds the watermark, and what came late."""
    slots = [*iterate(stage.mill.watermarks.slots, "flights", limit=7)]

    assert [(one.slot, str(one.state), one.passed) for one in slots if one.state != "present"] == [
        ("2026-01-02 08:00", "missing", False),
        ("2026-01-01 04:00", "late", True),
    ]
    assert slots == [*stage.mill.watermarks.slots("flights")]
    assert (len(slots), slots[0].slot, slots[-1].slot) == (59, "2026-01-03 14:00", "2026-01-01 04:00")
    assert sum(one.passed for one in slots) == 28


def test_arrivals_count_the_files_of_each_hour_by_state(stage):
    """A feed that has stopped shows as hours without files."""
    found = stage.mill.inboxes.arrivals("raw", hours=2)
    total: Counter[str] = Counter()
    for one in found.hours:
        total.update(one.files)

    assert len(found.hours) == 2
    assert dict(total) == {state: number for state, number in stage.mill.inboxes.show("raw").files.items() if number}
    assert sum(one.bytes for one in found.hours) == 4 * 23
    assert found.complete
    with raises_code("bad_filter", "744"):
        stage.mill.inboxes.arrivals("raw", hours=745)
