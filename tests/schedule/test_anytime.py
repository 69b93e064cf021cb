"""Anytime: once a period, at a moment of the schedule's own (seed 001, story 5)."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidemill.epoch import from_ms
from tidemill.names import DEFAULT_NAMESPACE
from tidemill.schedule.anytime import Anytime
from tidemill.schedule.changes import Add, Update
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.specs import BadSchedule, Misfire, ScheduleSpec
from tidemill.schedule.time_triggers import Every

DAY = timedelta(days=1)
MINUTE = timedelta(minutes=1)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
ZONES = [
    "UTC",
    "Europe/Berlin",
    "Australia/Lord_Howe",
    "America/St_Johns",
    "Africa/Cairo",
    "Pacific/Apia",
    "Asia/Beirut",
]


def fires(per: str, name: str, start: datetime, count: int, zone: str = "UTC") -> list[datetime]:
    """The first moments after `start` of a schedule of this name."""
    return [*islice(Anytime(per, zone).placed(name).fires_after(start), count)]


def test_thousands_of_schedules_spread_evenly_over_the_day():
    """5,000 feeds: in each hour about 208, and in no minute more than a few."""
    moments = [fires("day", f"default.shop.feed_{number}", NEW_YEAR, 1)[0] for number in range(5000)]

    hours = Counter(moment.hour for moment in moments)
    minutes = Counter((moment.hour, moment.minute) for moment in moments)
    expected = 5000 / 24
    chi_square = sum((hours[hour] - expected) ** 2 / expected for hour in range(24))

    # 49.7 is passed by one of 1,000 random spreads.
    assert chi_square < 49.7
    assert max(minutes.values()) < 16


def days_of(zone: str, first: datetime, days: int) -> dict[object, tuple[datetime, datetime]]:
    """The first and the last minute of each day, found by a look at each minute; a day shown again has ended."""
    shown = (first + MINUTE * minute for minute in range(days * 24 * 60))
    found: dict[object, tuple[datetime, datetime]] = {}
    latest = first.astimezone(ZoneInfo(zone)).date()
    for instant in shown:
        latest = max(latest, instant.astimezone(ZoneInfo(zone)).date())
        found[latest] = found.get(latest, (instant, instant))[0], instant
    return found


@settings(max_examples=60, deadline=None)
@given(zone=st.sampled_from(ZONES), day=st.integers(0, 6000), name=st.text(min_size=1, max_size=5))
@example(zone="America/St_Johns", day=3957, name="a")  # 2 November 2008: at 00:01 clocks went back to 23:01
@example(zone="Pacific/Apia", day=5108, name="a")  # the clocks left out 30 December 2011
@example(zone="Asia/Beirut", day=9580, name="a")  # 26 March 2026: midnight was left out
@example(zone="Europe/Berlin", day=9584, name="a")
def test_each_day_of_a_zone_has_one_moment(zone, day, name):
    """Over all changes of clocks, none is left out and none comes twice."""
    start = datetime(1998, 1, 1, tzinfo=UTC) + day * DAY
    whole = [*days_of(zone, start, 5).values()][1:-1]

    moments = fires("day", name, start - 3 * DAY, 12, zone)

    counted = [sum(begin <= moment < end + MINUTE for moment in moments) for begin, end in whole]
    assert counted == [1] * len(whole)


@given(per=st.sampled_from(["hour", "day", "week", "month", "90m", "10d"]), seconds=st.integers(0, 10**9))
def test_the_next_moments_do_not_depend_on_the_time_of_the_question(per, seconds):
    """A restart, and a page of `schedule next`, goes on where the last one ended."""
    start = datetime(2000, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    trigger = Anytime(per).placed("s")
    found = [*islice(trigger.fires_after(start), 5)]

    assert all(before < after for before, after in pairwise([start, *found]))
    assert [trigger.next_fire(moment) for moment in found[:-1]] == found[1:]
    assert [*islice(trigger.fires_from(found[0], found[2]), 3)] == found[2:]
    assert [*islice(trigger.fires_from(found[0], found[0] - MINUTE), 5)] == found
    assert next(trigger.fires_from(found[0], found[0] + timedelta(milliseconds=1))) == found[1]


@pytest.mark.parametrize(
    ("per", "label"), [("hour", "%Y-%m-%dT%H"), ("day", "%Y-%m-%d"), ("week", "%G-%V"), ("month", "%Y-%m")]
)
def test_each_period_has_one_moment(per, label):
    """Weeks begin on Monday."""
    moments = fires(per, "s", NEW_YEAR, 30)
    labels = [moment.strftime(label) for moment in moments]

    assert len(set(labels)) == 30
    assert moments[-1] - moments[0] < 30 * {"hour": DAY / 24, "day": DAY, "week": 7 * DAY, "month": 31 * DAY}[per]


def test_a_schedule_keeps_its_moment_when_it_is_changed(shop):
    """A deployment a day must not move the run, or leave it out."""
    start = shop.clock.now()
    schedule = shop.schedule(Anytime("day"))
    due = fires("day", schedule.qualified_name, start, 5)
    found = []

    for hour in range(5 * 24):
        shop.clock.move("1h")
        for launch in shop.step():
            found += shop.run(launch).triggered_by["logical_times"]
            shop.end(launch.run_id)
        if hour % 5 == 0:
            shop.change(Update(schedule.schedule_id, ScheduleSpec(Anytime("day"), priority=hour)))

    assert found == [round(moment.timestamp() * 1000) for moment in due]


def test_hundreds_of_schedules_run_once_a_day_over_a_change_of_clocks(shop):
    """29 March 2026 has 23 hours in Berlin."""
    zone, program, number = ZoneInfo("Europe/Berlin"), shop.program(), 300
    shop.clock.jump(datetime(2026, 3, 27, 23, tzinfo=UTC) - shop.clock.now())
    spec = ScheduleSpec(Anytime("day", zone="Europe/Berlin"))
    shop.change(*(Add(DEFAULT_NAMESPACE, "shop", f"feed_{one}", program, spec) for one in range(number)))

    in_each_hour = []
    for _ in range(3 * 24 - 1):
        shop.clock.move("1h")
        in_each_hour.append(len(shop.step()))

    causes = [json.loads(str(text)) for (text,) in shop.sql("SELECT triggered_by FROM run")]
    days = Counter(
        (cause["schedule"], from_ms(at).astimezone(zone).date()) for cause in causes for at in cause["logical_times"]
    )
    assert {day for _, day in days} == {date(2026, 3, 28), date(2026, 3, 29), date(2026, 3, 30)}
    assert (len(days), set(days.values())) == (3 * number, {1})
    assert max(in_each_hour) < 5 * number / 24


@pytest.mark.parametrize(("misfire", "runs"), [(Misfire.ONCE, [3]), (Misfire.ALL, [1, 1, 1]), (Misfire.SKIP, [])])
def test_missed_moments_follow_the_misfire_rule(shop, misfire, runs):
    """As those of a `Cron`."""
    shop.schedule(Anytime("day"), misfire=misfire, constraints=(Concurrency(1),))
    first = shop.sql("SELECT next_fire_at FROM timer")[0][0]
    shop.clock.move(timedelta(milliseconds=int(first)) - (shop.clock.now() - datetime(1970, 1, 1, tzinfo=UTC)))
    shop.clock.move(2 * DAY + timedelta(hours=1))

    launches = [launch for launched in shop.step_through() for launch in launched]

    assert [len(shop.run(launch).triggered_by["logical_times"]) for launch in launches] == runs


def test_a_schedule_without_fixed_times_has_no_misfire_rule():
    """The refusal names the triggers that have such times."""
    with pytest.raises(BadSchedule, match="Cron and Anytime"):
        ScheduleSpec(Every("1h"), misfire=Misfire.ALL)
