"""Constraints against a catalog: the facts that they are given, their locks, and what becomes of their jobs."""

from __future__ import annotations

import random
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.taking import take_runs
from tidemill.names import RunId
from tidemill.reasons import Reason
from tidemill.run.records.runs import NewRun, create_pending
from tidemill.schedule.argument_sources import From
from tidemill.schedule.changes import Delete, Resume, Suspend
from tidemill.schedule.checker import check_due, force_job
from tidemill.schedule.constraints import Concurrency, GroupConcurrency, Rate
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.explain import explain_job
from tidemill.schedule.jobs import JobEnding, JobState, Outcome, end_jobs
from tidemill.schedule.schedules import list_limits
from tidemill.schedule.specs import Schedule, SuspendMode
from tidemill.schedule.subscriber import subscribe
from tidemill.schedule.time_triggers import Every
from tidemill.schedule.topic_triggers import Hook
from tidemill.schedule.triggers import Silence, Trigger
from tidemill.schedule.waits import Delay, SinceLastRun, TimeRange

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
CRM = GroupConcurrency("crm", 2)
PARTS = NewPartitions("a")
FOUR_OF_TWELVE = pytest.mark.share(*(f"{database}-{seed}" for database in ("sqlite", "postgres") for seed in range(4)))
"""The seeds that `make test` plays; `make test-long` plays the others."""


def why(shop) -> list[str]:
    """The answers of the constraints of the open jobs."""
    return [answer["why"] for job in shop.jobs() for answer in job.verdict["constraints"]]


def slots(shop) -> Counter[str]:
    """The slots in use by limit; those of programs together."""
    return Counter(str(key).partition(":prog_")[0] for (key,) in shop.sql("SELECT limit_key FROM slot"))


def test_a_group_is_shared_by_schedules_and_programs(shop):
    """Ten programs that write to one CRM must not do so at once, whichever schedules start them."""
    for number in range(5):
        shop.schedule(
            NewPartitions("clicks"), name=f"s{number}", program=shop.program(f"p{number}"), constraints=(CRM,)
        )
    shop.add()

    batches = shop.step_through()

    assert [len(batch) for batch in batches] == [2, 2, 1]
    assert slots(shop) == {}


def test_each_schedule_keeps_its_own_number_for_a_group(shop):
    """The careful one starts only while the group is nearly empty; the others go on."""
    one, five = GroupConcurrency("crm", 1), GroupConcurrency("crm", 5)
    shop.schedule(NewPartitions("a"), name="a", program=shop.program("a"), constraints=(five,))
    shop.schedule(NewPartitions("b"), name="b", program=shop.program("b"), constraints=(one,))
    shop.schedule(NewPartitions("c"), name="c", program=shop.program("c"), constraints=(five,))
    launched = []
    for name in "abc":
        shop.add(name)
        launched += [launch.schedule for launch in shop.step()]

    assert launched == ["default.shop.a", "default.shop.c"]
    assert why(shop) == ["group crm 1/1"]


def test_a_run_by_hand_counts_in_the_groups_of_its_program(shop):
    """A run by hand writes to the same CRM."""
    program = shop.program()
    shop.schedule(NewPartitions("clicks"), program=program, constraints=(GroupConcurrency("crm", 1),))
    run_id = RunId("run_by_hand")
    shop.catalog.write(lambda db: create_pending(db, [NewRun(run_id, program, limits=list_limits(db, program))]))
    shop.add()

    blocked = shop.step()
    shop.end(run_id)

    assert blocked == []
    assert len(shop.step()) == 1


def test_a_forced_run_counts_in_its_group(shop):
    """`job force` passes the limit, and does not hide the run from others."""
    one = GroupConcurrency("crm", 1)
    for name in "ab":
        shop.schedule(NewPartitions(name), name=name, program=shop.program(name), constraints=(one,))
    shop.add("a")
    shop.step()
    shop.add("b")
    shop.step()
    (job,) = shop.jobs()

    shop.catalog.write(lambda db: force_job(db, shop.world, job.job_id))

    assert slots(shop) == {"program": 2, "group:crm": 2}


