"""The balance of the demo: what landed against what is published, row by row. No run's counter goes into it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tidemill.demo.flights import Feed
from tidemill.demo.landing import Landing

RowKey = tuple[str, ...]
_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class PublishedKeys:
    """The keys of all rows that readers see, in each loaded file set and in what is made from the flights.

    `joined` are flights again, by key; `hourly` and `daily` are the numbers of flights that the reports show for each
    hour (`2013-01-01T10:00:00Z`) and day (`2013-01-01`).
    """

    loaded: Mapping[Feed, Counter[RowKey]]
    joined: Counter[RowKey]
    hourly: Counter[str]
    daily: Counter[str]


@dataclass(frozen=True, slots=True)
class RowBalance:
    """Rows that landed, and what became of each.

    `lost` rows did not come through one of the steps from the inbox to the reports; those that are there `twice`
    came out of one more often than they went in.
    """

    landed: int
    published: int
    rejected: int
    duplicates: int
    lost: int
    twice: int

    @property
    def good(self) -> bool:
        """Return whether every row that landed is accounted for, once."""
        whole = self.landed == self.published + self.rejected + self.duplicates
        return whole and self.lost == 0 and self.twice == 0

    def __str__(self) -> str:
        return (
            f"balance  in={self.landed} out={self.published} rejected={self.rejected} duplicates={self.duplicates} "
            f"lost={self.lost} twice={self.twice}"
        )


def weigh(ledger: Sequence[Landing], refused: Collection[tuple[Feed, str]], published: PublishedKeys) -> RowBalance:
    """Compare the `ledger` with what is `published`; `refused` are the files that the inboxes gave up, by name."""
    accepted = [landing for landing in ledger if (landing.feed, landing.name) not in refused]
    copies = {feed: Counter(r.key for each in accepted if each.feed is feed for r in each.rows) for feed in Feed}
    once = {feed: Counter(dict.fromkeys(copies[feed], 1)) for feed in Feed}
    # Each step against the one before it: a row counts where it was lost, not again in all that is made from it.
    steps = (
        *(_difference(once[feed], published.loaded[feed]) for feed in Feed),
        _difference(published.loaded[Feed.FLIGHTS], published.joined),
        _difference(_total_by(published.joined, lambda key: key[0]), published.hourly),
        _difference(_total_by(published.hourly, lambda hour: hour.partition("T")[0]), published.daily),
    )
    landed = sum(len(landing.rows) for landing in ledger)
    return RowBalance(
        landed=landed,
        published=sum(published.loaded[feed].total() for feed in Feed),
        rejected=landed - sum(len(landing.rows) for landing in accepted),
        duplicates=sum((copies[feed] - once[feed]).total() for feed in Feed),
        lost=sum(lost for lost, _ in steps),
        twice=sum(twice for _, twice in steps),
    )


def _difference(expected: Counter[_K], found: Counter[_K]) -> tuple[int, int]:
    """Count the keys that are missing, and the keys that are there too often."""
    return (expected - found).total(), (found - expected).total()


def _total_by(counted: Counter[_K], group: Callable[[_K], str]) -> Counter[str]:
    totals: Counter[str] = Counter()
    for key, count in counted.items():
        totals[group(key)] += count
    return totals
