"""A wall clock of the test's own for catalogs on both databases, and a way behind the product's back."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import apsw
import psycopg

from tidemill.durations import parse_duration

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)

Backdoor: TypeAlias = Callable[[str], list[tuple[object, ...]]]


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


class ManualClock:
    """A wall clock that stands still until the test moves it, on both databases; waiting is real."""

    def __init__(self) -> None:
        self.at = NOON
        self._postgres: Backdoor | None = None

    def rule(self, backdoor: Backdoor, dialect: str) -> None:
        """Let a catalog on PostgreSQL ask this clock as well: its function reads a row of the test's."""
        if dialect == "sqlite":
            return
        backdoor("CREATE TABLE manual_clock (at BIGINT)")
        backdoor("INSERT INTO manual_clock VALUES (0)")
        backdoor(
            "CREATE OR REPLACE FUNCTION tidemill_now() RETURNS BIGINT LANGUAGE sql VOLATILE "
            "AS 'SELECT at FROM manual_clock'"
        )
        self._postgres = backdoor
        self.move("0s")

    def move(self, duration: str) -> None:
        """Let `duration` pass."""
        self._set(self.at + parse_duration(duration))

    def set_back(self, duration: str) -> None:
        """Set the clock back by `duration`, as an administrator does."""
        self._set(self.at - parse_duration(duration))

    def _set(self, at: datetime) -> None:
        self.at = at
        if self._postgres is not None:
            self._postgres(f"UPDATE manual_clock SET at = {int(self.at.timestamp() * 1000)}")

    def now(self) -> datetime:
        """The test's time."""
        return self.at

    def monotonic(self) -> timedelta:
        """Stands still as well: nothing gives up."""
        return timedelta(0)

    def sleep(self, duration: timedelta) -> None:
        """For real: threads of a test wait for each other's locks."""
        time.sleep(duration.total_seconds())
