"""The local launcher: driver processes of this machine, started, given attempts, kept warm, and ended as whole trees.

A driver is `python -m tidemill.run.processes.driver`. A warm driver is started before a run asks for it (a cold start
with Spark costs 8 s to the first job on 2 cores, a warm one 0.25 s; without Spark 0.6 s and 0.04 s). A warm driver
serves many attempts, one after the other, until other code was deployed. A cold driver serves one.

Drivers stand in pools: a pool of drivers without Spark, a pool with the settings `[spark]`, and a pool of each named
Spark profile. A run takes a driver of its own pool only.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import filterfalse
from pathlib import Path
from threading import Thread
from typing import Final, TypeAlias

from tidemill.config import ADDRESS_FILE
from tidemill.durations import format_duration
from tidemill.errors import TidemillError
from tidemill.json_specs import write_text
from tidemill.names import RunId
from tidemill.processes import Child
from tidemill.run.processes.assignments import (
    DONE,
    LAST,
    READY,
    SILENT,
    STATUS,
    STOPPED,
    WORKS,
    Assignment,
    DriverSetup,
    python_environ,
)
from tidemill.run.processes.class_data import JAVA_OPTIONS, ClassArchive, Training, find_archive, trainer_command
from tidemill.run.processes.cluster import end_submitted
from tidemill.run.processes.java import find_java, spark_environ
from tidemill.run.processes.launcher import DriverNotStarted, Ended, Life, Running, Uncertain
from tidemill.run.processes.session import require_spark
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.logs import await_log
from tidemill.run.records.programs import Program
from tidemill.world import World

_log = logging.getLogger(__name__)

_FINISH_WITHIN: Final = timedelta(seconds=10)
_START_WITHIN: Final = timedelta(minutes=5)
"""A start of Spark takes a minute on a busy machine (tried)."""
_START_BESIDE_AFTER: Final = timedelta(seconds=5)
"""The time for which all drivers with Spark are busy, while runs wait, before another driver is started."""
_CAP_EVERY: Final = timedelta(milliseconds=200)
"""The time between two looks at the lengths of logs."""
_SPREAD: Final = 16
"""Each driver beside others serves a sixteenth less runs than the one before, down to a half. Eight drivers that were
replaced together halved the rate of a machine with two cores for 300 runs (measured)."""
_SPARE_FOR: Final = timedelta(minutes=2)
"""The time for which a driver beyond the kept ones waits for another run."""

_HEARD: Final[Mapping[str, Life]] = {
    WORKS: Running(),
    STOPPED: Uncertain("is stopped on its worker"),
    SILENT: Uncertain("was not heard of for some seconds"),
}
"""The states of a driver on a cluster by the words of its near end."""

Pool: TypeAlias = str | None
"""A pool of drivers: the name of a Spark profile, empty for `[spark]`; None for drivers without Spark."""


@dataclass(frozen=True, slots=True)
class ProfileOptions:
    """The settings of Spark of a profile, and how many of its drivers are kept while no run needs them.

    `find_environ` finds the variables of its drivers when one is started; what it raises is the error of the start.
    Drivers `on_cluster` work on a worker of a standalone cluster, and near ends on this machine stand for them.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    warm: int = 1
    find_environ: Callable[[], Mapping[str, str]] = dict
    on_cluster: bool = False


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """The settings of drivers. `folder` is the state folder, below which each driver and attempt has its own.

    `profiles` are the Spark profiles; the empty name stands for `[spark]`. `plain` says how many drivers without Spark
    are kept while no run needs them; with 0 each run has a process of its own. `class_data` lets the JVMs share
    classes, and has the archive made when there is none. With `keeps_logs`, logs of attempts are noted for a
    `LogKeeper`. `node` is the `Catalog.node` of this process.
    """

    catalog_url: str
    folder: Path
    cache: Path
    profiles: Mapping[str, ProfileOptions] = field(default_factory=lambda: {"": ProfileOptions()})
    plain: int = 1
    runs_per_driver: int = 1000
    log_bytes: int = 64_000_000
    class_data: bool = False
    keeps_logs: bool = False
    node: str = ""

    @property
    def logs(self) -> Path:
        """The folder of all logs."""
        return self.folder / "logs"

    def kept(self, pool: Pool) -> int:
        """Return how many drivers of a pool wait for runs."""
        return self.plain if pool is None else self.profiles[pool].warm

    def settings_of(self, pool: Pool) -> Mapping[str, str]:
        """Return the settings of Spark of a pool."""
        return {} if pool is None else self.profiles[pool].settings

    def is_on_cluster(self, pool: Pool) -> bool:
        """Return whether the drivers of a pool work on a cluster."""
        return pool is not None and self.profiles[pool].on_cluster


