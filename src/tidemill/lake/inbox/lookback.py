"""Where a listing begins: behind a marker, but far enough back for what comes late. Pure.

Seed 004 lists behind the last name it knows, so that a file which is named early and arrives late is never seen: 4.7 %
of them where uploads take 5 s and listings are a minute apart, 70 % at 120 s. So we keep where the marker stood when,
and begin where it stood a lookback ago: whatever arrives within that time after it was named is listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from tidemill.durations import to_milliseconds

_POSITIONS_KEPT: Final = 32  # about so many, evenly over the lookback: a listing begins at most 1/32 of it too early


@dataclass(frozen=True, slots=True)
class Marker:
    """How far the listings of an inbox have come; `positions` say at which time (epoch milliseconds) it stood where."""

    name: str | None = None
    positions: tuple[tuple[int, str], ...] = ()
    reconciled_at: int | None = None

    def start(self, now: int, lookback: timedelta) -> str | None:
        """The name behind which to list, to find all that is late by at most `lookback`; None for all there is."""
        if lookback == timedelta(0):
            return self.name
        border = now - to_milliseconds(lookback)
        return next((name for at, name in reversed(self.positions) if at <= border), None)

    def needs_reconciliation(self, now: int, every: timedelta | None) -> bool:
        """Whether all is to be listed, whatever the marker says."""
        if self.reconciled_at is None:
            return True
        return every is not None and not 0 <= now - self.reconciled_at < to_milliseconds(every)

    def lateness(self, name: str, now: int) -> timedelta | None:
        """How late a file of this name is, at least; None when the marker had not passed it."""
        if self.name is None or name > self.name:
            return None
        passed = next((at for at, position in self.positions if position >= name), now)
        return timedelta(milliseconds=max(0, now - passed))

    def moved(self, now: int, last: str, settled: str | None, lookback: timedelta) -> Marker:
        """After a listing that began at `now` and came to `last`.

        `settled` is the last name that had been there for a lookback: where the first listing says it stood then.
        """
        if self.name is None:
            border = now - to_milliseconds(lookback)
            return replace(self, name=last, positions=() if settled is None else ((border, settled),))
        if last <= self.name:
            return self
        positions = self.positions
        if not positions or now - positions[-1][0] >= to_milliseconds(lookback) // _POSITIONS_KEPT:
            border = now - to_milliseconds(lookback)
            needed = max((place for place, (at, _) in enumerate(positions) if at <= border), default=0)
            # Where it stood before: what the listing found may be younger than its beginning.
            positions = (*positions[needed:], (now, self.name))
        return replace(self, name=last, positions=positions)
