"""Order of refreshes: which of two versions of a snapshot replaces the other, whichever commits first (seed 002).

Versions are ordered by order time, then by write pointer. The order time of a refresh is fixed at its begin:

- With a logical time (its run was started by a time trigger): that logical time, or the order time of the version that
  was current when the run began, if that is later. So overlapping refreshes go by the schedule, and a refresh replaces
  each version that was current before its run began.
- Without one (by hand, by data, a roll-back): the latest order time of the current version and of the open refreshes.
  So the refresh replaces all that began before it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Transaction
from tidemill.lake.datasets import DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import DatasetId, WritePointer

if TYPE_CHECKING:
    from tidemill.lake.snapshot.refresh_order_sql import Sql

SQL: Sql = load_sql(__file__)

_EARLIEST: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RefreshOrder:
    """Logical time of a refresh, and the order time that decides; None for none."""

    logical_time: datetime | None = None
    order_time: datetime | None = None


def sort_key(order_time: datetime | None, version: int) -> tuple[datetime, int]:
    """Return the key by which versions are sorted; the greatest committed version is current."""
    return (_EARLIEST if order_time is None else order_time), version


@dataclass(frozen=True, slots=True)
class OrderRefreshes(Effect):
    """Fix the place of a transaction in the order of refreshes, for each snapshot among its `outputs`, in its begin.

    `logical_time` is the one of its run, and `run_began` the transaction of the run's first attempt, None in that
    attempt.
    """

    phase = Phase.PUBLISH

    outputs: Collection[Fileset]
    logical_time: datetime | None = None
    run_began: WritePointer | None = None

    def writes(self) -> Sequence[Call]:
        """Write the order to the declarations of the transaction."""
        snapshots = [one.dataset_id for one in self.outputs if one.dataset.kind is DatasetKind.SNAPSHOT]
        if not snapshots:
            return ()
        params: dict[str, Param] = {"snapshots": json.dumps(sorted(snapshots))}
        if self.logical_time is None:
            return (SQL.order_by_begin(**params),)
        times: dict[str, Param] = {"logical_time": self.logical_time, "run_began": self.run_began}
        return (SQL.order_by_logical_time(**params, **times),)


def find_order(db: Db, dataset_id: DatasetId, tx: Transaction) -> RefreshOrder:
    """Return the order of an open transaction among the refreshes of one snapshot; no times after its end."""
    order = db.record(SQL.find_order, RefreshOrder, dataset_id=dataset_id, write_pointer=tx.write_pointer)
    return order or RefreshOrder()
