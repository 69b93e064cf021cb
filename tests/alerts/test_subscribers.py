"""Subscribers outside: each message of a topic in order, at least once, for readers and for receivers."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.alerts import outbox
from tidemill.alerts.connecting import NotDelivered, Reach
from tidemill.alerts.outbox import Sender
from tidemill.alerts.sending import Post
from tidemill.alerts.subscribers import Pusher
from tidemill.alerts.targets import Target
from tidemill.narration import Narrator
from tidemill.roles import alerter, loops
from tidemill.roles.alerter import Alerter
from tidemill.roles.loops import Loops
from tidemill.upkeep.time_to_live import expire_messages

APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})
"""
HOOK = tm.WebHook("https://example.org/hook")
PATIENCE_S = patience(20)


class Room:
    """A project whose messages are pushed by hand, into a list for each receiver."""

    def __init__(self, stage: Stage, clock: ManualClock) -> None:
        self.stage, self.mill, self.clock = stage, stage.mill, clock
        self.catalog, self.world = stage.mill.project.catalog, stage.mill.project.world
        self.sent: list[dict] = []
        self.failing: Exception | None = None
        self.pusher = Pusher(self.catalog, self.world, self.send)

    def send(self, _: Target, body: str) -> None:
        """Take an event, or fail."""
        if self.failing is not None:
            raise self.failing
        self.sent.append(json.loads(body))

    def publish(self, *numbers: int, topic: str = "paid") -> None:
        """Publish a message for each number."""
        for number in numbers:
            self.mill.topics.publish(topic, {"number": number}, key=f"k{number}")

    def push(self) -> list[int]:
        """Push what is due; the numbers of the messages that the receiver has taken since the last time."""
        self.pusher.push_due()
        taken, self.sent = self.sent, []
        return [one["data"]["number"] for one in taken]

    def read(self, name: str, **options: object) -> list[int]:
        """The numbers of the messages behind the position."""
        return [one.payload["number"] for one in self.mill.subscribers.read(name, **options).messages]


@pytest.fixture
def room(catalog_url, tmp_path):
    """The project on each database, at a time that the test moves."""
    clock = ManualClock()
    with staged(tmp_path, catalog_url, APP, clock) as stage:
        yield Room(stage, clock)


def test_a_reader_gets_the_same_messages_until_it_acknowledges(room):
    """A reader that dies before the end of its work reads them again."""
    room.publish(1)
    room.mill.subscribers.create("erp", "paid")
    room.mill.subscribers.create("dwh", "paid", start="beginning")
    room.publish(2, 3)

    assert (room.read("erp"), room.read("erp"), room.read("dwh")) == ([2, 3], [2, 3], [1, 2, 3])
    first = room.mill.subscribers.read("erp", limit=1)
    assert first.more
    assert room.mill.subscribers.acknowledge("erp", first.position).changed
    assert not room.mill.subscribers.acknowledge("erp", first.position).changed
    assert (room.read("erp"), room.read("dwh")) == ([3], [1, 2, 3])
    assert room.read("erp", after=room.mill.subscribers.read("erp").position) == []


def test_a_topic_lists_its_subscribers_outside(room):
    """The page of a topic shows each reader that stands still, of Tidemill or of another system."""
    room.publish(1, 2)
    room.mill.subscribers.create("scheduler", "paid", start="beginning")
    room.mill.subscribers.create("other", "unpaid")
    room.publish(3, topic="unpaid")
    position = room.mill.subscribers.show("scheduler").position

    assert room.mill.topics.show("paid").outside == {"scheduler": position}
    assert {one.topic: set(one.outside) for one in room.mill.topics.list() if one.topic.endswith("paid")} == {
        "paid": {"scheduler"},
        "unpaid": {"other"},
    }


