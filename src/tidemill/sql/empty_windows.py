"""Windows without rows (`window.emit-empty`): the row that such a window gives out.

A query gives a window without rows a row if it groups rows by columns of the window alone. Its columns of the window
are computed from the window. Its aggregates are those of no rows: a count is 0, a sum is NULL.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.lake.window.window_plan import MARGIN, Grid, Limits, Reached, Stored, Window
from tidemill.shapes.partition_time import from_wall
from tidemill.sql.window_rows import WINDOW_COLUMNS
from tidemill.sql.window_text import text_literal

_OTHER_PARTS: Final = ("joins", "laterals", "having", "qualify", "distinct", "order", "windows", "limit", "offset")
_OPEN: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE)
_CLOSE: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE)
Place = tuple[int, int]
"""Begin and end of a part of a text."""


@dataclass(frozen=True, slots=True)
class EmptyRow:
    """Parts of a text that say which row a window without rows gives."""

    before: Place
    """All queries that WITH names."""
    columns: tuple[tuple[Place, bool], ...]
    """The columns of the result, and whether each follows from the window alone."""
    source: Place
    """FROM and what it reads."""
    condition: Place | None
    name: str
    """The name of the rows that FROM gives."""
    mixed: tuple[str, ...] = ()
    """Columns that are computed both from the window and from rows."""

    def write(self, render: Callable[[Place], str], windows: Iterable[Window], time: str) -> str:
        """Return a query of such a row for each of `windows`. `render` gives the text of a part, as Spark reads it.

        `time` is the expression of `window_time`, of a `window_end`.
        """
        bounds = [[from_wall(one.start).isoformat(), from_wall(one.end).isoformat()] for one in windows]
        literal = f"explode(from_json({text_literal(json.dumps(bounds))}, 'array<array<string>>')) AS __bounds"
        given = ", ".join(
            f"CAST(__bounds[{place}] AS TIMESTAMP_NTZ) AS {bound}" for place, bound in enumerate(WINDOW_COLUMNS[:2])
        )
        of_window = f"(SELECT *, {time} AS window_time FROM (SELECT {given} FROM (SELECT {literal})))"
        of_rows = [place for place, follows in self.columns if not follows]
        names = [f"__column_{number}" for number in range(len(of_rows))]
        rest = iter(names)
        columns = ", ".join(render(place) if follows else next(rest) for place, follows in self.columns)
        condition = f"({render(self.condition)}) AND false" if self.condition is not None else "false"
        source = f"{of_window} AS `{self.name}`"
        if of_rows:
            aggregates = ", ".join(map(render, of_rows))
            source += f" CROSS JOIN (SELECT {aggregates} {render(self.source)} WHERE {condition})"
            source += f" AS __no_rows ({', '.join(names)})"
        return f"{render(self.before)} SELECT {columns} FROM {source}"


def fill_in(rows: str, empty: str, bound: str) -> str:
    """Return a query of `rows`, and of each row of `empty` with a `bound` that none of `rows` has."""
    # In lines of their own: a text may end in a comment.
    both = f"SELECT *, 0 AS __empty FROM (\n{rows}\n) UNION ALL SELECT *, 1 AS __empty FROM (\n{empty}\n)"
    found = f"SELECT *, min(__empty) OVER (PARTITION BY {bound}) AS __least FROM ({both})"
    return f"SELECT * EXCEPT (__empty, __least) FROM ({found}) WHERE __empty = __least"


def find_empty_row(query: exp.Query, tokens: Sequence[Token]) -> EmptyRow | None:
    """Return what a window without rows gives; None if the query does not group by columns of the window alone."""
    group = query.args.get("group") if isinstance(query, exp.Select) else None
    if group is None or any(query.args.get(part) for part in _OTHER_PARTS):
        return None
    keys = group.expressions
    if any(group.args.get(part) for part in ("all", "rollup", "cube", "grouping_sets", "totals")) or not keys:
        return None
    if not all(_is_of_window(one) for one in keys):
        return None
    parts = _split(tokens)
    if parts is None or len(parts.columns) != len(query.expressions):
        return None
    columns, mixed = [], []
    named = {column.alias.lower() for column in query.expressions if isinstance(column, exp.Alias)} - {*WINDOW_COLUMNS}
    plain = (one for column in query.expressions for one in column.unalias().find_all(exp.Column))
    if any(one.name.lower() in named and one.find_ancestor(exp.AggFunc) is None for one in plain):
        return None  # a column that is computed from another column of the result
    for place, column in zip(parts.columns, query.expressions, strict=True):
        given = [_is_of_window(one) for one in column.find_all(exp.Column)]
        follows = all(given) and column.find(exp.AggFunc) is None
        mixed += [column.alias_or_name] if not follows and any(given) else []
        columns.append((place, follows))
    source = query.args["from_"].this
    name = source.alias_or_name or _name_of_call(source)
    return EmptyRow(parts.before, tuple(columns), parts.source, parts.condition, name, tuple(mixed))


def fill_gaps(grid: Grid, at: Reached, waiting: Sequence[Stored], limits: Limits) -> list[Stored]:
    """Return what has a plan take windows without partitions too: from the first partition, or from `computed` on."""
    begins = at.computed if at.computed is not None else min((one.begins for one in waiting), default=None)
    if begins is None or at.passed is None:
        return []
    # More windows than one run computes need not be looked at.
    most = (limits.windows + 2) * grid.shape.slide + grid.shape.size + MARGIN
    return [Stored("", begins, min(at.passed, begins + most), 0)]


def _is_of_window(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.name.lower() in WINDOW_COLUMNS


def _name_of_call(source: exp.Expr) -> str:
    table = source.find(exp.Table)
    return "windows" if table is None or not table.name else str(table.name)


@dataclass(frozen=True, slots=True)
class _Parts:
    before: Place
    columns: tuple[Place, ...]
    source: Place
    condition: Place | None


def _split(tokens: Sequence[Token]) -> _Parts | None:
    """Return the parts of the outermost SELECT of a text that has one."""
    depth, marks, commas = 0, {}, []
    for number, token in enumerate(tokens):
        kind = token.token_type
        depth += (kind in _OPEN) - (kind in _CLOSE)
        if depth or (kind == TokenType.FROM and tokens[number - 1].token_type == TokenType.DISTINCT):
            continue  # IS DISTINCT FROM
        if kind in {TokenType.SELECT, TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY}:
            if kind in marks:
                return None
            marks[kind] = token
        elif kind == TokenType.COMMA and TokenType.SELECT in marks and TokenType.FROM not in marks:
            commas.append(token)
    if not {TokenType.SELECT, TokenType.FROM, TokenType.GROUP_BY} <= marks.keys():
        return None
    select, source, group = marks[TokenType.SELECT], marks[TokenType.FROM], marks[TokenType.GROUP_BY]
    where = marks.get(TokenType.WHERE)
    begins = [select.end + 1, *(one.end + 1 for one in commas)]
    ends = [*(one.start for one in commas), source.start]
    return _Parts(
        before=(0, select.start),
        columns=tuple(zip(begins, ends, strict=True)),
        source=(source.start, group.start if where is None else where.start),
        condition=None if where is None else (where.end + 1, group.start),
    )
