"""A project in a test: files land, time passes, runs run, and a test looks at what they published."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from tidemill.catalog.db import Db
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Snapshot
from tidemill.config import load_config
from tidemill.durations import parse_duration
from tidemill.epoch import floor_ms, to_micros
from tidemill.errors import UserError
from tidemill.lake import datasets
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import Fileset, find_schema, read_partitions
from tidemill.lake.inbox.inbox import Inbox, list_files
from tidemill.mill.mill import Mill
from tidemill.mill.page import iterate
from tidemill.mill.project import Project, program_names
from tidemill.names import RunId, WritePointer
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.janitor import LEAVE_SOON, Janitor
from tidemill.roles.keeper import DUE_THINGS, Keeper
from tidemill.roles.loops import loop
from tidemill.roles.up import is_idle
from tidemill.run.processes.assignments import DriverSetup
from tidemill.run.processes.driver import DriverProcess
from tidemill.run.processes.external import open_transaction
from tidemill.run.processes.local_launcher import DriverOptions, LocalLauncher, ProfileOptions
from tidemill.run.processes.runner import Runner
from tidemill.run.records.runs import list_runs
from tidemill.run.records.workers import next_start
from tidemill.run.step.attempts import next_due
from tidemill.schedule.checker import NEXT_CHECK
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.timekeeper import NEXT_TIMER
from tidemill.storage.locations import local_folder, open_files
from tidemill.testing.chaos import Killer, StoryOutcome, draw_deaths
from tidemill.testing.clock import VirtualClock
from tidemill.testing.machine import InTurn, Machine, Process
from tidemill.testing.plain import read_rows, write_plain
from tidemill.testing.session import SharedSpark
from tidemill.world import World

LONGEST: Final = timedelta(days=2)
"""The virtual time within which a project has to come to rest."""
_STRIDE: Final = timedelta(minutes=10)
_MOST: Final = 100_000
_EVERYTHING: Final = WritePointer(2**60)


class NotAtRest(UserError):
    """A project that works on and on, where a test waits until it is idle."""

    code = "not_at_rest"

    def __init__(self, working: Sequence[str]) -> None:
        self.working = tuple(working)
        super().__init__(
            f"the project was still at work after {LONGEST}: {', '.join(working) or 'a schedule fires all the time'}",
            "use advance() for a project that is never idle",
        )


class OutsideOfTest(UserError):
    """An inbox or data set whose location or archive is absolute, so that a test would touch what others use."""

    code = "outside_of_test"

    def __init__(self, dataset: str, location: str) -> None:
        self.dataset = dataset
        self.location = location
        super().__init__(
            f"{dataset} has the location {location}, outside of the test's folder",
            "give it a location relative to the project",
            before=": ",
        )


class NoSuchArrival(UserError):
    """A name that no file of an inbox has, or can have."""

    code = "no_such_arrival"
    hint = "name a file below the folder of an inbox of the project"

    def __init__(self, name: str, why: str) -> None:
        self.name = name
        self.why = why
        super().__init__(f"no file can arrive as {name!r}: {why}")


@dataclass(frozen=True, slots=True)
class EndedRun:
    """A run that ended: its program, its state, and why it ended so."""

    program: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True)
class Published:
    """The content of a file set or snapshot at the moment of the call."""

    name: str
    _rows: Callable[[], list[dict[str, object]]]
    partitions: tuple[Mapping[str, object], ...]
    """The keys of its partitions, in their order."""

    def rows(self) -> list[dict[str, object]]:
        """Return its rows with the fields of the key, in order of partition. Reads the files."""
        return self._rows()


class _Machine(Machine):
    """The machine of a project, which stops when the project is at rest, or at a time."""

    mill: VirtualMill
    until: timedelta
    stops_at_rest: bool

    def make_driver(self, process: Process, start: DriverSetup, tag: str) -> DriverProcess:
        driver = super().make_driver(process, start, tag)
        if start.spark:
            driver.spark = SharedSpark(self.mill.spark())  # type: ignore[assignment]  # it does what a SparkHome does
        return driver

    def ended(self, process: Process) -> None:
        if process.error is not None and process.child is None:
            raise process.error

    def idle(self) -> bool:
        if self.clock.elapsed >= self.until or (self.stops_at_rest and self.mill.is_idle()):
            return True
        wait = self.mill._find_wait(self.until - self.clock.elapsed)
        if wait is not None:
            self.clock.pass_by(wait)
            # Roles nap for seconds, and then look at the time again.
            for process in self.processes:
                process.wakes_at = self.clock.elapsed
        elif min(map(self._due, self.processes)) > self.until:
            self.clock.pass_by(self.until - self.clock.elapsed)
            return True
        return False


class VirtualMill:
    """A project with a catalog in memory, a virtual clock and a folder of its own.

    `tidemill up` runs in this process while `run_until_idle` and `advance` work: its real roles and drivers, one step
    after the other. `spark` starts the session of all tests when a program needs Spark.
    """

    def __init__(
        self,
        project: Path,
        folder: Path,
        *,
        spark: Callable[[], Any] = lambda: None,
        chooser: InTurn | None = None,
    ) -> None:
        self._folder_of_app = project
        self.folder = folder
        self.clock = VirtualClock()
        self.spark = spark
        folder.mkdir(parents=True, exist_ok=True)
        # No settings of the developer's own project, which lies in the environment.
        environ = {name: value for name, value in os.environ.items() if not name.startswith("TIDEMILL_")}
        world = World(clock=self.clock, random=random.Random(0), environ=environ)
        state = folder / ".tidemill"
        self._config = replace(
            load_config(world, project),
            folder=folder,
            catalog=f"sqlite:///{folder.as_posix().strip('/').replace('/', '-')}?vfs=memdb",
            data=str(state / "data"),
            state=state,
        )
        catalog = open_catalog(self._config.catalog, world)
        self._project = Project(catalog, world, self._config)
        self.operations = Mill(self._project)
        """Every operation of the project, as `tm.open` gives it."""
        self._machine = _Machine(catalog, self.clock, chooser or InTurn(), world.random, write_plain)
        self._machine.mill = self
        self._discoverer: Discoverer | None = None
        self._runner: Runner | None = None
        self._ended: set[str] = set()
        self._lives = 0
        self._arrivals = 0
        self._playings = 0
        try:
            self.operations.deploy()
            self._check_locations()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all processes, and forget the catalog."""
        self._machine.stop()
        self.operations.close()

    # What happens outside

    @property
    def now(self) -> datetime:
        """The time of the project."""
        return self.clock.now()

    def land(self, name: str, text: str | bytes, *, late: str = "0s", torn: bool = False) -> Path:
        """Let a file arrive in an inbox: `orders/1.csv` is the file `1.csv` of the inbox `orders`.

        A name that has landed before is written again. The file is as old as `late` says. Of a `torn` file only the
        first half is there: land it again, whole.
        """
        content = text.encode() if isinstance(text, str) else text
        path = self._path_of_file(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        # No listing sees a part of it, and no two versions have one time.
        self._arrivals += 1
        arriving = self.folder / f".arriving-{self._arrivals}"
        arriving.write_bytes(content[: len(content) // 2] if torn else content)
        at = to_micros(floor_ms(self.now - parse_duration(late))) * 1000
        os.utime(arriving, ns=(at + self._arrivals, at + self._arrivals))
        shutil.move(arriving, path)
        return path

    def land_again(self, name: str, new_name: str) -> Path:
        """Let the content of a file arrive a second time under another name, as a sender does that retries."""
        path = self._path_of_file(name)
        if not path.is_file():
            there = ", ".join(sorted(one.name for one in path.parent.glob("*"))) or "no file"
            raise NoSuchArrival(name, f"the folder of the file holds {there}; land the file first")
        return self.land(new_name, path.read_bytes())

    def land_all(self, files: Mapping[str, str | bytes], *, seed: int = 0, within: str = "0s") -> None:
        """Let files arrive in an order that `seed` gives, spread over a duration; runs run in between."""
        order, whole = sorted(files), parse_duration(within)
        random.Random(seed).shuffle(order)
        for name in order:
            self.land(name, files[name])
            if whole:
                self._work(whole / len(order), until_rest=False)

    def publish(self, name: str, rows: Any, *, overwrite: bool = False) -> None:
        """Publish rows to a file set or snapshot in one transaction, as a notebook does.

        `rows` are dictionaries or a data frame of Spark.
        """
        catalog, dataset = self._project.catalog, self._dataset(name)
        with open_transaction(catalog, self._project.world, [dataset.qualified_name], writer=write_plain) as tx:
            output = tx.fileset(dataset.qualified_name)
            if dataset.kind is DatasetKind.SNAPSHOT:
                output.replace(rows)
            elif overwrite:
                output.overwrite(rows)
            else:
                output.append(rows)

    # Time

    def run_until_idle(self) -> list[EndedRun]:
        """Run the project until nothing runs, waits or is due, and return the runs that ended, oldest first.

        Retries are waited for: time passes. `NotAtRest` after two days.
        """
        if not self._work(LONGEST, until_rest=True):
            raise NotAtRest([f"{run.program} is {run.state}" for _, run, over in self._runs() if not over])
        return self._take_ended()

    def advance(self, duration: str) -> list[EndedRun]:
        """Let time pass while the project runs, and return the runs that ended, oldest first."""
        self._work(parse_duration(duration), until_rest=False)
        return self._take_ended()

    # What must not happen

    def chaos(
        self, story: Callable[[VirtualMill], object], *, seed: int = 0, most: int = 50, ignore: Collection[str] = ()
    ) -> int:
        """Play a story undisturbed, then once for each step of its programs with a kill there; return how often.

        Each playing has a catalog and a folder of its own. At the end each file that landed is processed or
        quarantined, and file sets and snapshots hold the same rows as after the undisturbed playing. `AssertionError`
        names the step and the differing rows. `ignore` names columns that may differ, such as a load time. `seed`
        draws the order, and a second kill in a third of the playings; `most` bounds the number of playings.
        """
        undisturbed = Killer()
        wanted = self._play(story, undisturbed, ignore)
        if waiting := wanted.waiting():
            raise AssertionError(f"without any kill, {'; '.join(waiting)}")
        deaths = draw_deaths(undisturbed.steps, seed, most)
        for killer in deaths:
            found = self._play(story, killer, ignore)
            if differences := list(found.differences(wanted)):
                killed = " and ".join(map(str, killer.killed))
                raise AssertionError(f"killed at {killed}: {'; '.join(differences[:20])}")
        return len(deaths)

    def _play(self, story: Callable[[VirtualMill], object], killer: Killer, ignore: Collection[str]) -> StoryOutcome:
        self._playings += 1
        folder = self.folder / f".chaos-{self._playings}"
        mill = VirtualMill(self._folder_of_app, folder, spark=self.spark, chooser=killer)
        try:
            story(mill)
            mill.run_until_idle()
            return mill._outcome(ignore)
        finally:
            mill.close()
            shutil.rmtree(folder)

    def _outcome(self, ignore: Collection[str]) -> StoryOutcome:
        files: Counter[str] = Counter()
        rows: Counter[str] = Counter()
        for name in self.inboxes:
            files.update(f"file {name}/{file} is {state}" for file, state in self.files(name).items())
        for name in self.outputs:
            for row in self.published(name).rows():
                shown = ", ".join(f"{column}={row[column]!r}" for column in sorted(row) if column not in ignore)
                rows[f"row of {name}: {shown}"] += 1
        return StoryOutcome(files, rows)

    # What there is to see

    def published(self, name: str) -> Published:
        """Return what a file set or snapshot holds now."""
        catalog, dataset = self._project.catalog, self._dataset(name)
        fileset = Fileset.of(dataset)
        everything = Snapshot(_EVERYTHING, catalog.incarnation)
        partitions = catalog.read(lambda db: read_partitions(db, dataset.dataset_id, everything))
        columns = catalog.read(lambda db: find_schema(db, dataset.dataset_id))
        keys = fileset.keys
        shown = [dict(zip(keys.names, keys.decode(one.partition_key), strict=True)) for one in partitions]
        return Published(name, lambda: read_rows(self._project.world, fileset, partitions, columns), tuple(shown))

    def files(self, inbox: str) -> dict[str, str]:
        """Return the state of the newest content of each file of an inbox, by name, such as `SUCCESS`."""
        inbox_id = Inbox.of(self._dataset(inbox)).dataset.dataset_id
        found = self._project.catalog.read(lambda db: list_files(db, inbox_id, after="", limit=_MOST))
        # The newest content of a name comes last.
        return {file.name: str(file.status) for file in sorted(found, key=lambda file: file.first_seen)}

    def why(self, schedule: str) -> str:
        """Say why a schedule has not started a run: what its open job waits for, or that nothing has triggered it."""
        name = self.operations.schedules.show(schedule).name
        jobs = [job for job in iterate(self.operations.jobs.list) if job.schedule == name]
        return "; ".join(job.why for job in jobs) or f"nothing has triggered {schedule} since its last run"

    @property
    def inboxes(self) -> list[str]:
        """The names of the project's inboxes."""
        return [name for name, kind in self._kinds().items() if kind is DatasetKind.INBOX]

    @property
    def outputs(self) -> list[str]:
        """The names of the project's file sets and snapshots."""
        return [name for name, kind in self._kinds().items() if kind is not DatasetKind.INBOX]

    def path_of(self, inbox: str) -> Path:
        """Return the folder of an inbox."""
        path = local_folder(open_files(Inbox.of(self._dataset(inbox)).dataset.location, self._project.world))
        assert path is not None, "a test's folder is local"
        return path

    def _path_of_file(self, name: str) -> Path:
        """Return the path of `orders/1.csv`, the file `1.csv` of the inbox `orders`. `NoSuchArrival`."""
        inbox, _, file = name.partition("/")
        if not file or file.endswith("/") or not {"", ".", ".."}.isdisjoint(file.split("/")):
            raise NoSuchArrival(name, "name the inbox and a file below its folder, as in 'orders/1.csv'")
        return self.path_of(inbox) / file

    def is_idle(self) -> bool:
        """Tell whether nothing runs, waits or is due."""
        if self._discoverer is None or self._runner is None or not self._discoverer.looked or self._runner.busy:
            return False
        avoided = self._runner.avoided()
        return self._project.catalog.read(lambda db: is_idle(db, avoided))

    # How it works

    def _dataset(self, name: str) -> Dataset:
        return self._project.catalog.read(lambda db: self._project.dataset(db, name))

    def _kinds(self) -> dict[str, DatasetKind]:
        return {one.name: one.kind for one in self._project.catalog.read(datasets.list_datasets)}

    def _check_locations(self) -> None:
        for dataset in self._project.catalog.read(datasets.list_datasets):
            for location in filter(None, (dataset.location, dataset.archive)):
                path = local_folder(open_files(location, self._project.world))
                if path is None or not path.is_relative_to(self.folder):
                    raise OutsideOfTest(dataset.qualified_name, location)

    def _runs(self) -> list[tuple[RunId, EndedRun, bool]]:
        """All runs of programs, oldest first; and whether each has ended."""
        catalog = self._project.catalog
        runs = catalog.read(lambda db: list_runs(db, most=_MOST))
        names = catalog.read(lambda db: program_names(db, (run.program_id for run in runs)))
        return [
            (
                run.run_id,
                EndedRun(names[run.program_id].rpartition(".")[2], str(run.state), run.exit_reason or ""),
                run.ended_at is not None,
            )
            # The catalog's clock orders the runs of one virtual moment.
            for run in sorted(runs, key=lambda run: (run.created_at, run.write_pointer or 0))
            if run.program_id is not None
        ]

    def _take_ended(self) -> list[EndedRun]:
        ended = {run_id: run for run_id, run, over in self._runs() if over and run_id not in self._ended}
        self._ended |= ended.keys()
        return list(ended.values())

    def _find_wait(self, most: timedelta) -> timedelta | None:
        """Return how long nothing can happen, at most `most`; None while a driver works or a file settles."""
        if self._discoverer is None or not self._discoverer.looked:
            return None
        if any(child.poll() is None for child in self._machine.children):
            return None
        due = self._project.catalog.read(_next_due)
        wait = max(_STRIDE, most / 100)
        return min(most, wait if due is None else min(wait, max(due - self.now, timedelta(milliseconds=1))))

    def _work(self, duration: timedelta, *, until_rest: bool) -> bool:
        """Run `tidemill up` for a duration, or only until the project is at rest; return whether it is."""
        self._machine.until, self._machine.stops_at_rest = self.clock.elapsed + duration, until_rest
        with self._running():
            while self._machine.step():
                pass
            return self.is_idle()

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        """Run `tidemill up` for a block, in the project's folder."""
        self._lives += 1
        group = self._machine.group(f"up {self._lives}", "here")
        self._discoverer = self._runner = None
        for name, role in (
            ("scheduler", self._schedule),
            ("runner", self._run),
            ("keeper", self._keep),
            ("janitor", self._sweep),
            ("janitor of inboxes", self._empty_inboxes),
        ):
            self._machine.start(name, role, group)
        complaints = len(self._machine.complaints)
        try:
            with contextlib.chdir(self.folder):
                yield
        finally:
            self._machine.kill(group)
            for text in self._machine.complaints[complaints:]:
                _echo(text)

    def _schedule(self, process: Process) -> None:
        narrator = Narrator(process.world, _echo, as_json=False)
        cap = self._config.most_launches
        scheduler = Scheduler(process.catalog, process.world, narrator.launched, most_launches=cap)
        scheduler.run(process.catalog.waiter(Scheduler.AWAITED), _never)

    def _run(self, process: Process) -> None:
        config = self._config
        profiles = {name: ProfileOptions(warm=0) for name in ("", *config.spark_profiles)}
        options = DriverOptions(config.catalog, config.state, config.cache, profiles, plain=0)
        launcher = LocalLauncher(process.world, options)
        launcher._spark_env = {}  # no JVM is started
        narrator = Narrator(process.world, _echo, as_json=False)
        self._runner = Runner(
            process.world, process.catalog, launcher, slots=config.slots, lease=config.lease, on_event=narrator.ran
        )
        self._runner.run(process.catalog.waiter(Runner.AWAITED), _never)

    def _keep(self, process: Process) -> None:
        narrator = Narrator(process.world, _echo, as_json=False)
        self._discoverer = Discoverer(process.catalog, narrator)
        keeper = Keeper(process.catalog, self._discoverer)
        loop(process.world, keeper.step)(process.catalog.waiter(Keeper.AWAITED), _never)

    def _sweep(self, process: Process) -> None:
        janitor = Janitor.of(process.catalog, self._config)
        loop(process.world, janitor.step)(process.catalog.waiter(frozenset()), _never)

    def _empty_inboxes(self, process: Process) -> None:
        janitor = Janitor(process.catalog)
        loop(process.world, janitor.empty_inboxes, look_again=LEAVE_SOON)(
            process.catalog.waiter(Janitor.AWAITED), _never
        )


def _next_due(db: Db) -> datetime | None:
    """The time at which the next thing becomes due that no file or message announces."""
    now = db.now()
    times = (call for thing in DUE_THINGS for call in thing.next_times())
    return min(db.look(next_due(now), next_start(now), NEXT_TIMER, NEXT_CHECK, *times).times(), default=None)


def _echo(line: str) -> None:
    """Print into what pytest shows of a test that fails."""
    sys.stdout.write(f"{line}\n")


def _never() -> bool:
    return False
