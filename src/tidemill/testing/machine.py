"""Processes that stop at every point, in one thread: each can be held, killed, or made to fail where it stands.

A process is a greenlet that runs the product's own code with a World and a catalog of its own. It stops before and
after each catalog call, at each mark, at each sleep and before each write to disk; there the `Machine` asks its
`Chooser` which process goes on, and what befalls that process. Nothing here knows what the processes do.

All catalogs share one connection: control changes hands only outside of database transactions. Inside of one a process
can be killed or made to fail, but no other process goes on. From its death on, every seam of a process raises `Crash`,
so that nothing it would still do has an effect, its finally-blocks included.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple, Protocol

import greenlet  # type: ignore[import-untyped]  # it brings no types

from tidemill.catalog.db import Catalog
from tidemill.catalog.named import ALL_CHANGES, WakeKind
from tidemill.json_specs import read_text
from tidemill.processes import Finished, Mask
from tidemill.run.processes.assignments import Assignment, DriverSetup
from tidemill.run.processes.driver import DriverProcess
from tidemill.testing.clock import VirtualClock
from tidemill.world import Disk, World


class Crash(BaseException):
    """The end of a process, where it stands."""


class PointKind(StrEnum):
    """Kinds of points at which processes stop."""

    START = "start"
    BEFORE_READ = "before read"
    AFTER_READ = "after read"
    BEFORE_WRITE = "before write"
    AFTER_WRITE = "after write"
    MARK = "mark"
    SLEEP = "sleep"
    DISK = "disk"
    """Before it changes a file: of its own, or of a data set."""
    PROCESS = "process"
    """Before it starts or ends another one."""
    REQUEST = "request"
    """Before a request to a store of objects, which the store plays (`PlayedSpawner.reach`)."""
    ANSWER = "answer"
    """Before the answer to a request that was done."""
    PROGRAM = "program"
    """In code of the user's, which says so itself (`Process.reach`)."""


_NAP = 0.001
"""Seconds that a thread of a program's own waits for a lock of the catalog."""
_CHANGES_OF_FILES = frozenset({"storage.before_put", "storage.before_delete"})


class Point(NamedTuple):
    """A place in a process; `inside` a database transaction no other process can go on."""

    kind: PointKind
    name: str
    inside: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Chooser(Protocol):
    """Chooses the process that goes on, and what befalls it: by chance, exhaustively, by rule."""

    def choose(self, machine: Machine, ready: Sequence[Process]) -> Process:
        """Choose one of `ready` (at least one, in the order in which they were started)."""

    def befall(self, machine: Machine, process: Process) -> BaseException | None:
        """Return the exception to raise at `process.point`; None for none.

        `Crash` kills the process's whole group. At BEFORE_WRITE an exception means that nothing was committed, at
        AFTER_WRITE that the commit has happened. It may also change the machine: `kill` others, `hold` this or another
        process, let time pass, let the wall clock jump.
        """


@dataclass(eq=False)
class Group:
    """Processes that die together, with the groups below it: one `up` and its drivers, one driver, a notebook."""

    name: str
    host: str
    number: int
    parent: Group | None = None
    members: list[Process] = field(default_factory=list)
    below: list[Group] = field(default_factory=list)
    alive: bool = True


