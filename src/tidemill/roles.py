"""What a process runs: `tidemill up` has all roles as threads of one process, each a loop over a step.

The loops share nothing but the catalog. A loop whose catalog is away waits and looks again; any other error ends the
process, loudly: what it was doing is a row, and goes on where it stood.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from tidemill.app.edits import Edits
from tidemill.catalog.db import Catalog, CatalogGone, Db
from tidemill.catalog.wakeups import Waiter
from tidemill.epoch import from_ms
from tidemill.errors import TidemillError, Unavailable
from tidemill.lake import datasets, janitor
from tidemill.lake.fileset.expiry import KEEP_SUPERSEDED, expire_superseded
from tidemill.lake.inbox import discovery, leaving
from tidemill.lake.inbox.inbox import Inbox
from tidemill.lake.snapshot.versions import expire_versions
from tidemill.lake.window import watermark
from tidemill.mill.mill import Mill
from tidemill.names import DatasetId
from tidemill.narration import Narrator
from tidemill.run import inputs
from tidemill.run.bundles import AppCode, find_code, sweep_bundles
from tidemill.run.launchers import DriverOptions, Launcher
from tidemill.run.partitions import apply_retention
from tidemill.run.programs import Program, ProgramKind, list_programs
from tidemill.run.runner import Runner
from tidemill.run.runs import has_unfinished
from tidemill.run.session import require_spark, settings_of
from tidemill.schedule.jobs import JobState, list_jobs
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.subscriber import has_messages
from tidemill.storage.hints import FolderHints
from tidemill.world import World

_log = logging.getLogger(__name__)

_AWAY: Final = timedelta(seconds=1)
_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end `up` in order; the last comes when its terminal is closed."""
_LONGEST_NAP: Final = timedelta(seconds=5)
_SHORTEST_NAP: Final = timedelta(milliseconds=50)
_LOOK_AGAIN: Final = timedelta(milliseconds=200)
"""How late a retry time may be seen that was set while the discoverer slept: it looks no oftener for commits."""
_LIST_WATCHED_EVERY: Final = timedelta(minutes=1)
_SWEEP_EVERY: Final = timedelta(seconds=30)
_LOOK_OUT_EVERY: Final = timedelta(seconds=2)
_LEAVE_SOON: Final = timedelta(seconds=1)
"""How long a processed file may stay where it is, unless many leave."""


class UntilIdle(StrEnum):
    """When a process ends by itself: when nothing runs, waits or is due, by data or time; or by data alone.

    With `DATA` the process starts nothing by `Cron` or `Every`, so that a short interval cannot keep it up for ever.
    """

    ALL = "all"
    DATA = "data"


@dataclass(frozen=True, slots=True)
class _Charge:
    """An inbox that this process lists: the time in the catalog up to which, and when to renew it, by its own clock."""

    until: int
    renew_at: timedelta


