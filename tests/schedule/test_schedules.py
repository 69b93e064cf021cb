from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from tidemill.errors import NotFound, UserError
from tidemill.json_specs import read_plain, read_text, write_plain, write_text
from tidemill.names import DEFAULT_NAMESPACE, EventKey, ScheduleId
from tidemill.schedule.argument_sources import From
from tidemill.schedule.changes import Add, Changed, Delete, Resume, ScheduleExists, Suspend, Update
from tidemill.schedule.checker import check_due
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewFiles, NewPartitions
from tidemill.schedule.jobs import Outcome
from tidemill.schedule.schedules import find_schedule, list_schedules, read_timers
from tidemill.schedule.specs import BadSchedule, ScheduleSpec, Status, SuspendMode
from tidemill.schedule.subscriber import subscribe
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.waits import Delay

CLICKS = NewPartitions("clicks", 2)
TRICKY = {"arguments": 1, "text": ', "arguments": {', "from_run": From("run.run_id", default='}, "arguments": {}')}
"""Arguments whose JSON looks like the place in a spec where its arguments begin."""


@pytest.mark.parametrize("suspended", [False, True])
def test_a_new_schedule_listens_unless_it_is_suspended(shop, *, suspended: bool):
    """New schedules were suspended by default, and data waited without a message."""
    rules = {"suspended": True} if suspended else {}
    shop.change(Add(DEFAULT_NAMESPACE, "shop", "s", shop.program(), ScheduleSpec(CLICKS), **rules))
    schedule = shop.catalog.read(lambda db: find_schedule(db, DEFAULT_NAMESPACE, "shop", "s"))
    shop.add(partitions=5)

    launches = shop.step()

    assert schedule.status is (Status.SUSPENDED if suspended else Status.SCHEDULED)
    assert len(launches) == (0 if suspended else 1)
    assert shop.jobs() == []


def test_what_was_published_before_a_resumption_is_behind_the_schedule(shop):
    """A message that the scheduler reads late must not count for a schedule that was suspended when it happened."""
    schedule = shop.schedule(CLICKS, suspended=True)
    shop.add(partitions=5)
    shop.change(Resume(schedule.schedule_id))
    shop.add(partitions=1)

    shop.step()

    (job,) = shop.jobs()
    assert job.fed[0].count == 1


def test_resuming_what_listens_changes_nothing(shop):
    """An impatient second click must not make the schedule forget what has happened in between."""
    schedule = shop.schedule(CLICKS)
    shop.add(partitions=5)
    shop.change(Resume(schedule.schedule_id))

    assert len(shop.step()) == 1


def test_suspending_drops_what_is_pending_and_says_so(shop):
    """Seed 001: suspending deletes pending jobs; their messages are recorded as dropped, with the reason."""
    schedule = shop.schedule(CLICKS)
    seq = shop.add()
    shop.step()

    changed = shop.change(Suspend(schedule.schedule_id))

    (ended,) = shop.history(schedule)
    assert changed == [Changed(schedule.schedule_id, 1)]
    assert shop.jobs() == []
    assert ended.outcome is Outcome.SUSPENDED
    assert ended.detail["messages"] == [[0, "data", seq, 0]]


def test_a_held_schedule_goes_on_with_what_it_had_and_what_came(shop):
    """Seed 001, modes of suspension: jobs are kept and updated, and stay in the queue until the schedule resumes."""
    schedule = shop.schedule(NewPartitions("clicks", 2), constraints=(Delay("1h"),), timeout=timedelta(hours=2))
    shop.add()
    shop.step()
    assert shop.change(Suspend(schedule.schedule_id, SuspendMode.HOLD))[0].dropped_jobs == 0
    shop.add()
    shop.clock.move("5h")
    assert shop.step() == []
    (held,) = shop.jobs()
    assert held.fed[0].count == 2

    shop.change(Resume(schedule.schedule_id))

    assert shop.step() == []
    shop.clock.move("1h")
    (launch,) = shop.step()
    assert launch.job_id == held.job_id


