"""Threads of a process: started, woken and stopped together, each a loop over a step."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Final, Protocol, TypeAlias

from tidemill.catalog.db import Catalog, CatalogGone
from tidemill.catalog.named import WakeKind
from tidemill.catalog.wakeups import Waiter
from tidemill.errors import Unavailable
from tidemill.roles.process_end import ProcessEnd
from tidemill.world import World

_log = logging.getLogger(__name__)

AWAY: Final = timedelta(seconds=1)
LONGEST_NAP: Final = timedelta(seconds=20)
"""The longest time between two looks. A commit wakes a loop; the looks are for commits whose notification was lost."""
SHORTEST_NAP: Final = timedelta(milliseconds=50)

Loop: TypeAlias = Callable[[Waiter, Callable[[], bool]], None]
"""The body of a thread: works until the second argument returns true, and sleeps by the waiter."""


class Waking(Protocol):
    """A source of work other than commits, which wakes the loop that does the work."""

    wake: Callable[[], None]


class Loops:
    """The threads of a process. The first error of a thread stops all threads.

    A loop whose catalog is away waits, and then goes on. Any other error ends the process: unfinished work is rows,
    and the next process continues it.
    """

    def __init__(self, catalog: Catalog, world: World) -> None:
        self._catalog = catalog
        self._world = world
        self.ending = ProcessEnd()
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._waiters: list[Waiter] = []
        self._errors: list[BaseException] = []
        self.draining = False

    @property
    def failed(self) -> bool:
        """Tell whether an error has ended a loop."""
        return bool(self._errors)

    def start(self, name: str, run: Loop, awaited: frozenset[WakeKind] = frozenset()) -> Waiter:
        """Run a loop in a thread of its own, and return its waiter.

        Commits with one of the changes `awaited` wake the loop.
        """
        waiter = self._catalog.waiter(awaited)

        def body() -> None:
            while not self._stopped:
                try:
                    run(waiter, lambda: self._stopped)
                except CatalogGone as error:
                    self.fail(error)  # a deleted catalog does not come back
                    return
                except Unavailable as error:
                    _log.warning("%s waits: %s", name, error)
                    self._world.clock.sleep(AWAY)
                except BaseException as error:  # noqa: BLE001  # raised again by stop(), after all have ended
                    self.fail(error)
                    return

        self._waiters.append(waiter)
        self._threads.append(threading.Thread(target=body, name=name))
        self._threads[-1].start()
        return waiter

    def fail(self, error: BaseException) -> None:
        """End all loops by an error, which `stop` raises."""
        self._errors.append(error)
        self.ending.ask()

    def stop(self) -> None:
        """End all loops and wait for their threads. Raises the first error that ended a loop."""
        self._stopped = True
        for waiter in self._waiters:
            waiter.wake()
        for thread in self._threads:
            thread.join()
        for waiter in self._waiters:
            waiter.close()
        if self._errors:
            raise self._errors[0]


def nap_for(waits: Iterable[timedelta]) -> timedelta:
    """Return the shortest of `waits`; at least `SHORTEST_NAP`, and at most `LONGEST_NAP`."""
    return min(max(min(waits, default=LONGEST_NAP), SHORTEST_NAP), LONGEST_NAP)


def loop(
    world: World,
    step: Callable[[], timedelta],
    *,
    look_again: timedelta | None = None,
    hints: Waking | None = None,
) -> Loop:
    """Call `step` again after the time that it returned, counted from its end.

    If `look_again` is given, a commit or `hints` has it called earlier: `look_again` after the last call began.
    """

    def run(waiter: Waiter, stopped: Callable[[], bool]) -> None:
        if hints is not None:
            hints.wake = waiter.wake
        due = soonest = world.clock.monotonic()
        while not stopped():
            if (began := world.clock.monotonic()) >= due:
                nap = step()
                # A step asks for the next time when its work is done. Counted from the begin of the step, the nap would
                # end early by the length of the work, and the next step would find nothing due.
                due = world.clock.monotonic() + nap
                soonest = due if look_again is None else min(due, began + look_again)
            now = world.clock.monotonic()
            waiter.wait(max(due - now, timedelta(0)), rest=max(soonest - now, timedelta(0)))
            if world.clock.monotonic() < due:
                due = soonest  # a commit may have named an earlier time

    return run
