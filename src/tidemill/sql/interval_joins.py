"""Interval joins: joins of two tables whose times are near each other, `l.ts BETWEEN r.ts - a AND r.ts + b`.

The windows of such a join are the intervals of one of the tables. A window follows from the rows of that table in it,
and from the rows of the other table that these can match. So a run computes, publishes and replaces it like any window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sqlglot import exp

from tidemill.lake.window.reach import WindowReach
from tidemill.sql.dialect import bad, to_micros
from tidemill.sql.window_joins import OPTIONAL, SEMI, check_names, find_kind
from tidemill.sql.window_rows import ROW_TIME, AllColumns, QueryRows

_NEEDS: Final = "l.ts BETWEEN r.ts - INTERVAL '1' HOUR AND r.ts + INTERVAL '1' HOUR"


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """A join of two tables whose times are near each other."""

    table: str
    """The table that the windows are of: that of the left side, of a RIGHT JOIN that of the right side."""
    reaches: Mapping[str, WindowReach]
    """The reach of a window into each table, by the name of the table."""
    wanted: str
    """The expression that tells the window of a result."""
    right: str
    """The name of the right side of a FULL JOIN; empty for other joins."""

    @property
    def time(self) -> str:
        """The expression of the time that tells the window of a result."""
        return self.wanted.split(" AS ")[0]

    def check_above(self, select: exp.Select, rows: QueryRows) -> None:
        """Refuse a time that tells another window than that of the left row."""
        for node in select.find_all(exp.Coalesce):
            if node.find_ancestor(exp.Select) is not select:
                continue
            sides = [one.table.lower() for one in (node.this, *node.expressions) if rows.origin_in(one) == ROW_TIME]
            if len(sides) > 1 and sides[0] == self.right:
                raise bad(f"a match lies in the window of its left row: write {self.wanted}", node)

    def find_time(self, rows: QueryRows, query: exp.Expr) -> str:
        """Return the column of the result that tells the window of a row; `BadStatement` if there is none."""
        for column in rows.columns:
            if isinstance(column, str) and rows.find_origin(column) == ROW_TIME:
                return column
        raise bad(
            f"SELECT {self.wanted} unchanged: a run finds by it the rows of a window that it computes again", query
        )


def join_tables(node: exp.Join, left: QueryRows, right: QueryRows) -> tuple[QueryRows, IntervalJoin, tuple[str, str]]:
    """Return the rows of an interval join, and the time columns of both tables; `BadStatement`."""
    kind = find_kind(node)
    check_names(node, left, right)
    times, (least, most) = _find_times(node, left, right)
    columns = times[0].column, times[1].column
    # The left time minus the right time is `least` or more, and `most` or less.
    early, late = -least, most
    (left_name,), (right_name,) = left.sides, right.sides
    left_time, right_time = (f"{name}.{time.name}" for name, time in zip((left_name, right_name), times, strict=True))
    lacks_left, lacks_right = OPTIONAL.get(kind, (False, False))
    wanted = left_time
    if lacks_left and lacks_right:
        own, other = max(early, 0), max(late, 0)
        reaches = WindowReach(own, other, other), WindowReach(other, own, own)
        wanted = f"coalesce({left_time}, {right_time}) AS {times[0].name}"
    elif lacks_left:
        reaches = WindowReach(early, late, late), WindowReach()
        wanted = right_time
    else:
        reaches = WindowReach(), WindowReach(late, early, early)
    if left.table == right.table:
        reaches = (reaches[0].widest(reaches[1]),) * 2
    interval = IntervalJoin(
        right.table if lacks_left and not lacks_right else left.table,
        {left.table: reaches[0], right.table: reaches[1]},
        wanted,
        right_name if lacks_left and lacks_right else "",
    )
    left_rows = _with_time(left, columns[0], tells_window=lacks_right or not lacks_left)
    right_rows = _with_time(right, columns[1], tells_window=lacks_left)
    if kind in SEMI:
        rows = replace(left_rows, table="", sides={left_name: left_rows}, optional=frozenset())
        return rows, interval, columns
    sides = {left_name: left_rows, right_name: right_rows}
    optional = frozenset(name for name, lacks in ((left_name, lacks_left), (right_name, lacks_right)) if lacks)
    origins: dict[str, str | None] = {}
    for name, side in sides.items():
        for column, origin in side.origins.items():
            origins.setdefault(column, None if name in optional else origin)
    return QueryRows((*left_rows.columns, *right_rows.columns), "", origins, sides, optional), interval, columns


def compares_intervals(node: exp.Join) -> bool:
    """Return whether a join compares times by an interval, as an interval join does."""
    return any(one.find(exp.Interval) for pair in _find_orders(node.args.get("on")) for one in pair)


def _with_time(rows: QueryRows, column: str, *, tells_window: bool) -> QueryRows:
    """Return the rows of a side, whose time `column` of the table tells the window, or does not."""
    low = column.lower()
    columns: list[str | AllColumns] = []
    origins: dict[str, str | None] = {}
    for one in rows.columns:
        if isinstance(one, AllColumns):
            columns.append(replace(one, without=one.without | {low}))
            if low not in one.without:
                columns.append(column)
                origins[low] = ROW_TIME if tells_window else None
        else:
            columns.append(one)
            origin = rows.find_origin(one)
            origins[one.lower()] = ROW_TIME if tells_window and origin is not None and origin.lower() == low else None
    return QueryRows(tuple(columns), "", origins)


@dataclass(frozen=True, slots=True)
class _Time:
    """A column of the table of a side, by its name in the side, and so many microseconds after its value."""

    is_left: bool
    column: str
    name: str
    after: int = 0


def _find_times(node: exp.Join, left: QueryRows, right: QueryRows) -> tuple[tuple[_Time, _Time], tuple[int, int]]:
    """Return the times of both sides that a join compares, and the bounds of their difference."""
    place = node.args.get("on") or node
    bounds: dict[tuple[str, str], tuple[list[int], list[int]]] = {}
    times: dict[tuple[str, str], tuple[_Time, _Time]] = {}
    for high, low in _find_orders(node.args.get("on")):
        more, less = _read_time(high, left, right), _read_time(low, left, right)
        if more is None or less is None or more.is_left == less.is_left:
            continue
        one, other = (more, less) if more.is_left else (less, more)
        pair = one.column.lower(), other.column.lower()
        times[pair] = one, other
        least, most = bounds.setdefault(pair, ([], []))
        (least if more.is_left else most).append(other.after - one.after)
    both = {pair: (max(least), min(most)) for pair, (least, most) in bounds.items() if least and most}
    if not both:
        raise bad(
            f"a join is of windows, or of two tables whose times are near each other: it needs ON {_NEEDS}, or both "
            "bounds by >= and <=, with the names of both sides",
            place,
        )
    if len(both) > 1:
        raise bad("the join has bounds for several pairs of columns: leave those of the times of watermarks", place)
    ((pair, (lower, upper)),) = both.items()
    if lower > upper:
        raise bad("no two times are within the bounds of the join: the lower bound is above the upper one", place)
    return times[pair], (lower, upper)


def _find_orders(condition: exp.Expr | None) -> Iterator[tuple[exp.Expr, exp.Expr]]:
    """Yield two expressions for each comparison that a condition needs, that of the larger value first."""
    match condition:
        case exp.Paren():
            yield from _find_orders(condition.this)
        case exp.And():
            yield from _find_orders(condition.this)
            yield from _find_orders(condition.expression)
        case exp.Between() if not condition.args.get("symmetric"):
            yield condition.this, condition.args["low"]
            yield condition.args["high"], condition.this
        case exp.GTE() | exp.GT():
            yield condition.this, condition.expression
        case exp.LTE() | exp.LT():
            yield condition.expression, condition.this
        case _:
            return


def _read_time(node: exp.Expr, left: QueryRows, right: QueryRows) -> _Time | None:
    """Read `l.ts`, `l.ts - INTERVAL '1' HOUR` and the like; None for anything else."""
    match node:
        case exp.Paren():
            return _read_time(node.this, left, right)
        case exp.Column():
            for is_left, side in ((True, left), (False, right)):
                if (column := side.origin_in(node)) is not None:
                    return _Time(is_left, column, node.name)
            return None
        case exp.Add() | exp.Sub() if isinstance(node.expression, exp.Interval):
            time, interval = _read_time(node.this, left, right), node.expression
        case exp.Add() if isinstance(node.this, exp.Interval):
            time, interval = _read_time(node.expression, left, right), node.this
        case _:
            return None
    if time is None:
        return None
    micros = to_micros(interval, "a bound of the join")
    return replace(time, after=time.after + (-micros if isinstance(node, exp.Sub) else micros))
