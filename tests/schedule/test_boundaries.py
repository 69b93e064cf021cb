"""A run for each period that a watermark has passed: in order, each once, whatever dies meanwhile."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from datetime import date, timedelta

import pytest

from tests.schedule.test_crashes import Crash
from tests.taking import take_runs
from tests.wakes import wakes_of
from tidemill.catalog.named import Dialect, WakeKind
from tidemill.names import RunId
from tidemill.run.step.attempts import AttemptEnd, Cause, FinishRun, end_attempt
from tidemill.schedule import boundaries
from tidemill.schedule.boundaries import FREE, feed_boundaries
from tidemill.schedule.changes import Delete, Resume, Suspend, Update
from tidemill.schedule.checker import Launch
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewPartitions, WatermarkPassed
from tidemill.schedule.schedules import count_waiting, share_listening
from tidemill.schedule.specs import ScheduleSpec
from tidemill.schedule.subscriber import subscribe

EACH = WatermarkPassed("clicks", every="1h", mode="each")
MARKS = ["boundaries.locked", "boundaries.before_move", "boundaries.before_commit", "subscriber.before_commit"]


def hours(shop, launches) -> list[list[float]]:
    """Return the logical times of each run, in hours since 1970."""
    return [[at / 3_600_000 for at in shop.run(launch).triggered_by["logical_times"]] for launch in launches]


def runs_of(shop) -> list[Launch]:
    """The launches up to the end, each run ended before the next."""
    return [launch for launches in shop.step_through() for launch in launches]


def end(shop, launch: Launch, cause: Cause | None) -> None:
    """End the run of a launch: committed without a cause."""
    if cause is None:
        shop.end(launch.run_id)
        return
    lease = timedelta(seconds=60)
    shop.catalog.write(lambda db: take_runs(db, most=1, owner="r", host="h", lease=lease))
    end_attempt(shop.catalog, launch.run_id, 1, AttemptEnd(cause, "it was so"))


def test_each_period_has_a_run_of_its_own_in_order(shop):
    """Also those of the far future: the clock says nothing of what has come."""
    shop.schedule(EACH)

    shop.pass_to(9_000_010.5, None)
    first = runs_of(shop)
    shop.pass_to(9_000_010.9, 9_000_010.5)
    within = runs_of(shop)
    shop.pass_to(9_000_012, 9_000_010.9)
    shop.pass_to(9_000_013.2, 9_000_012)
    later = runs_of(shop)

    assert hours(shop, first) == [[9_000_010]]
    assert within == []
    assert hours(shop, later) == [[9_000_011], [9_000_012], [9_000_013]]
    assert shop.sql("SELECT count(*) FROM boundary") == [(0,)]


@pytest.mark.parametrize(("trigger", "woken"), [(EACH, True), (NewPartitions("raw"), False)])
def test_the_end_of_a_run_wakes_schedulers_if_a_period_waits_for_the_end(shop, trigger, woken):
    """The end of each run had the scheduler of each node look."""
    shop.schedule(trigger)
    shop.add("raw")
    shop.pass_to(9_000_012, 9_000_010)
    (launch,) = shop.step()
    shop.begin()

    wakes = wakes_of(shop.catalog, FinishRun(launch.run_id, 1, "done", {}))

    assert (WakeKind.JOB in wakes) is woken


def test_days_of_23_and_25_hours_end_at_midnight_of_the_zone(shop):
    """Counted in UTC, the run of a day would start with the second hour of the next day."""
    schedule = shop.schedule(WatermarkPassed("clicks", every="1d", mode="each"))
    saturday = (date(2021, 3, 27) - date(1970, 1, 1)).days * 24 - 1  # the first hour of it in Berlin
    sunday, monday, tuesday = saturday + 24, saturday + 47, saturday + 71

    shop.pass_to(monday - 1, saturday, zone="Europe/Berlin")
    shop.pass_to(tuesday, monday - 1, zone="Europe/Berlin")
    first = shop.step()
    waiting = shop.catalog.read(lambda db: count_waiting(db, schedule))
    shop.end(first[0].run_id)
    launches = [*first, *runs_of(shop)]

    assert hours(shop, launches) == [[sunday], [monday], [tuesday]]
    assert waiting == 2


def test_a_first_move_has_a_run_for_each_period_since_the_first_slot(shop):
    """Three hours that come in one commit are three reports, not one."""
    shop.schedule(EACH)

    shop.pass_to(11.5, None, since=8)

    assert hours(shop, runs_of(shop)) == [[9], [10], [11]]


@pytest.mark.parametrize("cause", [None, Cause.FAILED, Cause.KILLED])
def test_the_next_waits_for_the_end_of_the_run_before_it(shop, cause):
    """However that run ends; also an end of a period that is passed when no other waits any more."""
    shop.schedule(EACH, program=shop.program(reads=()))
    shop.pass_to(3, 1)
    launches = shop.step()
    early = shop.step()
    end(shop, launches[0], cause)
    launches += shop.step()
    shop.pass_to(4, 3)
    early += shop.step()
    end(shop, launches[1], cause)
    launches += shop.step()
    end(shop, launches[2], cause)

    assert early == []
    assert hours(shop, launches) == [[2], [3], [4]]
    assert shop.step() == []
    assert shop.sql("SELECT count(*) FROM boundary") == [(0,)]


def test_the_next_waits_for_a_run_of_an_end_that_is_no_longer_passed(shop):
    """The watermark moves back, and on, while the run of the last end that it had passed still goes on."""
    shop.schedule(EACH)
    shop.pass_to(13, 12)
    (running,) = shop.step()
    shop.pass_to(11.5, 13)
    early = shop.step()
    shop.pass_to(13, 11.5)
    early += shop.step()
    shop.end(running.run_id)

    assert early == []
    assert hours(shop, runs_of(shop)) == [[12], [13]]


def test_a_scheduler_that_was_overtaken_feeds_nothing(shop, monkeypatch):
    """While it looked, another one has fed the next job, and made a run of it that has not ended."""
    if shop.catalog.dialect is Dialect.SQLITE:
        pytest.skip("writers of SQLite take turns: nobody overtakes another")
    shop.schedule(EACH)
    shop.pass_to(4, 1)
    (first,) = shop.step()
    shop.end(first.run_id)
    second = []

    def share_late(db, schedule_ids):
        if not second:
            second.append(None)  # the other scheduler comes by here too
            other = threading.Thread(target=lambda: second.extend(shop.step()))
            other.start()
            other.join()
        return share_listening(db, schedule_ids)

    monkeypatch.setattr(boundaries, "share_listening", share_late)
    fed = feed_boundaries(shop.catalog, shop.world)

    assert (fed, hours(shop, second[1:])) == (0, [[3]])
    assert shop.step() == []


@pytest.mark.parametrize("alone", [True, False], ids=["first move", "after others"])
def test_a_move_over_a_huge_gap_starts_runs_for_the_latest_periods(shop, caplog, alone):
    """A partition that is dated 1970 by mistake, before those of today: the first two moves would be 490,000 runs."""
    schedule = shop.schedule(EACH)
    if not alone:
        shop.pass_to(24, None, since=0)
    shop.pass_to(490_000, None if alone else 24, since=0 if alone else None)
    (launch,) = shop.step()
    waiting = shop.catalog.read(lambda db: count_waiting(db, schedule))
    shop.end(launch.run_id)

    assert hours(shop, [launch, *shop.step()]) == [[480_001], [480_002]]
    assert waiting == 9_999
    (said,) = [record.message for record in caplog.records]
    assert f"none for the {480_000 if alone else 479_976} before" in said
    assert "schedule suspend default.shop.s" in said


def test_a_skip_of_waiting_periods_begins_with_the_next(shop):
    """As the warning says."""
    schedule = shop.schedule(EACH)
    shop.pass_to(490_000, None, since=0)
    (first,) = shop.step()
    shop.end(first.run_id)
    shop.change(Suspend(schedule.schedule_id))
    shop.change(Resume(schedule.schedule_id))
    shop.pass_to(490_001, 490_000)

    assert hours(shop, runs_of(shop)) == [[490_001]]


def test_one_run_for_all_knows_which_periods_it_covers(shop):
    """As a Cron that was missed; the latest end is its logical time."""
    shop.schedule(WatermarkPassed("clicks", every="1h"))
    shop.pass_to(9, None, since=8)
    shop.pass_to(12.5, 9)

    (launch,) = shop.step()

    assert hours(shop, [launch]) == [[9, 10, 11, 12]]
    assert shop.run(launch).triggered_by["logical_time"] == 12 * 3_600_000


@pytest.mark.parametrize("together", [True, False], ids=["one look", "two looks"])
def test_a_watermark_that_moves_back_takes_back_what_still_waits(shop, together):
    """Such periods are not complete: each has its run when the watermark passes again."""
    shop.schedule(EACH, constraints=(Concurrency(1),))
    shop.pass_to(14, 10)
    launches = shop.step()
    for after, before in ((12.5, 14), (13, 12.5)):
        shop.pass_to(after, before)
        if not together:
            subscribe(shop.catalog, shop.world)
    for _ in range(3):
        shop.end(launches[-1].run_id)
        launches += shop.step()

    assert hours(shop, launches) == [[11], [12], [13]]
    assert shop.sql("SELECT count(*) FROM boundary") == [(0,)]


def test_a_watermark_that_is_gone_takes_back_all_that_waits(shop):
    """No partition has a time any more."""
    blocker = shop.start(program := shop.program())
    shop.schedule(EACH, program=program, constraints=(Concurrency(1),))
    shop.pass_to(14, 10)
    shop.step()
    shop.publish("watermark:default.clicks", **{"from": 14 * 3_600_000_000, "to": None})
    shop.end(blocker)
    launches = shop.step()
    shop.end(launches[-1].run_id)

    assert hours(shop, launches) == [[11]]
    assert shop.step() == []


def test_a_job_that_waits_forgets_periods_that_the_watermark_no_longer_has_passed(shop):
    """The count and the ends in the run's record are without those periods."""
    leaf = WatermarkPassed("clicks", every="1h")
    shop.schedule(leaf & NewPartitions("clicks"))
    shop.pass_to(14, 10)
    subscribe(shop.catalog, shop.world)
    shop.pass_to(11.5, 14)
    subscribe(shop.catalog, shop.world)

    (job,) = shop.jobs()

    assert (job.fed[0].count, len(job.fed[0].fires)) == (1, 1)


