"""Nodes on which `tidemill up` and its drivers work as plain objects, so that each can die, fail or stand anywhere.

The product's own steps are driven in the order in which the roles take them; what is played here is only what lies
outside of them: the clock, the processes, and Spark's place as the writer of files. A process that dies takes all its
objects with it, and the database rolls back what it had open; everything else has to come from the catalog again.

Unlike those of the simulation, a process may stand inside a database transaction while others work: each node has
database connections of its own.
"""

from __future__ import annotations

import copy
import errno
import os
import random
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import apsw
import greenlet

from tests.drivers import cold_drivers
from tests.spawners import InProcess
from tidemill import Conflict, Fenced, Mill, TidemillError, Unavailable
from tidemill.catalog.db import CatalogUnavailable, LostReply
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.sqlite import SqliteCatalog
from tidemill.config import load_config
from tidemill.json_specs import read_text
from tidemill.lake.datasets import find
from tidemill.lake.inbox.discovery import discover
from tidemill.lake.inbox.inbox import FileState, Inbox
from tidemill.mill.project import Project
from tidemill.names import DEFAULT_NAMESPACE, RunId
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.janitor import Janitor
from tidemill.roles.keeper import Keeper
from tidemill.run.processes.assignments import Assignment, DriverSetup
from tidemill.run.processes.driver import DriverProcess
from tidemill.run.processes.external import ExternalTransaction, open_transaction
from tidemill.run.processes.local_launcher import LocalLauncher
from tidemill.run.processes.runner import Runner
from tidemill.run.records.bundles import Bundle, store_bundle
from tidemill.run.step.attempts import ask_kill
from tidemill.run.step.outside_claims import get_latest_files, update_file_status
from tidemill.run.step.spans import DeclaredSpan
from tidemill.schedule.loop import Scheduler
from tidemill.testing.clock import Backdoor, VirtualClock
from tidemill.testing.plain import write_texts
from tidemill.world import Disk, World

LEASE = timedelta(seconds=5)
PAUSE = 4 * LEASE
_AWAY_TICKS = 4
"""The time that a process stands.

Another process takes a lease to see the lease expire, and a lease to see no renewal.
"""

