"""Start of a listing: a marker, moved back far enough to find files that come late. Pure.

Seed 004 lists from the last name that it knows. So it never finds a file that is named early and arrives late: 4.7 % of
the files if uploads take 5 s and listings are a minute apart, 70 % at 120 s. So we keep the earlier positions of the
marker with their times, and start at the position of one lookback ago. Every file that arrives within that time after
it was named is listed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

_POSITIONS_KEPT: Final = 32  # about so many, evenly over the lookback: a listing begins at most 1/32 of it too early


@dataclass(frozen=True, slots=True)
class Marker:
    """Marker of an inbox's listings. `positions` are its earlier names, each with its time."""

    name: str | None = None
    positions: tuple[tuple[datetime, str], ...] = ()
    reconciled_at: datetime | None = None

    def start(self, now: datetime, lookback: timedelta) -> str | None:
        """The name behind which to list, to find all that is late by at most `lookback`; None for all there is."""
        if lookback == timedelta(0):
            return self.name
        border = now - lookback
        return next((name for at, name in reversed(self.positions) if at <= border), None)

    def needs_reconciliation(self, now: datetime, every: timedelta | None) -> bool:
        """Return whether the next listing must be a reconciliation, which ignores the marker."""
        if self.reconciled_at is None:
            return True
        return every is not None and not timedelta(0) <= now - self.reconciled_at < every

    def lateness(self, name: str, now: datetime) -> timedelta | None:
        """Return the least delay of a file with this name. None if the marker had not passed the name."""
        if self.name is None or name > self.name:
            return None
        passed = next((at for at, position in self.positions if position >= name), now)
        return max(timedelta(0), now - passed)

    def moved(self, now: datetime, last: str, settled: str | None, lookback: timedelta) -> Marker:
        """After a listing that began at `now` and came to `last`.

        `settled` is the last name that had been there for a lookback: where the first listing says it stood then.
        """
        if self.name is None:
            border = now - lookback
            return replace(self, name=last, positions=() if settled is None else ((border, settled),))
        if last <= self.name:
            return self
        positions = self.positions
        if not positions or now - positions[-1][0] >= lookback / _POSITIONS_KEPT:
            border = now - lookback
            needed = max((place for place, (at, _) in enumerate(positions) if at <= border), default=0)
            # Where it stood before: what the listing found may be younger than its beginning.
            positions = (*positions[needed:], (now, self.name))
        return replace(self, name=last, positions=positions)
