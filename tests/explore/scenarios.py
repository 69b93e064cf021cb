"""All scenarios, by name."""

from tests.explore import consumers

SCENARIOS = {**consumers.SCENARIOS}
QUICK = ["caller", "workers", "zombie"]
LONG = list(SCENARIOS)
