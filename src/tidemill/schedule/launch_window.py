"""Cap on the launches of a namespace: at most so many in any second, whichever schedulers make them.

A job that is ready while the cap is reached gets a *place*: a time at which the job may start. Each second has as many
places as the cap allows. So each job is looked at again once, at its place, however many jobs wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidemill.epoch import EPOCH
from tidemill.json_specs import read_text, write_text

_SECOND: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Times:
    """The JSON of a window."""

    launched: tuple[datetime, ...] = ()
    reserved: tuple[datetime, ...] = ()


@dataclass(slots=True)
class LaunchWindow:
    """The last launches of a namespace and the last places, at most `most` of each, in order.

    The checker holds the row of the namespace from `read` until its transaction ends.
    """

    most: int
    launched: list[datetime]
    reserved: list[datetime]
    new: int = 0
    """Launches that were admitted and have no time yet."""

    @classmethod
    def read(cls, most: int, stored: str | None, now: datetime) -> LaunchWindow:
        """Make a window of what `stored` keeps. Launches after `now` are left out: the clock was set back."""
        times = read_text(_Times, stored) if stored else _Times()
        return cls(most, [at for at in times.launched if at <= now], list(times.reserved))

    def admit(self, place: datetime | None, now: datetime) -> datetime | None:
        """Return None if a job may start at `now`, else the time of its place. `place` is the job's place so far."""
        if place is not None and now < place:
            return place
        at = max(now, self._free_at(self.launched))
        if place is None or at > now:
            # Behind all places that are given: a new job does not overtake the jobs that wait.
            at = max(at, self._free_at(self.reserved), *self.reserved[-1:])
            self.reserved = [*self.reserved, at][-self.most :]
        if at > now:
            return at
        self.launched = [*self.launched, now][-self.most :]
        self.new += 1
        return None

    def write(self, at: datetime) -> str:
        """Return what `read` reads. `at` is a time after the new launches, so that two seconds never share one."""
        new = min(self.new, self.most)
        launched = [*self.launched[: len(self.launched) - new], *[at] * new]
        return write_text(_Times(tuple(launched), tuple(self.reserved)))

    def _free_at(self, times: Sequence[datetime]) -> datetime:
        return times[-self.most] + _SECOND if len(times) >= self.most else EPOCH