APP = '''
from pathlib import Path

from tests.acceptance.days import Days
from tidemill import Accept, App, Arrivals, Concurrency, Cron, Every, NewFiles, NewPartitions, Node, Probe, Reads
from tidemill import Watermark, WatermarkPassed
from tidemill.run.records.programs import ProgramKind
from tidemill.sql.window_program import WindowProgram

HERE = Path(__file__).parent
app = App("shop")
often = {"format": "text", "settle": "0s", "list_every": "5s", "attempts": 20}
raw = app.inbox("raw", str(HERE / "landing"), **often, reconcile_every="30m")
side = app.inbox("side", str(HERE / "side"), **often, retry_after="2s", after="delete", expect=Arrivals("10s"))
archive = str(HERE / "archive")
feed = app.inbox(
    "feed", str(HERE / "feed"), format="text", settle="0s", list_every="1d", after="archive", archive=archive
)
lines = app.fileset(
    "lines",
    keys={"source": "string"},
    location=str(HERE / "lines"),
    watermark=Watermark("ts", interval="1 day", pattern="2013 $source", formatter="yyyy ['f']['n']D"),
)
scratch = app.fileset("scratch", keys={"source": "string"}, location=str(HERE / "scratch"))
days = app.fileset("days", keys={"source": "string"}, location=str(HERE / "days"))
app.add_windows(
    WindowProgram(
        "count",
        """INSERT INTO days SELECT window_start, CAST(window_start AS STRING) AS source, count(*) AS n
             FROM TABLE(TUMBLE(TABLE lines, DESCRIPTOR(ts), INTERVAL '2' DAY)) GROUP BY window_start""",
        calculator=Days,
    ),
    ProgramKind.PYTHON,
    retries=3,
)
times = app.snapshot("times", max_versions=2, location=str(HERE / "times"))
totals = app.fileset("totals", keys={"source": "string"}, location=str(HERE / "totals"))
copies = app.fileset("copies", keys={"source": "string"}, location=str(HERE / "copies"))


def stumble(*names):
    """Fail the first time; once over what is claimed together, or one strike more would be the third and discard it."""
    marks = [HERE / "stumbled" / name for name in names]
    again = any(mark.exists() for mark in marks)
    for mark in marks:
        mark.touch()
    if not again:
        raise ValueError(f"stumbled over {', '.join(names)}")


@app.python(reads=[raw], writes=[lines], retries=3, backoff="1s")
def load(run):
    for name in run.input(raw).files:
        stumble(f"load-{name}")
        run.output(lines).append({name: (HERE / "landing" / name).read_text()})


@app.python(reads=[side], retries=3, backoff="1s")
def pick(run):
    names = run.input(side).files
    for name in names:
        stumble(f"pick-{name}")
    run.put("files", len(names))


@app.python(retries=3, backoff="1s")
def look(run):
    pass


@app.python(reads=[side])
def tick_off(run):
    names = run.input(side).files
    assert len(names) == run.values["pick.files"]
    for name in names:
        stumble(f"tick_off-{name}")


steps = app.workflow(
    "steps",
    [Node(pick), Node(look, after=[pick]), Node(tick_off, after=[pick, look])],
    holds=[side],
    resume_within="2s",
)


@app.python(reads=[lines], writes=[totals], backoff="1s")
def sum_up(run):
    taken = run.input(lines)
    stumble(*(f"sum_up-{partition['source']}" for partition in taken.partitions))
    for partition, delivery in zip(taken.partitions, taken.deliveries):
        source = partition["source"]
        content = ""
        for change in delivery.changes:
            for file in change.manifest.files:
                content += (HERE / "lines" / change.location / file.name).read_text()
        run.output(totals).append({source: "not counted yet\\n"})
        run.output(totals).overwrite({source: f"{source} has {len(content)}\\n"})


def not_at_once(partition):
    mark = HERE / "stumbled" / f"copy-{partition.key['source']}"
    seen = mark.exists()
    mark.touch()
    return Accept.ACCEPT if seen else Accept.SKIP


@app.worker(reads=[Reads(lines, accept=not_at_once)], writes=[copies], retries=3, backoff="5s")
def copy(run):
    while run.take("0s"):
        for partition in run.input(lines).partitions:
            run.output(copies).overwrite({partition["source"]: "a copy\\n"})
        run.commit()


@app.python(writes=[times], retries=3, backoff="1s")
def strike(run):
    run.output(times).replace({"": f"{run.logical_time:%H:%M}\\n"})


@app.python()
def remember(run):
    stumble(f"remember-{run.logical_time:%Y-%m}")


app.schedule("monthly", remember, trigger=Cron("0 0 1 * *"))
app.schedule("load", load, trigger=NewFiles(raw), constraints=[Concurrency(1)])
app.schedule("pick", steps, trigger=NewFiles(side), constraints=[Probe("free_slots", at_least=1)])
app.schedule("sum_up", sum_up, trigger=NewPartitions(lines), constraints=[Concurrency(1)])
app.schedule(
    "impatient",
    sum_up,
    trigger=NewPartitions(lines),
    constraints=[Concurrency(1)],
    timeout="3s",
    priority=-1,
)
app.schedule(
    "count",
    "count",
    trigger=WatermarkPassed(lines, every="1d", mode="each"),
    constraints=[Concurrency(1)],
)
app.schedule("hourly", strike, trigger=Every("1h"), constraints=[])
'''


OF_RETENTION: Final = ("retention.", "topics.")
"""Begins of the marks at which tests/upkeep/test_retention.py strikes: rounds are too short for old history."""


class Kind(StrEnum):
    """The kinds of faults."""

    CRASH = "the process dies"
    ERROR = "an unforeseen exception"
    CUT = "the catalog's connections are lost"
    PAUSE = "the process stands for longer than its lease"
    FULL_DISK = "the disk is full"
    AWAY = "the catalog is away"
    LOST_REPLY = "the reply of a commit is lost"


def _month(number: int) -> str:
    """Return the begin of the months of a backfill."""
    years, months = divmod(2 * number, 12)
    return f"{1970 + years}-{months + 1:02}-01T00:00:00"


def _start_backfill(mill: Mill, **months: str) -> None:
    mill.backfills.start("shop.remember", by="times", schedule="shop.monthly", **months)


CANCELLED_FROM = 100
"""Distance from the months of a round's backfill to those of the one that a person cancels."""
AT_MARKS = (Kind.CRASH, Kind.ERROR, Kind.CUT, Kind.PAUSE)


class Crash(BaseException):
    """The end of a process, where it stands."""