def test_a_waiting_attempt_keeps_its_slot_of_the_group(shop):
    """A run that is tried again counts from its launch to its end state (protocol: limits)."""
    shop.schedule(NewPartitions("clicks"), constraints=(CRM,))
    shop.add()
    shop.step()

    shop.catalog.write(lambda db: take_runs(db, most=1, owner="r", host="h", lease=timedelta(seconds=60)))

    assert slots(shop) == {"program": 1, "group:crm": 1}


def test_two_schedulers_at_once_never_pass_a_limit(shop):
    """Checked without a lock, both would see a free slot (airflow #56646)."""
    limits = (GroupConcurrency("crm", 3), Rate(4, per="1h"), Concurrency(2))
    for number in range(8):
        shop.schedule(
            NewPartitions("clicks"), name=f"s{number}", program=shop.program(f"p{number % 2}"), constraints=limits
        )
    shop.add()
    subscribe(shop.catalog, shop.world)
    barrier = threading.Barrier(2)

    def work() -> None:
        barrier.wait()
        while check_due(shop.catalog, shop.world, 1).jobs:
            pass

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert slots(shop) == {"program": 3, "group:crm": 3}


class _Histories:
    """Six schedules of three programs with random limits, and a judge that counts the runs, not the slots."""

    def __init__(self, shop, dice: random.Random) -> None:
        self.shop = shop
        self.dice = dice
        self.active: dict[RunId, str] = {}
        self.starts: list[tuple[str, datetime]] = []
        self.specs = {}
        for number, program in enumerate([shop.program(f"p{number}") for number in range(3)] * 2):
            group = GroupConcurrency(dice.choice("xy"), dice.randint(1, 2))
            limits = (Concurrency(dice.randint(1, 2)), group, Rate(dice.randint(1, 3), per="10m"))
            chosen = tuple(dice.sample(limits, dice.randint(1, 3)))
            turn = {"constraints": chosen, "priority": dice.randint(0, 2)}
            shop.schedule(NewPartitions(f"s{number}"), name=f"s{number}", program=program, **turn)
            self.specs[f"default.shop.s{number}"] = (program, chosen)

    def move(self) -> None:
        match self.dice.randrange(3):
            case 0:
                self.shop.add(f"s{self.dice.randrange(6)}")
            case 1 if self.active:
                self.end(self.dice.choice(sorted(self.active)))
            case _:
                self.shop.clock.move(f"{self.dice.randint(1, 4)}m")
        self.step()

    def end(self, run_id: RunId) -> None:
        self.shop.end(run_id)
        del self.active[run_id]

    def step(self) -> None:
        for launch in self.shop.step():
            program, constraints = self.specs[launch.schedule]
            for constraint in constraints:
                held = self.count(constraint, program)
                assert held < constraint.n, (launch, constraint, self.active)
            self.active[launch.run_id] = launch.schedule
            self.starts.append((program, self.shop.clock.now()))

    def count(self, constraint, program: str) -> int:
        running = [self.specs[name] for name in self.active.values()]
        match constraint:
            case Concurrency():
                return sum(other == program for other, _ in running)
            case GroupConcurrency(group=group):
                return sum(any(getattr(one, "group", "") == group for one in named) for _, named in running)
            case Rate(per=per):
                return sum(other == program and self.shop.clock.now() < at + per for other, at in self.starts)


@FOUR_OF_TWELVE
@pytest.mark.parametrize("seed", range(12))
def test_no_history_passes_a_limit_and_every_job_comes_to_its_turn(shop, seed):
    """Random limits, arrivals and ends of runs, over which a simple count of the runs judges."""
    histories = _Histories(shop, random.Random(seed))
    for _ in range(25):
        histories.move()
    for _ in range(40):
        for run_id in sorted(histories.active):
            histories.end(run_id)
        shop.clock.move("10m")
        histories.step()

    assert shop.jobs() == []


