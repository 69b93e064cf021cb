"""A catalog in a PostgreSQL database, one schema of it: the first of the connection's search path.

Every named statement is PREPAREd once a connection and run by EXECUTE with literals, in PostgreSQL's simple protocol:
so a whole commit travels as one message (begin + commit with effects, 16 processes, pairs a second: 7 round trips 375,
psycopg's pipeline 539, one message of text 614, one message of EXECUTEs 996; tried), and the types of parameters are
the statement's, whatever Python hands in.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict, TypeVar, cast
from weakref import WeakKeyDictionary

import psycopg
from psycopg import errors as pg
from psycopg import sql
from psycopg_pool import ConnectionPool, PoolTimeout

from tidemill.catalog.db import (
    RETRY_FOR,
    Catalog,
    CatalogUnavailable,
    Db,
    LostReply,
    Table,
    UnstorableText,
    check_values,
    refused,
)
from tidemill.catalog.lending import Lender
from tidemill.catalog.meter import Connections
from tidemill.catalog.named import GREATEST, Call, Dialect, Row, RowSet, Statement, Stored, WakeKind
from tidemill.catalog.notifications import NotificationEar, Notifier, Origin, Scope, channel_of, payload_of
from tidemill.catalog.records import to_json, to_stored
from tidemill.catalog.wakeups import CommitListener
from tidemill.epoch import from_ms
from tidemill.names import CommitSeq

if TYPE_CHECKING:
    from tidemill.catalog.meter import Meter
    from tidemill.catalog.wakeups import Waiter
    from tidemill.world import World

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

_REFUSED: Final = "TM001"
_SETTINGS: Final = (
    "SET statement_timeout = '5s'; SET idle_in_transaction_session_timeout = '5s'; "
    "SET default_transaction_isolation = 'read committed'; SET client_min_messages = 'warning'; "
    # Pages of a catalog are in memory: by default a hundred look-ups are guessed to cost more than reading a table of
    # 20,000 rows as a whole (tests/plans). Compiling a statement takes longer than running one of ours.
    "SET random_page_cost = 1.1; SET jit = off"
)
_MIGRATION_LOCK: Final = "SELECT pg_advisory_xact_lock(1953064302, hashtext(current_schema()::text))"
# The block that takes the first of 32 values writes all 32 into the log. If that block is rolled back, a later block
# that takes one of the values and writes nothing does not wait for the disk. A crash then gave the tick of that later
# block a second time (tried). A consumer that had stored the tick never got the transaction that began with the same
# tick. The message makes the end of each such block wait for the disk.
_TICK: Final = "SELECT tidemill_tick(), pg_logical_emit_message(true, 'tidemill', 'tick')"
_RETRIED: Final = (pg.DeadlockDetected, pg.SerializationFailure, pg.LockNotAvailable)
_WAIT: Final = (timedelta(milliseconds=1), timedelta(milliseconds=20))
_FRESH_TRIES: Final = 2
_OPEN_WITHIN: Final = timedelta(seconds=10)
_PLAIN: Final = re.compile(r"[^'\\\x00\ud800-\udfff]*")
_MOST_CONNECTIONS: Final = 16
_NOTIFY_WITHIN: Final = timedelta(seconds=1)
_SENDER_CHARACTERS: Final = 12


class _Login(TypedDict):
    connect_timeout: int
    target_session_attrs: str


# A replica would give a past state.
_LOGIN: Final[_Login] = {"connect_timeout": int(_OPEN_WITHIN.total_seconds()), "target_session_attrs": "read-write"}

_Connection: TypeAlias = "psycopg.Connection[Row]"


class PostgresCatalog(Catalog):
    """A catalog at `postgresql://USER@HOST/DATABASE`; `?options=-csearch_path%3DSCHEMA` picks a schema."""

    dialect = Dialect.POSTGRES

    def __init__(self, url: str, world: World, meter: Meter | None = None, node: str = "") -> None:
        super().__init__(url, world, meter)
        self._prepared: WeakKeyDictionary[_Connection, set[str]] = WeakKeyDictionary()
        try:
            # psycopg's pool retries in the background and would hide the reason: ask once by ourselves.
            with psycopg.connect(url, **_LOGIN) as connection:
                channel = _channel(connection)
        except psycopg.Error as error:
            raise CatalogUnavailable(self.shown_url, _first_line(error)) from None
        self._pool: ConnectionPool[_Connection] = ConnectionPool(
            url,
            min_size=0,
            max_size=_MOST_CONNECTIONS,
            configure=self._configure,
            kwargs={**_LOGIN, "autocommit": True, "prepare_threshold": None},
            timeout=_OPEN_WITHIN.total_seconds(),
            # Its waits double: given minutes, they would outlast an outage by as much again.
            reconnect_timeout=_OPEN_WITHIN.total_seconds(),
            open=True,
        )
        self._lender = Lender(self._pool)
        process = world.token(_SENDER_CHARACTERS)
        self.node = node or process
        self._sender = sender = Origin(self.node, process)
        self._channels = {Scope.ALL: channel, Scope.NODE: channel_of(self.node)}
        self._notifier = Notifier(self._notify, world.clock, is_driver=bool(node))
        self._listener = CommitListener(
            lambda: NotificationEar(self._listen, sender, self._notifier.pass_on), world.clock
        )

    def _read(self, block: Callable[[Db], T]) -> T:
        def attempt(connection: _Connection) -> T:
            return block(_PostgresDb(self, connection))

        return self._repeated(attempt)

    def _write(self, block: Callable[[Db], T], *, urgent: bool) -> T:
        del urgent  # writers of different rows do not queue here
        changes: frozenset[WakeKind] = frozenset()

        def attempt(connection: _Connection) -> T:
            nonlocal changes
            db = _PostgresDb(self, connection, opening="BEGIN;")
            try:
                result = block(db)
            except BaseException:
                if db.begun and not connection.broken:
                    connection.execute("ROLLBACK")
                raise
            changes = db.wakes
            if not db.begun:
                return result
            try:
                connection.execute("COMMIT")
            except psycopg.Error as error:
                # The server says of a block that paused that it ended it before the COMMIT came.
                if _is_lost(connection, error) and not isinstance(error, pg.IdleInTransactionSessionTimeout):
                    raise LostReply(self.shown_url, _first_line(error)) from error
                raise
            return result

        try:
            result = self._repeated(attempt)
        except LostReply:
            self._tell(changes)  # it may have committed
            raise
        self._tell(changes)
        return result

    def _apply(self, guards: Sequence[Call], writes: Sequence[Call]) -> CommitSeq:
        calls = (*guards, *writes)
        changes: set[WakeKind] = set()

        def attempt(connection: _Connection) -> CommitSeq:
            changes.clear()
            message = ";".join(
                (
                    "BEGIN",
                    "SELECT tidemill_tick()",
                    *(execute_text(call) for call in calls),
                    "COMMIT",
                )
            )
            try:
                cursor = self.send(connection, [call.statement for call in calls], message)
            except psycopg.Error as error:
                if _is_lost(connection, error):
                    changes.update(*(call.statement.wakes for call in calls))  # it may have committed
                    raise LostReply(self.shown_url, _first_line(error)) from error
                connection.execute("ROLLBACK")
                raise
            cursor.nextset()
            row = cursor.fetchone()
            assert row is not None  # noqa: S101  # tidemill_tick() gives one row
            for call in calls:
                cursor.nextset()
                if call.statement.wakes:
                    rows = cursor.fetchall() if cursor.description else []
                    changes.update(call.statement.changes(rows, cursor.rowcount))
            return CommitSeq(int(str(row[0])))

        try:
            # Cancelled for its time, it waited for a lock and has done nothing.
            return self._repeated(attempt, (*_RETRIED, pg.QueryCanceled))
        finally:
            self._tell(frozenset(changes))

    def run_script(self, script: str, *, unless: int) -> None:
        def attempt(connection: _Connection) -> None:
            with connection.transaction():
                connection.execute("SET LOCAL statement_timeout = 0")
                connection.execute(_MIGRATION_LOCK)
                if self.has_table("migration"):
                    query = "SELECT 1 FROM migration WHERE version = %s"
                    if connection.execute(query, (unless,)).fetchone() is not None:
                        return
                connection.execute(_query(script))

        self._repeated(attempt)

    def has_table(self, name: str) -> bool:
        query = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = %s"
        return self._repeated(lambda connection: connection.execute(query, (name,)).fetchone()) is not None

    def dump(self) -> Iterator[Table]:
        with self._translated(), psycopg.connect(self.url, **_LOGIN) as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            for name in _content(connection):
                with connection.cursor(name="dump") as cursor:
                    cursor.execute(sql.SQL("SELECT * FROM {}").format(sql.Identifier(name)))
                    columns = tuple(column.name for column in cursor.description or ())
                    yield Table(name, columns, cursor)

    def replace(self, tables: Callable[[], Iterable[Table]], then: Callable[[Db], T]) -> T:
        with self._translated(), self._lender.lend() as connection, connection.transaction():
            connection.execute("SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0")
            names = sql.SQL(", ").join(map(sql.Identifier, _content(connection)))
            connection.execute(sql.SQL("TRUNCATE {}").format(names))
            for table in tables():
                columns = sql.SQL(", ").join(map(sql.Identifier, table.columns))
                copy = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table.name), columns)
                with connection.cursor().copy(copy) as target:
                    for row in table.rows:
                        target.write_row(row)
            return then(_PostgresDb(self, connection))

    def count_connections(self) -> Connections:
        found = self._pool.get_stats()  # what is zero may be left out
        idle = found.get("pool_available", 0)
        return Connections(found.get("pool_size", 0) - idle, idle, found.get("requests_queued", 0))

    def _waiter(self, changes: frozenset[WakeKind]) -> Waiter:
        with self._translated():
            return self._listener.waiter(changes)

    def close(self) -> None:
        self._notifier.close()
        self._pool.close()

    def _tell(self, changes: frozenset[WakeKind]) -> None:
        """Wake the processes that wait for a commit with these kinds of changes."""
        self._listener.wake(changes)
        self._notifier.note(changes)

    def _notify(self, changes: frozenset[WakeKind], scope: Scope) -> None:
        # Never raises: the transaction has committed, and an exception here would make the caller run it again.
        # The server gives a notification a commit of its own. No reader needs it on the disk.
        text = f"NOTIFY {self._channels[scope]}, '{payload_of(self._sender, changes)}'"
        for last in (False, True):
            connection: _Connection | None = None
            try:
                with self._lender.lend(_NOTIFY_WITHIN) as connection:
                    connection.execute(_query(f"SET LOCAL synchronous_commit = off; {text}"))
            except psycopg.Error as error:
                if last or connection is None or not _is_lost(connection, error):
                    _log.debug("other processes see a commit at their next look: %s", error)
                    return
                self._pool.check()  # after a restart of the server all idle connections are lost
            else:
                return

    def _listen(self) -> _Connection:
        connection = psycopg.connect(self.url, autocommit=True, **_LOGIN)
        connection.execute(_query(";".join(f"LISTEN {channel}" for channel in self._channels.values())))
        return connection

    def send(self, connection: _Connection, statements: Sequence[Statement[...]], message: str) -> psycopg.Cursor[Row]:
        """Send a message that EXECUTEs statements; it PREPAREs first what this connection has not seen yet.

        So the first use of a statement takes one round trip too. After an error it is not known which statements of the
        message are prepared: the next message first gives up all of the connection's.
        """
        known = self._prepared.get(connection)
        missing = {s.name: s for s in statements if known is None or s.name not in known}
        if not missing:
            return connection.execute(_query(message))
        self._prepared.pop(connection, None)
        before = [] if known else ["DEALLOCATE ALL"]
        for name, statement in missing.items():
            statement.text(Dialect.POSTGRES)
            before.append(f'PREPARE "{name}" AS {statement.positional}')
        cursor = connection.execute(_query(";".join((*before, message))))
        self._prepared[connection] = {*(known or ()), *missing}
        for _ in before:
            cursor.nextset()
        return cursor

    def _configure(self, connection: _Connection) -> None:
        connection.execute(_SETTINGS)

    def _repeated(self, attempt: Callable[[_Connection], T], retried: tuple[type[psycopg.Error], ...] = _RETRIED) -> T:
        give_up_at = self.world.clock.monotonic() + RETRY_FOR
        losses = 0
        while True:
            connection: _Connection | None = None
            proved = False
            with self._translated():
                try:
                    with self._lender.lend() as connection:
                        if losses:
                            connection.execute("SELECT 1")
                        proved = True
                        return attempt(connection)
                except retried:
                    if self.world.clock.monotonic() > give_up_at:
                        raise
                except psycopg.Error as error:
                    # Lost before its COMMIT was sent, so nothing happened. After a restart of the server all idle
                    # connections are like this one: let the pool look at them, and try a fresh one. A connection that
                    # died while the pool opened it never answers, and counts as no loss.
                    if connection is None or not _is_lost(connection, error):
                        raise
                    losses += proved
                    if losses > _FRESH_TRIES or (not proved and self.world.clock.monotonic() > give_up_at):
                        raise CatalogUnavailable(self.shown_url, _first_line(error)) from error
                    self._pool.check()
            self.world.clock.sleep(self.world.between(*_WAIT))

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout) as error:
            raise CatalogUnavailable(self.shown_url, _first_line(error)) from error
        except psycopg.Error as error:
            if error.sqlstate == _REFUSED:
                raise refused(str(error.diag.message_primary), json.loads(error.diag.message_detail or "[]")) from None
            if _is_unstorable(error):
                raise UnstorableText(str(error.diag.context)) from error
            raise


class _PostgresDb(Db):
    def __init__(self, catalog: PostgresCatalog, connection: _Connection, opening: str = "") -> None:
        super().__init__()
        self._catalog = catalog
        self._connection = connection
        self._opening = opening
        """The begin of the transaction, until the message of the first statement takes it along."""

    @property
    def begun(self) -> bool:
        """True if the transaction has begun."""
        return not self._opening

    def now(self) -> datetime:
        return from_ms(self._number("SELECT tidemill_now()"))

    def _tick(self) -> CommitSeq:
        return CommitSeq(self._number(_TICK))

    def _number(self, query: str) -> int:
        opening = self._take_opening()
        cursor = self._connection.execute(_query(f"{opening}{query}"))
        if opening:
            cursor.nextset()
        row = cursor.fetchone()
        assert row is not None  # noqa: S101  # a function gives one row
        return int(str(row[0]))

    def _take_opening(self) -> str:
        opening, self._opening = self._opening, ""
        return opening

    def _execute(self, call: Call) -> tuple[list[Row], int]:
        text = execute_text(call)  # refuses values that cannot be stored, before anything is begun
        opening = self._take_opening()
        cursor = self._catalog.send(self._connection, [call.statement], f"{opening}{text}")
        if opening:
            cursor.nextset()
        rows = cursor.fetchall() if cursor.description else []
        return rows, max(cursor.rowcount, 0)


def _query(text: str) -> sql.SQL:
    # Our own SQL, which psycopg would only take as a literal of the source.
    return cast("sql.SQL", text)


def _is_lost(connection: _Connection, error: psycopg.Error) -> bool:
    return connection.broken or isinstance(
        error, pg.AdminShutdown | pg.CrashShutdown | pg.IdleInTransactionSessionTimeout
    )


def _content(connection: _Connection) -> list[str]:
    """The tables of the catalog without the versions of its schema."""
    query = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema() ORDER BY tablename"
    return [str(row[0]) for row in connection.execute(query) if row[0] != "migration"]


def _channel(connection: _Connection) -> str:
    """The channel of this catalog: those of other schemas have their own."""
    row = connection.execute("SELECT quote_ident('tidemill_' || current_schema())").fetchone()
    if row is None or row[0] is None:
        raise psycopg.OperationalError("the schema named in the search path does not exist: create it first")
    return str(row[0])


def execute_text(call: Call) -> str:
    """The EXECUTE of a prepared statement with its parameters as literals."""
    values = (call.params[name] for name in call.statement.parameters)
    literals = ", ".join(_literal(_json_of(value) if isinstance(value, RowSet) else value) for value in values)
    return f'EXECUTE "{call.statement.name}"({literals})' if literals else f'EXECUTE "{call.statement.name}"'


@lru_cache(maxsize=1)
def _json_of(rows: RowSet) -> str:
    # Several statements of one commit have the same rows.
    return to_json([dict(zip(rows.columns, row, strict=True)) for row in rows.rows])


def _literal(value: Stored | datetime | timedelta) -> str:
    match value:
        case None:
            return "NULL"
        case bytes():
            return f"'\\x{value.hex()}'"
        case int() if -GREATEST <= value <= GREATEST:
            return str(int(value))
        case str() if _PLAIN.fullmatch(value):
            return f"'{value}'"
        case str() | int():
            # quote() costs seven times as much, for what most values do not have.
            check_values([value])
            return sql.quote(value)
        case datetime() | timedelta():
            return str(to_stored(value))


def _is_unstorable(error: psycopg.Error) -> bool:
    """Return whether a list of texts, which is a JSON parameter, holds a NUL or half of a surrogate pair."""
    surrogate = isinstance(error, pg.InvalidTextRepresentation) and "surrogate" in str(error.diag.message_detail)
    return surrogate or isinstance(error, pg.UntranslatableCharacter)


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