class Unforeseen(Exception):
    """An error that no line of the product expects."""


class GaveUp(Exception):
    """The error with which a notebook's user gives up."""


class Faults:
    """Strikes once at each point of one kind: wherever the product comes to `what` by a way that is new.

    A way is the process, and the product's own functions from the step on. A point that `load` has passed is another
    point for `sum_up`, whose claims are of another kind. A round has a few strikes at most, and a tick has one. So runs
    come to an end, and what follows the first strike is struck as well.
    """

    def __init__(self) -> None:
        self.struck: dict[tuple[str, ...], str] = {}
        self.first_ways_only = False
        """True if a point that was struck on one way is left alone on all others."""
        self.left = 0
        self.rests = False
        self.blamed: set[str] = set()
        """Programs that were struck within their code: that counts against their claims, as their stumbling does."""

    def arm(self, most: int) -> None:
        """Strike at most so many times from now on, and each program once."""
        self.left = most
        self.blamed.clear()

    def strikes(self, what: str, who: str) -> bool:
        """Return whether this point is struck now."""
        if self.left == 0 or self.rests:
            return False
        way = (what, who, *_way_here())
        if way in self.struck or (self.first_ways_only and what in self.struck.values()):
            return False
        if not {"DriverProcess._call", "DriverProcess._work_until_stopped"}.isdisjoint(way):
            if who in self.blamed:
                return False
            self.blamed.add(who)
        self.struck[way] = what
        self.left -= 1
        self.rests = True
        return True


class Ordinal(StrEnum):
    """The fate of the k-th operation."""

    FAILS = "it fails"
    """An operation of the catalog or of the disk fails."""
    DIES = "its process dies before it"
    LOST_REPLY = "it happens, and its reply is lost"
    """Only for an operation that writes into the catalog."""


class Countdown:
    """Strikes at the k-th operation from `start` on."""

    def __init__(self) -> None:
        self.ordinal: Ordinal | None = None
        self.left = 0

    def start(self, k: int, ordinal: Ordinal) -> None:
        """Count from now on."""
        self.ordinal, self.left = ordinal, k

    def strikes(self, *ordinals: Ordinal) -> bool:
        """Return whether this operation, to which one of `ordinals` may happen, is the one."""
        if self.ordinal not in ordinals:
            return False
        self.left -= 1
        return self.left == 0


def _way_here() -> Iterator[str]:
    frame = sys._getframe(2)
    while frame is not None:
        if "/src/tidemill/" in frame.f_code.co_filename:
            yield frame.f_code.co_qualname
        frame = frame.f_back


class Process:
    """A process: its own world, and its node's catalog, live and die with it."""

    def __init__(self, node: Node, who: str) -> None:
        self.node = node
        self.who = who
        self.machine = machine = node.machine
        self.died_at: str | None = None
        self.world = World(
            clock=machine.clock,
            random=machine.random,
            disk=MortalDisk(self),
            spawner=node.spawner,
            environ={},
            marked=self.reach,
            repeated=_not_beside,
        )
        self.catalog = copy.copy(node.catalog)
        self.catalog.world = self.world
        machine.spoil(self)

    def reach(self, mark: str) -> None:
        """Come to a mark, and perhaps no further, or much later."""
        if mark.startswith(OF_RETENTION):
            return
        self.machine.marks.add(mark)
        if mark == "storage.before_put":
            self.write(mark)
        elif mark.startswith("storage."):
            self.operate(mark, OSError(errno.EIO, "Input/output error"))
        faults = self.machine.faults
        if self.died_at is None and faults[Kind.CRASH].strikes(mark, self.who):
            self.died_at = mark
        if self.died_at is not None:
            raise Crash(self.died_at)
        if faults[Kind.ERROR].strikes(mark, self.who):
            raise Unforeseen(mark)
        if faults[Kind.CUT].strikes(mark, self.who):
            self.node.lose_connections()
        if faults[Kind.PAUSE].strikes(mark, self.who):
            self.node.stand(mark)

    def operate(self, what: str, error: Exception) -> None:
        """Want to do something outside; it may fail by `error`."""
        if self.died_at is not None:
            raise Crash(self.died_at)
        countdown = self.machine.countdown
        if countdown.strikes(Ordinal.FAILS, Ordinal.DIES):
            self.machine.deaths.append(f"{what}: {countdown.ordinal}")
            if countdown.ordinal is Ordinal.FAILS:
                raise error
            self.died_at = what
            raise Crash(what)

    def write(self, what: str) -> None:
        """Want to write a file."""
        self.operate(what, OSError(errno.EIO, "Input/output error"))
        if self.machine.faults[Kind.FULL_DISK].strikes("write", self.who):
            raise OSError(errno.ENOSPC, "No space left on device")