def test_a_rate_holds_over_a_window_that_slides(shop):
    """Two in any hour, runs by hand included, though they ended long ago."""
    program = shop.program()
    shop.schedule(NewPartitions("clicks"), program=program, constraints=(Rate(2, per="1h"),))
    shop.end(shop.start(program))
    shop.clock.move("50m")
    launched = []
    for minutes in (0, 5, 4, 1, 30):
        shop.clock.move(f"{minutes}m") if minutes else None
        shop.add()
        launched.append(len(shop.step_through()))

    assert launched == [1, 0, 0, 1, 0]
    assert why(shop) == ["rate 2/2 in 1h"]


def test_a_job_over_the_rate_starts_when_the_window_allows_it(shop):
    """Nothing has to happen then: the time itself makes the job due."""
    shop.schedule(NewPartitions("clicks"), constraints=(Rate(1, per="1h"),))
    shop.add()
    shop.step_through()
    shop.clock.move("20m")
    shop.add()
    shop.step_through()
    (job,) = shop.jobs()

    shop.clock.move("40m")

    assert job.next_check_at == shop.clock.now()
    assert len(shop.step()) == 1


def test_a_delay_waits_from_the_trigger_on_and_what_comes_joins(shop):
    """Seed 001: the run waits ten minutes, and takes what has arrived until then."""
    shop.schedule(NewPartitions("clicks"), constraints=(Delay("10m"),))
    shop.add()
    shop.step()
    shop.clock.move("9m")
    shop.add()
    early = shop.step()
    shop.clock.move("1m")

    (launch,) = shop.step()

    assert early == []
    assert shop.run(launch).triggered_by["triggers"][0]["count"] == 2


def test_a_debounced_delay_waits_for_a_pause(shop):
    """Each message begins the delay again."""
    shop.schedule(NewPartitions("clicks"), constraints=(Delay("10m", debounce=True),))
    launched = []
    for _ in range(3):
        shop.add()
        launched += shop.step()
        shop.clock.move("9m")
        launched += shop.step()
    shop.clock.move("1m")

    assert launched == []
    assert len(shop.step()) == 1


def test_seed_scenario_1_a_least_time_between_runs(shop):
    """The first partition starts a run, and those right after it do not; the next run takes them."""
    schedule = shop.schedule(NewPartitions("clicks"), constraints=(SinceLastRun("5m", on_limit="skip"),))
    launched = []
    for _ in range(5):
        shop.add()
        launched.append(len(shop.step_through()))
        shop.clock.move("1m")
    shop.add()
    launched.append(len(shop.step_through()))

    assert launched == [1, 0, 0, 0, 0, 1]
    skipped = [job for job in shop.history(schedule) if job.outcome is Outcome.SKIPPED]
    assert len(skipped) == 4
    assert {job.run_id for job in skipped} == {None}
    assert skipped[0].detail["why"].startswith("SinceLastRun('5m', on_limit='skip'): since last run 5m: ended ")


def test_the_time_since_the_last_run_waits_for_a_run_that_has_not_ended(shop):
    """Nothing wakes the job before the end of the run, and then the time counts from there."""
    shop.schedule(NewPartitions("clicks"), constraints=(SinceLastRun("10m"),))
    shop.add()
    (first,) = shop.step()
    shop.add()
    shop.step()
    (job,) = shop.jobs()
    shop.clock.move("1h")
    shop.end(first.run_id)
    early = shop.step()
    shop.clock.move("10m")

    assert job.next_check_at == job.satisfied_at + timedelta(hours=24)
    assert early == []
    assert len(shop.step()) == 1


def test_a_failed_run_is_no_last_run(shop):
    """Else a program that fails at once could not be tried again by new data."""
    program = shop.program()
    shop.schedule(NewPartitions("clicks"), program=program, constraints=(SinceLastRun("10m"),))
    run_id = shop.start(program)
    shop.end(run_id)
    shop.sql(f"UPDATE run SET state = 'FAILED' WHERE run_id = '{run_id}'")
    shop.add()

    assert len(shop.step()) == 1


