"""Names of columns in a query: each must be a column of the rows that its SELECT reads.

A query is read before the columns of its tables are known. So the reader notes the names with the rows that they may be
of, and a declaration compares them with the columns of the tables. Spark would say the same when a run computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from tidemill.errors import StatementPlace
from tidemill.names import nearest
from tidemill.sql.dialect import BadStatement, find_place
from tidemill.sql.window_rows import Columns, QueryRows

_MOST_NAMED: Final = 12
_WITH_UNIT: Final = ("TIMEDIFF", "TIME_DIFF")
"""Functions of Spark that begin with a unit of time, and that the parser does not know."""


@dataclass(frozen=True, slots=True)
class NamedColumn:
    """A name in a query, where it stands, and the columns that it may be."""

    name: str
    place: StatementPlace
    among: Columns
    other: NamedColumn | None = None
    """Another meaning of the name, by which it is a column too."""

    def check(self, tables: Mapping[str, Sequence[str]]) -> None:
        """Refuse a name that is no column of rows over tables with these columns; `BadStatement`.

        A name among columns that are not known is not refused.
        """
        if self.is_column(tables) or (self.other is not None and self.other.is_column(tables)):
            return
        known = self._find_known(tables) or {}
        meant = nearest(self.name.lower(), known)
        shown = [*known.values()][:_MOST_NAMED]
        more = ", …" if len(known) > len(shown) else ""
        advice = f"did you mean {known[meant]}?" if meant else f"there are {', '.join(shown)}{more}"
        raise BadStatement(f"there is no column {self.name}: {advice}", self.place.line, self.place.column)

    def is_column(self, tables: Mapping[str, Sequence[str]]) -> bool:
        """Return whether the name is a column of rows over tables with these columns, or may be one."""
        known = self._find_known(tables)
        # A computed column without a name of its own gets one from Spark.
        return known is None or "" in known or self.name.lower() in known

    def _find_known(self, tables: Mapping[str, Sequence[str]]) -> dict[str, str] | None:
        """Return the columns that the name may be, by their names in small letters; None if they are not known."""
        known: dict[str, str] = {}
        for one in self.among:
            if isinstance(one, str):
                known[one.lower()] = one
            elif one.table in tables:
                known |= {name.lower(): name for name in tables[one.table] if name.lower() not in one.without}
            else:
                return None
        return known


def list_named(select: exp.Select, rows: QueryRows, outer: QueryRows | None = None) -> Iterator[NamedColumn]:
    """Yield the names in a SELECT over `rows`, but for those in its FROM. `outer` are rows of the query around it."""
    sides = [rows] if outer is None else [rows, outer]
    made = (one for one in select.expressions if not isinstance(one, exp.Column))
    given = [name for one in made for name in names_of(one) if name]
    views = [view.args["alias"] for view in select.args.get("laterals") or []]
    if not all(view.columns for view in views):
        return  # Spark names their columns
    of_views = {str(view.name).lower() for view in views}
    for node in _own(select, select):
        in_where = node.find_ancestor(exp.Where, exp.Select) is not select
        if node.parts[0].name.lower() not in of_views:
            yield from _list_of(node, sides, [] if in_where else given)


def list_joined(node: exp.Join, left: QueryRows, right: QueryRows) -> Iterator[NamedColumn]:
    """Yield the names in the condition of a join of these rows."""
    select, condition = node.find_ancestor(exp.Select), node.args.get("on")
    for column in () if condition is None or select is None else _own(select, condition):
        yield from _list_of(column, [left, right], [])
    for column in node.args.get("using") or []:
        for side in (left, right):
            yield NamedColumn(str(column.name), find_place(column), side.columns)


def _own(select: exp.Select, part: exp.Expr) -> Iterator[exp.Column]:
    """Yield the columns in a part of a SELECT that belong to no query within it, and to no other part of FROM."""
    for node in part.find_all(exp.Column):
        above = node.find_ancestor(exp.From, exp.Join, exp.Select)
        if above is select or (part is not select and isinstance(above, exp.Join)):
            yield node


def _list_of(node: exp.Column, sides: Iterable[QueryRows], given: Sequence[str]) -> Iterator[NamedColumn]:
    """Yield what a column must be: a column of a side that it names, or of any side, or one that the SELECT gives."""
    names = [str(part.name) for part in node.parts]
    if isinstance(node.this, exp.Star) or _is_unit(node) or _is_parameter(node):
        return
    place = find_place(node)
    found = {name: side for rows in sides for name, side in rows.sides.items()}
    # `l.a`, `default.clicks.a`, and otherwise a column, perhaps with its fields.
    every = [column for rows in sides for column in rows.columns]
    column = NamedColumn(names[0], place, (*every, *given))
    if len(names) > 1 and names[0].lower() in found:
        yield NamedColumn(names[1], place, found[names[0].lower()].columns)
    elif len(names) > 2 and names[1].lower() in found:
        yield NamedColumn(names[2], place, found[names[1].lower()].columns, column)
    else:
        yield column


def _is_unit(node: exp.Column) -> bool:
    """Return whether a name is the unit of time of a function, such as HOUR in `timediff(HOUR, a, b)`."""
    above = node.parent
    return isinstance(above, exp.Anonymous) and above.name.upper() in _WITH_UNIT and node is above.expressions[0]


def _is_parameter(node: exp.Column) -> bool:
    """Return whether a name is a parameter of a lambda function around it. Capital letters do not count."""
    above = node.find_ancestor(exp.Lambda)
    while above is not None:
        if node.parts[0].name.lower() in {one.name.lower() for one in above.expressions}:
            return True
        above = above.find_ancestor(exp.Lambda)
    return False


def names_of(column: exp.Expr) -> list[str]:
    """Return the names of the columns that an expression of a SELECT gives; empty where Spark makes one up."""
    match column:
        case exp.Aliases():
            return [str(one.name) for one in column.args["expressions"]]
        case exp.Alias() | exp.Column():
            return [str(column.alias_or_name)]
        case _:
            return [""]


def check_names(named: Iterable[NamedColumn], tables: Mapping[str, Sequence[str]]) -> None:
    """Refuse the first name, in the order of the text, that is no column; `BadStatement`."""
    for one in sorted(named, key=lambda one: (one.place.line, one.place.column)):
        one.check(tables)
