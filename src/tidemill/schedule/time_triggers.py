"""Triggers that the clock feeds: what is due again and again."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tidemill.durations import format_duration, parse_duration
from tidemill.names import EventKey
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.triggers import BadTrigger, Fed, Leaf

_SHORTEST: Final = timedelta(seconds=1)


class TimeTrigger(Leaf):
    """A leaf that the clock feeds: it is due at times, each of which is the logical time of what it starts."""

    __slots__ = ()

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """None."""
        return ()

    @abstractmethod
    def next_fire(self, counted_from: datetime) -> datetime:
        """The first time after `counted_from` at which it is due."""

    def feed(self, fed: Fed, due_at: datetime) -> Fed:
        """What the leaf has once it was due at `due_at`, its logical time."""
        return replace(fed, count=fed.count + 1, fired_at=due_at)


@dataclass(frozen=True, slots=True, init=False)
class Every(TimeTrigger):
    """A duration after the schedule's last launch (the first time: after its resumption); an early run moves it."""

    duration: timedelta

    def __init__(self, duration: str | timedelta) -> None:
        parsed = parse_duration(duration)
        if parsed < _SHORTEST:
            raise BadTrigger("Every", f"{duration!r} is shorter than {format_duration(_SHORTEST)}")
        object.__setattr__(self, "duration", parsed)

    def __str__(self) -> str:
        return f"Every({format_duration(self.duration)})"

    def next_fire(self, counted_from: datetime) -> datetime:
        """The first time at which it is due."""
        return counted_from + self.duration

    def last_fire(self, counted_from: datetime, now: datetime) -> datetime | None:
        """The latest time at or before `now` at which it was due; None when it was not yet.

        It is due again each `duration` until a run is launched, so that a job that was cancelled does not end it.
        """
        times = (now - counted_from) // self.duration
        return counted_from + times * self.duration if times > 0 else None

    def check(self, fed: Sequence[Fed]) -> Answer:
        """Satisfied once it has fired."""
        every = f"every {format_duration(self.duration)}"
        fired_at = fed[0].fired_at
        return (
            Satisfied(f"{every}: due {fired_at:%Y-%m-%dT%H:%M:%SZ}") if fired_at else Waiting(f"{every}: not due yet")
        )

    def spec(self) -> dict[str, object]:
        """`{"type": "every", "duration": "4h"}`."""
        return {"type": "every", "duration": format_duration(self.duration)}