class Process:
    """A greenlet with a world of its own. Made by `Machine.start`."""

    def __init__(self, machine: Machine, name: str, group: Group, pid: int) -> None:
        self.machine = machine
        self.name = name
        self.group = group
        self.pid = pid
        self.dead = False
        self.error: BaseException | None = None
        """The error that ended its body; None while it works, and when it returned or was killed."""
        self.point = Point(PointKind.START, name)
        self.wakes_at: timedelta | None = None
        """When it goes on by itself, by the monotonic clock; None when it does not sleep."""
        self.awaits: frozenset[WakeKind] = frozenset()
        """The changes whose commit ends its sleep."""
        self.held_until: timedelta | None = None
        """The time until which the process is stopped, as by SIGSTOP."""
        self.child: PlayedChild | None = None
        """The child that its parent holds, when the process is a driver."""
        self.commits_seen: Mapping[WakeKind, int] = {}
        self._greenlet: greenlet.greenlet
        self.world = World(
            clock=_Clock(self),
            random=machine.random,
            disk=machine.make_disk(self),
            spawner=PlayedSpawner(self),
            environ={},
            marked=self._mark,
            repeated=self._beside,
        )
        self.catalog = self._play(copy.copy(machine.catalog))

    def __repr__(self) -> str:
        return f"<{self.name} at {self.point}>"

    @property
    def finished(self) -> bool:
        """Tell whether the process will not go on."""
        return self.dead or self._greenlet.dead

    def reach(self, kind: PointKind, name: str) -> None:
        """Stop at a point; raise what befalls the process there."""
        if self.dead:
            raise Crash(self.name)
        machine = self.machine
        if kind in machine.passed or machine.is_elsewhere():
            return
        # Not always this one: a thread beside it works with its catalog.
        process = machine.current
        assert process is not None, "only processes come to points"
        process.point = Point(kind, name, machine.inside)
        if not machine.glides(process):
            machine.hub.switch()

    def sleep(self, duration: timedelta, awaits: frozenset[WakeKind] = frozenset()) -> bool:
        """Wait in the machine's time, or for a commit with one of these changes; whether such a commit ended it."""
        if self.machine.is_elsewhere():
            time.sleep(_NAP)
            return False
        process = self.machine.current
        assert process is not None, "only processes sleep"
        process.wakes_at = self.machine.clock.elapsed + max(duration, timedelta(0))
        process.awaits = awaits
        try:
            self.reach(PointKind.SLEEP, "for a commit" if awaits else "a while")
        finally:
            process.wakes_at, process.awaits = None, frozenset()
        woken = self.machine.has_news(process, awaits)
        process.commits_seen = dict(self.machine.commits)
        return woken

    def begin(self, body: Callable[[Process], object]) -> None:
        """Make the greenlet, which stands at its start; the machine's business."""

        def run() -> None:
            try:
                body(self)
            except Crash:
                self.dead = True
            except Exception as error:  # noqa: BLE001  # the machine judges
                self.error = error

        self._greenlet = greenlet.greenlet(run, parent=self.machine.hub)

    def go_on(self, error: BaseException | None) -> None:
        """Run to the next point; the machine's business."""
        if error is not None:
            self._greenlet.throw(error)
        else:
            self._greenlet.switch()

    def die(self) -> None:
        """Unwind it where it stands; from within whatever process or hub."""
        if self.finished:
            self.dead = True
            return
        self.dead = True
        if self._greenlet is greenlet.getcurrent():
            raise Crash(self.name)
        # Return to the killer, not to the hub.
        self._greenlet.parent = greenlet.getcurrent()
        with suppress(Crash):  # that of one that had not begun
            self._greenlet.throw(Crash(self.name))

    def _mark(self, name: str) -> None:
        self.reach(PointKind.DISK if name in _CHANGES_OF_FILES else PointKind.MARK, name)

    def _play(self, catalog: Catalog) -> Catalog:
        read, write, apply = catalog.read, catalog.write, catalog._apply

        def reading(block: Callable[[Any], Any]) -> Any:
            where = _where(block)
            self.reach(PointKind.BEFORE_READ, where)
            result = self._transact(lambda: read(block))
            self.reach(PointKind.AFTER_READ, where)
            return result

        def writing(block: Callable[[Any], Any], **options: bool) -> Any:
            where, wakes = _where(block), []

            def watched(db: Any) -> Any:
                result = block(db)
                wakes.append(db.wakes)
                return result

            self.reach(PointKind.BEFORE_WRITE, where)
            result = self._transact(lambda: write(watched, **options))
            self.machine.commits.update(wakes[-1])
            self.reach(PointKind.AFTER_WRITE, where)
            return result

        def applying(guards: Any, writes: Any) -> Any:
            self.reach(PointKind.BEFORE_WRITE, "apply")
            result = self._transact(lambda: apply(guards, writes))
            self.machine.commits.update(frozenset().union(*(call.statement.wakes for call in writes)))
            self.reach(PointKind.AFTER_WRITE, "apply")
            return result

        played: Any = catalog
        played.world = self.world
        played.read, played.write = reading, writing
        played.waiter = lambda changes=ALL_CHANGES: PlayedWaiter(self, changes)
        played._apply = applying
        return catalog

    def _transact(self, work: Callable[[], Any]) -> Any:
        if self.machine.is_elsewhere():
            return work()
        self.machine.inside = True
        try:
            return work()
        finally:
            self.machine.inside = False

    @contextmanager
    def _beside(self, name: str, every: timedelta, step: Callable[[], bool]) -> Iterator[None]:
        done = False

        def work(thread: Process) -> None:
            while not done:
                thread.sleep(every)
                if done or not step():
                    return

        thread = self.machine.start(f"{self.name}/{name.partition(' ')[0]}", work, self.group)
        try:
            yield
        finally:
            done = True
            if thread.wakes_at is not None:
                thread.wakes_at = self.machine.clock.elapsed