def test_of_two_readers_under_one_name_one_is_refused(room):
    """Compare and set; a late request moves nothing back."""
    room.mill.subscribers.create("erp", "paid", start="beginning")
    room.publish(1, 2)
    before = room.mill.subscribers.show("erp").position
    one, both = room.mill.subscribers.read("erp", limit=1).position, room.mill.subscribers.read("erp").position
    room.mill.subscribers.acknowledge("erp", both, expected=before)

    with raises_code("position_moved", match="another reader"):
        room.mill.subscribers.acknowledge("erp", one, expected=before)
    assert not room.mill.subscribers.acknowledge("erp", both, expected=before).changed
    assert room.mill.subscribers.acknowledge("erp", one).position == both


def test_a_filter_leaves_out_messages_and_the_position_passes_them(room):
    """A reader of few messages does not look at the others again and again."""
    room.mill.subscribers.create("few", "paid", key_prefix="k7")
    room.mill.subscribers.create("none", "paid", event_type="other")
    room.publish(*range(60), 70, 71)

    assert room.read("few") == [7, 70, 71]
    none = room.mill.subscribers.read("none")
    assert (none.messages, none.more) == ((), False)
    room.mill.subscribers.acknowledge("none", none.position)
    assert room.mill.subscribers.show("none").waiting == 0


def test_lag_counts_what_waits(room):
    """A subscriber that stands still must be seen."""
    room.mill.subscribers.create("erp", "paid")
    assert room.mill.subscribers.show("erp").oldest_at is None
    came = room.clock.now()
    room.publish(1)
    room.clock.pass_by(timedelta(hours=1))
    room.publish(2)

    (view,) = room.mill.subscribers.list()
    assert (view.waiting, view.oldest_at) == (2, came)
    assert view.newest == room.mill.subscribers.read("erp").position


def test_a_commit_of_several_messages_is_read_in_parts(room):
    """A position lies between the messages of one commit."""
    room.mill.subscribers.create("dwh", "data", start="beginning")
    room.stage.publish("orders", *(f"day=2026-01-{day:02}" for day in range(1, 4)))
    keys, position = [], ""
    for _ in range(20):
        part = room.mill.subscribers.read("dwh", limit=1, after=position)
        keys += [(one.position, one.event_type) for one in part.messages]
        position = part.position
        room.mill.subscribers.acknowledge("dwh", position)

    assert keys == [(one.position, one.event_type) for one in room.mill.topics.read("data", after="0")]
    assert room.mill.subscribers.show("dwh").waiting == 0


def test_a_position_is_moved_back_and_never_ahead_of_its_topic(room):
    """A message of a later commit would be passed over."""
    room.mill.subscribers.create("erp", "paid", start="beginning")
    room.publish(1, 2)
    one = room.mill.subscribers.read("erp", limit=1).position
    room.mill.subscribers.reset("erp", "now")
    assert room.read("erp") == []
    assert room.mill.subscribers.reset("erp", one).changed
    assert not room.mill.subscribers.reset("erp", one).changed
    assert room.read("erp") == [2]
    room.mill.subscribers.reset("erp", "beginning")
    assert room.read("erp") == [1, 2]

    for move in (room.mill.subscribers.acknowledge, room.mill.subscribers.reset):
        with raises_code("position_ahead", match="passed over"):
            move("erp", "999999.0")
        with raises_code("bad_position"):
            move("erp", "yesterday")


