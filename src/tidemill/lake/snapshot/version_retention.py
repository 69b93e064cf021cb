"""Which versions of a snapshot are kept: time to live, a least and a greatest number, together. Pure (seed 002).

The seed's two traps: with a time to live alone, a pipeline that stops would lose its last version; and a schedule
slower than the time to live would leave nothing to read in between. So the current version never expires, at any age.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from tidemill.durations import format_duration, to_milliseconds
from tidemill.errors import UserError

_USUAL_TTL: Final = timedelta(days=7)


class BadRetention(UserError):
    """A retention that cannot be."""

    code = "bad_retention"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"retention is refused: {why}")


@dataclass(frozen=True, slots=True)
class Retention:
    """How long and how many versions are kept; None for no bound. The current one always is.

    Older than `ttl` they go, but never below `min_versions`; above `max_versions` the oldest go before their time.
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
    """What retention goes by: when the version committed (epoch ms), whether it is current, who reads it."""

    version: int
    at: int
    current: bool
    readers: tuple[str, ...] = ()


def decide_kept(versions: Sequence[Kept], retention: Retention, now: int) -> dict[int, tuple[str, ...]]:
    """Return for whom or what each of `versions` is kept, at `now` (epoch ms). One that is kept for nothing may go.

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
        elif within and retention.ttl is not None and one.at + to_milliseconds(retention.ttl) > now:
            found.append(f"ttl={format_duration(retention.ttl)}")
        reasons[one.version] = (*found, *one.readers)
    return reasons
