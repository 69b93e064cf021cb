"""A catalog in memory on which actors take turns, one database transaction at a time, and time can be taken back.

An actor is a function that calls the product. Between two of its database transactions it shares nothing with the
others, so its state is what these have given it so far, its *log*. To go on from an earlier state the function is
called again: it gets from the log what it got then, does one transaction for real, and is left where it wants to begin
the next. The database goes back by SQLite's own savepoints: all histories happen inside of one transaction that never
ends, and the product's transactions are savepoints in it.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypeVar

import apsw

from tests.spawners import InProcess
from tidemill.catalog.db import Catalog, LostReply
from tidemill.catalog.migrate import check_version, read_incarnation
from tidemill.catalog.sqlite import SqliteCatalog
from tidemill.errors import Unavailable
from tidemill.testing.clock import VirtualClock
from tidemill.world import Disk, World

T = TypeVar("T")

FIRST_TICK = 7_000_000_000
"""Start of the clock: so large that ticks differ from all other numbers, wherever they stand (`search.canonical`)."""

_NESTED = {
    "BEGIN": "SAVEPOINT product",
    "BEGIN IMMEDIATE": "SAVEPOINT product",
    "BEGIN EXCLUSIVE": "SAVEPOINT product",
    "COMMIT": "RELEASE product",
    "ROLLBACK": "ROLLBACK TO product; RELEASE product",
}

Log: TypeAlias = tuple["Outcome", ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of one turn for its actor: a value, or an exception."""

    value: Any
    error: Exception | None = None


class Parked(BaseException):
    """The actor stands before its next turn; `options` are what it may choose from there.

    `loses` says that the turn writes, so that its reply can be lost (None: not known).
    """

    def __init__(
        self, what: str, options: Callable[[], Sequence[Any]] | None = None, *, loses: bool | None = None
    ) -> None:
        super().__init__(what)
        self.options = options
        self.loses = loses


class Loss(StrEnum):
    """Loss of a commit's reply: the commit happened, or did not."""

    DONE = "done, and the reply is lost"
    NOT_DONE = "not done, and the reply is lost"


class SleeplessClock(VirtualClock):
    """A clock that actors move. Only an actor that has lost a reply `may_sleep`, and no time passes then."""

    may_sleep = False

    def sleep(self, duration: timedelta) -> None:
        if not self.may_sleep:
            raise AssertionError(f"somebody sleeps for {duration}")


_ID_BITS = 80
PARTS = "windows.planned"
"""Mark at which a turn ends that joins reads: a run has read what it does, and not what it does that from."""


class _Ids(random.Random):
    """Numbers of ids in the order in which they are asked for on the way here; all tokens are alike."""

    def __init__(self) -> None:
        super().__init__(0)
        self.drawn = 0

    def getrandbits(self, bits: int, /) -> int:
        if bits < _ID_BITS:
            # A token that used up numbers would give later ids other numbers in each order: seven times the states.
            return 0
        # The ids of a batch are drawn at once.
        value = 0
        for _ in range(bits // _ID_BITS):
            self.drawn += 1
            value = value << _ID_BITS | self.drawn
        return value

    def random(self) -> float:
        return 0.5


class _NoDisk(Disk):
    """Holds nothing, and forgets what is written."""

    def list_folder(self, _path: Path) -> Iterator[Path]:
        return iter(())

    def make_folder(self, _path: Path) -> None:
        pass

    def append(self, _path: Path, _text: str) -> None:
        pass


class _NoProcesses(InProcess):
    """This machine as the product asks for it; it always is the same."""

    def pid(self) -> int:
        return Stage.on_stage.pid

    def host(self) -> str:
        return "here"

    def identity(self) -> str:
        return "here"

    def has_ended(self, _identity: str) -> bool:
        return False

    def end_tagged(self, _tag: str) -> int:
        return 0

    def complain(self, _text: str) -> None:
        pass


class _Connection(apsw.Connection):
    """Begins savepoints where the product begins transactions."""

    def execute(self, statements, *args, **options):
        return super().execute(_NESTED.get(statements, statements), *args, **options)


class _Catalog(SqliteCatalog):
    """The product's own catalog of SQLite; each of its transactions is a turn."""

    stage: Stage

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self, "_only", None)
        if connection is None:
            connection = self._only = _Connection(":memory:", statementcachesize=1000)
            self._prepare(connection)
        return connection

    def _transaction(self, begin, block, *args, **options):
        def do():
            return super(_Catalog, self)._transaction(begin, block, *args, **options)

        return self.stage.turn(do, loses=begin != "BEGIN")


