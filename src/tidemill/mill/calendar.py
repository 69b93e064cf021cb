"""Calendar of a file set: its partitions by time, from years down to the slots of a day.

The time of a partition is that of its watermark, else the first field of its key, if that is a date or a timestamp.
Each level reads a bounded number of rows: up to `_LISTED` partitions are listed. Of more, each cell is counted up to a
bound of its own, and says so.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.epoch import to_micros
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.page import BadFilter
from tidemill.names import RunId
from tidemill.shapes.filters import ALL_KEYS
from tidemill.shapes.keys import KeySchema, KeyText, KeyType, KeyValue
from tidemill.shapes.partition_time import Instant, Interval, Span, WallTime, from_wall, to_wall
from tidemill.shapes.watermark_spec import WatermarkSpec

if TYPE_CHECKING:
    from tidemill.mill.calendar_sql import Sql

SQL: Sql = load_sql(__file__)

_LISTED: Final = 1000
"""Changes that a level lists; of more, the cells are counted."""
_COUNTED: Final = 6000
"""Changes that a level counts, in all cells together."""
_SLOTS: Final = 1500
"""Time slots of a period in which missing ones are looked for."""
_YEARS: Final = 60
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_LATEST: Final = datetime.max  # noqa: DTZ901  # a wall-clock time
_FORMS: Final = ("all", "2026", "2026-01", "2026-W02", "2026-01-31")
_WITHIN: Final = re.compile(r"(?P<year>\d{4})(?:-W(?P<week>\d\d)|-(?P<month>\d\d)(?:-(?P<day>\d\d))?)?", re.ASCII)


class CellState(StrEnum):
    """State of a cell of a calendar."""

    PRESENT = "present"
    REWRITTEN = "rewritten"
    """A partition was overwritten after its first commit."""
    LATE = "late"
    """A partition was committed after the watermark had passed its time."""
    INCOMPLETE = "incomplete"
    """Some slots or partitions are missing."""
    MISSING = "missing"
    """Nothing is there, though a later slot has come."""
    AWAITED = "awaited"
    """The time has passed, and nothing later has come: the next slot, or each one that an expectation wants."""
    OPEN = "open"
    """The time has not passed yet."""
    EMPTY = "empty"
    """Nothing is there, and nothing is expected."""


@dataclass(frozen=True, slots=True)
class CalendarCell:
    """A year, month, day or slot of a calendar: its partitions with their rows and bytes, and the missing slots.

    `late` and `rewritten` count partitions where `partitions` are listed one by one.
    """

    slot: str
    state: CellState
    partitions: int
    rows: int
    bytes: int
    rewritten: int
    late: int
    missing: int
    more: bool
    """True if the counting stopped: there are more partitions."""
    within: str | None
    """The period of the cell, which `within` takes; None for a slot, which has no level below."""
    partition: str | None
    """The partition, where it is the only one."""


@dataclass(frozen=True, slots=True)
class PlacedPartition:
    """A partition in a calendar."""

    partition: str
    slot: str
    state: CellState
    files: int
    rows: int
    bytes: int
    run_id: RunId
    committed_at: datetime
    """The time of the last commit that changed the partition."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The cells of one period, and the partitions in it if there are not too many.

    `by` says where the times come from: `watermark` or the name of a key field. Without times it is empty, as `cells`.
    """

    dataset: str
    by: str
    zone: str
    level: str
    """`all`, `year`, `month`, `week` or `day`."""
    within: str
    previous: str | None
    next: str | None
    first: str | None
    """The time of the first partition, on the wall clock of `zone`."""
    last: str | None
    cells: tuple[CalendarCell, ...]
    partitions: tuple[PlacedPartition, ...]
    counted: bool
    """True if there are too many partitions to list: cells may stop counting."""


class PlacedChange(NamedTuple):
    """Row of a current change; `passed` is the watermark before its commit."""

    partition_key: KeyText
    slot_time: WallTime | None
    rewritten: bool
    files: int
    bytes: int
    row_count: int | None
    run_id: RunId
    at: datetime
    passed: Instant | None


class _Measured(NamedTuple):
    changes: int
    partitions: int
    bytes: int
    row_count: int


class KnownSlot(NamedTuple):
    """Row of a time slot that has partitions, or was declared complete."""

    slot_time: WallTime
    begins_at: Instant
    ends_at: Instant
    next_time: WallTime
    complete: bool
    members: int

    @property
    def span(self) -> Span:
        """The slot, as its first commit has found it."""
        return Span(self.slot_time, self.begins_at, self.ends_at, self.next_time)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A cell to fill: its text, its wall-clock times [begin, end), and the period below it."""

    slot: str
    begin: datetime
    end: datetime
    within: str | None


