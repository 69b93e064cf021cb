from __future__ import annotations

import threading
from datetime import timedelta

from tidemill.catalog.db import CatalogUnavailable, LostReply
from tidemill.schedule.checker import Launch
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.loop import LONGEST_SLEEP, Scheduler
from tidemill.schedule.time_triggers import Every


def test_a_step_leads_from_the_message_to_the_run(shop):
    """A step has no sleep on the way: each sleep would be latency."""
    launches: list[Launch] = []
    scheduler = Scheduler(shop.catalog, shop.world, launches.append)
    shop.schedule(NewPartitions("clicks"), name="a")
    shop.schedule(NewPartitions("clicks") | Every("1h"), name="b", program=shop.program("b"))
    shop.add()

    scheduler.step()

    assert sorted(launch.schedule for launch in launches) == ["default.shop.a", "default.shop.b"]


def test_a_step_says_how_long_there_is_nothing_to_do(shop):
    """The next due time, but at most 5 seconds: due times are the catalog's, sleeping is this machine's."""
    scheduler = Scheduler(shop.catalog, shop.world, lambda _: None)
    idle = scheduler.step()
    shop.schedule(Every("1h"))
    far = scheduler.step()
    shop.clock.move("59m58s")
    near = scheduler.step()

    assert (idle, far, near) == (LONGEST_SLEEP, LONGEST_SLEEP, timedelta(seconds=2))


def test_a_step_with_nothing_to_do_writes_nothing(shop):
    """Thousands of idle schedules must cost a read, not a transaction that wakes all the others."""
    scheduler = Scheduler(shop.catalog, shop.world, lambda _: None)
    shop.schedule(NewPartitions("clicks", 2) | Every("1h"))
    shop.add()
    while not scheduler.step():
        pass
    marks: list[str] = []
    shop.at_mark = marks.append
    waiter = shop.catalog.waiter()

    nap = scheduler.step()

    assert nap == LONGEST_SLEEP
    assert marks == []
    assert not waiter.wait(timedelta(0))
    waiter.close()


def test_the_loop_outlives_an_outage_of_the_catalog(shop):
    """A database that restarts must not end the scheduler: it waits, and goes on where it stood."""
    shop.schedule(NewPartitions("clicks"))
    shop.add()
    launches: list[Launch] = []
    outages = iter([CatalogUnavailable("here", "gone"), LostReply("here", "gone")])

    def fail(mark: str) -> None:
        if mark == "subscriber.before_commit" and (error := next(outages, None)):
            raise error

    class Waiting:
        def wait(self, timeout: timedelta, *, found: bool) -> bool:  # noqa: ARG002  # wakes at once
            return bool(timeout)

    shop.at_mark = fail
    Scheduler(shop.catalog, shop.world, launches.append).run(Waiting(), lambda: bool(launches))

    assert len(launches) == 1


def test_a_message_whose_wake_up_is_lost_starts_its_run_at_the_next_look(shop):
    """A process may die between its commit and its notification. So no work depends on a wake-up."""
    shop.schedule(NewPartitions("clicks"))
    launches: list[Launch] = []
    naps: list[timedelta] = []

    class Deaf:
        def wait(self, timeout: timedelta, *, found: bool) -> bool:  # noqa: ARG002  # hears of no commit
            if timeout and not naps:
                shop.add()
            naps.append(timeout)
            return False

    Scheduler(shop.catalog, shop.world, launches.append).run(Deaf(), lambda: bool(launches))

    assert len(launches) == 1
    assert max(naps) == LONGEST_SLEEP


def test_a_commit_wakes_the_loop(shop):
    """No process polls: a run starts within milliseconds of the commit that triggers the run."""
    shop.schedule(NewPartitions("clicks"), constraints=(Concurrency(1),))
    launched = threading.Event()
    stopped = threading.Event()
    waiter = shop.catalog.waiter()
    scheduler = Scheduler(shop.catalog, shop.world, lambda _: launched.set())
    thread = threading.Thread(target=scheduler.run, args=[waiter, stopped.is_set])
    thread.start()

    shop.add()
    # Half of the longest sleep: it did not just wake up by itself.
    woken = launched.wait(LONGEST_SLEEP.total_seconds() / 2)
    stopped.set()
    waiter.wake()
    thread.join()
    waiter.close()

    assert woken
