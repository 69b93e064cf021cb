"""`Reads`: the terms on which a program consumes a file set; `Changes`: a snapshot, of which it gets what changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from tidemill.errors import UserError
from tidemill.lake.consumer.starts import Start
from tidemill.lake.consumer.terms import ATTEMPTS, MOST_TAKEN, OnChange, Order, Terms
from tidemill.names import one_of
from tidemill.run.records.declared import Declared
from tidemill.run.step.acceptors import Acceptor
from tidemill.shapes.filters import Where
from tidemill.sizes import parse_bytes


class BadReads(UserError):
    """A `Reads` that says something that cannot be."""

    code = "bad_reads"
    hint = "correct the `Reads` as the reason says"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        super().__init__(f"Reads({dataset}) is refused: {why}")


@dataclass(frozen=True, slots=True)
class Reads:
    """A file set that a program consumes, on terms of its own: `reads=[tm.Reads(clicks, max_partitions=10)]`.

    `start` counts when the program is deployed for the first time: `"beginning"`, `"now"`, or a time, from which on
    what commits is delivered; later `tidemill consumer reset` changes it. One run takes at most `max_partitions` and
    `max_bytes` (one partition comes however large it is); what it leaves starts the next run. The `"oldest"` come first
    or the `"newest"`; of these, `old_share` of each take is kept for the oldest, so that a backlog is caught up with
    beside what is new. A partition that is appended to or overwritten after it was delivered comes `"again"`, is passed
    over (`on_change="ignore"`), or discarded (`"error"`). `where` says which partitions are wanted at all,
    by the fields of their keys, like the filter of a read; others are passed over, whatever it says later.

    A partition that has failed `attempts` times, the last time alone, is discarded when its run ends. Each attempt of a
    run in which the program or a check failed counts, over all runs; a lost attempt does not.

    `accept` is called with each partition (a `ConsumedPartition`) that a run has taken, in their order, and answers
    `Accept.ACCEPT`, `SKIP` or `STOP`: what it skips comes again after a while, and what it stops at, with all behind
    it, to the next run; neither counts as a failure.
    """

    dataset: Declared | str
    start: str | datetime = "beginning"
    max_partitions: int | None = None
    max_bytes: str | None = None
    order: str = "oldest"
    old_share: float = 0
    on_change: str = "again"
    where: Where | None = None
    accept: Acceptor | None = None
    attempts: int = ATTEMPTS

    def __post_init__(self) -> None:
        """Refuse what cannot be where it is written."""
        _ = self.starts_at, self.terms

    @property
    def starts_at(self) -> Start:
        """Position at which a new consumer starts."""
        return Start.parse(self.start)

    @property
    def terms(self) -> Terms:
        """The terms of its takes, but for its filter, which needs the keys of the file set."""
        if self.old_share and self.max_partitions is None and self.max_bytes is None:
            raise BadReads(self.name, "old_share is a share of a take, which needs max_partitions or max_bytes")
        return Terms(
            MOST_TAKEN if self.max_partitions is None else self.max_partitions,
            None if self.max_bytes is None else parse_bytes(self.max_bytes),
            one_of(Order, self.order, lambda why: BadReads(self.name, f"order {why}")),
            round(self.old_share * 100),
            one_of(OnChange, self.on_change, lambda why: BadReads(self.name, f"on_change {why}")),
            accepts=self.accept is not None,
            attempts=self.attempts,
        )

    @property
    def name(self) -> str:
        """The data set, as people read it."""
        return self.dataset if isinstance(self.dataset, str) else self.dataset.qualified_name


@dataclass(frozen=True, slots=True)
class Changes:
    """A snapshot of which a program gets what changed: `reads=[tm.Changes(users)]`.

    Each committed run gets by which rows the version that is current at its begin differs from the one that the last of
    them had got: each change comes once, and what was changed and changed back between two runs not at all. A roll-back
    comes as what it changes. The snapshot needs a `key`. `start` counts at the first deployment: from the `"beginning"`
    all rows come as inserted, from `"now"` or a time what changed since; `tidemill consumer reset` changes it later.
    The version that it has seen is kept until it has seen the next.
    """

    dataset: Declared | str
    start: str | datetime = "beginning"

    def __post_init__(self) -> None:
        """Refuse what cannot be where it is written."""
        _ = self.starts_at

    @property
    def starts_at(self) -> Start:
        """Position at which a new change feed starts."""
        return Start.parse(self.start)
