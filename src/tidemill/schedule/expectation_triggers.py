"""Triggers that messages about arrival expectations feed: data that did not arrive in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from tidemill.catalog.messages import Message
from tidemill.names import EventKey, missing_event, split_qualified
from tidemill.schedule.answers import Answer, Satisfied, Waiting
from tidemill.schedule.data_triggers import MessageTrigger, Named, dataset_name
from tidemill.schedule.triggers import Fed


@dataclass(frozen=True, slots=True, init=False)
class Missing(MessageTrigger):
    """The arrival expectation of a data set was broken: once for each break. An arrival ends a break."""

    dataset: str

    def __init__(self, dataset: str | Named) -> None:
        object.__setattr__(self, "dataset", dataset_name("Missing", dataset))

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """The breaks of the expectation."""
        namespace, (name,) = split_qualified("data set", self.dataset, 1)
        return (missing_event(namespace, name),)

    def __str__(self) -> str:
        return f"Missing({self.dataset})"

    def feed(self, fed: Fed, message: Message) -> Fed:
        """Return what the leaf was fed, with one more break."""
        return replace(fed, count=fed.count + 1)

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Satisfied by one break."""
        if fed[0].count:
            return Satisfied(f"nothing has arrived in {self.dataset} as expected")
        return Waiting(f"the arrival expectation of {self.dataset} is not broken")
