"""The terms on which a managed consumer takes: how much at once, in which order, and what it wants again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tidemill.errors import UserError
from tidemill.json_specs import sparse

MOST_TAKEN: Final = 10_000
"""Partitions that one take claims at most, where nothing else is said."""
ATTEMPTS: Final = 3
"""Failures after which a partition that fails alone is discarded, where the program says nothing else."""
_ALL: Final = 100


class BadTerms(UserError):
    """Terms under which nothing could be taken, or that contradict each other."""

    code = "bad_terms"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the terms of a take are refused: {why}")


class Order(StrEnum):
    """Which of the waiting partitions come first."""

    OLDEST = "oldest"
    NEWEST = "newest"


class OnChange(StrEnum):
    """What becomes of a partition that was appended or overwritten after it had been delivered."""

    AGAIN = "again"
    """It is delivered again: what was added, or the whole new content."""
    IGNORE = "ignore"
    """It is passed over."""
    ERROR = "error"
    """The partition is discarded, and a person looks at it; `requeue` delivers it again."""


@sparse
@dataclass(frozen=True, slots=True)
class Terms:
    """How much one take claims, and what.

    At most `partitions`, and so many `bytes` (one partition comes however large it is). With the newest first,
    `old_percent` of both are kept for the oldest, so that catching up goes on beside what is new.
    """

    partitions: int = MOST_TAKEN
    bytes: int | None = None
    order: Order = Order.OLDEST
    old_percent: int = 0
    on_change: OnChange = OnChange.AGAIN
    where: Mapping[str, object] | None = None
    """Of the keys, those that the consumer wants at all, as `KeyFilter.to_json` gives it; others are passed over."""
    accepts: bool = False
    """Whether its program looks at what was taken and puts back what it does not accept."""
    attempts: int = ATTEMPTS
    """How often a partition may fail. One that has failed so often, the last time alone, is discarded."""

    def __post_init__(self) -> None:
        """Refuse terms under which nothing could ever be taken."""
        if self.partitions < 1 or (self.bytes is not None and self.bytes < 1):
            raise BadTerms(f"they must allow something, not {self.partitions} partitions and {self.bytes} bytes")
        if self.attempts < 1:
            raise BadTerms(f"a partition has at least one attempt, not {self.attempts}")
        if not 0 <= self.old_percent < _ALL:
            raise BadTerms(f"the share of old ones must be at least 0 and less than 1, not {self.old_percent} %")
        if self.old_percent and self.order is Order.OLDEST:
            raise BadTerms("a share of old ones goes with the newest first: the oldest first are all old ones")
        if self.old_percent and self.partitions == 1:
            raise BadTerms("a share of old ones needs takes of two partitions or more")

    @property
    def rounds(self) -> list[Terms]:
        """What a take looks for, one after the other: the second may use what the first has left."""
        if not self.old_percent:
            return [self]
        old = max(1, self.partitions * self.old_percent // _ALL)
        size = None if self.bytes is None else max(1, self.bytes * (_ALL - self.old_percent) // _ALL)
        newest = replace(self, partitions=self.partitions - old, bytes=size, old_percent=0)
        return [newest, replace(self, order=Order.OLDEST, old_percent=0)]