class Discoverer:
    """Lists the inboxes that are due, announces retries whose time has come, and releases watermarks.

    One process has charge of an inbox for a while, which it writes down once a minute. The times of the listings in
    between are its own: every `list_every`, or while the folder is watched, when there is a hint.
    """

    def __init__(self, catalog: Catalog, narrator: Narrator, hints: FolderHints[DatasetId] | None = None) -> None:
        self._catalog = catalog
        self._clock = catalog.world.clock
        self._narrator = narrator
        self._hints = hints
        self._memories: defaultdict[DatasetId, discovery.Memory] = defaultdict(discovery.Memory)
        self._charges: dict[DatasetId, _Charge] = {}
        self._looks: dict[DatasetId, timedelta] = {}
        """When an inbox is to be listed next, by this process's clock."""
        self._settling: set[DatasetId] = set()
        self._started = False

    @property
    def looked(self) -> bool:
        """Whether all inboxes were listed, and no file only waits to be seen unchanged once more."""
        return self._started and not self._settling

    def step(self) -> timedelta:
        """Do what is due now, and give how long nothing is."""
        hinted = self._hints.take() if self._hints else set()
        # Who had charge before this process began may be dead.
        due = dict(self._catalog.read(discovery.due_listings if self._started else discovery.all_listings))
        now = self._clock.monotonic()
        due |= {one: charge.until for one, charge in self._charges.items() if charge.renew_at <= now and one not in due}
        for dataset_id, due_at in due.items():
            self._take(dataset_id, due_at, now)
        for dataset_id in sorted(hinted | {one for one, at in self._looks.items() if at <= now}):
            self._list(dataset_id)
        self._started = True
        inputs.announce_due(self._catalog)
        watermark.release_due(self._catalog)
        soonest = min([*self._looks.values(), *(charge.renew_at for charge in self._charges.values())], default=None)
        nap = self._catalog.read(_until_next)
        return nap if soonest is None else min(nap, max(soonest - self._clock.monotonic(), _SHORTEST_NAP))

    def _take(self, dataset_id: DatasetId, due_at: int, now: timedelta) -> None:
        """Take charge of an inbox, or go on with it, and have it listed now. Another process may have been faster."""
        watched = Inbox.of(self._catalog.read(lambda db: datasets.find_by_id(db, dataset_id)))
        every = max(watched.spec.list_every, _LIST_WATCHED_EVERY)
        # Half as long again, so that nobody else sees it due while it is renewed.
        until = self._catalog.write(lambda db: discovery.take_listing(db, watched, due_at, every * 1.5))
        if until is None:
            self._charges.pop(dataset_id, None)
            self._looks.pop(dataset_id, None)
        else:
            self._charges[dataset_id] = _Charge(until, now + every)
            self._looks[dataset_id] = now

    def _list(self, dataset_id: DatasetId) -> None:
        now = self._clock.monotonic()
        self._looks.pop(dataset_id, None)
        self._settling.discard(dataset_id)
        if not self._catalog.read(lambda db: discovery.find_listing(db, dataset_id)):
            self._charges.pop(dataset_id, None)  # the inbox was dropped
            return
        watched = Inbox.of(self._catalog.read(lambda db: datasets.find_by_id(db, dataset_id)))
        waits = [watched.spec.list_every] if dataset_id in self._charges else []
        try:
            folder = watched.files(self._catalog.world).local_path()
            if self._hints and self._hints.watch(dataset_id, folder):
                waits = []  # the renewal of the charge lists it
            found = discovery.discover(self._catalog, watched, self._memories[dataset_id])
            if found.look_again is not None:
                waits.append(found.look_again)
            if found.settling:
                self._settling.add(dataset_id)
            self._narrator.discovered(watched, found)
        except Unavailable as error:
            # One folder that is away must not hold up the others; it is listed again at its next time.
            self._narrator.tell("inbox", watched.dataset.name, str(error), error=error.code)
            waits.append(watched.spec.list_every)
        if waits:
            self._looks[dataset_id] = now + min(waits)


class Janitor:
    """Lets go what was replaced long ago, sweeps what nobody needs, marks commits; and takes processed files away.

    The latter is a step of its own, in a loop of its own: it may take long.
    """

    def __init__(
        self, catalog: Catalog, keep_superseded: timedelta = KEEP_SUPERSEDED, state: Path | None = None
    ) -> None:
        self._catalog = catalog
        self._keep_superseded = keep_superseded
        self._state = state

    def step(self) -> timedelta:
        """One sweep; then nothing for a while."""
        apply_retention(self._catalog, self._catalog.world)
        expire_superseded(self._catalog, self._keep_superseded)
        expire_versions(self._catalog, self._keep_superseded)
        watermark.expire_moves(self._catalog, self._keep_superseded)
        janitor.sweep(self._catalog)
        if self._state is not None:
            sweep_bundles(self._catalog, self._state)
        return _SWEEP_EVERY

    def take_away(self) -> timedelta:
        """Take some processed files away; then nothing for a while, if these were all."""
        return timedelta(0) if leaving.take_away(self._catalog) else _SWEEP_EVERY