class PlayedWaiter:
    """Waits for commits of others in the machine's time."""

    def __init__(self, process: Process, changes: frozenset[WakeKind]) -> None:
        self._process = process
        self._changes = changes

    def wait(
        self,
        timeout: timedelta,
        *,
        found: bool = True,  # noqa: ARG002  # no pause after looks in vain
        rest: timedelta = timedelta(0),  # noqa: ARG002  # the caller looks no earlier by itself
    ) -> bool:
        return self._process.sleep(timeout, self._changes)

    def wake(self) -> None:
        """Do nothing: processes are killed, not asked to end."""

    def close(self) -> None:
        """Do nothing: a waiter holds nothing."""


class _Clock:
    def __init__(self, process: Process) -> None:
        self._process = process
        self.now = process.machine.clock.now
        self.monotonic = process.machine.clock.monotonic

    def sleep(self, duration: timedelta) -> None:
        if duration > timedelta(0):
            self._process.sleep(duration)


class MortalDisk(Disk):
    """Writes nothing for the dead, and stops before each change. What no other process sees is no point."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def write_bytes(self, path: Path, content: bytes) -> None:
        self._process.reach(PointKind.DISK, "write")
        super().write_bytes(path, content)

    def append(self, path: Path, text: str) -> None:
        self._process.reach(PointKind.DISK, "append")
        super().append(path, text)

    def make_folder(self, path: Path) -> None:
        self._process.reach(PointKind.DISK, "make folder")
        super().make_folder(path)

    def move(self, source: Path, target: Path) -> None:
        self._process.reach(PointKind.DISK, "move")
        super().move(source, target)

    def remove(self, path: Path) -> None:
        self._process.reach(PointKind.DISK, "remove")
        super().remove(path)

    def cut(self, path: Path, length: int) -> None:
        self._process.reach(PointKind.DISK, "cut")
        super().cut(path, length)


class PlayedChild:
    """A driver: once it has its start and an assignment, a process of the machine works on one after the other."""

    def __init__(self, parent: Process, tag: str, group: Group, pid: int) -> None:
        self.machine = parent.machine
        self.parent = parent
        self.tag = tag
        self.group = group
        self.pid = pid
        self.lines: list[str] = []
        self._served = 0
        self.process: Process | None = None
        self.exit_code: int | None = None

    def poll(self) -> int | None:
        if not self.group.alive and self.exit_code is None:
            self.exit_code = -9
        return self.exit_code

    def stopped(self) -> bool:
        held_until = None if self.process is None else self.process.held_until
        return held_until is not None and held_until > self.machine.clock.elapsed

    def send_line(self, line: str) -> bool:
        if self.parent.dead:
            raise Crash(self.parent.name)
        if self.poll() is not None:
            return False
        self.lines.append(line)
        # A driver with Spark is sent an assignment only when it is ready.
        if len(self.lines) == (1 if read_text(DriverSetup, self.lines[0]).spark else 2):
            self.process = self.machine.start(self.group.name, self._serve, self.group)
            self.process.child = self
        elif self.process is not None and self._served == len(self.lines) - 2:
            self.process.wakes_at = self.machine.clock.elapsed
        return True

    def _serve(self, process: Process) -> None:
        driver = self.machine.make_driver(process, read_text(DriverSetup, self.lines[0]), self.tag)
        if driver.start.spark:
            driver.warm_up()
        while True:
            while self._served == len(self.lines) - 1:
                process.sleep(timedelta(days=1))
            driver.work(read_text(Assignment, self.lines[1 + self._served]))
            self._served += 1
            if not driver.usable:
                return

    def kill(self) -> None:
        self.parent.reach(PointKind.PROCESS, "kill")
        self.machine.kill(self.group)

    def ended(self, error: BaseException | None) -> None:
        """Its process has come to its end by itself."""
        self.exit_code = 0 if error is None else 1
        self.group.alive = False


class PlayedSpawner:
    """Starts drivers as processes of the machine, each in a group below its parent's; touches no real process."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._machine = process.machine

    def start(self, argv: Sequence[str], *, tag: str, **_: object) -> PlayedChild:
        del argv
        self._process.reach(PointKind.PROCESS, "spawn")
        parent = self._process.group
        number = self._machine.next_pid()
        group = self._machine.group(f"driver {number}", parent.host, parent)
        child = PlayedChild(self._process, tag, group, number)
        self._machine.children.append(child)
        return child

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], timeout: timedelta) -> Finished:
        raise NotImplementedError("no played process starts programs")

    def end_tagged(self, tag: str) -> int:
        return self._end(lambda child: child.tag == tag)

    def end_orphans(self) -> int:
        return self._end(lambda child: child.group.parent is not None and not child.group.parent.alive)

    def kill_alone(self, pid: int) -> bool:
        raise NotImplementedError("no played process does that")

    def host(self) -> str:
        return self._process.group.host

    def pid(self) -> int:
        return self._process.pid

    def cpu_time(self) -> timedelta:
        """All played processes are threads of one, and each play has to end alike."""
        return timedelta(0)

    def identity(self) -> str:
        return f"{self._process.group.host} {self._process.group.number}"

    def reach(self, kind: PointKind, name: str) -> None:
        """Have the process stop at a point: for a played store, which knows the process by its World alone."""
        self._process.reach(kind, name)

    def listens_on(self, address: str, port: int = 0) -> str:  # noqa: ARG002  # no played process listens
        return ""

    @contextmanager
    def passed_on(self, *_: Mapping[str, str]) -> Iterator[None]:
        """All processes have one environment."""
        yield

    def has_ended(self, identity: str) -> bool:
        host, _, number = identity.rpartition(" ")
        group = self._machine.groups[int(number)]
        return host == self._process.group.host and not group.alive

    @contextmanager
    def surrounded(self, *_: Path) -> Iterator[None]:
        """All processes have one environment, and print nothing."""
        yield

    @contextmanager
    def printed_through(self, mask: Mask) -> Iterator[None]:  # noqa: ARG002  # a played process prints nothing
        yield

    def left_running(self, *, children: bool) -> str:  # noqa: ARG002  # nothing outlives a played program
        return ""

    def complain(self, text: str) -> None:
        self._machine.complaints.append(f"{self._process.name}: {text}")

    def _end(self, wanted: Callable[[PlayedChild], bool]) -> int:
        self._process.reach(PointKind.PROCESS, "end")
        host = self._process.group.host
        found = [c for c in self._machine.children if c.poll() is None and c.group.host == host and wanted(c)]
        for child in found:
            self._machine.kill(child.group)
        return len(found)


