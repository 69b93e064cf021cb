"""The expected windows of the demo, by one plain count over all published flights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of the demo, which begin each hour: the `program` that computes them, where to, and how long they are."""

    program: str
    dataset: str
    size: timedelta


WINDOWS: Final = (
    Windows("count_hours", "delays_by_hour", timedelta(hours=1)),
    Windows("count_24h", "delays_of_24h", timedelta(hours=24)),
)
SLIDE: Final = timedelta(hours=1)

WindowBounds = tuple[datetime, datetime]
"""Start and end."""


def count_windows(flights: Iterable[datetime], size: timedelta) -> Counter[WindowBounds]:
    """Return the number of `flights` in each closed window that has any.

    `flights` are the beginnings of their hours. The watermark is at the end of the last hour.
    """
    hours = Counter(flights)
    windows: Counter[WindowBounds] = Counter()
    for hour, number in hours.items():
        end = hour + SLIDE
        while end <= min(hour + size, max(hours) + SLIDE):
            windows[end - size, end] += number
            end += SLIDE
    return windows
