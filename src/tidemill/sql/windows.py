"""Queries over windows: what `INSERT INTO … SELECT … FROM TABLE(TUMBLE(…)) GROUP BY window_start, window_end` asks.

A query is taken only if each window's rows can be computed from the rows of that window: then computing them in groups,
one by one, or again gives the same. What cannot be computed so is refused when it is declared, with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from tidemill.lake.window.window_plan import WindowShape
from tidemill.names import nearest
from tidemill.sql.dialect import WINDOW_FUNCTIONS, BadStatement, WindowSql, find_call, parse_one, to_micros, tokenize

BOUNDS: Final = ("window_start", "window_end")
_KNOWN: Final = ("TUMBLE", "HOP")
_ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "TUMBLE": ("DATA", "TIMECOL", "SIZE", "OFFSET"),
    "HOP": ("DATA", "TIMECOL", "SLIDE", "SIZE", "OFFSET"),
}
_LATER: Final[tuple[tuple[type[exp.Expr], str], ...]] = (
    (exp.Join, "joins of windows come later: one table is read"),
    (exp.Lateral, "lateral views come later: one table is read"),
    (exp.SetOperation, "UNION, INTERSECT and EXCEPT come later: declare a program for each"),
    (exp.With, "WITH comes later: write the query without it"),
    (exp.Subquery, "queries within queries come later: one table is read"),
    (exp.Exists, "queries within queries come later: one table is read"),
    (exp.GroupingSets, "GROUPING SETS come later: declare a program for each"),
    (exp.Rollup, "ROLLUP comes later: declare a program for each"),
    (exp.Cube, "CUBE comes later: declare a program for each"),
    (exp.Limit, "LIMIT would cut the windows that one run computes, not each window"),
    (exp.Offset, "OFFSET would cut the windows that one run computes, not each window"),
)
_CHANGING: Final = {
    "RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "NOW", "CURRENT_TIMESTAMP",
    "CURRENT_DATE", "CURDATE", "LOCALTIMESTAMP", "CURRENT_TIME", "LOCALTIME", "CURRENT_TIMEZONE",
    "MONOTONICALLY_INCREASING_ID", "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START",
    "INPUT_FILE_BLOCK_LENGTH", "CURRENT_USER", "USER", "SESSION_USER", "CURRENT_CATALOG", "CURRENT_DATABASE",
    "CURRENT_SCHEMA", "CURRENT_PATH", "VERSION", "REFLECT", "TRY_REFLECT", "JAVA_METHOD",
}  # fmt: skip
"""Functions of Spark with another value each time, or that depend on the run, its files, its session or its user."""
_LITERALS: Final = _CHANGING - {"USER", "VERSION", "NOW", "UUID", "RANDOM", "UNIFORM", "SHUFFLE", "REFLECT"}
"""The functions that are read without parentheses too, if no column is likely to have their name."""
_METADATA: Final = "_METADATA"
"""The hidden column of a file's name and times."""


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """A checked query. `select` is the user's own text, with `{table}` in the place of the window function's call."""

    sink: str
    table: str
    time_column: str
    shape: WindowShape
    before: str
    after: str
    aliased: bool
    bounds: Mapping[str, str]
    """Columns of the result that hold a bound of the window: `window_start`, `window_end`, by that name."""
    columns: tuple[str, ...]
    """The columns of the result; `*` stands for those of the table and of its windows."""
    excluded: frozenset[str]
    """The columns that `* EXCEPT (…)` leaves out, in small letters."""

    def find_columns(self, table: Sequence[str] | None) -> tuple[str, ...] | None:
        """Return the columns of the result over a table with these columns; None for a `*` of unknown ones."""
        if "*" not in self.columns:
            return self.columns
        if table is None:
            return None
        every = [name for name in (*table, *BOUNDS, "window_time") if name.lower() not in self.excluded]
        return tuple(name for column in self.columns for name in (every if column == "*" else [column]))

    def select(self, view: str) -> str:
        """The query over the rows of `view`, which has the columns of the table and those of the windows."""
        alias = "" if self.aliased else f" AS `{self.table.rpartition('.')[2]}`"
        return f"{self.before}{view}{alias}{self.after}"


