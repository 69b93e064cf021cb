"""The scheduler: subscriber, boundaries, timekeeper, checker and backfills in turn, woken by whatever commits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import ClassVar, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import WakeKind
from tidemill.catalog.wakeups import Waiter
from tidemill.errors import Unavailable
from tidemill.schedule.backfill_records import FIND_DUE
from tidemill.schedule.backfills import advance_due
from tidemill.schedule.boundaries import FREE, feed_boundaries
from tidemill.schedule.checker import NEXT_CHECK, Launch, check_due
from tidemill.schedule.probes import Probes, Source
from tidemill.schedule.subscriber import UNHANDLED, subscribe
from tidemill.schedule.timekeeper import NEXT_TIMER, fire_due
from tidemill.world import World

LONGEST_SLEEP: Final = timedelta(seconds=5)
"""Due times are the catalog's; the sleep is of this machine's clock, which may run otherwise: ask again by then."""


_AWAY: Final = timedelta(seconds=1)

_log = logging.getLogger(__name__)


class Scheduler:
    """Brings messages and due times to jobs, and jobs and backfills to runs.

    Any number of processes may have one on one catalog.

    `probes` are the functions of this process that `Probe` constraints name.
    `most_launches` is the cap of each namespace on the launches in a second; 0 means no cap.
    Without `timers`, due times are left to another scheduler, or to a later start.
    """

    AWAITED: ClassVar = frozenset({WakeKind.MESSAGE, WakeKind.JOB})
    """The changes by which a scheduler gets something to do."""

    def __init__(
        self,
        catalog: Catalog,
        world: World,
        launched: Callable[[Launch], None],
        *,
        timers: bool = True,
        probes: Mapping[str, Source] = MappingProxyType({}),
        most_launches: int = 0,
    ) -> None:
        self._catalog = catalog
        self._world = world
        self._launched = launched
        self._timers = timers
        self._probes = Probes(probes)
        self._most_launches = most_launches

    def step(self) -> timedelta:
        """Do a batch of what can be done now. Return the time to wait for more, unless a process commits.

        Writes only when there is something to write. Cost of asking: one read.
        """
        messages, boundaries, backfills, fire_at, check_at, now = self._catalog.read(_look)
        if not self._timers:
            fire_at = None
        done = subscribe(self._catalog, self._world) if messages else 0
        if boundaries:
            done += feed_boundaries(self._catalog, self._world)
        if fire_at is not None and fire_at <= now:
            fired = fire_due(self._catalog, self._world, most_launches=self._most_launches)
            done += fired.timers
            self._tell(fired.launches)
        if done:
            # Most messages feed no job, and a check that finds nothing costs four times as much as a look.
            *_, check_at, now = self._catalog.read(_look)
        if check_at is not None and check_at <= now:
            checked = check_due(self._catalog, self._world, probes=self._probes, most_launches=self._most_launches)
            done += checked.jobs
            self._tell(checked.launches)
        if backfills:
            # Last: jobs of schedules do not wait for the runs of a backfill.
            done += advance_due(self._catalog, self._world)
        if done:
            return timedelta(0)
        # What is due and not done is held by another scheduler: it wakes us with its commit.
        return min([LONGEST_SLEEP, *(at - now for at in (fire_at, check_at) if at is not None and at > now)])

    def _tell(self, launches: Iterable[Launch]) -> None:
        for launch in launches:
            self._launched(launch)

    def run(self, waiter: Waiter, stopped: Callable[[], bool]) -> None:
        """Repeat `step` until `stopped`. The caller that stops the loop wakes the waiter.

        The loop waits while the catalog is unavailable.
        """
        while not stopped():
            try:
                nap = self.step()
            except Unavailable as error:
                _log.warning("the scheduler waits: %s", error)
                nap = _AWAY
            waiter.wait(nap, found=not nap)


def _look(db: Db) -> tuple[bool, bool, bool, datetime | None, datetime | None, datetime]:
    look = db.look(UNHANDLED, FREE, FIND_DUE, NEXT_TIMER, NEXT_CHECK)
    topic, queue, backfill, *_ = look.found
    return topic is not None, queue is not None, backfill is not None, look.time(3), look.time(4), look.now
