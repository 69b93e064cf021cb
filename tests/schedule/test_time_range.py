"""`TimeRange`: open at the times of the range, and its "not before" never late, in all zones."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.seed_of_the_day import TODAY
from tidemill.names import ProgramId
from tidemill.schedule.answers import NotBefore, Satisfied
from tidemill.schedule.constraints import Facts
from tidemill.schedule.waits import TimeRange

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
FACTS = Facts(ProgramId("prog_1"), NOON, NOON, {})
STEP = timedelta(minutes=15)
DAYS = 3
"""All times of the tests are multiples of it, and so are the offsets of today's zones."""

RANGES = (("22:00", "06:00"), ("02:30", "06:00"), ("02:00", "02:15"), ("01:00", "02:30"), ("23:45", "00:30"))


def opening(spec: TimeRange, now: datetime) -> datetime:
    """The time that the constraint answers to `now`; `now` itself if the range is open."""
    answer = spec.check(FACTS, now)
    return now if isinstance(answer, Satisfied) else answer.at


def late(spec: TimeRange, now: datetime) -> datetime | None:
    """Return a time of the range that the answer to `now` leaves out, if there is one."""
    until, at = opening(spec, now), now
    while at < until:
        if spec.contains(at):
            return at
        at += STEP
    return None


@pytest.mark.parametrize(
    ("now", "opens"),
    [
        ("2026-01-05T12:00", "2026-01-05T21:00"),
        ("2026-01-05T21:00", "2026-01-05T21:00"),
        ("2026-01-06T04:59", "2026-01-06T04:59"),
        ("2026-01-06T05:00", "2026-01-06T21:00"),
        ("2026-07-05T12:00", "2026-07-05T20:00"),
    ],
)
def test_the_range_is_of_the_zone_and_goes_over_midnight(now, opens):
    """22:00 in Berlin is 21:00 in winter and 20:00 in summer; the end is not of the range."""
    spec = TimeRange("22:00", "06:00", zone="Europe/Berlin")

    assert opening(spec, datetime.fromisoformat(f"{now}+00:00")) == datetime.fromisoformat(f"{opens}+00:00")


def test_a_start_that_clocks_leave_out_is_the_change_of_the_clocks():
    """02:30 is not shown on that day: at 03:00, which is 01:00 in UTC, the range has begun."""
    spec = TimeRange("02:30", "06:00", zone="Europe/Berlin")
    before = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)

    at = opening(spec, before)

    assert before < at <= datetime(2026, 3, 29, 1, 0, tzinfo=UTC)
    assert late(spec, before) is None


def test_a_range_that_clocks_show_twice_opens_twice():
    """At 02:45 the range is over; a quarter of an hour later the clocks show 02:00 again."""
    spec = TimeRange("01:00", "02:30", zone="Europe/Berlin")

    assert opening(spec, datetime(2026, 10, 25, 0, 45, tzinfo=UTC)) == datetime(2026, 10, 25, 1, 0, tzinfo=UTC)


_times = st.integers(0, 95).map(lambda quarter: f"{quarter // 4:02}:{quarter % 4 * 15:02}")
_instants = st.integers(0, 4 * 24 * 366).map(lambda quarters: datetime(2026, 1, 1, tzinfo=UTC) + quarters * STEP)


@given(
    st.tuples(_times, _times).filter(lambda pair: pair[0] != pair[1]),
    st.sampled_from(sorted(available_timezones())),
    _instants,
)
def test_an_answer_is_later_than_now_and_never_late(times, zone, now):
    """Early costs one more check; late would leave out a time at which the program may start."""
    spec = TimeRange(*times, zone=zone)

    answer = spec.check(FACTS, now)

    assert isinstance(answer, Satisfied) == spec.contains(now)
    assert late(spec, now) is None
    assert not isinstance(answer, NotBefore) or now < answer.at <= now + timedelta(days=3)


def _changes(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta | None, timedelta | None]]:
    """The days on which the zone's clocks change, 2011 to 2030, and how far from UTC they are before and then."""
    at, last = datetime(2011, 1, 1, tzinfo=UTC), None
    while at.year < 2031:
        offset = at.astimezone(zone).utcoffset()
        if last is not None and offset != last:
            yield at - timedelta(days=1), last, offset
        at, last = at + timedelta(days=1), offset


@pytest.mark.long
@pytest.mark.parametrize("first", sorted({name[0] for name in available_timezones()})[TODAY % DAYS :: DAYS])
def test_no_answer_around_a_change_of_the_clocks_is_late_in_any_zone(first):
    """Twenty years, all zones, each second hour of the day of each change and of half the next.

    A day plays a third of the letters. Zones of one letter whose clocks change alike are one zone with several names.
    """
    names = (name for name in sorted(available_timezones()) if name[0] == first)
    for changes, name in {tuple(_changes(ZoneInfo(name))): name for name in names}.items():
        for day, *_ in changes:
            for hours in range(0, 36, 2):
                now = day + timedelta(hours=hours) + STEP
                for times in RANGES:
                    assert late(TimeRange(*times, zone=name), now) is None, (name, now, times)
