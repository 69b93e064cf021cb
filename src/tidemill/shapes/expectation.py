"""Arrival expectations: the times by which something new arrives in a data set. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from tidemill.crontab import BadExpression, read_crontab
from tidemill.durations import BadDuration, format_duration, parse_duration
from tidemill.errors import UserError
from tidemill.json_specs import sparse

_SHORTEST: Final = timedelta(seconds=1)
_NONE: Final = timedelta(0)


class BadExpectation(UserError):
    """An arrival expectation that no data set can have."""

    code = "bad_expectation"
    hint = "correct the expectation as the reason says"

    def __init__(self, field: str, given: str, why: str) -> None:
        self.field = field
        self.given = given
        self.why = why
        super().__init__(f"{field}={given} of an expectation is refused: {why}")


class ArrivalState(StrEnum):
    """State of an expectation."""

    KEPT = "kept"
    """The next arrival is not due yet."""
    LATE = "late"
    """The next arrival is due, and the grace has not passed."""
    BROKEN = "broken"
    """The grace has passed without an arrival."""


class Deadline(NamedTuple):
    """The time by which the next arrival is expected, and the time from which the expectation is broken."""

    expected_by: datetime
    broken_at: datetime

    def state(self, now: datetime) -> ArrivalState:
        """Return the state at `now`, if nothing has arrived meanwhile."""
        if now < self.expected_by:
            return ArrivalState.KEPT
        return ArrivalState.LATE if now < self.broken_at else ArrivalState.BROKEN


@sparse
@dataclass(frozen=True, slots=True, init=False)
class Arrivals:
    """Something arrives at least once in `every`, or between two times of `cron` on the clocks of `zone`.

    The expectation is broken when `grace` has passed beyond that. By the clock, an arrival within the grace counts for
    the period that has just ended, and for no other. The first period begins with the deployment that declares the
    expectation.
    """

    every: timedelta | None = None
    grace: timedelta = _NONE
    cron: str | None = None
    zone: str = "UTC"

    def __init__(
        self,
        every: str | timedelta | None = None,
        grace: str | timedelta = _NONE,
        *,
        cron: str | None = None,
        zone: str = "UTC",
    ) -> None:
        if (every is None) == (cron is None):
            raise BadExpectation("every", repr(every), "give either every='1d' or cron='0 6 * * *'")
        if every is not None and zone != "UTC":
            raise BadExpectation("zone", repr(zone), "only cron= has a zone; leave it out")
        if cron is not None:
            try:
                read_crontab(cron, zone)
            except (BadExpression, AttributeError, TypeError) as error:
                why = str(error) if isinstance(error, BadExpression) else "expression and zone must be text"
                raise BadExpectation("cron", f"{cron!r}, zone={zone!r}", why) from None
        object.__setattr__(self, "every", None if every is None else _duration("every", every, _SHORTEST))
        object.__setattr__(self, "grace", _duration("grace", grace, _NONE))
        object.__setattr__(self, "cron", None if cron is None else " ".join(cron.split()))
        object.__setattr__(self, "zone", zone)

    def __str__(self) -> str:
        grace = f", grace='{format_duration(self.grace)}'" if self.grace else ""
        if self.every is not None:
            return f"Arrivals(every='{format_duration(self.every)}'{grace})"
        return f"Arrivals(cron='{self.cron}', zone='{self.zone}'{grace})"

    def find_deadline(self, since: datetime, arrived_at: datetime | None) -> Deadline:
        """Return the deadline of the next arrival after that of `arrived_at`, the last one.

        `since` is the time of the declaration. An arrival at the very time `broken_at` is too late.
        """
        if self.every is not None:
            expected_by = max(since, arrived_at or since) + self.every
        else:
            kept_to = since if arrived_at is None else max(since, self._next(arrived_at - self.grace))
            expected_by = self._next(kept_to)
        return Deadline(expected_by, expected_by + self.grace)

    def _next(self, after: datetime) -> datetime:
        return next(read_crontab(self.cron or "", self.zone).fires_after(after))


def _duration(field: str, given: str | timedelta, shortest: timedelta) -> timedelta:
    try:
        duration = parse_duration(given)
    except BadDuration as error:
        raise BadExpectation(field, repr(given), str(error)) from None
    if duration < shortest:
        raise BadExpectation(field, repr(given), f"it is shorter than {format_duration(shortest)}")
    return duration