def run_all(
    mill: Mill,
    *,
    echo: Callable[[str], None],
    deploy: bool = True,
    until_idle: UntilIdle | None = None,
    drain: timedelta = timedelta(0),
    as_json: bool = False,
) -> None:
    """Run scheduler, runner, discoverer and janitor until SIGINT or SIGTERM, or until `until_idle` holds.

    At the end nothing new is taken; runs get `drain` to end by themselves, then their drivers are ended and the runs
    given back. An error of a role ends all and is raised.
    """
    world, config, catalog = mill.project.world, mill.project.config, mill.project.catalog
    narrator = Narrator(world, echo, as_json=as_json)
    deployed = [done.sentence() for done in mill.deploy()] if deploy else []
    options = DriverOptions(
        catalog.url,
        config.state,
        config.cache,
        spark_settings=settings_of(config),
        warm=config.spark_warm,
        class_data=config.spark_class_data,
    )
    launcher = Launcher(world, options)
    runner = Runner(world, catalog, launcher, slots=config.slots, lease=config.lease, on_event=narrator.ran)
    spark = _warm_up(mill, launcher)
    shown = catalog.shown_url.removeprefix(f"sqlite:///{config.folder}/")
    text = f"catalog {shown}   spark {spark}   deployed {'; '.join(deployed) or 'nothing new'}"
    narrator.tell("ready", str(config.folder), text, catalog=shown, spark=spark, deployed=deployed)

    loops = _Loops(catalog, world)
    hints: FolderHints[DatasetId] = FolderHints()
    discoverer = Discoverer(catalog, narrator, hints)
    scheduler = Scheduler(catalog, world, narrator.launched, timers=until_idle is not UntilIdle.DATA)
    sweeper = Janitor(catalog, config.keep_superseded, config.state)
    with _stopped_by_signals(loops):
        loops.start("scheduler", scheduler.run)
        loops.start("runner", lambda waiter, stopped: runner.run(waiter, stopped, taking=lambda: not loops.draining))
        loops.start("discoverer", _loop(world, discoverer.step, look_again=_LOOK_AGAIN, hints=hints))
        loops.start("janitor", _loop(world, sweeper.step))
        loops.start("place", _loop(world, partial(_look_for, catalog)))
        if deploy:
            edits = Edits(catalog, config, lambda text: narrator.tell("edited", config.app.name, text, message=text))
            loops.start("edits", _loop(world, partial(_look_at, edits)))
        loops.start("janitor of inboxes", _loop(world, sweeper.take_away, look_again=_LEAVE_SOON))
        while not loops.wait(_LONGEST_NAP if until_idle is None else _AWAY):
            if until_idle is None or not discoverer.looked or runner.busy:
                continue
            # What this node cannot load, it would wait for in vain.
            held_off = runner.avoided()
            if catalog.read(lambda db: _is_idle(db, held_off)):  # noqa: B023  # called at once
                break
        loops.draining = True
        give_up_at = world.clock.monotonic() + drain
        while runner.busy and world.clock.monotonic() < give_up_at and not loops.failed:
            world.clock.sleep(_SHORTEST_NAP)
        hints.close()
        loops.stop()
    narrator.tell("stopped", str(config.folder), f"state stays in {config.state}", state=str(config.state))


class _Loops:
    """The threads of a process: started, woken, stopped together; the first error stops all."""

    def __init__(self, catalog: Catalog, world: World) -> None:
        self._catalog = catalog
        self._world = world
        self._asked = threading.Event()
        self._stopped = False
        self._threads: list[threading.Thread] = []
        self._waiters: list[Waiter] = []
        self._errors: list[BaseException] = []
        self.draining = False

    @property
    def failed(self) -> bool:
        """Whether a loop has ended by an error."""
        return bool(self._errors)

    def start(self, name: str, run: Callable[[Waiter, Callable[[], bool]], None]) -> None:
        """Run `run(waiter, stopped)` in a thread of its own."""
        waiter = self._catalog.waiter()

        def body() -> None:
            while not self._stopped:
                try:
                    run(waiter, lambda: self._stopped)
                except CatalogGone as error:
                    self._fail(error)  # it does not come back
                    return
                except Unavailable as error:
                    _log.warning("%s waits: %s", name, error)
                    self._world.clock.sleep(_AWAY)
                except BaseException as error:  # noqa: BLE001  # raised again by stop(), after all have ended
                    self._fail(error)
                    return

        self._waiters.append(waiter)
        self._threads.append(threading.Thread(target=body, name=name))
        self._threads[-1].start()

    def _fail(self, error: BaseException) -> None:
        self._errors.append(error)
        self._asked.set()

    def ask(self) -> None:
        """Ask for the end; async-signal-safe."""
        self._asked.set()

    def wait(self, timeout: timedelta) -> bool:
        """Whether the end was asked for, after at most `timeout`."""
        return self._asked.wait(timeout.total_seconds())

    def stop(self) -> None:
        """End all loops and wait for them; raise what one of them ended by."""
        self._stopped = True
        for waiter in self._waiters:
            waiter.wake()
        for thread in self._threads:
            thread.join()
        for waiter in self._waiters:
            waiter.close()
        if self._errors:
            raise self._errors[0]