def _not_beside(_name: str, _every: timedelta, _step: Callable[[], bool]) -> AbstractContextManager[None]:
    """Repeat nothing beside the work: a notebook's work takes no time of its lease, and its threads stand with it."""
    return nullcontext()


class MortalDisk(Disk):
    """Writes nothing for the dead, and meets the full disk."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def read_bytes(self, path: Path) -> bytes:
        self._process.operate("read", OSError(errno.EIO, "Input/output error"))
        return super().read_bytes(path)

    def write_bytes(self, path: Path, content: bytes) -> None:
        self._process.write("write")
        super().write_bytes(path, content)

    def append(self, path: Path, text: str) -> None:
        self._process.write("append")
        super().append(path, text)

    def make_folder(self, path: Path) -> None:
        self._process.write("make folder")
        super().make_folder(path)

    def list_folder(self, path: Path) -> Iterator[Path]:
        self._process.operate("list folder", OSError(errno.EIO, "Input/output error"))
        return super().list_folder(path)

    def remove(self, path: Path) -> None:
        self._process.operate("remove", OSError(errno.EIO, "Input/output error"))
        super().remove(path)


class PlayedChild:
    """A driver: it works when the machine lets it, in this process."""

    pid = 1

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.lines: list[str] = []
        self.exit_code: int | None = None

    def poll(self) -> int | None:
        return self.exit_code

    def stopped(self) -> bool:
        return False

    def send_line(self, line: str) -> bool:
        self.lines.append(line)
        return self.exit_code is None

    def kill(self) -> None:
        self.exit_code = -9 if self.exit_code is None else self.exit_code


class PlayedSpawner(InProcess):
    """Keeps the children of a node, and touches no process."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self.children: list[PlayedChild] = []
        self._host = host

    def start(self, *_: object, tag: str, **__: object) -> PlayedChild:
        self.children.append(PlayedChild(tag))
        return self.children[-1]

    def end_tagged(self, tag: str) -> int:
        found = [child for child in self.children if child.tag == tag]
        for child in found:
            child.kill()
        return len(found)

    def end_orphans(self) -> int:
        return 0

    def host(self) -> str:
        return self._host

    def identity(self) -> str:
        return self._host

    def has_ended(self, _identity: str) -> bool:
        """Nodes are noticed by their leases alone here."""
        return False


class Up(Process):
    """The roles of `tidemill up`, each a step."""

    def __init__(self, node: Node) -> None:
        super().__init__(node, "up")
        machine = node.machine
        narrator = Narrator(self.world, machine.story.append, as_json=False)
        options = cold_drivers(machine.catalog_url, machine.folder / "state", machine.folder / "cache")
        self.keeper = Keeper(self.catalog, Discoverer(self.catalog, narrator))
        probes = {"free_slots": lambda: 1}
        self.scheduler = Scheduler(self.catalog, self.world, narrator.launched, probes=probes)
        self.runner = Runner(
            self.world, self.catalog, LocalLauncher(self.world, options), lease=LEASE, on_event=narrator.ran
        )
        self.janitor = Janitor(self.catalog, timedelta(0), machine.folder / "state")

    def discover(self) -> None:
        """List what is due to be listed."""
        self.keeper.step()

    def schedule(self) -> None:
        """Bring messages and times to runs until there is nothing more."""
        while self.scheduler.step() == timedelta(0):
            pass

    def run(self) -> None:
        """Look after runs."""
        self.runner.step()

    def sweep(self) -> None:
        """Clean up."""
        self.janitor.step()
        self.janitor.empty_inboxes()

    def end_loudly(self) -> None:
        """End the drivers and return their runs, as `run_node` does when a role has failed."""
        with suppress(TidemillError, OSError):
            self.runner.close()