@dataclass(frozen=True, slots=True)
class _Period:
    """A period of a calendar."""

    level: str
    within: str
    begin: datetime
    end: datetime


@dataclass(frozen=True, slots=True)
class _Source(ABC):
    """Times of partitions, and how to find partitions by them."""

    db: Db
    fileset: Fileset

    @property
    @abstractmethod
    def by(self) -> str:
        """The origin of the times."""

    @property
    def zone(self) -> str:
        """The zone of the times."""
        return "UTC"

    @property
    @abstractmethod
    def step(self) -> timedelta:
        """The longest interval between two times."""

    @property
    def spec(self) -> WatermarkSpec | None:
        """The watermark by which the slots are known."""
        return None

    def next_slot(self, time: datetime) -> datetime | None:
        """Return the time of the slot behind one; None at the end of the calendar, and where slots are not known."""
        if self.spec is None:
            return None
        try:
            return from_wall(self.spec.partition_time.span_at(time).next_time)
        except OverflowError:
            return None

    @abstractmethod
    def now(self) -> datetime:
        """Return the present on the wall clock of the times."""

    @abstractmethod
    def next(self, at: datetime) -> datetime | None:
        """Return the first time of a partition from `at` on."""

    @abstractmethod
    def last(self) -> datetime | None:
        """Return the last time of a partition."""

    @abstractmethod
    def list(self, begin: datetime, end: datetime, most: int) -> Sequence[PlacedChange]:
        """Return the first `most` current changes in a period."""

    @abstractmethod
    def measure(self, begin: datetime, end: datetime, most: int) -> _Measured:
        """Return the sums of the first `most` current changes in a period."""

    @abstractmethod
    def time_of(self, change: PlacedChange) -> datetime:
        """Return the time of a change."""


@dataclass(frozen=True, slots=True)
class _ByTime(_Source):
    """Partition times of a watermark."""

    watermark: WatermarkSpec

    @property
    def by(self) -> str:
        return "watermark"

    @property
    def zone(self) -> str:
        return self.watermark.partition_time.zone.name

    @property
    def step(self) -> timedelta:
        return self.watermark.partition_time.interval.longest

    @property
    def spec(self) -> WatermarkSpec | None:
        return self.watermark

    def now(self) -> datetime:
        return self.watermark.partition_time.zone.local(to_micros(self.db.now()))

    def next(self, at: datetime) -> datetime | None:
        found = self.db.value(SQL.next_time, WallTime, dataset_id=self.fileset.dataset_id, low=to_wall(at))
        return None if found is None else from_wall(found)

    def last(self) -> datetime | None:
        high = to_wall(_LATEST)
        found = self.db.value(SQL.last_time, WallTime, dataset_id=self.fileset.dataset_id, high=high)
        return None if found is None else from_wall(found)

    def list(self, begin: datetime, end: datetime, most: int) -> Sequence[PlacedChange]:
        return self.db.records(
            SQL.list_by_time,
            PlacedChange,
            dataset_id=self.fileset.dataset_id,
            low=to_wall(begin),
            high=to_wall(end),
            most=most,
        )

    def measure(self, begin: datetime, end: datetime, most: int) -> _Measured:
        low, high = to_wall(begin), to_wall(end)
        return self.db.records(
            SQL.measure_by_time, _Measured, dataset_id=self.fileset.dataset_id, low=low, high=high, most=most
        )[0]

    def time_of(self, change: PlacedChange) -> datetime:
        return from_wall(change.slot_time or 0)


