"""A catalog in one SQLite file: WAL, synchronous FULL, one connection a thread.

SQLite's own busy handler starves (16 processes: one got 1 transaction, another 10,256; tried), so BEGIN IMMEDIATE is
retried here after a short random wait.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast
from urllib.parse import quote, unquote, urlsplit

import apsw

from tidemill.catalog.db import (
    NO_CATALOG_YET,
    RETRY_FOR,
    Catalog,
    CatalogGone,
    CatalogUnavailable,
    Db,
    Table,
    check_values,
    refused,
)
from tidemill.catalog.meter import Connections
from tidemill.catalog.named import Call, Dialect, Param, Row, RowSet, WakeKind, held_table
from tidemill.catalog.records import to_stored
from tidemill.epoch import from_ms, to_ms
from tidemill.errors import Internal, Unavailable, UserError
from tidemill.mounts import NETWORK, file_systems_of
from tidemill.names import CommitSeq

if TYPE_CHECKING:
    from tidemill.catalog.meter import Meter
    from tidemill.catalog.wakeups import CommitListener, Waiter
    from tidemill.world import World

T = TypeVar("T")

_TICK: Final = "UPDATE clock SET value = value + 1 WHERE id = 1 RETURNING value"
_PRAGMAS: Final = (
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY; PRAGMA case_sensitive_like = 1"
)
"""LIKE tells capital letters from small ones, as on PostgreSQL."""
_STATEMENTS: Final = 500
"""Statements that a connection keeps prepared: all that there are. APSW's 100 were prepared again and again (tried)."""
_WAIT: Final = (timedelta(microseconds=200), timedelta(milliseconds=1))
_URGENT_WAIT: Final = (timedelta(microseconds=20), timedelta(microseconds=100))
_DISK_ERRORS: Final = (apsw.FullError, apsw.IOError, apsw.ReadOnlyError)
_AWAY: Final = (*_DISK_ERRORS, apsw.CantOpenError, apsw.NotADBError, apsw.CorruptError)


class NetworkFileSystem(UserError):
    """SQLite's locks do not hold on network file systems, so a catalog there would lose data."""

    code = "network_file_system"

    def __init__(self, path: str, kind: str) -> None:
        self.path = path
        self.kind = kind
        super().__init__(
            f"catalog {path} lies on a network file system ({kind}), where SQLite's locks do not hold",
            "put it on a local disk, or use PostgreSQL",
            before=": ",
        )


