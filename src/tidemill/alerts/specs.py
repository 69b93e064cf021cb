"""Declared alerts: a rule, the targets that are notified, and how often they are notified again."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from tidemill.alerts.rules import BadRule, Rule
from tidemill.alerts.targets import Target, check_target
from tidemill.json_specs import sparse


@sparse
@dataclass(frozen=True, slots=True)
class AlertSpec:
    """The declaration of an alert. Without targets an alert is shown, and nothing is sent."""

    rule: Rule
    to: tuple[Target, ...] = ()
    repeat: timedelta | None = None
    """Targets are notified again after this time, while the alert is open and not acknowledged. None: never again."""
    description: str = ""
    """A text for the people that are notified, such as the next step."""

    def __post_init__(self) -> None:
        """Refuse a repetition without end in no time, and targets that are too long."""
        if self.repeat is not None and not timedelta(minutes=1) <= self.repeat <= timedelta(days=366):
            raise BadRule("repeat", "an alert is repeated after one minute at the earliest, and a year at the latest")
        object.__setattr__(self, "to", tuple(dict.fromkeys(map(check_target, self.to))))
