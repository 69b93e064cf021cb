"""Rows that the parts of a query give: their columns, and which of them tell the window of a row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from sqlglot import exp

from tidemill.sql.result_types import ResultType

BOUNDS: Final = ("window_start", "window_end")
ROW_TIME: Final = "row_time"
"""The time of a row of an interval join that tells the window of the row, in the place of a column of windows."""
WINDOW_COLUMNS: Final = (*BOUNDS, "window_time")
"""The columns of a window function, in the place of columns of these names in its table."""
FORCED: Final = "window_forced"
"""Column of SESSION alone: true for sessions that were closed by force."""


@dataclass(frozen=True, slots=True)
class AllColumns:
    """All columns of `table`, but for those `without`, in small letters."""

    table: str
    without: frozenset[str] = frozenset()


Columns: TypeAlias = tuple[str | AllColumns, ...]


@dataclass(frozen=True, slots=True)
class QueryRows:
    """Rows that a FROM or a query gives."""

    columns: Columns
    table: str
    """The table that the rows are of, or a name for the tables of a UNION ALL; empty for rows in windows."""
    origins: Mapping[str, str | None]
    """By the name in small letters: the column of the table or of the windows that a column is, unchanged, if any."""
    sides: Mapping[str, QueryRows] = field(default_factory=dict)
    """The rows that a FROM names or joins, by their names in small letters."""
    optional: frozenset[str] = frozenset()
    """The sides that are missing in some rows: their columns are NULL there."""
    kinds: Mapping[str, ResultType | None] = field(default_factory=dict)
    """The types of columns that are computed, by the names in small letters; None for one that is not sure."""

    @property
    def windowed(self) -> bool:
        """True for rows that lie in windows."""
        return not self.table

    @property
    def names(self) -> frozenset[str]:
        """The columns that have a name of their own, in small letters."""
        return frozenset(one.lower() for one in self.columns if isinstance(one, str))

    def find_origin(self, name: str) -> str | None:
        """Return the column that `name` is, unchanged; None for a computed one."""
        low = name.lower()
        if low in self.origins:
            return self.origins[low]
        every = any(isinstance(one, AllColumns) and low not in one.without for one in self.columns)
        return name if every else None

    def origin_of(self, node: exp.Expr) -> str | None:
        """Return the column that an expression is in each row, unchanged; None for a computed one.

        `coalesce` of one column of several sides of a join is that column, if a side is there in each row.
        """
        each = [node.this, *node.expressions] if isinstance(node, exp.Coalesce) else [node]
        given = [one for one in each if isinstance(one, exp.Column)]
        if len(given) < len(each):
            return None
        sides = {one.table.lower() for one in given}
        if not sides <= self.sides.keys():
            return self.find_origin(given[0].name) if len(given) == 1 else None
        origins = {self.sides[one.table.lower()].find_origin(one.name) for one in given}
        is_there = not sides <= self.optional or (len(sides) > 1 and sides == self.sides.keys())
        return origins.pop() if len(origins) == 1 and is_there else None

    def find_kind(self, column: exp.Column) -> ResultType | None:
        """Return the type of a column, as far as it is sure."""
        side = self.sides.get(column.table.lower()) if column.table else self
        if side is None:
            return None  # a field of a struct, which has the name of a column
        low = str(column.name).lower()
        if low in side.kinds:
            return side.kinds[low]
        origin = side.find_origin(low)
        return None if origin is None else ResultType(column=origin)

    def origin_in(self, node: exp.Expr) -> str | None:
        """Return the column that an expression with the name of a side is, where that side is there."""
        side = self.sides.get(node.table.lower()) if isinstance(node, exp.Column) else None
        return None if side is None else side.find_origin(node.name)

    def rows_of(self, star: exp.Expr) -> QueryRows:
        """Return the rows whose columns `*` stands for, or `l.*`."""
        name = star.table.lower() if isinstance(star, exp.Column) else ""
        if name not in self.sides:
            return self
        return self.sides[name].without((*WINDOW_COLUMNS, ROW_TIME)) if name in self.optional else self.sides[name]

    def without(self, lost: Iterable[str]) -> QueryRows:
        """Return the rows with no column that is one of `lost`."""
        gone = set(lost)
        origins = {name: None if origin in gone else origin for name, origin in self.origins.items()}
        sides = {name: side.without(gone) for name, side in self.sides.items()}
        return replace(self, origins=origins, sides=sides)

    def find_bounds(self, bounds: Sequence[str]) -> dict[str, str]:
        """Return the columns that tell the window of a row: by those of `bounds`, their names."""
        found: dict[str, str] = {}
        for column in self.columns if self.windowed else ():
            origin = self.find_origin(column) if isinstance(column, str) else None
            if isinstance(column, str) and origin is not None and origin in bounds:
                found.setdefault(origin, column)
        return found


def find_hidden(columns: Columns, of_table: Sequence[str], hiding: Sequence[str]) -> list[str]:
    """Return the columns of rows that those of a window function hide: a table may be the output of a window program.

    `of_table` are the columns of the table of which the rows are, `hiding` those of the window function.
    """
    found: list[str] = []
    for one in columns:
        every = (name for name in of_table if name.lower() not in one.without) if isinstance(one, AllColumns) else [one]
        found += [name for name in every if name.lower() in hiding]
    return found
