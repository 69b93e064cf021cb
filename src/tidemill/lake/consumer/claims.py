"""Claims: what becomes of what a run has taken.

They belong to the run through all its attempts; its commit completes them, so that what was consumed and what was
published are one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Transaction
from tidemill.errors import Fenced
from tidemill.lake.claims import ClaimTable
from tidemill.names import ConsumerId, DatasetId, RunId
from tidemill.shapes.keys import KeyText

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


def return_some(
    db: Db, run_id: RunId, claims: Iterable[tuple[ConsumerId, KeyText]], wait: timedelta | None = None
) -> None:
    """Return claims of the run without counting a failure.

    The next take gets them, with `wait` not before that time.
    """
    returned = [{"consumer_id": consumer_id, "partition_key": key} for consumer_id, key in claims]
    if wait is None:
        db.run(SQL.return_some, run_id=run_id, returned=json.dumps(returned))
    else:
        wait = max(timedelta(milliseconds=1), wait)
        db.run(SQL.return_for_later, run_id=run_id, returned=json.dumps(returned), wait=wait)


def hand_over_partitions(db: Db, run_id: RunId, heir: RunId) -> None:
    """Hand the partitions that a run holds to another run, for its first attempt."""
    db.run(SQL.hand_over, run_id=run_id, heir=heir)


PARTITIONS: Final = ClaimTable(
    phase=Phase.CLAIMS,
    find_held=SQL.find_held,
    refuse_if_moved=SQL.refuse_if_moved,
    restamp=SQL.restamp,
    complete=(SQL.refuse_other_epoch, SQL.record_input, SQL.complete),
    count_failure=SQL.count_failure,
    give_up=SQL.discard,
    gives_up_early=False,
    return_claims=SQL.return_claims,
)
"""Claims of partitions by consumers. The run keeps a partition that fails alone until the end of the run."""


@dataclass(frozen=True, slots=True)
class ReturnOfConsumers(Effect):
    """Return what a run holds by these consumers, without a failure; belongs before its `Complete`."""

    phase = Phase.CLAIMS

    run_id: RunId
    epoch: int
    consumers: Sequence[ConsumerId]

    def writes(self) -> Sequence[Call]:
        """Return the partitions."""
        consumers = json.dumps(list(self.consumers))
        return (SQL.return_of_consumers(run_id=self.run_id, epoch=self.epoch, consumers=consumers),)


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
