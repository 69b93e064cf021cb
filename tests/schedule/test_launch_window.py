"""The cap of a namespace on its launches: never more in any second, and every job starts."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.schedule.checker import check_due
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.launch_window import LaunchWindow
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.subscriber import subscribe

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def ms(number):
    """Return a time so many milliseconds after noon."""
    return NOON + timedelta(milliseconds=number)


def most_in_a_second(times):
    """Return the greatest number of `times` in any second."""
    return max((sum(start <= at < start + SECOND for at in times) for start in times), default=0)


@given(
    most=st.integers(1, 4),
    arrivals=st.lists(st.integers(0, 3_000), max_size=30),
    late=st.lists(st.integers(0, 2_500), min_size=1, max_size=10),
)
def test_no_second_has_more_launches_and_every_job_starts(most, arrivals, late):
    """Checks come late, and the window is stored and read between two of them."""
    stored = None
    due = [(at, number, None) for number, at in enumerate(sorted(arrivals))]
    launched = {}
    looks = 0
    while due:
        at, number, place = min(due)
        due.remove((at, number, place))
        now = ms(at + late[looks % len(late)] if place is not None else at)
        now = max([now, *launched.values()])
        window = LaunchWindow.read(most, stored, now)
        given_place = window.admit(place, now)
        if given_place is None:
            launched[number] = now
        else:
            assert given_place > now
            due.append((round((given_place - NOON) / timedelta(milliseconds=1)), number, given_place))
        stored = window.write(now)
        looks += 1
        assert looks <= 60 * (len(arrivals) + 1)

    assert sorted(launched) == list(range(len(arrivals)))
    assert most_in_a_second(list(launched.values())) <= most


@pytest.mark.parametrize("most", [1, 3, 10])
def test_a_hundred_jobs_get_a_hundred_places(most):
    """Each is looked at twice: when it is ready, and at its place. Nothing polls."""
    window = LaunchWindow(most, [], [])

    places = [window.admit(None, NOON) or NOON for _ in range(100)]
    started = [window.admit(place, place) for place in places[most:]]

    assert places == [NOON + SECOND * (number // most) for number in range(100)]
    assert set(started) == {None}


def test_a_slow_stream_is_never_held():
    """Two launches a second stay below a cap of three, whenever they come."""
    window = LaunchWindow(3, [], [])

    assert {window.admit(None, ms(number * 400)) for number in range(50)} == {None}


def test_a_new_job_does_not_overtake_jobs_that_wait():
    """New jobs would take the launches of the waiting jobs again and again."""
    window = LaunchWindow(2, [], [])
    for _ in range(5):
        window.admit(None, NOON)

    assert window.admit(None, ms(1_000)) == ms(2_000)


def test_jobs_whose_places_have_passed_get_new_ones():
    """After an hour without a scheduler all places lie in the past: they must not start together."""
    window = LaunchWindow(2, [], [])
    places = [place for _ in range(8) if (place := window.admit(None, NOON))]
    later = NOON + timedelta(hours=1)

    again = [window.admit(place, later) for place in places]

    assert again == [None, None, later + SECOND, later + SECOND, later + 2 * SECOND, later + 2 * SECOND]


def test_a_clock_that_is_set_back_holds_nothing_for_ever():
    """Launches of a time to come would close the window until then."""
    window = LaunchWindow(1, [], [])
    window.admit(None, NOON)
    stored = window.write(NOON)

    assert LaunchWindow.read(1, stored, NOON - timedelta(hours=1)).launched == []


def ready(shop, count, **spec):
    """Make jobs of schedules of one program each, ready to start."""
    for number in range(count):
        shop.schedule(NewPartitions("clicks"), name=f"s{number}", program=shop.program(f"p{number}"), **spec)
    shop.add()
    while subscribe(shop.catalog, shop.world):
        pass


def check(shop, most):
    """Check all due jobs; the number of launches."""
    launched = 0
    while (checked := check_due(shop.catalog, shop.world, 3, most_launches=most)).jobs:
        launched += len(checked.launches)
    return launched


def test_jobs_over_the_cap_wait_for_their_places_and_take_messages(shop):
    """The job stays one job: what comes meanwhile joins it, and nothing is lost."""
    ready(shop, 5)
    first = check(shop, 2)
    shop.add()
    while subscribe(shop.catalog, shop.world):
        pass
    fed = {len(job.fed) and job.fed[0].count for job in shop.jobs()}
    held = [job.next_check_at for job in shop.jobs() if job.place]

    assert first == 2
    assert max(fed) == 2
    assert len(held) == 3
    assert check(shop, 2) == 0


def test_an_uncapped_scheduler_launches_at_once(shop):
    """The default."""
    ready(shop, 5)

    assert check(shop, 0) == 5


def test_two_schedulers_share_the_cap(shop):
    """Each of them alone would launch as many as the cap allows."""
    ready(shop, 20)
    barrier, launched = threading.Barrier(2), []

    def work():
        barrier.wait()
        while (checked := check_due(shop.catalog, shop.world, 2, most_launches=3)).jobs:
            launched.extend(checked.launches)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    starts = [datetime.fromtimestamp(int(str(at)) / 1000, UTC) for (at,) in shop.sql("SELECT created_at FROM run")]

    assert launched
    assert most_in_a_second(starts) <= 3


def test_a_job_that_the_cap_holds_takes_no_slot(shop):
    """The job of another program, which the cap lets start, would wait for a slot that no run has."""
    program = shop.program()
    for name, priority in [("low", 0), ("high", 9)]:
        trigger = NewPartitions("clicks")
        shop.schedule(trigger, name=name, program=program, constraints=(Concurrency(1),), priority=priority)
    other = shop.program("other")
    shop.schedule(NewPartitions("clicks"), name="other", program=other, priority=20)
    shop.add()
    while subscribe(shop.catalog, shop.world):
        pass

    (launch,) = check_due(shop.catalog, shop.world, most_launches=1).launches
    waits = {job.job_id: job.place for job in shop.jobs()}

    assert launch.schedule.endswith(".other")
    assert len(set(waits.values())) == 2
    assert None not in waits.values()


def test_a_scheduler_looks_again_at_the_places(shop):
    """The loop knows the cap, and sleeps until the next place."""
    ready(shop, 5)
    launches = []
    scheduler = Scheduler(shop.catalog, shop.world, launches.append, most_launches=2)
    counts = []
    for _ in range(4):
        while (pause := scheduler.step()) == timedelta(0):
            pass
        counts.append(len(launches))
        shop.clock.pass_by(pause)

    assert counts == [2, 4, 5, 5]
