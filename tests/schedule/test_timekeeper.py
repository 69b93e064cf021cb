from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.wakes import wakes_of
from tidemill.catalog.named import WakeKind
from tidemill.epoch import from_ms, to_ms
from tidemill.run.step.attempts import FinishRun
from tidemill.schedule import misfires, timekeeper
from tidemill.schedule.changes import Resume, Suspend, Update
from tidemill.schedule.checker import check_due
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.specs import Misfire, ScheduleSpec
from tidemill.schedule.subscriber import subscribe
from tidemill.schedule.time_triggers import Cron, Every
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


def test_the_run_knows_its_logical_time(shop):
    """The run was due at 16:00, however late the scheduler was: the program names its output by that time."""
    shop.schedule(Every("4h"))
    shop.clock.move("4h")
    due_at = to_ms(shop.clock.at)
    shop.clock.move("17m")

    (launch,) = shop.step()

    assert shop.run(launch).triggered_by["logical_time"] == due_at


def test_schedules_with_one_trigger_are_decided_together(shop, monkeypatch):
    """Ten thousand nightly schedules are due at midnight: to decide about each of them was a fifth of all work."""
    asked = Counter()
    check = Cron.check

    def counted(trigger, fed, now):
        asked[str(trigger)] += 1
        return check(trigger, fed, now)

    monkeypatch.setattr(Cron, "check", counted)
    for number in range(6):
        shop.schedule(Cron("0 0 * * *"), name=f"nightly_{number}", program=shop.program(f"p{number}"))
    shop.schedule(Cron("0 0 1 * *"), name="monthly", program=shop.program("p"))
    shop.clock.move(datetime(2026, 4, 1, tzinfo=UTC) - shop.clock.at)
    causes = {}

    for launch in shop.step():
        causes[launch.schedule] = shop.run(launch).triggered_by

    # One question for the start, and one for the cause that the runs keep.
    assert asked == {"Cron('0 0 * * *', zone='UTC')": 2, "Cron('0 0 1 * *', zone='UTC')": 2}
    assert {name: cause["schedule"] for name, cause in causes.items()} == {name: name for name in causes}
    assert len(causes) == 7
    assert {name: cause["triggers"][0]["expression"] for name, cause in causes.items()} == {
        name: "0 0 1 * *" if name.endswith("monthly") else "0 0 * * *" for name in causes
    }


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
    assert fire_due(shop.catalog, shop.world).timers == 0


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


def test_a_suspended_schedule_does_not_fire_and_counts_again_when_resumed(shop):
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
    shop.sql("UPDATE schedule SET status = 'SUSPENDED', suspended_at = 0, suspended_mode = 'drop'")
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


NIGHTLY = Cron("30 2 * * *", zone="Europe/Berlin")


def _move_to(shop, day: str, text: str = "12:00") -> None:
    """Set the clock to a time of Berlin's."""
    at = datetime.fromisoformat(f"2026-{day}T{text}").replace(tzinfo=ZoneInfo("Europe/Berlin"))
    shop.clock.move(at - shop.clock.at)


def _logical_times(shop, launches) -> list[list[str]]:
    """The local logical times of each launch's run."""
    berlin = ZoneInfo("Europe/Berlin")
    return [
        [f"{from_ms(at).astimezone(berlin):%d. %H:%M}" for at in shop.run(launch).triggered_by["logical_times"]]
        for launch in launches
    ]


def test_cron_fires_by_the_clock_of_its_zone(shop):
    """Each night at half past two of Berlin; also when that half hour is left out, and once when it is repeated."""
    _move_to(shop, "03-28")
    shop.schedule(NIGHTLY)
    fired = []

    for day in ("03-29", "03-30", "03-31"):
        _move_to(shop, day, "01:59")
        fired += _logical_times(shop, shop.step())
        _move_to(shop, day, "03:00")
        fired += _logical_times(shop, shop.step())

    assert fired == [["29. 03:00"], ["30. 02:30"], ["31. 02:30"]]


