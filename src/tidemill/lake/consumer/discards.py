"""Discarded partitions: each is reported to one committed run that asks, and the run may raise an alarm."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.errors import Conflict
from tidemill.lake.consumer.managed import Consumer
from tidemill.names import ConsumerId, RunId, WritePointer
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.lake.consumer.discards_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_REPORTED: Final = 1000
"""Limit of the partitions that are reported to one run. The next run gets the others."""


@refusal
class DiscardsReported(Conflict):
    """Another run has committed the report of the same partitions."""

    code = "discards_reported"

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        super().__init__(
            f"another run of {consumer} has committed the report of the same discarded partitions", "run again"
        )


@dataclass(frozen=True, slots=True)
class Discard:
    """Discarded change, and the last error."""

    write_pointer: WritePointer
    partition_key: KeyText
    error: str


def find_unreported(db: Db, consumer_id: ConsumerId) -> list[Discard]:
    """Return the discarded changes that no committed run has reported, oldest first. Cost: the result."""
    rows = db.records(
        SQL.find_unreported, tuple[WritePointer, KeyText, str | None], consumer_id=consumer_id, most=MOST_REPORTED
    )
    return [Discard(pointer, key, error or "") for pointer, key, error in rows]


@dataclass(frozen=True, slots=True)
class ReportDiscards(Effect):
    """Record that the committing run has reported `discards`.

    `DiscardsReported` if another run has committed a report of the same partitions meanwhile.
    """

    phase = Phase.CLAIMS

    run_id: RunId
    consumer: Consumer
    discards: Sequence[Discard]

    def guards(self) -> Sequence[Call]:
        """Refuse the commit if another run has reported one of the partitions."""
        return (SQL.refuse_if_reported(consumer=self.consumer.name, **self._which),)

    def writes(self) -> Sequence[Call]:
        """Record the report."""
        return (SQL.report(run_id=self.run_id, **self._which),)

    @property
    def _which(self) -> dict[str, Param]:
        rows = [{"write_pointer": one.write_pointer, "partition_key": one.partition_key} for one in self.discards]
        return {"consumer_id": self.consumer.consumer_id, "discards": json.dumps(rows)}
