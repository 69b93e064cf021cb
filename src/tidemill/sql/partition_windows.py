"""Windows by partition: where the footers of files say that all rows of a partition lie in the same windows.

The usual table has hourly partitions, and windows of an hour or of several. There no row has to be looked at: to find
the wall-clock time and the windows of 10 million rows took a third of the time of a batch (benchmark B7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tidemill.frames.schema import quoted
from tidemill.lake.window.window_plan import Window, WindowShape
from tidemill.shapes.keys import KeySchema, KeyText
from tidemill.shapes.manifest import FileTimes
from tidemill.shapes.partition_time import WallTime, Zone, from_wall, to_wall
from tidemill.sql.batches import Batch
from tidemill.sql.window_text import all_but, keys_table, unknown_to_spark, wall_literal

_DAY: Final = 86_400_000_000
_COLUMNS: Final = {"__start": "timestamp_ntz", "__end": "timestamp_ntz"}


def find_times(batch: Batch) -> dict[KeyText, FileTimes] | None:
    """Return the times of the partitions that have rows. None if one is not known or lies outside its partition."""
    column = batch.watermark.column.lower()
    found: dict[KeyText, FileTimes] = {}
    for partition in batch.partitions:
        begins, ends = batch.instants[partition.partition_key]
        for _, file in partition.files:
            times = file.times
            if times is None or times.column.lower() != column or times.least < begins or times.largest >= ends:
                return None
            before = found.get(partition.partition_key, times)
            found[partition.partition_key] = FileTimes(
                column, min(before.least, times.least), max(before.largest, times.largest)
            )
    return found


def find_windows(
    times: Mapping[KeyText, FileTimes], shape: WindowShape, windows: Sequence[Window], zone: Zone
) -> list[tuple[KeyText, Window]] | None:
    """Return each partition with each of `windows` that its rows lie in; None if one has rows in other windows too."""
    wanted, found = set(windows), []
    for key, one in times.items():
        low, high = (to_wall(zone.local(instant)) for instant in (one.least, one.largest))
        # Between the two the clock must not have gone back. No zone changes its clock back and forth within a day.
        if high - low != one.largest - one.least or high - low >= _DAY:
            return None
        met = [window for window in shape.list_between(low, high) if window in wanted and window.end > low]
        if any(window.start > low or high >= window.end for window in met):
            return None
        found += [(key, window) for window in met]
    return found


def assign_by_partition(
    rows: str, keys: KeySchema, windows_of: Sequence[tuple[KeyText, Window]], time: str, hidden: Sequence[str]
) -> str:
    """Return a query of `rows`, each with the windows of its partition. The other parameters as in `assign_windows`."""
    table = keys_table(keys, [(key, _bounds(window)) for key, window in windows_of], _COLUMNS)
    same = " AND ".join(f"__rows.{name} = __windows.{name}" for name in map(quoted, keys.names))
    return (
        f"SELECT *, {time} AS window_time FROM (SELECT /*+ BROADCAST(__windows) */ {all_but(hidden, '__rows')}, "
        f"__start AS window_start, __end AS window_end FROM {rows} AS __rows JOIN ({table}) AS __windows ON {same})"
    )


def assign_to_window(rows: str, keys: KeySchema, window: Window, time: str, hidden: Sequence[str]) -> str:
    """Return a query of `rows`, which all lie in one window. The other parameters as in `assign_windows`."""
    bounds = [wall_literal(wall) for wall in window]
    start, end = (unknown_to_spark(bounds, place, quoted(keys.names[0])) for place in (0, 1))
    found = f"SELECT {all_but(hidden)}, {start} AS window_start, {end} AS window_end FROM {rows}"
    return f"SELECT *, {time} AS window_time FROM ({found})"


def _bounds(window: Window) -> list[str | int]:
    return [from_wall(WallTime(wall)).isoformat() for wall in window]
