"""The findings of a check of a whole catalog: the first ones in full, and the number of the others."""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

MOST_SHOWN: Final = 1000
"""The number of findings in full. A catalog with more has one cause to look for."""


class Findings(Generic[T]):
    """The first `MOST_SHOWN` findings, and how many came after them."""

    def __init__(self) -> None:
        self.shown: list[T] = []
        self.not_shown = 0

    def add(self, finding: T) -> None:
        """Keep the finding, or count it."""
        if len(self.shown) < MOST_SHOWN:
            self.shown.append(finding)
        else:
            self.not_shown += 1