def test_a_time_range_keeps_a_job_until_it_opens(shop):
    """Story 6: the heavy run belongs into the night."""
    shop.schedule(NewPartitions("clicks"), constraints=(TimeRange("22:00", "06:00", zone="Europe/Berlin"),))
    shop.clock.move(NOON - shop.clock.now())
    shop.add()
    shop.step()
    (job,) = shop.jobs()
    shop.clock.move(job.next_check_at - shop.clock.now())

    assert job.next_check_at == NOON + timedelta(hours=9)
    assert len(shop.step()) == 1


def test_a_schedule_that_skips_outside_its_range_starts_nothing_there(shop):
    """An hourly job that is wanted by day only leaves no night behind that runs in the morning."""
    schedule = shop.schedule(Every("1h"), constraints=(TimeRange("08:00", "18:00", on_limit="skip"),))
    shop.clock.move(NOON + timedelta(hours=8) - shop.clock.now())

    launches = shop.step()

    assert launches == []
    assert shop.jobs() == []
    assert {job.outcome for job in shop.history(schedule)} == {Outcome.SKIPPED}


def test_all_constraints_hold_at_one_instant(shop):
    """The slot that was free at the first check is taken when the delay is over."""
    program = shop.program()
    shop.schedule(NewPartitions("clicks"), program=program, constraints=(Concurrency(1), Delay("10m")))
    shop.add()
    shop.step()
    blocker = shop.start(program)
    shop.clock.move("10m")
    blocked = shop.step()
    (job,) = shop.jobs()
    shop.end(blocker)

    assert blocked == []
    assert job.state is JobState.PENDING_CONSTRAINT
    assert len(shop.step()) == 1


def test_a_job_that_leaves_the_queue_for_a_time_wakes_the_next_job(shop):
    """The first job in turn waits for a time now. The job behind it must hear that the slot is free."""
    program = shop.program()
    blocker = shop.start(program)
    for name, priority, more in [("high", 9, (Delay("1h"),)), ("low", 0, ())]:
        shop.schedule(
            NewPartitions(name), name=name, program=program, constraints=(Concurrency(1), *more), priority=priority
        )
    shop.add("high")
    shop.step()
    shop.add("low")
    shop.step()
    shop.end(blocker)
    shop.sql("UPDATE job SET next_check_at = next_check_at + 1000 WHERE priority = 9")
    yielded = shop.step()
    shop.clock.move("1s")

    (launch,) = shop.step()

    assert yielded == []
    assert launch.schedule == "default.shop.low"


def test_a_limit_outlives_its_schedule(shop):
    """The runs of a deleted schedule still hold their slots of the group."""
    one = GroupConcurrency("crm", 1)
    first = shop.schedule(NewPartitions("a"), name="a", program=shop.program("a"), constraints=(one,))
    shop.schedule(NewPartitions("b"), name="b", program=shop.program("b"), constraints=(one,))
    shop.add("a")
    (launch,) = shop.step()
    shop.change(Delete(first.schedule_id))
    shop.add("b")

    blocked = shop.step()
    shop.end(launch.run_id)

    assert blocked == []
    assert len(shop.step()) == 1


def rivals(shop, first: Trigger = PARTS) -> tuple[Schedule, Schedule, RunId]:
    """Two schedules of a program whose only slot is taken by a run; the job of the first one has the better turn."""
    program = shop.program()
    one = (Concurrency(1),)
    better = shop.schedule(first, name="better", program=program, constraints=one, priority=9)
    other = shop.schedule(NewPartitions("b"), name="other", program=program, constraints=one)
    run_id = shop.start(program)
    for name in "ab":
        shop.add(name)
    assert shop.step() == []
    return better, other, run_id