class Node:
    """A machine with its processes: `up` and its drivers, or what a person runs. It stands as a whole."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.spawner = PlayedSpawner(name)
        self.up: Up | None = None
        self.catalog = copy.copy(machine.catalog)
        if isinstance(self.catalog, SqliteCatalog):
            self.catalog._local = threading.local()
            self.catalog._connections = []
        self.stands: greenlet.greenlet | None = None
        self._wakes_at = machine.clock.at

    def go(self, work: Callable[[], None]) -> None:
        """Let a process of this node work until it is done, or until the node stands."""
        if self.stands is None:
            self._switch_to(greenlet.greenlet(work))

    def stand(self, mark: str) -> None:
        """Stop here, as a machine that swaps, or whose virtual machine is moved; called by one of its processes."""
        self.machine.deaths.append(f"{self.spawner.host()} stands at {mark}")
        self._wakes_at = self.machine.clock.at + PAUSE
        here = greenlet.getcurrent()
        assert here.parent is not None
        here.parent.switch()

    def wake(self) -> None:
        """Go on where it stands, if it is time."""
        if self.stands is not None and self.machine.clock.at >= self._wakes_at:
            self._switch_to(self.stands)

    def lose_power(self) -> None:
        """End every process at once."""
        if self.up is not None:
            self.up.died_at = "loss of power"
        self.up = None
        for child in self.spawner.children:
            child.kill()

    def lose_connections(self) -> None:
        """Lose the catalog: PostgreSQL ends our sessions; of SQLite's file the next statement cannot read."""
        if not isinstance(self.catalog, SqliteCatalog):
            self.machine.end_sessions()
            return
        connection = self.catalog._connection()

        def fail(*_: object) -> bool:
            connection.exec_trace = None
            raise apsw.IOError("disk I/O error")

        connection.exec_trace = fail

    def _switch_to(self, process: greenlet.greenlet) -> None:
        process.parent = greenlet.getcurrent()
        process.switch()
        self.stands = None if process.dead else process
        if self.stands is not None:
            self.machine.wait_for_idle_sessions()