def test_a_run_by_data_does_not_move_cron(shop):
    """A report at half past two comes at half past two, whatever ran an hour before."""
    _move_to(shop, "04-01", "02:00")
    shop.schedule(NIGHTLY | NewPartitions("clicks"))
    shop.add()
    early = shop.step()
    _move_to(shop, "04-01", "02:30")

    assert (len(early), len(shop.step())) == (1, 1)


def test_misfire_once_makes_one_run_of_all_that_was_missed(shop):
    """The usual one: the run knows every night that it stands for, so that nothing is skipped."""
    _move_to(shop, "04-01")
    shop.schedule(NIGHTLY)
    _move_to(shop, "04-05")

    launches = shop.step()
    again = shop.step()

    assert _logical_times(shop, launches) == [["02. 02:30", "03. 02:30", "04. 02:30", "05. 02:30"]]
    assert shop.run(launches[0]).triggered_by["logical_time"] == to_ms(datetime(2026, 4, 5, 0, 30, tzinfo=UTC))
    assert again == []


def test_under_once_a_fire_joins_the_job_that_waits(shop):
    """A run of three days with a limit of one leaves one job behind it that knows of both nights."""
    _move_to(shop, "04-01")
    program = shop.program()
    blocker = shop.start(program)
    shop.schedule(NIGHTLY, program=program, constraints=(Concurrency(1),), timeout=timedelta(days=9))
    for day in ("04-02", "04-03"):
        _move_to(shop, day)
        shop.step()
    shop.end(blocker)

    assert _logical_times(shop, shop.step()) == [["02. 02:30", "03. 02:30"]]


def test_misfire_all_makes_a_run_for_each_in_order(shop):
    """A report of each day, of the day before: four nights of downtime are four reports."""
    _move_to(shop, "04-01")
    shop.schedule(NIGHTLY, misfire=Misfire.ALL)
    _move_to(shop, "04-05")

    launches = shop.step_through()

    assert [_logical_times(shop, one) for one in launches] == [
        [["02. 02:30"]],
        [["03. 02:30"]],
        [["04. 02:30"]],
        [["05. 02:30"]],
    ]
    assert shop.sql("SELECT count(*) FROM timer WHERE behind IS NULL") == [(1,)]


def test_under_all_a_time_that_comes_waits_for_the_run_before_it(shop):
    """A run of thirty hours, of which nothing was missed; the next one starts when it has ended."""
    _move_to(shop, "04-01")
    shop.schedule(NIGHTLY, misfire=Misfire.ALL)
    _move_to(shop, "04-02")
    (first,) = shop.step()
    _move_to(shop, "04-03")
    early = shop.step()
    shop.end(first.run_id)
    second = shop.step()

    assert early == []
    assert _logical_times(shop, [first, *second]) == [["02. 02:30"], ["03. 02:30"]]


@pytest.mark.parametrize(("misfire", "woken"), [(Misfire.ALL, True), (Misfire.ONCE, False)])
def test_the_end_of_a_run_wakes_schedulers_if_a_time_waits_for_the_end(shop, misfire, woken):
    """The end of each run had the scheduler of each node look."""
    _move_to(shop, "04-01")
    shop.schedule(NIGHTLY, misfire=misfire)
    _move_to(shop, "04-02")
    (launch,) = shop.step()
    shop.begin()

    wakes = wakes_of(shop.catalog, FinishRun(launch.run_id, 1, "done", {}))

    assert (WakeKind.JOB in wakes) is woken


@pytest.mark.parametrize(
    "change", [Suspend, lambda one: Update(one, ScheduleSpec(NIGHTLY, misfire=Misfire.ALL, priority=1))]
)
def test_under_all_the_next_waits_for_a_run_from_before_a_change(shop, change):
    """A suspension ends no run, and does not let the next one start beside it."""
    _move_to(shop, "04-01")
    schedule = shop.schedule(NIGHTLY, misfire=Misfire.ALL)
    _move_to(shop, "04-02")
    (first,) = shop.step()
    shop.change(change(schedule.schedule_id))
    shop.change(Resume(schedule.schedule_id))
    _move_to(shop, "04-03")
    early = shop.step()
    shop.end(first.run_id)
    second = shop.step()

    assert early == []
    assert _logical_times(shop, [first, *second]) == [["02. 02:30"], ["03. 02:30"]]