class SqliteCatalog(Catalog):
    """A catalog at `sqlite:///PATH` (an absolute path takes four slashes), or `sqlite:///NAME?vfs=memdb` in memory."""

    dialect = Dialect.SQLITE

    def __init__(self, url: str, world: World, *, create: bool, meter: Meter | None = None) -> None:
        super().__init__(url, world, meter)
        parts = urlsplit(url)
        self.path = Path(unquote(parts.path[1:]))
        self._in_memory = bool(parts.query)
        self._create = create
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._lock = threading.Lock()
        self._waits = 0
        if create and not self._in_memory:
            try:
                world.disk.make_folder(self.path.parent)
            except OSError as error:
                raise CatalogUnavailable(url, f"its folder cannot be made: {error}") from None
        if not self._in_memory:
            kinds = file_systems_of(self.path)
            if kinds and kinds[0] in NETWORK:
                raise NetworkFileSystem(str(self.path), kinds[0])
        self._identity = ""
        self._connection()
        self._listener: CommitListener | None = None
        self._identity = "" if self._in_memory else world.disk.identity(self.path)

    def _read(self, block: Callable[[Db], T]) -> T:
        return self._transaction("BEGIN", lambda connection: block(_SqliteDb(connection)))

    def _write(self, block: Callable[[Db], T], *, urgent: bool) -> T:
        wait = _URGENT_WAIT if urgent else _WAIT
        return self._transaction("BEGIN IMMEDIATE", lambda connection: block(_SqliteDb(connection)), wait)

    def _apply(self, guards: Sequence[Call], writes: Sequence[Call]) -> CommitSeq:
        calls = (*guards, *writes)

        def block(connection: apsw.Connection) -> CommitSeq:
            seq = CommitSeq(int(connection.execute(_TICK).get))
            for text, params in prepared:
                _execute(connection, text, params)
            return seq

        # Put together before the lock is taken: whatever is done under it, all other writers wait for.
        prepared = [(text_of(call), call.params) for call in calls]
        connection = self._connection()
        self._until_free(lambda: hold_rows(connection, calls), _WAIT)
        try:
            return self._transaction("BEGIN IMMEDIATE", block)
        finally:
            _drop_rows(connection, calls)

    def run_script(self, script: str, *, unless: int) -> None:
        def block(connection: apsw.Connection) -> None:
            if _has_table(connection, "migration"):
                applied = connection.execute("SELECT 1 FROM migration WHERE version = ?", (unless,)).fetchone()
                if applied is not None:
                    return
            connection.execute(script)

        self._transaction("BEGIN EXCLUSIVE", block)

    def has_table(self, name: str) -> bool:
        return self._transaction("BEGIN", lambda connection: _has_table(connection, name))

    def dump(self) -> Iterator[Table]:
        connection = self._open()  # of its own: it stays in its transaction while others of this thread come and go
        try:
            connection.execute("BEGIN")
            for name in _content(connection):
                columns = tuple(str(row[1]) for row in connection.execute(f'PRAGMA table_info("{name}")'))
                rows = cast("Iterator[Row]", connection.execute(f'SELECT * FROM "{name}"'))  # noqa: S608
                yield Table(name, columns, rows)
        finally:
            connection.close()

    def replace(self, tables: Callable[[], Iterable[Table]], then: Callable[[Db], T]) -> T:
        def block(connection: apsw.Connection) -> T:
            for name in _content(connection):
                connection.execute(f'DELETE FROM "{name}"')  # noqa: S608
            for table in tables():
                places = ", ".join("?" * len(table.columns))
                insert = f'INSERT INTO "{table.name}" ({", ".join(table.columns)}) VALUES ({places})'  # noqa: S608
                connection.executemany(insert, table.rows)
            return then(_SqliteDb(connection))

        return self._transaction("BEGIN EXCLUSIVE", block)

    def count_connections(self) -> Connections:
        with self._lock:
            used = sum(map(_is_used, self._connections))
            return Connections(used, len(self._connections) - used, self._waits)

    def _waiter(self, changes: frozenset[WakeKind]) -> Waiter:
        from tidemill.catalog.wakeups import CommitListener, SqliteWaiter  # ctypes and select, for roles only

        with self._lock:
            if self._listener is None:
                place = None if self._in_memory else self.path
                self._listener = CommitListener(
                    lambda: SqliteWaiter(self._open, place, self.world.clock), self.world.clock
                )
        try:
            return self._listener.waiter(changes)
        except _AWAY as error:
            raise self._unavailable(error) from error

    def check_place(self) -> None:
        if self._identity and self.world.disk.identity(self.path) != self._identity:
            raise CatalogGone(self.shown_url)

    def close(self) -> None:
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._local = threading.local()

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            self.check_place()  # else the connection of another thread would make an empty file
            if not self._create and not self._in_memory and not self.world.disk.exists(self.path):
                raise CatalogUnavailable(self.url, NO_CATALOG_YET)
            flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if self._create else 0)
            try:
                connection = self._open(flags)
                connection.set_busy_timeout(0)
                self._prepare(connection)
            except _AWAY as error:
                raise self._unavailable(error) from error
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection

    def _open(self, flags: int = apsw.SQLITE_OPEN_READWRITE) -> apsw.Connection:
        if not self._in_memory:
            return apsw.Connection(str(self.path), flags=flags, statementcachesize=_STATEMENTS)
        # A name with a slash is one database for all connections of this process.
        name = quote(str(Path("/", self.path)))
        url = f"file:{name}?vfs=memdb"
        return apsw.Connection(url, flags=flags | apsw.SQLITE_OPEN_URI, statementcachesize=_STATEMENTS)

    def _prepare(self, connection: apsw.Connection) -> None:
        # One plan for all values of a statement's parameters. Without it this build of SQLite (with STAT4) compiles a
        # statement again for each value that might lead to another plan.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._until_free(lambda: connection.execute(_PRAGMAS).fetchall(), _WAIT)
        connection.convert_binding = lambda _cursor, _place, value: to_stored(value)
        clock = self.world.clock

        def now(*_: apsw.SQLiteValue) -> apsw.SQLiteValue:
            return to_ms(clock.now())

        connection.create_scalar_function("tidemill_now", now, 0)
        connection.create_scalar_function("tidemill_refuse", _refuse, -1)
        connection.create_scalar_function("tidemill_unbase64", _unbase64, 1, deterministic=True)

    def _transaction(
        self, begin: str, block: Callable[[apsw.Connection], T], wait: tuple[timedelta, timedelta] = _WAIT
    ) -> T:
        connection = self._connection()

        def attempt() -> T:
            connection.execute(begin)
            try:
                result = block(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return result

        return self._until_free(attempt, wait)

    def _unavailable(self, error: apsw.Error) -> Unavailable:
        if self._identity and self.world.disk.identity(self.path) != self._identity:
            return CatalogGone(self.shown_url)
        cure = "; free space or mend the disk, then try again" if isinstance(error, _DISK_ERRORS) else ""
        if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError):
            cure = (
                f"; SQLite writes beside the file even to read it, so {self.path.parent} must be writable: mount it "
                "so, or copy the file, with the one that ends in -wal, to another folder and name the copy by --catalog"
            )
        return CatalogUnavailable(self.url, f"{error}{cure}")

    def _until_free(self, attempt: Callable[[], T], wait: tuple[timedelta, timedelta]) -> T:
        # Readers meet a busy database too, for a moment: while another process recovers it, or leaves as the last.
        give_up_at: timedelta | None = None
        while True:
            try:
                return attempt()
            except (apsw.BusyError, apsw.LockedError) as error:
                now = self.world.clock.monotonic()
                if give_up_at is None:
                    give_up_at = now + RETRY_FOR
                    with self._lock:
                        self._waits += 1
                if now > give_up_at:
                    raise CatalogUnavailable(self.url, "another process has held its lock for a minute") from error
                self.world.clock.sleep(self.world.between(*wait))
            except _AWAY as error:
                raise self._unavailable(error) from error