def test_a_subscriber_begins_at_a_time_as_a_read_does(room):
    """A person knows when an outage began, and no position."""
    room.publish(1)
    room.clock.pass_by(timedelta(hours=1))
    second = room.clock.now()
    room.publish(2, 3)
    room.clock.pass_by(timedelta(hours=1))
    later = (second + timedelta(seconds=1)).replace(tzinfo=None).isoformat()

    def listed(since):
        return [one.payload["number"] for one in room.mill.topics.read("paid", since=since)]

    room.mill.subscribers.create("erp", "paid", start=second)
    room.mill.subscribers.create("dwh", "paid", start=later)
    room.mill.subscribers.create("new", "unpaid", start=second.isoformat())
    assert room.read("erp") == listed(second) == [2, 3]
    assert room.read("dwh") == listed(later) == []
    room.publish(4)
    room.publish(5, topic="unpaid")
    assert (room.read("erp"), room.read("dwh"), room.read("new")) == ([2, 3, 4], [4], [5])
    assert room.mill.subscribers.reset("dwh", second.isoformat()).changed
    assert room.read("dwh") == [2, 3, 4]
    room.mill.subscribers.reset("dwh", later)
    assert room.read("dwh") == [4]
    shown = room.mill.subscribers.reset("dwh", second).position
    assert room.mill.subscribers.reset("dwh", shown).position == shown
    assert room.read("dwh") == [2, 3, 4]
    with raises_code("position_ahead"):
        room.mill.subscribers.create("far", "paid", start="20260131")

    for start, code, match in (
        ("2026-13-01", "bad_period", "2026-13-01 is no time"),
        (room.clock.now() + timedelta(hours=1), "bad_period", "still to come"),
        ("17.x", "bad_position", "beginning, now, or a time such as"),
        ("nwo", "bad_position", "beginning, now, or a time such as"),
    ):
        with raises_code(code, match=match):
            room.mill.subscribers.reset("erp", start)
    assert room.read("erp") == [2, 3, 4]


def test_a_time_before_expired_messages_begins_behind_them(room):
    """A position before them would be refused at the first read."""
    room.mill.topics.create("door", keep="1d")
    first = room.clock.now()
    room.publish(1, topic="door")
    room.clock.pass_by(timedelta(days=3))
    expire_messages(room.catalog, timedelta(days=7), 0)
    room.mill.subscribers.create("old", "door", start=first)
    room.publish(2, topic="door")

    assert room.read("old") == [2]


def test_a_subscriber_is_made_once(room):
    """A repeated request keeps the position; another topic under the name is a mistake."""
    made = room.mill.subscribers.create("erp", "paid", to=HOOK)
    room.publish(1)
    assert room.mill.subscribers.create("erp", "paid", to=HOOK).position == made.position
    with raises_code("subscriber_exists", match="delete erp"):
        room.mill.subscribers.create("erp", "other")
    with raises_code("bad_target"):
        room.mill.subscribers.create("bad", "paid", to=tm.Command(("/bin/true", "x" * 3000)))
    assert room.mill.subscribers.delete("erp").name == "erp"
    with raises_code("not_found"):
        room.mill.subscribers.read("erp")


def test_messages_are_pushed_in_order_and_nothing_is_copied(room):
    """The outbox stays empty, however long the topic is."""
    room.publish(*range(5))
    room.mill.subscribers.create("erp", "paid", start="beginning", to=HOOK)
    room.mill.subscribers.create("few", "paid", key_prefix="k3", to=tm.WebHook("https://example.org/few"))
    room.publish(*range(5, 120))

    room.pusher.push_due()
    erp = [one["data"]["number"] for one in room.sent if one["subject"] == f"k{one['data']['number']}"]
    assert sorted(erp) == sorted([*range(120), 30, 31, 32, 33, 34, 35, 36, 37, 38, 39])
    first = next(one for one in room.sent if one["subject"] == "k0")  # subscribers are pushed to in any order
    seq, n = room.mill.topics.read("paid", limit=1, after="0")[0].position.split(".")
    assert first["id"] == f"paid/{seq}/{n}"
    assert (first["type"], first["topic"], first["specversion"]) == ("tidemill.paid.message", "paid", "1.0")
    assert [one.waiting for one in room.mill.subscribers.list()] == [0, 0]
    assert list(room.mill.alerts.deliveries()) == []


def test_a_receiver_that_is_away_is_waited_for(room):
    """For days, with longer and longer waits; nothing is given up, and nothing passed over."""
    room.mill.subscribers.create("erp", "paid", to=HOOK)
    room.publish(1, 2)
    room.failing = NotDelivered("no route to host")
    for _ in range(400):
        assert room.push() == []
        room.clock.pass_by(timedelta(minutes=15))
    (view,) = room.mill.subscribers.list()
    assert (view.waiting, view.error) == (2, "no route to host")
    assert 100 < view.failures <= 400
    room.failing = None

    assert room.push() == [1, 2]
    assert room.mill.subscribers.show("erp").error is None