def test_a_held_schedule_counts_on_after_its_resumption(shop):
    """With one of two partitions, nothing starts."""
    schedule = shop.schedule(NewPartitions("clicks", 2))
    shop.change(Suspend(schedule.schedule_id, SuspendMode.HOLD))
    shop.add()
    shop.step()

    (resumed,) = shop.change(Resume(schedule.schedule_id))

    assert resumed.begins is None
    assert shop.step() == []
    shop.add()
    assert len(shop.step()) == 1


def test_a_backlog_drops_what_is_pending_and_keeps_what_comes(shop):
    """The job of before is recorded as dropped, and a new one collects until the schedule resumes."""
    schedule = shop.schedule(CLICKS)
    shop.add()
    shop.step()

    (suspended,) = shop.change(Suspend(schedule.schedule_id, SuspendMode.BACKLOG))
    shop.add(partitions=5)
    assert shop.step() == []
    (again,) = shop.change(Suspend(schedule.schedule_id, SuspendMode.BACKLOG))
    (resumed,) = shop.change(Resume(schedule.schedule_id))

    assert (suspended.dropped_jobs, again.dropped_jobs) == (1, 0)
    assert resumed.begins == schedule.program_id
    assert len(shop.step()) == 1


@pytest.mark.parametrize("mode", [SuspendMode.HOLD, SuspendMode.BACKLOG])
def test_times_of_a_held_schedule_share_a_run_at_its_resumption(shop, mode):
    """As the times that come while a job waits, by `misfire`."""
    schedule = shop.schedule(Cron("0 * * * *"))
    shop.change(Suspend(schedule.schedule_id, mode))
    for _ in range(3):
        shop.clock.move("1h")
        assert shop.step() == []

    shop.change(Resume(schedule.schedule_id))

    (launch,) = shop.step()
    assert len(shop.run(launch).triggered_by["logical_times"]) == 3
    shop.end(launch.run_id)
    shop.clock.move("1h")
    assert len(shop.step()) == 1


def test_a_held_schedule_that_is_suspended_to_drop_forgets_all(shop):
    """A second thought: the mode changes."""
    schedule = shop.schedule(CLICKS | Every("1h"))
    shop.change(Suspend(schedule.schedule_id, SuspendMode.HOLD))
    shop.add()
    shop.step()

    (dropped,) = shop.change(Suspend(schedule.schedule_id, SuspendMode.DROP))
    shop.clock.move("2h")

    assert dropped.dropped_jobs == 1
    assert shop.step() == []
    assert shop.jobs() == []


@pytest.mark.parametrize("mode", [SuspendMode.DROP, SuspendMode.BACKLOG])
def test_what_came_before_a_change_of_mode_to_hold_is_announced(shop, mode):
    """The resumption of a held schedule announces nothing, so this data would wait for other data to arrive."""
    schedule = shop.schedule(CLICKS)
    shop.change(Suspend(schedule.schedule_id, mode))

    (held,) = shop.change(Suspend(schedule.schedule_id, SuspendMode.HOLD))
    (resumed,) = shop.change(Resume(schedule.schedule_id))

    assert held.begins == schedule.program_id
    assert resumed.begins is None


def test_an_update_of_a_held_schedule_announces_what_waits_in_another_data_set(shop):
    """As an update of a schedule that is not suspended does."""
    schedule = shop.schedule(CLICKS)
    shop.change(Suspend(schedule.schedule_id, SuspendMode.HOLD))

    (same,) = shop.change(Update(schedule.schedule_id, ScheduleSpec(NewPartitions("clicks", 2))))
    (other,) = shop.change(Update(schedule.schedule_id, ScheduleSpec(NewFiles("raw"))))

    assert same.begins is None
    assert other.begins == schedule.program_id


