from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest

from tidemill.schedule.changes import Suspend
from tidemill.schedule.checker import check_due
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.jobs import JobState, Outcome, turn
from tidemill.schedule.specs import BadSchedule, OnTimeout, ScheduleSpec
from tidemill.schedule.subscriber import subscribe
from tidemill.schedule.triggers import AllOf

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE = (Concurrency(1),)


def test_a_satisfied_job_is_a_run_and_gone(shop):
    """Ready to running is one transaction: the run's record is there when the job is gone."""
    schedule = shop.schedule(NewPartitions("clicks"), arguments={}, priority=7, deadline=timedelta(hours=1))
    shop.add(partitions=3)

    (launch,) = shop.step()

    run = shop.run(launch)
    (ended,) = shop.history(schedule)
    assert (run.job_id, run.schedule_id, run.priority) == (launch.job_id, schedule.schedule_id, 7)
    assert (ended.job_id, ended.outcome, ended.run_id) == (launch.job_id, Outcome.LAUNCHED, launch.run_id)
    assert launch.why == "3/1 new partitions of default.clicks"
    assert shop.jobs() == []


def test_a_job_says_what_it_waits_for(shop):
    """Then `job show` answers "why is it not running?" from what the last check found."""
    shop.schedule(NewPartitions("clicks", 3))
    shop.add(partitions=2)
    shop.step()

    (job,) = shop.jobs()

    assert job.state is JobState.PENDING_TRIGGER
    assert job.next_check_at is None
    assert job.verdict == {
        "trigger": {"answer": "waiting", "why": "2/3 new partitions of default.clicks"},
        "constraints": [],
    }


def test_a_job_over_the_limit_waits_and_goes_when_a_slot_is_free(shop):
    """Concurrency waits by default; what comes meanwhile joins the job and goes with it."""
    shop.schedule(NewPartitions("clicks"), constraints=ONE)
    shop.add()
    (first,) = shop.step()
    shop.add()
    shop.step()
    shop.add()
    blocked = shop.step()
    (job,) = shop.jobs()
    shop.end(first.run_id)

    (second,) = shop.step()

    assert blocked == []
    assert job.state is JobState.PENDING_CONSTRAINT
    assert job.verdict["constraints"][0]["why"] == "concurrency 1/1"
    assert shop.run(second).triggered_by["triggers"][0]["count"] == 2
    assert shop.step() == []


def test_two_schedules_of_one_program_share_its_limit(shop):
    """The race named in the seed: checked separately, both would launch."""
    program = shop.program()
    for number in range(5):
        shop.schedule(NewPartitions("clicks"), name=f"s{number}", program=program, constraints=(Concurrency(2),))
    shop.add()
    launched = []

    while launches := shop.step():
        assert len(launches) == (2 if len(launched) < 4 else 1)
        launched += launches
        for launch in launches:
            shop.end(launch.run_id)

    assert len(launched) == 5


def test_a_run_without_a_schedule_counts_too(shop):
    """`run start` by hand takes a slot of its program like any other run."""
    program = shop.program()
    run_id = shop.start(program)
    shop.schedule(NewPartitions("clicks"), program=program, constraints=ONE)
    shop.add()

    blocked = shop.step()
    shop.end(run_id)

    assert blocked == []
    assert len(shop.step()) == 1


def test_the_higher_priority_goes_first(shop):
    """Story 6: when slots are short, high first; low waits its turn."""
    program = shop.program()
    for name, priority in [("low", 0), ("high", 9), ("middle", 5)]:
        shop.schedule(NewPartitions("clicks"), name=name, program=program, constraints=ONE, priority=priority)
    shop.add()
    order = []

    while launches := shop.step():
        order += [launch.schedule for launch in launches]
        for launch in launches:
            shop.end(launch.run_id)

    assert order == ["default.shop.high", "default.shop.middle", "default.shop.low"]


def test_a_free_slot_is_left_to_the_job_with_the_better_turn(shop):
    """The checker looks at one job at a time: the low job must not take a slot that was freed for the high one."""
    program = shop.program()
    blocker = shop.start(program)
    for name, priority in [("high", 9), ("low", 0)]:
        shop.schedule(NewPartitions(name), name=name, program=program, constraints=ONE, priority=priority)
    shop.add("high")
    shop.step()
    shop.end(blocker)
    shop.sql("UPDATE job SET next_check_at = next_check_at + 1000")
    shop.add("low")

    yielded = shop.step()
    shop.clock.move("1s")
    (launch,) = shop.step()

    assert yielded == []
    assert launch.schedule == "default.shop.high"


