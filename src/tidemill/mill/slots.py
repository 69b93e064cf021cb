"""Time slots of a watermark, newest first, as pages and commands show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from tidemill.catalog.db import Db
from tidemill.epoch import to_micros
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.calendar import SQL, CellState, KnownSlot, PlacedChange, is_late, show_slot
from tidemill.shapes.partition_time import Instant, Interval, Span, WallTime, from_wall, to_wall
from tidemill.shapes.watermark_spec import WatermarkSpec

_CHANGES = 2000


@dataclass(frozen=True, slots=True)
class SlotView:
    """A time slot: it has `have` of `of` partitions. `passed` is True if the watermark has passed its end."""

    slot: str
    """The wall-clock time with which the slot begins."""
    state: CellState
    """`present` (complete), `late` (complete, but late), `incomplete` (waits for more), or `missing`."""
    have: int
    of: int
    late: int
    """Partitions of the slot that were committed after the watermark had passed its end."""
    passed: bool


def list_newest_slots(
    db: Db, fileset: Fileset, spec: WatermarkSpec, passed: Instant | None, most: int, before: datetime | None
) -> list[SlotView]:
    """Return the newest slots that begin before `before`, else all that are not too far ahead. Cost: the slots."""
    times, one = spec.partition_time, {"dataset_id": fileset.dataset_id}
    first = db.value(SQL.first_slot, WallTime, **one)
    if first is None:
        return []
    if before is None:
        ahead = times.zone.local(to_micros(db.now()) + spec.max_ahead)
        newest = db.value(SQL.last_slot, WallTime, **one, high=to_wall(ahead))
        begin = from_wall(first if newest is None else newest)
        before = times.interval.after(begin)
    low = max(_back(times.interval, before, most), from_wall(first))
    rows = db.records(SQL.list_slots, KnownSlot, **one, low=to_wall(low), high=to_wall(before), most=most)
    known = {row.slot_time: row for row in rows}
    late = _count_late(db, fileset, spec, (low, before), {from_wall(row.slot_time): row.ends_at for row in rows})
    spans: list[Span] = []
    time = times.first_slot(low, first)
    try:
        while time < before:
            row = known.get(to_wall(time))
            span = times.span_at(time) if row is None else row.span
            spans.append(span)
            time = from_wall(span.next_time)
    except OverflowError:  # at the end of the calendar
        pass
    return [_view(spec, span, known.get(span.time), passed, late) for span in reversed(spans[-most:])]


def _view(
    spec: WatermarkSpec, span: Span, row: KnownSlot | None, passed: Instant | None, late: dict[datetime, int]
) -> SlotView:
    begin = from_wall(span.time)
    number = late.get(begin, 0)
    is_passed = passed is not None and span.ends - spec.row_lag <= passed
    complete = row is not None and row.complete
    have = 0 if row is None else max(row.members, spec.expected_count if complete else 0)
    if complete:
        state = CellState.LATE if number else CellState.PRESENT
    elif have:
        state = CellState.INCOMPLETE
    else:
        state = CellState.MISSING
    return SlotView(show_slot(begin, timedelta(0)), state, have, spec.expected_count, number, is_passed)


def _count_late(
    db: Db,
    fileset: Fileset,
    spec: WatermarkSpec,
    period: tuple[datetime, datetime],
    ends: Mapping[datetime, Instant],
) -> dict[datetime, int]:
    """Return the number of late partitions by slot, among the first 2,000 changes."""
    changes: Sequence[PlacedChange] = db.records(
        SQL.list_by_time,
        PlacedChange,
        dataset_id=fileset.dataset_id,
        low=to_wall(period[0]),
        high=to_wall(period[1]),
        most=_CHANGES,
    )
    keys: dict[datetime, set[str]] = {}
    for change in changes:
        time = from_wall(change.slot_time or 0)
        if is_late(spec, time, ends.get(time), [change]):
            keys.setdefault(time, set()).add(change.partition_key)
    return {time: len(some) for time, some in keys.items()}


def _back(interval: Interval, at: datetime, steps: int) -> datetime:
    """Return a time that is about `steps` intervals earlier; the begin of the calendar at most."""
    span = timedelta(days=31 * interval.months, microseconds=interval.micros)
    return at - span * steps if (at - datetime.min) > span * steps else datetime.min  # noqa: DTZ901  # wall-clock
