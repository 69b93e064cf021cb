"""Constraints that compare times, or a number from outside: a delay, a time range, the last run, a probe."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from enum import StrEnum
from typing import Final
from zoneinfo import ZoneInfo

from tidemill.durations import format_duration
from tidemill.epoch import show_second
from tidemill.names import BadName, ProgramId, check_name, program_limit
from tidemill.schedule.answers import Answer, NotBefore, Satisfied, Waiting
from tidemill.schedule.constraints import (
    READING_AGE,
    BadConstraint,
    Constraint,
    Facts,
    OnLimit,
    hold_back,
    idle_key,
    read_duration,
    read_on_limit,
    show_on_limit,
)
from tidemill.zones import BadZone, find_change, offset_at, offsets, read_zone

_HOUR: Final = timedelta(hours=1)
_TIME: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True, slots=True, init=False)
class Delay(Constraint):
    """A pause between the trigger and the launch. What arrives during the pause joins the job.

    The pause begins when the trigger is satisfied. With `debounce` each message that joins the job begins it again.
    """

    duration: timedelta
    debounce: bool = False

    def __init__(self, duration: str | timedelta, *, debounce: bool = False) -> None:
        if not isinstance(debounce, bool):
            raise BadConstraint("Delay", f"debounce must be true or false, not {debounce!r}")
        object.__setattr__(self, "duration", read_duration("Delay", "duration", duration))
        object.__setattr__(self, "debounce", debounce)

    def __str__(self) -> str:
        return f"Delay('{format_duration(self.duration)}'{', debounce=True' if self.debounce else ''})"

    def check(self, facts: Facts, now: datetime) -> Answer:
        """Satisfied once the pause is over."""
        begins = max(facts.satisfied_at, facts.fed_at) if self.debounce else facts.satisfied_at
        why = f"delay {format_duration(self.duration)} since {show_second(begins)}"
        return Satisfied(why) if begins + self.duration <= now else NotBefore(begins + self.duration, why)


class Since(StrEnum):
    """Moment of the last successful run from which `SinceLastRun` counts."""

    END = "end"
    START = "start"


@dataclass(frozen=True, slots=True, init=False)
class SinceLastRun(Constraint):
    """Least time between the program's last successful run and the next launch. Failed and killed runs do not count.

    The time counts from the end of that run, or with `since="start"` from its start. A run that has not ended blocks
    too.
    """

    duration: timedelta
    since: Since = Since.END
    on_limit: OnLimit = OnLimit.WAIT

    def __init__(self, duration: str | timedelta, *, since: str = Since.END, on_limit: str = OnLimit.WAIT) -> None:
        if since not in [*Since]:
            raise BadConstraint("SinceLastRun", f"since must be 'end' or 'start', not {since!r}")
        object.__setattr__(self, "duration", read_duration("SinceLastRun", "duration", duration))
        object.__setattr__(self, "since", Since(since))
        object.__setattr__(self, "on_limit", read_on_limit("SinceLastRun", on_limit))

    def __str__(self) -> str:
        since = "" if self.since is Since.END else f", since='{self.since}'"
        return f"SinceLastRun('{format_duration(self.duration)}'{since}{show_on_limit(self.on_limit)})"

    def needs(self, program_id: ProgramId) -> tuple[str, ...]:
        """The runs that have not ended, and the last success."""
        return (f"active:{program_id}", f"last_success:{program_id}")

    def check(self, facts: Facts, now: datetime) -> Answer:
        """Satisfied if no run is active, and the last success is long enough ago."""
        what = f"since last run {format_duration(self.duration)}"
        if active := facts.count(f"active:{facts.program_id}"):
            runs = "1 run has" if active == 1 else f"{active} runs have"
            waiting = Waiting(f"{what}: {runs} not ended", (idle_key(program_limit(facts.program_id)),))
            return hold_back(waiting, self.on_limit)
        last = facts.last_run(f"last_success:{facts.program_id}")
        if last is None:
            return Satisfied(f"{what}: no run yet")
        begins = last.ended_at if self.since is Since.END else last.started_at
        why = f"{what}: {'ended' if self.since is Since.END else 'started'} {show_second(begins)}"
        at = begins + self.duration
        return Satisfied(why) if at <= now else hold_back(NotBefore(at, why), self.on_limit)


@dataclass(frozen=True, slots=True, init=False)
class TimeRange(Constraint):
    """Time of the day, `[start, end)` to the minute, on the wall clocks of `zone`; an `end` before `start` is tomorrow.

    When clocks go forward over `start`, the range begins at the change. When clocks go back, a time that is shown twice
    is in the range both times.
    """

    start: str
    end: str
    zone: str = "UTC"
    on_limit: OnLimit = OnLimit.WAIT

    def __init__(self, start: str, end: str, zone: str = "UTC", *, on_limit: str = OnLimit.WAIT) -> None:
        for field, given in (("start", start), ("end", end)):
            if not isinstance(given, str) or not _TIME.fullmatch(given):
                raise BadConstraint("TimeRange", f"{field} must be a time of the day such as '22:00', not {given!r}")
        if start == end:
            raise BadConstraint("TimeRange", f"start and end are both {start}: leave the constraint out for all day")
        try:
            read_zone(zone)
        except (BadZone, TypeError, AttributeError) as error:
            why = str(error) if isinstance(error, BadZone) else f"zone must be text, not {zone!r}"
            raise BadConstraint("TimeRange", why) from None
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "end", end)
        object.__setattr__(self, "zone", zone)
        object.__setattr__(self, "on_limit", read_on_limit("TimeRange", on_limit))

    def __str__(self) -> str:
        return f"TimeRange('{self.start}', '{self.end}', zone='{self.zone}'{show_on_limit(self.on_limit)})"

    def check(self, facts: Facts, now: datetime) -> Answer:  # noqa: ARG002
        """Satisfied if the clocks of the zone show a time of the range."""
        zone = read_zone(self.zone)
        why = f"time range {self.start} to {self.end} {self.zone}: it is {now.astimezone(zone):%H:%M}"
        if self.contains(now):
            return Satisfied(why)
        return hold_back(NotBefore(_find_opening(_read_time(self.start), zone, now), why), self.on_limit)

    def contains(self, instant: datetime) -> bool:
        """Return whether the clocks of the zone show a time of the range."""
        shown = instant.astimezone(read_zone(self.zone)).time()
        start, end = _read_time(self.start), _read_time(self.end)
        return start <= shown < end if start < end else shown >= start or shown < end


@dataclass(frozen=True, slots=True, init=False)
class Probe(Constraint):
    """Bounds for a number that the scheduler reads outside the catalog, such as the load of a Spark master.

    A reading serves all jobs for `READING_AGE`. A probe that fails or does not answer in time means "not yet", also
    with `on_limit="skip"`.
    """

    name: str
    at_most: float | None = None
    at_least: float | None = None
    on_limit: OnLimit = OnLimit.WAIT

    def __init__(
        self,
        name: str,
        *,
        at_most: float | None = None,
        at_least: float | None = None,
        on_limit: str = OnLimit.WAIT,
    ) -> None:
        try:
            check_name("probe", name)
        except (BadName, TypeError) as error:
            raise BadConstraint("Probe", str(error) if isinstance(error, BadName) else "name must be text") from None
        for field, bound in (("at_most", at_most), ("at_least", at_least)):
            if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float)):
                raise BadConstraint("Probe", f"{field} must be a number, not {bound!r}")
            if bound is not None and not math.isfinite(bound):
                raise BadConstraint("Probe", f"{field} must be a number that is finite, not {bound!r}")
        if at_most is None and at_least is None:
            raise BadConstraint("Probe", f"{name} has no bound: give at_most, or at_least")
        if at_most is not None and at_least is not None and at_most < at_least:
            raise BadConstraint("Probe", f"at_most={at_most} is below at_least={at_least}: no number is both")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "at_most", None if at_most is None else float(at_most))
        object.__setattr__(self, "at_least", None if at_least is None else float(at_least))
        object.__setattr__(self, "on_limit", read_on_limit("Probe", on_limit))

    def __str__(self) -> str:
        bounds = (("at_most", self.at_most), ("at_least", self.at_least))
        given = "".join(f", {field}={bound:g}" for field, bound in bounds if bound is not None)
        return f"Probe('{self.name}'{given}{show_on_limit(self.on_limit)})"

    @property
    def subject(self) -> str:
        """The name of the probe."""
        return self.name

    def needs(self, _program_id: ProgramId) -> tuple[str, ...]:
        """A reading of the probe."""
        return (f"probe:{self.name}",)

    def check(self, facts: Facts, now: datetime) -> Answer:
        """Satisfied if the number is within the bounds."""
        reading = facts.reading(f"probe:{self.name}")
        again = max(reading.at, now) + READING_AGE
        if reading.value is None:
            return NotBefore(again, f"probe {self.name}: {reading.error}")
        why = f"probe {self.name} {reading.value:g}"
        if self.at_most is not None and reading.value > self.at_most:
            return hold_back(NotBefore(again, f"{why}, at most {self.at_most:g}"), self.on_limit)
        if self.at_least is not None and reading.value < self.at_least:
            return hold_back(NotBefore(again, f"{why}, at least {self.at_least:g}"), self.on_limit)
        return Satisfied(why)


def _find_opening(start: time, zone: ZoneInfo, now: datetime) -> datetime:
    """Return the next instant at which a range may begin: at `start`, or earlier where the clocks change."""
    # The clocks change at whole seconds.
    now = now.replace(microsecond=0)
    today = now.astimezone(zone).date()
    walls = [datetime.combine(today + timedelta(days=days), start) for days in range(3)]
    instants = [(wall - offset).replace(tzinfo=UTC) for wall in walls for offset in offsets(zone, wall)]
    opening = min(instant for instant in instants if instant > now)
    while now < opening:
        later = min(now + _HOUR, opening)
        if offset_at(zone, later) != offset_at(zone, now):
            return find_change(zone, now, later)
        now = later
    return opening


def _read_time(text: str) -> time:
    return time(int(text[:2]), int(text[3:]))
