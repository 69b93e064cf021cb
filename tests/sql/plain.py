"""Windows without Spark: rows are lines of text (`<microseconds> <amount>`), results too (`<start> <end> <n> <sum>`).

Results have wall-clock times in microseconds. They may be the rows of further windows, by `window_time` or
`window_start`. All but Spark's arithmetic is the product's: planning, reading, replacing, committing.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

from tidemill.lake.fileset.fileset import Partition
from tidemill.lake.window.outside_times import Stretches
from tidemill.lake.window.side import SIDE_KEYS, SideReason, to_side_key
from tidemill.lake.window.window_plan import Window, WindowShape
from tidemill.shapes.keys import KeySchema, KeyText
from tidemill.shapes.partition_time import WallTime, Zone, from_wall, to_wall
from tidemill.shapes.watermark_spec import WINDOW_TIME, OutsidePolicy, WatermarkSpec
from tidemill.sql.batches import Batch
from tidemill.sql.windows import WindowQuery
from tidemill.testing.plain import read_lines

SIDE_SCHEMA: Final = KeySchema.of(SIDE_KEYS)
"""The keys of side tables."""
_ALIGNED: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # a wall-clock time, to which windows are
_MILLISECOND: Final = 1000
Texts = Mapping[str, str]
"""By the directory of a partition (`day=2021-03-19`) its lines."""
Row = tuple[int, int, int]
"""An instant, and the number and the sum of the amounts that count there."""


def write_windows(table: str, slide: int, size: int, unit: str) -> str:
    """Windows of so many of a unit (`HOUR`), as a statement names them."""
    if slide == size:
        return f"TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '{size}' {unit})"
    return f"HOP(TABLE {table}, DESCRIPTOR(ts), INTERVAL '{slide}' {unit}, INTERVAL '{size}' {unit})"


def starts_of(time: datetime, slide: timedelta, size: timedelta) -> list[datetime]:
    """By the definition: when the windows begin in which a wall-clock time lies."""
    start = time - (time - _ALIGNED) % slide
    starts = []
    while start + size > time:
        starts.append(start)
        start -= slide
    return starts


def windows_of(instant: int, shape: WindowShape, zone: Zone) -> list[Window]:
    """All windows in which the wall-clock time of a row lies."""
    slide, size = timedelta(microseconds=shape.slide), timedelta(microseconds=shape.size)
    local = zone.local(instant)
    if shape.cumulative:
        (start,) = starts_of(local, size, size)
        ends = [start + number * slide for number in range(1, size // slide + 1)]
        return [Window(to_wall(start), to_wall(end)) for end in ends if end > local]
    return [Window(to_wall(one), to_wall(one + size)) for one in starts_of(local, slide, size)]


def to_click(line: str) -> Row:
    """Return a line of clicks as a row: two numbers, or such a line within an object of JSON."""
    text = json.loads(line)["click"] if line.startswith("{") else line
    instant, amount = map(int, text.split())
    return instant, 1, amount


def last_instant(window: Window, zone: Zone) -> int:
    """Return the `window_time` of a window: the last millisecond in which the clocks may show a time of the window."""
    return zone.closes(from_wall(window.end)) - _MILLISECOND


def add_up(rows: Iterable[Row], shape: WindowShape, zone: Zone) -> dict[Window, tuple[int, int]]:
    """Compute plainly, over all rows: the number and the sum of each window."""
    found: defaultdict[Window, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for instant, number, total in rows:
        for window in windows_of(instant, shape, zone):
            found[window] = found[window][0] + number, found[window][1] + total
    return found


def count(lines: Iterable[str], shape: WindowShape, zone: Zone) -> dict[Window, tuple[int, int]]:
    """Compute plainly, over all lines of clicks: the number of rows in each window, and their sum."""
    return add_up(map(to_click, lines), shape, zone)


def to_line(window: Window, counted: tuple[int, int]) -> str:
    """Return a result."""
    return f"{window.start} {window.end} {counted[0]} {counted[1]}"


def to_lines(counted: Mapping[Window, tuple[int, int]]) -> list[str]:
    """Return results in the order of `Plain.lines`."""
    return sorted(to_line(window, one) for window, one in counted.items())


def to_day(batch: Batch, start: int, time: int) -> str:
    """Return the partition of a result: the day of `window_time` if the output's watermark is for it, else of `start`.

    The instant `time` is the `window_time` of the result.
    """
    sink = batch.sink.watermark
    by_time = sink is not None and sink.column == WINDOW_TIME
    return f"day={batch.watermark.window_zone.local(time) if by_time else from_wall(start):%Y-%m-%d}"


def to_texts(batch: Batch, counted: Mapping[Window, tuple[int, int]]) -> dict[str, str]:
    """Return results by their partitions."""
    texts: defaultdict[str, str] = defaultdict(str)
    for window, one in sorted(counted.items()):
        time = last_instant(window, batch.watermark.window_zone)
        texts[to_day(batch, window.start, time)] += f"{to_line(window, one)}\n"
    return texts


def read_result(line: str, watermark: WatermarkSpec) -> Row:
    """Return a result as a row of further windows, at its `window_time` or at its `window_start`.

    The lines of sessions tell their `window_time`. It follows from the end of other windows.
    """
    start, end, number, total, *more = map(int, line.split())
    if watermark.column != WINDOW_TIME:
        return start, number, total  # of windows in UTC
    window = Window(WallTime(start), WallTime(end))
    return more[-1] if more else last_instant(window, watermark.partition_time.zone), number, total


class PlainWindows:
    """Computes the windows of a query over lines: a count and a sum, by UNION ALL of its tables."""

    def __init__(self, query: WindowQuery) -> None:
        self._shape = query.shape

    def compute(self, run, batches: Sequence[Batch]) -> Texts:
        """The results of the batches, from the rows that belong to their partitions."""
        found: defaultdict[str, str] = defaultdict(str)
        for batch in batches:
            for path, text in to_texts(batch, self._count(run, batch)).items():
                found[path] += text
        return dict(found)

    def _count(self, run, batch: Batch) -> dict[Window, tuple[int, int]]:
        wanted = set(batch.windows)
        rows = (self.to_row(batch, line) for line in self.read(run, batch))
        counted = add_up(rows, self._shape, batch.watermark.window_zone)
        return {window: found for window, found in counted.items() if window in wanted}

    def to_row(self, batch: Batch, line: str) -> Row:
        """Return a line of the batch as a row: a click, or the result of a window."""
        watermark = batch.watermark
        return read_result(line, watermark) if watermark.follows_windows else to_click(line)

    def read(self, run, batch: Batch) -> list[str]:
        """The rows that belong to their partitions."""
        rows = []
        for partition in batch.partitions:
            begins, ends = find_span(batch, partition)
            lines = read_lines(run.world, batch.source, partition)
            within = [line for line in lines if begins <= self.to_row(batch, line)[0] < ends]
            assert len(within) == len(lines) or batch.watermark.outside is not OutsidePolicy.ERROR, lines
            rows += within
        return rows

    def count_outside(self, run, batch: Batch) -> dict[KeyText, int]:
        """By the definition."""
        found = {}
        for partition in batch.partitions:
            begins, ends = find_span(batch, partition)
            times = self._read_times(run, batch, partition)
            found[partition.partition_key] = sum(not begins <= time < ends for time in times)
        return found

    def find_outside_times(self, run, batch: Batch) -> dict[KeyText, Stretches]:
        """By the definition, without neighbours in one stretch."""
        found = {}
        for partition in batch.partitions:
            begins, ends = batch.instants[partition.partition_key]
            times = self._read_times(run, batch, partition)
            found[partition.partition_key] = [(time, time + 1) for time in times if not begins <= time < ends]
        return found

    def pick_outside(self, run, batch: Batch) -> Texts:
        """By the definition."""
        return self._to_side(
            run, batch, SideReason.OUTSIDE, lambda time, one: not _lies_in(time, find_span(batch, one))
        )

    def count_late(self, run, batch: Batch, before: int, waiting: Sequence[Window]) -> dict[KeyText, int]:
        """By the definition."""
        late = {one.partition_key: replace(batch, partitions=(one,)) for one in batch.partitions}
        texts = {key: self.pick_late(run, one, before, waiting) for key, one in late.items()}
        return {key: sum(text.count("\n") for text in found.values()) for key, found in texts.items()}

    def pick_late(self, run, batch: Batch, before: int, waiting: Sequence[Window]) -> Texts:
        """By the definition."""
        zone = batch.watermark.window_zone

        def is_late(time: int, one: Partition) -> bool:
            local = to_wall(zone.local(time))
            waits = any(_lies_in(local, window) for window in waiting)
            return _lies_in(time, find_span(batch, one)) and local < before and not waits

        return self._to_side(run, batch, SideReason.LATE, is_late)

    def find_shifts(self, run, batch: Batch) -> dict[KeyText, set[int]]:
        """By the definition."""
        found: dict[KeyText, set[int]] = {}
        for partition in batch.partitions:
            begins, ends = batch.instants[partition.partition_key]
            times = self._read_times(run, batch, partition)
            for number in range(-104, 105):
                moved = sum(begins <= time - number * 900_000_000 < ends for time in times)
                if number and moved * 100 >= len(times) * 99:
                    found.setdefault(partition.partition_key, set()).add(number)
        return found

    def _read_times(self, run, batch: Batch, partition: Partition) -> list[int]:
        return [self.to_row(batch, line)[0] for line in read_lines(run.world, batch.source, partition)]

    def _to_side(self, run, batch: Batch, reason: SideReason, belongs: Callable[[int, Partition], bool]) -> Texts:
        keys, texts = batch.source.keys, {}
        for partition in batch.partitions:
            lines = read_lines(run.world, batch.source, partition)
            text = "".join(f"{line}\n" for line in lines if belongs(self.to_row(batch, line)[0], partition))
            side_key = SIDE_SCHEMA.decode(to_side_key(keys, reason, partition.partition_key))
            texts |= {SIDE_SCHEMA.to_path(side_key): text} if text else {}
        return texts

    def replace(self, run, batches: Sequence[Batch], gone: Sequence[Window], old: Sequence[Partition]):
        """Old lines without those of the windows, and the new ones, where there were some; the rest as new."""
        batch = batches[0]
        replaced = {*batch.windows, *gone}
        new = dict(self.compute(run, batches)) if batch.windows else {}
        over, keys = {}, []
        for partition in old:
            lines = read_lines(run.world, batch.sink, partition)
            kept = [line for line in lines if Window(*map(int, line.split()[:2])) not in replaced]  # type: ignore[arg-type]
            if len(kept) < len(lines):
                key = batch.sink.keys.decode(partition.partition_key)
                path = batch.sink.keys.to_path(key)
                keys.append(dict(zip(batch.sink.keys.names, key, strict=True)))
                text = "".join(f"{line}\n" for line in kept) + new.pop(path, "")
                over |= {path: text} if text else {}
        return over, new or None, keys


def find_span(batch: Batch, partition: Partition) -> tuple[int, int]:
    """The instants of the rows of a partition that count in windows."""
    ever = 1 << 62
    includes = batch.watermark.outside is OutsidePolicy.INCLUDE
    return (-ever, ever) if includes else batch.instants[partition.partition_key]


def _lies_in(time: int, span: tuple[int, int]) -> bool:
    return span[0] <= time < span[1]


class PlainJoin(PlainWindows):
    """Computes a join of the windows of two tables: the number of rows in each."""

    def __init__(self, query: WindowQuery, kind: str = "FULL") -> None:
        super().__init__(query)
        self._kind = kind

    def compute(self, run, batches: Sequence[Batch]) -> Texts:
        """The results of the batches, from the rows that belong to their partitions."""
        return to_texts(batches[0], join_counts(*(self._count(run, batch) for batch in batches), self._kind))


def join_windows(kind: str) -> Callable[[WindowQuery], PlainJoin]:
    """Return what makes such a calculator, of a kind of join: the word before JOIN."""
    return lambda query: PlainJoin(query, kind)


def join_counts(
    left: Mapping[Window, tuple[int, int]], right: Mapping[Window, tuple[int, int]], kind: str = "FULL"
) -> dict[Window, tuple[int, int]]:
    """Return the number of rows of both sides in each window that the join gives.

    LEFT SEMI and LEFT ANTI show no rows of the right side.
    """
    windows = {
        "": left.keys() & right.keys(),
        "LEFT": left.keys(),
        "RIGHT": right.keys(),
        "FULL": left.keys() | right.keys(),
        "LEFT SEMI": left.keys() & right.keys(),
        "LEFT ANTI": left.keys() - right.keys(),
    }[kind]
    none = (0, 0)
    shown = {} if kind in {"LEFT SEMI", "LEFT ANTI"} else right
    return {window: (left.get(window, none)[0], shown.get(window, none)[0]) for window in windows}


def replace_whole(
    batch: Batch,
    gone: Sequence[Window],
    old: Sequence[Partition],
    new: Mapping[str, Any],
    name_of: Callable[[Window], str],
) -> tuple[dict[str, Any], dict[str, Any] | None, list[dict[str, str]]]:
    """Return the result of `replace` if each window is a partition, which is overwritten. `new` is by its name."""
    replaced = {name_of(window) for window in (*batch.windows, *gone)}
    held = sorted({str(batch.sink.keys.decode(partition.partition_key)[0]) for partition in old} & replaced)
    over = {name: rows for name, rows in new.items() if name in held}
    more = {name: rows for name, rows in new.items() if name not in held}
    return over, more or None, [{batch.sink.keys.names[0]: name} for name in held]
