"""The JSON of constraints: what the catalog keeps, and what people write by hand. docs/triggers.md shows each form."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from tidemill.json_specs import sparse, union
from tidemill.plugins import load_kinds
from tidemill.schedule.constraints import Concurrency, Constraint, GroupConcurrency, Rate
from tidemill.schedule.waits import Delay, Probe, SinceLastRun, TimeRange

CONSTRAINTS: Final[Mapping[str, type[Constraint]]] = {
    "concurrency": Concurrency,
    "group_concurrency": GroupConcurrency,
    "rate": Rate,
    "delay": Delay,
    "time_range": TimeRange,
    "since_last_run": SinceLastRun,
    "probe": Probe,
}
"""Constraints by their `type` in JSON."""

union(Constraint, CONSTRAINTS, partial(load_kinds, "tidemill.constraints", Constraint))
for _kind in CONSTRAINTS.values():
    sparse(_kind)
