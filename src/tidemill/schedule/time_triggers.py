"""Triggers that the clock feeds: what is due again and again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, count

from tidemill.crontab import BadExpression, read_crontab
from tidemill.durations import format_duration
from tidemill.epoch import show_second
from tidemill.names import EventKey
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.triggers import SHORTEST_WAIT, BadTrigger, Fed, Leaf, read_wait


class TimeTrigger(Leaf):
    """A leaf that the clock feeds: it is due at times, each of which is the logical time of what it starts."""

    __slots__ = ()

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """The keys of messages that begin its next time; none for most."""
        return ()

    @abstractmethod
    def fires_after(self, after: datetime) -> Iterator[datetime]:
        """The times after `after` at which it is due, in order, as far as they are known."""

    @abstractmethod
    def fires_from(self, first: datetime, at: datetime) -> Iterator[datetime]:
        """Yield the times that are `at` or later, where `first` is the first of all. Cost: none for times before."""

    def next_fire(self, counted_from: datetime) -> datetime:
        """The first of them."""
        return next(self.fires_after(counted_from))

    def placed(self, schedule: str) -> TimeTrigger:  # only some times depend on the schedule
        """Return the trigger with the times that it has in the schedule of that qualified name."""
        return self


class CalendarTrigger(TimeTrigger):
    """A time trigger whose times are fixed: no launch moves them, and missed ones are made up for (`misfire`)."""

    __slots__ = ()

    @property
    @abstractmethod
    def label(self) -> str:
        """The times, as an answer names them."""

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied once it has fired."""
        fired_at, times = fed[0].fired_at, fed[0].count
        if fired_at is None:
            return Waiting(f"{self.label}: not due yet")
        more = f" ({times} times)" if times > 1 else ""
        return Satisfied(f"{self.label}: due {show_second(fired_at)}{more}")


@dataclass(frozen=True, slots=True, init=False)
class Every(TimeTrigger):
    """A duration after the schedule's last launch (the first time: after its resumption); an early run moves it."""

    duration: timedelta

    def __init__(self, duration: str | timedelta) -> None:
        object.__setattr__(self, "duration", read_wait("Every", "duration", duration))

    def __str__(self) -> str:
        return f"Every({format_duration(self.duration)})"

    def fires_after(self, after: datetime) -> Iterator[datetime]:
        """`after` and a duration, two, three, …: when nothing is launched."""
        return (after + times * self.duration for times in count(1))

    def fires_from(self, first: datetime, at: datetime) -> Iterator[datetime]:
        """See `TimeTrigger.fires_from`."""
        passed = max(0, -((first - at) // self.duration))
        return (first + times * self.duration for times in count(passed))

    def last_fire(self, counted_from: datetime, now: datetime) -> datetime | None:
        """The latest time at or before `now` at which it was due; None when it was not yet.

        It is due again each `duration` until a run is launched, so that a job that was cancelled does not end it.
        """
        times = (now - counted_from) // self.duration
        return counted_from + times * self.duration if times > 0 else None

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied once it has fired."""
        every = f"every {format_duration(self.duration)}"
        fired_at = fed[0].fired_at
        return Satisfied(f"{every}: due {show_second(fired_at)}") if fired_at else Waiting(f"{every}: not due yet")


@dataclass(frozen=True, slots=True, init=False)
class Cron(CalendarTrigger):
    """Times that a cron expression names on the wall clocks of `zone`. A run that starts early never moves them.

    Five fields (`minute hour day-of-month month day-of-week`; six with seconds first), or a name as `@daily`. When
    clocks go forward, a time in the gap comes at the gap's end. When clocks go back, a time comes once.
    """

    expression: str
    zone: str = "UTC"

    def __init__(self, expression: str, zone: str = "UTC") -> None:
        try:
            read_crontab(expression, zone)
        except (BadExpression, AttributeError, TypeError) as error:
            why = str(error) if isinstance(error, BadExpression) else "expression and zone must be text"
            raise BadTrigger(f"Cron({expression!r}, zone={zone!r})", why) from None
        object.__setattr__(self, "expression", " ".join(expression.split()))
        object.__setattr__(self, "zone", zone)

    @property
    def label(self) -> str:
        """See `CalendarTrigger.label`."""
        return f"cron {self.expression} {self.zone}"

    def __str__(self) -> str:
        return f"Cron('{self.expression}', zone='{self.zone}')"

    def fires_after(self, after: datetime) -> Iterator[datetime]:
        """Yield the trigger's times after `after`, in order, in UTC, without end. Cost: some 20 µs each."""
        return read_crontab(self.expression, self.zone).fires_after(after)

    def fires_from(self, first: datetime, at: datetime) -> Iterator[datetime]:
        """See `TimeTrigger.fires_from`."""
        return self.fires_after(at - SHORTEST_WAIT) if at > first else chain([first], self.fires_after(first))
