"""Partitions that were given up: each is told to one committed run that asks, which may raise an alarm."""

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
from tidemill.lake.keys import KeyText
from tidemill.names import ConsumerId, RunId, WritePointer

if TYPE_CHECKING:
    from tidemill.lake.consumer.discards_sql import Sql

SQL: Sql = load_sql(__file__)

MOST_TOLD: Final = 1000
"""Partitions of which one run is told; the next one is told of the others."""


@refusal
class DiscardsTold(Conflict):
    """Another run has committed that was told of the same partitions."""

    code = "discards_told"

    def __init__(self, consumer: str) -> None:
        self.consumer = consumer
        super().__init__(
            f"another run of {consumer} has committed the report of the same discarded partitions; run again"
        )


@dataclass(frozen=True, slots=True)
class Discard:
    """A change that was given up, and what was said of it last."""

    write_pointer: WritePointer
    partition_key: KeyText
    error: str


def find_untold(db: Db, consumer_id: ConsumerId) -> list[Discard]:
    """What was given up, and no committed run was told of; the oldest first. Cost: what is found."""
    rows = db.records(
        SQL.find_untold, tuple[WritePointer, KeyText, str | None], consumer_id=consumer_id, most=MOST_TOLD
    )
    return [Discard(pointer, key, error or "") for pointer, key, error in rows]


@dataclass(frozen=True, slots=True)
class TellDiscards(Effect):
    """The run that commits was told of these; `DiscardsTold` if another one was that has committed meanwhile."""

    phase = Phase.CLAIMS

    run_id: RunId
    consumer: Consumer
    discards: Sequence[Discard]

    def guards(self) -> Sequence[Call]:
        """Nobody else was told."""
        return (SQL.refuse_if_told(consumer=self.consumer.name, **self._which),)

    def writes(self) -> Sequence[Call]:
        """It was told."""
        return (SQL.tell(run_id=self.run_id, **self._which),)

    @property
    def _which(self) -> dict[str, Param]:
        rows = [{"write_pointer": one.write_pointer, "partition_key": one.partition_key} for one in self.discards]
        return {"consumer_id": self.consumer.consumer_id, "discards": json.dumps(rows)}
