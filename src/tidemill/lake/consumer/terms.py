"""The terms on which a managed consumer takes: how much at once, in which order, and what it wants again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from tidemill.errors import UserError
from tidemill.json_specs import sparse

MOST_TAKEN: Final = 10_000
"""Most partitions that one take claims, unless the terms say otherwise."""
ATTEMPTS: Final = 3
"""Failures after which a partition that fails alone is discarded, where the program says nothing else."""
_ALL: Final = 100


class BadTerms(UserError):
    """Terms under which nothing could be taken, or that contradict each other."""

    code = "bad_terms"
    hint = "correct the terms of the take as the reason says"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the terms of a take are refused: {why}")


class Order(StrEnum):
    """Order in which waiting partitions are claimed."""

    OLDEST = "oldest"
    NEWEST = "newest"


class OnChange(StrEnum):
    """Rule for a partition that was appended to or overwritten after its delivery."""

    AGAIN = "again"
    """The partition is delivered again: the appended files, or the whole new content."""
    IGNORE = "ignore"
    """The change is not delivered."""
    ERROR = "error"
    """The partition is discarded, and a person looks at it; `requeue` delivers it again."""


@sparse
@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a take: its size, its order, and the partitions that it may claim.

    A take claims at most `partitions`, and at most so many `bytes`, but always at least one partition. With the newest
    first, `old_percent` of both are kept for the oldest. So catching up continues beside new partitions.
    """

    partitions: int = MOST_TAKEN
    bytes: int | None = None
    order: Order = Order.OLDEST
    old_percent: int = 0
    on_change: OnChange = OnChange.AGAIN
    where: Mapping[str, object] | None = None
    """The keys that the consumer wants, as `KeyFilter.to_json` returns them. Other partitions are not delivered."""
    accepts: bool = False
    """True if the program looks at the taken partitions, and returns those that it does not accept."""
    attempts: int = ATTEMPTS
    """Number of failures after which a partition is discarded. The last failure must be of the partition alone."""

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
        """Return the claims' rounds, in order. The second round may use the space that the first has left."""
        if not self.old_percent:
            return [self]
        old = max(1, self.partitions * self.old_percent // _ALL)
        size = None if self.bytes is None else max(1, self.bytes * (_ALL - self.old_percent) // _ALL)
        newest = replace(self, partitions=self.partitions - old, bytes=size, old_percent=0)
        return [newest, replace(self, order=Order.OLDEST, old_percent=0)]