def test_a_job_past_its_deadline_goes_before_any_priority(shop):
    """Stories 5 and 6: low priority may wait, but is not starved."""
    late = turn(NOON, 0, NOON, NOON, "job_b")
    high = turn(NOON, 9, NOON + timedelta(seconds=1), NOON, "job_a")

    assert sorted([high, late]) == [late, high]


def test_a_job_that_leaves_the_queue_wakes_those_behind(shop):
    """A job that yielded to one that was then suspended would wait for the end of a run that never starts."""
    program = shop.program()
    blocker = shop.start(program)
    high = shop.schedule(NewPartitions("high"), name="high", program=program, constraints=ONE, priority=9)
    shop.schedule(NewPartitions("low"), name="low", program=program, constraints=ONE)
    shop.add("high")
    shop.step()
    shop.end(blocker)
    shop.sql("UPDATE job SET next_check_at = next_check_at + 1000")
    shop.add("low")
    yielded = shop.step()

    shop.change(Suspend(high.schedule_id))

    assert yielded == []
    assert [launch.schedule for launch in shop.step()] == ["default.shop.low"]


def test_a_job_that_waits_too_long_is_cancelled_and_its_work_comes_again(shop):
    """Seed 001: the time-out cancels; the data is still there, so a backlog message makes the next job."""
    program = shop.program()
    blocker = shop.start(program)
    schedule = shop.schedule(NewPartitions("clicks"), program=program, constraints=ONE)
    seq = shop.add()
    shop.step()
    shop.clock.move("23h59m")
    waiting = shop.step()
    shop.clock.move("1m")
    shop.step()

    (ended,) = shop.history(schedule)
    (again,) = shop.jobs()
    shop.end(blocker)
    (launch,) = shop.step()

    assert waiting == []
    assert (ended.outcome, ended.run_id) == (Outcome.TIMED_OUT, None)
    assert (ended.detail["why"], ended.detail["messages"]) == ("concurrency 1/1", [[0, "data", seq, 0]])
    assert again.fed[0].backlog
    assert shop.run(launch).job_id == again.job_id


def test_the_time_out_runs_from_the_moment_the_trigger_is_satisfied(shop):
    """The time-out limits the wait for the constraints: the fifth partition may come days later."""
    program = shop.program()
    blocker = shop.start(program)
    shop.schedule(NewPartitions("clicks", 2), program=program, constraints=ONE)
    shop.add()
    shop.step()
    shop.clock.move("48h")
    shop.add()
    shop.step()
    shop.clock.move("23h")
    shop.step()
    shop.end(blocker)

    (launch,) = shop.step()

    assert shop.run(launch).triggered_by["triggers"][0]["count"] == 2


def test_a_schedule_may_force_its_start(shop):
    """Seed 001: cancel or force."""
    program = shop.program()
    shop.start(program)
    schedule = shop.schedule(
        NewPartitions("clicks"),
        program=program,
        constraints=ONE,
        timeout=timedelta(hours=1),
        on_timeout=OnTimeout.FORCE,
    )
    shop.add()
    shop.step()
    shop.clock.move("1h")

    (launch,) = shop.step()

    (ended,) = shop.history(schedule)
    assert (ended.outcome, ended.run_id) == (Outcome.FORCED, launch.run_id)


@pytest.mark.parametrize(
    "trigger", [NewPartitions("clicks", 2), AllOf(NewPartitions("clicks"), NewPartitions("users"))]
)
def test_a_trigger_may_have_a_time_to_be_satisfied(shop, trigger):
    """A job that waits longer ends, and the trigger counts from zero."""
    schedule = shop.schedule(trigger, trigger_timeout=timedelta(hours=2))
    seq = shop.add()
    shop.step()
    shop.clock.move("1h59m59s")
    assert shop.step() == []
    assert len(shop.jobs()) == 1
    shop.clock.move("1s")

    assert shop.step() == []

    (ended,) = shop.history(schedule)
    assert (ended.outcome, ended.run_id) == (Outcome.TRIGGER_TIMED_OUT, None)
    assert ended.detail["messages"] == [[0, "data", seq, 0]]
    assert shop.jobs() == []
    shop.add()
    assert shop.step() == []
    assert len(shop.jobs()) == 1


