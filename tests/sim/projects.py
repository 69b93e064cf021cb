"""Small projects of random parts, and a catalog in memory that each schedule finds as its deployment left it."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from tests.sim import flows, monitored, past, windows
from tests.sim.bucket import URL, etag_of, folder_of, location_in
from tidemill import (
    App,
    Concurrency,
    Every,
    GroupConcurrency,
    NewFiles,
    NewPartitions,
    Rate,
    Reads,
    Refreshed,
    RunEnded,
)
from tidemill.app.declared import DeclaredInbox
from tidemill.app.deploy import deploy
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.sqlite import SqliteCatalog
from tidemill.config import Config, SparkProfile
from tidemill.frames.spark import PartitionWrites
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition
from tidemill.shapes.manifest import group_by_partition
from tidemill.storage.files import FileStatus
from tidemill.testing.clock import VirtualClock
from tidemill.world import World

SHAPES: Final = 48
RATE: Final = (2, timedelta(seconds=3))
"""The most launches of `after` in any window of that length."""
LEASE: Final = timedelta(seconds=6)
APP_FILE: Final = Path(__file__).parent / "project" / "app.py"
KEEP: Final = timedelta(seconds=3)
"""The time for which history stays in projects whose history is deleted."""
_HISTORY: Final = (
    "run",
    "run_input",
    "tx",
    "message",
    "job_history",
    "fire",
    "workflow_run",
    "workflow_node",
    "backfill",
    "backfill_item",
)
_WITH_DELETED: Final = "WITH " + ", ".join(
    f"{table} AS (SELECT {made}* FROM main.{table} UNION ALL SELECT * FROM main.deleted_{table})"
    for table in _HISTORY
    # The order in which runs were made.
    for made in ["rowid AS made, " if table == "run" else ""]
)
_SCHEMA: Final = ColumnSchema(
    '{"type":"struct","fields":[{"name":"line","type":"string"},{"name":"ts","type":"timestamp"}]}'
)
"""Columns as if each line had its time: windows need a time column."""


@dataclass(frozen=True)
class Shape:
    """Shape of a project: each part is there in some projects."""

    number: int
    nodes: int
    one_host: bool
    most_files: int | None
    load_retries: int
    sum_retries: int
    one_at_a_time: bool
    impatient: bool
    hurried: bool
    second: bool
    tidy: bool
    both: bool
    timed: bool
    mirrored: bool
    windowed: bool
    windows: windows.Kind
    slots: int
    once: str
    """Rule of the program that wants each partition once, for changes after the delivery. Empty without such a program.
    """
    poison: bool
    poison_partition: bool
    compacted: bool
    chained: bool
    """There is a program that starts after runs of others, under a rate."""
    stored: bool
    """Inboxes and file sets are in a bucket, and processed files of `raw` go to an archive in it."""
    monitored: bool
    """There is a table whose files another program writes."""
    aged: bool
    """The janitor deletes history and messages after a few seconds."""
    flowing: bool
    """There is a workflow over files."""
    refilled: bool
    """People have partitions of the past done again."""

    @classmethod
    @cache
    def of(cls, number: int) -> Shape:
        """The shape of that number, always the same."""
        chance = random.Random(number)

        def often(share: float) -> bool:
            return chance.random() < share

        return cls(
            number,
            nodes=2 if often(0.3) else 1,
            one_host=often(0.3),
            most_files=chance.choice([None, None, 1, 2]),
            load_retries=chance.choice([0, 1, 2]),
            sum_retries=chance.choice([0, 1, 2]),
            one_at_a_time=often(0.6),
            impatient=often(0.12),
            second=often(0.15),
            tidy=often(0.15),
            both=often(0.1),
            timed=often(0.12),
            slots=chance.choice([1, 2, 3]),
            hurried=often(0.35),
            mirrored=often(0.25),
            windowed=often(0.25),
            windows=windows.Kind.of(chance),
            once=chance.choice(["ignore", "error"]) if often(0.3) else "",
            poison=number % 12 == 5,
            poison_partition=number % 12 == 11,
            # By a chance of its own, so that the other parts are as they were.
            compacted=random.Random(f"compacted {number}").random() < 0.3,
            chained=random.Random(f"chained {number}").random() < 0.3,
            stored=random.Random(f"stored {number}").random() < 0.4,
            monitored=random.Random(f"monitored {number}").random() < 0.25,
            aged=random.Random(f"aged {number}").random() < 0.3,
            flowing=random.Random(f"flowing {number}").random() < 0.3,
            refilled=random.Random(f"refilled {number}").random() < 0.3,
        )


class Programs:
    """Programs of the app. The simulation implements this class."""

    def load(self, run: Any) -> None:
        """Files → lines."""

    def sum_up(self, run: Any) -> None:
        """Lines → totals."""

    def second(self, run: Any) -> None:
        """Lines → others."""

    def tidy(self, run: Any) -> None:
        """Lines → lines, but not its own."""

    def once(self, run: Any) -> None:
        """Lines → firsts, each partition of them once."""

    def both(self, run: Any) -> None:
        """Files and lines → mixed."""

    def strike(self, run: Any) -> None:
        """At a time."""

    def after(self, run: Any) -> None:
        """After runs of `load` and `sum_up`."""

    def mirror(self, run: Any) -> None:
        """A source → a copy of all of it."""

    def view(self, run: Any) -> None:
        """Look at the copy, in any program."""

    def compact(self, run: Any) -> None:
        """Lines, in fewer files."""

    def fetch(self, run: Any) -> None:
        """Files of a workflow: how many they are."""

    def pick(self, run: Any) -> None:
        """Files of a workflow → crates."""

    def extra(self, run: Any) -> None:
        """A node that is there for several files only."""

    def pack(self, run: Any) -> None:
        """The same files, after all else."""

    def daily(self, run: Any) -> None:
        """Lines → days, also again for days of the past."""

    def below(self, run: Any) -> None:
        """Days → weeks."""

    def read_hour(self, run: Any, partition: Partition) -> list[str]:
        """Return the content of an hour of ticks, for the windows that need the hour."""
        raise NotImplementedError


_current: list[App] = []
_lacks_library: list[Callable[[], bool]] = [lambda: False]


def current_app() -> App:
    """The app of the schedule that is being simulated; its code does not load while its nodes lack a library."""
    if _lacks_library[-1]():
        raise ModuleNotFoundError("No module named 'library'")
    return _current[-1]


def lack_library(lacks: Callable[[], bool]) -> None:
    """Have the app not load while `lacks` says so."""
    _lacks_library[:] = [lacks]


def make_app(shape: Shape, folder: Path, programs: Callable[[], Programs]) -> App:
    """Declare an app of that shape, with its data below `folder`; `programs` are those of the moment."""
    app = App("shop")
    limit = [Concurrency(1)] if shape.one_at_a_time else []
    leaving = {"after": "archive", "archive": f"{URL}/archive", "reconcile_every": "5m"} if shape.stored else {}
    inbox = partial(_add_inbox, app, shape, folder)
    raw = inbox("raw", "landing", attempts=3 if shape.poison else 20, max_files=shape.most_files, **leaving)
    filesets = {
        name: app.fileset(name, keys={"name": "string"}, location=location_in(shape.stored, folder, name))
        for name in ("lines", "totals", "others", "mixed")
    }
    lines = filesets["lines"]

    def python(name: str, **options: Any) -> Callable[[Any], object]:
        def code(run: Any) -> None:
            getattr(programs(), name)(run)

        code.__name__ = name
        return app.python(backoff="1s", **options)(code)

    load = python("load", reads=[raw], writes=[lines], retries=shape.load_retries)
    sum_up = python("sum_up", reads=[lines], writes=[filesets["totals"]], retries=shape.sum_retries)
    app.schedule("load", load, trigger=NewFiles(raw), constraints=limit)
    if shape.hurried:
        # A job that times out has no other message.
        one = [Concurrency(1)]
        app.schedule("sum_up", sum_up, trigger=NewPartitions(lines), constraints=one, timeout="2s")
    else:
        app.schedule("sum_up", sum_up, trigger=NewPartitions(lines), constraints=limit)
    if shape.impatient:
        app.schedule(
            "impatient",
            sum_up,
            trigger=NewPartitions(lines),
            constraints=[Concurrency(1)],
            timeout="2s",
            priority=-1,
        )
    if shape.second:
        second = python("second", reads=[lines], writes=[filesets["others"]])
        app.schedule("second", second, trigger=NewPartitions(lines, 2) | Every("10s"), constraints=[])
    if shape.tidy:
        tidy = python("tidy", reads=[lines], writes=[lines], deliver_own=False, retries=1)
        app.schedule("tidy", tidy, trigger=NewPartitions(lines), constraints=[Concurrency(1)])
    if shape.both:
        again = inbox("again", "again", reconcile_every="5m")
        both = python("both", reads=[again, lines], writes=[filesets["mixed"]], retries=1)
        app.schedule("both", both, trigger=NewFiles(again) | NewPartitions(lines), constraints=[])
    if shape.timed:
        strike = python("strike", retries=1)
        app.schedule("strike", strike, trigger=Every("20s"), constraints=limit)
    _declare_chain(app, shape, python)
    _declare_once(app, shape, folder, python)
    _declare_compaction(app, shape, lines, python)
    _declare_mirror(app, shape, folder, python)
    flows.declare(app, shape, folder, python, inbox)
    past.declare(app, shape, folder, lines, python)
    if shape.windowed:
        windows.declare(app, shape.windows, folder, lambda run, partition: programs().read_hour(run, partition))
    monitored.declare(app, folder, there=shape.monitored)
    return app


def _add_inbox(
    app: App, shape: Shape, folder: Path, name: str, place: str, *, attempts: int = 20, **more: Any
) -> DeclaredInbox:
    location = location_in(shape.stored, folder, place)
    often = {"list_every": "6s", "retry_after": "1s", "attempts": attempts}
    return app.inbox(name, location, format="text", settle="0s", **often, **more)


def _declare_chain(app: App, shape: Shape, python: Callable[..., Any]) -> None:
    if shape.chained:
        after = python("after", retries=1)
        either = RunEnded("shop.load", ["COMPLETED", "FAILED", "KILLED"]) | RunEnded("shop.sum_up")
        app.schedule("after", after, trigger=either, constraints=[Rate(*RATE), GroupConcurrency("chain", 1)])


def _declare_once(app: App, shape: Shape, folder: Path, python: Callable[..., Any]) -> None:
    if shape.once:
        firsts = app.fileset("firsts", keys={"name": "string"}, location=location_in(shape.stored, folder, "firsts"))
        once = python("once", reads=[Reads("default.lines", on_change=shape.once)], writes=[firsts], retries=1)
        limit = [Concurrency(1)] if shape.one_at_a_time else []
        app.schedule("once", once, trigger=NewPartitions("default.lines"), constraints=limit)


def _declare_compaction(app: App, shape: Shape, lines: Any, python: Callable[..., Any]) -> None:
    if shape.compacted:
        compact = python("compact", writes=[lines], retries=1)
        # Two compactions may overlap.
        app.schedule("compact", compact, trigger=Every("4s"), constraints=[Concurrency(2)])


def _declare_mirror(app: App, shape: Shape, folder: Path, python: Callable[..., Any]) -> None:
    if shape.mirrored:
        copy = app.snapshot("copy", location=str(folder / "copy"))
        mirror = python("mirror", writes=[copy], retries=1)
        # Two refreshes may overlap.
        app.schedule("mirror", mirror, trigger=Every("5s"), constraints=[Concurrency(2)])
        view = python("view", reads=[copy], retries=1)
        limit = [Concurrency(1)] if shape.one_at_a_time else []
        app.schedule("view", view, trigger=Refreshed(copy), constraints=limit)


class Ground:
    """A folder, a catalog in memory and a clock for the schedules of one process, one after the other."""

    def __init__(self) -> None:
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.folder = Path(tempfile.mkdtemp(prefix="tidemill-sim-", dir=memory))
        self.clock = VirtualClock()
        # A name of its own: several grounds may be in one process.
        self.url = f"sqlite:///{self.folder.name}?vfs=memdb"
        catalog = open_catalog(self.url, World(clock=self.clock, random=random.Random(0)))
        assert isinstance(catalog, SqliteCatalog)
        self.catalog = catalog
        self.connection = catalog._connection()
        self.config = _config(self.folder, self.url)
        for table in _HISTORY:
            self._keep_deleted(table)
        for statement in past.WATCH:
            self.connection.execute(statement)
        self._tables = [
            str(name)
            for (name,) in self.connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
        ]
        self._empty = self._read()
        self._apps: dict[int, App] = {}
        self._programs: list[Programs] = []
        self._deployed: dict[int, dict[str, list[tuple[Any, ...]]]] = {}

    def close(self) -> None:
        """Delete the folder and free the memory."""
        self.catalog.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def prepare(self, shape: Shape, programs: Programs) -> None:
        """Make the catalog and the folder as they are when an app of that shape has just been deployed."""
        self.clock.start_again()
        # What a schedule leaves is a handful of files: folders that are there stay.
        for place in self.folder.iterdir():
            for entry in list(place.iterdir()):
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if shape.number % 3 == 0:
            landing = self.folder / "landing"
            landing.mkdir(exist_ok=True)  # by the deployment, but for the first schedule of this ground
            (landing / "A\nbad name").touch()  # before all others, and never to be processed
        self._programs[:] = [programs]
        if shape.number not in self._apps:
            self._apps[shape.number] = make_app(shape, self.folder, lambda: self._programs[-1])
        app = self._apps[shape.number]
        _current[:] = [app]
        lack_library(lambda: False)
        if shape.number not in self._deployed:
            self._fill(self._empty)
            world = World(clock=self.clock, random=random.Random(shape.number), environ={})
            deploy(self.catalog, world, self.config, app, update_schedules=True)
            self._deployed[shape.number] = self._read()
        else:
            self._fill(self._deployed[shape.number])

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Ask the catalog behind the product's back, with the history that the janitor has deleted."""
        return self.connection.execute(f"{_WITH_DELETED} {statement}").fetchall()

    def _keep_deleted(self, table: str) -> None:
        """Have the rows that are deleted from `table` copied into another one."""
        columns = [str(row[1]) for row in self.connection.execute(f"PRAGMA table_info({table})").fetchall()]
        made = "rowid AS made, " if table == "run" else ""
        self.connection.execute(f"CREATE TABLE deleted_{table} AS SELECT {made}* FROM {table} WHERE 0")
        self.connection.execute(
            f"CREATE TRIGGER keep_deleted_{table} AFTER DELETE ON {table} BEGIN INSERT INTO deleted_{table} VALUES"
            f" ({', '.join(f'old.{name}' for name in (['rowid'] if made else []) + columns)}); END"
        )

    def _read(self) -> dict[str, list[tuple[Any, ...]]]:
        return {table: self.connection.execute(f"SELECT * FROM {table}").fetchall() for table in self._tables}

    def _fill(self, template: Mapping[str, list[tuple[Any, ...]]]) -> None:
        # Rows, not pages: after a copy of pages SQLite would prepare all statements again, which takes longer than a
        # schedule.
        with self.connection:
            for table, rows in template.items():
                self.connection.execute(f"DELETE FROM {table}")
                if rows:
                    places = ", ".join("?" * len(rows[0]))
                    self.connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows)


