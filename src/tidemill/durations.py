"""Durations as people write them: text with units (`"4h"`, `"1h30m"`, `"7d"`), never bare numbers."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from tidemill.errors import UserError

_UNITS: Final = {
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_PART = r"(?:(?P<{name}>[0-9]{{1,8}}){unit})?"
_DURATION: Final = re.compile("".join(_PART.format(name=unit, unit=unit) for unit in _UNITS))
_LONGEST: Final = timedelta(days=36_500)
_SHORTEST_LEASE: Final = _UNITS["s"] * 5
_LONGEST_LEASE: Final = _UNITS["h"]


class BadDuration(UserError):
    """Something that is not a duration with units."""

    code = "bad_duration"

    def __init__(self, given: object) -> None:
        self.given = repr(given)
        super().__init__(
            f"duration {given!r} is refused: use text with units, as '4h', '30m', '90s', '1h30m' or '7d' "
            "(days, hours, minutes, seconds, ms in this order, at most a century), or a timedelta of whole milliseconds"
        )


class BadLease(UserError):
    """A lease that is too short for the steps it covers, or so long that a dead owner holds others up."""

    code = "bad_lease"

    def __init__(self, given: str | timedelta) -> None:
        self.given = format_duration(given) if isinstance(given, timedelta) else given
        super().__init__(
            f"lease {self.given} is refused: use a duration from 5s to 1h; work that takes longer renews its lease"
        )


def parse_duration(given: str | timedelta) -> timedelta:
    """Give the duration that `given` says, in whole milliseconds, zero to a century; raise `BadDuration` otherwise."""
    if isinstance(given, timedelta):
        found = given
    elif isinstance(given, str) and given and (match := _DURATION.fullmatch(given)):
        found = sum((int(match[unit] or 0) * length for unit, length in _UNITS.items()), timedelta(0))
    else:
        raise BadDuration(given)
    if not timedelta(0) <= found <= _LONGEST or found % _UNITS["ms"]:
        raise BadDuration(given)
    return found


def parse_lease(given: str | timedelta) -> timedelta:
    """Give the lease that `given` says, five seconds to one hour; raise `BadLease` or `BadDuration` otherwise."""
    if not _SHORTEST_LEASE <= (lease := parse_duration(given)) <= _LONGEST_LEASE:
        raise BadLease(given)
    return lease


def format_duration(duration: timedelta) -> str:
    """Give the shortest text that `parse_duration` reads as `duration`: `1h30m`, `0s`."""
    text, left = "", duration
    for unit, length in _UNITS.items():
        number, left = divmod(left, length)
        if number:
            text += f"{number}{unit}"
    return text or "0s"


def to_milliseconds(duration: timedelta) -> int:
    """Whole milliseconds of `duration`, as the catalog stores them."""
    return duration // _UNITS["ms"]
