"""A catalog in one SQLite file: WAL, synchronous FULL, one connection a thread.

SQLite's own busy handler starves (16 processes: one got 1 transaction, another 10,256; tried), so BEGIN IMMEDIATE is
retried here after a short random wait.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar, cast
from urllib.parse import unquote, urlsplit

import apsw
import psutil

from tidemill.catalog.db import RETRY_FOR, Catalog, CatalogUnavailable, Db, refused
from tidemill.catalog.named import Call, Dialect, Param, Row, Statement
from tidemill.errors import UserError
from tidemill.names import CommitSeq

if TYPE_CHECKING:
    from tidemill.catalog.wakeups import Waiter
    from tidemill.world import World

T = TypeVar("T")

_TICK: Final = "UPDATE clock SET value = value + 1 WHERE id = 1 RETURNING value"
_PRAGMAS: Final = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA temp_store = MEMORY"
_WAIT: Final = (timedelta(microseconds=200), timedelta(milliseconds=1))
_URGENT_WAIT: Final = (timedelta(microseconds=20), timedelta(microseconds=100))
_NETWORK_FILE_SYSTEMS: Final = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "fuse.sshfs", "9p", "afs"})


class NetworkFileSystem(UserError):
    """SQLite's locks do not hold on network file systems, so a catalog there would lose data."""

    code = "network_file_system"

    def __init__(self, path: str, kind: str) -> None:
        self.path = path
        self.kind = kind
        super().__init__(
            f"catalog {path} lies on a network file system ({kind}), where SQLite's locks do not hold: "
            "put it on a local disk, or use PostgreSQL"
        )


class SqliteCatalog(Catalog):
    """A catalog at `sqlite:///PATH` (an absolute path takes four slashes)."""

    dialect = Dialect.SQLITE

    def __init__(self, url: str, world: World, *, create: bool) -> None:
        super().__init__(url, world)
        self.path = Path(unquote(urlsplit(url).path[1:]))
        self._create = create
        self._local = threading.local()
        self._connections: list[apsw.Connection] = []
        self._lock = threading.Lock()
        if create:
            try:
                world.disk.make_folder(self.path.parent)
            except OSError as error:
                raise CatalogUnavailable(url, f"its folder cannot be made: {error}") from None
        _refuse_network_file_system(self.path)
        self._connection()

    def read(self, block: Callable[[Db], T]) -> T:
        connection = self._connection()
        with self._transaction(connection, "BEGIN", _WAIT):
            return block(_SqliteDb(connection))

    def write(self, block: Callable[[Db], T], *, urgent: bool = False) -> T:
        connection = self._connection()
        with self._transaction(connection, "BEGIN IMMEDIATE", _URGENT_WAIT if urgent else _WAIT):
            return block(_SqliteDb(connection))

    def _apply(self, guards: Sequence[Call], writes: Sequence[Call]) -> CommitSeq:
        def block(db: Db) -> CommitSeq:
            seq = db.tick()
            for call in (*guards, *writes):
                # A commit's guards come first whatever they look at: SQLite has one lock for all.
                cast(_SqliteDb, db).execute(call.statement, dict(call.params))
            return seq

        return self.write(block)

    def run_script(self, script: str, *, unless: int) -> None:
        connection = self._connection()
        with self._transaction(connection, "BEGIN EXCLUSIVE", _WAIT):
            if self.has_table("migration"):
                applied = connection.execute("SELECT 1 FROM migration WHERE version = ?", (unless,)).fetchone()
                if applied is not None:
                    return
            connection.execute(script)

    def has_table(self, name: str) -> bool:
        found = self._connection().execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?", (name,))
        return found.fetchone() is not None

    def waiter(self) -> Waiter:
        from tidemill.catalog.wakeups import SqliteWaiter  # ctypes and select, for roles only

        return SqliteWaiter(self.path)

    def close(self) -> None:
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()
            self._local = threading.local()

    def _connection(self) -> apsw.Connection:
        connection: apsw.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if self._create else 0)
            try:
                connection = apsw.Connection(str(self.path), flags=flags)
                connection.set_busy_timeout(0)
                self._prepare(connection)
            except (apsw.CantOpenError, apsw.NotADBError, apsw.ReadOnlyError, apsw.IOError) as error:
                raise CatalogUnavailable(self.url, str(error)) from None
            self._local.connection = connection
            with self._lock:
                self._connections.append(connection)
        return connection

    def _prepare(self, connection: apsw.Connection) -> None:
        self._until_free(lambda: connection.execute(_PRAGMAS).fetchall(), _WAIT)
        clock = self.world.clock

        def now(*_: apsw.SQLiteValue) -> apsw.SQLiteValue:
            return int(clock.now().timestamp() * 1000)

        connection.create_scalar_function("tidemill_now", now, 0)
        connection.create_scalar_function("tidemill_refuse", _refuse, -1)
        connection.create_scalar_function("tidemill_unbase64", _unbase64, 1, deterministic=True)

    @contextmanager
    def _transaction(
        self, connection: apsw.Connection, begin: str, wait: tuple[timedelta, timedelta]
    ) -> Iterator[None]:
        self._until_free(lambda: connection.execute(begin), wait)
        try:
            yield
            self._until_free(lambda: connection.execute("COMMIT"), wait)
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, apsw.FullError | apsw.IOError | apsw.ReadOnlyError | apsw.CantOpenError):
                raise CatalogUnavailable(self.url, f"{error}; free space or mend the disk, then try again") from error
            raise

    def _until_free(self, attempt: Callable[[], object], wait: tuple[timedelta, timedelta]) -> None:
        give_up_at = self.world.clock.monotonic() + RETRY_FOR
        while True:
            try:
                attempt()
            except (apsw.BusyError, apsw.LockedError) as error:
                if self.world.clock.monotonic() > give_up_at:
                    raise CatalogUnavailable(self.url, "another process has held its lock for a minute") from error
                self.world.clock.sleep(self.world.between(*wait))
            else:
                return


class _SqliteDb(Db):
    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__()
        self._connection = connection

    def now(self) -> int:
        return int(cast(int, self._connection.execute("SELECT tidemill_now()").get))

    def tick(self) -> CommitSeq:
        self._lock(0, "tick")
        return CommitSeq(int(cast(int, self._connection.execute(_TICK).get)))

    def execute(self, statement: Statement, params: dict[str, Param]) -> tuple[list[Row], int]:
        cursor = self._connection.execute(statement.text(Dialect.SQLITE), params)
        rows = cast("list[Row]", cursor.fetchall())
        return rows, self._connection.changes()

    _execute = execute


def _unbase64(*text: apsw.SQLiteValue) -> apsw.SQLiteValue:
    return base64.b64decode(str(text[0]))


def _refuse(*values: apsw.SQLiteValue) -> apsw.SQLiteValue:
    code, *details = values
    raise refused(str(code), [None if detail is None else str(detail) for detail in details])


def _refuse_network_file_system(path: Path) -> None:
    folder = path.absolute().parent
    mounts = {mount.mountpoint: mount.fstype for mount in psutil.disk_partitions(all=True)}
    for place in (folder, *folder.parents):
        if (kind := mounts.get(str(place))) is not None:
            if kind in _NETWORK_FILE_SYSTEMS:
                raise NetworkFileSystem(str(path), kind)
            return
