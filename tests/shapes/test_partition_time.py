"""Partition times: strict reading, and spans on the clocks that people have."""

from __future__ import annotations

import re
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemill.shapes.keys import KeySchema
from tidemill.shapes.partition_time import (
    Extractor,
    Interval,
    PartitionTime,
    Zone,
    from_wall,
    to_wall,
)
from tidemill.shapes.time_formats import BadPartitionTime

at = datetime.fromisoformat
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "America/Sao_Paulo"]
KEYS = KeySchema.of({"day": "date", "hour": "int"})
TEXTS = KeySchema.of({"dt": "string", "dthour": "string"})
HOUR = 3_600_000_000
# Around both changes of 2021 in each of them, and the midnight that Sao Paulo did not have in 2018.
CHANGES = ["2021-03-28", "2021-10-31", "2021-03-14", "2021-11-07", "2021-04-04", "2021-10-03", "2018-11-04"]
NEAR_CHANGES = st.builds(
    lambda day, minutes, micros: datetime.fromisoformat(day) + timedelta(minutes=minutes, microseconds=micros),
    st.sampled_from(CHANGES),
    st.integers(-2 * 1440, 2 * 1440),
    st.sampled_from([0, 1, 999_999]),
)


def instants_around(zone: Zone, local: datetime):
    """Every quarter of an hour, and its neighbours, for 30 hours around a wall-clock time."""
    middle = to_wall(local)
    offset = to_wall(zone.local(middle)) - middle
    start = (middle - offset) // (HOUR // 4) * (HOUR // 4) - 30 * HOUR
    return [start + quarter * HOUR // 4 + near for quarter in range(241) for near in (-1, 0, 1)]


@given(st.sampled_from(ZONES), NEAR_CHANGES)
@example("Europe/Berlin", at("2021-10-31 02:00"))
@example("Europe/Berlin", at("2021-03-28 02:30"))
@example("Australia/Lord_Howe", at("2021-04-04 01:30"))
def test_a_time_opens_and_closes_where_the_clock_says(zone_name, local):
    """The definition itself, on all instants near by: before it opens nothing reaches x, after it nothing is below."""
    zone = Zone(zone_name)
    opened, closed = zone.opens(local), zone.closes(local)

    assert opened <= closed
    assert zone.local(opened) >= local
    assert zone.local(closed) >= local
    for instant in instants_around(zone, local):
        if zone.local(instant) >= local:
            assert instant >= opened
        else:
            assert instant < closed
    if closed > opened:
        assert zone.local(closed - 1) < local


@given(st.sampled_from(ZONES), NEAR_CHANGES)
def test_local_times_are_those_of_the_library(zone_name, local):
    """Ours are instants in whole microseconds."""
    instant = to_wall(local)

    aware = datetime.fromisoformat(f"{local.isoformat()}+00:00").astimezone(ZoneInfo(zone_name))

    assert Zone(zone_name).local(instant) == aware.replace(tzinfo=None, fold=0)


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2021-03-28", 23),
        ("Europe/Berlin", "2021-10-31", 25),
        ("America/New_York", "2021-03-14", 23),
        ("America/New_York", "2021-11-07", 25),
        ("Australia/Lord_Howe", "2021-04-04", 24.5),
        ("Australia/Lord_Howe", "2021-10-03", 23.5),
        ("UTC", "2021-03-28", 24),
    ],
)
def test_days_have_the_hours_that_they_have(zone, day, hours):
    """A fixed 24 hours after midnight is wrong on both days of clock change."""
    partition_time = PartitionTime(Extractor(KeySchema.of({"day": "date"})), Interval.parse("1 day"), Zone(zone))

    span = partition_time.span_of((datetime.fromisoformat(day).date(),))

    assert (span.ends - span.begins) / HOUR == hours
    assert from_wall(span.next_time) == datetime.fromisoformat(day) + timedelta(days=1)


def test_an_hour_that_the_clock_skips_is_nobodys():
    """A watermark that waits for each slot in turn would wait for such an hour for ever."""
    hours = PartitionTime(Extractor(KEYS, "$day $hour:00:00"), Interval.parse("1h"), Zone("Europe/Berlin"))

    before = hours.span_at(at("2021-03-28 01:00"))
    twice = hours.span_at(at("2021-10-31 02:00"))

    assert from_wall(before.next_time) == at("2021-03-28 03:00")
    assert before.ends == hours.span_at(at("2021-03-28 03:00")).begins
    assert (twice.ends - twice.begins) / HOUR == 2


