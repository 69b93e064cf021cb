"""The demo's database: what changes in it from day to day, since the versions of the app are to show just that."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidemill.demo.reference import DAYS, MIRRORED, Reference, read_tables
from tidemill.world import Disk


@pytest.fixture
def reference(tmp_path: Path) -> Reference:
    """An empty place for it."""
    return Reference(tmp_path / "reference.db", read_tables(Disk()))


def test_each_day_has_rows_that_are_new_changed_or_gone(reference):
    """A mirror that only adds would show the same numbers on most days."""
    seen = []
    for day in range(DAYS):
        reference.change(day)
        seen.append({table: {row[0]: row[1:] for row in reference.read(table)} for table in MIRRORED})

    airlines, planes = ([one[table] for one in seen] for table in ("airlines", "planes"))
    assert [len(one) for one in airlines] == [15, 16, 16]
    assert [len(one) for one in planes] == [3222, 3322, 3312]
    assert airlines[0]["MQ"] == ("Envoy Air",)
    assert airlines[1]["MQ"] == ("American Eagle Airlines",)
    assert planes[2].keys() < planes[1].keys()


def test_what_is_missing_is_null(reference):
    """`NA` as a text would be a year or a number of seats."""
    reference.change(0)

    years = [row[2] for row in reference.read("planes")]

    assert None in years
    assert "NA" not in years
