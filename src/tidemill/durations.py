"""Durations as people write them: text with units (`"4h"`, `"1h30m"`, `"15 min"`, `"7 days"`), never bare numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from tidemill.errors import UserError

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "year": ("year", "years", "y"),
    "month": ("month", "months"),
    "week": ("week", "weeks", "w"),
    "d": ("d", "day", "days"),
    "h": ("h", "hour", "hours"),
    "m": ("m", "min", "mins", "minute", "minutes"),
    "s": ("s", "sec", "secs", "second", "seconds"),
    "ms": ("ms", "milli", "millis", "millisecond", "milliseconds"),
    "us": ("us", "micro", "micros", "microsecond", "microseconds"),
    "ns": ("ns", "nano", "nanos", "nanosecond", "nanoseconds"),
}
"""Units of durations, from the longest on, as people and Flink write them."""
_UNIT_BY_NAME: Final = {name: unit for unit, names in _NAMES.items() for name in names}
_UNITS: Final = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_PART: Final = re.compile(r"\s*([0-9]{1,9})\s*([a-zA-Z]+)\s*")
_LONGEST: Final = timedelta(days=36_500)
_SHORTEST_LEASE: Final = _UNITS["s"] * 5
_LONGEST_LEASE: Final = _UNITS["h"]


class BadDuration(UserError):
    """Something that is not a duration with units."""

    code = "bad_duration"

    def __init__(self, given: object) -> None:
        self.given = repr(given)
        super().__init__(
            f"duration {given!r} is refused",
            "use text with units, as '4h', '15 min', '90s', '1h30m' or '7 days' (weeks, days, hours, minutes, "
            "seconds, ms in this order, at most a century), or a timedelta of whole milliseconds",
            before=": ",
        )


class BadLease(UserError):
    """A lease that is too short for the steps it covers, or so long that a dead owner holds others up."""

    code = "bad_lease"

    def __init__(self, given: str | timedelta) -> None:
        self.given = format_duration(given) if isinstance(given, timedelta) else given
        super().__init__(
            f"lease {self.given} is refused",
            "use a duration from 5s to 1h; work that takes longer renews its lease",
            before=": ",
        )


class BadKeeping(UserError):
    """A time of zero for which something is to be kept."""

    code = "bad_keeping"

    def __init__(self, given: str | timedelta) -> None:
        self.given = format_duration(given) if isinstance(given, timedelta) else given
        super().__init__(
            f"time to keep {self.given} is refused",
            "use a duration such as 7d: what is kept for no time is lost at once",
            before=": ",
        )


def split_duration(text: str) -> list[tuple[int, str]] | None:
    """Give the numbers in `text` with their units (`1h30m`, `90 min`, `1 day`), the longest unit first.

    Units are `year`, `month`, `week`, `d`, `h`, `m`, `s`, `ms`, `us` and `ns`, each once; None for any other text.
    """
    parts: list[tuple[int, str]] = []
    place, order = 0, list(_NAMES)
    while place < len(text) and (match := _PART.match(text, place)):
        # A capital M is a month to one reader and a minute to the next.
        unit = None if match[2] == "M" else _UNIT_BY_NAME.get(match[2].lower())
        if unit is None or (parts and order.index(unit) <= order.index(parts[-1][1])):
            return None
        parts.append((int(match[1]), unit))
        place = match.end()
    return parts if parts and place == len(text) else None


def parse_duration(given: str | timedelta) -> timedelta:
    """Give the duration that `given` says, in whole milliseconds, zero to a century; raise `BadDuration` otherwise."""
    found = given if isinstance(given, timedelta) else _to_timedelta(given)
    if found is None or not timedelta(0) <= found <= _LONGEST or found % _UNITS["ms"]:
        raise BadDuration(given)
    return found


def _to_timedelta(given: object) -> timedelta | None:
    parts = split_duration(given) if isinstance(given, str) else None
    lengths = {**_UNITS, "week": timedelta(weeks=1), "us": timedelta(microseconds=1)}
    if parts is None or any(unit not in lengths for _, unit in parts):
        return None
    try:
        return sum((number * lengths[unit] for number, unit in parts), timedelta(0))
    except OverflowError:
        return None


def parse_lease(given: str | timedelta) -> timedelta:
    """Give the lease that `given` says, five seconds to one hour; raise `BadLease` or `BadDuration` otherwise."""
    if not _SHORTEST_LEASE <= (lease := parse_duration(given)) <= _LONGEST_LEASE:
        raise BadLease(given)
    return lease


def parse_keeping(given: str | timedelta) -> timedelta:
    """Give the time for which something is kept; raise `BadKeeping` for no time, or `BadDuration`."""
    if not (keeping := parse_duration(given)):
        raise BadKeeping(given)
    return keeping


def format_duration(duration: timedelta) -> str:
    """Give the shortest text that `parse_duration` reads as `duration`: `1h30m`, `0s`."""
    text, left = "", duration
    for unit, length in _UNITS.items():
        number, left = divmod(left, length)
        if number:
            text += f"{number}{unit}"
    return text or "0s"