@dataclass
class Stage:
    """Stage on which actors act: the catalog, the clock, and the turn."""

    clock: SleeplessClock = field(default_factory=SleeplessClock)
    ids: _Ids = field(default_factory=_Ids)
    endings: Sequence[str] = ("commit",)
    """Ends of a program: return, or `fail`."""
    files_change: bool = False
    """True if a process writes files meanwhile."""
    joins_reads: bool = False
    """True if an actor reads on in its turn, up to its next write or the mark `PARTS`: a snapshot is the same later."""
    pid: int = 1
    """Number of the acting process. A driver of the second attempt is 2, so that the registered process is known."""
    on_stage: ClassVar[Stage]
    """The one there is: for programs, which the product calls."""

    def __post_init__(self) -> None:
        Stage.on_stage = self
        self.world = World(
            clock=self.clock,
            random=self.ids,
            disk=_NoDisk(),
            spawner=_NoProcesses(),
            environ={},
            marked=self._reach,
            # Leases end when a reaper says so: no thread renews them meanwhile.
            repeated=lambda _name, _every, _step: nullcontext(),
        )
        self._log: list[Outcome] = []
        self._place = 0
        self._may_act = self._parts = False
        self._free = 1
        self._loss: Loss | None = None
        self.acted = self.lost = False
        catalog = _Catalog.__new__(_Catalog)
        catalog.stage = self
        catalog.__init__("sqlite:///:memory:", self.world, create=True)
        check_version(catalog, create=True)
        catalog.incarnation = read_incarnation(catalog)
        self.catalog: Catalog = catalog
        self.connection = catalog._connection()
        self.connection.execute(f"UPDATE clock SET value = {FIRST_TICK}")
        self._free = 0
        self.marks: set[str] = set()

    def _reach(self, mark: str) -> None:
        if not self._free and self.acted:
            self.marks.add(mark)
            self._parts |= mark == PARTS

    # What actors call, beside the product

    def catalog_of(self, name: str) -> Catalog:
        """Return the catalog for an actor that makes ids: they stay the same however often the actor starts again."""
        catalog = copy.copy(self.catalog)
        catalog.world = replace(self.world, random=random.Random(name))
        return catalog

    def turn(self, do: Callable[[], T], *, loses: bool = False) -> T:
        """Take a turn, in which no other actor acts. With `loses` the turn commits, and its reply can be lost."""
        if self._free:
            return do()
        if self._place < len(self._log):
            outcome = self._log[self._place]
            self._place += 1
            if outcome.error is not None:
                self.clock.may_sleep |= isinstance(outcome.error, LostReply)
                raise outcome.error.with_traceback(None)
            return outcome.value
        joins = self.joins_reads and self.acted and not loses and not self._parts
        if not self._may_act and not joins:
            self._parts = True  # also for reads of code that handles any exception
            raise Parked("turn", loses=loses)
        if self._may_act:
            self._may_act, self.acted = False, True
            self.lost = self._loss is not None and loses
        try:
            outcome = Outcome(do() if joins else self._take(do))
        except Exception as error:
            self.clock.may_sleep |= isinstance(error, LostReply)
            self._log.append(Outcome(None, error))
            self._place += 1
            raise
        self._log.append(outcome)
        self._place += 1
        return outcome.value

    def _take(self, do: Callable[[], T]) -> T:
        if self.lost and self._loss is Loss.NOT_DONE:
            raise LostReply("memory", self._loss)
        value = do()
        if self.lost:
            raise LostReply("memory", Loss.DONE)
        return value

    def pick(self, options: Callable[[], Sequence[T]]) -> T:
        """Choose one of `options` as they are when the next turn is taken: the search tries each.

        While there is none the actor has to wait.
        """
        if self._place < len(self._log):
            self._place += 1
            return self._log[self._place - 1].value
        raise Parked("pick", options)

    def note(self, statement: str, *values: Any) -> None:
        """Write down for the judges what an actor has seen, together with the turn before."""
        if self.acted or self._free:
            self.connection.execute(statement, values)

    def ending(self) -> None:
        """Let a program return, or raise."""
        chosen = self.endings[0]
        if len(self.endings) > 1 and not self._free:
            chosen = self.pick(lambda: self.endings)
        if chosen == "fail":
            raise ValueError("it fails")

    # What the search calls

    def act(
        self,
        body: Callable[[Stage], None],
        log: Log,
        chosen: Sequence[Any] = (),
        *,
        turns: int = 1,
        loss: Loss | None = None,
    ) -> tuple[Log, Parked | None]:
        """Call `body` for one more turn (or none): its new log, and where it is parked; None when it has ended."""
        self._log = [*log, *map(Outcome, chosen)]
        self._place = 0
        self._may_act = turns > 0
        self.acted = self.lost = self.clock.may_sleep = self._parts = False
        self._loss = loss
        try:
            body(self)
        except Parked as parked:
            return tuple(self._log), parked
        except Unavailable:
            pass  # as roles do: they start again; a driver ends
        return tuple(self._log), None

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Take back afterwards whatever happens."""
        at, drawn = self.clock.at, self.ids.drawn
        self.connection.execute("SAVEPOINT undone")
        try:
            yield
        finally:
            self.connection.execute("ROLLBACK TO undone; RELEASE undone")
            self.clock.at, self.ids.drawn = at, drawn

    @contextmanager
    def freely(self) -> Iterator[None]:
        """Act without taking turns: to set up, and to see how it ends."""
        self._free += 1
        try:
            yield
        finally:
            self._free -= 1
