"""Window joins: joins of rows in windows that match only rows of one window, so that each window stands alone.

Both bounds must be equal in the condition. Then a result follows from the rows of its window in all tables, and a late
partition of any table touches the same windows as without a join. A look-up join adds columns of a snapshot to rows in
windows (Flink's lookup join): the run pins one version of the snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from tidemill.sql.dialect import bad
from tidemill.sql.window_rows import BOUNDS, QueryRows

SEMI: Final = ("SEMI", "LEFT SEMI", "ANTI", "LEFT ANTI")
OPTIONAL: Final[Mapping[str, tuple[bool, bool]]] = {
    "": (False, False),
    "INNER": (False, False),
    "LEFT": (False, True),
    "LEFT OUTER": (False, True),
    "RIGHT": (True, False),
    "RIGHT OUTER": (True, False),
    "FULL": (True, True),
    "FULL OUTER": (True, True),
}
"""For each kind of join, whether rows may lack the left side, and the right side."""
_NEEDS: Final = "l.window_start = r.window_start AND l.window_end = r.window_end"


def join(node: exp.Join, left: QueryRows, right: QueryRows) -> QueryRows:
    """Return the rows of a join; `BadStatement` for one that joins rows of several windows.

    `right` are the rows of one side, `left` those of one or more.
    """
    kind = find_kind(node)
    _check_sides(node, left, right)
    using = [column.name.lower() for column in node.args.get("using") or []]
    both = [name for name in using if left.find_origin(name) == right.find_origin(name) is not None]
    equal = {right.find_origin(name) for name in both} | _equated(node.args.get("on"), left, right)
    if not equal >= {*BOUNDS}:
        place = node.args.get("on") or node
        raise bad(f"a join of windows needs ON {_NEEDS}: else it joins rows of several windows", place)
    if kind in SEMI:
        return left
    lacks_left, lacks_right = OPTIONAL[kind]
    optional = {*left.optional}
    optional |= left.sides.keys() if lacks_left else set()
    optional |= right.sides.keys() if lacks_right else set()
    sides = {**left.sides, **right.sides}
    origins: dict[str, str | None] = {name: right.find_origin(name) for name in both}
    for name, side in sides.items():
        for column, origin in side.origins.items():
            origins.setdefault(column, None if name in optional else origin)
    rest = [one for one in (*left.columns, *right.columns) if not isinstance(one, str) or one.lower() not in using]
    return QueryRows((*using, *rest), "", origins, sides, frozenset(optional))


def join_look_up(node: exp.Join, left: QueryRows, right: QueryRows) -> QueryRows:
    """Return the rows of a join with a snapshot; `BadStatement` for rows that would lie in no window.

    `right` are the rows of the snapshot.
    """
    if node.args.get("on") is None and not node.args.get("using"):
        raise bad(f"a join with the snapshot {right.table} needs ON or USING", node)
    kind = find_kind(node)
    if kind not in SEMI and OPTIONAL[kind][0]:
        why = "rows of a snapshot without a match lie in no window"
        raise bad(f"{kind} JOIN with a snapshot: {why}. Write JOIN, LEFT JOIN, or LEFT SEMI or ANTI JOIN", node)
    check_names(node, left, right)
    if kind in SEMI:
        return left
    optional = left.optional | (right.sides.keys() if OPTIONAL[kind][1] else frozenset())
    using = [column.name.lower() for column in node.args.get("using") or []]
    rest = [one for one in (*left.columns, *right.columns) if not isinstance(one, str) or one.lower() not in using]
    # The columns of the snapshot are not known here: a name of a bound that the windows lack may be one of them.
    origins = {**dict.fromkeys(BOUNDS), **left.origins}
    return QueryRows((*using, *rest), "", origins, {**left.sides, **right.sides}, optional)


def find_kind(node: exp.Join) -> str:
    """Return the kind of a join, one of `OPTIONAL` or `SEMI`; `BadStatement` for others."""
    kind = " ".join(part for part in (node.method, node.side, node.kind) if part).upper()
    if kind not in OPTIONAL and kind not in SEMI:
        raise bad(
            f"{kind} JOIN of windows is not supported: write [LEFT | RIGHT | FULL] JOIN, or LEFT SEMI or ANTI", node
        )
    return kind


def check_exists(node: exp.Expr, query: exp.Select, outer: QueryRows, inner: QueryRows) -> None:
    """Refuse a query in EXISTS or IN that sees rows of other windows than that of the outer row."""
    for part in ("group", "having", "qualify"):
        if query.args.get(part) is not None:
            raise bad("a query in EXISTS or IN chooses rows of the window: no groups and no rankings", query)
    if any(one.find_ancestor(exp.Select) is query for one in query.find_all(exp.AggFunc, exp.Window)):
        raise bad("a query in EXISTS or IN chooses rows of the window: no aggregates and no rankings", query)
    _check_sides(node, outer, inner)
    where = query.args.get("where")
    equal = set() if where is None else _equated(where.this, outer, inner)
    if not equal >= {*BOUNDS}:
        raise bad(f"a query in EXISTS or IN needs WHERE {_NEEDS}: else it sees rows of several windows", query)


def _check_sides(node: exp.Expr, left: QueryRows, right: QueryRows) -> None:
    if not left.windowed or not right.windowed:
        raise bad(
            "a join is of windows: both sides must be window functions of tables, or queries over them. A snapshot may "
            "be joined to windows",
            node,
        )
    check_names(node, left, right)


def check_names(node: exp.Expr, left: QueryRows, right: QueryRows) -> None:
    """Refuse two sides of one name."""
    if shared := left.sides.keys() & right.sides.keys():
        raise bad(f"both sides of the join are named {min(shared) or 'nothing'}: give each a name of its own", node)


def _equated(condition: exp.Expr | None, left: QueryRows, right: QueryRows) -> set[str | None]:
    """Return the columns that a condition has equal on both sides."""
    if isinstance(condition, exp.Paren):
        return _equated(condition.this, left, right)
    if isinstance(condition, exp.And):
        return _equated(condition.this, left, right) | _equated(condition.expression, left, right)
    if not isinstance(condition, exp.EQ):
        return set()
    pairs = ((condition.this, condition.expression), (condition.expression, condition.this))
    return {left.origin_in(one) for one, other in pairs if left.origin_in(one) == right.origin_in(other)}