@dataclass(slots=True)
class Driver:
    """A driver process and what it is doing."""

    child: Child
    folder: Path
    logs: Path
    code: AppCode
    pool: Pool
    warm: bool
    since: timedelta
    """Time at which the driver was started, and later became free, by our monotonic clock."""
    most_runs: int = 1
    """The number of runs after which another driver replaces this one."""
    ready: bool = False
    assignment: Assignment | None = None
    served: int = 0
    released_at: timedelta | None = None
    """The time at which the catalog showed the attempt as ended (monotonic). The driver may still tidy up."""
    committed: bool = False
    """True if the attempt has ended with a commit: the driver comes to its end, and may get the next attempt already.
    """

    @property
    def spark(self) -> bool:
        """True for a driver with Spark."""
        return self.pool is not None


class LocalLauncher:
    """Starts drivers on this machine and keeps some of them for the next runs."""

    def __init__(self, world: World, options: DriverOptions) -> None:
        self.world = world
        self.options = options
        self.drivers: list[Driver] = []
        self._kept_for: dict[Pool, AppCode] = {}
        """The code for which missing drivers of a pool are started."""
        self._short_since: dict[Pool, timedelta] = {}
        """Since when runs wait for a driver of a pool with Spark, and none is free for a moment."""
        self._failed: dict[Pool, DriverNotStarted] = {}
        """Reason for which the last start of a driver with Spark failed, for the run of its pool that waits."""
        self._spark_env: Mapping[str, str] | None = None
        self._archives: dict[Pool, ClassArchive] = {}
        """The classes of the Spark that drivers of a pool are started with, if they may share them."""
        self._wanted: dict[Pool, ClassArchive] = {}
        """The archives that are still to be made; no run waits for them."""
        self._trainer: Child | None = None
        self._capped_at: timedelta | None = None
        """The time of the last look at the lengths of logs."""
        self._endings: list[tuple[Assignment | None, Thread]] = []
        """Drivers on a cluster whose end is awaited: the attempt of each, and the thread that awaits the end."""

    @property
    def folder(self) -> Path:
        """The state folder of this machine."""
        return self.options.folder

    @property
    def profiles(self) -> Collection[str]:
        """The Spark profiles with which drivers can be started, by name; the empty name stands for `[spark]`."""
        return self.options.profiles.keys()

    def start(self, run_id: RunId, epoch: int, program: Program, code: AppCode) -> str | None:
        """Give the attempt to a driver, and return None; or return why the attempt waits for a driver with Spark.

        The driver of its pool that is free first takes the attempt: a warm one that has ended its run, or one that was
        started meanwhile. A driver without Spark starts in half a second and is never waited for. Raises `NoSpark`,
        `NoJava`, `OSError`, and `DriverNotStarted` when the start that the attempt waited for has failed.
        """
        if self._find(run_id, epoch) is not None:
            return None
        logs = self.options.logs / run_id / str(epoch)
        self.world.disk.make_folder(logs)
        if self.options.keeps_logs:
            await_log(self.world.disk, self.options.logs, run_id, epoch)
        assignment = Assignment(run_id, epoch, str(logs), self._find_server())
        pool = program.spark_profile if program.kind.needs_spark else None
        # A worker never returns what it got: it would take a driver from all others.
        if program.kind.is_worker or (pool is None and not self.options.plain):
            driver = self._spawn(code, pool, warm=False, logs=logs)
            self._assign(driver, assignment)
            return None
        for driver in self._free_for(code, pool):
            driver.served += driver.released_at is not None
            if self._assign(driver, assignment):
                self._kept_for[pool] = code
                return None
            self._end(driver)
        if pool in self._failed:
            raise self._failed.pop(pool)
        self._kept_for[pool] = code
        if pool is None:
            driver = self._spawn(code, pool, warm=True, logs=None)
            self._assign(driver, assignment)
            return None
        self._start_beside(code, pool)
        starting = self._find_starting(pool)
        busy = f"all drivers of the Spark profile {pool} are busy" if pool else "all drivers with Spark are busy"
        return f"Spark is starting; its log is in {starting.logs}" if starting else busy

    def poll(self, run_id: RunId, epoch: int) -> Life:
        """Return the state of the attempt's driver."""
        driver = self._find(run_id, epoch)
        if driver is None:
            return Ended("and was replaced")
        exit_code = driver.child.poll()
        if exit_code is not None:
            return Ended(f"by signal {-exit_code}" if exit_code < 0 else f"with exit code {exit_code}")
        if driver.child.stopped():
            return Uncertain("is stopped")
        return self._hear_of(driver) if self.options.is_on_cluster(driver.pool) else Running()

    def kill(self, run_id: RunId, epoch: int) -> bool:
        """Kill the attempt's driver and all that it started, and wait for the end of what is on this machine.

        Return False while a driver on a cluster still ends.
        """
        if (driver := self._find(run_id, epoch)) is not None:
            self._end(driver)
        ending = [attempt for attempt, end in self._endings if attempt is not None and end.is_alive()]
        return (run_id, epoch) not in [(attempt.run_id, attempt.epoch) for attempt in ending]

    def release(self, run_id: RunId, epoch: int, *, committed: bool) -> None:
        """Note that the attempt is over in the catalog; its driver is free when the driver says so itself.

        A warm driver that has `committed` may be given the next attempt before: what is left is a matter of
        milliseconds, and a cold start beside it of seconds. Any other driver may still work on the attempt.
        """
        if (driver := self._find(run_id, epoch)) is not None:
            driver.committed = committed
            driver.released_at = self.world.clock.monotonic()

    def keep(self, code: AppCode, pool: Pool) -> None:
        """Keep drivers of a pool for `code` from now on. Raises `NoSpark`, `NoJava`, `OSError`."""
        for _ in range(self.options.kept(pool) - len(self._kept(pool))):
            self._spawn(code, pool, warm=True, logs=None)
        self._kept_for[pool] = code

    def tend(self) -> None:
        """Replace drivers that are dead, worn out or of other code, and end those that do not come to an end."""
        now = self.world.clock.monotonic()
        caps = self._capped_at is None or now - self._capped_at >= _CAP_EVERY
        if caps:
            self._capped_at = now
        for driver in list(self.drivers):
            try:
                self._look_after(driver, now)
                if caps and driver.assignment is not None:
                    self._cap_logs(Path(driver.assignment.logs))
            except OSError as error:
                # A full disk, a file that an editor renames: nothing that may keep the runner from renewing leases.
                _log.warning("driver %s is left alone for now: %s", driver.folder.name, error)
        for pool in filter(self.is_warm, self.profiles):
            self._short_since.pop(pool, None)
            if pool in self._wanted and (self._trainer is None or self._trainer.poll() is not None):
                self._train(pool)
        for kept, code in list(self._kept_for.items()):
            try:
                self.keep(code, kept)
            except (TidemillError, OSError) as error:
                # Until a run needs one, and shows by its start that there is one to be had.
                _log.warning("no warm driver is kept: %s", error)
                del self._kept_for[kept]

    def close(self) -> None:
        """End all drivers, and the training run."""
        for driver in list(self.drivers):
            self._end(driver)
        self._end_trainer()
        for _, end in self._endings:
            end.join()

    def is_warm(self, profile: str = "") -> bool:
        """Return whether a driver has started Spark and waits: one of `[spark]`, or of a named profile."""
        return any(one.pool == profile and one.assignment is None and self._is_ready(one) for one in self.drivers)

    def _hear_of(self, driver: Driver) -> Life:
        """Return the state of a driver on the cluster by the last word of its near end."""
        words = [word for word in self._status(driver) if word in _HEARD]
        return _HEARD[words[-1]] if words else Running()

    def _find_starting(self, pool: Pool) -> Driver | None:
        """Find the driver of a pool that starts Spark for runs that wait."""
        idle = (one for one in self.drivers if one.pool == pool and one.assignment is None)
        return next((one for one in idle if not self._is_ready(one)), None)

    def _find(self, run_id: RunId, epoch: int) -> Driver | None:
        """Find the driver that has the attempt."""
        for driver in self.drivers:
            if (one := driver.assignment) is not None and (one.run_id, one.epoch) == (run_id, epoch):
                return driver
        return None

    def _end(self, driver: Driver) -> None:
        """Kill a driver and all that it started, wait for their end on this machine, and delete its folder."""
        driver.child.kill()
        if self.options.is_on_cluster(driver.pool):
            end = end_submitted(self.world, driver.folder, self.options.settings_of(driver.pool))
            others = [one for one in self._endings if one[1].is_alive()]
            self._endings = others if end is None else [*others, (driver.assignment, end)]
        self.world.mark("launcher.killed")
        self.drivers.remove(driver)
        self.world.disk.remove(driver.folder)

    def _assign(self, driver: Driver, assignment: Assignment) -> bool:
        """Send the attempt to the driver; False when the driver no longer reads."""
        driver.assignment, driver.released_at, driver.committed = assignment, None, False
        return driver.child.send_line(write_text(assignment))

    def _start_beside(self, code: AppCode, pool: Pool) -> None:
        """Start a driver with Spark for runs that wait, one at a time: two starts at once take twice as long.

        While drivers of the same code work, first wait for them: a start costs more than most runs. Pools do not wait
        for each other: the master of one profile may be away, and its starts then take minutes.
        """
        now = self.world.clock.monotonic()
        since = self._short_since.setdefault(pool, now)
        busy = any((one.pool, one.code) == (pool, code) for one in self.drivers)
        if self._find_starting(pool) is None and (not busy or now - since > _START_BESIDE_AFTER):
            self._make_room(pool)
            self._spawn(code, pool, warm=self.options.kept(pool) > 0, logs=None)
            self._short_since[pool] = now

    def _make_room(self, pool: Pool) -> None:
        """End a driver of a pool that waits for runs of other code, if as many are there as are to be kept."""
        kept = self._kept(pool)
        idle = [driver for driver in kept if driver.assignment is None]
        if idle and len(kept) >= self.options.kept(pool):
            self._end(min(idle, key=lambda driver: driver.since))

    def _look_after(self, driver: Driver, now: timedelta) -> None:
        if driver.released_at is not None and self._has_served(driver):
            driver.assignment, driver.released_at, driver.since = None, None, now
            driver.served += 1
        hangs = driver.released_at is not None and now - driver.released_at > _FINISH_WITHIN
        if driver.assignment is None and driver.spark and not self._is_ready(driver):
            self._look_after_start(driver, now)
        elif hangs or (driver.assignment is None and not self._fit(driver, now)):
            self._end(driver)

    def _look_after_start(self, driver: Driver, now: timedelta) -> None:
        """End a start of Spark that has failed or takes too long, and tell the run that waits for it."""
        exit_code = driver.child.poll()
        late = now - driver.since > _START_WITHIN
        if exit_code is not None or late:
            why = f"did not start within {format_duration(_START_WITHIN)}" if exit_code is None else "ended"
            failed = DriverNotStarted(why, driver.logs)
            _log.warning("%s", failed)
            # The run that waits raises it; without one no driver is started again before a run needs it.
            if driver.pool in self._short_since:
                self._failed[driver.pool] = failed
            self._kept_for.pop(driver.pool, None)
            self._end(driver)

    def _kept(self, pool: Pool) -> list[Driver]:
        return [driver for driver in self.drivers if driver.warm and driver.pool == pool]

    def _free_for(self, code: AppCode, pool: Pool) -> Iterator[Driver]:
        for driver in list(self.drivers):
            over = driver.released_at is not None and (driver.committed or self._has_served(driver))
            free = driver.assignment is None or over
            worn = driver.served + (driver.assignment is not None) >= driver.most_runs
            ours = (driver.code, driver.pool) == (code, pool)
            # A driver without Spark reads its first line after half a second.
            ready = pool is None or self._is_ready(driver)
            if ours and free and not worn and ready and LAST not in self._status(driver):
                yield driver

    def _fit(self, driver: Driver, now: timedelta) -> bool:
        """Return whether a driver without an attempt may get another one."""
        if driver.child.poll() is not None or driver.served >= driver.most_runs or LAST in self._status(driver):
            return False
        spare = len(self._kept(driver.pool)) > self.options.kept(driver.pool)
        return not (spare and now - driver.since > _SPARE_FOR)

    def _find_most_runs(self, pool: Pool) -> int:
        """Return the number of runs for a new driver: drivers that start together must not be replaced together."""
        most = self.options.runs_per_driver
        return max(most - len(self._kept(pool)) * most // _SPREAD, most // 2)

    def _is_ready(self, driver: Driver) -> bool:
        driver.ready = driver.ready or READY in self._status(driver)
        return driver.ready

    def _has_served(self, driver: Driver) -> bool:
        assert driver.assignment is not None, "released with an attempt"  # noqa: S101
        done = f"{DONE} {driver.assignment.run_id} {driver.assignment.epoch}"
        return driver.child.poll() is not None or done in self._status(driver)

    def _status(self, driver: Driver) -> list[str]:
        path = driver.folder / STATUS
        return self.world.disk.read_bytes(path).decode().splitlines() if self.world.disk.exists(path) else []

    def _spawn(self, code: AppCode, pool: Pool, *, warm: bool, logs: Path | None) -> Driver:
        tag = self.world.new_id("driver")
        folder = self.options.folder / "drivers" / tag
        logs = logs or self.options.logs / "drivers" / tag
        self.world.disk.make_folder(folder)
        self.world.disk.make_folder(logs)
        app_folder = Path(code.app_file).parent
        environ = {**self.world.environ}
        if pool is not None:
            environ |= self._find_spark_env()
            environ |= self.options.profiles[pool].find_environ()
        environ |= python_environ(environ, code.folder or str(app_folder))
        process = "near_end" if self.options.is_on_cluster(pool) else "driver"
        child = self.world.spawner.start(
            [sys.executable, "-P", "-m", f"tidemill.run.processes.{process}"],
            tag=tag,
            env=environ,
            cwd=app_folder if self.world.disk.exists(app_folder) else folder,
            stdout=logs / "stdout",
            stderr=logs / "stderr",
        )
        self.world.mark("launcher.spawned")
        url, settings = self.options.catalog_url, self._settings(pool)
        setup = DriverSetup(
            url,
            code,
            str(folder),
            str(logs),
            pool is not None,
            warm,
            settings,
            self.world.stores,
            pool or "",
            self.options.node,
        )
        child.send_line(write_text(setup))
        most_runs = self._find_most_runs(pool) if warm else 1
        driver = Driver(child, folder, logs, code, pool, warm, self.world.clock.monotonic(), most_runs)
        self.drivers.append(driver)
        return driver

    def _find_server(self) -> str:
        """Return the address of the server that was started last on this machine; empty without one."""
        path = self.options.folder / ADDRESS_FILE
        return self.world.disk.read_bytes(path).decode().strip() if self.world.disk.exists(path) else ""

    def _settings(self, pool: Pool) -> dict[str, str]:
        settings = dict(self.options.settings_of(pool))
        archive = self._archives.get(pool)
        if archive is not None and (shared := archive.options(self.world)):
            settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {shared}".strip()
        return settings

    def _train(self, pool: Pool) -> None:
        """Have the archive of a pool made beside a warm driver that waits, once in the life of this process."""
        archive = self._wanted.pop(pool)
        if not archive.is_wanted(self.world):
            return  # another pool has the same class path
        self._end_trainer()
        tag = self.world.new_id("trainer")
        folder = self.options.folder / "drivers" / tag
        logs = self.options.logs / "drivers" / tag
        self.world.disk.make_folder(folder)
        self.world.disk.make_folder(logs)
        self._trainer = self.world.spawner.start(
            trainer_command(),
            tag=tag,
            env={**self.world.environ, **self._find_spark_env()},
            cwd=folder,
            stdout=logs / "stdout",
            stderr=logs / "stderr",
        )
        self._trainer.send_line(write_text(Training(str(archive.path), str(folder), self.options.settings_of(pool))))

    def _end_trainer(self) -> None:
        if self._trainer is not None:
            self._trainer.kill()
            self.world.disk.remove(self.options.folder / "drivers" / self._trainer.tag)

    def _find_spark_env(self) -> Mapping[str, str]:
        """Return the environment of Spark's processes; looked up when the first of them is started."""
        if self._spark_env is None:
            require_spark()
            java = find_java(self.world, self.options.cache)
            if self.options.class_data:
                for pool in filterfalse(self.options.is_on_cluster, self.profiles):
                    archive = find_archive(self.options.cache, java, self.options.settings_of(pool))
                    self._archives[pool] = archive
                    if archive.is_wanted(self.world):
                        self._wanted[pool] = archive
            self._spark_env = spark_environ(java)
        return self._spark_env

    def _cap_logs(self, logs: Path) -> None:
        for path in self.world.disk.list_folder(logs):
            if self.world.disk.size(path) > self.options.log_bytes:
                self.world.disk.cut(path, self.options.log_bytes // 2)
                self.world.disk.append(path, "\n[cut here: the log exceeded its limit]\n")
