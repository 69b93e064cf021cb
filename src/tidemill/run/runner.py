"""The runner: takes runs that are ready, has drivers work on them, renews their leases, and ends what must end.

The lease is the runner's to renew, never the driver's: a C call that holds the interpreter for a minute must not fence
a run. It renews for drivers that live and are not stopped. A driver's end is seen at once, and the next attempt starts;
the lease is for what nobody sees.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog
from tidemill.errors import TidemillError, Unavailable
from tidemill.names import RunId
from tidemill.run.attempts import AttemptEnd, Cause, ask_kill, end_attempt, find_next_due, is_any_due, renew, take_runs
from tidemill.run.bundles import CodeUnavailable, find_code
from tidemill.run.launchers import Driver, Launcher
from tidemill.run.programs import Program, find_program_by_id
from tidemill.run.reaper import Reaper
from tidemill.run.runs import RunRecord, RunState, find_runs
from tidemill.run.workers import balance, find_next_start
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.catalog.wakeups import Waiter

_log = logging.getLogger(__name__)

LEASE: Final = timedelta(seconds=60)
RENEWALS_IN_A_LEASE: Final = 6
_REGISTER_WITHIN: Final = timedelta(minutes=5)
"""A warm driver may be given an attempt while it still starts Spark, which takes a minute on a busy machine (tried)."""
_LOOK_EVERY: Final = timedelta(milliseconds=200)
"""How late the death of a driver may be seen; everything else wakes the runner through the catalog."""
_IDLE: Final = timedelta(seconds=5)
_AWAY: Final = timedelta(seconds=1)
_LOAD_AGAIN: Final = timedelta(minutes=1)
"""How long a node that could not load a bundle leaves the runs of that bundle to other nodes."""


class RunEventKind(StrEnum):
    """What a runner tells those who watch."""

    STARTED = "started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An attempt was started, or is over; `run` is as the catalog has it then (PENDING: it will be tried again)."""

    kind: RunEventKind
    run: RunRecord
    program: Program


@dataclass(slots=True)
class _Held:
    run: RunRecord
    program: Program
    driver: Driver
    since: timedelta