def read_query(text: str) -> WindowQuery:
    """Check `INSERT INTO … SELECT …`; `BadStatement` says what cannot be, where, and what to write instead."""
    later = next((kind for kind in WINDOW_FUNCTIONS if kind not in _KNOWN and find_call(tokenize(text), (kind,))), None)
    if later is not None:
        raise BadStatement(f"{later} windows come later: there are {' and '.join(_KNOWN)}")
    statement = parse_one(text)
    if not isinstance(statement, exp.Insert) or not isinstance(statement.expression, exp.Select):
        raise BadStatement("a window program is one INSERT INTO <file set> SELECT … FROM TABLE(TUMBLE(TABLE …))")
    sink = statement.this
    if statement.args.get("overwrite") or statement.args.get("partition") or not isinstance(sink, exp.Table):
        raise BadStatement("write INSERT INTO <file set> SELECT …: partitions follow from columns of their names")
    select = statement.expression
    call, shape = _read_call(select)
    _refuse_later(select)
    _check_windowed(select, shape)
    tokens = tokenize(text)
    place = find_call(tokens, WINDOW_FUNCTIONS)
    begin = next(token.start for token in tokens if token.text.upper() == "SELECT")
    assert place is not None, "the parser found the call"  # noqa: S101
    return WindowQuery(
        sink=_name(sink),
        table=_name(_table(call["DATA"])),
        time_column=_descriptor(call["TIMECOL"]),
        shape=shape,
        before=text[begin : place[0]],
        after=text[place[1] :].rstrip().rstrip(";"),
        aliased=bool(select.args["from_"].this.alias),
        bounds=_find_bounds(select),
        columns=tuple("*" if column.is_star else column.alias_or_name for column in select.expressions),
        excluded=_find_excluded(select),
    )


def _read_call(select: exp.Select) -> tuple[dict[str, exp.Expr], WindowShape]:
    source = select.args.get("from_")
    table = source.this if isinstance(source, exp.From) else None
    call = table.this if isinstance(table, exp.Table) else None
    if isinstance(call, exp.Anonymous) and call.name.upper() == "TABLE" and len(call.expressions) == 1:
        call = call.expressions[0]
    if not isinstance(call, exp.Anonymous) or call.name.upper() not in WINDOW_FUNCTIONS:
        raise BadStatement(f"FROM must be a window function of a table: TABLE({_example('TUMBLE')})")
    kind = call.name.upper()
    given = _arguments(kind, call.expressions)
    size = to_micros(given["SIZE"], f"the size of {kind}")
    slide = to_micros(given["SLIDE"], f"the slide of {kind}") if kind == "HOP" else size
    offset = to_micros(given["OFFSET"], f"the offset of {kind}") if "OFFSET" in given else 0
    if size <= 0 or slide <= 0:
        raise BadStatement(f"the size and the slide of {kind} must be longer than nothing")
    if size % slide:
        raise BadStatement("the size of HOP must be a multiple of its slide, and the slide comes first: SLIDE, SIZE")
    if abs(offset) >= slide:
        raise BadStatement(f"the offset of {kind} must be shorter than its {'slide' if kind == 'HOP' else 'size'}")
    return given, WindowShape(size, slide, offset)


def _arguments(kind: str, given: list[exp.Expr]) -> dict[str, exp.Expr]:
    names = _ARGUMENTS[kind]
    named = [argument for argument in given if isinstance(argument, exp.Kwarg)]
    if named and len(named) < len(given):
        raise BadStatement(f"give all arguments of {kind} by name, or none: {_example(kind)}")
    if named:
        found = {argument.this.name.upper(): argument.expression for argument in named}
        for name in found:
            if name not in names:
                meant = nearest(name, names)
                advice = f"did you mean {meant}?" if meant else f"there are {', '.join(names)}"
                raise BadStatement(f"{kind} has no argument {name}: {advice}")
    else:
        if len(given) > len(names):
            raise BadStatement(f"{kind} has at most {len(names)} arguments: {_example(kind)}")
        found = dict(zip(names, given, strict=False))
    missing = [name for name in names if name not in found and name != "OFFSET"]
    if missing:
        raise BadStatement(f"{kind} lacks {', '.join(missing)}: {_example(kind)}")
    if not isinstance(found["DATA"], exp.Table):
        raise BadStatement(f"the first argument of {kind} must be TABLE <name>: {_example(kind)}")
    return found


