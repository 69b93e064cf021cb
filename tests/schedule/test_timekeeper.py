from __future__ import annotations

import threading
from datetime import timedelta

from tidemill.schedule.checker import check_due
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.jobs import to_ms
from tidemill.schedule.schedules import Resume, Suspend, Update
from tidemill.schedule.specs import ScheduleSpec
from tidemill.schedule.subscriber import subscribe
from tidemill.schedule.time_triggers import Every
from tidemill.schedule.timekeeper import fire_due


def test_every_fires_when_it_is_due_and_not_before(shop):
    """The first time counts from the resumption, the next from the launch."""
    shop.schedule(Every("4h"))
    fired = []

    for _ in range(12):
        shop.clock.move("1h")
        fired.append(len(shop.step()))

    assert fired == [0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_an_early_run_by_data_moves_the_next_one(shop):
    """Story 11: at least every 4 hours, sooner when the data has come; never both within the same 4 hours."""
    shop.schedule(Every("4h") | NewPartitions("clicks"))
    fired = []

    for hour in range(1, 10):
        shop.clock.move("1h")
        if hour == 3:
            shop.add()
        fired.append(len(shop.step()))

    assert fired == [0, 0, 1, 0, 0, 0, 1, 0, 0]


def test_the_run_is_told_its_logical_time(shop):
    """It was due at 16:00, however late the scheduler was: the program names its output by that."""
    shop.schedule(Every("4h"))
    shop.clock.move("4h")
    due_at = to_ms(shop.clock.at)
    shop.clock.move("17m")

    (launch,) = shop.step()

    assert shop.run(launch).triggered_by["logical_time"] == due_at


def test_downtime_makes_one_run(shop):
    """Misfire `once`: a scheduler that was down for two days must not start twelve runs in a row."""
    shop.schedule(Every("4h"))
    shop.clock.move("48h")
    due_at = to_ms(shop.clock.at)
    shop.clock.move("2h")

    launches = shop.step()
    shop.clock.move("3h59m")
    soon = shop.step()
    shop.clock.move("1m")

    assert (len(launches), len(soon), len(shop.step())) == (1, 0, 1)
    assert shop.run(launches[0]).triggered_by["logical_time"] == due_at


def test_a_time_trigger_waits_for_the_data_beside_it(shop):
    """`Every & NewPartitions`: at most once in 4 hours, and only with data."""
    shop.schedule(Every("4h") & NewPartitions("clicks"))
    shop.clock.move("5h")
    alone = shop.step()
    shop.clock.move("5h")
    still = shop.step()
    shop.add()

    (launch,) = shop.step()

    assert alone == still == []
    assert [trigger["type"] for trigger in shop.run(launch).triggered_by["triggers"]] == ["every", "new_partitions"]


def test_a_job_that_waits_is_not_fed_the_same_trigger_again(shop):
    """A run of ten hours with a limit of one leaves one job behind it, not ten fires."""
    program = shop.program()
    shop.schedule(Every("1h"), program=program, constraints=(Concurrency(1),))
    shop.clock.move("1h")
    shop.step()
    for _ in range(10):
        shop.clock.move("1h")
        shop.step()

    (job,) = shop.jobs()

    assert job.fed[0].count == 1
    assert fire_due(shop.catalog, shop.world) == 0


def test_a_cancelled_job_does_not_end_the_timer(shop):
    """`Every` counts from the last launch: without one it is due again all the same."""
    program = shop.program()
    shop.schedule(NewPartitions("clicks"), name="blocker", program=program)
    shop.add()
    (blocker,) = shop.step()
    shop.schedule(Every("4h"), program=program, constraints=(Concurrency(1),), timeout=timedelta(hours=1))
    shop.clock.move("4h")
    shop.step()
    shop.clock.move("1h")
    shop.step()
    assert shop.jobs() == []

    shop.end(blocker.run_id)
    shop.clock.move("2h59m")
    early = shop.step()
    shop.clock.move("1m")

    assert (len(early), len(shop.step())) == (0, 1)


def test_a_suspended_schedule_does_not_fire_and_counts_anew_when_resumed(shop):
    """Resumed after a month it is due 4 hours later, not at once."""
    schedule = shop.schedule(Every("4h"))
    shop.change(Suspend(schedule.schedule_id))
    shop.clock.move("5h")
    asleep = shop.step()
    shop.change(Resume(schedule.schedule_id))
    shop.clock.move("3h59m")
    early = shop.step()
    shop.clock.move("1m")

    assert (asleep, early, len(shop.step())) == ([], [], 1)


def test_a_changed_duration_counts_from_the_change(shop):
    """A timer of the old generation must not fire the new one."""
    schedule = shop.schedule(Every("4h"))
    shop.clock.move("3h")
    shop.change(Update(schedule.schedule_id, ScheduleSpec(Every("2h"))))
    shop.clock.move("1h59m")
    early = shop.step()
    shop.clock.move("1m")

    assert (early, len(shop.step())) == ([], 1)


def test_a_timer_without_a_schedule_is_removed(shop):
    """A suspension and a resumption that crossed may leave one: it must not be found due for ever."""
    shop.schedule(Every("4h"))
    shop.sql("UPDATE schedule SET status = 'SUSPENDED'")
    shop.clock.move("4h")

    launches = shop.step()

    assert launches == []
    assert shop.sql("SELECT count(*) FROM timer") == [(0,)]


def test_a_message_and_a_due_time_in_one_instant_are_one_job(shop):
    """Known from elsewhere (CDAP-12583): two jobs for one composite, each with half of it, never start."""
    shop.schedule(Every("1h") & NewPartitions("clicks"))
    shop.add()
    shop.clock.move("1h")
    timekeeper = threading.Thread(target=fire_due, args=[shop.catalog, shop.world])

    def let_the_time_come(mark: str) -> None:
        # The job with the message is made, and not committed. The other has to wait for us: give it only a moment.
        if mark == "subscriber.before_commit" and timekeeper.ident is None:
            timekeeper.start()
            timekeeper.join(0.2)

    shop.at_mark = let_the_time_come
    subscribe(shop.catalog, shop.world)
    timekeeper.join()

    (job,) = shop.jobs()
    assert sorted(job.fed) == [0, 1]
    assert len(shop.step()) == 1


def test_two_timekeepers_fire_once(shop):
    """Any number of schedulers share the timers: each due time is one fire, whoever finds it."""
    for number in range(20):
        shop.schedule(Every("1h"), name=f"s{number}", program=shop.program(f"p{number}"))
    shop.clock.move("1h")
    barrier = threading.Barrier(3)

    def fire() -> None:
        barrier.wait()
        while fire_due(shop.catalog, shop.world, limit=3):
            pass

    threads = [threading.Thread(target=fire) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [job.fed[0].count for job in shop.jobs()] == [1] * 20
    assert shop.sql("SELECT count(*), count(job_id) FROM fire") == [(20, 20)]


def test_a_slot_freed_while_the_timekeeper_holds_the_job_is_not_missed(shop):
    """The end of a run passes over jobs that are locked: who locks one and feeds it nothing has it looked at."""
    program = shop.program()
    blocker = shop.start(program)
    shop.schedule(Every("1h"), program=program, constraints=(Concurrency(1),))
    shop.clock.move("1h")
    shop.step()
    shop.clock.move("1h")
    ending = threading.Thread(target=shop.end, args=[blocker])

    def end_now(mark: str) -> None:
        if mark == "timekeeper.before_jobs" and ending.ident is None:
            ending.start()
            ending.join(0.2)

    shop.at_mark = end_now
    fire_due(shop.catalog, shop.world)
    ending.join()

    assert len(check_due(shop.catalog, shop.world).launches) == 1


def test_no_logical_time_fires_twice(shop):
    """A clock that steps back must not repeat what has fired: the database remembers."""
    program = shop.program()
    shop.start(program)
    shop.schedule(Every("1h"), program=program, constraints=(Concurrency(1),), timeout=timedelta(minutes=10))
    shop.clock.move("1h")
    shop.step()
    shop.clock.move("10m")
    shop.step()
    shop.sql("UPDATE timer SET next_fire_at = 0")

    fire_due(shop.catalog, shop.world)

    assert shop.jobs() == []
    assert shop.sql("SELECT count(*) FROM fire") == [(1,)]
