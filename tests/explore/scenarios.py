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
    "public-small",
    "poison",
    "poison-fenced",
    "filled",
    "inbox-small",
    "lost-replies",
    "inbox-lost-replies",
    "message",
    "batches",
    "counted",
    "counted-2",
    "held",
    "limit",
    "retry",
    "lost-reply",
    "fenced",
    "updated",
    "suspended",
    "timer",
]
SHORT = [*QUICK, "timed-out-small", "inbox-rewritten", "messages", "drivers", "both"]
LONG = list(SCENARIOS)