def _example(kind: str) -> str:
    more = "INTERVAL '1' HOUR, INTERVAL '24' HOUR" if kind == "HOP" else "INTERVAL '1' HOUR"
    return f"{kind}(TABLE clicks, DESCRIPTOR(ts), {more})"


def _descriptor(argument: exp.Expr) -> str:
    right = isinstance(argument, exp.Anonymous) and argument.name.upper() == "DESCRIPTOR"
    if not right or len(argument.expressions) != 1 or not isinstance(argument.expressions[0], exp.Column):
        raise BadStatement(f"the second argument must be DESCRIPTOR(<column>), not {argument.sql(dialect=WindowSql)}")
    return str(argument.expressions[0].name)


def _refuse_later(select: exp.Select) -> None:
    for node in select.walk():
        for kind, why in _LATER:
            if isinstance(node, kind):
                raise BadStatement(why)
        if _changes(node):
            raise BadStatement(
                f"{node.sql(dialect=WindowSql)} gives another value each time: a window is computed again"
            )


def _changes(node: exp.Expr) -> bool:
    """Return whether a node has another value when the same rows are computed again."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in _CHANGING
    if isinstance(node, exp.Func):
        return node.key.upper() in _CHANGING or not _CHANGING.isdisjoint(node.sql_names())
    if isinstance(node, exp.Column):
        return _METADATA in {node.name.upper(), node.table.upper()} or (
            not node.table and not node.this.args.get("quoted") and node.name.upper() in _LITERALS
        )
    return False


def _check_windowed(select: exp.Select, shape: WindowShape) -> None:
    """Each group, each ranking and each distinct row has to lie within one window."""
    del shape
    group = select.args.get("group")
    aggregates = any(node.find_ancestor(exp.Window) is None for node in select.find_all(exp.AggFunc))
    if group is not None and not any(_is_bound(_resolve(one, select)) for one in group.expressions):
        raise BadStatement("GROUP BY needs window_start, window_end: else rows of several windows are one group")
    if group is None and (aggregates or select.args.get("having")):
        raise BadStatement("an aggregate needs GROUP BY window_start, window_end: else all windows are one group")
    for over in select.find_all(exp.Window):
        if not any(_is_bound(one) for one in over.args.get("partition_by") or []):
            raise BadStatement(
                f"{over.sql(dialect=WindowSql)} needs PARTITION BY window_start, window_end: else it sees other windows"
            )
    if select.args.get("distinct") and not _find_bounds(select):
        raise BadStatement("SELECT DISTINCT needs window_start or window_end among its columns")


def _is_bound(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() in BOUNDS


def _resolve(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return the expression that an ordinal or a name in GROUP BY stands for."""
    columns = select.expressions
    if isinstance(node, exp.Literal) and node.name.isdigit() and 0 < int(node.name) <= len(columns):
        column: exp.Expr = columns[int(node.name) - 1].unalias()
        return column
    if isinstance(node, exp.Column):
        for other in columns:
            if isinstance(other, exp.Alias) and other.alias.lower() == node.name.lower():
                meant: exp.Expr = other.this
                return meant
    return node


def _table(node: exp.Expr) -> exp.Table:
    assert isinstance(node, exp.Table), "it was checked with the arguments"  # noqa: S101
    return node


def _find_bounds(select: exp.Select) -> dict[str, str]:
    found: dict[str, str] = {}
    for column in select.expressions:
        if column.is_star:
            return {bound: bound for bound in BOUNDS if bound not in _find_excluded(select)}
        if _is_bound(column.unalias()):
            found.setdefault(column.unalias().name.lower(), column.alias_or_name)
    return found


def _find_excluded(select: exp.Select) -> frozenset[str]:
    stars = [star for column in select.expressions if column.is_star for star in column.find_all(exp.Star)]
    return frozenset(name.name.lower() for star in stars for name in star.args.get("except_") or [])


def _name(table: exp.Table) -> str:
    if table.args.get("catalog") is not None:
        raise BadStatement(f"{table.sql(dialect=WindowSql)} has too many parts: write <namespace>.<file set>")
    return f"{table.db}.{table.name}" if table.db else str(table.name)