def test_the_next_waits_for_the_job_before_it(shop):
    """Later periods join the queue, and a job that never runs does not stop the queue."""
    program = shop.program()
    blocker = shop.start(program)
    schedule = shop.schedule(EACH, program=program, constraints=(Concurrency(1),), timeout=timedelta(hours=1))
    shop.pass_to(11, 9)
    shop.step()
    shop.pass_to(12, 11)
    shop.step()
    waiting = [job.fed[0].count for job in shop.jobs()]
    shop.clock.move("1h")
    shop.step()
    outcomes = [job.outcome for job in shop.history(schedule)]
    shop.end(blocker)
    (launch,) = shop.step()
    shop.end(launch.run_id)
    (last,) = shop.step()

    assert waiting == [1]
    assert outcomes == ["timed_out"]
    assert hours(shop, [launch, last]) == [[11], [12]]


def test_a_period_joins_a_job_that_it_has_not_fed(shop):
    """Two triggers must both be satisfied, and one comes alone. A backlog is no period."""
    shop.schedule(EACH & NewPartitions("clicks"))
    shop.add()
    alone = shop.step()
    shop.pass_to(3, 1)
    first = runs_of(shop)
    shop.add()
    second = runs_of(shop)

    assert alone == []
    assert hours(shop, [*first, *second]) == [[2], [3]]


