"""Catalog: blocks of statements that read and write, and lists of effects that commit as one transaction.

The catalog knows no lake and no run. The rooms above describe a commit as data (`Effect`). `apply` takes a tick of the
clock, and runs all guards and then all writes. On PostgreSQL they are one message, on SQLite one BEGIN IMMEDIATE. So
the clock's lock is never held across a round trip.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tidemill.catalog.effects import Commit, Effect
from tidemill.catalog.meter import BlockKind
from tidemill.catalog.named import (
    ALL_CHANGES,
    GREATEST,
    LOCK_ORDER,
    Call,
    Dialect,
    P,
    Param,
    Row,
    RowSet,
    Statement,
    WakeKind,
    look_of,
)
from tidemill.catalog.records import Look, R, decoder_of
from tidemill.config import without_password
from tidemill.errors import Internal, TidemillError, Unavailable, UserError
from tidemill.names import CommitSeq
from tidemill.texts import printable

if TYPE_CHECKING:
    from tidemill.catalog.meter import Connections, Meter
    from tidemill.catalog.wakeups import Waiter
    from tidemill.world import World

T = TypeVar("T")
E = TypeVar("E", bound="type[TidemillError]")

_log: Final = logging.getLogger(__name__)

_NO_RANK: Final = -1
_ASK_AGAIN: Final = timedelta(milliseconds=200)
_MOST_SHOWN: Final = 80

RETRY_FOR: Final = timedelta(seconds=60)
"""A block is repeated for this long against a busy database. Then `CatalogUnavailable` is raised."""
NO_CATALOG_YET: Final = "there is no catalog yet; `tidemill up` or `tidemill deploy` makes one"


class NumberTooLarge(UserError):
    """A number that neither database can keep."""

    code = "number_too_large"

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(
            f"number {number} is refused: the catalog has no number beyond {GREATEST}", "give a smaller one"
        )


class UnstorableText(UserError):
    """A text that neither database can keep."""

    code = "unstorable_text"

    def __init__(self, text: str) -> None:
        self.text = printable(text)
        super().__init__(
            f"text {self.text[:_MOST_SHOWN]!r} is refused: it is not UTF-8, or has a NUL", "write the text in UTF-8"
        )


def check_values(params: Iterable[Param]) -> None:
    """Raise `NumberTooLarge` or `UnstorableText` for the first value that neither database can keep."""
    for value in params:
        if isinstance(value, RowSet):
            for row in value.rows:
                check_values(row)
        if isinstance(value, int) and not -GREATEST <= value <= GREATEST:
            raise NumberTooLarge(value)
        if isinstance(value, str) and printable(value) != value:
            raise UnstorableText(value)


class CatalogUnavailable(Unavailable):
    """The catalog cannot be reached, is busy, or there is none."""

    code = "catalog_unavailable"
    hint = "start the database, or correct the setting `catalog`"

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        self.why = why
        super().__init__(f"catalog {url} is not available: {why}")


class CatalogGone(Unavailable):
    """The catalog was deleted or replaced while this process had it open."""

    code = "catalog_gone"

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"catalog {url} was deleted or replaced while Tidemill ran, and what has committed since is lost",
            "put a backup in its place by `tidemill catalog restore`, or begin with an empty catalog by `tidemill up "
            "--new`",
            before=": ",
        )


class LostReply(Unavailable):
    """The connection was lost while a transaction was ending: it may have committed. Ask; never guess."""

    code = "lost_reply"
    hint = "look whether the change is there before you repeat it; with an idempotency key, repeat it"

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        self.why = why
        super().__init__(f"the reply of a commit to {url} was lost ({why}): its outcome is not known yet")


_refusals: dict[str, type[TidemillError]] = {}


def refusal(error: E) -> E:
    """Declare the error that a guard's `tidemill_refuse(code, …)` raises: its code, and text arguments in order."""
    if _refusals.setdefault(error.code, error) is not error:
        raise Internal(f"two errors refuse with the code {error.code!r}")
    return error


def refused(code: str, details: Sequence[str | None]) -> TidemillError:
    """Make the error that a guard named; trailing arguments that were not given are left out."""
    while details and details[-1] is None:
        details = details[:-1]
    error: Any = _refusals.get(code)  # each class builds its message from its own text arguments
    if error is None:
        return Internal(f"a guard refused with the unknown code {code!r}: {details}")
    made: TidemillError = error(*(detail or "" for detail in details))
    return made


def write_effects(db: Db, effects: Iterable[Effect]) -> None:
    """Run the guards and writes of effects within a block, which has their locks in the right order."""
    for effect in effects:
        for call in (*effect.guards(), *effect.writes()):
            db.call(call)


