"""Schedules that messages of the users' own topics start, and topics that no schedule listens to any more."""

from __future__ import annotations

import pytest

from tests.wakes import wakes_of
from tidemill.catalog.messages import Message, Publish, Topic
from tidemill.catalog.named import WakeKind
from tidemill.errors import UserError
from tidemill.json_specs import read_plain, write_plain
from tidemill.names import EventKey
from tidemill.schedule.changes import Delete, Suspend
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.schedules import find_listeners, list_passed
from tidemill.schedule.subscriber import has_messages, subscribe
from tidemill.schedule.topic_triggers import MessageOn
from tidemill.schedule.triggers import Trigger

ENDED = "program:default.shop.ingest:COMPLETED"


def say(shop, topic, key="settled"):
    """Publish a message on a topic."""
    return shop.catalog.apply([Publish(topic, "message", EventKey(key), {})])


def positions(shop):
    """The topics besides `data` in which the scheduler has a position."""
    return shop.sql("SELECT topic FROM subscriber WHERE name = 'scheduler' AND topic <> 'data' ORDER BY topic")


def test_a_message_of_a_user_starts_the_listeners_of_its_topic(shop):
    """A message of another topic or key starts no program. A user's key never feeds a trigger of data."""
    program = shop.program()
    shop.schedule(MessageOn("payments", key="settled"), program=program)
    shop.schedule(MessageOn("payments", n=3), name="three", program=program)
    shop.schedule(NewPartitions("clicks"), name="data", program=program)
    say(shop, "payments", "partition:default.clicks")
    say(shop, "others")
    before = shop.step()
    say(shop, "payments")

    (launch,) = shop.step()

    assert before == []
    assert launch.schedule == "default.shop.s"
    assert launch.why == "1/1 messages of key settled on topic payments"
    assert [job.fed[0].count for job in shop.jobs()] == [2]


def test_a_message_finds_the_listeners_of_its_key_alone(shop):
    """Thousands of schedules may listen to one topic, each to the messages of a customer (scheduler: a look-up)."""
    program = shop.program()
    of_all = shop.schedule(MessageOn("orders"), name="all", program=program)
    of_customers = [
        shop.schedule(MessageOn("orders", key=f"customer-{number}"), name=f"s{number}", program=program)
        for number in range(5)
    ]
    (message,) = [Message("orders", 9, 0, shop.clock.now(), "message", EventKey("customer-3"), {})]

    found = shop.catalog.read(lambda db: find_listeners(db, message.listened_keys))

    heard_by = {schedule_id for listeners in found.values() for schedule_id, _ in listeners}
    assert heard_by == {of_all.schedule_id, of_customers[3].schedule_id}


@pytest.mark.parametrize(
    ("topic", "key", "kind"),
    [
        ("orders", "mine", WakeKind.MESSAGE),
        ("orders", "yours", WakeKind.UNHEARD),
        ("payments", "any", WakeKind.MESSAGE),
        ("others", "mine", WakeKind.UNHEARD),
        (Topic.DATA, "partition:default.clicks", WakeKind.MESSAGE),
        (Topic.DATA, "partition:default.raw", WakeKind.UNHEARD),
    ],
)
def test_only_a_message_that_a_schedule_hears_wakes_schedulers(shop, topic, key, kind):
    """The two messages of each run, which mostly no schedule hears, had the scheduler of each node look."""
    program = shop.program()
    shop.schedule(MessageOn("orders", key="mine"), name="one", program=program)
    shop.schedule(MessageOn("payments"), name="all", program=program)
    shop.schedule(NewPartitions("clicks"), name="data", program=program)

    wakes = wakes_of(shop.catalog, Publish(topic, "message", EventKey(key), {}))

    assert wakes == {kind}


@pytest.mark.parametrize("waiting", ["a worker", "an outside subscriber"])
def test_a_message_that_no_schedule_hears_wakes_those_that_read_the_topic(shop, waiting):
    """Other nodes hear of most messages a second later. A stream of data must not wait for that."""
    table, row = {
        "a worker": ("worker (program_id, instances)", f"('{shop.program()}', 1)"),
        "an outside subscriber": (
            "outside_subscriber (name, topic, event_type, key_prefix, seq, n, created_at)",
            "('shop', 'orders', '', '', 0, 0, 0)",
        ),
    }[waiting]
    shop.sql(f"INSERT INTO {table} VALUES {row}")

    wakes = wakes_of(shop.catalog, Publish("orders", "message", EventKey("any"), {}))

    assert wakes == {WakeKind.UNHEARD, WakeKind.STREAMED}


