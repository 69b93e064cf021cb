"""Claims: what becomes of what a run has taken.

They belong to the run through all its attempts; its commit completes them, so that what was consumed and what was
published are one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Transaction
from tidemill.durations import to_milliseconds
from tidemill.errors import Fenced
from tidemill.lake.keys import KeyText
from tidemill.names import ConsumerId, DatasetId, RunId

if TYPE_CHECKING:
    from tidemill.lake.consumer.claims_sql import Sql

SQL: Sql = load_sql(__file__)


@refusal
class ClaimsTakenOver(Fenced):
    """The run's claims belong to another attempt of it."""

    code = "claims_taken_over"

    def __init__(self, run: str, epoch: str) -> None:
        self.run = run
        self.epoch = int(epoch)
        super().__init__(f"an attempt of run {run}", f"its claims belong to attempt {epoch}")


def holds_any(db: Db, run_id: RunId) -> bool:
    """Whether the run holds anything that it took: partitions, or files of an inbox."""
    return db.one(SQL.find_holding, run_id=run_id) is not None


def return_some(
    db: Db, run_id: RunId, claims: Iterable[tuple[ConsumerId, KeyText]], wait: timedelta | None = None
) -> None:
    """Return claims of the run without counting a failure; whoever takes next gets them, with `wait` after a time."""
    returned = [{"consumer_id": consumer_id, "partition_key": key} for consumer_id, key in claims]
    if wait is None:
        db.run(SQL.return_some, run_id=run_id, returned=json.dumps(returned))
    else:
        milliseconds = max(1, to_milliseconds(wait))
        db.run(SQL.return_for_later, run_id=run_id, returned=json.dumps(returned), wait=milliseconds)


@dataclass(frozen=True, slots=True)
class RestampClaims(Effect):
    """Hand the claims of a run to its new attempt; belongs to the attempt's begin."""

    phase = Phase.CLAIMS

    run_id: RunId
    epoch: int

    def writes(self) -> Sequence[Call]:
        """Set the epoch."""
        return (SQL.restamp(run_id=self.run_id, epoch=self.epoch),)


@dataclass(frozen=True, slots=True)
class CompleteClaims(Effect):
    """Complete what the run holds, and record it as the run's input; belongs to the run's commit."""

    phase = Phase.CLAIMS

    run_id: RunId
    epoch: int

    def guards(self) -> Sequence[Call]:
        """Refuse when the claims belong to another attempt (`ClaimsTakenOver`)."""
        return (SQL.refuse_other_epoch(run_id=self.run_id, epoch=self.epoch),)

    def writes(self) -> Sequence[Call]:
        """Record, complete."""
        run: dict[str, Param] = {"run_id": self.run_id}
        return SQL.record_input(**run), SQL.complete(**run)


@dataclass(frozen=True, slots=True)
class FailClaims(Effect):
    """Count a failure of the program, or of a check, against what the run holds and keeps for its next attempt.

    Never for an attempt that was lost: what did not fail is not to blame.
    """

    phase = Phase.CLAIMS

    run_id: RunId
    epoch: int
    error: str

    def writes(self) -> Sequence[Call]:
        """Count."""
        return (SQL.count_failure(run_id=self.run_id, epoch=self.epoch, error=self.error),)


@dataclass(frozen=True, slots=True)
class ReturnClaims(Effect):
    """Return the claims of a run at its end without success.

    When the run `failed`, the failure of its last attempt is counted (no `FailClaims` beside it). A partition that was
    alone and has failed as often as the consumer's terms allow is discarded. All others wait for `backoff`, doubled
    with each failure, up to an hour. When the run was killed, nothing is counted and nothing waits.
    """

    phase = Phase.CLAIMS

    run_id: RunId
    epoch: int
    failed: bool
    error: str
    backoff: timedelta

    def writes(self) -> Sequence[Call]:
        """Count, discard, release."""
        run: dict[str, Param] = {"run_id": self.run_id, "epoch": self.epoch}
        if not self.failed:
            return (SQL.return_claims(**run, backoff=0),)
        backoff = max(1, self.backoff // timedelta(milliseconds=1))
        return (
            SQL.count_failure(**run, error=self.error),
            SQL.discard_alone(**run),
            SQL.return_claims(**run, backoff=backoff),
        )


@dataclass(frozen=True, slots=True)
class SkipOwn(Effect):
    """Mark what `tx` adds to the data set of one of its own consumers as done; belongs behind its `AddPartitions`.

    For a program that reads and writes one file set and says `deliver_own=False`.
    """

    phase = Phase.CLAIMS

    tx: Transaction
    dataset_id: DatasetId
    consumer: str
    """By name: it may have been reset since the begin."""

    def writes(self) -> Sequence[Call]:
        """Rows of the working set that are done from the start."""
        params: dict[str, Param] = {
            "dataset_id": self.dataset_id,
            "consumer": self.consumer,
            "write_pointer": self.tx.write_pointer,
            "epoch": self.tx.epoch,
        }
        return (SQL.skip_own(**params),)