class _SqliteDb(Db):
    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__()
        self._connection = connection

    def now(self) -> datetime:
        return from_ms(int(self._connection.execute("SELECT tidemill_now()").get))

    def _tick(self) -> CommitSeq:
        return CommitSeq(int(self._connection.execute(_TICK).get))

    def _execute(self, call: Call) -> tuple[list[Row], int]:
        hold_rows(self._connection, [call])
        rows = _execute(self._connection, text_of(call), call.params)
        changed = self._connection.changes()
        _drop_rows(self._connection, [call])
        return rows, changed


def _execute(connection: apsw.Connection, text: str, params: Mapping[str, Param]) -> list[Row]:
    try:
        # `convert_binding` takes the times among the parameters. No column of ours is a float.
        return cast("list[Row]", connection.execute(text, cast("apsw.Bindings", params)).fetchall())
    except (OverflowError, UnicodeEncodeError):
        check_values(params.values())
        raise


def text_of(call: Call) -> str:
    """Return the text of a call: with a row set, the text that reads the tables which `hold_rows` fills."""
    return call.statement.held if _row_sets([call]) else call.statement.text(Dialect.SQLITE)


def _row_sets(calls: Iterable[Call]) -> dict[str, RowSet]:
    found: dict[str, RowSet] = {}
    for call in calls:
        if call.statement.held:  # most have none: look no further
            for name, value in call.params.items():
                if isinstance(value, RowSet) and found.setdefault(name, value) is not value:
                    raise Internal(f"a commit has two row sets {name}: {call.statement.name} would read the other one")
    return found


def hold_rows(connection: apsw.Connection, calls: Iterable[Call]) -> None:
    """Fill the temporary tables of the row sets of `calls`, which share the row sets of one name."""
    if found := _row_sets(calls):
        with connection:  # a savepoint within a transaction, else a transaction of its own
            for name, rows in found.items():
                _fill(connection, held_table(name), rows)


def _drop_rows(connection: apsw.Connection, calls: Iterable[Call]) -> None:
    # The commit stands. The next statement that fills a table empties it first.
    with suppress(apsw.Error):
        for name in _row_sets(calls):
            connection.execute(f"DELETE FROM {held_table(name)}")  # noqa: S608  # a name from our own SQL


def _fill(connection: apsw.Connection, table: str, rows: RowSet) -> None:
    definition = f"CREATE TABLE {table.removeprefix('temp.')} ({', '.join(rows.columns)})"
    # The table of the last row set is kept: a new table has all statements compiled again (17 µs to 60 µs each).
    if not connection.execute("SELECT 1 FROM temp.sqlite_schema WHERE sql = ?", (definition,)).fetchall():
        connection.execute(f"DROP TABLE IF EXISTS {table}; {definition.replace('TABLE ', 'TABLE temp.', 1)}")
    connection.execute(f"DELETE FROM {table}")  # noqa: S608  # what a statement that failed has left
    places = ", ".join("?" * len(rows.columns))
    try:
        connection.executemany(f"INSERT INTO {table} VALUES ({places})", rows.rows)  # noqa: S608
    except (OverflowError, UnicodeEncodeError):
        check_values([rows])
        raise


def _is_used(connection: apsw.Connection) -> bool:
    try:
        return connection.in_transaction
    except apsw.ThreadingViolationError:  # another thread is within a statement
        return True


def _has_table(connection: apsw.Connection, name: str) -> bool:
    query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?"
    return connection.execute(query, (name,)).fetchone() is not None


def _content(connection: apsw.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY name"
    return [str(row[0]) for row in connection.execute(query).fetchall() if row[0] != "migration"]


def _unbase64(*text: apsw.SQLiteValue) -> apsw.SQLiteValue:
    return base64.b64decode(str(text[0]))


def _refuse(*values: apsw.SQLiteValue) -> apsw.SQLiteValue:
    code, *details = values
    raise refused(str(code), [None if detail is None else str(detail) for detail in details])