def test_a_held_job_keeps_no_slot_from_the_others(shop):
    """A suspension may last for days. The jobs behind the held job would wait until their time-outs for a free slot."""
    better, other, run_id = rivals(shop)
    shop.change(Suspend(better.schedule_id, SuspendMode.HOLD))

    shop.end(run_id)

    assert {job.state for job in shop.jobs() if job.schedule_id == better.schedule_id} == {JobState.PENDING_TRIGGER}
    assert [launch.schedule for launch in shop.step()] == [other.qualified_name]


def test_a_job_that_is_held_later_leaves_the_free_slot_to_the_others(shop):
    """The slot is free before the better job is held."""
    better, other, run_id = rivals(shop)
    shop.end(run_id)
    # Another checker has the better job.
    shop.sql(f"UPDATE job SET next_check_at = NULL WHERE schedule_id = '{better.schedule_id}'")
    assert shop.step() == []

    shop.change(Suspend(better.schedule_id, SuspendMode.HOLD))

    assert [launch.schedule for launch in shop.step()] == [other.qualified_name]


def test_a_job_whose_trigger_waits_again_keeps_no_slot_from_the_others(shop):
    """A further part has begun the silence again, in the moment in which the slot becomes free."""
    better, other, run_id = rivals(shop, Silence(PARTS, "10m"))
    shop.clock.move("10m")
    assert shop.step() == []
    shop.add("a")
    shop.end(run_id)

    assert [launch.schedule for launch in shop.step()] == [other.qualified_name]
    (job,) = shop.jobs()
    (why,) = explain_job(job, better, shop.clock.now(), ())
    assert job.schedule_id == better.schedule_id
    assert (why.code, why.next_look_at) == (Reason.WAITS_FOR_TIME, job.next_check_at)


def test_a_job_that_is_dropped_while_another_one_is_checked_leaves_the_slot_to_that_job(shop, catalog_url):
    """The checker has read that the better job is ahead, and nothing else would wake the one that it stores."""
    if not catalog_url.startswith("postgresql"):
        pytest.skip("SQLite has one writer")
    better, other, run_id = rivals(shop)
    (ahead,) = [job for job in shop.jobs() if job.schedule_id == better.schedule_id]
    shop.end(run_id)
    # Another checker has the better job.
    shop.sql(f"UPDATE job SET next_check_at = NULL WHERE schedule_id = '{better.schedule_id}'")
    shop.sql(f"UPDATE job SET next_check_at = 0 WHERE schedule_id = '{other.schedule_id}'")
    endings = [JobEnding(ahead, Outcome.DROPPED, "by hand")]
    drop = threading.Thread(target=lambda: shop.catalog.write(lambda db: end_jobs(db, endings)))

    def drop_meanwhile(mark: str) -> None:
        if mark == "checker.before_runs" and not drop.ident:
            drop.start()
            drop.join(0.5)  # it waits for us, or is done

    shop.at_mark = drop_meanwhile
    check_due(shop.catalog, shop.world)
    drop.join()

    assert [launch.schedule for launch in shop.step()] == [other.qualified_name]


def due(shop) -> int:
    """The number of jobs that a checker would look at now."""
    now = shop.clock.now()
    return sum(job.next_check_at is not None and job.next_check_at <= now for job in shop.jobs())


def test_the_end_of_a_run_wakes_the_job_that_takes_the_slot(shop):
    """A check of all waiting jobs for each launch takes seconds, if thousands wait."""
    one = (Concurrency(1),)
    program = shop.program()
    for number in range(20):
        shop.schedule(PARTS, name=f"s{number}", program=program, constraints=one, priority=number)
    shop.add("a")
    (first,) = shop.step()

    shop.end(first.run_id)

    assert due(shop) == 1
    assert [launch.schedule for launch in shop.step()] == ["default.shop.s18"]


