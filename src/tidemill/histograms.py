"""Histogram: durations in seconds, counted by bounds, as Prometheus wants them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass


class Histogram:
    """Durations in seconds, counted below `bounds`. The caller keeps other threads away."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._numbers = [0] * (len(self._bounds) + 1)
        self.sum = 0.0

    def note(self, seconds: float) -> None:
        """Count a duration."""
        self._numbers[bisect_left(self._bounds, seconds)] += 1
        self.sum += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Return the number of durations up to each bound, and of all, as Prometheus wants them."""
        below = 0
        found: list[tuple[str, float]] = []
        for bound, number in zip((*map(str, self._bounds), "+Inf"), self._numbers, strict=True):
            below += number
            found.append((bound, below))
        return found


@dataclass(frozen=True, slots=True)
class Shown:
    """A histogram as one scrape shows it."""

    labels: tuple[str, ...]
    buckets: list[tuple[str, float]]
    sum: float
