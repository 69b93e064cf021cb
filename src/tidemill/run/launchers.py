"""Driver processes, from the runner's side: started, given attempts, kept warm, ended with all that they started.

A driver is `python -m tidemill.run.driver`. It reads one line that says what it is for (`Start`), then one for each
attempt (`Assignment`), and appends to the file `status` in its folder what it has done. Cold drivers serve one attempt;
a warm one starts Spark before anybody asks (a cold start costs 8 s to the first job on 2 cores, a warm one 0.25 s) and
serves many, one after the other, until other code was deployed.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from tidemill.errors import TidemillError
from tidemill.names import RunId
from tidemill.processes import Child
from tidemill.run.bundles import AppCode
from tidemill.run.class_data import JAVA_OPTIONS, Archive, Training, find_archive, trainer_command
from tidemill.run.java import find_java, spark_environ
from tidemill.run.programs import Program
from tidemill.run.session import require_spark
from tidemill.world import World

_log = logging.getLogger(__name__)

READY: Final = "ready"
DONE: Final = "done"
_FINISH_WITHIN: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Start:
    """What a driver is for; it comes by its standard input, since a catalog's URL may hold a password."""

    catalog_url: str
    code: AppCode
    folder: str
    spark: bool
    warm: bool
    spark_settings: Mapping[str, str]

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Start:
        """The inverse of `to_line`."""
        fields = json.loads(line)
        return cls(**{**fields, "code": AppCode(**fields["code"])})


