"""The reaper, in every runner: fences runs whose lease is not renewed, and transactions that live too long.

Safety never rests on it: a fenced attempt cannot commit, a slow one that is not fenced still may. So it may take its
time, and does: an outage of the catalog, a laptop's sleep or a step of the clock must kill nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.transactions import LONGEST_LIFE, list_transactions
from tidemill.durations import format_duration
from tidemill.names import RunId, WritePointer
from tidemill.run.processes.cluster import end_application_of
from tidemill.run.records.runs import ANY_LIVE, Cause, RunKind, RunRecord, RunState, list_live
from tidemill.run.step.attempts import AttemptEnd, end_attempt, kill_nodes
from tidemill.world import World

_LOOKS_IN_A_LEASE: Final = 6
_MOST_OPEN: Final = 1000


@dataclass(frozen=True, slots=True)
class _Sight:
    lease_until: datetime | None
    since: timedelta


class Reaper:
    """Fences an attempt only when it has itself seen its lease un-renewed for a whole lease.

    It watches leases by its own monotonic clock, while it could reach the catalog and looked often enough: after a gap
    (it was stopped, the catalog was away) it begins again. A run whose runner has ended on this machine, which the
    kernel says for certain, is fenced at once.
    """

    def __init__(
        self,
        world: World,
        catalog: Catalog,
        lease: timedelta,
        end_application: Callable[[RunRecord], object] = end_application_of,
    ) -> None:
        self.world = world
        self._end_application = end_application
        self.catalog = catalog
        self.lease = lease
        self._seen: dict[tuple[RunId, int], _Sight] = {}
        self._looked_at: timedelta | None = None

    @property
    def every(self) -> timedelta:
        """Return the interval at which `step` has to be called."""
        return self.lease / _LOOKS_IN_A_LEASE

    def step(self) -> list[RunId]:
        """Look at all leases once; the runs whose attempts were fenced now.

        Raises `CatalogUnavailable`; what was seen so far then does not count.
        """
        before, self._looked_at = self._looked_at, None
        now_here = self.world.clock.monotonic()
        now, live, outlived = self.catalog.read(_look)
        if before is None or now_here - before > self.lease / 2:
            self._seen.clear()
        seen: dict[tuple[RunId, int], _Sight] = {}
        fenced = []
        for run in live:
            attempt = (run.run_id, run.epoch)
            sight = self._seen.get(attempt)
            if sight is None or sight.lease_until != run.lease_until:
                sight = _Sight(run.lease_until, now_here)
            seen[attempt] = sight
            expired = run.lease_until is not None and run.lease_until < now
            end = None
            if run.write_pointer in outlived:
                end = AttemptEnd(
                    Cause.FAILED, f"its transaction was open for {format_duration(LONGEST_LIFE)}", zombie=True
                )
            elif run.owner_process is not None and self.world.spawner.has_ended(run.owner_process):
                end = AttemptEnd(Cause.LOST, f"the process of its runner has ended ({run.owner})", zombie=True)
            elif expired and now_here - sight.since >= self.lease:
                reason = f"its lease ran out: {run.owner} did not renew it"
                end = AttemptEnd(Cause.LOST, reason, zombie=True, unrenewed=run.lease_until)
            if end is not None and self._fence(run, end):
                fenced.append(run.run_id)
        for workflow in live:
            if workflow.kind is RunKind.WORKFLOW and workflow.state is RunState.STOPPING:
                kill_nodes(self.catalog, workflow.run_id)
        self._seen = seen
        self._looked_at = now_here
        return fenced

    def _fence(self, run: RunRecord, end: AttemptEnd) -> bool:
        """Fence the attempt, unless its lease was renewed at last; end its processes if they are on this machine."""
        self.world.mark("reaper.before_fence")
        if end_attempt(self.catalog, run.run_id, run.epoch, end) is None:
            return False
        self.world.mark("reaper.after_fence")
        driver = run.facts.get("driver")
        if isinstance(driver, str) and run.host == self.world.spawner.host():
            self.world.spawner.end_tagged(driver)
        # Its executors are elsewhere, and its node may be beyond reach.
        self._end_application(run)
        return True


def _look(db: Db) -> tuple[datetime, list[RunRecord], set[WritePointer]]:
    # The time is asked first: a lease that is renewed after it is not out.
    look = db.look(ANY_LIVE)
    if look.found == (None,):
        return look.now, [], set()  # most looks, on a mill where nothing runs
    live = list_live(db)
    oldest = list_transactions(db, limit=_MOST_OPEN, open_only=True)
    outlived = {tx.write_pointer for tx in oldest if tx.began_at < look.now - LONGEST_LIFE}
    return look.now, live, outlived
