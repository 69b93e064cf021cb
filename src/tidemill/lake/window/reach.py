"""Reach of windows: the rows of a table that a window needs beyond its bounds, and its wait for these rows. Pure.

The windows of a window function need the rows between their bounds. A window of an interval join needs rows of the
other table from some time before its start until some time after its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeVar

from tidemill.lake.window.window_plan import MARGIN, Dirty, Grid, Stored, Window, WindowShape
from tidemill.shapes.partition_time import Instant, WallTime, Zone, from_wall, to_wall
from tidemill.shapes.watermark_spec import WatermarkSpec

_DAY: Final = 86_400_000_000
_Timed = TypeVar("_Timed", Stored, Dirty)


@dataclass(frozen=True, slots=True)
class WindowReach:
    """Distances in microseconds; negative ones narrow what a window needs.

    A window needs the rows of the table from `before` its start until `after` its end. It is closed when the watermark
    of the table is `lag` past its end.
    """

    before: int = 0
    after: int = 0
    lag: int = 0

    def widest(self, other: WindowReach) -> WindowReach:
        """Return the reach of windows that need the rows for both reasons."""
        return WindowReach(max(self.before, other.before), max(self.after, other.after), max(self.lag, other.lag))

    def needs(self, zone: Zone, span: tuple[Instant, Instant]) -> tuple[Instant, Instant]:
        """Return the instants of the rows that a window of the instants `span` needs."""
        spare = self._spare(zone, *span)
        return Instant(span[0] - self.before - spare), Instant(span[1] + self.after + spare)

    def touches(self, zone: Zone, begins: int, ends: int) -> tuple[int, int]:
        """Return the instants of the windows that need rows of the instants `[begins, ends)`."""
        spare = self._spare(zone, begins, ends)
        return begins - self.after - spare, ends + self.before + spare

    def untouched_upto(self, zone: Zone, begins: int) -> Instant:
        """Return a time such that windows that close by then need no rows of the instants from `begins` on."""
        return Instant(begins - self._after(zone))

    def untouched_from(self, zone: Zone, closes: int) -> Instant:
        """Return a time such that windows that close by `closes` need no rows of the instants from then on."""
        return Instant(closes + self._after(zone))

    def _after(self, zone: Zone) -> int:
        return self.after + (MARGIN if self._counts_days(zone) else 0)

    def touched_by(self, zone: Zone, change: _Timed) -> _Timed:
        """Return a partition or a change with the instants of the windows that need its rows."""
        begins, ends = self.touches(zone, change.begins, change.ends)
        return change._replace(begins=begins, ends=ends)

    def widen(self, window: Window) -> Window:
        """Return the wall-clock times of the rows that `window` needs."""
        return Window(WallTime(window.start - self.before), WallTime(window.end + self.after))

    def first_open(self, grid: Grid, instant: Instant) -> WallTime:
        """Return the time before which rows lie in windows alone that are closed at `instant`."""
        start = grid.first_open(instant)
        if not self.before:
            return start
        opens = grid.zone.opens(from_wall(start))
        begins, _ = self.needs(grid.zone, (opens, opens))
        return to_wall(grid.zone.local(begins))

    def closed_by(self, zone: Zone, value: Instant) -> Instant:
        """Return the time up to which windows are closed when the watermark of the table is `value`."""
        return Instant(value - self.lag - self._spare(zone, value, value))

    @property
    def _farthest(self) -> int:
        return max(abs(self.before), abs(self.after), abs(self.lag))

    def _counts_days(self, zone: Zone) -> bool:
        return self._farthest >= _DAY and zone.name != "UTC"

    def _spare(self, zone: Zone, begins: int, ends: int) -> int:
        """Return by how much a day of an interval may differ from 24 hours near these instants, in all.

        Spark adds the whole days of an interval on the wall clock of the zone.
        """
        if not self._counts_days(zone):
            return 0
        reach = self._farthest
        try:
            instants = [*range(begins - reach - _DAY, ends + reach + _DAY, _DAY // 2), ends + reach + _DAY]
            offsets: list[int] = [to_wall(zone.local(instant)) - instant for instant in instants]
        except OverflowError:
            return 0  # at the ends of the calendar there are no windows
        return max(offsets) - min(offsets)


def find_interval_shape(spec: WatermarkSpec) -> WindowShape:
    """Return the windows of an interval join that are those of a table: its intervals, of a day at most."""
    size = min(spec.partition_time.interval.micros or _DAY, _DAY)
    return WindowShape(size, size, 0)