class Table(NamedTuple):
    """The content of one table: rows in no order, each with the values of `columns`; names are plain (`tx`)."""

    name: str
    columns: tuple[str, ...]
    rows: Iterable[Row]


class Db(ABC):
    """Database transaction that is open. Functions that write take a `Db` as first argument, and never end it."""

    def __init__(self) -> None:
        self._rank = _NO_RANK
        self._ticked = False
        self.wakes: frozenset[WakeKind] = frozenset()
        """The kinds of changes that were made so far."""

    def all(self, statement: Statement[P], /, *args: P.args, **params: P.kwargs) -> list[Row]:
        """All rows of `statement`, in the order it gives."""
        return self._run(statement(*args, **params))[0]

    def one(self, statement: Statement[P], /, *args: P.args, **params: P.kwargs) -> Row | None:
        """The only row, or None; an error when there are more."""
        rows = self._run(statement(*args, **params))[0]
        if len(rows) > 1:
            raise Internal(f"statement {statement.name} gave {len(rows)} rows where one was expected")
        return rows[0] if rows else None

    def records(self, statement: Statement[P], kind: type[R], /, *args: P.args, **params: P.kwargs) -> list[R]:
        """Return the rows of `statement` as records of class `kind`, or the values of its only column."""
        return decoder_of(statement, kind)(self._run(statement(*args, **params))[0])

    def record(self, statement: Statement[P], kind: type[R], /, *args: P.args, **params: P.kwargs) -> R | None:
        """Return the only row as a record of class `kind`, or None; an error when there are more."""
        row = self.one(statement, *args, **params)
        return None if row is None else decoder_of(statement, kind)([row])[0]

    def value(self, statement: Statement[P], kind: type[R], /, *args: P.args, **params: P.kwargs) -> R | None:
        """Return the only column of the only row; None where the column is NULL, and where there is no row."""
        row = self.one(statement, *args, **params)
        return None if row is None or row == (None,) else decoder_of(statement, kind)([row])[0]

    def run(self, statement: Statement[P], /, *args: P.args, **params: P.kwargs) -> int:
        """Run `statement` and give the number of rows it changed."""
        return self._run(statement(*args, **params))[1]

    def call(self, call: Call) -> list[Row]:
        """All rows of a call."""
        return self._run(call)[0]

    def look(self, *calls: Call) -> Look:
        """Ask several reads at once, each for the first column of its first row; and the time. One statement."""
        (row,) = self.call(look_of(calls))
        return Look.of(row, calls)

    @abstractmethod
    def now(self) -> datetime:
        """Return the catalog's time, in whole milliseconds."""

    def tick(self) -> CommitSeq:
        """Take the next tick of the clock; the lock stays until the transaction is visible. First lock of a block."""
        self._lock(0, "tick")
        self._ticked = True
        return self._tick()

    def forget_order(self) -> None:
        """Let the block lock rows in the lock order once more, from its beginning.

        Only for a block that does the work of several, and then is rolled back: another block may wait for its rows
        out of order, and be repeated after a deadlock.
        """
        self._rank = _NO_RANK

    def _run(self, call: Call) -> tuple[list[Row], int]:
        statement = call.statement
        if statement.dated and not self._ticked:
            # PostgreSQL would give the tick that some earlier user of this connection took.
            raise Internal(f"{statement.name} uses {{commit_seq}}: take a tick first")
        self._lock(statement.rank, statement.name)
        rows, changed = self._execute(call)
        self.wakes |= statement.changes(rows, changed)
        return rows, changed

    def _lock(self, rank: int | None, name: str) -> None:
        if rank is None:
            return
        if rank < self._rank:
            raise Internal(f"{name} locks {LOCK_ORDER[rank]} after {LOCK_ORDER[self._rank]}: see LOCK_ORDER")
        self._rank = rank

    @abstractmethod
    def _tick(self) -> CommitSeq: ...

    @abstractmethod
    def _execute(self, call: Call) -> tuple[list[Row], int]: ...