def test_a_slot_is_kept_for_no_job_that_cannot_take_it(shop):
    """A schedule with a smaller number waits until the group is nearly empty. The others go on meanwhile."""
    for number in range(3):
        small = (GroupConcurrency("crm", 1),)
        shop.schedule(PARTS, name=f"small{number}", program=shop.program(f"p{number}"), constraints=small, priority=9)
    shop.add("a")
    (first,) = shop.step()
    three = (GroupConcurrency("crm", 3),)
    for number in range(3):
        shop.schedule(NewPartitions("b"), name=f"b{number}", program=shop.program(f"b{number}"), constraints=three)
    shop.add("b")

    launched = shop.step()
    shop.end(launched[0].run_id)
    later = shop.step()

    assert first.schedule.startswith("default.shop.small")
    assert [launch.schedule[:14] for launch in launched] == ["default.shop.b"] * 2
    assert [launch.schedule[:14] for launch in later] == ["default.shop.b"]


def test_a_job_goes_first_from_its_deadline_on_although_nothing_else_happens(shop):
    """The turn of the job gets better while the job sleeps."""
    program = shop.program()
    two = (GroupConcurrency("crm", 2),)
    shop.schedule(PARTS, name="low", program=program, constraints=two, deadline=timedelta(hours=1))
    for _ in range(2):
        shop.catalog.write(
            lambda db: create_pending(db, [NewRun(shop.world.new_id("run"), program, limits={CRM.limit})])
        )
    shop.add("a")
    shop.step()

    (job,) = shop.jobs()

    assert job.next_check_at == job.deadline == job.satisfied_at + timedelta(hours=1)


def test_a_job_that_gets_no_arguments_keeps_no_slot_from_the_others(shop):
    """The checker counted a launch when it looked at the other job."""
    program = shop.program()
    one = (Concurrency(1),)
    missing = {"day": From("message.day")}
    shop.schedule(PARTS | Hook("push"), name="better", program=program, constraints=one, priority=9, arguments=missing)
    shop.schedule(PARTS, name="other", program=program, constraints=one)
    shop.add("a")

    assert [launch.schedule for launch in shop.step()] == ["default.shop.other"]


@FOUR_OF_TWELVE
@pytest.mark.parametrize("seed", range(12))
def test_no_job_sleeps_that_could_start(shop, seed):
    """Ends of runs, drops, suspensions and deadlines wake the jobs that can start then, whatever their numbers."""
    rng = random.Random(seed)
    programs = [shop.program(f"p{number}") for number in range(2)]
    schedules = []
    for number in range(10):
        limits = [GroupConcurrency("crm", rng.randint(1, 3)), Concurrency(rng.randint(1, 3)), Delay("1m")]
        schedules.append(
            shop.schedule(
                NewPartitions(f"d{number}"),
                name=f"s{number}",
                program=rng.choice(programs),
                constraints=tuple(rng.sample(limits, rng.randint(1, 3))),
                priority=rng.randint(0, 2),
                deadline=rng.choice([None, timedelta(minutes=5)]),
            )
        )
    running: list[RunId] = []
    for _ in range(60):
        schedule = rng.choice(schedules)
        match rng.randrange(6):
            case 0 | 1:
                for number in range(10):
                    shop.add(f"d{number}")
            case 2 if shop.jobs():
                endings = [JobEnding(rng.choice(shop.jobs()), Outcome.DROPPED, "by hand")]
                shop.catalog.write(lambda db, endings=endings: end_jobs(db, endings))
            case 3:
                shop.change(Suspend(schedule.schedule_id, rng.choice([SuspendMode.HOLD, SuspendMode.DROP])))
            case 4:
                shop.change(Resume(schedule.schedule_id))
                shop.clock.move(timedelta(minutes=rng.randint(1, 3)))
            case _:
                for _ in range(min(len(running), rng.randint(1, 2))):
                    shop.end(running.pop(rng.randrange(len(running))))
        running += [launch.run_id for launch in shop.step()]
        shop.sql("UPDATE job SET next_check_at = 0 WHERE next_check_at IS NOT NULL RETURNING 1")

        assert shop.step() == []
