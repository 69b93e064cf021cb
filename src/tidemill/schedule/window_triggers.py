"""Triggers that messages about window programs feed: windows that were computed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidemill.catalog.messages import Message
from tidemill.names import EventKey, window_event
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.data_triggers import MessageTrigger, count_of, read_number
from tidemill.schedule.program_triggers import program_name
from tidemill.schedule.triggers import Fed


@dataclass(frozen=True, slots=True, init=False)
class WindowsRecomputed(MessageTrigger):
    """`n` windows of a window program were computed again: late partitions have changed results."""

    program: str
    n: int = 1

    def __init__(self, program: object, n: int = 1) -> None:
        object.__setattr__(self, "program", program_name("WindowsRecomputed", program))
        object.__setattr__(self, "n", count_of("WindowsRecomputed", n))

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """The commits of the window program."""
        return (window_event(self.program),)

    def __str__(self) -> str:
        return f"WindowsRecomputed({self.program}{f', {self.n}' if self.n > 1 else ''})"

    def wants(self, message: Message) -> bool:
        """Return whether `message` is of a commit that has computed windows again."""
        return message.event_type == "windows" and message.payload.get("recomputed") != 0

    def feed(self, fed: Fed, message: Message) -> Fed:
        """Return what the leaf was fed, with the windows that were computed again."""
        return replace(fed, count=fed.count + read_number(self, message.payload, "recomputed"))

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by `n` windows."""
        counted = f"{fed[0].count}/{self.n} windows of {self.program} computed again"
        return Satisfied(counted) if fed[0].count >= self.n else Waiting(counted)