def test_a_suspended_schedule_passes_no_messages_of_other_keys(shop):
    """Without the suspension, such a message feeds no job either."""
    schedule = shop.schedule(MessageOn("orders", key="mine"))
    shop.change(Suspend(schedule.schedule_id))
    for key in ("mine", "yours"):
        say(shop, "orders", key)
    shop.step()

    assert [row[:2] for row in shop.catalog.read(lambda db: list_passed(db, schedule.schedule_id))] == [("orders", 1)]


def test_a_message_that_cannot_be_read_is_quarantined_in_its_topic(shop):
    """The next message of the topic goes on."""
    shop.schedule(MessageOn("payments"))
    say(shop, "payments")
    shop.sql("UPDATE message SET payload = '{' WHERE topic = 'payments'")
    broken = shop.step()
    say(shop, "payments")

    assert broken == []
    assert len(shop.step()) == 1
    assert shop.sql("SELECT topic FROM quarantined_message") == [("payments",)]


@pytest.mark.parametrize(
    ("trigger", "topic", "key"), [(MessageOn("payments"), "payments", "k"), (RunEnded("shop.ingest"), "program", ENDED)]
)
def test_a_topic_goes_with_its_last_listener(shop, trigger, topic, key):
    """After one more pass, messages of the topic are no work. A new listener does not hear of them."""
    program = shop.program("report")
    schedule = shop.schedule(trigger, program=program)
    shop.change(Delete(schedule.schedule_id))
    say(shop, topic, key)
    shop.step()
    left = positions(shop)
    say(shop, topic, key)
    work = shop.catalog.read(has_messages)
    shop.schedule(trigger, program=program)
    early = shop.step()
    say(shop, topic, key)

    assert (left, work, early) == ([], False, [])
    assert len(shop.step()) == 1


def test_a_topic_stays_with_another_listener(shop):
    """The messages that the other listener has not heard are not passed over."""
    program = shop.program("report")
    first = shop.schedule(MessageOn("payments"), program=program)
    shop.schedule(MessageOn("payments"), name="second", program=program)
    say(shop, "payments")
    shop.change(Delete(first.schedule_id))

    assert [launch.schedule for launch in shop.step()] == ["default.shop.second"]
    assert positions(shop) == [("payments",)]


@pytest.mark.parametrize("mark", ["subscriber.read", "subscriber.before_jobs", "subscriber.before_commit"])
def test_a_crash_with_three_topics_loses_and_doubles_nothing(shop, mark):
    """The positions of all topics and the jobs are one transaction."""
    program = shop.program("report")
    triggers = [RunEnded("shop.ingest"), MessageOn("payments"), NewPartitions("clicks")]
    for trigger in triggers:
        shop.schedule(trigger, name=type(trigger).__name__, program=program)
    say(shop, Topic.PROGRAM, ENDED)
    say(shop, "payments")
    shop.add()

    def crash(reached):
        if reached == mark:
            raise InterruptedError

    shop.at_mark = crash
    with pytest.raises(InterruptedError):
        subscribe(shop.catalog, shop.world)
    shop.at_mark = None

    assert sorted(launch.schedule for launch in shop.step()) == [
        "default.shop.MessageOn",
        "default.shop.NewPartitions",
        "default.shop.RunEnded",
    ]
    assert shop.step() == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: MessageOn("data"), "Tidemill's own"),
        (lambda: MessageOn("program"), "Tidemill's own"),
        (lambda: MessageOn("a b"), "topic"),
        (lambda: MessageOn("payments", key=""), "key"),
        (lambda: MessageOn("payments", key="a\0b"), "without NUL"),
        (lambda: MessageOn("payments", key="x" * 201), "up to 200"),
        (lambda: MessageOn("payments", n=-1), "at least 1"),
        (lambda: MessageOn("payments", n=True), "at least 1"),
    ],
)
def test_a_wrong_trigger_is_refused(wrong, why):
    """When it is made, with the field."""
    with pytest.raises(UserError, match=why):
        wrong()


@pytest.mark.parametrize("trigger", [MessageOn("t"), MessageOn("t", "k", 2)])
def test_a_trigger_is_the_same_after_its_json(trigger):
    """The catalog keeps JSON."""
    assert read_plain(Trigger, write_plain(trigger)) == trigger