def _config(folder: Path, url: str) -> Config:
    return Config(
        folder=folder,
        catalog=url,
        namespace="default",
        app=APP_FILE,
        data=str(folder / "data"),
        logs="",
        state=folder / "state",
        cache=folder / "cache",
        slots=2,
        lease=LEASE,
        keep_superseded=timedelta(days=7),
        keep_audit=timedelta(days=400),
        keep_history=timedelta(days=90),
        keep_messages=timedelta(days=90),
        spark=SparkProfile(master="local", warm=0),
        spark_class_data=False,
        jdbc_drivers="",
        hive_metastore="",
        update_schedules=True,
        suspend_new=False,
        most_launches=0,
    )


def write_texts(
    rows: Mapping[str, list[str]],
    fileset: Fileset,
    directory: str,
    folder: Path,
    before_each: Callable[[str], None],
) -> PartitionWrites:
    """Write a text file for each key, where Spark would write Parquet; one that fails leaves half a file.

    Keys are as the catalog encodes them; that of a snapshot is empty.
    """
    is_stored = fileset.dataset.location.startswith(URL)
    root = folder_of(fileset.dataset.location, folder)
    found, counts = [], {}
    for key, texts in rows.items():
        place = "".join(f"{name}={value}/" for name, value in zip(fileset.keys.names, key.split("!"), strict=False))
        name = f"{directory}/{place}part-0.txt"
        content = "".join(f"{text}\n" for text in texts).encode()
        path = root / name
        try:
            before_each(f"write {fileset.dataset.name}")
        except OSError:
            path.parent.mkdir(parents=True)
            path.write_bytes(content[: len(content) // 2])
            raise
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        status = path.stat()
        etag = etag_of(content) if is_stored else f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"
        found.append(FileStatus(name, len(content), VirtualClock().at, etag))
        counts[name] = len(texts)
    return PartitionWrites(group_by_partition(fileset.keys, directory, found, counts), _SCHEMA)


def read_text(fileset_folder: Path, name: str) -> list[str]:
    """Return the content of such a file. Empty if the file has been deleted."""
    with contextlib.suppress(FileNotFoundError):
        return (fileset_folder / name).read_text().splitlines()
    return []
