"""Partition time: what time a partition's key says, and which instants its rows belong to (seed 003). Pure.

A partition time is a wall-clock time in the zone of its file set; its span is `[p, p + interval)` on that wall clock.
What counts for rows and watermarks are instants: `opens(x)` is the first instant whose local time is at least x,
`closes(x)` the first after which no instant has a local time before x. So days of 23 and 25 hours, hours that happen
twice or never, and Lord Howe's half hours are right without special cases. Instants and wall-clock times are whole
microseconds (of a wall-clock time as if it were UTC's).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NewType
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from tidemill.durations import split_duration
from tidemill.epoch import from_micros
from tidemill.names import advise, nearest
from tidemill.shapes.custom_time import read_custom
from tidemill.shapes.keys import Key, KeySchema, KeyValue
from tidemill.shapes.time_formats import DEFAULT_FORMATTER, BadPartitionTime, check_formatter, read_time

Instant = NewType("Instant", int)
"""Microseconds since 1970-01-01T00:00Z."""
WallTime = NewType("WallTime", int)
"""Microseconds from 1970-01-01 00:00 to a wall-clock time, as if each day had 24 hours."""

_UTC: Final = "UTC"
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # a wall-clock time
_MICROSECOND: Final = timedelta(microseconds=1)
_MICROS: Final = {
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
    "week": 7 * 86_400_000_000,
}
_DAY: Final = _MICROS["d"]
_MONTHS: Final = {"month": 1, "year": 12}
_MOST_EMPTY: Final = 10_000
"""Empty spans skipped in search of the next one: a gap of a day in steps of ten seconds."""


def to_wall(local: datetime) -> WallTime:
    """A naive time as the catalog keeps it."""
    return WallTime((local - _EPOCH) // _MICROSECOND)


def from_wall(wall: int) -> datetime:
    """The naive time that `to_wall` has stored; `OverflowError` outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=wall)


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone of the IANA database."""

    name: str

    def __post_init__(self) -> None:
        """Refuse a name that is no zone."""
        try:
            _info(self.name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            advice = advise(self.name, available_timezones(), "use a name like Europe/Berlin")
            raise BadPartitionTime("time zone", self.name, f"there is no such zone; {advice}") from None

    def local(self, instant: int) -> datetime:
        """The wall-clock time at `instant`, naive."""
        if self.name == _UTC:
            return from_wall(instant)
        return from_micros(instant).astimezone(_info(self.name)).replace(tzinfo=None, fold=0)

    def opens(self, local: datetime) -> Instant:
        """The first instant whose local time is at least `local`."""
        first, second = self._instants(local)
        return first if first <= second else self._change(second, first)

    def closes(self, local: datetime) -> Instant:
        """The first instant after which no instant has a local time before `local`."""
        first, second = self._instants(local)
        if first == second:
            return first
        if first > second:  # in a gap
            return self._change(second, first)
        # It happens twice. At the very beginning of the doubled stretch the clock never falls below it again.
        return first if self.local(self._change(first, second)) == local else second

    def _instants(self, local: datetime) -> tuple[Instant, Instant]:
        info, wall = _info(self.name), to_wall(local)
        if self.name == _UTC:  # the zone of most tables, and ten thousands of times are read in one go
            return Instant(wall), Instant(wall)
        offsets = (info.utcoffset(local.replace(fold=fold)) or timedelta(0) for fold in (0, 1))
        first, second = (Instant(wall - offset // _MICROSECOND) for offset in offsets)
        return first, second

    def _change(self, low: Instant, high: Instant) -> Instant:
        """The instant in (low, high] at which the clocks were changed."""
        before, left, right = self._offset(low), int(low), int(high)
        while right - left > 1:
            middle = (left + right) // 2
            left, right = (middle, right) if self._offset(middle) == before else (left, middle)
        return Instant(right)

    def _offset(self, instant: int) -> int:
        return to_wall(self.local(instant)) - instant


@lru_cache(maxsize=1000)
def _info(name: str) -> ZoneInfo:
    return ZoneInfo(name)


@dataclass(frozen=True, slots=True)
class Interval:
    """A step on the wall clock: so many microseconds (a day has 24 hours there), or so many months."""

    months: int
    micros: int

    @classmethod
    def parse(cls, text: str) -> Interval:
        """Read `1h`, `1h30m`, `30 min`, `1 day`, `1 month`, …; `BadPartitionTime` for anything else, zero among it."""
        parts = split_duration(text)
        if parts is None:
            advice = "use a number and a unit, as '1h', '30 min', '1 day', '1 week', '1 month' or '1 year'"
            if re.search(r"\d{10}", text):
                advice += ". A number has 9 digits at most"
            raise BadPartitionTime("interval", text, advice)
        months = sum(number * _MONTHS[unit] for number, unit in parts if unit in _MONTHS)
        nanos = sum(number for number, unit in parts if unit == "ns")
        micros = sum(number * _MICROS[unit] for number, unit in parts if unit in _MICROS)
        if nanos % 1000:
            raise BadPartitionTime("interval", text, "times have whole microseconds here")
        if months and (micros or nanos):
            raise BadPartitionTime("interval", text, "months differ in length: use months and years alone, or neither")
        if not (months or micros or nanos):
            raise BadPartitionTime("interval", text, "it must be longer than nothing")
        return cls(months, micros + nanos // 1000)

    def after(self, local: datetime) -> datetime:
        """`local` plus one interval; the 31st becomes the last day of a shorter month. `OverflowError`."""
        if not self.months:
            return local + timedelta(microseconds=self.micros)
        years, month = divmod(local.month - 1 + self.months, 12)
        if local.year + years > 9999:
            raise OverflowError(local)
        for day in (local.day, 30, 29, 28):
            try:
                return local.replace(year=local.year + years, month=month + 1, day=day)
            except ValueError:
                continue
        raise OverflowError(local)  # cannot happen: every month has 28 days

    @property
    def longest(self) -> timedelta:
        """Length of the longest interval."""
        return timedelta(days=31 * self.months, microseconds=self.micros)


@dataclass(frozen=True, slots=True)
class Span:
    """The time slot of a partition: its time, the instants `[begins, ends)` of its rows, and the slot that follows."""

    time: WallTime
    begins: Instant
    ends: Instant
    next_time: WallTime


@dataclass(frozen=True, slots=True)
class Extractor:
    """Finds the time in a partition's key: fills `pattern` with the key's values and reads it by `formatter`.

    In the pattern `$name` and `${name}` stand for values, the longest name first; without one it is the first key's
    value. `formatter` has Java's letters; without one `y-M-d`, with or without ` H:m:s` and a fraction. In the place
    of both, `custom` names a function of the project.
    """

    keys: KeySchema
    pattern: str | None = None
    formatter: str | None = None
    custom: str | None = None

    def __post_init__(self) -> None:
        """Refuse a key that is not there and a formatter that does not give one time."""
        if self.pattern is not None:
            _split_pattern(self.pattern, self.keys.names)
        if self.formatter is not None:
            check_formatter(self.formatter)

    def find(self, key: Key, zone: Zone) -> datetime | None:
        """The time of `key`, naive; None when it has none that can be read."""
        if self.custom is None:
            return read_time(self.formatter or DEFAULT_FORMATTER, self._fill(key, zone))
        try:
            return read_custom(self.custom, dict(zip(self.keys.names, key, strict=True)))
        except BadPartitionTime:
            return None

    def explain(self, key: Key, zone: Zone) -> str:
        """Say why `find` gives no time for `key`; empty if it gives one."""
        if self.custom is not None:
            try:
                read_custom(self.custom, dict(zip(self.keys.names, key, strict=True)))
            except BadPartitionTime as error:
                return f"{self.custom}: {error.why}"
            return ""
        if self.find(key, zone) is not None:
            return ""
        return f"{self._fill(key, zone)!r} is no time by {self.formatter or DEFAULT_FORMATTER!r}"

    def _fill(self, key: Key, zone: Zone) -> str:
        values = dict(zip(self.keys.names, (_text(value, zone) for value in key), strict=True))
        if self.pattern is None:
            return next(iter(values.values()))
        parts = _split_pattern(self.pattern, self.keys.names)
        return "".join(values[part] if is_key else part for part, is_key in parts)


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """Position of a file set's partitions in time."""

    extractor: Extractor
    interval: Interval
    zone: Zone

    def span_of(self, key: Key) -> Span | None:
        """The slot of the partition `key`; None when it is parked: its key has no time that can be read."""
        found = self.extractor.find(key, self.zone)
        try:
            return None if found is None else self.span_at(found)
        except OverflowError:
            return None

    def explain(self, key: Key) -> str:
        """Say why `span_of` gives no slot for `key`; empty if it gives one."""
        why = self.extractor.explain(key, self.zone)
        if not why and self.span_of(key) is None:
            return f"the slot of its time {self.extractor.find(key, self.zone)} is not within the years 1 to 9999"
        return why

    def first_slot(self, local: datetime, known: WallTime | None) -> datetime:
        """The time of the first slot that begins at `local` or later; `known` is the time of any other slot.

        Without one, slots divide a day, or begin with a day, a month or a year; of other intervals one begins at
        `local`. `OverflowError` at the ends of the calendar.
        """
        step = self.interval
        if known is None and not step.months and _DAY % step.micros:
            return local
        anchor = _EPOCH if known is None else from_wall(known)
        if not step.months:
            return anchor - ((anchor - local) // (_MICROSECOND * step.micros)) * (_MICROSECOND * step.micros)
        months = (local.year - anchor.year) * 12 + local.month - anchor.month
        months -= months % step.months
        time = Interval(months, 0).after(anchor) if months else anchor
        return time if time >= local else step.after(time)

    def span_at(self, time: datetime) -> Span:
        """The slot of that time. `OverflowError` at the ends of the calendar."""
        end = self.interval.after(time)
        ends, following = self.zone.closes(end), end
        # What lies in a gap of the clocks has no rows, and so no partition: nothing waits for it.
        for _ in range(_MOST_EMPTY):
            after = self.interval.after(following)
            if self.zone.closes(after) > ends:
                break
            following = after
        return Span(to_wall(time), self.zone.opens(time), ends, to_wall(following))


def _text(value: KeyValue, zone: Zone) -> str:
    if isinstance(value, datetime):
        return value.astimezone(_info(zone.name)).replace(tzinfo=None).isoformat(" ")
    return str(value)


@lru_cache(maxsize=1000)
def _split_pattern(pattern: str, names: tuple[str, ...]) -> tuple[tuple[str, bool], ...]:
    """Texts, and names of keys (True)."""
    parts: list[tuple[str, bool]] = []
    rest = pattern
    while rest:
        literal, dollar, rest = rest.partition("$")
        parts.append((literal, False))
        if not dollar:
            break
        braced = re.match(r"\{([^}]*)\}", rest)
        if braced is not None:
            wanted, found, rest = braced[1], braced[1] if braced[1] in names else None, rest[braced.end() :]
        else:
            wanted = (re.match(r"\w*", rest) or [""])[0]
            # The longest first: of the keys `dt` and `dthour`, `$dthour` is the second.
            found = next((name for name in sorted(names, key=len, reverse=True) if rest.startswith(name)), None)
            rest = rest[len(found) :] if found else rest
            if found and rest[:1].islower():
                advice = f"write ${found}, or ${{{found}}} where a letter follows"
                raise BadPartitionTime("timestamp pattern", pattern, f"there is no key {wanted!r}: {advice}")
        if found is None:
            meant = nearest(wanted, names)
            advice = f"did you mean ${meant}?" if meant else f"there are {', '.join(f'${name}' for name in names)}"
            raise BadPartitionTime("timestamp pattern", pattern, f"there is no key {wanted!r}: {advice}")
        parts.append((found, True))
    return tuple(parts)
