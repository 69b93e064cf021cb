"""All scenarios, by name."""

from tests.explore import consumers, hands, inboxes, schedules

SCENARIOS = {**consumers.SCENARIOS, **hands.SCENARIOS, **inboxes.SCENARIOS, **schedules.SCENARIOS}
QUICK = [
    "kill-asked",
    "message",
    "limit",
    "poison",
    "poison-fenced",
    "zombie-small",
    "limits-small",
    "overwrite-small",
    "filled",
    "filled-late",
    "beside",
    "own",
    "shared",
    "lost-replies",
    "lost-reply",
    "batches",
    "others",
    "queue",
    "kill-small",
    "counted-left",
    "counted",
    "counted-2",
    "retry",
    "updated",
    "suspended",
    "conflicts",
    "creates",
    "snapshot",
    "fenced",
    "workers-small",
    "public-small",
    "inbox-small",
    "inbox-lost-replies",
    "timer",
    "cron",
    "cron-all",
    "caller-small",
    "reset",
    "requeue",
    "loop",
]
SHORT = [*QUICK, "held", "lost-replies-2", "timed-out-small", "inbox-rewritten", "messages", "drivers", "both"]
LONG = list(SCENARIOS)
