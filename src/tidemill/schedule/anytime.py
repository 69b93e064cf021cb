"""Trigger of rare feeds: due once a period, at a moment of its own, so that schedules spread evenly. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from hashlib import sha256
from itertools import count, dropwhile, pairwise
from typing import Final

from tidemill.durations import BadDuration, format_duration, parse_duration
from tidemill.epoch import EPOCH
from tidemill.schedule.time_triggers import CalendarTrigger
from tidemill.schedule.triggers import SHORTEST_WAIT, BadTrigger
from tidemill.zones import BadZone, first_instant, read_zone

_CALENDAR: Final = ("day", "week", "month")
_HOUR: Final = "hour"
_SECOND: Final = timedelta(seconds=1)
_BYTES: Final = 8


@dataclass(frozen=True, slots=True, init=False)
class Anytime(CalendarTrigger):
    """Once a period, at a moment that a hash of the schedule's name gives (seed 001, story 5).

    A `per` of `day`, `week` or `month` follows the calendar of `zone`; a week begins on Monday. An `hour` or a duration
    is counted from 1970 in UTC.
    """

    per: str
    zone: str = "UTC"
    place: int | None = None
    """The place of the moment within the period, as a part of 2**64. Only `placed` gives one."""

    def __init__(self, per: str | timedelta, zone: str = "UTC") -> None:
        name = f"Anytime({per!r}, zone={zone!r})"
        try:
            written = per if per in (*_CALENDAR, _HOUR) else format_duration(parse_duration(per))
            read_zone(zone)
        except BadDuration:
            raise BadTrigger(name, "per must be hour, day, week, month, or a duration such as '4h'") from None
        except (BadZone, AttributeError, TypeError) as error:
            raise BadTrigger(name, str(error) if isinstance(error, BadZone) else "zone must be text") from None
        object.__setattr__(self, "per", written)
        object.__setattr__(self, "zone", zone)
        object.__setattr__(self, "place", None)
        if written not in _CALENDAR:
            if self._length < SHORTEST_WAIT:
                raise BadTrigger(name, f"per {per!r} is shorter than {format_duration(SHORTEST_WAIT)}")
            if zone != "UTC":
                raise BadTrigger(name, f"{written} is counted in UTC; leave the zone out, or use per='day'")

    def __str__(self) -> str:
        zone = "" if self.zone == "UTC" else f", zone='{self.zone}'"
        return f"Anytime('{self.per}'{zone})"

    @property
    def label(self) -> str:
        """See `CalendarTrigger.label`."""
        return f"any time in each {self.per}"

    def placed(self, schedule: str) -> Anytime:
        """See `TimeTrigger.placed`. A schedule keeps its moment as long as its name."""
        placed = Anytime(self.per, self.zone)
        object.__setattr__(placed, "place", int.from_bytes(sha256(schedule.encode()).digest()[:_BYTES]))
        return placed

    def fires_after(self, after: datetime) -> Iterator[datetime]:
        """Yield the moments after `after`, in order, in UTC, without end."""
        assert self.place is not None, "only a schedule gives the moment"  # noqa: S101
        for start, end in pairwise(self._starts(after)):
            seconds = (end - start) // _SECOND * self.place >> 8 * _BYTES
            fire = start + seconds * _SECOND
            # A zone may leave out a whole day.
            if fire > after and start < end:
                yield fire

    def fires_from(self, first: datetime, at: datetime) -> Iterator[datetime]:
        """See `TimeTrigger.fires_from`."""
        begin = max(first, at)
        return dropwhile(lambda fire: fire < begin, self.fires_after(begin - _SECOND))

    @property
    def _length(self) -> timedelta:
        return parse_duration("1h" if self.per == _HOUR else self.per)

    def _starts(self, at: datetime) -> Iterator[datetime]:
        """Yield the first instants of the periods in order, from the period in which `at` lies, or an earlier one."""
        if self.per not in _CALENDAR:
            length = self._length
            yield from (EPOCH + number * length for number in count((at - EPOCH) // length))
            return
        zone = read_zone(self.zone)
        # From the day before: clocks may show the end of a day again after midnight.
        day = at.astimezone(zone).date() - timedelta(days=1)
        if self.per == "week":
            day -= timedelta(days=day.weekday())
        if self.per == "month":
            day = day.replace(day=1)
        while True:
            yield first_instant(zone, datetime.combine(day, time.min))
            match self.per:
                case "day":
                    day += timedelta(days=1)
                case "week":
                    day += timedelta(weeks=1)
                case _:
                    day = (day + timedelta(days=31)).replace(day=1)
