"""The watermark of a query over several tables: the least of its inputs, without those that are idle. Pure.

An input is idle if nothing was committed to it for its `watermark.idle-timeout`. If all inputs are idle, those count
that became idle last: so the watermark of the query stays where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from tidemill.shapes.partition_time import Instant


@dataclass(frozen=True, slots=True)
class QueryInput:
    """The watermark of a table of a query, and the time from which on the table is idle; None for no such time."""

    value: Instant | None
    idle_at: datetime | None


def find_least(inputs: Sequence[QueryInput], now: datetime) -> Instant | None:
    """Return the watermark of the query at `now`; None while an input that counts has none."""
    counting = [one for one in inputs if one.idle_at is None or one.idle_at > now]
    if not counting:
        last = max(one.idle_at for one in inputs if one.idle_at is not None)
        counting = [one for one in inputs if one.idle_at == last]
    values = [one.value for one in counting if one.value is not None]
    return min(values) if len(values) == len(counting) else None
