"""Spark SQL of window programs: texts for the rows of partitions, and for the windows that the rows lie in.

A text costs Spark one call. The same plan made of data frames took some 300 calls from Python into the JVM, each of
which analyzed the plan again: half of the time of one small window (benchmark B7).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Final

from tidemill.epoch import EPOCH, to_micros
from tidemill.frames.schema import quoted
from tidemill.lake.window.side import name_partition
from tidemill.lake.window.window_plan import Window, WindowShape
from tidemill.shapes.keys import KeySchema, KeyText, KeyType, KeyValue
from tidemill.shapes.partition_time import Zone, from_wall, to_wall

_JSON_TYPES: Final[Mapping[KeyType, str]] = {
    KeyType.STRING: "string",
    KeyType.INT: "int",
    KeyType.LONG: "bigint",
    KeyType.DATE: "int",
    KeyType.TIMESTAMP: "bigint",
}
_KEY_OF: Final[Mapping[KeyType, str]] = {
    KeyType.DATE: "date_from_unix_date({})",
    KeyType.TIMESTAMP: "timestamp_micros({})",
}


def all_but(hidden: Sequence[str], rows: str = "") -> str:
    """Return the selection of all columns (of `rows`) without `hidden`."""
    left_out = f" EXCEPT ({', '.join(hidden)})" if hidden else ""
    return f"{f'{rows}.' if rows else ''}*{left_out}"


def text_literal(text: str) -> str:
    """A string as SQL wants it, whatever characters are in it, and whatever the session says of escapes."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def is_inside(begins: int, ends: int, time: str) -> str:
    """Return the condition that the instant `time` lies between these two."""
    first, after = (unknown_to_spark([begins, ends], place, time) for place in (0, 1))
    return f"{time} >= {first} AND {time} < {after}"


def unknown_to_spark(values: Sequence[object], place: int, column: str) -> str:
    """Return the value at `place`, as an expression that Spark cannot compute before it has a row.

    Spark writes the constants of a query into the code that it generates, and compiles the code of each query that has
    other constants. Here all runs of a window program have the same code. The array is no part of that code, and its
    index depends on whether `column` is null, in which case the result of the condition is null whatever the value is.
    """
    return f"get(ARRAY({', '.join(map(str, values))}), {place} + CAST({column} IS NULL AS INT))"


def spans_table(keys: KeySchema, instants: Mapping[KeyText, tuple[int, int]]) -> str:
    """Return a query of the keys of partitions, each with its place, its name, and the instants of its rows.

    The columns are `__partition`, `__name` as in side tables, `__begins` and `__ends`.
    """
    rows: list[tuple[KeyText, list[str | int]]] = [
        (key, [place, name_partition(keys, key), begins, ends])
        for place, (key, (begins, ends)) in enumerate(instants.items())
    ]
    return keys_table(keys, rows, {"__partition": "int", "__name": "string", "__begins": "bigint", "__ends": "bigint"})


def keys_table(keys: KeySchema, rows: Iterable[tuple[KeyText, Sequence[str | int]]], columns: Mapping[str, str]) -> str:
    """Return a query of keys, each with values in `columns`, which are given with their types.

    One literal: rows that come from Python cost a job through a Python worker, and Spark reads a list of VALUES slowly.
    """
    values = [
        {
            **{f"k{n}": _plain(value) for n, value in enumerate(keys.decode(key))},
            **{f"v{n}": value for n, value in enumerate(given)},
        }
        for key, given in rows
    ]
    kinds = [f"k{n}: {_JSON_TYPES[field.type]}" for n, field in enumerate(keys.fields)]
    kinds += [f"v{n}: {kind}" for n, kind in enumerate(columns.values())]
    named = [
        f"{_KEY_OF.get(field.type, '{}').format(f'k{n}')} AS {quoted(field.name)}"
        for n, field in enumerate(keys.fields)
    ]
    named += [f"v{n} AS {name}" for n, name in enumerate(columns)]
    return (
        f"SELECT {', '.join(named)} FROM (SELECT inline(from_json("
        f"{text_literal(json.dumps(values))}, 'array<struct<{', '.join(kinds)}>>')))"
    )


def _plain(value: KeyValue) -> str | int:
    match value:
        case datetime():
            return to_micros(value)
        case date():
            return (value - EPOCH.date()).days
        case _:
            return value