def test_the_time_of_a_suspension_ends_no_wait_for_a_trigger(shop):
    """The job goes on at the resumption, with a `trigger_timeout` of its own."""
    schedule = shop.schedule(NewPartitions("clicks", 2), trigger_timeout=timedelta(hours=1))
    shop.add()
    shop.step()
    shop.change(Suspend(schedule.schedule_id, SuspendMode.HOLD))
    shop.step()
    shop.clock.move("5h")
    shop.change(Resume(schedule.schedule_id))
    shop.step()
    assert len(shop.jobs()) == 1
    shop.add()

    assert len(shop.step()) == 1


@pytest.mark.share("sqlite")
def test_a_suspension_waits_for_the_checker_that_has_its_job(shop):
    """Either the run was launched before, or the job is held: a schedule that is suspended launches nothing."""
    schedule = shop.schedule(CLICKS)
    shop.add(partitions=2)
    subscribe(shop.catalog, shop.world)
    hold = threading.Thread(target=lambda: shop.change(Suspend(schedule.schedule_id, SuspendMode.HOLD)))
    order = []

    def at_mark(mark):
        order.append(mark)
        if mark == "checker.locked" and hold.ident is None:
            hold.start()
            hold.join(0.2)

    shop.at_mark = at_mark
    launches = check_due(shop.catalog, shop.world).launches
    hold.join()

    assert len(launches) == 1
    assert shop.jobs() == []


def test_an_update_keeps_the_id_and_raises_the_generation(shop):
    """Messages that were counted for the old schedule never launch the new one."""
    schedule = shop.schedule(CLICKS)
    shop.add()
    shop.step()

    shop.change(Update(schedule.schedule_id, ScheduleSpec(NewFiles("raw"))))

    found = shop.catalog.read(lambda db: find_schedule(db, DEFAULT_NAMESPACE, "shop", "s"))
    (ended,) = shop.history(schedule)
    assert (found.schedule_id, found.generation, found.status) == (schedule.schedule_id, 2, Status.SCHEDULED)
    assert ended.outcome is Outcome.CHANGED
    shop.add(partitions=2)
    assert shop.step() == []
    shop.publish("file:default.raw")
    assert len(shop.step()) == 1


def test_a_deleted_schedule_leaves_nothing_behind(shop):
    """A leftover key or timer would make jobs for a schedule that is not there."""
    schedule = shop.schedule(CLICKS | Every("1h"))

    shop.change(Delete(schedule.schedule_id))

    assert shop.catalog.read(lambda db: read_timers(db, schedule.schedule_id)) == {}
    shop.add(partitions=2)
    shop.clock.move("2h")
    assert shop.step() == []
    assert shop.jobs() == []
    with pytest.raises(NotFound):
        shop.catalog.read(lambda db: find_schedule(db, DEFAULT_NAMESPACE, "shop", "s"))


def test_changes_are_made_together_or_not_at_all(shop):
    """A deployment that fails half-way must leave the old schedules as they were."""
    schedule = shop.schedule(CLICKS)
    again = Add(DEFAULT_NAMESPACE, "shop", "s", schedule.program_id, ScheduleSpec(CLICKS))
    other = Add(DEFAULT_NAMESPACE, "shop", "other", schedule.program_id, ScheduleSpec(CLICKS))

    with pytest.raises(ScheduleExists):
        shop.change(Suspend(schedule.schedule_id), other, again)
    with pytest.raises(NotFound):
        shop.change(Suspend(schedule.schedule_id), other, Delete(ScheduleId("sched_none")))

    (found,) = shop.catalog.read(list_schedules)
    assert found == schedule


def test_a_name_may_pass_to_another_schedule(shop):
    """A deployment that gives the schedule's name to another program deletes the one and makes the other."""
    old = shop.schedule(CLICKS)
    program = shop.program("other")

    shop.change(Delete(old.schedule_id), Add(DEFAULT_NAMESPACE, "shop", "s", program, ScheduleSpec(CLICKS)))

    (found,) = shop.catalog.read(list_schedules)
    assert found.program_id == program
    assert found.schedule_id != old.schedule_id
    shop.add(partitions=2)
    assert len(shop.step()) == 1


