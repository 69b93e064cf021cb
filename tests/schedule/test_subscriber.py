from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest

from tidemill.catalog.messages import Publish, Topic
from tidemill.names import EventKey
from tidemill.schedule.changes import Suspend
from tidemill.schedule.checker import check_due
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.data_triggers import NewData, NewFiles, NewPartitions, Refreshed, WatermarkPassed
from tidemill.schedule.subscriber import subscribe


def test_messages_join_the_one_open_job(shop):
    """Seed 001: at most one job of a schedule is open, so that three messages are one run, not three."""
    schedule = shop.schedule(NewPartitions("clicks", 5))
    seqs = [shop.add(), shop.add(partitions=3)]
    shop.step()
    seqs.append(shop.add(partitions=8))

    (launch,) = shop.step()

    run = shop.run(launch)
    (trigger,) = run.triggered_by["triggers"]
    assert run.schedule_id == schedule.schedule_id
    assert trigger["count"] == 12
    assert trigger["messages"] == [["data", seq, 0] for seq in seqs]
    assert shop.jobs() == []


def test_a_surplus_is_not_carried_over(shop):
    """Seven partitions for five are one run with seven: the next run waits for five new ones."""
    shop.schedule(NewPartitions("clicks", 5))
    shop.add(partitions=7)
    first = shop.step()
    shop.add(partitions=4)
    second = shop.step()
    shop.add()

    assert (len(first), len(second), len(shop.step())) == (1, 0, 1)


def test_messages_of_one_commit_each_count(shop):
    """More than 500 keys come as several messages of one seq, n = 0, 1, …: the second must not be passed over."""
    shop.schedule(NewPartitions("clicks", 1200))
    shop.add(partitions=500)
    shop.step()
    shop.catalog.apply(
        [Publish(Topic.DATA, "partition", EventKey("partition:default.clicks"), {"count": n}) for n in (500, 200)]
    )
    subscribe(shop.catalog, shop.world, limit=1)
    subscribe(shop.catalog, shop.world, limit=1)

    assert len(shop.step()) == 1


def test_a_refresh_starts_the_listeners_of_the_snapshot(shop):
    """A refresh of another one does not; three while a program runs are one reason."""
    shop.schedule(Refreshed("users"))
    shop.publish("snapshot:default.airlines")
    other = shop.step()
    for _ in range(3):
        shop.publish("snapshot:default.users")

    (launch,) = shop.step()

    assert other == []
    assert shop.run(launch).triggered_by["triggers"][0]["why"] == "3/1 refreshes of default.users"


def test_what_is_joined_waits_for_the_snapshot_and_for_the_data(shop):
    """Story 8: both inputs have something new, in whatever order they come."""
    shop.schedule(Refreshed("users") & NewData("clicks", rows=100))
    for rows in (60, 60):
        shop.publish("partition:default.clicks", partitions=[{"kind": "new", "rows": rows, "bytes": 1}])
    alone = shop.step()
    shop.publish("snapshot:default.users")

    assert (alone, len(shop.step())) == ([], 1)


def test_work_left_satisfies_a_trigger_of_amounts_at_once(shop):
    """Work is never stuck: three returned rows would wait for a gigabyte that may never come."""
    program = shop.program("reader", reads=("clicks",))
    shop.schedule(NewData("clicks", bytes="1 GB"), program=program)
    shop.publish("backlog:default.clicks", consumer="default.shop.reader")

    assert len(shop.step()) == 1


@pytest.mark.parametrize(
    ("trigger", "payload"),
    [
        (NewData("clicks", rows=1), {"consumer": "default.shop.reader"}),
        (NewPartitions("clicks"), {"consumer": "default.shop.reader"}),
        (NewFiles("clicks"), {}),
    ],
)
def test_a_job_that_timed_out_leaves_its_work_to_its_own_program(shop, trigger, payload):
    """Each consumer of a file set has its own work: another's program must not start for that work."""
    program = shop.program("reader", reads=("clicks",))
    shop.start(program)
    limits = {"constraints": (Concurrency(1),), "timeout": timedelta(minutes=5)}
    shop.schedule(trigger, program=program, **limits)
    key = trigger.event_keys[0]
    shop.publish(key, partitions=[{"kind": "new", "rows": 1, "bytes": 1}])
    shop.step()
    shop.clock.move("5m")
    check_due(shop.catalog, shop.world)

    (left,) = shop.sql("SELECT payload FROM message WHERE event_type = 'backlog'")

    assert json.loads(left[0]) == payload


def test_one_message_feeds_every_schedule_that_listens(shop):
    """Seed 001: one event may trigger many schedules; all jobs and the position are one transaction."""
    for number in range(7):
        shop.schedule(NewPartitions("clicks"), name=f"s{number}", program=shop.program(f"p{number}"))
    shop.schedule(NewPartitions("users"), name="other")
    shop.add("clicks")

    launches = shop.step()

    assert sorted(launch.schedule for launch in launches) == [f"default.shop.s{number}" for number in range(7)]


def test_a_message_without_a_listener_is_passed(shop):
    """The position moves: the topic is not read again and again."""
    shop.schedule(NewPartitions("clicks"))
    shop.add("users")

    assert subscribe(shop.catalog, shop.world) == 1
    assert subscribe(shop.catalog, shop.world) == 0


