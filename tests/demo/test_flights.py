"""The demo's data: real rows, read without the import that fails, identified by keys that are unique."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.errors import raises_code
from tidemill.demo.flights import Feed, read_archive, split_by_hour
from tidemill.world import Disk

FLIGHTS = """year,month,day,carrier,flight,time_hour
2013,1,1,UA,1545,2013-01-01T10:00:00Z
2013,1,1,AA,7,2013-01-02T04:00:00Z
2013,1,2,UA,1545,2013-01-02T10:00:00Z
"""
WEATHER = """origin,year,month,day,time_hour
EWR,2013,1,1,2013-01-01T06:00:00Z
"""


def test_a_day_is_new_yorks_and_its_hours_are_utc():
    """A flight at 23:00 in New York belongs to the first day, and to an hour of the next day's UTC."""
    archive = split_by_hour(FLIGHTS, WEATHER, days=1)

    assert [hour.time for hour in archive.hours] == [
        datetime(2013, 1, 1, 6, tzinfo=UTC),
        datetime(2013, 1, 1, 10, tzinfo=UTC),
        datetime(2013, 1, 2, 4, tzinfo=UTC),
    ]
    assert [len(hour.flights) for hour in archive.hours] == [0, 1, 1]
    assert [len(hour.weather) for hour in archive.hours] == [1, 0, 0]


def test_a_row_is_kept_as_it_stands_in_the_file():
    """The demo lands the package's own lines, so that it reads real input, with all its oddities."""
    archive = split_by_hour(FLIGHTS, WEATHER, days=1)

    row = archive.hours[1].flights[0]
    assert row.line == "2013,1,1,UA,1545,2013-01-01T10:00:00Z"
    assert row.key == ("2013-01-01T10:00:00Z", "UA", "1545")
    assert archive.headers[Feed.WEATHER] == "origin,year,month,day,time_hour"


def test_three_days_are_as_large_as_promised():
    """The balance that the demo ends with rests on these figures."""
    archive = read_archive(Disk(), days=3)

    flights = [hour.flights for hour in archive.hours if hour.flights]
    weather = [hour.weather for hour in archive.hours if hour.weather]
    assert (len(archive.hours), len(flights), len(weather)) == (71, 57, 71)
    assert (sum(map(len, flights)), sum(map(len, weather))) == (2699, 211)


def test_no_two_rows_of_the_year_have_one_key():
    """De-duplication and the balance take rows with the same key for copies of one."""
    archive = read_archive(Disk(), days=365)

    flights = [row.key for hour in archive.hours for row in hour.flights]
    weather = [row.key for hour in archive.hours for row in hour.weather]
    assert (len(flights), len(set(flights))) == (336_776, 336_776)
    assert len(weather) == len(set(weather))


@pytest.mark.parametrize("days", [0, -1, 366])
def test_days_that_the_year_does_not_have_are_refused(days):
    """A demo of no day would end with a balance of nothing, and prove nothing."""
    with raises_code("bad_days"):
        read_archive(Disk(), days)
