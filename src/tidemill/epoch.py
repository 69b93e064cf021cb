"""Moments as whole numbers since 1970, in UTC: milliseconds in the catalog, microseconds of partitions and files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MILLISECOND: Final = timedelta(milliseconds=1)
_MICROSECOND: Final = timedelta(microseconds=1)


def to_ms(moment: datetime) -> int:
    """The millisecond in which `moment`, which is aware, lies."""
    since = moment - EPOCH  # taken apart, which is faster than to divide it: files are listed by the million
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def floor_ms(moment: datetime) -> datetime:
    """Return the begin of the millisecond in which `moment` lies: what the catalog knows of it."""
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


@lru_cache(maxsize=1024)
def show_time(moment: datetime) -> str:
    """Return `moment`, which is aware, as all output shows times: ISO 8601 in UTC, in milliseconds. Cached as below."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@lru_cache(maxsize=1024)
def show_second(moment: datetime) -> str:
    """Return `moment`, which is aware, in UTC to the second. Cached: thousands of schedules are due at one time."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def from_ms(milliseconds: int) -> datetime:
    """The moment, aware, in UTC."""
    return EPOCH + milliseconds * _MILLISECOND


def to_micros(moment: datetime) -> int:
    """Return the microsecond of `moment`, which is aware."""
    return (moment - EPOCH) // _MICROSECOND


def from_micros(microseconds: int) -> datetime:
    """Return the moment, aware, in UTC; `OverflowError` outside the years 1 to 9999."""
    return EPOCH + timedelta(microseconds=microseconds)
