from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemill.crontab import BadExpression, read_crontab

FIRST, LAST = 2011, 2026
"""Fifteen years of clock changes."""

# Whole years of each kind of change: by an hour and by half of one, at midnight, forward into it and back over it, at
# odd times of the year, by two hours, and twice in a spring.
_HARD_ZONES = [
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/Havana",
    "Asia/Beirut",
    "America/Santiago",
    "America/Nuuk",
    "Africa/Casablanca",
    "Antarctica/Troll",
    "Africa/Cairo",
]


def deviations_of(zone: str, first: int = FIRST, last: int = LAST) -> Iterator[str]:
    """Yield the deviations of daily expressions from once for each day of the zone, at their time or at the gap's end.

    The judge looks at each minute that a clock does not show, and knows nothing of how times are found.
    """
    clock = ZoneInfo(zone)
    start, end = datetime(first, 1, 1, tzinfo=clock), datetime(last, 1, 1, tzinfo=clock)
    # Times of the day at which changes begin and end, and within what they leave out or repeat.
    odd = {
        (change + offset + shift).time()
        for change, *offsets in changes_of(clock, start, end)
        for offset in offsets
        for shift in (timedelta(0), -timedelta(minutes=15))
    }
    for at in sorted({time(2, 30), *odd}):
        text = f"{at.minute} {at.hour} * * *"
        days = (start.date() + timedelta(days=number) for number in range((end.date() - start.date()).days))
        expected = [fire for day in days if (fire := _first_shown(clock, datetime.combine(day, at))) is not None]
        crontab = read_crontab(text, zone)
        fires = list(takewhile(lambda fire: fire < end, crontab.fires_after(start - timedelta(seconds=1))))
        if fires != expected:
            yield f"{zone} {text}: {sorted(set(fires) ^ set(expected))[:3]}"


