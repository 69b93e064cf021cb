"""Periods that a watermark passes, on the wall clock of its windows: pure.

A period ends as a window does: at the first instant after which no instant has a local time before the end.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidemill.epoch import floor_ms, from_micros, to_micros
from tidemill.lake.window.window_plan import MARGIN
from tidemill.shapes.partition_time import Instant, Zone, from_wall
from tidemill.shapes.time_formats import BadPartitionTime

_MICROSECOND: Final = timedelta(microseconds=1)
_MILLISECOND: Final = 1000


class UnknownZone(ValueError):
    """A name of a time zone that this process does not know."""


@dataclass(frozen=True, slots=True)
class Periods:
    """Periods of `every`, counted from 1970-01-01 00:00 on the wall clock of a zone.

    Ends never move back. Where clocks are set forward, periods share an end: the clock leaves their local times out.
    """

    every: timedelta
    zone: Zone

    @classmethod
    def of(cls, every: timedelta, zone: object) -> Periods:
        """Return the periods in the zone of that name. Errors: `UnknownZone`."""
        try:
            return cls(every, Zone(str(zone)))
        except BadPartitionTime as error:
            raise UnknownZone(str(error)) from None

    def end(self, number: int) -> datetime:
        """Return the end of a period, in whole milliseconds, as the catalog keeps times."""
        return floor_ms(from_micros(self._closes(number)))

    def last(self, instant: int) -> int:
        """Return the number of the last period that has ended at `instant`, in microseconds since 1970 in UTC."""
        period = self.every // _MICROSECOND
        near = range((instant - MARGIN) // period, (instant + MARGIN) // period + 1)
        return near.start - 1 + bisect_right(near, instant, key=self._closes)

    def after(self, end: datetime) -> datetime:
        """Return the first end of a period after `end`."""
        return self.end(self._last_in(end) + 1)

    def ends(self, first: int, last: int) -> Iterator[datetime]:
        """Yield the ends of the periods with these numbers and those between them, in order, each end once."""
        previous = None
        for number in range(first, last + 1):
            if (end := self.end(number)) != previous:
                yield end
            previous = end

    def count(self, first: datetime, last: datetime) -> int:
        """Return the number of ends from `first`, which is one, to `last`. Cost: grows with that number."""
        return 1 + sum(1 for _ in self.ends(self._last_in(first) + 1, self._last_in(last)))

    def _last_in(self, end: datetime) -> int:
        return self.last(to_micros(end) + _MILLISECOND - 1)

    def _closes(self, number: int) -> Instant:
        return self.zone.closes(from_wall(number * (self.every // _MICROSECOND)))
