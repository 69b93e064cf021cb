"""The runner: takes runs that are ready, has drivers work on them, renews their leases, and ends what must end.

The lease is the runner's to renew, never the driver's: a C call that holds the interpreter for a minute must not fence
a run. It renews for drivers that live and are not stopped. A driver's end is seen at once, and the next attempt starts;
the lease is for ends that the runner cannot see.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from tidemill.catalog.db import Catalog, CatalogGone, CatalogUnavailable, Db
from tidemill.catalog.named import WakeKind
from tidemill.durations import format_duration
from tidemill.errors import TidemillError, Unavailable
from tidemill.names import RunId
from tidemill.run.processes.java import NoJava
from tidemill.run.processes.launcher import DriverNotStarted, Ended, Launcher, NoSparkProfile, Running, Uncertain
from tidemill.run.processes.reaper import Reaper
from tidemill.run.processes.session import NoSpark
from tidemill.run.records.bundles import CodeUnavailable, find_code
from tidemill.run.records.programs import Program, profile_key
from tidemill.run.records.runs import Cause, RunRecord, RunState, find_moved, find_runs
from tidemill.run.records.workers import UNBALANCED, balance, next_start
from tidemill.run.step.attempts import AttemptEnd, ask_kill, due_runs, end_attempt, next_due, renew, take_runs
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.catalog.wakeups import Waiter

_log = logging.getLogger(__name__)

LEASE: Final = timedelta(seconds=60)
RENEWALS_IN_A_LEASE: Final = 6
_REGISTER_WITHIN: Final = timedelta(minutes=5)
"""A warm driver may be given an attempt while it still starts Spark, which takes a minute on a busy machine (tried)."""
_TELL_EVERY: Final = timedelta(seconds=30)
"""The interval of reports about a run that still waits for a driver."""
_LOOK_EVERY: Final = timedelta(milliseconds=200)
"""The longest time until the death of a driver is seen. Everything else wakes the runner through the catalog."""
_IDLE: Final = timedelta(seconds=15)
_AWAY: Final = timedelta(seconds=1)
_LEAVE_FOR: Final = timedelta(minutes=1)
"""The time for which a node leaves runs to other nodes: it could not load their bundle, or lacks their profile."""
_LEAVE_AT_FIRST: Final = timedelta(seconds=10)
"""The time for which a node that could not reach a location leaves the runs of the program to other nodes.

