"""Trigger of a watermark that stands still: nothing has moved it for a duration. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar

from tidemill.durations import format_duration
from tidemill.epoch import show_time
from tidemill.names import EventKey, split_qualified, watermark_event
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.data_triggers import Named, dataset_name
from tidemill.schedule.time_triggers import TimeTrigger
from tidemill.schedule.triggers import Fed, read_wait


@dataclass(frozen=True, slots=True, init=False)
class WatermarkStands(TimeTrigger):
    """The watermark of a file set has not moved for `duration`. Once for each stand: the next begins with a move.

    A stand begins with the last move, or later with the begin of the schedule.
    """

    of_kind: ClassVar[str] = "fileset"
    dataset: str
    duration: timedelta

    def __init__(self, dataset: str | Named, duration: str | timedelta) -> None:
        object.__setattr__(self, "dataset", dataset_name("WatermarkStands", dataset))
        object.__setattr__(self, "duration", read_wait("WatermarkStands", "duration", duration))

    def __str__(self) -> str:
        return f"WatermarkStands({self.dataset}, '{format_duration(self.duration)}')"

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """Moves of the watermark: a move begins the next stand, and feeds no job."""
        namespace, (name,) = split_qualified("data set", self.dataset, 1)
        return (watermark_event(namespace, name),)

    def fires_after(self, after: datetime) -> Iterator[datetime]:
        """The only time that is known: `duration` after the begin of the stand."""
        return iter([after + self.duration])

    def fires_from(self, first: datetime, at: datetime) -> Iterator[datetime]:
        """See `TimeTrigger.fires_from`."""
        return iter([first] if first >= at else [])

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied once it has fired."""
        fired_at = fed[0].fired_at
        if fired_at is None:
            return Waiting(f"no new stand of {format_duration(self.duration)} of the watermark of {self.dataset} yet")
        return Satisfied(f"the watermark of {self.dataset} stands still since {show_time(fired_at - self.duration)}")