@dataclass(frozen=True, slots=True)
class _ByKey(_Source):
    """Dates or timestamps in the first field of the keys, in UTC."""

    first: KeySchema
    """The first field alone."""

    @property
    def by(self) -> str:
        return self.first.names[0]

    @property
    def step(self) -> timedelta:
        return _DAY if self._is_date else _HOUR

    @property
    def _is_date(self) -> bool:
        return self.first.fields[0].type is KeyType.DATE

    def now(self) -> datetime:
        return self.db.now().replace(tzinfo=None)

    def next(self, at: datetime) -> datetime | None:
        found = self.db.value(SQL.next_key, KeyText, dataset_id=self.fileset.dataset_id, lower=self._text(at))
        return None if found is None else self._time(found)

    def last(self) -> datetime | None:
        found = self.db.value(SQL.last_key, KeyText, dataset_id=self.fileset.dataset_id, upper=ALL_KEYS)
        return None if found is None else self._time(found)

    def list(self, begin: datetime, end: datetime, most: int) -> Sequence[PlacedChange]:
        lower, upper = self._text(begin), self._text(end)
        return self.db.records(
            SQL.list_by_key, PlacedChange, dataset_id=self.fileset.dataset_id, lower=lower, upper=upper, most=most
        )

    def measure(self, begin: datetime, end: datetime, most: int) -> _Measured:
        lower, upper = self._text(begin), self._text(end)
        return self.db.records(
            SQL.measure_by_key, _Measured, dataset_id=self.fileset.dataset_id, lower=lower, upper=upper, most=most
        )[0]

    def time_of(self, change: PlacedChange) -> datetime:
        return self._time(change.partition_key)

    def _time(self, text: KeyText) -> datetime:
        return _naive(self.fileset.keys.decode(text)[0])

    def _text(self, at: datetime) -> str:
        # The end of the calendar lies behind all keys.
        if at == _LATEST:
            return ALL_KEYS
        return at.date().isoformat() if self._is_date else at.isoformat(timespec="microseconds")


def lay_out(db: Db, fileset: Fileset, within: str) -> Calendar:
    """Return the calendar of a file set within a period, or the last one that has partitions. `BadFilter`.

    Cost: bounded, by `_LISTED`, `_COUNTED` and `_SLOTS`.
    """
    source = _find_source(db, fileset)
    period = _read_within(within) if within else None
    if source is None:
        return Calendar(fileset.qualified_name, "", "UTC", "all", "all", None, None, None, None, (), (), counted=False)
    first, last = source.next(datetime.min), source.last()  # noqa: DTZ901  # wall-clock times
    if period is None:
        period = _around(last or source.now(), source.step)
    filled = _fill(source, period, first, last)
    previous, following = _neighbours(period)
    return Calendar(
        fileset.qualified_name,
        source.by,
        source.zone,
        period.level,
        period.within,
        previous if first is not None and period.level != "all" and first < period.begin else None,
        following if last is not None and period.level != "all" and last >= period.end else None,
        None if first is None else show_slot(first, source.step),
        None if last is None else show_slot(last, source.step),
        *filled,
    )


def show_slot(time: datetime, step: timedelta) -> str:
    """Return a wall-clock time as far as the times of partitions are apart: a day, a minute, or all of it."""
    if step >= _DAY and not time.hour + time.minute + time.second:
        return time.date().isoformat()
    return time.isoformat(" ", "auto" if time.second else "minutes")


