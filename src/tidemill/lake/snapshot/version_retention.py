"""The retention of the versions of a snapshot: time to live, least and greatest number. Pure (seed 002).

The seed's two traps: with a time to live alone, a pipeline that stops would lose its last version; and a schedule
slower than the time to live would leave nothing to read in between. So the current version never expires, at any age.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tidemill.durations import format_duration
from tidemill.errors import UserError

_USUAL_TTL: Final = timedelta(days=7)


class BadRetention(UserError):
    """A retention that cannot be."""

    code = "bad_retention"
    hint = "correct the retention as the reason says"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"retention is refused: {why}")


@dataclass(frozen=True, slots=True)
class Retention:
    """The time and the number of versions to keep; None for no bound. The current version is always kept.

    Versions older than `ttl` expire, but `min_versions` always stay. Above `max_versions` the oldest expire earlier.
    """

    ttl: timedelta | None = _USUAL_TTL
    min_versions: int = 1
    max_versions: int | None = None

    def __post_init__(self) -> None:
        """Refuse what would keep nothing, or both more and fewer."""
        for name, number in (("min_versions", self.min_versions), ("max_versions", self.max_versions)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise BadRetention(f"{name} must be a whole number of at least 1, not {number!r}")
        if self.max_versions is not None and self.max_versions < self.min_versions:
            raise BadRetention(
                f"max_versions={self.max_versions} is less than min_versions={self.min_versions}, of which none may go"
            )


@dataclass(frozen=True, slots=True)
class Kept:
    """The facts for retention: when the version committed, whether it is current, which runs read it."""

    version: int
    at: datetime
    current: bool
    readers: tuple[str, ...] = ()


def decide_kept(versions: Sequence[Kept], retention: Retention, now: datetime) -> dict[int, tuple[str, ...]]:
    """Return the reasons to keep each of `versions` at `now`. A version without reasons may expire.

    `versions` are all versions, newest first. Pure.
    """
    reasons: dict[int, tuple[str, ...]] = {}
    for place, one in enumerate(versions, start=1):
        found = ["current"] if one.current else []
        if place <= retention.min_versions:
            found.append(f"min_versions={retention.min_versions}")
        within = retention.max_versions is None or place <= retention.max_versions
        if within and retention.ttl is None:
            found.append("no ttl")
        elif within and retention.ttl is not None and one.at + retention.ttl > now:
            found.append(f"ttl={format_duration(retention.ttl)}")
        reasons[one.version] = (*found, *one.readers)
    return reasons