def changes_of(clock: ZoneInfo, start: datetime, end: datetime) -> Iterator[tuple[datetime, timedelta, timedelta]]:
    """The instants at which the offset changes, to the minute, with the offset before and after."""
    step, minute = timedelta(hours=6), timedelta(minutes=1)
    at = start.astimezone(UTC)
    while at < end:
        if at.astimezone(clock).utcoffset() != (at + step).astimezone(clock).utcoffset():
            for one in (at + number * minute for number in range(step // minute)):
                old, new = (instant.astimezone(clock).utcoffset() for instant in (one, one + minute))
                if old != new:
                    yield one + minute, old, new
        at += step


def _first_shown(clock: ZoneInfo, wall: datetime) -> datetime | None:
    """The first instant of the minutes from `wall` on that the clock shows; None on a day that it never showed."""
    for late in range(24 * 60):
        minute = wall + timedelta(minutes=late)
        shown = minute.replace(tzinfo=clock).astimezone(UTC)
        if shown.astimezone(clock).replace(tzinfo=None) == minute:
            return None if late and _is_left_out(clock, wall.date()) else shown
    return None


def _is_left_out(clock: ZoneInfo, day: date) -> bool:
    around = datetime.combine(day, time(0), tzinfo=UTC) - timedelta(days=2)
    return all((around + timedelta(minutes=15 * number)).astimezone(clock).date() != day for number in range(480))


@pytest.mark.parametrize("zone", _HARD_ZONES)
def test_a_daily_time_comes_once_for_each_day_of_its_zone(zone):
    """R9 in a short form: a report that misses a Sunday in March, or comes twice in October, is a wrong report.

    All zones by hand: `python -m tests.test_crontab`.
    """
    assert list(deviations_of(zone, 2022, 2024)) == []


def test_a_day_that_a_zone_never_had_has_no_fire():
    """Samoa went from 29 to 31 December 2011: its 31st must not be reported twice."""
    assert list(deviations_of("Pacific/Apia", 2011, 2013)) == []


def _fires(text: str, zone: str, after: str, most: int = 5) -> list[str]:
    clock = ZoneInfo(zone)
    fires = read_crontab(text, zone).fires_after(datetime.fromisoformat(after).replace(tzinfo=clock))
    return [f"{fire.astimezone(clock):%m-%dT%H:%M:%S%z}" for fire in islice(fires, most)]


@pytest.mark.parametrize(
    ("text", "after", "expected"),
    [
        # Forward at 02:00 on 29 March.
        ("30 2 * * *", "2026-03-28T12:00", ["03-29T03:00:00+0200", "03-30T02:30:00+0200"]),
        ("*/20 2 * * *", "2026-03-28T12:00", ["03-29T03:00:00+0200", "03-30T02:00:00+0200"]),
        ("0 */2 * * *", "2026-03-29T00:30", ["03-29T03:00:00+0200", "03-29T04:00:00+0200"]),
        ("0 2,3 * * *", "2026-03-28T12:00", ["03-29T03:00:00+0200", "03-30T02:00:00+0200"]),
        ("30 * * * *", "2026-03-29T01:00", ["03-29T01:30:00+0100", "03-29T03:30:00+0200"]),
        # Back at 03:00 on 25 October.
        ("30 2 * * *", "2026-10-24T12:00", ["10-25T02:30:00+0200", "10-26T02:30:00+0100"]),
        ("0 */2 * * *", "2026-10-25T01:00", ["10-25T02:00:00+0200", "10-25T04:00:00+0100"]),
        ("30 * * * *", "2026-10-25T02:00", ["10-25T02:30:00+0200", "10-25T02:30:00+0100", "10-25T03:30:00+0100"]),
    ],
)
def test_what_names_hours_goes_by_the_clock_and_what_names_all_by_time(text, after, expected):
    """`0 */2` means even hours of the clock; `30 *` means each hour, and no hour of silence in October."""
    assert _fires(text, "Europe/Berlin", after, len(expected)) == expected


def test_within_a_repeated_hour_it_goes_on_to_its_end():
    """A scheduler that is started at the second ten past two must not sleep until three."""
    after = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # 02:10 for the second time

    fires = islice(read_crontab("*/20 * * * *", "Europe/Berlin").fires_after(after), 3)

    assert [f"{fire:%H:%M}" for fire in fires] == ["01:20", "01:40", "02:00"]


@given(
    st.sampled_from(["30 2 * * *", "*/7 * * * *", "*/20 1-3 * * *", "15 */3 * * MON", "*/30 15 2 * * *", "5 * L * *"]),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago"]),
    st.integers(0, 700 * 86_400).map(lambda seconds: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)),
    st.integers(1, 40),
)
@settings(max_examples=40)
def test_a_scheduler_that_starts_anywhere_goes_on_with_the_same_times(text, zone, after, number):
    """The next time must not depend on the start of the count, or a fire is lost or doubled."""
    crontab = read_crontab(text, zone)
    fires = list(islice(crontab.fires_after(after), number + 5))

    assert fires == sorted(set(fires))
    assert list(islice(crontab.fires_after(fires[number - 1]), 5)) == fires[number:]
    assert next(crontab.fires_after(fires[0] - timedelta(milliseconds=1))) == fires[0]


@pytest.mark.parametrize(
    ("text", "plain"),
    [("@daily", "0 0 * * *"), ("@Hourly", "0 * * * *"), ("@weekly", "0 0 * * 0"), ("@yearly", "0 0 1 1 *")],
)
def test_names_stand_for_what_cron_makes_of_them(text, plain):
    """People know them from their crontab."""
    assert _fires(text, "Europe/Berlin", "2026-03-28T12:00") == _fires(plain, "Europe/Berlin", "2026-03-28T12:00")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("30 25 * * *", r"hour '25' \(field 2, at column 4\) cannot be; use 0 to 23"),
        ("30  2 * * MNO", r"day of the week 'MNO' \(field 5, at column 11\) cannot be; did you mean MON"),
        ("0 0 1 SEPT *", r"month 'SEPT' \(field 4, at column 7\) cannot be; did you mean SEP"),
        ("61 0 0 * * *", r"second '61' \(field 1, at column 1\)"),
        ("*/0 * * * *", r"minute '\*/0' \(field 1, at column 1\)"),
        ("* * *", "it has 3 fields; five fields"),
        ("", "it has 0 fields"),
        ("0 0 31 2 *", "no day is like that"),
        ("@dayly", "there is no name '@dayly'; did you mean '@daily'"),
    ],
)
def test_a_wrong_field_is_named_with_its_place(text, message):
    """Five fields of signs: which of them is wrong is the question."""
    with pytest.raises(BadExpression, match=message):
        read_crontab(text, "UTC")


@pytest.mark.parametrize(("zone", "near"), [("Europe/Berln", "Europe/Berlin"), ("../x", "Europe")])
def test_an_unknown_zone_is_answered_with_a_known_one(zone, near):
    """A zone that is not there would be UTC in other schedulers, and the report two hours late."""
    with pytest.raises(BadExpression, match=near):
        read_crontab("@daily", zone)


def main() -> None:
    """Judge all zones; those with the same changes once."""
    start, end = datetime(FIRST, 1, 1, tzinfo=UTC), datetime(LAST, 1, 1, tzinfo=UTC)
    zones = {}
    for name in sorted(available_timezones()):
        clock = ZoneInfo(name)
        zones.setdefault((start.astimezone(clock).utcoffset(), *changes_of(clock, start, end)), name)
    found = [deviation for zone in zones.values() for deviation in deviations_of(zone)]
    told = f"{len(available_timezones())} zones, {len(zones)} of them different, {FIRST} to {LAST - 1}"
    print(f"{told}: {len(found)} deviations", *found, sep="\n")


if __name__ == "__main__":
    main()