def _find_source(db: Db, fileset: Fileset) -> _Source | None:
    watermark = fileset.watermark
    if watermark is not None and watermark.enabled:
        return _ByTime(db, fileset, watermark)
    if fileset.keys.fields and fileset.keys.fields[0].type in {KeyType.DATE, KeyType.TIMESTAMP}:
        return _ByKey(db, fileset, KeySchema(fileset.keys.fields[:1]))
    return None


def _read_within(text: str) -> _Period:
    if text == "all":
        return _Period("all", "all", datetime.min, _LATEST)  # noqa: DTZ901
    found = _WITHIN.fullmatch(text)
    if found is None:
        raise BadFilter("within", text, _FORMS)
    try:
        year = int(found["year"])
        if found["week"]:
            begin = datetime.fromisocalendar(year, int(found["week"]), 1)
            return _Period("week", text, begin, _later(begin, 7 * _DAY))
        begin = datetime(year, int(found["month"] or 1), int(found["day"] or 1))  # noqa: DTZ001
    except (ValueError, OverflowError):
        raise BadFilter("within", text, _FORMS) from None
    if found["day"]:
        return _Period("day", text, begin, _later(begin, _DAY))
    if found["month"]:
        return _Period("month", text, begin, _next_month(begin))
    return _Period("year", text, begin, _next_year(begin))


def _around(at: datetime, step: timedelta) -> _Period:
    """Return the period to begin with: a week of hours, a month of days, a year of months, or all years."""
    if step < _DAY:
        year, week, _ = at.isocalendar()
        return _read_within(f"{year:04}-W{week:02}")
    if step > 300 * _DAY:
        return _read_within("all")
    return _read_within(f"{at.year:04}" if step > 25 * _DAY else f"{at:%Y-%m}".zfill(7))


def _neighbours(period: _Period) -> tuple[str, str]:
    """Return the periods before and after one."""

    def name(at: datetime) -> str:
        year, week, _ = at.isocalendar()
        names = {"year": f"{at.year:04}", "week": f"{year:04}-W{week:02}", "day": at.date().isoformat()}
        return names.get(period.level, at.date().isoformat()[:7])

    before = period.begin if period.begin == datetime.min else period.begin - timedelta(microseconds=1)  # noqa: DTZ901
    return name(before), name(period.end)


def _later(at: datetime, length: timedelta) -> datetime:
    return at + length if _LATEST - at > length else _LATEST


def _next_year(at: datetime) -> datetime:
    return _LATEST if at.year == _LATEST.year else at.replace(year=at.year + 1, month=1, day=1)


def _next_month(at: datetime) -> datetime:
    return _next_year(at) if at.month == 12 else at.replace(month=at.month + 1, day=1)


def _buckets(source: _Source, period: _Period) -> list[_Bucket]:
    """Return the cells of a period, in order."""
    found: list[_Bucket] = []
    if period.level == "all":
        year = source.next(period.begin)
        while year is not None and len(found) < _YEARS:
            begin = year.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
            end = _next_year(begin)
            found.append(_Bucket(f"{begin.year:04}", begin, end, f"{begin.year:04}"))
            year = None if end == _LATEST else source.next(end)
        return found
    at, end = period.begin, period.begin
    step = _step_within(period.level, source.step)
    while at < period.end and end < _LATEST:
        end = _next_month(at) if period.level == "year" else _later(at, step)
        day = at.date().isoformat()
        if period.level == "year":
            found.append(_Bucket(day[:7], at, end, day[:7]))
        elif step >= _DAY:
            found.append(_Bucket(day, at, end, None if period.level == "day" else day))
        else:
            found.append(_Bucket(at.isoformat(" ", "minutes"), at, end, None if period.level == "day" else day))
        at = end
    return found


def _step_within(level: str, step: timedelta) -> timedelta:
    """Return the length of a cell: a day, or for times that are closer a part of a day."""
    if level == "month" or step >= _DAY:
        return _DAY
    if _HOUR <= step < _DAY and not _DAY % step:
        return step
    quarter = timedelta(minutes=15)
    return quarter if level == "day" and step <= quarter else _HOUR