class Machine:
    """A project, its catalog on either database, and the nodes that work on it."""

    def __init__(self, catalog_url: str, session_name: str, folder: Path, backdoor: Backdoor) -> None:
        self.catalog_url = catalog_url
        self.folder = folder
        self.sql = backdoor
        self.clock = VirtualClock()
        self.random = random.Random(1)
        self.marks: set[str] = set()
        self.faults = {kind: Faults() for kind in Kind}
        self.countdown = Countdown()
        self._unlucky = False
        self.story: list[str] = []
        self.deaths: list[str] = []
        self.landed: dict[str, str] = {}
        self._hidden: dict[str, tuple[bytes, int]] = {}
        self._away_for = 0
        self._to_cancel = 0
        self._moves = 0
        self.is_landing_whole = True
        self.misfortunes: set[str] = set()
        """Programs whose next attempt ends before it has begun: `sum_up` by a loss of power.

        And `kill`: a user kills the run of `load` that waits for its next attempt. And `kill a workflow`: a user kills
        the workflow of a `pick` that waits. And `resume`: a user resumes a failed workflow that holds files. And
        `pause`: a user pauses a backfill.
        """
        self._session_name = session_name
        """By which PostgreSQL knows the connections of all nodes."""
        self._set_up()
        self.nodes = [Node(self, "node 1")]
        self.desk = Node(self, "desk")

    # What happens to the outside

    def deploy(self, number: int) -> None:
        """Have a person deploy other code; the command dies and fails like any other process.

        No run needs the bundle of the last deployment then.
        """
        (self.folder / "app.py").write_text(f"{APP}\n# {number}\n")

        def work() -> None:
            person = Process(self.desk, "deployer")
            with self._noting_deaths("deployer"):
                try:
                    Mill(Project(person.catalog, person.world, self._mill.project.config)).deploy()
                except TidemillError as error:
                    if error.code != "bad_location":  # what a person reads when the disk of the data is full
                        raise
                    self.deaths.append(f"deployer: {error}")

        self.desk.go(work)

    def is_deployed(self, number: int) -> bool:
        """Return whether the code of that number is deployed: each number is one version of the app."""
        return bool(self.sql(f"SELECT 1 FROM app WHERE version > {number}"))

    def leave_an_upload(self, number: int) -> None:
        """Leave the file of a deployment of two hours ago that was killed."""
        store_bundle(
            self._mill.project.catalog, self._mill.project.config.data, Bundle({"app.py": str(number).encode()})
        )
        self.sql("UPDATE bundle_upload SET begun_at = begun_at - 7200000 WHERE abandoned = 0 RETURNING 1")

    def land(self, name: str, content: str, inbox: str = "landing") -> None:
        """Let a file arrive."""
        (self.folder / inbox / name).write_text(content)
        self.landed[name] = content

    def hide_what_is_done(self) -> None:
        """Let the files of earlier rounds be away while their inbox is reconciled, and come back as copies."""
        self._hidden = {}
        for path in sorted((self.folder / "landing").iterdir()):
            if path.name in self.landed and self._is_done(path.name):
                self._hidden[path.name] = (path.read_bytes(), path.stat().st_mtime_ns)
                path.unlink()
        self._away_for = _AWAY_TICKS
        self.is_landing_whole = False

    def move_the_landing(self, name: str) -> None:
        """Once `name` is found, have the folder be away for some ticks; then have all be there again.

        Every other time an empty folder stays, as a mount point does.
        """
        landing, away = self.folder / "landing", self.folder / "landing away"
        if self.is_landing_whole or not self.sql(f"SELECT 1 FROM inbox_file WHERE name = '{name}'"):
            return
        self._away_for -= 1
        if self._away_for == _AWAY_TICKS - 1:
            landing.rename(away)
            self._moves += 1
            if self._moves % 2:
                landing.mkdir()
        elif self._away_for == 0:
            shutil.rmtree(landing, ignore_errors=True)
            away.rename(landing)
            closed = self.sql("SELECT name FROM inbox_file WHERE status = 'SKIPPED'")
            assert not closed, f"files were closed while their folder was away: {closed}"
            for hidden, (content, modified_at) in self._hidden.items():
                (landing / f".{hidden}").write_bytes(content)
                os.utime(landing / f".{hidden}", ns=(modified_at, modified_at))
                (landing / f".{hidden}").rename(landing / hidden)
            self.is_landing_whole = True

    def _is_done(self, name: str) -> bool:
        return bool(self.sql(f"SELECT 1 FROM inbox_file WHERE name = '{name}' AND status = 'SUCCESS'"))

    def spoil(self, process: Process) -> None:
        """Let the network of a process's catalog fail where it is to."""
        catalog = process.catalog
        read, write, apply = catalog.read, catalog.write, catalog._apply

        def away(what: str) -> None:
            process.operate(what, CatalogUnavailable(catalog.url, "played"))
            if self.faults[Kind.AWAY].strikes(what, process.who):
                raise CatalogUnavailable(catalog.url, "played")

        def lost(what: str) -> None:
            if self.faults[Kind.LOST_REPLY].strikes(what, process.who):
                raise LostReply(catalog.url, what)

        def changing(change, what: str):
            def changed(*args, **options):
                away(what)
                lost(f"{what} that did not happen")
                result = change(*args, **options)
                lost(f"{what} that happened")
                if self.countdown.strikes(Ordinal.LOST_REPLY):
                    self.deaths.append(f"{what}: {Ordinal.LOST_REPLY}")
                    raise LostReply(catalog.url, "played")
                return result

            return changed

        def reading(block):
            away("read")
            return read(block)

        catalog.read = reading
        catalog.write = changing(write, "write")
        catalog._apply = changing(apply, "apply")

    def end_sessions(self) -> None:
        """Let PostgreSQL end all sessions of the product, and wait until they are gone."""
        # Again and again: a pool may open another meanwhile, in a thread of its own.
        while self.sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {self._ours}"):
            pass

    def wait_for_idle_sessions(self) -> None:
        """Wait until PostgreSQL has ended the transaction in which a process stands, if it stands in one."""
        if self.catalog.dialect == "postgres":
            while self.sql(f"SELECT 1 FROM pg_stat_activity WHERE {self._ours} AND state LIKE 'idle in transaction%'"):
                pass

    @property
    def _ours(self) -> str:
        return f"application_name = '{self._session_name}'"

    def close(self) -> None:
        """Close all connections."""
        for node in (*self.nodes, self.desk):
            node.catalog.close()
        self.catalog.close()

    def last_faults(self) -> str:
        """Return the last faults, for the message of a failed test."""
        return "\n".join([*self.deaths[-8:], *self.story[-20:]])

    # What the processes do

    @property
    def is_any_node_standing(self) -> bool:
        """Return whether a process has still to go on."""
        return any(node.stands is not None for node in (*self.nodes, self.desk))

    def tick(self) -> None:
        """Let every role and every driver of each node have its turn."""
        self._unlucky = False
        for faults in self.faults.values():
            faults.rests = False
        for node in (*self.nodes, self.desk):
            node.wake()
        if all(node.stands is not None for node in self.nodes):
            self.nodes.append(Node(self, f"node {len(self.nodes) + 1}"))
        for node in list(self.nodes):
            for step in (Up.discover, Up.schedule, Up.run):
                self._take_step(node, step)
            for child in list(node.spawner.children):
                if child.exit_code is None and len(child.lines) > 1:
                    self._drive(node, child)
        self._kill_what_waits()
        for node in list(self.nodes):
            for step in (Up.run, Up.sweep):
                self._take_step(node, step)
        self.clock.sleep(timedelta(seconds=1))

    def note(self, name: str, content: str) -> None:
        """Publish a partition from a notebook; it dies or fails like any other process, and is asked to do it again."""
        self.landed[name] = content

        def work() -> None:
            notebook = Process(self.desk, "notebook")

            def open_one(*writes: object) -> AbstractContextManager[ExternalTransaction]:
                return open_transaction(notebook.catalog, notebook.world, writes, lease=LEASE, writer=write_texts)

            # Another cell has declared to write lines, and gives up: the watermark waits for it.
            with self._noting_deaths("notebook"), suppress(GaveUp), open_one(DeclaredSpan("default.lines")):
                with open_one("default.scratch") as tx:
                    tx.fileset("default.scratch").overwrite({"last": content})
                with open_one("default.lines", "default.scratch") as tx:
                    tx.fileset("default.lines").append({name: content})
                    tx.fileset("default.scratch").overwrite({"last": content})
                raise GaveUp

        self.desk.go(work)

    def is_published(self, name: str) -> bool:
        """Return whether the notebook's partition is there."""
        return bool(self.sql(f"SELECT 1 FROM partition_change WHERE partition_key = '{name}'"))

    def fetch(self) -> None:
        """Have a workflow engine outside look for files, claim and close them; it dies and fails like any process."""

        def work() -> None:
            engine = Process(self.desk, "engine")
            with self._noting_deaths("engine"):
                feed = Inbox.of(engine.catalog.read(lambda db: find(db, DEFAULT_NAMESPACE, "feed")))
                discover(engine.catalog, feed)
                claim = get_latest_files(engine.catalog, feed, lease=LEASE)
                if claim.files:
                    update_file_status(engine.catalog, claim.claim_id, None, FileState.SUCCESS)

        self.desk.go(work)

    def backfill(self, number: int) -> None:
        """Have a person start a backfill of two months, and one of later months that will be cancelled.

        The commands die and fail like any other process.
        """
        self._to_cancel = number + CANCELLED_FROM
        for first in (self._to_cancel, number):
            if not self.is_backfilled(first):
                months = {"since": _month(first), "until": _month(first + 1)}
                self._command("backfiller", partial(_start_backfill, **months))

    def is_backfilled(self, number: int) -> bool:
        """Return whether the backfill of that number was started."""
        return bool(self.sql(f"SELECT 1 FROM backfill WHERE choice LIKE '%since%{_month(number)}%until%'"))

    def tend_backfills(self) -> None:
        """Have a person pause a backfill, cancel one, resume paused ones and retry failed items, a command each."""
        unfinished = "state NOT IN ('COMPLETED', 'CANCELLED') OR (state = 'COMPLETED' AND failed > 0)"
        for row in self.sql(f"SELECT backfill_id, state, failed, choice FROM backfill WHERE {unfinished}"):
            backfill_id, state, failed, choice = map(str, row)
            if _month(self._to_cancel) in choice and state != "COMPLETED":
                self._command("canceller", lambda mill, one=backfill_id: mill.backfills.cancel(one, kill=True))
            elif state == "PAUSED":
                self._command("resumer", lambda mill, one=backfill_id: mill.backfills.resume(one))
            elif state == "RUNNING" and "pause" in self.misfortunes:
                if self._command("pauser", lambda mill, one=backfill_id: mill.backfills.pause(one)):
                    self.misfortunes.discard("pause")
            elif failed != "0":
                self._command("retrier", lambda mill, one=backfill_id: mill.backfills.retry(one))

    def resume_workflows(self) -> None:
        """Have a person resume the failed workflows that hold files."""
        if "resume" not in self.misfortunes:
            return
        for (run_id,) in self.sql("SELECT run_id FROM workflow_run WHERE holding = 'held' AND holds_until IS NOT NULL"):
            if self._command("resumer of a workflow", lambda mill, one=run_id: mill.runs.retry(str(one))):
                self.misfortunes.discard("resume")

    def _command(self, who: str, act: Callable[[Mill], object]) -> bool:
        """Have a person act; return whether the command has ended well."""
        ended = []

        def work() -> None:
            person = Process(self.desk, who)
            with self._noting_deaths(who), suppress(Conflict):
                act(Mill(Project(person.catalog, person.world, self._mill.project.config)))
                ended.append(who)

        self.desk.go(work)
        return bool(ended)

    def is_fetched(self, name: str) -> bool:
        """Return whether the engine has closed the file."""
        return bool(self.sql(f"SELECT 1 FROM inbox_file WHERE name = '{name}' AND status = 'SUCCESS'"))

    def _take_step(self, node: Node, step: Callable[[Up], None]) -> None:
        def work() -> None:
            try:
                if node.up is None:
                    node.up = Up(node)
                step(node.up)
            except Crash as crash:
                self.deaths.append(f"up at {crash}")
                node.lose_power()
            except Unavailable as error:
                self.deaths.append(f"up waits: {error}")
            except (OSError, Unforeseen) as error:
                self.deaths.append(f"up: {error}")
                if node.up is not None:
                    node.up.end_loudly()
                node.lose_power()

        node.go(work)

    def _drive(self, node: Node, child: PlayedChild) -> None:
        start, assignment = read_text(DriverSetup, child.lines[0]), read_text(Assignment, child.lines[1])
        program = self._program(assignment)
        if program in self.misfortunes and not self._unlucky:
            self._unlucky = True  # one a tick: a loss of power would hide a driver's death from its runner
            self.misfortunes.remove(program)
            if program == "sum_up":
                node.lose_power()  # only the lease tells what has become of its runs
            child.kill()  # the driver alone: its runner sees it
            return

        def work() -> None:
            process = Process(node, program)
            try:
                driver = DriverProcess(process.world, process.catalog, start, child.tag, writer=write_texts)
                driver.work(assignment)
                child.exit_code = 0
            except Crash as crash:
                self.deaths.append(f"driver of {program} at {crash}")
                child.kill()
            except (Unavailable, OSError, Unforeseen) as error:
                self.deaths.append(f"driver of {program}: {error}")
                child.exit_code = 1

        node.go(work)

    def _kill_what_waits(self) -> None:
        waiting = "SELECT r.run_id FROM run AS r JOIN program AS p ON p.program_id = r.program_id"
        for misfortune, program in (("kill", "load"), ("kill a workflow", "pick")):
            if misfortune not in self.misfortunes:
                continue
            found = self.sql(f"{waiting} WHERE p.name = '{program}' AND r.state = 'PENDING' AND r.failures > 0")
            if found:
                run_id = RunId(str(found[0][0]).removesuffix("-pick"))
                self.desk.go(partial(self._kill, run_id, misfortune))

    def _kill(self, run_id: RunId, misfortune: str) -> None:
        with self._noting_deaths("person"):
            ask_kill(Process(self.desk, "person").catalog, run_id)
            self.misfortunes.discard(misfortune)

    @contextmanager
    def _noting_deaths(self, who: str) -> Iterator[None]:
        try:
            yield
        except Crash as crash:
            self.deaths.append(f"{who} at {crash}")
        except (Unavailable, Fenced, OSError, Unforeseen) as error:
            self.deaths.append(f"{who}: {error}")

    def _program(self, assignment: Assignment) -> str:
        ((name,),) = self.sql(
            "SELECT p.name FROM run AS r JOIN program AS p ON p.program_id = r.program_id "
            f"WHERE r.run_id = '{assignment.run_id}'"
        )
        return str(name)

    def _set_up(self) -> None:
        for name in ("landing", "side", "feed", "stumbled"):
            (self.folder / name).mkdir(parents=True)
        world = World(clock=self.clock, random=self.random, environ={"TIDEMILL_CATALOG": self.catalog_url})
        config = load_config(world, self.folder, {})
        self.catalog = open_catalog(self.catalog_url, world)
        self.clock.rule(self.sql, self.catalog.dialect)
        self._mill = Mill(Project(self.catalog, world, config))
        (self.folder / "app.py").write_text(APP)
        self._mill.deploy()