def test_a_message_that_is_refused_for_a_day_is_a_dead_delivery(room):
    """A message that a receiver cannot take must not hold up the next ones for ever."""
    room.mill.subscribers.create("erp", "paid", to=HOOK)
    room.publish(1)
    room.failing = NotDelivered("no route to host")
    for _ in range(300):
        room.push()
        room.clock.pass_by(timedelta(minutes=15))
    room.failing = NotDelivered("status 422", answered=True)
    room.push()
    assert list(room.mill.subscribers.deliveries("erp")) == []
    for _ in range(100):
        room.clock.pass_by(timedelta(minutes=15))
        room.push()
    (dead,) = room.mill.subscribers.deliveries("erp")
    assert (str(dead.state), dead.error) == ("DEAD", "status 422")
    room.failing = None
    room.publish(2)
    assert room.push() == [2]

    lines: list[str] = []
    narrator = Narrator(room.world, lines.append, as_json=False)
    room.failing = NotDelivered("status 422", answered=True)
    room.clock.pass_by(timedelta(days=1))
    assert room.mill.alerts.retry(dead.delivery_id).changed
    Sender(room.catalog, room.world, room.send, narrator.gave_up).send_due()
    assert [line.partition(" ")[2].split()[:3] for line in lines] == [["alert", "subscriber", "erp"]]
    room.failing = None

    assert room.mill.alerts.retry(dead.delivery_id).changed
    Sender(room.catalog, room.world, room.send).send_due()
    assert [one["data"]["number"] for one in room.sent] == [1]
    assert [str(one.state) for one in room.mill.subscribers.deliveries("erp")] == ["SENT"]


@pytest.mark.parametrize("mark", ["push.begun", "push.sent", "push.recorded", "push.failed"])
def test_a_crash_loses_no_message(room, mark):
    """The next process goes on behind the last record; one message comes twice at most, with one id."""
    room.mill.subscribers.create("erp", "paid", to=HOOK)
    room.publish(1, 2, 3)

    def die() -> None:
        raise KeyboardInterrupt

    room.stage.at[mark] = die
    room.failing = NotDelivered("away") if mark == "push.failed" else None
    with pytest.raises(KeyboardInterrupt):
        room.push()
    room.failing = None
    room.clock.pass_by(timedelta(seconds=89))
    room.pusher.push_due()
    before = [one["data"]["number"] for one in room.sent]
    assert before in ([], [1])  # another process waits for the end of the try
    room.clock.pass_by(timedelta(seconds=2))
    room.pusher.push_due()

    numbers = [one["data"]["number"] for one in room.sent]
    assert numbers in ([1, 2, 3], [1, 1, 2, 3])
    assert len({one["id"] for one in room.sent}) == 3


def test_a_subscriber_that_is_moved_by_hand_is_taken_from_its_sender(room):
    """A record of the sender would move the position forward again."""
    room.mill.subscribers.create("erp", "paid", to=HOOK)
    room.publish(1, 2, 3)
    room.stage.at["push.sent"] = lambda: room.mill.subscribers.reset("erp", "beginning")
    assert room.push() == [1, 1, 2, 3]

    room.publish(4)
    room.stage.at["push.sent"] = lambda: room.mill.subscribers.delete("erp")
    assert room.push() == [4]
    assert list(room.mill.subscribers.list()) == []


def test_two_processes_push_each_message_once(room):
    """Under real threads, each message goes out once while no process dies, and in order."""
    room.mill.subscribers.create("erp", "paid", to=HOOK)
    pushers = [Pusher(room.catalog, room.world, room.send) for _ in range(3)]
    stopped = threading.Event()

    def push(pusher: Pusher) -> None:
        while not stopped.is_set():
            pusher.push_due()

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(push, one) for one in pushers]
        room.publish(*range(60))
        while room.mill.subscribers.show("erp").waiting:
            pass
        stopped.set()
        for one in running:
            one.result()

    assert [one["data"]["number"] for one in room.sent] == list(range(60))


