"""Transactions, slots and partitions that hold the watermark W of a file set where it stands, not behind it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.named import Param, load_sql
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.watermark import EARLIEST, Holder, PartitionWait, WatermarkRow, list_holders, list_parked
from tidemill.lake.window.window_plan import times_within
from tidemill.names import DatasetId
from tidemill.shapes.partition_time import WallTime, from_wall
from tidemill.shapes.watermark_spec import GapPolicy, WatermarkSpec

if TYPE_CHECKING:
    from tidemill.lake.window.holding_sql import Sql

SQL: Sql = load_sql(__file__)

_MOST_NAMED: Final = 3


def list_holding(db: Db, spec: WatermarkSpec, row: WatermarkRow) -> list[Holder]:
    """Return the open transactions that may write times before and after W, oldest first."""
    value = EARLIEST if row.value is None else row.value
    return [one for one in list_holders(db, row.dataset_id) if one.begins - spec.row_lag <= value < one.ends]


def list_awaited(db: Db, spec: WatermarkSpec, row: WatermarkRow, limit: int) -> list[tuple[WallTime, int]]:
    """Return the slots that W waits for, earliest first, with the number of their partitions that have come."""
    found = db.records(
        SQL.list_incomplete, tuple[WallTime, int], **_beyond(spec, row), max_ahead=spec.max_ahead, limit=limit
    )
    if spec.gap is GapPolicy.WAIT:
        where: dict[str, Param] = {"dataset_id": row.dataset_id, "low": _beyond(spec, row)["low"]}
        missing = db.records(SQL.list_missing, WallTime, **where, max_ahead=spec.max_ahead, limit=limit)
        found += [(time, 0) for time in missing]
    return sorted(found)[:limit]


def list_awaited_partitions(db: Db, spec: WatermarkSpec, row: WatermarkRow, limit: int) -> list[PartitionWait]:
    """Return the partitions that are there and not complete, and that W waits for, by time slot and key."""
    return db.records(SQL.list_waits, PartitionWait, **_beyond(spec, row), limit=limit)


@dataclass(frozen=True, slots=True)
class SlotAhead:
    """A complete time slot too far ahead of the clock, which counts at `due_at`."""

    slot_time: WallTime
    due_at: datetime
    completed_at: datetime


@dataclass(frozen=True, slots=True)
class Misdated:
    """Partitions of a file set that no window waits for: their names, the first since when, and when the next counts.

    `due_at` is None without a partition ahead of the clock.
    """

    told: str
    since: datetime
    due_at: datetime | None


def list_ahead(db: Db, dataset_id: DatasetId, limit: int) -> list[SlotAhead]:
    """Return the complete slots with partitions too far ahead of the clock, earliest first."""
    return db.records(SQL.list_ahead, SlotAhead, dataset_id=dataset_id, limit=limit)


def find_misdated(db: Db, fileset: Fileset) -> Misdated | None:
    """Find the partitions that no window waits for: parked ones, and those too far ahead of the clock."""
    parked = [fileset.show(key) for key in list_parked(db, fileset, _MOST_NAMED)]
    ahead = list_ahead(db, fileset.dataset_id, _MOST_NAMED)
    times = ", ".join(str(from_wall(one.slot_time)) for one in ahead)
    told = [f"no time can be read from {', '.join(parked)}"] if parked else []
    told += [f"partitions of {times} are further ahead than 'watermark.max-ahead' allows"] if times else []
    first = db.value(SQL.find_first_parked, datetime, dataset_id=fileset.dataset_id)
    since = min((*([first] if first else []), *(one.completed_at for one in ahead)), default=None)
    return None if since is None else Misdated("; ".join(told), since, ahead[0].due_at if ahead else None)


def _beyond(spec: WatermarkSpec, row: WatermarkRow) -> dict[str, Param]:
    """Return the least time of the slots that may hold W, and the instant after which such slots end.

    With `gap="wait"`, W waits for the first slot that is missing or not complete. With `gap="skip"`, W passes each slot
    that ends before a complete one. An open transaction may delay this.
    """
    if spec.gap is GapPolicy.WAIT:
        low = EARLIEST if row.next_time is None else row.next_time
        return {"dataset_id": row.dataset_id, "low": low, "ends": EARLIEST}
    reached = [one for one in (row.value, row.target) if one is not None]
    if not reached:
        return {"dataset_id": row.dataset_id, "low": EARLIEST, "ends": EARLIEST}
    ends = max(reached) + spec.row_lag
    return {
        "dataset_id": row.dataset_id,
        "low": times_within(spec.partition_time, spec.row_lag, ends, ends)[0],
        "ends": ends,
    }