def assign_windows(
    rows: str, column: str, shape: WindowShape, windows: Sequence[Window], time: str, hidden: Sequence[str]
) -> str:
    """Return a query of `rows`, each with those of `windows` that its `column` lies in.

    `time` is the expression of `window_time`, of a `window_end`. The columns `hidden` of the rows are left out.
    """
    local = f"CAST({quoted(column)} AS TIMESTAMP_NTZ)"
    left_out = ["__window", *hidden]
    end = "__window.end"
    if shape.cumulative:
        step = _window(local, shape.slide, shape.slide, shape.offset % shape.slide)
        rows, left_out = f"(SELECT *, {step} AS __step FROM {rows})", ["__step", *left_out]
        end = f"explode(sequence(__step.end, __window.end, INTERVAL '{shape.slide / 1_000_000:.6f}' SECOND))"
    bounds = f"{all_but(left_out)}, __window.start AS window_start, {end} AS window_end"
    window = _window(local, shape.size, shape.step, shape.offset)
    wanted = are_among(shape, windows, {bound: bound for bound in shape.bounds})
    return (
        f"SELECT *, {time} AS window_time FROM ("
        f"SELECT {bounds} FROM (SELECT *, {window} AS __window FROM {rows})) WHERE {wanted}"
    )


def _window(local: str, size: int, slide: int, offset: int) -> str:
    lengths = ", ".join(f"'{micros} microseconds'" for micros in (size, slide, offset))
    return f"window({local}, {lengths})"


def are_among(shape: WindowShape, windows: Iterable[Window], columns: Mapping[str, str]) -> str:
    """Return the condition that a row is of one of `windows`. `columns` hold the bounds of the row's window."""
    bound, column = max(columns.items())
    if shape.sessions:
        return is_within(column, windows)
    return is_among(column, [one.end if bound == "window_end" else one.start for one in windows], shape.slide)


def have_bounds_of(shape: WindowShape, windows: Sequence[Window], columns: Mapping[str, str]) -> str:
    """Return the condition that a row of an output is of one of `windows`, which may be of other sizes than `shape`.

    The output may have rows of other windows too, which have one bound in common with some of `windows`. Both bounds
    are compared where `columns` have both. A row that lacks one of them was written before the query selected it.
    """
    if len(columns) == 1:
        return are_among(shape, windows, columns)
    start, end = (f"CAST({columns[bound]} AS TIMESTAMP_NTZ)" for bound in ("window_start", "window_end"))
    starts: dict[int, list[int]] = {}
    for one in windows:
        starts.setdefault(one.end - one.start, []).append(one.start)
    cases = [
        f"{is_among(start, some, shape.slide)} AND {end} = {start} + INTERVAL '{size / 1_000_000:.6f}' SECOND"
        for size, some in starts.items()
    ]
    cases.append(f"{start} IS NULL AND {is_among(end, [one.end for one in windows], shape.slide)}")
    cases.append(f"{end} IS NULL AND {is_among(start, [one.start for one in windows], shape.slide)}")
    return f"(({') OR ('.join(cases)}))"


def window_time(zone: Zone | None, windows: Iterable[Window]) -> str:
    """Return the expression of the last millisecond of a window: an instant in `zone`, None for a wall-clock time."""
    if zone is None:
        return "window_end - INTERVAL '0.001' SECOND"
    # When clocks change, Spark takes the first of two instants, or one beyond the gap.
    cases = ""
    for local in sorted({from_wall(window.end) for window in windows}):
        closes = zone.closes(local)
        if zone.opens(local) != closes or zone.local(closes) != local:
            cases += f" WHEN window_end = {wall_literal(to_wall(local))} THEN timestamp_micros({closes})"
    instant = "CAST(window_end AS TIMESTAMP)"
    return f"{f'CASE{cases} ELSE {instant} END' if cases else instant} - INTERVAL '0.001' SECOND"


def is_among(column: str, walls: Iterable[int], step: int) -> str:
    """Return the condition that a wall-clock time is among `walls`; stretches in even steps are asked as one."""
    ordered = sorted(set(walls))
    stretches = [[ordered[0], ordered[0]]]
    for wall in ordered[1:]:
        if wall - stretches[-1][1] == step:
            stretches[-1][1] = wall
        else:
            stretches.append([wall, wall])
    if len(stretches) == 1:
        bounds = [wall_literal(wall) for wall in stretches[0]]
        return f"{column} BETWEEN {unknown_to_spark(bounds, 0, column)} AND {unknown_to_spark(bounds, 1, column)}"
    if all(low == high for low, high in stretches):
        return f"{column} IN ({', '.join(wall_literal(low) for low, _ in stretches)})"
    cases = [f"{column} BETWEEN {wall_literal(low)} AND {wall_literal(high)}" for low, high in stretches]
    return f"({' OR '.join(cases)})"


def is_within(time: str, windows: Iterable[Window]) -> str:
    """Return the condition that a wall-clock time lies in one of `windows`; those that touch are asked as one."""
    stretches: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if stretches and start <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], end)
        else:
            stretches.append((start, end))
    cases = [f"{time} >= {wall_literal(start)} AND {time} < {wall_literal(end)}" for start, end in stretches]
    return f"({' OR '.join(f'({one})' for one in cases)})"


def wall_literal(wall: int) -> str:
    """A wall-clock time as SQL wants it."""
    return f"TIMESTAMP_NTZ'{from_wall(wall).isoformat(' ')}'"
