"""Conditions of Spark SQL by which a run finds the rows of windows, read with numbers in the place of times."""

from __future__ import annotations

import re
import sqlite3
from datetime import datetime

import pytest

from tidemill.lake.window.window_plan import Window, WindowShape
from tidemill.shapes.partition_time import WallTime, to_wall
from tidemill.sql.window_text import have_bounds_of

MINUTE = 60_000_000
BOTH = {"window_start": "s", "window_end": "e"}


def window(start: int, end: int) -> Window:
    """A window from one minute after 08:00 to another one."""
    eight = to_wall(datetime(2021, 3, 19, 8))  # noqa: DTZ001  # a wall-clock time
    return Window(WallTime(eight + start * MINUTE), WallTime(eight + end * MINUTE))


HOUR, HALVES = window(0, 60), [window(0, 30), window(30, 60)]


def find(shape: WindowShape, windows: list[Window], rows: list[tuple[int, int | None]], columns=BOTH) -> list:
    """Return the rows, by their bounds, that the condition finds."""
    text = have_bounds_of(shape, windows, columns).replace(" AS TIMESTAMP_NTZ", " AS INTEGER")
    text = re.sub(r"get\(ARRAY\(([^,]*), ([^)]*)\), ([01]) .*? AS INT\)\)", lambda it: it[1 + int(it[3])], text)
    text = re.sub(r"TIMESTAMP_NTZ'([^']*)'", lambda it: str(to_wall(datetime.fromisoformat(it[1]))), text)
    text = re.sub(r"INTERVAL '(\d+)\.(\d+)' SECOND", r"\1\2", text)
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE rows (s INTEGER, e INTEGER)")
        db.executemany("INSERT INTO rows VALUES (?, ?)", rows)
        return db.execute(f"SELECT s, e FROM rows WHERE {text} ORDER BY s, e").fetchall()


def of(*windows: Window) -> list[tuple[int, int | None]]:
    """The bounds of windows, as rows have them."""
    return [(one.start, one.end) for one in windows]


def test_rows_of_windows_of_another_size_are_not_replaced():
    """After `--keep-state` the hour of the query before stands beside the new halves, which share its bounds."""
    shape = WindowShape(30 * MINUTE, 30 * MINUTE, 0)

    found = find(shape, HALVES, of(HOUR, *HALVES, window(60, 90)))

    assert found == of(*HALVES)
    assert find(shape, [*HALVES, HOUR], of(HOUR, *HALVES, window(0, 90))) == sorted(of(HOUR, *HALVES))


def test_rows_that_lack_a_bound_are_found_by_the_other_one():
    """They are of a query before `--keep-state` that did not select it. Rows without both are of another program."""
    lacking = [(None, HALVES[0].end), (HALVES[1].start, None)]

    found = find(WindowShape(30 * MINUTE, 30 * MINUTE, 0), HALVES, [*lacking, (None, None), (HOUR.end, None)])

    assert found == lacking


@pytest.mark.parametrize(("bound", "others"), [("window_start", [window(0, 30), HOUR]), ("window_end", HALVES[:1])])
def test_rows_with_one_bound_are_found_by_that_bound(bound, others):
    """Such rows do not tell the size of their window: the page says so."""
    shape = WindowShape(30 * MINUTE, 30 * MINUTE, 0)

    found = find(shape, HALVES[:1], of(HOUR, *HALVES), {bound: BOTH[bound]})

    assert found == of(*others)