class Catalog(ABC):
    """An open catalog. Threads may share it; each block of work runs on a connection of its own."""

    dialect: Dialect
    node = ""
    """The name that a process and its drivers share on PostgreSQL: their commits wake each other first."""

    def __init__(self, url: str, world: World, meter: Meter | None = None) -> None:
        self.url = url
        self.shown_url = without_password(url)
        self.world = world
        self.meter = meter
        """Counts blocks and wake-ups for the metrics of this process; None costs nothing."""
        self.incarnation = ""
        """The name of this catalog's life, part of every transaction's directory name; a restore gives another."""

    def read(self, block: Callable[[Db], T]) -> T:
        """Run `block` on a read-only view and give its result."""
        return self._metered(BlockKind.READ, lambda: self._read(block))

    def write(self, block: Callable[[Db], T], *, urgent: bool = False) -> T:
        """Run `block` as one database transaction and give its result; an exception rolls it back.

        The block is run again after busy, deadlock and serialization errors, so it changes nothing but the database.
        `urgent` goes first where SQLite makes writers queue (lease renewals). `LostReply` when the outcome is unknown.
        """
        return self._metered(BlockKind.WRITE, lambda: self._write(block, urgent=urgent))

    def apply(self, effects: Sequence[Effect], *, outcome: Call | None = None) -> CommitSeq:
        """Commit `effects` as one transaction, and return its commit sequence.

        The first guard that refuses raises its error, and nothing is changed. If the reply to COMMIT is lost,
        `outcome` is executed: it returns the commit sequence of the effects, or no row. `LostReply` is raised if
        there is no `outcome`, or if the database does not answer for a minute.
        """
        commit = Commit(effects)
        _log.debug("a commit:\n%s", commit)
        lost: LostReply | None = None
        while True:
            try:
                self.world.mark("apply.before_commit")
                seq = self._metered(BlockKind.COMMIT, lambda: self._apply(commit.guards, commit.writes))
                self.world.mark("apply.before_reply")
            except LostReply as error:
                if outcome is None:
                    raise
                lost = error
            except TidemillError:
                # After a lost reply the first try may have committed while the second was on its way, and what the
                # second is refused for is the first one's own work.
                if lost is None or outcome is None or (known := self._ask(outcome, lost)) is None:
                    raise
                return known
            else:
                return seq
            if (known := self._ask(outcome, lost)) is not None:
                return known

    def _ask(self, outcome: Call, lost: LostReply) -> CommitSeq | None:
        def ask(db: Db) -> CommitSeq | None:
            db.tick()  # waits for a commit of ours that the server may still be working on
            rows = db.call(outcome)
            return CommitSeq(int(str(rows[0][0]))) if rows else None

        give_up_at = self.world.clock.monotonic() + RETRY_FOR
        while True:
            try:
                return self.write(ask)
            except Unavailable:
                # Not `CatalogUnavailable`: for the caller that would mean that nothing was committed.
                if self.world.clock.monotonic() > give_up_at:
                    raise lost from None
                self.world.clock.sleep(_ASK_AGAIN)

    def _metered(self, kind: BlockKind, work: Callable[[], T]) -> T:
        if self.meter is None:
            return work()
        began = self.world.clock.monotonic()
        try:
            return work()
        finally:
            self.meter.note_block(kind, self.world.clock.monotonic() - began)

    @abstractmethod
    def _read(self, block: Callable[[Db], T]) -> T: ...

    @abstractmethod
    def _write(self, block: Callable[[Db], T], *, urgent: bool) -> T: ...

    @abstractmethod
    def _apply(self, guards: Sequence[Call], writes: Sequence[Call]) -> CommitSeq: ...

    @abstractmethod
    def run_script(self, script: str, *, unless: int) -> None:
        """Run a migration's statements as one transaction that no other process enters.

        Nothing when the migration `unless` has been applied meanwhile.
        """

    @abstractmethod
    def has_table(self, name: str) -> bool:
        """Return whether the catalog has a table named `name`."""

    @abstractmethod
    def dump(self) -> Iterator[Table]:
        """All tables by name, as one moment shows them while work goes on; each is read before the next is asked for.

        The schema's own versions are left out: they belong to the database, not to its content.
        """

    @abstractmethod
    def replace(self, tables: Callable[[], Iterable[Table]], then: Callable[[Db], T]) -> T:
        """Replace the whole content of the catalog by `tables`, call `then`, and return the result of `then`.

        All of this is one transaction: readers see only the old content or only the new. `then` sets the clock.
        `tables` and `then` may be called again.
        """

    def waiter(self, changes: frozenset[WakeKind] = ALL_CHANGES) -> Waiter:
        """Return a waiter for the next commit of any process with one of these kinds of changes.

        A waiter may also wake for other commits: on SQLite it wakes for each.
        """
        made = self._waiter(changes)
        made.meter = self.meter
        return made

    @abstractmethod
    def _waiter(self, changes: frozenset[WakeKind]) -> Waiter: ...

    @abstractmethod
    def count_connections(self) -> Connections:
        """Return the connections of this process. Those on which waiters listen are not counted."""

    def check_place(self) -> None:  # noqa: B027  # a server's database cannot be taken from under its connections
        """Raise `CatalogGone` where the database was deleted or replaced, so that only this process still has it."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""
