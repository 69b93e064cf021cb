"""The alerter: looks at rules when their time has come or a commit came, and sends what targets are to be sent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import Final, Protocol

from tidemill.alerts.alerts import NEXT_LOOK, AlertEvent, Watch
from tidemill.alerts.connecting import Reach
from tidemill.alerts.outbox import DueDelivery, Sender
from tidemill.alerts.sending import Post
from tidemill.alerts.subscribers import Pusher
from tidemill.catalog.db import Catalog
from tidemill.catalog.named import Call, WakeKind
from tidemill.errors import Unavailable
from tidemill.roles.loops import Loops, loop, nap_for
from tidemill.world import World

_log = logging.getLogger(__name__)

_AWAITED_BY_LOOKS: Final = frozenset(WakeKind) - {
    WakeKind.PROGRESS,
    WakeKind.FREED,
    WakeKind.DELIVERY,
    WakeKind.TOKEN,
    WakeKind.NODE,
}
_AWAITED_BY_COURIERS: Final = frozenset({WakeKind.MESSAGE, WakeKind.UNHEARD, WakeKind.STREAMED, WakeKind.DELIVERY})
LOOK_AGAIN: Final = timedelta(seconds=1)
"""The delay of the next look after a commit."""
_MOST_COURIERS: Final = 32
"""Receivers to which one process sends at once."""
_END_WITHIN: Final = timedelta(seconds=2)
"""The time for tries under way at the end of a process. A try that is cut off is made again by the next process."""


class Lanes(Protocol):
    """Deliveries in lanes: in a lane one after the other, and no lane waits for another."""

    def list_due(self) -> list[str]:
        """Return lanes in which there is something to send now."""

    def work_off(self, lane: str, stopped: Callable[[], bool]) -> None:
        """Send what is due in a lane, until nothing is, or `stopped`."""

    def next_try(self) -> Call:
        """Return the read of the next time that brings something to send. It finds NULL if only a commit can."""


class Alerter:
    """The looks at rules, and the sending, each in a loop of its own. A receiver that hangs delays neither."""

    def __init__(
        self,
        catalog: Catalog,
        world: World,
        reach: Reach,
        state: Path,
        *,
        on_event: Callable[[AlertEvent], None],
        on_dead: Callable[[DueDelivery, str], None],
    ) -> None:
        self._catalog = catalog
        self._world = world
        self._watch = Watch(catalog, world, state, on_event)
        send = Post(world, reach).send
        self._couriers = Couriers(world, [Sender(catalog, world, send, on_dead), Pusher(catalog, world, send)])

    def start(self, loops: Loops) -> None:
        """Start the two loops."""
        loops.start("alerts", loop(self._world, self.look, look_again=LOOK_AGAIN), _AWAITED_BY_LOOKS)
        deliveries = loop(self._world, self.send, look_again=LOOK_AGAIN, hints=self._couriers)
        loops.start("deliveries", deliveries, _AWAITED_BY_COURIERS)

    def look(self) -> timedelta:
        """Look at what is due, and return the time until the next look."""
        self._watch.look()
        return self._ask([NEXT_LOOK])

    def send(self) -> timedelta:
        """Have what is due sent, and return the time until the next try."""
        # The time first, so that a try that becomes due meanwhile is started. A try that couriers plan meanwhile needs
        # no time here: each courier wakes this loop when the courier leaves its lane.
        asked_at = self._world.clock.monotonic()
        nap = self._ask([lanes.next_try() for lanes in self._couriers.kinds])
        self._couriers.start_due()
        return max(nap - (self._world.clock.monotonic() - asked_at), timedelta(0))

    def stop(self) -> None:
        """End the tries under way, or leave them."""
        self._couriers.stop()

    def _ask(self, reads: Sequence[Call]) -> timedelta:
        look = self._catalog.read(lambda db: db.look(*reads))
        return nap_for(at - look.now for at in look.times())


class Couriers:
    """Threads of one process that send, each in one lane at a time. There are as many as lanes were due at once.

    A courier that leaves a lane may have planned the next try. A message may have committed meanwhile, or a lane may
    have been due while all couriers were busy. So each courier calls `wake` when it leaves, and the loop looks again.
    The commits of a push wake no loop, since most of them record a message that was sent.
    """

    def __init__(self, world: World, kinds: Sequence[Lanes], most: int = _MOST_COURIERS) -> None:
        self._world = world
        self.kinds = kinds
        self._most = most
        self.wake: Callable[[], None] = lambda: None
        self._busy: set[tuple[int, str]] = set()
        self._threads: list[threading.Thread] = []
        self._orders: SimpleQueue[tuple[int, str] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._stopped = False
        self.errors: list[BaseException] = []

    def start_due(self) -> None:
        """Give each lane that is due to a courier. Raises the error that ended a courier."""
        if self.errors:
            raise self.errors[0]
        for number, lanes in enumerate(self.kinds):
            for lane in lanes.list_due():
                self._order(number, lane)

    def stop(self) -> None:
        """Start nothing more, and give tries under way a short time to end."""
        with self._lock:  # a thread that is among the others and not started yet could not be joined
            self._stopped = True
        for _ in self._threads:
            self._orders.put(None)
        give_up_at = self._world.clock.monotonic() + _END_WITHIN
        for thread in self._threads:
            thread.join(max((give_up_at - self._world.clock.monotonic()).total_seconds(), 0))

    def _order(self, number: int, lane: str) -> None:
        with self._lock:
            if (number, lane) in self._busy or len(self._busy) >= self._most or self._stopped:
                return  # the courier that leaves next wakes the loop
            self._busy.add((number, lane))
            self._orders.put((number, lane))
            if len(self._threads) < len(self._busy):
                # A daemon: a receiver that says nothing does not hold up the end of the process.
                thread = threading.Thread(target=self._work, name="courier", daemon=True)
                self._threads.append(thread)
                thread.start()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None:
            number, lane = order
            try:
                self.kinds[number].work_off(lane, lambda: self._stopped)
            except Unavailable as error:
                _log.warning("a delivery waits: %s", error)
            except BaseException as error:  # noqa: BLE001  # raised again by the next start_due()
                if not self._stopped:
                    self.errors.append(error)
            finally:
                with self._lock:
                    self._busy.remove(order)
                    if not self._stopped:  # else the waiter of the loop may be closed
                        self.wake()
