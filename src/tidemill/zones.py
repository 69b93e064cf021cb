"""Time zones: their offsets, and the instants at which their clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from tidemill.names import advise

_SECOND: Final = timedelta(seconds=1)


class BadZone(ValueError):
    """A name of a time zone that is not known; the text suggests another name."""


def read_zone(name: str) -> ZoneInfo:
    """Return the zone of that name; raise `BadZone`."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        advice = advise(name, sorted(available_timezones()), "use one as Europe/Berlin, or UTC")
        raise BadZone(f"there is no zone {name!r}; {advice}") from None


def offsets(zone: ZoneInfo, wall: datetime) -> tuple[timedelta, timedelta]:
    """Return the offsets of `wall` by the rules before and after a clock change; unequal only near a change."""
    return _known(wall.replace(tzinfo=zone).utcoffset()), _known(wall.replace(tzinfo=zone, fold=1).utcoffset())


def offset_at(zone: ZoneInfo, instant: datetime) -> timedelta:
    """Return the offset of the zone at an instant."""
    return _known(instant.astimezone(zone).utcoffset())


def first_instant(zone: ZoneInfo, wall: datetime) -> datetime:
    """Return the instant at which the clock first shows `wall`; if the clock leaves it out, the end of the gap."""
    before, after = offsets(zone, wall)
    if before >= after:
        return (wall - before).replace(tzinfo=UTC)
    return find_change(zone, (wall - after).replace(tzinfo=UTC), (wall - before).replace(tzinfo=UTC))


def find_change(zone: ZoneInfo, low: datetime, high: datetime) -> datetime:
    """Return the first instant with another offset than that at `low`, to the second; at `high` it is another."""
    old = offset_at(zone, low)
    while high - low > _SECOND:
        middle = low + (high - low) // 2 // _SECOND * _SECOND
        if offset_at(zone, middle) == old:
            low = middle
        else:
            high = middle
    return high


def _known(offset: timedelta | None) -> timedelta:
    assert offset is not None  # noqa: S101  # zones know theirs
    return offset
