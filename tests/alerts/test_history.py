"""Random histories of outbox and subscribers: processes that die at marks, receivers that fail, on both databases.

Per target and per subscriber everything comes in order, at least once, and nothing is lost.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import pytest

import tidemill as tm
from tests.manual_clock import ManualClock
from tests.seed_of_the_day import TODAY
from tests.stage import Stage, staged
from tidemill.alerts.connecting import NotDelivered
from tidemill.alerts.outbox import Notice, Sender, put_deliveries
from tidemill.alerts.subscribers import Pusher
from tidemill.alerts.targets import Target

APP = """
import tidemill as tm

app = tm.App("shop")
"""
MARKS = ("delivery.begun", "delivery.sent", "push.begun", "push.sent", "push.recorded", "push.failed")
HOOKS = [tm.WebHook(f"https://example.org/{name}") for name in ("a", "b")]
SUBSCRIBERS = {name: tm.WebHook(f"https://example.org/{name}") for name in ("one", "two")}
RECEIVERS = [*HOOKS, *SUBSCRIBERS.values()]


class Killed(BaseException):
    """The end of a process."""


def first_of_each(ids: Sequence[str]) -> list[str]:
    """Return ids without repetitions, as a receiver keeps them."""
    return list(dict.fromkeys(ids))


class History:
    """A project, what was written and published, and what each receiver has taken."""

    def __init__(self, stage: Stage, clock: ManualClock, chance: random.Random) -> None:
        self.stage, self.clock, self.chance = stage, clock, chance
        self.catalog, self.world = stage.mill.project.catalog, stage.world
        self.taken: dict[str, list[str]] = {one.url: [] for one in RECEIVERS}
        self.written: dict[str, list[str]] = {one.url: [] for one in RECEIVERS}
        self.deaths = 0
        self.calm = False
        for name, hook in SUBSCRIBERS.items():
            stage.mill.subscribers.create(name, "paid", to=hook)

    def send(self, target: Target, body: str) -> None:
        """Take an event; or fail, before it is taken or after."""
        assert isinstance(target, tm.WebHook)
        event = json.loads(body)
        if not self.calm and self.chance.random() < 0.2:
            raise NotDelivered("away")
        self.taken[target.url].append(event["data"].get("number", event["id"]))
        if not self.calm and self.chance.random() < 0.1:
            raise NotDelivered("the answer was lost", answered=True)

    def write(self, number: str) -> None:
        """Put a notice into the outbox, for one receiver or two."""
        to = self.chance.sample(HOOKS, self.chance.randint(1, 2))
        for one in to:
            self.written[one.url].append(number)
        notice = Notice("x", "opened", "tidemill.alert.opened", "x", {"number": number})
        self.catalog.write(lambda db: put_deliveries(db, self.world, db.tick(), to, [notice]))

    def publish(self) -> None:
        """Publish a message, which each subscriber gets."""
        position = self.stage.mill.topics.publish("paid", {}).position
        for hook in SUBSCRIBERS.values():
            self.written[hook.url].append(f"paid/{position.replace('.', '/')}")

    def work(self) -> None:
        """Have a process send what is due, which may die at a mark."""
        self.stage.at.clear()
        if self.chance.random() < 0.6:
            self.stage.at[self.chance.choice(MARKS)] = self._die
        try:
            self.chance.choice([self.sender().send_due, self.pusher().push_due])()
        except Killed:
            self.deaths += 1

    def end(self) -> None:
        """Have all that waits sent, to receivers that are well."""
        self.stage.at.clear()
        self.calm = True
        for _ in range(4):
            self.clock.pass_by(timedelta(hours=1))
            self.sender().send_due()
            self.pusher().push_due()

    def sender(self) -> Sender:
        """A new process that sends from the outbox."""
        return Sender(self.catalog, self.world, self.send)

    def pusher(self) -> Pusher:
        """A new process that sends to subscribers."""
        return Pusher(self.catalog, self.world, self.send)

    def _die(self) -> None:
        raise Killed


@pytest.mark.parametrize("seed", range(4))
def test_what_was_written_comes_in_order_and_at_least_once(catalog_url, tmp_path, seed):
    """A process may die between any two steps, and a receiver may fail after it has taken a delivery."""
    clock, chance = ManualClock(), random.Random(TODAY + seed)
    with staged(tmp_path, catalog_url, APP, clock) as stage:
        history = History(stage, clock, chance)
        for step in range(60):
            act = chance.choice([partial(history.write, f"n{step}"), history.publish, history.work, history.work])
            act()
            clock.pass_by(timedelta(seconds=chance.choice([0, 1, 40, 91])))
        history.end()
        states = {str(one.state) for one in stage.mill.alerts.deliveries(limit=1000)}
        waiting = [one.waiting for one in stage.mill.subscribers.list()]

    assert (history.deaths > 0, states, waiting) == (True, {"SENT"}, [0, 0])
    assert {url: first_of_each(ids) for url, ids in history.taken.items()} == history.written
