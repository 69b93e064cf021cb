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
    "creates",
    "snapshot",
    "inbox-small",
    "lost-replies",
    "inbox-lost-replies",
    "message",
    "limit",
    "retry",
    "lost-reply",
    "fenced",
    "updated",
    "suspended",
    "timer",
]
SHORT = [*QUICK, "lost-writers", "inbox-rewritten", "messages", "drivers", "both"]
LONG = list(SCENARIOS)