class Machine:
    """All processes, the time, and what they have in common; `chooser` decides at each point.

    `catalog` is open already, by a world whose clock is `clock`; `writer` is what programs publish by.
    """

    def __init__(self, catalog: Catalog, clock: VirtualClock, chooser: Chooser, random: Any, writer: Any) -> None:
        self.catalog = catalog
        self.clock = clock
        self.chooser = chooser
        self.random = random
        self.writer = writer
        self.hub = greenlet.getcurrent()
        self._thread = threading.get_ident()
        self.processes: list[Process] = []
        """Living processes, in the order in which they were started."""
        self.groups: list[Group] = []
        self.children: list[PlayedChild] = []
        self.complaints: list[str] = []
        self.commits: Counter[WakeKind] = Counter()
        """The number of commits with each kind of change."""
        self.current: Process | None = None
        """The process that works, or was the last to work."""
        self.inside = False
        """True while the current process is in a database transaction."""
        self.passed: frozenset[PointKind] = frozenset()
        """Kinds of points at which no process stops."""
        self._pids = 0

    # What a subclass may make otherwise

    def make_disk(self, process: Process) -> Disk:
        """The disk of a new process."""
        return MortalDisk(process)

    def make_driver(self, process: Process, start: DriverSetup, tag: str) -> DriverProcess:
        """Make the driver that a new process is."""
        return DriverProcess(process.world, process.catalog, start, tag, writer=self.writer)

    def ended(self, process: Process) -> None:
        """`process` came to its end by itself, by `process.error` or without; not called for a killed process."""

    def glides(self, _process: Process) -> bool:
        """Tell whether the working process goes on at its point without a choice, for speed."""
        return False

    def idle(self) -> bool:
        """Tell whether all is over: no process can go on, and time is about to move."""
        return False

    # What happens to processes

    def group(self, name: str, host: str, parent: Group | None = None) -> Group:
        """Make a group, which dies with `parent`."""
        group = Group(name, host, len(self.groups), parent)
        self.groups.append(group)
        if parent is not None:
            parent.below.append(group)
        return group

    def start(self, name: str, body: Callable[[Process], object], group: Group) -> Process:
        """Start a process; it works when it is chosen."""
        process = Process(self, name, group, self.next_pid())
        process.begin(body)
        group.members.append(process)
        self.processes.append(process)
        return process

    def kill(self, group: Group, *, orphans: bool = False) -> None:
        """End a group and those below it; `orphans`: these go on instead, as if the kernel's signal never came."""
        if not group.alive:
            return
        group.alive = False
        dying = [group] if orphans else list(_whole(group))
        for one in dying:
            one.alive = False
        for process in [process for one in dying for process in one.members]:
            process.die()
        self.processes = [process for process in self.processes if not process.finished]

    def hold(self, process: Process, duration: timedelta) -> None:
        """Stop a process for so long, outside of transactions; afterwards it goes on, a zombie perhaps."""
        assert not process.point.inside, "a process that is stopped inside a transaction holds up all others"
        process.held_until = self.clock.elapsed + duration

    # Time and turns

    def ready(self) -> list[Process]:
        """List the processes that can go on now, in the order in which they were started."""
        now = self.clock.elapsed
        return [process for process in self.processes if self._due(process) <= now]

    def step(self) -> bool:
        """Run one process to its next point; time moves when none can. Return False when all is over."""
        process = self.current
        inside = process is not None and not process.finished and process.point.inside
        if not inside:
            ready = self.ready()
            if not ready:
                if self.idle() or not self.processes:
                    return False
                self.clock.pass_by(min(map(self._due, self.processes)) - self.clock.elapsed)
                ready = self.ready()
            process = self.chooser.choose(self, ready)
        assert process is not None
        process.held_until = None
        error = self.chooser.befall(self, process)
        if isinstance(error, Crash):
            self.kill(process.group)
            return True
        if self._is_out(process, inside=inside):
            return True
        self.current = process
        process.go_on(error)
        if process.finished and not process.dead:
            self._end(process)
        return True

    def _is_out(self, process: Process, *, inside: bool) -> bool:
        """Tell whether the process was killed or held since it was chosen."""
        return process.finished or (not inside and self._due(process) > self.clock.elapsed)

    def stop(self) -> None:
        """End everything."""
        for group in self.groups:
            self.kill(group)

    def has_news(self, process: Process, awaits: frozenset[WakeKind]) -> bool:
        """Tell whether one of these changes has committed since the last sleep of the process."""
        return any(self.commits[change] > process.commits_seen.get(change, 0) for change in awaits)

    def _due(self, process: Process) -> timedelta:
        """When the process can go on; now, if it can."""
        now = self.clock.elapsed
        woken = self.has_news(process, process.awaits)
        due = now if process.wakes_at is None or woken else process.wakes_at
        return due if process.held_until is None else max(due, process.held_until)

    def _end(self, process: Process) -> None:
        self.processes.remove(process)
        if process.child is not None:
            process.child.ended(process.error)
        self.ended(process)

    def is_elsewhere(self) -> bool:
        """Tell whether a thread asks that a program started: no greenlet of this machine can switch there."""
        return threading.get_ident() != self._thread

    def next_pid(self) -> int:
        """A number for a process."""
        self._pids += 1
        return self._pids


class InTurn:
    """Chooses processes in turn, and does nothing to a process."""

    def choose(self, machine: Machine, ready: Sequence[Process]) -> Process:
        """Prefer the process that works, so that a step ends before the next begins."""
        working = machine.current
        return working if working in ready and working is not None and working.wakes_at is None else ready[0]

    def befall(self, machine: Machine, process: Process) -> BaseException | None:
        """Let every process live."""


def _whole(group: Group) -> Iterator[Group]:
    yield group
    for below in group.below:
        yield from _whole(below)


@cache
def _place(code: CodeType) -> str:
    return code.co_qualname.replace(".<locals>", "").replace(".<lambda>", "").removesuffix(".block")


def _where(block: Callable[..., object]) -> str:
    """Name the function of a block, for people and traces."""
    code = getattr(block, "__code__", None)
    return _place(code) if isinstance(code, CodeType) else type(block).__name__
