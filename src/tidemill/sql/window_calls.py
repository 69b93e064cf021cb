"""Calls of window functions, `TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)`: their arguments and windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from sqlglot import exp

from tidemill.lake.window.window_plan import Sessions, WindowShape
from tidemill.names import nearest
from tidemill.sql.dialect import WINDOW_FUNCTIONS, WindowSql, bad, to_micros

_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
    "CUMULATE": ("DATA", "TIMECOL", "STEP", "SIZE", "OFFSET"),
    "SESSION": ("DATA", "TIMECOL", "GAP"),
}
_LONGEST: Final = timedelta(days=3653)
"""The longest window: ten years."""
_STEPS: Final[Mapping[str, str]] = {"TUMBLE": "SIZE", "HOP": "SLIDE", "CUMULATE": "STEP"}


@dataclass(frozen=True, slots=True)
class WindowCall:
    """A call of a window function; `data` is a table, or a query in parentheses, with the time in `column`.

    The rows of a session have equal `keys`, columns of `data`.
    """

    node: exp.Expr
    data: exp.Table | exp.Subquery
    column: str
    shape: WindowShape
    keys: tuple[str, ...] = ()
    descriptor: exp.Expr | None = None
    """The part of the text that names the column."""


def read_call(table: exp.Expr) -> WindowCall | None:
    """Read the window function that a FROM names; None if the FROM names something else. `BadStatement`."""
    call = table.this if isinstance(table, exp.Table) else None
    if isinstance(call, exp.Anonymous) and call.name.upper() == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    if not isinstance(call, exp.Anonymous) or call.name.upper() not in WINDOW_FUNCTIONS:
        return None
    kind = call.name.upper()
    given = _arguments(call, kind)
    data = _data(given["DATA"], kind)
    time = given["TIMECOL"]
    return WindowCall(call, data, _descriptor(time), _shape(call, kind, given), _keys(data, kind), time)


def _keys(data: exp.Expr, kind: str) -> tuple[str, ...]:
    columns = data.meta.get("partition_by", [])
    for column in columns:
        if kind != "SESSION":
            raise bad(f"{kind} has no PARTITION BY: name the columns in GROUP BY, or in PARTITION BY of OVER", column)
        if not isinstance(column, exp.Column) or column.table:
            shown = column.sql(dialect=WindowSql)
            raise bad(f"PARTITION BY of {kind} names columns of its table, without a prefix, not {shown}", column)
    return tuple(str(column.name) for column in columns)


def _shape(call: exp.Expr, kind: str, given: Mapping[str, exp.Expr]) -> WindowShape:
    if kind == "SESSION":
        gap = to_micros(given["GAP"], f"the gap of {kind}")
        if gap <= 0:
            raise bad(f"the gap of {kind} must be longer than nothing", call)
        return WindowShape(0, 0, 0, sessions=Sessions(gap))
    step = _STEPS[kind]
    size = to_micros(given["SIZE"], f"the size of {kind}")
    slide = to_micros(given[step], f"the {step.lower()} of {kind}")
    offset = to_micros(given["OFFSET"], f"the offset of {kind}") if "OFFSET" in given else 0
    if size <= 0 or slide <= 0:
        both = "size" if step == "SIZE" else f"size and the {step.lower()}"
        raise bad(f"the {both} of {kind} must be longer than nothing", call)
    if size % slide:
        raise bad(
            f"the size of {kind} must be a multiple of its {step.lower()}, and the {step.lower()} comes first: "
            f"{step}, SIZE",
            call,
        )
    if size > _LONGEST // timedelta(microseconds=1):
        raise bad(f"the size of {kind} must be no longer than ten years, {_LONGEST.days} days", call)
    cumulative = kind == "CUMULATE"
    if abs(offset) >= (size if cumulative else slide):
        raise bad(f"the offset of {kind} must be shorter than its {'slide' if kind == 'HOP' else 'size'}", call)
    return WindowShape(size, slide, offset, cumulative)


def _arguments(call: exp.Expr, kind: str) -> dict[str, exp.Expr]:
    names = _ARGUMENTS[kind]
    given = call.expressions
    named = [argument for argument in given if isinstance(argument, exp.Kwarg)]
    if named and len(named) < len(given):
        raise bad(f"give all arguments of {kind} by name, or none: {example(kind)}", call)
    if named:
        found = {argument.this.name.upper(): argument.expression for argument in named}
        given_names = [argument.this.name.upper() for argument in named]
        if twice := next((name for name in given_names if given_names.count(name) > 1), None):
            raise bad(f"{kind} has the argument {twice} twice: leave one out", call)
        for name in found:
            if name not in names:
                meant = nearest(name, names)
                advice = f"did you mean {meant}?" if meant else f"there are {', '.join(names)}"
                raise bad(f"{kind} has no argument {name}: {advice}", call)
    else:
        if len(given) > len(names):
            raise bad(f"{kind} has at most {len(names)} arguments: {example(kind)}", call)
        found = dict(zip(names, given, strict=False))
    missing = [name for name in names if name not in found and name != "OFFSET"]
    if missing:
        raise bad(f"{kind} lacks {', '.join(missing)}: {example(kind)}", call)
    return found


def example(kind: str) -> str:
    """Return a call as it is written."""
    more = "INTERVAL '1' HOUR" if kind == "TUMBLE" else "INTERVAL '1' HOUR, INTERVAL '24' HOUR"
    if kind == "SESSION":
        return f"{kind}(TABLE clicks PARTITION BY visitor, DESCRIPTOR(ts), INTERVAL '30' MINUTE)"
    return f"{kind}(TABLE clicks, DESCRIPTOR(ts), {more})"


def _data(argument: exp.Expr, kind: str) -> exp.Table | exp.Subquery:
    if not isinstance(argument, exp.Table | exp.Subquery):
        raise bad(
            f"the first argument of {kind} must be TABLE <name>, or a query in parentheses: {example(kind)}", argument
        )
    return argument


def _descriptor(argument: exp.Expr) -> str:
    right = isinstance(argument, exp.Anonymous) and argument.name.upper() == "DESCRIPTOR"
    if not right or len(argument.expressions) != 1 or not isinstance(argument.expressions[0], exp.Column):
        shown = argument.sql(dialect=WindowSql)
        raise bad(f"the second argument must be DESCRIPTOR(<column>), not {shown}", argument)
    return str(argument.expressions[0].name)