def test_under_all_the_next_waits_for_the_job_before_it(shop):
    """Each in a job of its own, also when they come while one waits for its turn; a job that is cancelled ends it."""
    _move_to(shop, "04-01")
    program = shop.program()
    blocker = shop.start(program)
    schedule = shop.schedule(
        NIGHTLY,
        program=program,
        misfire=Misfire.ALL,
        constraints=(Concurrency(1),),
        timeout=timedelta(days=2),
    )
    for day in ("04-02", "04-03", "04-04"):
        _move_to(shop, day, "02:29")
        shop.step()
        _move_to(shop, day, "02:30")
        shop.step()
    waiting = [job.fed[0].count for job in shop.jobs()]
    history = shop.history(schedule)
    shop.end(blocker)
    (launch,) = shop.step()
    shop.end(launch.run_id)
    (last,) = shop.step()

    assert waiting == [1]
    assert [job.outcome for job in history] == ["timed_out"]
    assert _logical_times(shop, [launch, last]) == [["03. 02:30"], ["04. 02:30"]]


def test_under_all_a_time_joins_a_job_that_it_has_not_fed(shop):
    """`Cron & NewPartitions`: a job that was made by data waits for the time, so the time must not wait for the job."""
    _move_to(shop, "04-01")
    shop.schedule(NIGHTLY & NewPartitions("clicks"), misfire=Misfire.ALL)
    _move_to(shop, "04-03")
    alone = shop.step()
    shop.add()
    first = shop.step()
    shop.end(first[0].run_id)
    shop.add()
    second = shop.step()
    shop.end(second[0].run_id)
    shop.add()
    third = shop.step()

    assert (alone, third) == ([], [])
    assert _logical_times(shop, [*first, *second]) == [["02. 02:30"], ["03. 02:30"]]


def test_misfire_skip_keeps_what_is_within_the_grace(shop):
    """A reminder at half past two is of no use at noon."""
    _move_to(shop, "04-01")
    shop.schedule(NIGHTLY, misfire=Misfire.SKIP, grace=timedelta(minutes=10))
    fired = []

    for day, text in (("04-02", "02:40"), ("04-03", "02:41"), ("04-04", "02:30"), ("04-09", "02:35")):
        _move_to(shop, day, text)
        fired += _logical_times(shop, shop.step())

    assert fired == [["02. 02:30"], ["04. 02:30"], ["09. 02:30"]]


def test_a_suspended_cron_has_nothing_to_make_up_for(shop):
    """Suspended means that nothing starts, also not later: not even under `all`."""
    _move_to(shop, "04-01")
    program = shop.program()
    blocker = shop.start(program)
    schedule = shop.schedule(NIGHTLY, program=program, misfire=Misfire.ALL, constraints=(Concurrency(1),))
    _move_to(shop, "04-03")
    shop.step()
    shop.change(Suspend(schedule.schedule_id))
    shop.end(blocker)
    _move_to(shop, "04-05")
    shop.change(Resume(schedule.schedule_id))
    resumed = shop.step()
    _move_to(shop, "04-06")

    assert (resumed, _logical_times(shop, shop.step())) == ([], [["06. 02:30"]])


def test_cron_fires_nothing_from_before_its_resumption(shop):
    """The timer may have an earlier time, but that time belongs to the earlier declaration."""
    _move_to(shop, "04-01")
    shop.schedule(NIGHTLY, misfire=Misfire.ALL)
    shop.sql("UPDATE timer SET next_fire_at = 0")

    assert (shop.step(), shop.jobs()) == ([], [])
    _move_to(shop, "04-02")
    assert _logical_times(shop, shop.step()) == [["02. 02:30"]]