Each further time is twice as long, up to `_LEAVE_FOR`. A location that is away for a moment must not cost the only node
a minute."""


class RunEventKind(StrEnum):
    """The reports of a runner to its watchers."""

    WAITING = "waiting"
    """A run has waited long for a driver that starts Spark; `detail` says for how long, and names the log."""
    STARTED = "started"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class RunEvent:
    """An attempt waits, was started, or is over; `run` is as the catalog has it then (PENDING: it will be retried)."""

    kind: RunEventKind
    run: RunRecord
    program: Program
    detail: str = ""


@dataclass(slots=True)
class _Held:
    run: RunRecord
    program: Program
    since: timedelta
    registered: bool = False
    """True once its driver was seen to have registered. Only a driver that is late is asked for."""
    renewed: bool = True
    """False while its driver is not known to work, and the lease is not renewed."""
    end: AttemptEnd | None = None
    """The end of the attempt, once its driver is being killed."""


@dataclass(slots=True)
class _Waiting:
    """A run that is taken and waits for a driver with Spark; it takes no slot."""

    run: RunRecord
    program: Program
    since: timedelta
    told_at: timedelta
    why: str = "no driver was asked for yet"
    """The cause of the wait, for people."""


class _Choice(NamedTuple):
    """The runs that a node can take: `most` of them, besides workers."""

    most: int
    with_spark: bool
    avoided: Sequence[str]
    """Bundles, Spark profiles and programs that the node leaves alone, as in `take_runs`."""


class Runner:
    """Works on at most `slots` runs at a time."""

    AWAITED: ClassVar = frozenset({WakeKind.RUN, WakeKind.FREED})
    """The changes by which a runner gets something to do."""

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
        self._waiting: dict[RunId, _Waiting] = {}
        self._renewed_at: timedelta | None = None
        self._reaped_at: timedelta | None = None
        self._looked_at: datetime | None = None
        """The catalog's time of the last look for due runs; None while this runner takes none."""
        self._last_look = world.clock.monotonic()
        """The time of that look by our monotonic clock."""
        self._more = False
        """True if the last take filled all slots, so that more runs may wait."""
        self._left_until: dict[str, timedelta] = {}
        """The times, by our monotonic clock, until which this node leaves bundles, profiles and programs to others."""
        self._left_for: dict[str, timedelta] = {}
        """The time for which this node has left a program to others, until it has ended a run of the program."""

    @property
    def busy(self) -> int:
        """Count the runs that drivers work on and that end by themselves: waiting runs and workers take no slot."""
        return sum(not held.program.kind.is_worker for held in self._held.values())

    def step(self, *, taking: bool = True) -> bool:
        """Do all that is due now, without waiting. Raises `CatalogUnavailable`.

        Return whether an attempt was over, or was started.
        """
        held = len(self._held) + len(self._waiting)
        self.watch()
        over = len(self._held) + len(self._waiting) < held
        self.renew()
        self.reap()
        launched = []
        if taking:
            launched = self.take()
        else:
            self._looked_at = None
            self._return_waiting("its runner takes no more runs")
        # Last: starting a driver may take its time, and leases do not wait.
        self.launcher.tend()
        return over or bool(launched)

    def take(self) -> list[RunId]:
        """Take as many due runs as there are free slots, and all due workers, and have them worked on.

        Runs that wait for a driver with Spark come first, and while there are any, no others of their Spark profile are
        taken. After a take that filled all slots the next take needs no look. So runs past their deadline, and workers,
        may be taken a moment later.
        """
        launched = [run_id for run_id, waiting in list(self._waiting.items()) if self._launch_waiting(waiting)]
        choice = self._choose()
        now = self.world.clock.monotonic()
        if choice.most and self._needs_no_look(now):
            launched += self._take(choice)
            if self._needs_no_look(now):
                return launched
            choice = self._choose()
        # A node with one profile finds the runs without Spark by an index of their own.
        due_now = due_runs(workers_only=not choice.most, with_spark=choice.with_spark, avoided=choice.avoided)
        look = self.catalog.read(lambda db: db.look(UNBALANCED, *due_now))
        self._looked_at = look.now
        if choice.most:  # a look for workers alone sees no run past its deadline
            self._last_look, self._more = now, False
        unbalanced, workers, *due = look.found
        if unbalanced is not None:
            for surplus in balance(self.catalog):
                ask_kill(self.catalog, surplus)
        elif workers is None and all(found is None for found in due):
            return launched  # a look locks out no writer
        # Most nodes have no workers and no deadlines. What comes meanwhile wakes this runner again.
        return launched + self._take(choice, workers=(workers or unbalanced) is not None, late=any(due[:1]))

    def _needs_no_look(self, now: timedelta) -> bool:
        """Return whether more runs wait for sure, or nearly so, and the last look is a moment ago."""
        return self._more and now - self._last_look < _LOOK_EVERY

    def _choose(self) -> _Choice:
        """Return which runs this node can take now."""
        short = {one.program.spark_profile for one in self._waiting.values() if one.program.kind.needs_spark}
        with_spark = not short.issuperset(self.launcher.profiles)
        avoided = self.avoided() + [profile_key(profile) for profile in short if with_spark]
        return _Choice(max(self.slots - self.busy, 0), with_spark, avoided)

    def _take(self, choice: _Choice, *, workers: bool = False, late: bool = False) -> list[RunId]:
        """Take runs and have them worked on; return those that a driver has."""
        host = self.world.spawner.host()

        def take(db: Db) -> list[tuple[RunRecord, Program]]:
            return take_runs(
                db,
                most=choice.most,
                owner=self.runner_id,
                process=self.world.spawner.identity(),
                host=host,
                lease=self.lease,
                with_spark=choice.with_spark,
                avoided=choice.avoided,
                workers=workers,
                late=late,
            )

        now = self.world.clock.monotonic()
        taken = [_Waiting(run, program, now, now) for run, program in self.catalog.write(take)]
        if choice.most:
            filled = sum(not waiting.program.kind.is_worker for waiting in taken) >= choice.most
            self._more = filled and not late  # more runs may be past their deadlines
        for waiting in taken:
            if (former := self._held.get(waiting.run.run_id)) is not None:
                self._over(former, waiting.run)  # its attempt has ended since `watch`
        # All of them before the first is launched: when the catalog goes away meanwhile, their leases are renewed.
        self._waiting |= {waiting.run.run_id: waiting for waiting in taken}
        self.world.mark("runner.taken")
        return [waiting.run.run_id for waiting in taken if self._launch_waiting(waiting)]

    def watch(self) -> None:
        """See which attempts are over, whose driver has ended, and which are to be killed."""
        if not self._held and not self._waiting:
            return
        now = self.world.clock.monotonic()
        ours = [one.run for one in self._held.values()] + [one.run for one in self._waiting.values()]
        attempts = [(run.run_id, run.epoch) for run in ours]
        late = [
            held.run.run_id
            for held in self._held.values()
            if not held.registered and now - held.since > _REGISTER_WITHIN
        ]
        moved, unregistered = self.catalog.read(
            lambda db: (find_moved(db, attempts), find_runs(db, late) if late else [])
        )
        stand = {run.run_id: run for run in moved}
        starting = {run.run_id for run in unregistered if run.state is RunState.STARTING}
        for run_id, held in list(self._held.items()):
            run = stand.get(run_id)
            life = self.launcher.poll(run_id, held.run.epoch)
            if run is not None and (run.epoch != held.run.epoch or not run.state.live):
                self._over(held, run)  # its driver ended it, or a reaper fenced it
            elif held.end is not None:
                self._end(held, held.end)
            elif run is not None:
                self._end(held, AttemptEnd(Cause.KILLED, "killed on request"))
            elif isinstance(life, Ended):
                self._end(held, AttemptEnd(Cause.LOST, f"its driver ended {life.how} without a word"))
            elif run_id in starting:
                self._end(held, AttemptEnd(Cause.LOST, f"its driver did not register within {_REGISTER_WITHIN}"))
            else:
                held.registered = held.registered or run_id in late
        self._watch_waiting(stand, now)

    def _watch_waiting(self, stand: Mapping[RunId, RunRecord], now: timedelta) -> None:
        for run_id, waiting in list(self._waiting.items()):
            run = stand.get(run_id)
            if run is not None and (run.epoch != waiting.run.epoch or not run.state.live):
                del self._waiting[run_id]
            elif run is not None:
                self._end_waiting(waiting, AttemptEnd(Cause.KILLED, "killed on request"))
            elif now - waiting.told_at >= _TELL_EVERY:
                waiting.told_at = now
                self._tell_waiting(waiting, now)

    def renew(self) -> None:
        """Renew the leases of runs that wait, or whose driver lives and is not stopped, when it is time to."""
        now = self.world.clock.monotonic()
        if self._renewed_at is not None and now - self._renewed_at < self.lease / RENEWALS_IN_A_LEASE:
            return
        working = [(run_id, held.run.epoch) for run_id, held in self._held.items() if self._works(held)]
        working += [(run_id, waiting.run.epoch) for run_id, waiting in self._waiting.items()]
        if working:
            self.catalog.write(lambda db: renew(db, working, self.lease), urgent=True)
        self._renewed_at = now

    def _works(self, held: _Held) -> bool:
        """Return whether the driver of a run works, or is being killed. Log once that this is uncertain."""
        if held.end is not None:
            return True
        run = held.run
        life = self.launcher.poll(run.run_id, run.epoch)
        if isinstance(life, Uncertain) and held.renewed:
            _log.warning("the lease of %s is not renewed: its driver %s", run.run_id, life.why)
        held.renewed = isinstance(life, Running)
        return held.renewed

    def reap(self) -> None:
        """Fence the runs of others whose lease is out, when it is time to look."""
        now = self.world.clock.monotonic()
        if self._reaped_at is None or now - self._reaped_at >= self.reaper.every:
            self.reaper.step()
            self._reaped_at = now

    def run(self, waiter: Waiter, stopped: Callable[[], bool], *, taking: Callable[[], bool] = lambda: True) -> None:
        """Work until `stopped`, then end all drivers and return their runs. Wake `waiter` to make the runner look.

        A catalog that is away stops nothing: what runs goes on, and nothing new is started.
        """
        self.world.spawner.end_orphans()
        try:
            while not stopped():
                try:
                    found = self.step(taking=taking())
                    waiter.wait(self.idle_for(), found=found)
                except Unavailable as error:
                    _log.warning("the runner waits: %s", error)
                    waiter.wait(_AWAY)
        finally:
            self.close()

    def idle_for(self) -> timedelta:
        """Return the time for which nothing is due unless the catalog changes."""
        if self._held or self._waiting:
            return _LOOK_EVERY
        # A reaper that looks more seldom than it has to sees no lease run out, ever: short leases were not fenced.
        longest = min(_IDLE, self.reaper.every)
        if (since := self._looked_at) is None:
            return longest
        # What came due after the look for due runs was not seen by it, and is past by now.
        look = self.catalog.read(lambda db: db.look(next_due(since), next_start(since)))
        return min([longest, *(max(due - look.now, timedelta(0)) for due in look.times())])

    def close(self) -> None:
        """End all drivers, and return their runs, which other runners take then; that costs the runs nothing."""
        self.launcher.close()
        for held in list(self._held.values()):
            self._end(held, held.end or AttemptEnd(Cause.RETURNED, "its runner was stopped"))
        self._return_waiting("its runner was stopped")

    def _return_waiting(self, why: str) -> None:
        """Leave the runs that wait for a driver to other runners."""
        for waiting in list(self._waiting.values()):
            self._end_waiting(waiting, AttemptEnd(Cause.RETURNED, why))

    def _launch_waiting(self, waiting: _Waiting) -> bool:
        """Have a driver work on a run that is taken; False while it waits for one, or when none can be started."""
        run, program = waiting.run, waiting.program
        if self.busy >= self.slots and not program.kind.is_worker:
            waiting.why = "all slots are taken"
            return False
        try:
            why = self._start(run, program)
        except CodeUnavailable as error:
            self._leave(run.bundle)
            self._end_waiting(waiting, AttemptEnd(Cause.UNLOADED, f"{error.code}: {error}"))
            return False
        except (NoSparkProfile, NoSpark, NoJava) as error:
            self._leave(profile_key(program.spark_profile))
            self._end_waiting(waiting, AttemptEnd(Cause.LACKING, f"{error.code}: {error}"))
            return False
        except (CatalogUnavailable, CatalogGone):
            raise  # the run waits until the catalog is back
        except (TidemillError, OSError) as error:
            # A full disk or too many processes are this machine's trouble, and pass: they use up no retry.
            cause = Cause.LOST if isinstance(error, OSError | DriverNotStarted) else Cause.REFUSED
            self._end_waiting(waiting, AttemptEnd(cause, f"cannot be started: {error}"))
            return False
        if why is not None:
            waiting.why = why
            return False
        self.world.mark("runner.launched")
        del self._waiting[run.run_id]
        self._held[run.run_id] = _Held(run, program, self.world.clock.monotonic())
        self.on_event(RunEvent(RunEventKind.STARTED, run, program))
        return True

    def _start(self, run: RunRecord, program: Program) -> str | None:
        """Start the attempt as `Launcher.start` does. Raises `CodeUnavailable` and `NoSparkProfile`, too."""
        if program.kind.needs_spark and program.spark_profile not in self.launcher.profiles:
            raise NoSparkProfile(program.spark_profile, self.world.spawner.host())
        code = find_code(self.catalog, self.launcher.folder, program, run.bundle)
        return self.launcher.start(run.run_id, run.epoch, program, code)

    def _end_waiting(self, waiting: _Waiting, end: AttemptEnd) -> None:
        """End the attempt of a run that no driver has."""
        end_attempt(self.catalog, waiting.run.run_id, waiting.run.epoch, end)
        del self._waiting[waiting.run.run_id]
        self._tell(RunEventKind.ENDED, waiting.run.run_id, waiting.program)

    def _tell_waiting(self, waiting: _Waiting, now: timedelta) -> None:
        """Say that a run has waited long, and for what."""
        long = format_duration(timedelta(seconds=round((now - waiting.since).total_seconds())))
        self.on_event(RunEvent(RunEventKind.WAITING, waiting.run, waiting.program, f"for {long}: {waiting.why}"))

    def _end(self, held: _Held, end: AttemptEnd) -> None:
        """End a driver with all that it started, and then its attempt: in this order nothing of it still writes.

        While the driver still ends, only note the end: `watch` calls again.
        """
        held.end = end
        if not self.launcher.kill(held.run.run_id, held.run.epoch):
            return
        self.world.mark("runner.driver_ended")
        end_attempt(self.catalog, held.run.run_id, held.run.epoch, end)
        del self._held[held.run.run_id]
        self._tell(RunEventKind.ENDED, held.run.run_id, held.program)

    def _over(self, held: _Held, run: RunRecord) -> None:
        committed = run.state is RunState.COMPLETED and run.epoch == held.run.epoch
        self.launcher.release(run.run_id, held.run.epoch, committed=committed)
        del self._held[run.run_id]
        if run.epoch == held.run.epoch:
            self._learn(held, run)
        self.on_event(RunEvent(RunEventKind.ENDED, run, held.program))

    def _learn(self, held: _Held, run: RunRecord) -> None:
        """Leave to other nodes for a while what this one turned out to lack."""
        program = held.program.program_id
        if run.exit_cause is Cause.UNLOADED:
            self._leave(held.run.bundle)
        elif run.exit_cause is Cause.POSTPONED and run.state is RunState.PENDING:
            self._left_for[program] = min(self._left_for.get(program, _LEAVE_AT_FIRST / 2) * 2, _LEAVE_FOR)
            self._leave(program, self._left_for[program])
        else:
            self._left_for.pop(program, None)

    def _leave(self, what: str, duration: timedelta = _LEAVE_FOR) -> None:
        self._left_until[what] = self.world.clock.monotonic() + duration

    def avoided(self) -> list[str]:
        """Return what this node lacked a moment ago, and whose runs it leaves to other nodes.

        Bundles by their digest, profiles by their `profile_key`, and programs with a location that is away by their id.
        """
        now = self.world.clock.monotonic()
        self._left_until = {what: until for what, until in self._left_until.items() if until > now}
        return list(self._left_until)

    def _tell(self, kind: RunEventKind, run_id: RunId, program: Program) -> None:
        for run in self.catalog.read(lambda db: find_runs(db, [run_id])):
            self.on_event(RunEvent(kind, run, program))
