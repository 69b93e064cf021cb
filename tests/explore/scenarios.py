"""All scenarios, by name."""

from tests.explore import consumers, inboxes, schedules

SCENARIOS = {**consumers.SCENARIOS, **inboxes.SCENARIOS, **schedules.SCENARIOS}
QUICK = [
    "caller-small",
    "workers-small",
    "zombie-small",
    "limits-small",
    "overwrite-small",
    "conflicts",
    "inbox-small",
    "inbox-rewritten",
    "message",
    "limit",
    "retry",
    "fenced",
    "updated",
    "suspended",
    "timer",
]
LONG = list(SCENARIOS)