def _fill(
    source: _Source, period: _Period, first: datetime | None, last: datetime | None
) -> tuple[tuple[CalendarCell, ...], tuple[PlacedPartition, ...], bool]:
    buckets = _buckets(source, period)
    changes = source.list(period.begin, period.end, _LISTED + 1)
    slots: Sequence[tuple[Span, KnownSlot | None]] = ()
    if source.spec is not None and first is not None and period.level != "all":
        slots = list_slots(source.db, source.fileset, source.spec, period.begin, period.end)
    ends = {from_wall(span.time): span.ends for span, _ in slots}
    expected = _expect(source, period, first, last, slots)
    tallies = [_Tally() for _ in buckets]
    placed: list[tuple[PlacedPartition, datetime]] = []
    counted = len(changes) > _LISTED
    if counted:
        most = max(20, _COUNTED // max(len(buckets), 1))
        sums = (source.measure(one.begin, one.end, most) for one in buckets)
        tallies = [_Tally(one.partitions, one.row_count, one.bytes, more=one.changes == most) for one in sums]
    else:
        begins = [one.begin for one in buckets]
        placed = [_place(source, ends, key, some) for key, some in _by_partition(changes).items()]
        for partition, time in placed:
            if at := bisect_right(begins, time):
                tallies[at - 1].add(partition)
    cells = tuple(_cell(one, tally, expected) for one, tally in zip(buckets, tallies, strict=True))
    return cells, tuple(partition for partition, _ in placed), counted


def _by_partition(changes: Iterable[PlacedChange]) -> Mapping[KeyText, list[PlacedChange]]:
    found: defaultdict[KeyText, list[PlacedChange]] = defaultdict(list)
    for change in changes:
        found[change.partition_key].append(change)
    return found


def _place(
    source: _Source, ends: Mapping[datetime, Instant], key: KeyText, changes: Sequence[PlacedChange]
) -> tuple[PlacedPartition, datetime]:
    """Return a partition with its time."""
    time, newest = source.time_of(changes[0]), max(changes, key=lambda one: one.at)
    state = CellState.PRESENT
    if any(one.rewritten for one in changes):
        state = CellState.REWRITTEN
    if source.spec is not None and is_late(source.spec, time, ends.get(time), changes):
        state = CellState.LATE
    return (
        PlacedPartition(
            source.fileset.show(key),
            show_slot(time, source.step),
            state,
            sum(one.files for one in changes),
            sum(one.row_count or 0 for one in changes),
            sum(one.bytes for one in changes),
            newest.run_id,
            newest.at,
        ),
        time,
    )


def is_late(spec: WatermarkSpec, time: datetime, ends: Instant | None, changes: Iterable[PlacedChange]) -> bool:
    """Return whether one of the changes was committed after the watermark had passed the slot, which ends at `ends`."""
    passed = max((one.passed for one in changes if one.passed is not None), default=None)
    if passed is None:
        return False
    try:
        ends = spec.partition_time.span_at(time).ends if ends is None else ends
    except OverflowError:
        return False
    return ends - spec.row_lag <= passed


@dataclass(slots=True)
class _Tally:
    partitions: int = 0
    rows: int = 0
    bytes: int = 0
    rewritten: int = 0
    late: int = 0
    more: bool = False
    names: list[str] = field(default_factory=list)

    def add(self, one: PlacedPartition) -> None:
        self.partitions += 1
        self.rows += one.rows
        self.bytes += one.bytes
        self.rewritten += one.state is CellState.REWRITTEN
        self.late += one.state is CellState.LATE
        self.names.append(one.partition)


@dataclass(frozen=True, slots=True)
class _Expected:
    """Begins of the slots of a period, by what became of them."""

    missing: Sequence[datetime] = ()
    awaited: Sequence[datetime] = ()
    open: Sequence[datetime] = ()


def _within(times: Sequence[datetime], bucket: _Bucket) -> int:
    return sum(bucket.begin <= one < bucket.end for one in times)


def _cell(bucket: _Bucket, tally: _Tally, expected: _Expected) -> CalendarCell:
    missing = _within(expected.missing, bucket)
    if tally.partitions:
        state = CellState.PRESENT
        if tally.late:
            state = CellState.LATE
        elif tally.rewritten:
            state = CellState.REWRITTEN
        if missing:
            state = CellState.INCOMPLETE
    elif missing:
        state = CellState.MISSING
    elif _within(expected.awaited, bucket):
        state = CellState.AWAITED
    else:
        state = CellState.OPEN if _within(expected.open, bucket) else CellState.EMPTY
    return CalendarCell(
        bucket.slot,
        state,
        tally.partitions,
        tally.rows,
        tally.bytes,
        tally.rewritten,
        tally.late,
        missing,
        tally.more,
        bucket.within,
        tally.names[0] if len(tally.names) == 1 else None,
    )


def _expect(
    source: _Source,
    period: _Period,
    first: datetime | None,
    last: datetime | None,
    slots: Sequence[tuple[Span, KnownSlot | None]],
) -> _Expected:
    """Return the slots of a period that are not there."""
    if first is None or last is None or period.level == "all":
        return _Expected()
    now = source.now()
    if source.spec is not None:
        absent = [(from_wall(span.time), span) for span, known in slots if known is None or not known.complete]
        begins = [time for time, _ in absent]
        ends = [source.spec.partition_time.zone.local(span.ends) for _, span in absent]
    elif source.fileset.storing.expect is not None and source.step >= _DAY:
        there = {source.time_of(one).date() for one in source.list(period.begin, period.end, _LISTED + 1)}
        days = (period.begin + n * _DAY for n in range(min((period.end - period.begin).days, _SLOTS)))
        begins = [day for day in days if day.date() not in there]
        ends = [day + _DAY for day in begins]
    else:
        return _Expected()
    pairs = [(begin, end) for begin, end in zip(begins, ends, strict=True) if begin >= first]
    past = [begin for begin, end in pairs if begin >= last and end <= now]
    # A file set may have ended: without an expectation only the next slot is awaited, which the watermark needs.
    following = source.next_slot(last)
    if source.fileset.storing.expect is None:
        past = [begin for begin in past if begin == following]
    return _Expected(
        missing=[begin for begin, _ in pairs if begin < last],
        awaited=past,
        open=[begin for begin, end in pairs if begin >= last and end > now],
    )


def list_slots(
    db: Db, fileset: Fileset, spec: WatermarkSpec, begin: datetime, end: datetime
) -> list[tuple[Span, KnownSlot | None]]:
    """Return the time slots in a period, each with its row if it has one; nothing for too many. Cost: the slots."""
    times, dataset_id = spec.partition_time, fileset.dataset_id
    if (end - begin) / _shortest(times.interval) > _SLOTS:
        return []
    known = db.value(SQL.first_slot, WallTime, dataset_id=dataset_id)
    rows = db.records(
        SQL.list_slots, KnownSlot, dataset_id=dataset_id, low=to_wall(begin), high=to_wall(end), most=_SLOTS
    )
    by_time = {row.slot_time: row for row in rows}
    found: list[tuple[Span, KnownSlot | None]] = []
    try:
        time = times.first_slot(begin, known)
        while time < end and len(found) < _SLOTS:
            row = by_time.get(to_wall(time))
            span = times.span_at(time) if row is None else row.span
            found.append((span, row))
            time = from_wall(span.next_time)
    except OverflowError:  # at the end of the calendar
        return found
    return found


def _shortest(interval: Interval) -> timedelta:
    return timedelta(days=28 * interval.months, microseconds=interval.micros)


def _naive(value: KeyValue) -> datetime:
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return datetime.fromisoformat(str(value))