class Runner:
    """Works on at most `slots` runs at a time."""

    def __init__(
        self,
        world: World,
        catalog: Catalog,
        launcher: Launcher,
        *,
        slots: int = 2,
        lease: timedelta = LEASE,
        on_event: Callable[[RunEvent], None] = lambda _: None,
    ) -> None:
        self.world = world
        self.catalog = catalog
        self.launcher = launcher
        self.slots = slots
        self.lease = lease
        self.on_event = on_event
        self.runner_id = world.new_id("runner")
        self.reaper = Reaper(world, catalog, lease)
        self._held: dict[RunId, _Held] = {}
        self._renewed_at: timedelta | None = None
        self._reaped_at: timedelta | None = None
        self._unloaded: dict[str, timedelta] = {}
        """When this node could not load a bundle, by our monotonic clock."""

    @property
    def busy(self) -> int:
        """How many runs it works on that come to an end by themselves: workers, which do not, take no slot."""
        return sum(not held.program.kind.is_worker for held in self._held.values())

    def step(self, *, taking: bool = True) -> None:
        """Do all that is due now, without waiting. Raises `CatalogUnavailable`."""
        self.watch()
        self.renew()
        self.reap()
        if taking:
            self.take()
        # Last: starting a driver may take its time, and leases do not wait.
        self.launcher.tend()

    def take(self) -> list[RunId]:
        """Take as many due runs as there are free slots, and all due workers, and have them worked on."""
        for surplus in balance(self.catalog):
            ask_kill(self.catalog, surplus)
        free = max(self.slots - self.busy, 0)
        held_off = self._held_off()
        if not self.catalog.read(lambda db: is_any_due(db, workers_only=not free, held_off=held_off)):
            return []  # a look locks out no writer
        host = self.world.spawner.host()
        runs = self.catalog.write(
            lambda db: take_runs(db, most=free, owner=self.runner_id, host=host, lease=self.lease, held_off=held_off)
        )
        self.world.mark("runner.taken")
        return [run.run_id for run in runs if self._launch(run)]

    def watch(self) -> None:
        """See which attempts are over, whose driver has ended, and which are to be killed."""
        if not self._held:
            return
        stand = {run.run_id: run for run in self.catalog.read(lambda db: find_runs(db, list(self._held)))}
        now = self.world.clock.monotonic()
        for run_id, held in list(self._held.items()):
            run = stand[run_id]
            exit_code = held.driver.child.poll()
            if run.epoch != held.run.epoch or not run.state.live:
                self._over(held, run)  # its driver ended it, or somebody fenced it
            elif run.state is RunState.STOPPING:
                self._end(held, Cause.KILLED, "killed on request")
            elif exit_code is not None:
                self._end(held, Cause.LOST, f"its driver ended {_how(exit_code)} without a word")
            elif run.state is RunState.STARTING and now - held.since > _REGISTER_WITHIN:
                self._end(held, Cause.LOST, f"its driver did not register within {_REGISTER_WITHIN}")

    def renew(self) -> None:
        """Renew the leases of runs whose driver lives and is not stopped, when it is time to."""
        now = self.world.clock.monotonic()
        if self._renewed_at is not None and now - self._renewed_at < self.lease / RENEWALS_IN_A_LEASE:
            return
        working = [
            (run_id, held.run.epoch)
            for run_id, held in self._held.items()
            if held.driver.child.poll() is None and not held.driver.child.stopped()
        ]
        if working:
            self.catalog.write(lambda db: renew(db, working, self.lease), urgent=True)
        self._renewed_at = now

    def reap(self) -> None:
        """Fence the runs of others whose lease is out, when it is time to look."""
        now = self.world.clock.monotonic()
        if self._reaped_at is None or now - self._reaped_at >= self.reaper.every:
            self.reaper.step()
            self._reaped_at = now

    def run(self, waiter: Waiter, stopped: Callable[[], bool], *, taking: Callable[[], bool] = lambda: True) -> None:
        """Work until `stopped`, then end all drivers and give their runs back; wake `waiter` to have it look.

        A catalog that is away stops nothing: what runs goes on, and nothing new is started.
        """
        self.world.spawner.end_orphans()
        try:
            while not stopped():
                try:
                    self.step(taking=taking())
                    waiter.wait(self.idle_for())
                except Unavailable as error:
                    _log.warning("the runner waits: %s", error)
                    waiter.wait(_AWAY)
        finally:
            self.close()

    def idle_for(self) -> timedelta:
        """How long nothing has to be done unless the catalog changes."""
        if self._held:
            return _LOOK_EVERY
        # A reaper that looks more seldom than it has to sees no lease run out, ever: short leases were not fenced.
        longest = min(_IDLE, self.reaper.every)
        now, *times = self.catalog.read(lambda db: (db.now(), find_next_due(db), find_next_start(db)))
        return min([longest, *(timedelta(milliseconds=max(due - now, 0)) for due in times if due is not None)])

    def close(self) -> None:
        """End all drivers, and give their runs to whoever comes next; that costs them nothing."""
        self.launcher.close()
        for held in list(self._held.values()):
            self._end(held, Cause.RETURNED, "its runner was stopped")

    def _launch(self, run: RunRecord) -> bool:
        assert run.program_id is not None, "only runs of programs are taken"  # noqa: S101
        program_id = run.program_id
        program = self.catalog.read(lambda db: find_program_by_id(db, program_id))
        try:
            code = find_code(self.catalog, self.launcher.options.folder, program, run.bundle)
            driver = self.launcher.launch(run.run_id, run.epoch, program, code)
        except CodeUnavailable as error:
            self._hold_off(run)
            end = AttemptEnd(Cause.UNLOADED, f"{error.code}: {error}")
            end_attempt(self.catalog, run.run_id, run.epoch, end)
            self._tell(RunEventKind.ENDED, run.run_id, program)
            return False
        except (TidemillError, OSError) as error:
            # A full disk or too many processes are this machine's trouble, and pass: they use up no retry.
            cause = Cause.LOST if isinstance(error, OSError) else Cause.REFUSED
            end_attempt(self.catalog, run.run_id, run.epoch, AttemptEnd(cause, f"cannot be started: {error}"))
            self._tell(RunEventKind.ENDED, run.run_id, program)
            return False
        self.world.mark("runner.launched")
        self._held[run.run_id] = _Held(run, program, driver, self.world.clock.monotonic())
        self.on_event(RunEvent(RunEventKind.STARTED, run, program))
        return True

    def _end(self, held: _Held, cause: Cause, reason: str) -> None:
        """End a driver with all that it started, and then its attempt: in this order nothing of it still writes."""
        self.launcher.end(held.driver)
        self.world.mark("runner.driver_ended")
        end_attempt(self.catalog, held.run.run_id, held.run.epoch, AttemptEnd(cause, reason))
        del self._held[held.run.run_id]
        self._tell(RunEventKind.ENDED, held.run.run_id, held.program)

    def _over(self, held: _Held, run: RunRecord) -> None:
        committed = run.state is RunState.COMPLETED and run.epoch == held.run.epoch
        self.launcher.release(held.driver, committed=committed)
        del self._held[run.run_id]
        if run.epoch == held.run.epoch and (run.exit_reason or "").startswith(f"{CodeUnavailable.code}:"):
            self._hold_off(held.run)
        self.on_event(RunEvent(RunEventKind.ENDED, run, held.program))

    def _hold_off(self, run: RunRecord) -> None:
        """Leave the code of `run` to other nodes for a while: this one could not load it."""
        self._unloaded[run.bundle] = self.world.clock.monotonic()

    def _held_off(self) -> list[str]:
        now = self.world.clock.monotonic()
        return [bundle for bundle, since in self._unloaded.items() if now - since < _LOAD_AGAIN]

    def _tell(self, kind: RunEventKind, run_id: RunId, program: Program) -> None:
        for run in self.catalog.read(lambda db: find_runs(db, [run_id])):
            self.on_event(RunEvent(kind, run, program))


def _how(exit_code: int) -> str:
    return f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}"
