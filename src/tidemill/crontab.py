"""Cron expressions: at which instants a zone's wall clock shows a time that one names.

A time of the day in the gap that a clock leaves when it is put forward comes at the gap's end; one that the clock shows
twice comes the first time: so a daily expression comes once for each local day. Only what names every hour (`*/15 * * *
* `) goes by the time that passes, and so through both hours that bear one name. (cronsim alone, as Debian's cron,
decides by a star at the begin of a field: `0 */2 * * *` then misses a gap and comes twice afterwards, `* 2 * * *` too.)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from tidemill.names import advise, nearest
from tidemill.zones import BadZone, find_change, first_instant, offset_at, offsets, read_zone

_SECOND: Final = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
_REMEMBERED: Final = 2  # instants of an expression after one time
_ALL_HOURS: Final = frozenset(range(24))
_LOOKED_FROM: Final = datetime(2000, 1, 1)  # noqa: DTZ001  # a wall clock's time, of whatever zone

_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    allowed: str
    names: tuple[str, ...] = ()


_FIELDS: Final = (
    _Field("second", "0 to 59"),
    _Field("minute", "0 to 59"),
    _Field("hour", "0 to 23"),
    _Field("day of the month", "1 to 31, L (the last) or LW (the last weekday)"),
    _Field("month", "1 to 12 or JAN to DEC", _MONTHS),
    _Field("day of the week", "0 to 7 or SUN to SAT, 5L (the last Friday), MON#1 (the first Monday)", _WEEKDAYS),
)


class BadExpression(ValueError):
    """An expression or a zone that cannot be; its text says which part of it, where, and what may stand there."""


@dataclass(frozen=True, slots=True)
class Crontab:
    """The instants of a cron expression in a zone. Valid by `read_crontab`."""

    expression: str
    zone: ZoneInfo
    every_hour: bool

    def fires_after(self, after: datetime) -> Iterator[datetime]:
        """The instants after `after`, in order, in UTC, without end. Cost: some 20 µs each.

        The first two are remembered: thousands of schedules with one expression are due in one instant, and each needs
        that instant and the next.
        """
        fires = _find_first(self, after)
        yield from fires
        if len(fires) == _REMEMBERED:
            yield from self.search(fires[-1])

    def search(self, after: datetime) -> Iterator[datetime]:
        """Search the instants after `after` without remembering them, as `fires_after` gives them."""
        last = after.replace(microsecond=0)
        # A wall time that is not later than the one shown at `after` has come by then.
        for wall in CronSim(self.expression, after.astimezone(self.zone).replace(tzinfo=None)):
            fire = self._instant(wall)
            if fire is not None and fire <= last and self.every_hour:
                fire = self._second_instant(wall)
            if fire is None or fire <= last:
                continue
            if self.every_hour:
                yield from self._shown_again(last, fire)
            yield fire
            last = fire

    def _instant(self, wall: datetime) -> datetime | None:
        """Return the instant at which the clock first shows `wall`, or the end of the gap in its place.

        None if there is neither.
        """
        before, after = offsets(self.zone, wall)
        # It is never shown: nothing of every hour is missing then, and no day, if a whole one is left out.
        if before < after and (self.every_hour or _is_left_out(self.zone, wall.date())):
            return None
        return first_instant(self.zone, wall)

    def _second_instant(self, wall: datetime) -> datetime:
        """Return the instant at which the clock shows `wall` for the last time."""
        return (wall - offsets(self.zone, wall)[1]).replace(tzinfo=UTC)

    def _shown_again(self, last: datetime, fire: datetime) -> Iterator[datetime]:
        """The instants between two that follow each other by name, at which the clock shows a time again."""
        until = min(fire, last + _DAY)
        old, new = offset_at(self.zone, last), offset_at(self.zone, until)
        if old <= new:
            return
        change = find_change(self.zone, last, until).replace(tzinfo=None)
        again = takewhile(lambda wall: wall < change + old, CronSim(self.expression, change + new - _SECOND))
        for wall in again:
            instant = (wall - new).replace(tzinfo=UTC)
            if last < instant < fire:
                yield instant


@lru_cache(maxsize=1024)
def _find_first(crontab: Crontab, after: datetime) -> tuple[datetime, ...]:
    return tuple(islice(crontab.search(after), _REMEMBERED))


@lru_cache(maxsize=1024)
def read_crontab(expression: str, zone: str) -> Crontab:
    """Check an expression of five fields (six with seconds first) or a name as `@daily`; raise `BadExpression`."""
    plain = _MACROS.get(expression.strip().lower(), expression)
    if plain.startswith("@"):
        raise BadExpression(_unknown(expression))
    fields = [(match.group(), match.start() + 1) for match in re.finditer(r"\S+", plain)]
    if len(fields) not in {5, 6}:
        wanted = "five fields (minute hour day-of-month month day-of-week), or six with seconds first"
        raise BadExpression(f"it has {len(fields)} fields; {wanted}, are wanted")
    _check_fields(fields)
    try:
        simulated = CronSim(plain, _LOOKED_FROM)
        next(simulated)
    except (CronSimError, StopIteration):
        raise BadExpression("no day is like that: look at day of the month and month together") from None
    return Crontab(plain, _read_zone(zone), simulated.hours == _ALL_HOURS)


def _check_fields(fields: Sequence[tuple[str, int]]) -> None:
    kinds = _FIELDS[len(_FIELDS) - len(fields) :]
    for number, (kind, (text, column)) in enumerate(zip(kinds, fields, strict=True), start=1):
        # Every other field holds whatever it may, so that only this one can be at fault.
        others = ["*"] * len(_FIELDS)
        others[_FIELDS.index(kind)] = text
        try:
            CronSim(" ".join(others), _LOOKED_FROM)
        except CronSimError:
            words = re.findall(r"[A-Z]{2,}", text.upper()) if kind.names else []
            close = [near for word in words if word not in kind.names and (near := nearest(word, kind.names))]
            advice = f"did you mean {close[0]}?" if close else f"use {kind.allowed}"
            where = f"field {number}, at column {column}"
            raise BadExpression(f"{kind.name} {text!r} ({where}) cannot be; {advice}") from None


def _read_zone(name: str) -> ZoneInfo:
    try:
        return read_zone(name)
    except BadZone as error:
        raise BadExpression(str(error)) from None


def _unknown(given: str) -> str:
    usual = f"use {', '.join(_MACROS)}"
    return f"there is no name {given!r}; {advise(given, _MACROS, usual)}"


def _is_left_out(zone: ZoneInfo, day: date) -> bool:
    """Return whether the zone left out that day, as Samoa did 30 December 2011."""
    return all(
        before < after for before, after in (offsets(zone, datetime.combine(day, at)) for at in (time.min, time.max))
    )
