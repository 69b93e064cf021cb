"""Connections to PostgreSQL for the threads of a process: few while it is idle, more while it works."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    import psycopg
    from psycopg_pool import ConnectionPool

    from tidemill.catalog.named import Row

    Connection: TypeAlias = psycopg.Connection[Row]

FEW: Final = 3
"""The most connections of an idle process, besides the one that listens."""
_MOMENT: Final = timedelta(milliseconds=5)


class Lender:
    """Lends the connections of `pool`, each to one thread at a time.

    By itself, the pool opens another connection as soon as it has none left. It closes one only if one was left at all
    times of the last ten minutes. The loops of an idle process ask at the same moments, so the process kept a
    connection for each loop. Here one of the connections is left, or they are few: the thread that would take the last
    one waits for a `moment` until another thread returns its connection.
    """

    def __init__(self, pool: ConnectionPool[Connection], moment: timedelta = _MOMENT) -> None:
        self.pool = pool
        self._moment = moment.total_seconds()
        self._lent = 0
        self._returned = threading.Condition()

    @contextmanager
    def lend(self, timeout: timedelta | None = None) -> Iterator[Connection]:
        """Lend a connection for a block. `psycopg_pool.PoolTimeout` if there is none within `timeout`."""
        with self._returned:
            self._returned.wait_for(self._may_lend, self._moment)
            self._lent += 1
        try:
            with self.pool.connection(None if timeout is None else timeout.total_seconds()) as connection:
                yield connection
        finally:
            # Not before the pool has the connection: it would open another one for the next thread.
            with self._returned:
                self._lent -= 1
                self._returned.notify()

    def _may_lend(self) -> bool:
        return self._lent < FEW or self._lent < self.pool.get_stats().get("pool_size", 0) - 1
