"""A virtual clock for tests with threads, and a way behind the product's back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from datetime import timedelta

import apsw
import psycopg

from tidemill.testing.clock import Backdoor, VirtualClock


@contextlib.contextmanager
def backdoor_of(catalog_url: str) -> Iterator[Backdoor]:
    """Run statements on a connection that is not the product's."""
    if catalog_url.startswith("sqlite"):
        with contextlib.closing(apsw.Connection(catalog_url.removeprefix("sqlite:///"))) as connection:
            yield lambda statement: connection.execute(statement).fetchall()
        return
    with psycopg.connect(catalog_url, autocommit=True) as connection:

        def run(statement: str) -> list[tuple[object, ...]]:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

        yield run


class ManualClock(VirtualClock):
    """A virtual clock on which waiting is real: threads of a test wait for the locks of other threads."""

    def monotonic(self) -> timedelta:
        """Stand still: nothing times out."""
        return timedelta(0)

    def sleep(self, duration: timedelta) -> None:
        """Block this thread for `duration`."""
        time.sleep(duration.total_seconds())
