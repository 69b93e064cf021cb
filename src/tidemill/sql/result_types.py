"""Types of the columns that a query gives, as far as they are known without Spark, and their comparison with an output.

An INSERT takes its columns by name. A value whose type fits into that of the column is cast, as Flink and Spark do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from tidemill.frames.schema import TAKEN, quoted
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.stored import SchemaPolicy
from tidemill.names import nearest
from tidemill.shapes.column_types import plain_type, widens
from tidemill.sql.dialect import WindowSql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GIVEN: Final[tuple[tuple[type[exp.Expr], str], ...]] = (
    (exp.Count, "bigint"),
    (exp.CountIf, "bigint"),
    (exp.RowNumber, "int"),
    (exp.TsOrDsToDate, "date"),
    (exp.TimeToStr, "string"),
    (exp.Upper, "string"),
    (exp.Lower, "string"),
    (exp.Boolean, "boolean"),
)
"""Functions that give one type, whatever their arguments are."""
_SURE: Final = (
    "tinyint", "smallint", "int", "bigint", "float", "double", "string", "boolean", "date", "binary", "timestamp_ntz",
)  # fmt: skip
"""Types of CAST that mean the same in each session, beside `decimal(p,s)`."""
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True)
class ResultType:
    """The type of a column: a type, or that of the `column` of a table or of windows. `summed`: of its sum."""

    type: str = ""
    column: str = ""
    summed: bool = False

    def find(self, type_of: Callable[[str], str | None]) -> str | None:
        """Return the type, by those of columns; None if it is not known."""
        found = self.type or type_of(self.column)
        if found is None or not self.summed:
            return found
        if found in _INTEGERS:
            return "bigint"
        return "double" if found in {"float", "double"} else None


def kind_of(node: exp.Expr, find: Callable[[exp.Column], ResultType | None]) -> ResultType | None:
    """Return the type of an expression; None if it is not sure. `find` gives that of a column."""
    match node:
        case exp.Column():
            return find(node)
        case exp.Paren() | exp.Window() | exp.Filter() | exp.Max() | exp.Min() if not node.expressions:
            return kind_of(node.this, find)
        case exp.Sum():
            inner = kind_of(node.this, find)
            return None if inner is None or inner.summed else replace(inner, summed=True)
        case exp.Cast():
            text = node.args["to"].sql(dialect=WindowSql).lower()
            is_sure = re.fullmatch(rf"{'|'.join(_SURE)}|decimal(\(.*\))?", text)
            return ResultType(plain_type(text)) if is_sure else None
        case _:
            if isinstance(node, exp.Literal) and node.is_string:
                return ResultType("string")
            return next((ResultType(kind) for known, kind in _GIVEN if isinstance(node, known)), None)


def find_misfits(
    sink: Fileset, columns: Mapping[str, str] | None, given: Mapping[str, str | None]
) -> Iterator[tuple[str, str]]:
    """Yield why an output cannot hold the columns of a query, each with the column that is wrong, if any.

    `given` are the columns by name with their types, Spark's short names, None for unknown ones. `columns` are those of
    the output with their types, None before they are known.
    """
    if "" in given or not given:
        return  # Spark names a column
    by_name = {name.lower(): (name, kind) for name, kind in given.items()}
    for field in sink.keys.fields:
        name, kind = by_name.pop(field.name.lower(), ("", None))
        if kind is not None and kind not in TAKEN[field.type]:
            yield _differ(sink, field.name, TAKEN[field.type][-1], kind), name
    if not columns or sink.storing.policy is SchemaPolicy.EVOLVE:
        return
    known = {name.lower(): name for name in columns}
    for low, (name, _) in by_name.items():
        if low not in known:
            yield _is_unknown(sink, name, [*columns]), name
    if missing := [name for low, name in known.items() if low not in by_name]:
        why = f"the query does not give {', '.join(missing)} of {sink.qualified_name}"
        yield f"{why}. An INSERT takes its columns by name: SELECT … AS {missing[0]}", ""
    for name, text in columns.items():
        shown, kind = by_name.get(name.lower(), ("", None))
        wanted = plain_type(text)
        if kind is not None and "<" not in text + kind and not widens(wanted, kind):
            yield _differ(sink, name, wanted, kind), shown


def widen(rows: DataFrame, sink: Fileset, columns: Mapping[str, str]) -> DataFrame:
    """Return rows with the names of the columns of an output, and with its types where these hold each value."""
    wanted = {name.lower(): (name, kind) for name, kind in columns.items()}
    keys = {name.lower() for name in sink.keys.names}
    selected = []
    for name, kind in rows.dtypes:
        into, text = (name, kind) if name.lower() in keys else wanted.get(name.lower(), (name, kind))
        is_wider = "<" not in text + kind and plain_type(text) != kind and widens(plain_type(text), kind)
        value = f"CAST({quoted(name)} AS {plain_type(text)})" if is_wider else quoted(name)
        selected.append(f"{value} AS {quoted(into)}" if is_wider or into != name else value)
    return rows if selected == [*map(quoted, rows.columns)] else rows.selectExpr(*selected)


def _is_unknown(sink: Fileset, name: str, columns: Sequence[str]) -> str:
    there = [*columns, *sink.keys.names]
    meant = nearest(name, there)
    advice = f"did you mean AS {meant}?" if meant else f"there are {', '.join(there)}"
    return f"an INSERT takes its columns by name, and {sink.qualified_name} has no column {name}: {advice}"


def _differ(sink: Fileset, name: str, wanted: str, kind: str) -> str:
    return (
        f"{name} of {sink.qualified_name} is {wanted.upper()}, and the query gives {kind.upper()}, which does not fit "
        f"into it: give {wanted.upper()} or a type that fits, as CAST(… AS {wanted.upper()})"
    )