def test_two_subscribers_never_handle_one_message_both(shop):
    """The position is locked while its messages are handled: the second one leaves them to the first."""
    shop.schedule(NewPartitions("clicks", 5))
    subscribe(shop.catalog, shop.world)  # from now on there is a position to lock
    shop.add()
    second = threading.Thread(target=lambda: handled.append(subscribe(shop.catalog, shop.world)))
    handled: list[int] = []

    def let_the_other_try(mark: str) -> None:
        # It has to wait for us where there is one lock for all (SQLite): give it only a moment.
        if mark == "subscriber.read" and second.ident is None:
            second.start()
            second.join(0.2)

    shop.at_mark = let_the_other_try
    handled.append(subscribe(shop.catalog, shop.world))
    second.join()

    (job,) = shop.jobs()
    assert job.fed[0].count == 1
    assert sorted(handled) == [0, 1]


def test_an_event_while_the_schedule_is_suspended_makes_no_job(shop):
    """Known from elsewhere (airflow #56050): the event must neither run later by surprise nor block what follows."""
    schedule = shop.schedule(NewPartitions("clicks"))
    shop.change(Suspend(schedule.schedule_id))
    shop.add()

    assert shop.step() == []
    assert shop.jobs() == []


def test_work_left_is_for_the_program_that_left_it(shop):
    """A backlog of one consumer must not start the other programs that listen to the same data set."""
    shop.schedule(NewPartitions("clicks", 100), name="mine", program=shop.program("mine"))
    shop.schedule(NewPartitions("clicks", 100), name="yours", program=shop.program("yours"))
    shop.schedule(NewPartitions("clicks", 100), name="third", program=shop.program("third", reads=["users"]))
    shop.publish("backlog:default.clicks", 0, consumer="default.shop.mine")

    launches = shop.step()

    assert [launch.schedule for launch in launches] == ["default.shop.mine"]


def test_work_left_in_an_inbox_starts_its_readers(shop):
    """An inbox has no consumers of a name: its files are claimed by the programs that read it."""
    shop.schedule(NewFiles("raw", 100), name="reader", program=shop.program("reader", reads=["raw"]))
    shop.schedule(NewFiles("raw", 100), name="other", program=shop.program("other", reads=["clicks"]))
    shop.publish("backlog:default.raw", 0)

    launches = shop.step()

    assert [launch.schedule for launch in launches] == ["default.shop.reader"]


@pytest.mark.parametrize(
    ("trigger", "key", "payload"),
    [
        (NewPartitions("clicks"), "partition:default.clicks", "{"),
        (NewPartitions("clicks"), "partition:default.clicks", "[1]"),
        (NewPartitions("clicks"), "partition:default.clicks", '{"how_many": 1}'),
        (NewPartitions("clicks"), "partition:default.clicks", '{"count": -1}'),
        (NewData("clicks", rows=1), "partition:default.clicks", '{"count": 1}'),
        (NewData("clicks", rows=1), "partition:default.clicks", '{"count": 1, "partitions": [{"lines": 1}]}'),
        (NewFiles("raw"), "file:default.raw", '{"count": "two"}'),
        (Refreshed("users"), "snapshot:default.users", "null"),
        (WatermarkPassed("clicks"), "watermark:default.clicks", '{"from": null, "to": "noon"}'),
        (WatermarkPassed("clicks"), "watermark:default.clicks", '{"from": 0, "to": 1e30}'),
        (WatermarkPassed("clicks", mode="each"), "watermark:default.clicks", '{"from": 0, "to": 9000000000000000000}'),
        (WatermarkPassed("clicks", mode="each"), "watermark:default.clicks", '{"from": 0, "to": 0, "zone": "Mars"}'),
    ],
)
def test_a_message_that_cannot_be_read_is_quarantined_and_the_next_ones_go_on(shop, trigger, key, payload):
    """A damaged message, or one of a newer Tidemill, ended the scheduler at each start."""
    program = shop.program("reader", reads=("clicks", "raw", "users"))
    shop.schedule(trigger, program=program)
    shop.schedule(NewFiles("raw", 1), name="other", program=program)
    bad = shop.publish(key)
    shop.sql(f"UPDATE message SET payload = '{payload}' WHERE seq = {bad}")
    shop.publish("file:default.raw")

    launches = shop.step()

    ((topic, seq, name, reason),) = shop.sql("SELECT topic, seq, name, reason FROM quarantined_message")
    assert "default.shop.other" in [launch.schedule for launch in launches]
    assert (topic, seq, name) == ("data", bad, "scheduler")
    assert reason
    assert subscribe(shop.catalog, shop.world) == 0


def test_a_message_without_a_listener_is_quarantined_only_when_it_is_damaged(shop):
    """A message of a newer Tidemill without a listener here does no harm."""
    shop.publish("partition:default.clicks", how_many=1)
    damaged = shop.publish("partition:default.clicks")
    shop.sql(f"UPDATE message SET payload = '}}' WHERE seq = {damaged}")

    shop.step()

    assert shop.sql("SELECT seq FROM quarantined_message") == [(damaged,)]