def test_more_missed_times_than_one_batch_holds_are_all_in_runs(shop, monkeypatch):
    """Seconds of a month are not one transaction; but none of them is lost."""
    monkeypatch.setattr(misfires, "MOST_FIRES", 7)
    monkeypatch.setattr(timekeeper, "MOST_FIRES", 7)
    shop.schedule(Cron("* * * * *"), name="a", program=shop.program("a"))
    shop.schedule(Cron("* * * * *"), name="b", program=shop.program("b"))
    shop.clock.move("20m")

    # What one timer has missed is enough for one transaction; the other is left as it is.
    fired = fire_due(shop.catalog, shop.world)
    assert fired.timers == 1
    launches = [*fired.launches, *shop.step()]

    minutes = Counter(at for launch in launches for at in shop.run(launch).triggered_by["logical_times"])
    assert (len(minutes), set(minutes.values())) == (20, {2})


@pytest.mark.parametrize("misfire", list(Misfire))
def test_two_timekeepers_that_catch_up_feed_each_time_once(shop, misfire):
    """Known from elsewhere: a cron that fires twice at fail-over, or not at all (CDAP-2831)."""
    for number in range(6):
        shop.schedule(
            Cron("*/5 * * * *"),
            name=f"s{number}",
            program=shop.program(f"p{number}"),
            misfire=misfire,
            **({"grace": timedelta(hours=2)} if misfire is Misfire.SKIP else {}),
        )
    shop.clock.move("1h")

    fed = shop.feed_at_once(lambda: fire_due(shop.catalog, shop.world, limit=3).timers)

    assert (len(fed), set(fed.values())) == (6 * 12, {1})
    assert shop.sql("SELECT count(*) FROM fire WHERE job_id IS NULL") == [(0,)]


def test_two_timekeepers_fire_once(shop):
    """Any number of schedulers share the timers: each due time is one fire."""
    for number in range(20):
        shop.schedule(Every("1h"), name=f"s{number}", program=shop.program(f"p{number}"))
    shop.clock.move("1h")
    barrier = threading.Barrier(3)

    def fire() -> None:
        barrier.wait()
        while fire_due(shop.catalog, shop.world, limit=3).timers:
            pass

    threads = [threading.Thread(target=fire) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert shop.jobs() == []
    assert shop.sql("SELECT count(*), count(DISTINCT schedule_id) FROM run") == [(20, 20)]
    assert shop.sql("SELECT count(*), count(job_id) FROM fire") == [(20, 20)]


def test_a_slot_freed_while_the_timekeeper_holds_the_job_is_not_missed(shop):
    """The end of a run skips locked jobs.

    So the block that locks a job and does not feed it makes the job due for a check.
    """
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


@pytest.mark.parametrize("back", ["1h", "3s"])
def test_every_goes_on_when_the_clock_is_set_back(shop, back):
    """The timer counts elapsed time: a program of each five seconds was silent until the clock had caught up."""
    shop.schedule(Every("5s"))
    for _ in range(3):
        shop.clock.move("5s")
        assert len(shop.step_through()) == 1
    shop.clock.set_back(back)
    shop.step_through()
    launches = []
    for _ in range(6):
        shop.clock.move("5s")
        launches += shop.step_through()

    assert len(launches) >= 5


def test_every_goes_on_when_the_clock_shows_times_again_that_have_fired(shop):
    """The clock is set back by as much as it has run: all times of the next minute have fired before."""
    shop.schedule(Every("5s"))
    for _ in range(12):
        shop.clock.move("5s")
        shop.step_through()
    shop.clock.set_back("1m")
    shop.step_through()
    launches = []
    for _ in range(6):
        shop.clock.move("5s")
        launches += shop.step_through()

    assert len(launches) >= 5


def test_an_update_drops_a_time_that_no_scheduler_has_handled(shop):
    """As the update drops the job that this time would have made (seed 001, scenarios 4 and 5)."""
    schedule = shop.schedule(Cron("0 * * * *"))
    shop.clock.move("1h")
    shop.change(Update(schedule.schedule_id, ScheduleSpec(Cron("0 * * * *"), priority=3)))
    at_once = shop.step()
    shop.clock.move("1h")

    assert at_once == []
    assert len(shop.step()) == 1
