"""All scenarios, by name."""

from tests.explore import consumers, schedules

SCENARIOS = {**consumers.SCENARIOS, **schedules.SCENARIOS}
QUICK = [
    "caller-small",
    "workers-small",
    "zombie-small",
    "limits-small",
    "overwrite-small",
    "conflicts",
    "message",
    "limit",
    "retry",
    "fenced",
    "updated",
    "suspended",
    "timer",
]
LONG = list(SCENARIOS)