def test_work_that_is_left_starts_a_run_without_a_time(shop):
    """Late windows, and those that failed, are announced so."""
    shop.schedule(EACH)
    shop.publish("backlog:default.clicks", consumer="default.shop.ingest")
    launches = shop.step()

    assert hours(shop, launches) == [[]]


@pytest.mark.parametrize("change", [Suspend, lambda one: Update(one, ScheduleSpec(EACH | NewPartitions("clicks")))])
def test_a_schedule_that_is_changed_starts_again(shop, change):
    """The waiting periods belonged to the old declaration."""
    schedule = shop.schedule(EACH)
    shop.pass_to(20, 10)
    subscribe(shop.catalog, shop.world)
    feed_boundaries(shop.catalog, shop.world)
    shop.change(change(schedule.schedule_id))
    left = shop.sql("SELECT count(*) FROM boundary WHERE next_at <= last_at")
    shop.change(Resume(schedule.schedule_id))
    nothing = shop.step()
    shop.pass_to(21, 20)

    assert (left, nothing) == ([(0,)], [])
    assert hours(shop, shop.step()) == [[21]]


@pytest.mark.parametrize("change", [Suspend, lambda one: Update(one, ScheduleSpec(EACH | NewPartitions("clicks")))])
def test_the_next_waits_for_a_run_from_before_a_change(shop, change):
    """A suspension ends no run, and does not let the next one start beside it."""
    schedule = shop.schedule(EACH, program=shop.program(reads=()))
    shop.pass_to(20, 18)
    (running,) = shop.step()
    shop.change(change(schedule.schedule_id))
    early = shop.step()
    shop.change(Resume(schedule.schedule_id))
    shop.pass_to(21, 20)
    early += shop.step()
    shop.end(running.run_id)

    assert early == []
    assert hours(shop, runs_of(shop)) == [[21]]
    assert shop.sql("SELECT count(*) FROM boundary") == [(0,)]