@dataclass(frozen=True, slots=True)
class Assignment:
    """One attempt for a driver to work on; `logs` is its folder for what is printed."""

    run_id: RunId
    epoch: int
    logs: str

    def to_line(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_line(cls, line: str) -> Assignment:
        """The inverse of `to_line`."""
        return cls(**json.loads(line))


@dataclass(frozen=True, slots=True)
class DriverOptions:
    """How drivers are started. `folder` is the state folder, below which each driver and attempt has its own.

    `spark_settings` are the site's, `spark.master` among them; `warm` drivers wait with Spark started. `class_data`
    lets their JVMs share classes, and has the archive made when there is none.
    """

    catalog_url: str
    folder: Path
    cache: Path
    spark_settings: Mapping[str, str] = field(default_factory=dict)
    warm: int = 1
    runs_per_driver: int = 200
    log_bytes: int = 64_000_000
    class_data: bool = False

    @property
    def logs(self) -> Path:
        """The folder of all logs."""
        return self.folder / "logs"


@dataclass(slots=True)
class Driver:
    """A driver process and what it is doing."""

    child: Child
    folder: Path
    code: AppCode
    spark: bool
    warm: bool
    assignment: Assignment | None = None
    served: int = 0
    released_at: timedelta | None = None
    """When the catalog said that its attempt is over, by our monotonic clock; it may still be tidying up."""
    committed: bool = False
    """Its attempt, which is over, has committed: it comes to an end, and may be given the next one already."""


class Launcher:
    """Starts drivers on this machine and keeps some with Spark warm."""

    def __init__(self, world: World, options: DriverOptions) -> None:
        self.world = world
        self.options = options
        self.drivers: list[Driver] = []
        self._warm_for: AppCode | None = None
        """The code for which missing warm drivers are started."""
        self._spark_env: Mapping[str, str] | None = None
        self._archive: Archive | None = None
        """The classes of the Spark that drivers are started with, if they may share them."""
        self._wanted: Archive | None = None
        """The same while it is still to be made; nobody waits for it."""
        self._trainer: Child | None = None

    def launch(self, run_id: RunId, epoch: int, program: Program, code: AppCode) -> Driver:
        """Give the attempt to a warm driver of its code, or to a new one. Raises `NoSpark`, `NoJava`, `OSError`."""
        logs = self.options.logs / run_id / str(epoch)
        self.world.disk.make_folder(logs)
        assignment = Assignment(run_id, epoch, str(logs))
        spark = program.kind.needs_spark
        # A worker never gives back what it got: it would take a warm driver from all others.
        shared = spark and not program.kind.is_worker
        if shared:
            for driver in self._free_for(code):
                driver.served += driver.released_at is not None
                driver.assignment, driver.released_at = assignment, None
                if driver.child.send_line(assignment.to_line()):
                    self._warm_for = code
                    return driver
                self.end(driver)
        # Where a warm one is missing (the last was killed) this one becomes it: two Sparks starting at once take twice
        # as long.
        warm = shared and self._missing > 0
        driver = self._start(code, spark=spark, warm=warm, logs=None if warm else logs)
        if shared:
            self._warm_for = code
        driver.assignment = assignment
        driver.child.send_line(assignment.to_line())  # if it has died already, its end is seen soon
        return driver

    def warm_up(self, code: AppCode) -> None:
        """Keep warm drivers for `code` from now on. Raises `NoSpark`, `NoJava`, `OSError`."""
        for _ in range(self._missing):
            self._start(code, spark=True, warm=True, logs=None)
        self._warm_for = code

    def tend(self) -> None:
        """Replace warm drivers that are dead, worn out or of other code, and end those that do not come to an end."""
        now = self.world.clock.monotonic()
        for driver in list(self.drivers):
            try:
                self._look_after(driver, now)
            except OSError as error:
                # A full disk, a file that an editor renames: nothing that may keep the runner from renewing leases.
                _log.warning("driver %s is left alone for now: %s", driver.folder.name, error)
        if self._wanted is not None and self.is_warm():
            self._train(self._wanted)
        if self._warm_for is not None:
            try:
                self.warm_up(self._warm_for)
            except (TidemillError, OSError) as error:
                # Until a run needs Spark, and shows by its start that there is one to be had.
                _log.warning("no warm driver is kept: %s", error)
                self._warm_for = None

    def release(self, driver: Driver, *, committed: bool) -> None:
        """The attempt of `driver` is over as the catalog has it; it is free when it says so itself.

        A warm one that has `committed` may be given the next attempt before: what is left is a matter of milliseconds,
        and a cold start beside it of seconds. Of any other it is not known whether it still works.
        """
        driver.committed = committed
        driver.released_at = self.world.clock.monotonic()

    def end(self, driver: Driver) -> None:
        """Kill a driver and all that it started, wait until it is gone, and remove its folder. Idempotent."""
        driver.child.kill()
        self.world.mark("launcher.killed")
        if driver in self.drivers:
            self.drivers.remove(driver)
        self.world.disk.remove(driver.folder)

    def close(self) -> None:
        """End all drivers, and the training run."""
        for driver in list(self.drivers):
            self.end(driver)
        if self._trainer is not None:
            self._trainer.kill()
            self.world.disk.remove(self.options.folder / "drivers" / self._trainer.tag)

    def is_warm(self) -> bool:
        """Whether a warm driver has started Spark and waits."""
        return any(
            driver.warm and driver.assignment is None and READY in self._status(driver) for driver in self.drivers
        )

    def _look_after(self, driver: Driver, now: timedelta) -> None:
        if driver.released_at is not None and self._has_served(driver):
            driver.assignment, driver.released_at = None, None
            driver.served += 1
        hangs = driver.released_at is not None and now - driver.released_at > _FINISH_WITHIN
        if hangs or (driver.assignment is None and not self._fit(driver)):
            self.end(driver)
        elif driver.assignment is not None:
            self._cap_logs(Path(driver.assignment.logs))

    @property
    def _missing(self) -> int:
        """How many warm drivers are wanted beside those there are."""
        return self.options.warm - sum(driver.warm for driver in self.drivers)

    def _free_for(self, code: AppCode) -> Iterator[Driver]:
        for driver in list(self.drivers):
            over = driver.released_at is not None and (driver.committed or self._has_served(driver))
            free = driver.assignment is None or over
            worn = driver.served + 1 >= self.options.runs_per_driver and driver.assignment is not None
            if driver.warm and free and not worn and driver.code == code:
                yield driver

    def _fit(self, driver: Driver) -> bool:
        """Whether a driver without an attempt may get another one."""
        if not driver.warm or driver.child.poll() is not None or driver.served >= self.options.runs_per_driver:
            return False
        return self._warm_for in {driver.code, None}

    def _has_served(self, driver: Driver) -> bool:
        assert driver.assignment is not None, "released with an attempt"  # noqa: S101
        done = f"{DONE} {driver.assignment.run_id} {driver.assignment.epoch}"
        return driver.child.poll() is not None or done in self._status(driver)

    def _status(self, driver: Driver) -> list[str]:
        path = driver.folder / "status"
        return self.world.disk.read_bytes(path).decode().splitlines() if self.world.disk.exists(path) else []

    def _start(self, code: AppCode, *, spark: bool, warm: bool, logs: Path | None) -> Driver:
        tag = self.world.new_id("driver")
        folder = self.options.folder / "drivers" / tag
        logs = logs or self.options.logs / "drivers" / tag
        self.world.disk.make_folder(folder)
        self.world.disk.make_folder(logs)
        app_folder = Path(code.app_file).parent
        environ = {**self.world.environ, **(self._find_spark_env() if spark else {})}
        # For Spark's Python workers, which import the app's modules by name.
        modules = code.folder or str(app_folder)
        environ["PYTHONPATH"] = ":".join(filter(None, [modules, environ.get("PYTHONPATH", "")]))
        environ["PYTHONUNBUFFERED"] = "1"
        child = self.world.spawner.start(
            [sys.executable, "-P", "-m", "tidemill.run.driver"],
            tag=tag,
            env=environ,
            cwd=app_folder if self.world.disk.exists(app_folder) else folder,
            stdout=logs / "stdout",
            stderr=logs / "stderr",
        )
        self.world.mark("launcher.spawned")
        start = Start(self.options.catalog_url, code, str(folder), spark, warm, self._settings())
        child.send_line(start.to_line())
        driver = Driver(child, folder, code, spark, warm)
        self.drivers.append(driver)
        return driver

    def _settings(self) -> dict[str, str]:
        settings = dict(self.options.spark_settings)
        if self._archive is not None and (shared := self._archive.options(self.world)):
            settings[JAVA_OPTIONS] = f"{settings.get(JAVA_OPTIONS, '')} {shared}".strip()
        return settings

    def _train(self, archive: Archive) -> None:
        """Have the archive made beside a warm driver that waits, once in the life of this process."""
        self._wanted = None
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
        self._trainer.send_line(Training(str(archive.path), str(folder), self.options.spark_settings).to_line())

    def _find_spark_env(self) -> Mapping[str, str]:
        """What Spark's processes need to know; looked up when the first of them is started."""
        if self._spark_env is None:
            require_spark()
            java = find_java(self.world, self.options.cache)
            if self.options.class_data:
                self._archive = find_archive(self.options.cache, java, self.options.spark_settings)
                self._wanted = self._archive if self._archive.is_wanted(self.world) else None
            self._spark_env = spark_environ(java)
        return self._spark_env

    def _cap_logs(self, logs: Path) -> None:
        for path in self.world.disk.list_folder(logs):
            if self.world.disk.size(path) > self.options.log_bytes:
                self.world.disk.cut(path, self.options.log_bytes // 2)
                self.world.disk.append(path, "\n[cut here: the log exceeded its limit]\n")
