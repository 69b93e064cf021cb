from __future__ import annotations

from datetime import timedelta

from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.jobs import to_ms
from tidemill.schedule.schedules import Resume, Suspend, Update
from tidemill.schedule.specs import ScheduleSpec
from tidemill.schedule.timekeeper import fire_due
from tidemill.schedule.triggers import Every, NewPartitions


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
