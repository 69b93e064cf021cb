"""Scenarios of window programs: writers or listings beside runs that overlap and are fenced, in all orders."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tests.explore import promises
from tests.explore.consumers import LEASE, cut_power, fencer, take_run
from tests.explore.inboxes import land, lander
from tests.explore.named_files import COLUMNS, KEYS, MINUTE, OUTER, UTC, file_of, name_of, played, rows_of, write_names
from tests.explore.promises import must
from tests.explore.search import Actor, Scenario, Tables
from tests.explore.stage import Stage
from tests.sql.plain import PlainJoin, PlainWindows, count, join_counts, to_lines
from tests.sql.sessions import PlainSessions, find_sessions, read_clicks
from tidemill import App, Watermark
from tidemill.app.deploy import _put_windows
from tidemill.catalog.db import Db
from tidemill.catalog.transactions import begin, commit
from tidemill.errors import Conflict, Fenced, UserError
from tidemill.json_specs import write_plain
from tidemill.lake.backlog import publish_due
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import Fileset, Unpin, WriteOp, find_schema
from tidemill.lake.fileset.monitor import TreeMemory, declare_monitoring
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.lake.inbox.discovery import find_listing, take_listing
from tidemill.lake.window.carry import CARRY_KEYS
from tidemill.lake.window.follow import publish_partitions
from tidemill.lake.window.retries import WINDOWS
from tidemill.lake.window.watermark import declare_watermark
from tidemill.lake.window.window_plan import Grid, Window, WindowShape
from tidemill.names import DatasetId, ProgramId, RunId
from tidemill.run.processes.monitoring import follow_table
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.run.records.runs import NewRun, create_external, create_pending
from tidemill.run.step.attempts import AttachTransaction, AttemptEnd, Cause, FinishRun, end_attempt
from tidemill.run.step.context import Run
from tidemill.run.step.step import Step
from tidemill.shapes.keys import KeySchema
from tidemill.shapes.manifest import Manifest, find_snapshot
from tidemill.shapes.partition_time import WallTime
from tidemill.sql.window_program import WindowProgram
from tidemill.sql.windows import WindowQuery

DAY: Final = datetime(2021, 3, 19)  # noqa: DTZ001  # a wall-clock time
HOUR: Final = 60 * MINUTE
GAP: Final = 61
"""Minutes between rows that are still of one session."""
_CARRIES: Final = KeySchema.of(CARRY_KEYS)
_HOLD: Final = timedelta(minutes=2)
_PROGRAM: Final = ProgramId("count")
HOURS: Final = WindowShape(HOUR, HOUR, 0)


@dataclass(frozen=True)
class Kind:
    """Kind of window program: its statement, and how its rows are computed here and plainly."""

    statement: str
    calculator: Callable[[WindowQuery], Any]
    tables: tuple[str, ...]
    shape = HOURS

    def expect(self, rows: Mapping[str, Iterable[str]]) -> dict[Window, list[str]]:
        """Compute all windows plainly from the rows of each table: the lines of each window."""
        counted = [count(rows[table], self.shape, UTC) for table in self.tables]
        whole = counted[0] if len(counted) == 1 else join_counts(counted[0], counted[1])
        return {_window_of(line): [line] for line in to_lines(whole)}

    def window_of(self, line: str) -> Window:
        """Return the window in which a published line lies."""
        return _window_of(line)


class Sessions(Kind):
    """Sessions, which are given out by the slots in which they end."""

    def expect(self, rows: Mapping[str, Iterable[str]]) -> dict[Window, list[str]]:
        """Find all sessions by one walk: the lines of each slot."""
        found: dict[Window, list[str]] = {}
        for one in find_sessions(read_clicks(rows["clicks"]), GAP * MINUTE, 24 * HOUR, UTC):
            found.setdefault(self.window_of(one.line), []).append(one.line)
        return {slot: sorted(lines) for slot, lines in found.items()}

    def window_of(self, line: str) -> Window:
        """Return the slot in which the session of a line ends."""
        return next(iter(self.shape.list_between(int(line.split()[1]), int(line.split()[1]))))


def _window_of(line: str) -> Window:
    start, end = map(int, line.split()[:2])
    return Window(WallTime(start), WallTime(end))


def _tumble(table: str) -> str:
    return f"TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '1' HOUR))"


_SELECT: Final = "INSERT INTO hourly SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day FROM "
PLAIN: Final = Kind(f"{_SELECT}{_tumble('clicks')} GROUP BY window_start, window_end", PlainWindows, ("clicks",))
JOIN: Final = Kind(
    "INSERT INTO hourly SELECT coalesce(c.window_start, v.window_start) AS window_start,"
    " coalesce(c.window_end, v.window_end) AS window_end, c.n, v.n AS views,"
    " to_date(coalesce(c.window_start, v.window_start)) AS day FROM"
    f" (SELECT window_start, window_end, count(*) AS n FROM {_tumble('clicks')} GROUP BY window_start, window_end) c"
    f" FULL JOIN (SELECT window_start, window_end, count(*) AS n FROM {_tumble('views')}"
    " GROUP BY window_start, window_end) v ON c.window_start = v.window_start AND c.window_end = v.window_end",
    PlainJoin,
    ("clicks", "views"),
)
CARRY: Final = Sessions(
    "INSERT INTO hourly SELECT window_start, window_end, line, count(*) AS n, to_date(window_start) AS day FROM"
    f" TABLE(SESSION(TABLE clicks PARTITION BY line, DESCRIPTOR(ts), INTERVAL '{GAP}' MINUTE))"
    " GROUP BY window_start, window_end, line",
    PlainSessions,
    ("clicks",),
)


# Actors


@dataclass(frozen=True)
class Project:
    """The tables and the window program of a scenario."""

    kind: Kind
    filesets: Mapping[str, Fileset]
    code: WindowProgram

    @classmethod
    def of(cls, kind: Kind, *, monitored: bool = False, max_windows: int | None = None) -> Project:
        """Declare them."""
        app = App("shop")
        for table in kind.tables:
            app.fileset(
                table,
                keys={"day": "date", "hour": "int"},
                location=OUTER if monitored else None,
                monitor_every="2s" if monitored else None,
                watermark=Watermark(
                    "ts", pattern="$day $hour:00:00", interval="1h", outside="error", max_windows=max_windows
                ),
            )
        app.fileset("hourly", keys={"day": "date"})
        code = WindowProgram("count", kind.statement, calculator=kind.calculator)
        app.add_windows(code, ProgramKind.PYTHON)
        return cls(kind, {name: cls._fileset(one) for name, one in app.datasets.items()}, code)

    @staticmethod
    def _fileset(declared: Any) -> Fileset:
        spec: dict[str, Any] = write_plain(declared.storing)
        if declared.watermark is not None:
            spec["watermark"] = write_plain(declared.watermark.stored)
        location = declared.location or f"file:///lake/{declared.name}"
        name = declared.name
        return Fileset.of(Dataset(DatasetId(name), App("shop").namespace, name, DatasetKind.FILESET, location, spec))

    def declare(self, db: Db, runs: int, retries: int) -> None:
        """Put all into the catalog, with so many runs that wait."""
        db.tick()
        for fileset in self.filesets.values():
            declare(db, fileset.dataset)
            declare_watermark(db, fileset, "deployment")
            declare_monitoring(db, fileset)
        program = Program(
            _PROGRAM, App("shop").namespace, "shop", "count", ProgramKind.PYTHON, "/nowhere/app.py",
            writes=self.code.writes, retries=retries,
        )  # fmt: skip
        put_program(db, program)
        sources = [self.filesets[table] for table in self.kind.tables]
        _put_windows(db, program, self.code, sources, self.filesets["hourly"])
        create_pending(db, [NewRun(RunId(f"run_{number}"), _PROGRAM) for number in range(runs)])

    def work(self, stage: Stage) -> bool:
        """Do one attempt of a due run. Return whether there was a run."""
        catalog = stage.catalog
        if (taken := take_run(catalog)) is None:
            return False
        run, inputs = taken
        outputs = {fileset.qualified_name: fileset for fileset in self.filesets.values()}
        written = {name: outputs[name] for name in self.code.writes}
        try:
            step = Step.begin("driver", catalog, run, written, write_names, inputs=inputs)
            self.code(Run(step))
            step.commit(step.prepare(), [FinishRun(run.run_id, run.epoch, "", {})])
        except Conflict as error:
            end_attempt(catalog, run.run_id, run.epoch, AttemptEnd(Cause.LOST, error.code))
        except Fenced:
            pass
        return True

    def worker(self, name: str) -> Actor:
        """A runner with its driver, for one attempt after the other."""

        def body(stage: Stage) -> None:
            stage.pick(lambda: ["take"] if _is_any_pending(stage) else [])
            self.work(stage)

        return Actor(name, body, repeats=True, group="worker")

    def writer(self, name: str, table: str, hour: int, minute: int, op: str = "append") -> Actor:
        """Another process, which commits a row, or drops the hour, in one turn."""

        def body(stage: Stage) -> None:
            stage.turn(lambda: self._write(stage, RunId(f"run_{name}"), table, (hour, minute, op)))

        return Actor(name, body)

    def _write(self, stage: Stage, run_id: RunId, table: str, row: tuple[int, int, str]) -> None:
        fileset, (hour, minute, op) = self.filesets[table], row
        time = UTC.opens(DAY + timedelta(hours=hour)) + minute * MINUTE
        key = fileset.keys.check({"day": DAY.date(), "hour": hour})
        file = file_of(f"1/{fileset.keys.to_path(key)}/{name_of(f'{time} {minute}')}", 1)
        write = PartitionWrite(key, WriteOp(op), Manifest(()) if op == "drop" else Manifest((file,)))
        with stage.freely():
            attach = AttachTransaction(run_id, 1)
            tx = begin(stage.catalog, run_id=run_id, epoch=1, writes=[fileset.dataset_id], effects=[attach])
            columns = stage.catalog.read(lambda db: find_schema(db, fileset.dataset_id)) or COLUMNS
            published = publish_partitions(tx, fileset, [write], columns, frozenset())
            commit(stage.catalog, tx, [*published, FinishRun(run_id, 1, "", {}), Unpin(run_id)])

    def discoverer(self, name: str) -> Actor:
        """A process that takes charge of the listings of the table, whenever it believes that no other has it."""
        return Actor(name, lambda stage: self.discover(stage, name), group="discoverer")

    def discover(self, stage: Stage, name: str) -> None:
        """List the table once."""
        catalog, table = stage.catalog_of(name), self.filesets["clicks"]

        def take_charge(db: Db) -> None:
            listing = find_listing(db, table.dataset_id)
            if listing is not None:
                take_listing(db, table.dataset_id, listing.next_listing_at, name, _HOLD)

        try:
            catalog.write(take_charge)
            follow_table(catalog, table, TreeMemory(), name)
        except (Conflict, Fenced, UserError):
            pass

    def recover(self, stage: Stage) -> None:
        """Start all processes again, and let runs start for what is left."""
        cut_power(stage)
        for number in range(20):
            stage.clock.at += timedelta(days=1)
            if self.filesets["clicks"].dataset.location == OUTER:
                self.discover(stage, f"recovered{number}")
            while self.work(stage):
                pass
            publish_due(stage.catalog, WINDOWS)
            waiting = stage.connection.execute("SELECT 1 FROM run WHERE state = 'PENDING'").fetchall()
            if not waiting and not stage.connection.execute(_LEFT).fetchall():
                return
            if not waiting:
                run = NewRun(RunId(stage.world.new_id("run")), _PROGRAM)
                stage.catalog.write(lambda db, run=run: create_pending(db, [run]))


_LEFT: Final = """
    SELECT 1 FROM window_program AS p
     WHERE (SELECT min(coalesce(w.value, -1)) FROM window_input AS i JOIN watermark AS w USING (dataset_id))
           > coalesce(p.computed, -1)
        OR p.retry_at IS NOT NULL
        OR EXISTS (SELECT 1 FROM window_input AS i JOIN partition_change AS c USING (dataset_id)
                    WHERE c.commit_seq >= p.seen AND c.partition_time < p.computed)
