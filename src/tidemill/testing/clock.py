"""A clock that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from tidemill.durations import parse_duration
from tidemill.epoch import to_ms

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""The time at which a virtual clock starts."""

Backdoor: TypeAlias = Callable[[str], list[tuple[object, ...]]]
"""Run a statement on a connection that is not the product's."""


class VirtualClock:
    """A wall clock that may jump and a monotonic clock that does not; both stand still until a test moves them."""

    def __init__(self, start: datetime = NOON) -> None:
        self._start = start
        self.at = start
        """The time of the wall clock."""
        self.elapsed = timedelta(0)
        """The time of the monotonic clock."""
        self._postgres: Backdoor | None = None

    def rule(self, backdoor: Backdoor, dialect: str) -> None:
        """Make a catalog on PostgreSQL ask this clock: its `tidemill_now()` reads a row that `backdoor` keeps."""
        if dialect == "sqlite":
            return
        backdoor("CREATE TABLE manual_clock (at BIGINT)")
        backdoor("INSERT INTO manual_clock VALUES (0)")
        backdoor(
            "CREATE OR REPLACE FUNCTION tidemill_now() RETURNS BIGINT LANGUAGE sql VOLATILE "
            "AS 'SELECT at FROM manual_clock'"
        )
        self._postgres = backdoor
        self.jump(timedelta(0))

    def pass_by(self, duration: timedelta) -> None:
        """Let `duration` pass on both clocks."""
        self.elapsed += duration
        self.jump(duration)

    def jump(self, duration: timedelta) -> None:
        """Set the wall clock forward or back by `duration`."""
        self.at += duration
        if self._postgres is not None:
            self._postgres(f"UPDATE manual_clock SET at = {to_ms(self.at)}")

    def move(self, duration: str) -> None:
        """Set the wall clock forward by a duration such as `90s`."""
        self.jump(parse_duration(duration))

    def set_back(self, duration: str) -> None:
        """Set the wall clock back by a duration such as `90s`, as an administrator does."""
        self.jump(-parse_duration(duration))

    def start_again(self) -> None:
        """Set both clocks to their start."""
        self.at, self.elapsed = self._start, timedelta(0)

    def now(self) -> datetime:
        """Return the time of the wall clock."""
        return self.at

    def monotonic(self) -> timedelta:
        """Return the time of the monotonic clock."""
        return self.elapsed

    def sleep(self, duration: timedelta) -> None:
        """Let `duration` pass at once."""
        self.pass_by(duration)