@given(st.sampled_from(ZONES), NEAR_CHANGES, st.sampled_from(["15 min", "30 min", "1h", "6h", "1 day"]))
def test_the_spans_of_a_zone_leave_no_instant_out(zone_name, local, interval):
    """Each instant lies in the span that its wall-clock time names."""
    step = Interval.parse(interval)
    times = PartitionTime(Extractor(KEYS), step, Zone(zone_name))
    start = from_wall(to_wall(local) // step.micros * step.micros)
    span = times.span_at(start)

    for instant in instants_around(times.zone, local):
        inside = start <= times.zone.local(instant) < start + timedelta(microseconds=step.micros)
        assert not inside or span.begins <= instant < span.ends
    assert times.span_at(from_wall(span.next_time)).ends > span.ends


@pytest.mark.parametrize(
    ("keys", "pattern", "formatter", "key", "expected"),
    [
        (KEYS, "$day $hour:00:00", None, (date(2021, 3, 19), 10), "2021-03-19 10:00"),
        (KEYS, "${day} ${hour}:30:00", None, (date(2021, 3, 19), 7), "2021-03-19 07:30"),
        (KEYS, None, None, (date(2021, 3, 19), 7), "2021-03-19 00:00"),
        (TEXTS, "$dthour", "yyyyMMddHH", ("x", "2021031910"), "2021-03-19 10:00"),
        (TEXTS, "$dt $dthour", "yyyyMMdd H", ("20210319", "7"), "2021-03-19 07:00"),
        (TEXTS, "$dtT$dthour", "yyyy-MM-dd'T'HH", ("2021-03-19", "07"), "2021-03-19 07:00"),
        (TEXTS, None, "yyyyDDD", ("2021078", "-"), "2021-03-19 00:00"),
        (TEXTS, None, "yy-M", ("21-3", "-"), "2021-03-01 00:00"),
        (TEXTS, None, None, ("2021-3-9 1:02:03.25", "-"), "2021-03-09 01:02:03.250000"),
        (TEXTS, None, None, ("2021-13-01", "-"), None),
        (TEXTS, None, None, ("2021-02-29", "-"), None),
        (TEXTS, None, None, ("2021-03-19 24:00:00", "-"), None),
        (TEXTS, None, None, (" 2021-03-19", "-"), None),
        (TEXTS, None, None, ("٢٠٢١-03-19", "-"), None),
        (TEXTS, "$dt $dthour", "yyyyMMdd HH", ("20210319", "7"), None),
        (TEXTS, None, "yyyyDDD", ("2021366", "-"), None),
        (TEXTS, None, "y", ("13", "-"), "0013-01-01 00:00"),
    ],
)
def test_times_are_read_strictly(keys, pattern, formatter, key, expected):
    """Lenient reading turns month 13 into next January, and `hh` each hour into midnight."""
    found = Extractor(keys, pattern, formatter).find(key, Zone("UTC"))

    assert found == (None if expected is None else datetime.fromisoformat(expected))


def test_an_instant_as_key_is_read_in_the_zone():
    """Its directory is in UTC; its time is the wall clock's."""
    keys = KeySchema.of({"at": "timestamp"})
    key = keys.parse("at=2021-03-19T10:00:00Z")

    assert Extractor(keys).find(key, Zone("Europe/Berlin")) == at("2021-03-19 11:00")


def test_the_ends_of_the_calendar_park_a_partition():
    """A time without an end is no time; and no traceback."""
    times = PartitionTime(Extractor(TEXTS), Interval.parse("1 year"), Zone("America/New_York"))

    assert times.span_of(("9999-06-01", "-")) is None
    assert times.span_of(("nonsense", "-")) is None
    assert "9999-06-01 00:00:00 is not within the years 1 to 9999" in times.explain(("9999-06-01", "-"))
    assert times.explain(("9990-06-01", "-")) == ""


@pytest.mark.parametrize(
    ("text", "months", "micros"),
    [("1h", 0, HOUR), ("30 min", 0, HOUR // 2), ("1 day", 0, 24 * HOUR), ("2 weeks", 0, 14 * 24 * HOUR),
     ("1 month", 1, 0), ("1 year", 12, 0), ("5000 ns", 0, 5), ("250 ms", 0, 250_000)],
)  # fmt: skip
def test_intervals_have_units(text, months, micros):
    """The units are Flink's, and calendar steps."""
    assert Interval.parse(text) == Interval(months, micros)


def test_a_month_after_the_last_of_january_is_the_last_of_february():
    """Calendar steps are as long as the calendar says."""
    assert Interval.parse("1 month").after(at("2021-01-31")) == at("2021-02-28")
    assert Interval.parse("1 year").after(at("2020-02-29")) == at("2021-02-28")


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Zone("Europe/Berlni"), "did you mean 'Europe/Berlin'"),
        (lambda: Zone("Mars"), "there is no such zone"),
        (lambda: Zone("../etc/passwd"), "there is no such zone"),
        (lambda: Interval.parse("0h"), "longer than nothing"),
        (lambda: Interval.parse("1 fortnight"), "use a number and a unit"),
        (lambda: Interval.parse("10 ns"), "whole microseconds"),
        (lambda: Extractor(KEYS, "$dya $hour:00"), "did you mean $day?"),
        (lambda: Extractor(KEYS, "$dayy $hour:00"), "no key 'dayy': write $day, or ${day} where a letter follows"),
        (lambda: Extractor(KEYS, "${minute}"), "there are $day, $hour"),
        (lambda: Extractor(KEYS, "$"), "there is no key ''"),
        (lambda: Extractor(KEYS, None, "yyyy-MM-dd hh"), "12-hour clock"),
        (lambda: Extractor(KEYS, None, "YYYY-MM-dd"), "week"),
        (lambda: Extractor(KEYS, None, "yyyy-dd"), "the day without the month"),
        (lambda: Extractor(KEYS, None, "yyyy-MM-dd mm"), "the minute without the hour"),
        (lambda: Extractor(KEYS, None, "yyyy HH"), "the hour without the day"),
        (lambda: Extractor(KEYS, None, "MM-dd"), "the month without the year"),
        (lambda: Extractor(KEYS, None, "yyyy-MM-dd'T"), "quote has no end"),
        (lambda: Extractor(KEYS, None, "yyyy-MMM-dd"), "use 'MM'"),
        (lambda: Extractor(KEYS, None, "yyyy-MM-dd yyyy"), "twice"),
        (lambda: Extractor(KEYS, None, "yyyyMMddDDD"), "day of the year"),
        (lambda: Extractor(KEYS, None, "yyyy[-MM"), "has no end"),
        (lambda: Extractor(KEYS, None, "yyyy]"), "without '['"),
        (lambda: Extractor(KEYS, None, "''"), "no year"),
    ],
)
def test_what_cannot_be_is_refused_with_the_cure(make, told):
    """When it is declared, not when the first partition comes."""
    with pytest.raises(BadPartitionTime, match=re.escape(told)):
        make()