def test_a_receiver_that_fails_holds_up_no_other(room):
    """Each subscriber has a position and a wait of its own."""
    room.mill.subscribers.create("slow", "paid", to=tm.WebHook("https://slow.example.org/"))
    room.mill.subscribers.create("quick", "paid", to=HOOK)
    room.publish(1, 2)

    def send(target: Target, body: str) -> None:
        if "slow" in str(target):
            raise NotDelivered("away")
        room.send(target, body)

    Pusher(room.catalog, room.world, send).push_due()
    assert [one["data"]["number"] for one in room.sent] == [1, 2]
    assert {one.name: one.waiting for one in room.mill.subscribers.list()} == {"slow": 2, "quick": 0}


class Node:
    """A node on PostgreSQL that sends to one receiver. Its loop looks again by a commit, a plan or a courier alone."""

    def __init__(self, stage: Stage, state: Path) -> None:
        self.stage = stage
        self.taken: list[int] = []
        self.has_both = threading.Event()
        self.at_first: Callable[[], None] = lambda: None
        """Is called by the receiver once, before it takes the first message."""
        catalog, world = stage.mill.project.catalog, stage.mill.project.world
        with patch.object(Post, "send", self._take):
            self.alerter = Alerter(catalog, world, Reach(), state, on_event=lambda _: None, on_dead=lambda *_: None)
        self.loops = Loops(catalog, world)
        stage.mill.subscribers.create("erp", "paid", to=HOOK)

    def publish(self, number: int) -> None:
        """Publish a message for the receiver."""
        self.stage.mill.topics.publish("paid", {"number": number})

    def start(self) -> None:
        """Start the loops of the alerter."""
        self.alerter.start(self.loops)

    def stop(self) -> None:
        """End all threads."""
        self.alerter.stop()
        self.loops.stop()

    def _take(self, _: Target, body: str) -> None:
        act, self.at_first = self.at_first, lambda: None
        act()
        self.taken.append(json.loads(body)["data"]["number"])
        if len(self.taken) == 2:
            self.has_both.set()


@pytest.fixture
def node(postgres_catalog_url, tmp_path):
    """A node in real time, with short waits and without an end of its nap."""
    with (
        patch.object(loops, "LONGEST_NAP", timedelta(hours=1)),
        patch.object(alerter, "LOOK_AGAIN", timedelta(milliseconds=20)),
        patch.object(outbox, "_FIRST_WAIT", timedelta(milliseconds=100)),
        staged(tmp_path, postgres_catalog_url, APP) as stage,
    ):
        node = Node(stage, tmp_path)
        yield node
        node.stop()


def test_a_failed_push_is_tried_again_after_its_wait(node):
    """The end of a push wakes no process on PostgreSQL: the next try waited for the longest nap, of 20 s."""

    def fail() -> None:
        raise NotDelivered("away")

    node.at_first = fail
    node.publish(1)
    node.publish(2)
    node.start()

    assert node.has_both.wait(PATIENCE_S)
    assert node.taken == [1, 2]


def test_a_message_that_commits_during_a_push_follows_at_once(node):
    """The loop looked after the commit, and the lane was taken: the message waited for the longest nap, of 20 s."""
    looked, list_due = threading.Event(), Pusher.list_due

    def look(pusher: Pusher) -> list[str]:
        due = list_due(pusher)
        looked.set()
        return due

    def publish_and_wait() -> None:
        looked.clear()
        node.publish(2)
        assert looked.wait(PATIENCE_S)

    node.at_first = publish_and_wait
    node.publish(1)
    with patch.object(Pusher, "list_due", look):
        node.start()
        taken = node.has_both.wait(PATIENCE_S)

    assert taken
    assert node.taken == [1, 2]


def test_a_damaged_message_is_pushed_with_its_flaw(room):
    """A receiver that skips numbers would think that a message is lost."""
    room.mill.subscribers.create("erp", "paid", to=HOOK)
    room.publish(1)
    room.stage.sql("UPDATE message SET payload = '{' WHERE topic = 'paid' RETURNING 1")
    room.pusher.push_due()

    (event,) = room.sent
    assert (event["data"], "JSON" in event["flaw"]) == ({}, True)