def test_a_trigger_that_is_satisfied_in_its_last_moment_launches(shop):
    """The time ends a job that is not satisfied, however late a scheduler looks."""
    shop.schedule(NewPartitions("clicks", 2), trigger_timeout=timedelta(hours=2))
    shop.add()
    shop.step()
    shop.clock.move("2h")
    shop.add()

    assert len(shop.step()) == 1


def test_the_time_of_a_trigger_is_none_of_its_constraints(shop):
    """The time bounds the wait for the trigger alone: `timeout` bounds the wait for the constraints."""
    program = shop.program()
    blocker = shop.start(program)
    shop.schedule(NewPartitions("clicks"), program=program, constraints=ONE, trigger_timeout=timedelta(hours=2))
    shop.add()
    shop.step()
    shop.clock.move("3h")
    shop.step()
    shop.end(blocker)

    assert len(shop.step()) == 1


def test_a_trigger_timeout_below_a_second_is_refused():
    """As for `timeout`."""
    with pytest.raises(BadSchedule, match="trigger_timeout must be at least 1s"):
        ScheduleSpec(NewPartitions("clicks"), trigger_timeout=timedelta(0))


def test_arguments_that_the_program_does_not_take_end_the_job_with_the_reason(shop):
    """A broken schedule must not stop the others of its batch, nor be tried for ever."""
    broken = shop.schedule(NewPartitions("clicks"), name="broken", arguments={"day": "x"})
    shop.schedule(NewPartitions("clicks"), name="sound", program=shop.program("sound"))
    shop.add()

    launches = shop.step()

    (ended,) = shop.history(broken)
    assert [launch.schedule for launch in launches] == ["default.shop.sound"]
    assert ended.outcome is Outcome.NEVER
    assert "'day'" in ended.detail["why"]
    assert shop.jobs() == []


@pytest.mark.parametrize("limit", [1, 3])
def test_two_checkers_never_launch_past_a_limit(shop, limit):
    """Known from elsewhere (airflow #56646): a limit checked outside of the lock is exceeded by a race."""
    program = shop.program()
    for number in range(24):
        shop.schedule(NewPartitions("clicks"), name=f"s{number}", program=program, constraints=(Concurrency(limit),))
    shop.add()
    subscribe(shop.catalog, shop.world)
    barrier = threading.Barrier(4)
    launched: list[int] = []

    def check() -> None:
        barrier.wait()
        launched.extend(len(check_due(shop.catalog, shop.world, limit=2).launches) for _ in range(6))

    threads = [threading.Thread(target=check) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(launched) == limit


def test_two_schedulers_make_one_run_of_one_event(shop):
    """Known from elsewhere (airflow #54491, kestra #14196): one event, two schedulers, two runs."""
    for number in range(6):
        shop.schedule(NewPartitions("clicks"), name=f"s{number}", program=shop.program(f"p{number}"))
    barrier = threading.Barrier(3)
    runs: list[str] = []

    def schedule() -> None:
        barrier.wait()
        for _ in range(10):
            subscribe(shop.catalog, shop.world, limit=2)
            runs.extend(launch.schedule for launch in check_due(shop.catalog, shop.world).launches)

    threads = [threading.Thread(target=schedule) for _ in range(3)]
    shop.add()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(runs) == [f"default.shop.s{number}" for number in range(6)]


def test_a_slot_freed_while_a_checker_looks_is_not_missed(shop):
    """Without the limit's lock PostgreSQL lost the wake-up: the checker counts the slot as held while its run ends."""
    program = shop.program()
    blocker = shop.start(program)
    shop.schedule(NewPartitions("clicks"), program=program, constraints=ONE)
    shop.add()
    subscribe(shop.catalog, shop.world)
    ending = threading.Thread(target=shop.end, args=[blocker])

    def end_now(mark: str) -> None:
        # The decision to wait is made, and not committed. The end may have to wait for us: give it only a moment.
        if mark == "checker.before_runs" and ending.ident is None:
            ending.start()
            ending.join(0.2)

    shop.at_mark = end_now
    check_due(shop.catalog, shop.world)
    ending.join()

    launches = shop.step()

    assert len(launches) == 1