"""


def _is_any_pending(stage: Stage) -> bool:
    query = "SELECT 1 FROM run WHERE state = 'PENDING' AND not_before <= tidemill_now()"
    return bool(stage.connection.execute(query).fetchall())


# What must hold


def _rows(tables: Tables, dataset: str, at: int | None = None) -> Iterator[tuple[Any, list[str]]]:
    """Yield the changes of a file set that are current, or that a transaction `at` sees, with their rows."""
    for change in tables["partition_change"]:
        seen = change.superseded_seq is None if at is None else _is_seen(change, at)
        if change.dataset_id == dataset and seen:
            yield change, rows_of(change.partition_key, Manifest.decode(change.manifest).files)


def _is_seen(change: Any, at: int) -> bool:
    return change.commit_seq < at and (change.superseded_seq is None or change.superseded_seq > at)


def _lines(tables: Tables, dataset: str, at: int | None = None) -> list[str]:
    return sorted(line for _, lines in _rows(tables, dataset, at) for line in lines)


def _reached(tables: Tables) -> int | None:
    """Return the least of the watermarks of the inputs."""
    values = [row.value for row in tables["watermark"]]
    return None if None in values else min(values)


def _follows(messages: Iterable[Any]) -> int | None:
    """Check that each move of the program goes on from the one before; return to where the last one went."""
    computed = None
    for message in sorted(messages, key=lambda row: (row.seq, row.n)):
        if message.event_type == "windows":
            told = json.loads(message.payload)
            must(told["from"] == computed, f"a run has gone on from {told['from']}, computed was {computed}")
            must(computed is None or told["to"] >= computed, f"a run has moved from {computed} to {told['to']}")
            computed = told["to"]
    return computed


def published_once(kind: Kind) -> Callable[[Tables], None]:
    """Each closed window is there once, as it follows from what its last run saw; no other window is there."""

    def judge(tables: Tables) -> None:
        (program,) = tables["window_program"]
        computed = _follows(tables["message"])
        must(program.computed == computed, f"computed is {program.computed}, told was {computed}")
        reached = _reached(tables)
        early = computed is not None and (reached is None or computed > reached)
        must(not early, f"computed is {computed}, the watermark {reached}")
        found: dict[Window, list[str]] = {}
        for line in _lines(tables, "hourly"):
            found.setdefault(kind.window_of(line), []).append(line)
        results = {Window(row.window_start, row.window_end): row for row in tables["window_result"]}
        must(found.keys() <= results.keys(), f"published is {found}, noted {sorted(results)}")
        for window, row in results.items():
            closed = computed is not None and Grid(kind.shape, UTC).closes(window) <= computed
            must(closed, f"{window} is published, computed is {computed}")
            seen = {table: _lines(tables, table, row.write_pointer) for table in kind.tables}
            wanted, lines = kind.expect(seen).get(window, []), sorted(found.get(window, []))
            must(lines == wanted, f"{window} is {lines}, and {row.write_pointer} saw {wanted}")

    return judge


def all_closed(kind: Kind) -> Callable[[Tables], None]:
    """The output is one plain computation over all rows, up to the watermark."""

    def judge(tables: Tables) -> None:
        reached, rows = _reached(tables), {table: _lines(tables, table) for table in kind.tables}
        grid = Grid(kind.shape, UTC)
        every = kind.expect(rows).items()
        wanted = [
            line for window, lines in every if reached is not None and grid.closes(window) <= reached for line in lines
        ]
        found = _lines(tables, "hourly")
        must(found == sorted(wanted), f"the windows are {found}, not {sorted(wanted)}")
        (program,) = tables["window_program"]
        must(program.computed == reached, f"computed is {program.computed}, the watermark {reached}")
        must(not tables["window_failure"], f"windows are postponed: {tables['window_failure']}")

    return judge


def carried(tables: Tables) -> None:
    """A carry holds the rows of the sessions that are open at its time, as the run saw them that wrote it."""
    for change, lines in _rows(tables, "count_carry"):
        _, at, seen = _CARRIES.decode(change.partition_key)
        closes = UTC.opens(datetime.fromisoformat(str(at)))
        must(seen == change.write_pointer, f"the carry of {change.write_pointer} says that it has seen {seen}")
        clicks = read_clicks(_lines(tables, "clicks", int(str(seen))))
        found = find_sessions((row for row in clicks if row[0] < closes), GAP * MINUTE, 24 * HOUR, UTC)
        still = [one for one in found if one.end >= closes or one.open_until >= closes]
        wanted = sorted(f"{row} {amount} {one.chain}" for one in still for row, amount, _ in one.rows)
        must(sorted(lines) == wanted, f"the carry at {at} has {sorted(lines)}, open are {wanted}")


def followed(tables: Tables) -> None:
    """A monitored table is what its directories are: each file once, as it was listed last."""
    files = [
        (f"{KEYS.to_path(KEYS.decode(change.partition_key))}/{file.name}", int(file.etag))
        for change, _ in _rows(tables, "clicks")
        for file in Manifest.decode(change.manifest).files
    ]
    there = [(row.name, row.version) for row in tables["landed"]]
    must(sorted(files) == sorted(there), f"the table has {sorted(files)}, there is {there}")


def kept(tables: Tables) -> None:
    """No listing of a monitored table has replaced what runs have added to its partitions."""
    for change in tables["partition_change"]:
        by_run = change.dataset_id == "clicks" and find_snapshot(change.location) is not None
        must(not by_run or change.superseded_seq is None, f"the rows of {change.run_id} are gone")


def known_once(tables: Tables) -> None:
    """No file of a monitored table is there twice, in whatever versions."""
    names = Counter(
        (change.partition_key, file.name)
        for change, _ in _rows(tables, "clicks")
        for file in Manifest.decode(change.manifest).files
    )
    must(all(number == 1 for number in names.values()), f"files are there twice: {names}")


_WATCHED: Final = (
    "tx", "in_progress", "message", "partition_change", "run", "slot", "watermark", "time_slot", "window_program",
    "window_result", "window_failure", "inbox_marker", "landed",
)  # fmt: skip


def windows(
    kind: Kind,
    *,
    earlier: Sequence[tuple[str, int, int]],
    writes: Sequence[tuple[Any, ...]] = (),
    landing: Sequence[str] = (),
    discoverers: int = 0,
    workers: int = 2,
    runs: int = 2,
    fences: int = 0,
    retries: int = 0,
    max_windows: int | None = None,
    joins_reads: bool = True,
) -> Callable[[str], Scenario]:
    """Scenario of one window program. `earlier` rows are there from the beginning: table, hour and minute of each.

    With `discoverers` the table is monitored, and has a file. The files of `landing` come or are written again
    meanwhile. Then `writes` are those of runs that write to the table beside other programs. With `joins_reads` a run
    reads the state of the program in the turn of its begin.
    """
    project = Project.of(kind, monitored=discoverers > 0, max_windows=max_windows)
    names = [f"w{number}" for number in range(len(writes))]

    def set_up(stage: Stage) -> None:
        stage.files_change = bool(landing)
        stage.joins_reads = joins_reads

        def block(db: Db) -> None:
            project.declare(db, runs, retries)
            for name in [*names, *(f"earlier{number}" for number in range(len(earlier)))]:
                create_external(db, RunId(f"run_{name}"), owner="me", host="here", pid=1, lease=LEASE)

        stage.catalog.write(block)
        for number, (table, hour, minute) in enumerate(earlier):
            project.writer(f"earlier{number}", table, hour, minute).body(stage)
        if discoverers:
            land(stage, _FIRST)
            project.discover(stage, "earlier")

    return lambda name: Scenario(
        name,
        "each closed window is published once, as it follows from what its run saw",
        set_up,
        lambda: [
            *(project.writer(one, *what) for one, what in zip(names, writes, strict=True)),
            *(lander(f"lander{n}", file) for n, file in enumerate(landing)),
            *(project.discoverer(f"discoverer{n}") for n in range(discoverers)),
            *(project.worker(f"worker{n}") for n in range(workers)),
            *(fencer(f"reaper{n}", only="run_0") for n in range(fences)),
        ],
        promises.all_of(promises.transactions, promises.slots, published_once(kind), carried, known_once),
        project.recover,
        promises.all_of(promises.at_rest, all_closed(kind), *([kept if writes else followed] if discoverers else [])),
        promises.never_undone,
        played=played,
        tables=_WATCHED,
    )


_FIRST: Final = "day=2021-03-19/hour=1/a"
_BESIDE: Final = "day=2021-03-19/hour=1/b"
SCENARIOS = {
    "windows": windows(PLAIN, earlier=[("clicks", 1, 5)], writes=[("clicks", 1, 6)]),
    "windows-moved": windows(PLAIN, earlier=[("clicks", 1, 5)], writes=[("clicks", 1, 6)], joins_reads=False),
    "windows-fenced": windows(PLAIN, earlier=[("clicks", 1, 5)], writes=[("clicks", 1, 6)], runs=1, fences=1),
    "windows-listed": windows(PLAIN, earlier=[], landing=[_BESIDE], discoverers=2, workers=1, runs=1),
    "windows-listed-beside": windows(
        PLAIN,
        earlier=[],
        writes=[("clicks", 1, 6)],
        landing=[_FIRST],
        discoverers=1,
        workers=0,
        runs=1,
        joins_reads=False,
    ),
    "windows-joined": windows(JOIN, earlier=[("clicks", 1, 5)], writes=[("views", 1, 5), ("clicks", 1, 6)], workers=1),
    "windows-carried": windows(
        CARRY, earlier=[("clicks", 1, 1)], writes=[("clicks", 2, 30), ("clicks", 1, 3)], workers=1
    ),
    "windows-large": windows(
        PLAIN,
        earlier=[("clicks", 1, 5), ("clicks", 2, 5)],
        writes=[("clicks", 1, 6), ("clicks", 1, 0, "drop")],
        fences=1,
        max_windows=1,
    ),
    "windows-listed-large": windows(PLAIN, earlier=[], landing=[_FIRST, _BESIDE], discoverers=2, runs=2, fences=1),
    "windows-joined-large": windows(
        JOIN, earlier=[("clicks", 1, 5)], writes=[("views", 1, 5), ("clicks", 1, 6), ("views", 2, 5)], fences=1
    ),
    "windows-carried-large": windows(
        CARRY, earlier=[("clicks", 1, 1)], writes=[("clicks", 2, 30), ("clicks", 1, 3), ("clicks", 3, 1)], fences=1
    ),
}