def test_schedules_are_found_by_what_they_listen_to_and_start(shop):
    """Before a change of a data set, users ask which schedules the data set triggers."""
    a = shop.schedule(CLICKS, name="a")
    b = shop.schedule(NewFiles("raw") & CLICKS, name="b", program=shop.program("other"))
    key = EventKey("partition:default.clicks")

    by_key = shop.catalog.read(lambda db: list_schedules(db, event_key=key))
    by_program = shop.catalog.read(lambda db: list_schedules(db, program_id=b.program_id))
    by_both = shop.catalog.read(lambda db: list_schedules(db, program_id=a.program_id, event_key=key))

    assert [s.name for s in by_key] == ["a", "b"]
    assert [s.name for s in by_program] == ["b"]
    assert [s.name for s in by_both] == ["a"]


def test_an_unknown_schedule_is_named_with_the_nearest(shop):
    """A slip of the finger is answered with what was meant."""
    shop.schedule(CLICKS, name="nightly")

    with pytest.raises(NotFound, match=r"did you mean .default\.shop\.nightly."):
        shop.catalog.read(lambda db: find_schedule(db, DEFAULT_NAMESPACE, "shop", "nihgtly"))


@pytest.mark.parametrize(
    "spec",
    [
        ScheduleSpec(CLICKS),
        ScheduleSpec(CLICKS | Every("4h"), (Concurrency(2),), {"day": "2026-01-01", "n": 3}, "text", priority=-5),
    ],
)
def test_a_spec_is_read_back_as_it_was(spec):
    """A deployment compares specs: one that changed on the way would be replaced with every deployment."""
    assert read_text(ScheduleSpec, write_text(spec)) == spec


@pytest.mark.parametrize(
    "fields",
    [
        {"constraints": (Concurrency(1), Concurrency(2))},
        {"arguments": {"at": object()}},
        {"arguments": {"at": float("nan")}},
        {"priority": True},
        {"priority": 2**63},
        {"timeout": Every("1s").duration / 2},
    ],
)
def test_a_spec_that_cannot_be_is_refused(fields):
    """At deployment, with the reason."""
    with pytest.raises(BadSchedule):
        ScheduleSpec(CLICKS, **fields)


@pytest.mark.parametrize("value", [None, {}, {"version": 2}, {**write_plain(ScheduleSpec(CLICKS)), "timeout": 5}])
def test_other_json_is_refused_as_the_users_mistake(value):
    """A form of another version may mean something else."""
    with pytest.raises(UserError):
        read_plain(ScheduleSpec, value)


@pytest.mark.parametrize("arguments", [{}, {"n": 1}, {"n": 2, "arguments": 3}, TRICKY])
def test_a_stored_spec_is_read_as_it_was_written(arguments):
    """The arguments are read apart from the rest, whatever they look like. So are those that do not come last."""
    spec = ScheduleSpec(CLICKS | Every("4h"), (Concurrency(2),), arguments, "text", priority=-5)

    assert ScheduleSpec.decode(spec.encode()) == spec
    assert ScheduleSpec.decode(write_text(spec)) == spec


def test_schedules_that_differ_in_their_arguments_share_what_else_they_say():
    """Parsing the trigger and the constraints of each of 10,000 schedules was a tenth of the time to start them."""
    first, second = (ScheduleSpec.decode(ScheduleSpec(CLICKS, arguments={"n": n}).encode()) for n in (1, 2))

    assert (first.arguments, second.arguments) == ({"n": 1}, {"n": 2})
    assert first.trigger is second.trigger


@pytest.mark.parametrize(
    "text", ["", "{}", '{"trigger": 1, "arguments": {}}', '[1, "arguments": {}}', '{"a", "arguments": 1}']
)
def test_what_is_no_spec_is_refused(text):
    """A newer Tidemill, or a person, has changed the catalog."""
    with pytest.raises(UserError):
        ScheduleSpec.decode(text)
