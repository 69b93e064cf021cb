"""Stand-ins for triggers and constraints of packages that are not installed on this machine.

A schedule that has one starts nothing. Its jobs keep what they are fed, so nothing is lost until the package is there.
The other schedules go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from tidemill.catalog.messages import Message
from tidemill.json_specs import stand_in
from tidemill.names import EventKey
from tidemill.schedule.answers import Answer, NotBefore
from tidemill.schedule.constraints import Constraint, Facts
from tidemill.schedule.data_triggers import MessageTrigger
from tidemill.schedule.triggers import Fed, Trigger

_LOOK_AGAIN: Final = timedelta(minutes=1)
_FAR: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TriggerNotInstalled(MessageTrigger):
    """A trigger of an unknown `kind`. `plain` is its JSON."""

    kind: str
    plain: str

    @property
    def event_keys(self) -> tuple[EventKey, ...]:
        """A key that no message has. The catalog has the keys of the trigger itself."""
        return (EventKey(f"not_installed:{self.kind}"),)

    def feed(self, fed: Fed, message: Message) -> Fed:
        """Return what the leaf was fed, with one more message."""
        return replace(fed, count=fed.count + 1)

    def check(self, fed: Sequence[Fed], now: datetime) -> Answer:
        """Return that nothing starts, and that the next look comes in a minute."""
        return _not_yet(self.kind, now)

    def __str__(self) -> str:
        return f"{self.kind} (not installed)"


@dataclass(frozen=True, slots=True)
class ConstraintNotInstalled(Constraint):
    """A constraint of an unknown `kind`. `plain` is its JSON."""

    kind: str
    plain: str

    def check(self, facts: Facts, now: datetime) -> Answer:
        """Return that nothing starts, and that the next look comes in a minute."""
        return _not_yet(self.kind, now)

    def __str__(self) -> str:
        return f"{self.kind} (not installed)"


def _not_yet(kind: str, now: datetime) -> NotBefore:
    why = f"no installed package has {kind!r}; install the package and start Tidemill again, or delete the schedule"
    return NotBefore(now + min(_LOOK_AGAIN, _FAR - now), why)


def _write(plain: Mapping[str, object]) -> str:
    return json.dumps(plain, sort_keys=True)


stand_in(Trigger, TriggerNotInstalled, lambda kind, plain: TriggerNotInstalled(kind, _write(plain)))
stand_in(Constraint, ConstraintNotInstalled, lambda kind, plain: ConstraintNotInstalled(kind, _write(plain)))
