"""The outbox: deliveries to targets, written with the change that they are about, and sent afterwards, in order.

The pattern is the transactional outbox. A crash between the change and the sending leaves a row, and the next sender
finds it: each delivery is sent at least once. It keeps its id over all tries, so that a receiver can leave out a
repetition. A try is fenced by its number. Until the first delivery of a target has ended, the next ones wait. A
delivery that fails for a day is dead.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tidemill.alerts.targets import Target
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.epoch import show_time
from tidemill.errors import NotFound
from tidemill.json_specs import read_text, write_text
from tidemill.names import CommitSeq
from tidemill.texts import printable
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.alerts.outbox_sql import Sql

SQL: Sql = load_sql(__file__)

GIVE_UP_AFTER: Final = timedelta(hours=24)
_FIRST_WAIT: Final = timedelta(seconds=2)
_LONGEST_WAIT: Final = timedelta(minutes=15)
TRY_FOR: Final = timedelta(seconds=90)
"""A try that has not ended by then was cut off by a crash, and is made again. Longer than any try takes."""
_KEEP: Final = timedelta(days=30)
_MOST_LANES: Final = 100


class DeliveryState(StrEnum):
    """States of a delivery."""

    WAITING = "WAITING"
    SENT = "SENT"
    DEAD = "DEAD"
    """Given up after a day of tries."""


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice about a thing: the type and subject of a CloudEvent, and its data."""

    about: str
    event: str
    type: str
    subject: str
    data: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A delivery that is due; `body` is its CloudEvent as JSON."""

    delivery_id: str
    target: str
    about: str
    event: str
    body: str
    attempt: int
    made_at: datetime


@dataclass(frozen=True, slots=True)
class StoredDelivery:
    """A delivery as a list shows it."""

    delivery_id: str
    target: str
    about: str
    event: str
    state: DeliveryState
    attempt: int
    error: str | None
    made_at: datetime
    next_try_at: datetime | None
    ended_at: datetime | None


def put_deliveries(db: Db, world: World, seq: CommitSeq, targets: Iterable[Target], notices: Iterable[Notice]) -> None:
    """Put notices into the outbox, once for each target, in order; `seq` is the tick of the transaction."""
    now = show_time(db.now())
    wanted = [(target, one) for one in notices for target in targets]
    for target, one in wanted:
        delivery_id = world.new_id("delivery")
        event = {
            "specversion": "1.0",
            "id": delivery_id,
            "source": "/tidemill",
            "type": one.type,
            "subject": one.subject,
            "time": now,
            "datacontenttype": "application/json",
            "data": one.data,
        }
        db.run(
            SQL.put_delivery,
            delivery_id=delivery_id,
            target=write_text(target),
            seq=seq,
            about=one.about,
            event=one.event,
            body=json.dumps(event),
        )
    if wanted:
        db.run(SQL.forget_old, keep=_KEEP)


class Sender:
    """Sends what is due, each target by itself. Several senders may work at once: a try is of one of them."""

    def __init__(
        self,
        catalog: Catalog,
        world: World,
        send: Callable[[Target, str], None],
        on_dead: Callable[[DueDelivery, str], None] = lambda *_: None,
    ) -> None:
        self._catalog = catalog
        self._world = world
        self._send = send
        """Sends an event to a target; raises for a try that failed."""
        self._on_dead = on_dead
        """Is called for each delivery that this sender has given up, with the error of the last try."""

    def send_due(self) -> None:
        """Send all that is due, one target after the other."""
        while due := self.list_due():
            for target in due:
                self.work_off(target)

    def list_due(self) -> list[str]:
        """Return the targets that have a delivery to try now, as JSON; the longest due first."""
        return self._catalog.read(lambda db: db.records(SQL.list_due, str, limit=_MOST_LANES))

    def next_try(self) -> Call:
        """Return the read of the time of the next try. It finds NULL if no try is planned."""
        return SQL.find_next_try()

    def work_off(self, target: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Send the deliveries of a target in order, until none is due, or `stopped`."""
        while not stopped():
            due = self._catalog.read(lambda db: db.record(SQL.find_due, DueDelivery, target=target))
            if due is None:
                return
            self._try(due)

    def _try(self, delivery: DueDelivery) -> None:
        attempt = delivery.attempt + 1

        def begin(db: Db) -> bool:
            own: dict[str, Param] = {"delivery_id": delivery.delivery_id, "attempt": delivery.attempt}
            return db.run(SQL.begin_try, **own, next_try_at=db.now() + TRY_FOR) > 0

        if not self._catalog.write(begin):
            return
        self._world.mark("delivery.begun")
        error = ""
        try:
            self._send(read_text(Target, delivery.target), delivery.body)
        except Exception as failed:  # noqa: BLE001  # whatever a receiver does, the others go on
            error = show_error(failed)
        self._world.mark("delivery.sent")
        if self._catalog.write(lambda db: self._end(db, delivery, attempt, error)) is DeliveryState.DEAD:
            self._on_dead(delivery, error)

    def _end(self, db: Db, delivery: DueDelivery, attempt: int, error: str) -> DeliveryState | None:
        """Record the end of a try, and return the end state of the delivery; None if this try has not ended it."""
        db.tick()  # the next of the target is started by one transaction
        own: dict[str, Param] = {"delivery_id": delivery.delivery_id, "attempt": attempt}
        now = db.now()
        if error and now - delivery.made_at < GIVE_UP_AFTER:
            db.run(SQL.try_again, **own, error=error, next_try_at=now + back_off(self._world, attempt))
            return None
        state = DeliveryState.DEAD if error else DeliveryState.SENT
        if not db.run(SQL.end_delivery, **own, state=state, error=error or None):
            return None
        db.all(SQL.start_next, target=delivery.target)
        return state


def show_error(error: Exception) -> str:
    """Return why a try failed, as a list shows it."""
    return printable(str(error) or type(error).__name__)[:1000]


def back_off(world: World, failures: int) -> timedelta:
    """Return the wait after so many failures: longer and longer, and never the same for two senders."""
    wait = min(_FIRST_WAIT * 2 ** min(failures - 1, 20), _LONGEST_WAIT)
    return world.between(wait / 2, wait)


def retry(db: Db, delivery_id: str) -> bool:
    """Try a dead delivery once more, as the next of its target; return whether it was dead. `NotFound`.

    The caller has taken a tick. If the try fails, the delivery is dead again.
    """
    if db.run(SQL.revive, delivery_id=delivery_id):
        return True
    if db.one(SQL.find_state, delivery_id=delivery_id) is None:
        raise NotFound("delivery", delivery_id)
    return False


def find_about(db: Db, delivery_id: str) -> str | None:
    """Return the id of the thing that a delivery is about; None for no delivery."""
    return db.value(SQL.find_about, str, delivery_id=delivery_id)


def list_deliveries(
    db: Db, after: str, limit: int, *, about: str | None = None, state: DeliveryState | None = None
) -> list[StoredDelivery]:
    """Return deliveries (about one thing, in one state), the newest first, behind `after`."""
    if about is not None:
        return db.records(
            SQL.list_newest_about, StoredDelivery, about=about, state=state or "", after=after, limit=limit
        )
    if state is not None:
        return db.records(SQL.list_newest_in_state, StoredDelivery, state=state, after=after, limit=limit)
    return db.records(SQL.list_newest, StoredDelivery, after=after, limit=limit)