@pytest.mark.parametrize("change", [Suspend, Delete])
def test_a_schedule_that_listens_no_more_leaves_nothing_behind(shop, change):
    """Its queue goes with its last run; nothing is looked at over and over."""
    schedule = shop.schedule(EACH, program=shop.program(reads=()))
    shop.pass_to(20, 18)
    (running,) = shop.step()
    shop.change(change(schedule.schedule_id))
    shop.end(running.run_id)

    assert shop.step() == []
    assert shop.sql("SELECT count(*) FROM boundary") == [(0,)]
    assert shop.catalog.read(lambda db: db.look(FREE)).found == (None,)


def test_two_schedulers_feed_each_period_once(shop):
    """A period that both schedulers find is neither doubled nor lost."""
    for number in range(6):
        shop.schedule(EACH, name=f"s{number}", program=shop.program(f"p{number}"))
    shop.pass_to(12, 0)
    subscribe(shop.catalog, shop.world)

    fed = shop.feed_at_once(lambda: feed_boundaries(shop.catalog, shop.world, limit=3))

    assert (len(fed), set(fed.values())) == (6 * 12, {1})


@pytest.mark.parametrize("mark", MARKS)
def test_a_crash_at_any_mark_loses_and_doubles_no_period(shop, mark):
    """The message, its periods and their jobs are transactions each."""
    shop.schedule(EACH)
    shop.pass_to(4, 1)
    crashes = 0

    def crash(reached: str) -> None:
        nonlocal crashes
        if reached == mark and crashes < 2:
            crashes += 1
            raise Crash

    shop.at_mark = crash
    for _ in range(5):
        with suppress(Crash):
            shop.step()
        for (run_id,) in shop.sql("SELECT run_id FROM run WHERE ended_at IS NULL"):
            shop.end(RunId(str(run_id)))
    shop.at_mark = None

    causes = [json.loads(str(text)) for (text,) in shop.sql("SELECT triggered_by FROM run")]
    assert crashes == 2
    assert sorted(at / 3_600_000 for cause in causes for at in cause["logical_times"]) == [2, 3, 4]
