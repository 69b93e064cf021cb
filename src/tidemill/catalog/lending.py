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
_MOMENT: Final = timedelta(milliseconds=20)


class Lender:
    """Lends the connections of `pool`, each to one thread at a time.

    The pool opens another connection as soon as it has none left, and keeps that connection while all of them are in
    use together once in ten minutes. The loops of an idle process ask at the same moments, so each of them had its own.
    Here up to `FEW` threads get a connection at once. Any further one waits for a `moment` until a connection comes
    back, before the pool opens another.
    """

    def __init__(self, pool: ConnectionPool[Connection], moment: timedelta = _MOMENT) -> None:
        self.pool = pool
        self._moment = moment.total_seconds()
        self._few = threading.Semaphore(FEW)

    @contextmanager
    def lend(self, timeout: timedelta | None = None) -> Iterator[Connection]:
        """Lend a connection for a block. `psycopg_pool.PoolTimeout` if there is none within `timeout`."""
        is_of_few = self._few.acquire(blocking=False)
        if not is_of_few and not self.pool.get_stats().get("pool_available"):
            is_of_few = self._few.acquire(timeout=self._moment)
        try:
            with self.pool.connection(None if timeout is None else timeout.total_seconds()) as connection:
                yield connection
        finally:
            if is_of_few:
                self._few.release()