def _loop(
    world: World,
    step: Callable[[], timedelta],
    *,
    look_again: timedelta | None = None,
    hints: FolderHints[DatasetId] | None = None,
) -> Callable[[Waiter, Callable[[], bool]], None]:
    """Call `step` when the time has come that it named, or `look_again` after the last call if somebody commits.

    Or if there is one of `hints`.
    """

    def run(waiter: Waiter, stopped: Callable[[], bool]) -> None:
        if hints is not None:
            hints.wake = waiter.wake
        due = soonest = world.clock.monotonic()
        while not stopped():
            if (now := world.clock.monotonic()) >= due:
                due = now + step()
                soonest = due if look_again is None else min(due, now + look_again)
            waiter.wait(max(due - world.clock.monotonic(), timedelta(0)))
            if world.clock.monotonic() < due:
                due = soonest  # a commit may have named an earlier time

    return run


@contextmanager
def _stopped_by_signals(loops: _Loops) -> Iterator[None]:
    # `nohup` has SIGHUP ignored, so that a closed terminal ends nothing.
    ending = [one for one in _ENDING if one != signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: loops.ask()) for number in ending}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _warm_up(mill: Mill, launcher: Launcher) -> str:
    """Start drivers before runs need them, and return what to say of Spark.

    Raises `NoSpark`: without PySpark each run of such a program would fail, and its good files would be blamed.
    """
    config = mill.project.config
    programs = [program for program in mill.project.catalog.read(list_programs) if not program.retired]
    plain = [program for program in programs if program.kind is ProgramKind.PYTHON]
    spark = [program for program in programs if program.kind.needs_spark]
    if plain:
        with suppress(TidemillError, OSError):  # the first run says why
            launcher.keep(_code_of(mill, plain), spark=False)
    if not spark:
        return f"{config.spark_master} not needed"
    require_spark()
    if config.spark_warm == 0:
        return f"{config.spark_master} cold"
    try:
        launcher.keep(_code_of(mill, spark), spark=True)
    except (TidemillError, OSError) as error:
        return f"{config.spark_master} not available: {error}"
    return f"{config.spark_master} warming"


def _code_of(mill: Mill, programs: Sequence[Program]) -> AppCode:
    """The code of one of `programs`: of this project's app file, if one has it."""
    first = next((program for program in programs if program.app_file == str(mill.project.config.app)), programs[0])
    return find_code(mill.project.catalog, mill.project.config.state, first, first.bundle)


def _look_for(catalog: Catalog) -> timedelta:
    catalog.check_place()
    return _LOOK_OUT_EVERY


def _look_at(edits: Edits) -> timedelta:
    edits.step()
    return _LOOK_OUT_EVERY


def _until_next(db: Db) -> timedelta:
    times = (
        discovery.next_listing(db),
        inputs.find_next_due(db),
        watermark.next_release(db),
    )
    due = min((time for time in times if time is not None), default=None)
    if due is None:
        return _LONGEST_NAP
    return min(max(timedelta(milliseconds=due - db.now()), _SHORTEST_NAP), _LONGEST_NAP)


def _is_idle(db: Db, held_off: Sequence[str]) -> bool:
    now = from_ms(db.now())
    jobs = list_jobs(db)
    waiting = any(job.state is not JobState.PENDING_TRIGGER for job in jobs)
    unchecked = any(job.next_check_at is not None and job.next_check_at <= now for job in jobs)
    return not (waiting or unchecked or has_messages(db) or has_unfinished(db, held_off) or leaving.is_due(db))
