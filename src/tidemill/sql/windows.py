"""Queries over windows: what `INSERT INTO … SELECT … FROM TABLE(TUMBLE(…)) GROUP BY window_start, window_end` asks.

A query is taken only if each window's rows can be computed from the rows of that window: then computing them in groups,
one by one, or again gives the same. What cannot be computed so is refused when it is declared, with the reason.

A query may nest: each SELECT reads the table, windows of rows, or another SELECT. Below the window function each row
stands alone. Above it each group, each ranking and each distinct row lies within one window.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product
from typing import Final, TypeAlias

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from tidemill.errors import StatementPlace, UserError
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.reach import WindowReach
from tidemill.lake.window.window_plan import Window, WindowShape
from tidemill.shapes.watermark_spec import WINDOW_TIME, WINDOW_TIMES, WatermarkSpec
from tidemill.sql.column_names import NamedColumn, list_joined, list_named, names_of
from tidemill.sql.dialect import WindowSql, bad, find_place, parse_one, tokenize
from tidemill.sql.empty_windows import EmptyRow, find_empty_row
from tidemill.sql.interval_joins import IntervalJoin, compares_intervals, join_tables
from tidemill.sql.result_types import ResultType, find_misfits, kind_of
from tidemill.sql.window_calls import WindowCall, example, read_call
from tidemill.sql.window_joins import check_exists, join, join_look_up
from tidemill.sql.window_rows import BOUNDS, FORCED, ROW_TIME, WINDOW_COLUMNS, AllColumns, Columns, QueryRows

_RANKED: Final = "rank the rows of each window by ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY …)"
_REFUSED: Final[tuple[tuple[type[exp.Expr], str], ...]] = (
    (exp.Limit, f"LIMIT would cut the windows that one run computes, not each window: {_RANKED}"),
    (exp.Fetch, f"Spark has no FETCH FIRST: a SELECT takes LIMIT. {_RANKED[0].upper()}{_RANKED[1:]}"),
    (exp.Offset, f"OFFSET would cut the windows that one run computes, not each window: {_RANKED}"),
    (exp.TableSample, "TABLESAMPLE takes other rows each time: a window is computed again"),
    (exp.Pivot, "PIVOT comes later: use sum(CASE WHEN … THEN … END)"),
    (exp.Version, "a run reads each table at one version: leave out VERSION, TIMESTAMP and SYSTEM_TIME AS OF"),
)
_WHOLE: Final = (exp.Limit, exp.Offset)
"""Parts that choose among all rows of a bare SELECT."""
_CHANGING: Final = {
    "RAND", "RANDN", "RANDOM", "RANDSTR", "UNIFORM", "UUID", "SHUFFLE", "NOW", "CURRENT_TIMESTAMP",
    "GETDATE", "SYSDATE",
    "CURRENT_DATE", "CURDATE", "LOCALTIMESTAMP", "CURRENT_TIME", "LOCALTIME", "CURRENT_TIMEZONE",
    "MONOTONICALLY_INCREASING_ID", "SPARK_PARTITION_ID", "INPUT_FILE_NAME", "INPUT_FILE_BLOCK_START",
    "INPUT_FILE_BLOCK_LENGTH", "CURRENT_USER", "USER", "SESSION_USER", "CURRENT_CATALOG", "CURRENT_DATABASE",
    "CURRENT_SCHEMA", "CURRENT_PATH", "VERSION", "REFLECT", "TRY_REFLECT", "JAVA_METHOD",
}  # fmt: skip
"""Functions of Spark with another value each time, or that depend on the run, its files, its session or its user."""
_LITERALS: Final = _CHANGING - {"USER", "VERSION", "NOW", "UUID", "RANDOM", "UNIFORM", "SHUFFLE", "REFLECT"}
"""The functions that are read without parentheses too, if no column is likely to have their name."""
_CHANGING_TEXT: Final = re.compile(r"\s*(now|today|tomorrow|yesterday)(\s.*)?", re.IGNORECASE)
"""Texts that are another time in each run, where a time is made of them."""
_TO_TIME: Final = (exp.TsOrDsToDate, exp.TsOrDsToTimestamp, exp.StrToTime, exp.StrToUnix)
_METADATA: Final = "_METADATA"
"""The hidden column of a file's name and times."""
TIME_OF: Final = "the time of "
_LONGEST_INTERVAL: Final = WindowShape(86_400_000_000, 86_400_000_000, 0)


@dataclass(frozen=True, slots=True)
class _TextPlace:
    """A part of the text that stands for rows of a table, or for windows of the rows of `call`, with its alias."""

    begin: int
    end: int
    alias: str
    tables: tuple[str, ...]
    """The tables that the rows are of: several for windows over UNION ALL."""
    call: WindowCall | None = None
    columns: Columns = ()
    """The columns of the rows that the windows are of."""


WindowsText: TypeAlias = Callable[[str, str, Sequence[str], Columns], str]
"""Gives the text for windows of rows, by a column, of tables. The rows have the given columns."""


@dataclass(frozen=True, slots=True)
class WindowQuery:
    """A checked query. `sink` is empty for a bare SELECT.

    `text` is the user's own, with the places of tables and of calls of window functions.
    """

    sink: str
    tables: Mapping[str, str]
    """The time column of each table that the query reads, by the table's name in the query."""
    shape: WindowShape
    """Shape of the windows. The windows of an interval join are as long as this at most (`make_grid`)."""
    text: str
    places: tuple[_TextPlace, ...]
    bounds: Mapping[str, str]
    """Columns of the result that tell its window: by `window_start`, `window_end`, `ROW_TIME`, their names."""
    columns: Columns
    """The columns of the result."""
    look_ups: tuple[str, ...]
    """The snapshots whose rows are joined to rows in windows, by the names in the query."""
    keys: tuple[str, ...] = ()
    """The columns by which SESSION divides the rows."""
    interval: IntervalJoin | None = None
    """The interval join that the query is over; None for a query over window functions."""
    empty: EmptyRow | None = None
    """The row of a window without rows, where `window.emit-empty` asks for one."""
    times: frozenset[str] = frozenset()
    """`window_time` and `window_start`, as far as the result has them unchanged, under these names.

    The `window_time` of an interval join is the time that tells the window of a row.
    """
    mentioned: frozenset[str] | None = None
    """All names in the query, in small letters, among which are the columns that it reads; None for all columns."""
    named: tuple[NamedColumn, ...] = ()
    """The columns that the query names, which the columns of the tables are compared with."""
    result: QueryRows = field(default_factory=lambda: QueryRows((), "", {}))
    """The rows of the result."""
    places_of: Mapping[str, StatementPlace] = field(default_factory=dict)
    """The places of the columns of the result in the text, by their names, as far as it names them."""
    stands: Mapping[str, StatementPlace] = field(default_factory=dict)
    """The places of the output, the tables and the snapshots in the text, by name, and of the SELECT, by `""`.

    The place of the time column of a table has the name of the table with `TIME_OF` before.
    """

    def locate(self, error: UserError, name: str = "") -> UserError:
        """Give an error the place of a table, of its time column, or of the SELECT, and return the error."""
        return error.put_at(self.stands.get(name, self.stands[name.removeprefix(TIME_OF)]))

    @property
    def reaches(self) -> tuple[WindowReach, ...]:
        """The reach of each of `tables`."""
        known = {} if self.interval is None else self.interval.reaches
        return tuple(known.get(table, WindowReach()) for table in self.tables)

    def fit_shape(self, spec: WatermarkSpec) -> WindowShape:
        """Return the shape of the windows over a table with this watermark."""
        return self.shape.fit(spec.partition_time.interval.longest // timedelta(microseconds=1), spec.session_max)

    def emits_empty(self, spec: WatermarkSpec) -> bool:
        """Return whether windows of a table with this watermark give out a row if they have no rows."""
        among = spec.emit_empty and self.empty is not None and bool(self.bounds)
        return among and len(self.tables) == 1 and self.interval is None and self.shape.sessions is None

    def find_columns(self, tables: Mapping[str, Sequence[str]]) -> tuple[str, ...] | None:
        """Return the columns of the result over tables with these columns; None if they depend on unknown ones."""
        found: list[str] = []
        # The columns of windows stand in the place of columns of these names in the table.
        hidden = {one for one in self.columns if isinstance(one, str)} & {*WINDOW_COLUMNS}
        for column in self.columns:
            if isinstance(column, str):
                found.append(column)
            elif column.table not in tables:
                return None
            else:
                found += [name for name in tables[column.table] if name.lower() not in column.without | hidden]
        return tuple(found)

    def find_types(self, tables: Mapping[str, Mapping[str, str]]) -> dict[str, str | None]:
        """Return the types of the columns of the result over tables with these columns, None for unknown types.

        Empty if the columns of the result are not known.
        """
        columns = self.find_columns({name: [*types] for name, types in tables.items()}) or ()
        known: dict[str, str | None] = {}
        times: set[str | None] = set()
        for table, time in self.tables.items():
            types = {name.lower(): kind for name, kind in tables.get(table, {}).items()}
            times.add(types.get(time.lower()))
            if len(self.tables) == 1 and not self.look_ups:
                known |= types
        known |= {**dict.fromkeys(BOUNDS, "timestamp_ntz"), WINDOW_TIME: times.pop() if len(times) == 1 else None}
        found: dict[str, str | None] = {}
        for name in columns:
            kind = self.result.find_kind(exp.column(name)) if name else None
            found[name] = None if kind is None else kind.find(lambda one: known.get(one.lower()))
        return found

    def check_result(self, sink: Fileset, columns: Mapping[str, str] | None, given: Mapping[str, str | None]) -> None:
        """Refuse what `find_misfits` finds, at its place in the text."""
        for why, name in find_misfits(sink, columns, given):
            raise UserError(why).put_at(self.places_of.get(name.lower(), self.stands[""]))

    def select(self, rows: Callable[[str], str], windows: WindowsText) -> str:
        """Return the query over the texts that `rows` gives for the names of tables, and `windows` for windows."""
        return self._write(0, len(self.text), rows, windows).strip()

    def select_empty(
        self,
        empty: Iterable[Window],
        time: str,
        rows: Callable[[str], str],
        windows: WindowsText,
    ) -> str:
        """Return a query of the rows of windows without rows; `select` has the other parameters.

        `time` is the expression of `window_time`, of a `window_end`.
        """
        assert self.empty is not None, "the query gives such rows"  # noqa: S101
        return self.empty.write(lambda place: self._write(*place, rows, windows), empty, time)

    def _write(self, begin: int, end: int, rows: Callable[[str], str], windows: WindowsText) -> str:
        text = ""
        for place in self.places:
            if begin <= place.begin and place.end <= end:
                if place.call is None:
                    found = rows(place.tables[0])
                else:
                    data = place.call.data.meta
                    inner = self._write(data["start"], data["end"] + 1, rows, windows)
                    found = windows(inner, place.call.column, place.tables, place.columns)
                text += f"{self.text[begin : place.begin]}{found}{place.alias}"
                begin = place.end
        return text + self.text[begin:end]


def read_query(text: str, *, bare: bool = False) -> WindowQuery:
    """Check `INSERT INTO … SELECT …`; `BadStatement` says what cannot be, where, and what to write instead.

    With `bare` the text is the SELECT alone, and the query has no output.
    """
    tokens = tokenize(text)
    statement = parse_one(text)
    if bare and isinstance(statement, exp.Query):
        return _check(text, tokens, statement, statement, None)
    if not isinstance(statement, exp.Insert) or not isinstance(statement.expression, exp.Query):
        raise bad("a window program is one INSERT INTO <file set> SELECT … FROM TABLE(TUMBLE(TABLE …))", statement)
    sink = statement.this
    if statement.args.get("overwrite") or statement.args.get("partition") or not isinstance(sink, exp.Table):
        raise bad("write INSERT INTO <file set> SELECT …: partitions follow from columns of their names", statement)
    return _check(text, tokens, statement, statement.expression, sink)


def _check(
    text: str, tokens: Sequence[Token], statement: exp.Expr, query: exp.Query, sink: exp.Table | None
) -> WindowQuery:
    _refuse_parts(statement, kept=() if sink is not None else _WHOLE)
    reader = _QueryReader(tokens)
    found = reader.read(query, {} if query is statement else reader.add_queries({}, statement))
    shape = reader.shape if reader.interval is None else _LONGEST_INTERVAL
    if shape is None or not found.windowed:
        raise bad(f"FROM must be a window function of a table: TABLE({example('TUMBLE')})", query)
    _refuse_unread(statement, reader)
    if sink is not None:
        _refuse_twice(query, found)
    text = text.rstrip().rstrip(";")
    return WindowQuery(
        sink="" if sink is None else name_of(sink),
        tables=reader.tables,
        shape=shape,
        text=text if sink is None else _blank_insert(text, reader.tokens, sink),
        places=tuple(sorted(reader.places, key=lambda place: place.begin)),
        bounds=(
            found.find_bounds(reader.bounds)
            if reader.interval is None
            else {ROW_TIME: reader.interval.find_time(found, query)}
        ),
        columns=found.columns,
        look_ups=tuple(reader.look_ups),
        keys=next((place.call.keys for place in reader.places if place.call is not None), ()),
        interval=reader.interval,
        empty=find_empty_row(query, reader.tokens),
        times=_find_times(found),
        mentioned=(
            None if reader.takes_all else frozenset(one.name.lower() for one in statement.find_all(exp.Identifier))
        ),
        named=tuple(dict.fromkeys(reader.columns)),
        result=found,
        places_of={name.lower(): find_place(one) for one in reversed(query.selects) for name in names_of(one) if name},
        stands=_find_places(query, sink, reader),
    )


def _find_places(query: exp.Query, sink: exp.Table | None, reader: _QueryReader) -> dict[str, StatementPlace]:
    places = {name: find_place(node) for name, node in reader.named.items()}
    times = {f"{TIME_OF}{name}": find_place(node) for name, node in reader.descriptors.items()}
    if sink is not None:
        places.setdefault(name_of(sink), find_place(sink))
    return {**places, **times, "": find_place(query)}


def _find_times(found: QueryRows) -> frozenset[str]:
    given = {name: found.find_origin(name) for name in WINDOW_TIMES if name in found.names}
    return frozenset(name for name, one in given.items() if one == name or (one, name) == (ROW_TIME, WINDOW_TIME))


def _refuse_twice(query: exp.Query, found: QueryRows) -> None:
    """Refuse two columns of one name, such as those of `SELECT *` over a window join."""
    names = [one.lower() for one in found.columns if isinstance(one, str)]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        why = "* has that of each side of a join: name the columns" if query.is_star else "name one of them by AS"
        raise bad(f"the query gives two columns {twice}: {why}", query)


def _refuse_unread(statement: exp.Expr, reader: _QueryReader) -> None:
    for node in statement.find_all(exp.Join):
        if id(node) not in reader.read_already:
            raise bad("a join in parentheses is not supported: write the joins one after the other in FROM", node)
    for query in statement.find_all(exp.Select):
        if id(query) not in reader.read_already:
            raise bad("queries within expressions come later, but for EXISTS and IN in WHERE of windows", query)
    for name, table in reader.named.items():
        if name in reader.tables and name in reader.look_ups:
            raise bad(
                f"{name} is read by windows, and joined without: only a snapshot is joined without windows", table
            )
        if name not in reader.tables and name not in reader.look_ups:
            raise bad(f"{name} is read without windows: FROM must be TABLE({example('TUMBLE')})", table)


def _refuse_parts(statement: exp.Expr, kept: tuple[type[exp.Expr], ...]) -> None:
    """Refuse parts that cannot be computed window by window. Parts `kept` may stand at the end of the whole text."""
    for node in statement.walk():
        for kind, why in _REFUSED:
            if isinstance(node, kind) and not (kind in kept and node.parent is statement):
                raise bad(why, node)
        if _changes(node):
            shown = node.sql(dialect=WindowSql)
            raise bad(f"{shown} gives another value each time: a window is computed again", node)


class _QueryReader:
    """Reads queries from the inside out, and finds the tables, the windows, and where they stand in the text."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self.tokens = tokens
        self.tables: dict[str, str] = {}
        self.named: dict[str, exp.Expr] = {}
        """The tables that the query names."""
        self.descriptors: dict[str, exp.Expr] = {}
        """The parts of the query that name the time columns of tables, by the tables."""
        self.shape: WindowShape | None = None
        self.interval: IntervalJoin | None = None
        self.places: list[_TextPlace] = []
        self.look_ups: dict[str, None] = {}
        self.takes_all = False
        """A `*` of the query stands for all columns of a table."""
        self.read_already: set[int] = set()
        self.columns: list[NamedColumn] = []
        """The columns that the query names."""
        self.named_queries: list[exp.Expr] = []
        """The places that name a query of WITH."""
        self.united: dict[str, Mapping[str, Mapping[str, str | None]]] = {}
        """The tables of each UNION ALL below a window function, by a name that stands for all of them.

        A table has its column for each column of the UNION ALL, unchanged, if any.
        """

    @property
    def bounds(self) -> tuple[str, ...]:
        """The columns of which each tells the window of a row; none before a window function or a join was read."""
        if self.interval is not None:
            return (ROW_TIME,)
        return () if self.shape is None else self.shape.bounds

    def add_queries(self, known: Mapping[str, QueryRows], query: exp.Expr) -> dict[str, QueryRows]:
        """Return the queries that WITH names, beside those that are `known`."""
        found = dict(known)
        given = query.args.get("with_")
        if given is not None and given.args.get("recursive"):
            raise bad("WITH RECURSIVE is not supported: a window is computed from its rows alone", given)
        for one in given.expressions if given is not None else ():
            if one.args["alias"].columns:
                raise bad("name the columns of a query in its SELECT", one.args["alias"])
            found[one.alias.lower()] = self.read(one.this, found)
        return found

    def read(self, query: exp.Expr, known: Mapping[str, QueryRows]) -> QueryRows:
        """Return the rows of `query`. `known` are the queries that it may name, in small letters."""
        self.read_already.add(id(query))
        known = self.add_queries(known, query)
        match query:
            case exp.Select():
                return self._read_select(query, known)
            case exp.SetOperation():
                left, right = self.read(query.this, known), self.read(query.expression, known)
                _check_places(query, left, right)
                if left.table == right.table:
                    return _unite(query, left, right, self.bounds)
                return self._unite_tables(query, left, right)
            case exp.Subquery():
                return self.read(query.this, known)
            case _:
                raise bad("a query is SELECT … FROM …, or several with UNION ALL between them", query)

    def _unite_tables(self, query: exp.SetOperation, left: QueryRows, right: QueryRows) -> QueryRows:
        """Return the rows of UNION ALL of several tables, which may stand below a window function."""
        kind = query.key.upper()
        if not _takes_all_rows(query):
            raise bad(f"{kind} below the window function would compare rows of several windows: use UNION ALL", query)
        found: dict[str, dict[str, str | None]] = {}
        for side in (left, right):
            for name, column in zip(left.columns, side.columns, strict=True):
                if isinstance(name, str) and isinstance(column, str):
                    for table, origin in self._find_origins(side, column).items():
                        known = found.setdefault(table, {})
                        # One table may stand on both sides.
                        known[name.lower()] = origin if known.get(name.lower(), origin) == origin else None
        every = f"{left.table} UNION ALL {right.table} {len(self.united)}"
        self.united[every] = found
        kinds: dict[str, ResultType | None] = dict.fromkeys(left.names)
        return QueryRows(left.columns, every, {name: name for name in left.names}, kinds=kinds)

    def _find_origins(self, rows: QueryRows, name: str) -> dict[str, str | None]:
        """Return for each table of `rows` its column that `name` is, unchanged; None for a computed one."""
        origin = rows.find_origin(name)
        if rows.table not in self.united:
            return {rows.table: origin}
        return {table: columns.get(origin or "") for table, columns in self.united[rows.table].items()}

    def _read_select(self, select: exp.Select, known: Mapping[str, QueryRows]) -> QueryRows:
        rows = _add_views(select, self._read_from(select, known))
        self.columns += list_named(select, rows)
        if rows.windowed and self.interval is not None:
            self.interval.check_above(select, rows)
            rows = _check_windowed(select, rows, self.bounds, self.bounds, [self.interval.time])
        elif rows.windowed:
            self._read_where(select, rows, known)
            rows = _check_windowed(select, rows, self.bounds, WINDOW_COLUMNS, BOUNDS)
        else:
            _check_below(select)
        if _names_all(select):
            self.takes_all = self.takes_all or any(isinstance(one, AllColumns) for one in rows.columns)
        return _project(select, rows)

    def _read_from(self, select: exp.Select, known: Mapping[str, QueryRows]) -> QueryRows:
        """Return the rows of FROM, with those that are joined."""
        source = select.args.get("from_")
        if source is None:
            raise bad(f"FROM must be a window function of a table: TABLE({example('TUMBLE')})", select)
        rows = self._read_side(source.this, known)
        for node in select.args.get("joins") or []:
            self.read_already.add(id(node))
            near = self.interval is not None and compares_intervals(node)
            is_look_up = rows.windowed and _is_table(node.this, known) and not near
            right = self._read_look_up(node.this) if is_look_up else self._read_side(node.this, known)
            self.columns += list_joined(node, rows, right)
            rows = join_look_up(node, rows, right) if is_look_up else self._join(node, rows, right)
        return rows

    def _join(self, node: exp.Join, left: QueryRows, right: QueryRows) -> QueryRows:
        if node.kind == "CROSS" and not left.windowed and not right.windowed:
            advice = "FROM clicks l JOIN views r ON l.ts BETWEEN r.ts - INTERVAL '1' HOUR AND r.ts"
            raise bad(f"a join of two tables needs ON, and no comma: write what WHERE says as {advice}", node)
        if self.interval is not None:
            raise bad(
                f"an interval join is of two tables: SELECT {self.interval.time} AS window_time into a file set with a "
                "watermark for this column, and join that with others in another program",
                node,
            )
        self._refuse_sessions(node, "a join")
        if left.windowed or right.windowed:
            return join(node, left, right)
        if not self.united.keys().isdisjoint({left.table, right.table}):
            advice = "declare a program for each table, or join windows of the UNION ALL"
            raise bad(f"an interval join is of two tables, and not of a UNION ALL of several: {advice}", node)
        rows, interval, columns = join_tables(node, left, right)
        if self.shape is not None:
            raise bad("a query is over window functions or over one interval join: declare a program for each", node)
        self.interval = interval
        for table, column in zip((left.table, right.table), columns, strict=True):
            if self.tables.setdefault(table, column).lower() != column.lower():
                raise bad(f"the join compares two columns of {table}: both must be the time of its watermark", node)
        return rows

    def _refuse_sessions(self, node: exp.Expr, what: str) -> None:
        if self.shape is not None and self.shape.sessions:
            raise bad(f"{what} of SESSION windows is not supported: write the sessions into a file set", node)

    def _read_look_up(self, source: exp.Expr) -> QueryRows:
        """Return the rows of a snapshot, with their name."""
        rows = replace(self._read_table(source, {}, alias=True), origins=dict.fromkeys(WINDOW_COLUMNS))
        self.look_ups[rows.table] = None
        return replace(rows, sides={source.alias_or_name.lower(): rows})

    def _read_side(self, source: exp.Expr, known: Mapping[str, QueryRows]) -> QueryRows:
        """Return the rows of a side of a join, with their name."""
        rows = self._read_source(source, known)
        call = read_call(source)
        name = source.alias_or_name or (call.data.name if call is not None and isinstance(call.data, exp.Table) else "")
        return replace(rows, sides={name.lower(): replace(rows, sides={})}, optional=frozenset())

    def _read_where(self, select: exp.Select, rows: QueryRows, known: Mapping[str, QueryRows]) -> None:
        """Read the queries in EXISTS and IN of WHERE, which choose rows by other rows of their window."""
        where = select.args.get("where")
        for node in () if where is None else where.find_all(exp.Exists, exp.In):
            inner = node.this if isinstance(node, exp.Exists) else node.args.get("query")
            query = None if inner is None else inner.unnest()
            if isinstance(query, exp.Select) and node.find_ancestor(exp.Select) is select:
                self.read_already.add(id(query))
                inner_rows = self._read_from(query, self.add_queries(known, query))
                self.columns += list_named(query, inner_rows, rows)
                check_exists(node, query, rows, inner_rows)
                self._refuse_sessions(node, "EXISTS or IN")

    def _read_source(self, source: exp.Expr, known: Mapping[str, QueryRows]) -> QueryRows:
        if (alias := source.args.get("alias")) is not None and alias.columns:
            raise bad("name the columns of a query in its SELECT", alias)
        if isinstance(source, exp.Subquery):
            return self.read(source, known)
        if (call := read_call(source)) is not None:
            return self._read_windows(source, call, known)
        return self._read_table(source, known, alias=True)

    def _read_windows(self, source: exp.Expr, call: WindowCall, known: Mapping[str, QueryRows]) -> QueryRows:
        data, named = call.data, len(self.named_queries)
        rows = self.read(data, known) if isinstance(data, exp.Subquery) else self._read_table(data, known, alias=False)
        if self.interval is not None:
            why = "a query is over window functions or over one interval join: write the join into a file set"
            raise bad(f"{why} with a watermark, and declare another program over it", call.node)
        if rows.windowed:
            raise bad(
                "windows of windows come later: write the inner windows into a file set with a watermark", call.node
            )
        if self.shape not in {None, call.shape}:
            raise bad("all windows of a program are of one kind and size: declare a program for each", call.node)
        tables = self._find_origins(rows, call.column)
        for table, column in tables.items():
            if column is None:
                what = "the table" if len(tables) == 1 else f"each table, also of {table}"
                raise bad(f"DESCRIPTOR({call.column}) must be the time column of {what}, unchanged", call.node)
            if call.descriptor is not None:
                self.descriptors.setdefault(table, call.descriptor)
            if self.tables.setdefault(table, column).lower() != column.lower():
                raise bad(f"all windows of {table} are of one column: declare a program for each", call.node)
        if call.shape.sessions:
            self._check_sessions(call, rows, self.named_queries[named:])
        self.shape = call.shape
        begin, end = call.node.meta["start"], call.node.meta["end"] + 1
        if source.this is not call.node:
            begin = source.this.meta["start"]
            end = next(one.end for one in self.tokens if one.start >= end and one.token_type == TokenType.R_PAREN) + 1
        name = data.name if isinstance(data, exp.Table) else ""
        self.places.append(_TextPlace(begin, end, _alias(source, name), tuple(tables), call, rows.columns))
        origins = {**rows.origins, **{name: name for name in WINDOW_COLUMNS}}
        more = (FORCED,) if call.shape.sessions else ()
        kinds = {name: kind for name, kind in rows.kinds.items() if name not in WINDOW_COLUMNS}
        kinds |= {name: ResultType("boolean") for name in more}
        return QueryRows((*rows.columns, *WINDOW_COLUMNS, *more), "", origins, kinds=kinds)

    def _check_sessions(self, call: WindowCall, rows: QueryRows, named: Sequence[exp.Expr]) -> None:
        if self.shape is not None:
            raise bad("a query has one SESSION: declare a program for each", call.node)
        if rows.table in self.united:
            advice = "have a program write the rows of all tables into one file set with a watermark"
            raise bad(f"SESSION over UNION ALL of several tables comes later: {advice}", call.node)
        if call.column.lower() in WINDOW_COLUMNS:
            advice = f"give that of the table another name in a query in parentheses, {call.column} AS at"
            raise bad(f"SESSION has a column {call.column} of its own: {advice}", call.node)
        for node in named:
            raise bad("SESSION reads a table, or a query in its parentheses: WITH cannot name that query", node)
        keys = call.data.meta.get("partition_by", [])
        self.columns += [NamedColumn(key.name, find_place(key), rows.columns) for key in keys]

    def _read_table(self, source: exp.Expr, known: Mapping[str, QueryRows], *, alias: bool) -> QueryRows:
        if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            raise bad(f"FROM must be a window function of a table: TABLE({example('TUMBLE')})", source)
        if not _is_table(source, known):
            self.named_queries.append(source)
            return known[source.name.lower()]
        name = name_of(source)
        self.named.setdefault(name, source)
        places = [part.meta for part in source.parts]
        begin, end = places[0]["start"], places[-1]["end"] + 1
        self.places.append(_TextPlace(begin, end, _alias(source, source.name) if alias else "", (name,)))
        return QueryRows((AllColumns(name),), name, origins={})


def _is_table(source: exp.Expr, known: Mapping[str, QueryRows]) -> bool:
    """Return whether a source is the name of a table, and not that of a query."""
    if not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
        return False
    return bool(source.db) or source.name.lower() not in known


def _alias(source: exp.Expr, name: str) -> str:
    """Return the text of the alias of a source that gives none itself."""
    return "" if source.args.get("alias") is not None or not name else f" AS `{name}`"


def _blank_insert(text: str, tokens: Sequence[Token], sink: exp.Table) -> str:
    """Return the text with blanks for `INSERT INTO <sink>`: all places in the text stay."""
    name, end = sink.parts[0].meta["start"], sink.parts[-1].meta["end"] + 1
    begin = max(token.start for token in tokens if token.token_type == TokenType.INSERT and token.start < name)
    return f"{text[:begin]}{' ' * (end - begin)}{text[end:]}"


def _check_below(select: exp.Select) -> None:
    """Refuse all but columns and conditions: each row of the table stands alone until it is in a window."""
    for part in ("group", "having", "distinct", "qualify"):
        if (found := select.args.get(part)) is not None:
            name = "GROUP BY" if part == "group" else part.upper()
            raise bad(f"{name} below the window function would see rows of several windows", found)
    for node in _own(select, exp.Window, exp.AggFunc):
        shown = node.sql(dialect=WindowSql)
        raise bad(f"{shown} below the window function would see rows of several windows", node)


def _check_windowed(
    select: exp.Select, rows: QueryRows, bounds: Sequence[str], columns: Sequence[str], names: Sequence[str]
) -> QueryRows:
    """Refuse groups, rankings and distinct rows that are not within one window. Return the rows as grouped.

    Each of `bounds` tells the window of a row. They are among `columns`, which are of windows. `names` are for advice.
    """
    wanted, every = " or ".join(bounds if bounds != (ROW_TIME,) else names), ", ".join(names)

    def bounds_of(nodes: Iterable[exp.Expr], among: Sequence[str] = bounds) -> set[str]:
        origins = map(rows.origin_of, nodes)
        return {origin for origin in origins if origin is not None and origin in among}

    group = select.args.get("group")
    if group is not None:
        sets = [bounds_of(each, columns) for each in _sets_of(group, select)]
        if not all(each & {*bounds} for each in sets):
            raise bad(f"each set of GROUP BY needs {wanted}: else rows of several windows are one group", group)
        rows = rows.without(name for name in columns if not all(name in each for each in sets))
    elif select.args.get("having") or any(not one.find_ancestor(exp.Window) for one in _own(select, exp.AggFunc)):
        raise bad(f"an aggregate needs GROUP BY {every}: else all windows are one group", select)
    windows = select.args.get("windows") or []
    for over in (one for one in _own(select, exp.Window) if not any(one is named for named in windows)):
        if not bounds_of(_partition_of(over, select)):
            shown = over.sql(dialect=WindowSql)
            raise bad(f"{shown} needs PARTITION BY {every}: else it sees other windows", over)
    if select.args.get("distinct") and not _project(select, rows).find_bounds(bounds):
        raise bad(f"SELECT DISTINCT needs {wanted} among its columns", select)
    return rows


def _partition_of(over: exp.Expr, select: exp.Select) -> list[exp.Expr]:
    """Return the expressions of PARTITION BY of an OVER, which may name a window of WINDOW."""
    named = {one.name.lower(): one for one in select.args.get("windows") or []}
    seen: set[str] = set()
    while not over.args.get("partition_by") and over.alias.lower() in named and over.alias.lower() not in seen:
        seen.add(over.alias.lower())
        over = named[over.alias.lower()]
    return over.args.get("partition_by") or []


def _own(select: exp.Select, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Yield the nodes of a SELECT that are not of a query within the SELECT."""
    return (node for node in select.find_all(*kinds) if node.find_ancestor(exp.Select) is select)


def _sets_of(group: exp.Expr, select: exp.Select) -> Iterator[list[exp.Expr]]:
    """Yield the expressions of each set by which GROUP BY groups; of ROLLUP and CUBE the smallest set alone."""
    if group.args.get("all"):
        yield [one.unalias() for one in select.expressions if not one.find(exp.AggFunc)]
        return
    several = (exp.GroupingSets, exp.Rollup, exp.Cube)
    common = [_resolve(one, select) for one in group.expressions if not isinstance(one, several)]
    given = [one for one in group.expressions if isinstance(one, exp.GroupingSets)]
    if older := group.args.get("grouping_sets"):
        common, given = [], older  # GROUP BY a, b GROUPING SETS (…) groups by these sets alone
    if group.args.get("rollup") or group.args.get("cube"):
        common = []  # GROUP BY a, b WITH ROLLUP
    for sets in product(*(one.expressions for one in given)):
        members = [each.expressions if isinstance(each, exp.Tuple) else [each.unnest()] for each in sets]
        yield common + [_resolve(one, select) for each in members for one in each]


def _resolve(node: exp.Expr, select: exp.Select) -> exp.Expr:
    """Return the expression that an ordinal or a name in GROUP BY stands for."""
    columns = select.expressions
    if isinstance(node, exp.Literal) and node.name.isdigit() and 0 < int(node.name) <= len(columns):
        column: exp.Expr = columns[int(node.name) - 1].unalias()
        return column
    if isinstance(node, exp.Column) and not node.table:
        for other in columns:
            if isinstance(other, exp.Alias) and other.alias.lower() == node.name.lower():
                meant: exp.Expr = other.this
                return meant
    return node


def _project(select: exp.Select, rows: QueryRows) -> QueryRows:
    """Return the rows that a SELECT makes of `rows`."""
    columns: list[str | AllColumns] = []
    origins: dict[str, str | None] = {}
    kinds: dict[str, ResultType | None] = {}
    for given in select.expressions:
        if given.is_star:
            left_out = (star.args.get("except_") or [] for star in given.find_all(exp.Star))
            without = frozenset(one.name.lower() for names in left_out for one in names)
            side = rows.rows_of(given)
            every = [
                replace(one, without=one.without | without) if isinstance(one, AllColumns) else one
                for one in side.columns
            ]
            kept = [one for one in every if isinstance(one, AllColumns) or one.lower() not in without]
            if isinstance(given, exp.Column) and given.table.lower() not in rows.sides:
                kept.append("")  # the fields of a column, which are not known
            columns += kept
            passed = {one: side.find_origin(one) for one in kept if isinstance(one, str)}
            of_star = {one.lower(): side.kinds.get(one.lower()) for one in passed if one.lower() in side.kinds}
            kinds = {**of_star, **kinds}
        else:
            names = names_of(given)
            columns += names
            passed = dict.fromkeys(names, rows.origin_of(given.unalias()))
            kind = kind_of(given.unalias(), rows.find_kind) if len(names) == 1 else None
            kinds = {**{name.lower(): kind for name in names}, **kinds}
        for name, origin in passed.items():
            origins.setdefault(name.lower(), origin)
    return QueryRows(tuple(columns), rows.table, origins, kinds=kinds)


def _names_all(select: exp.Select) -> bool:
    """Return whether a `*` of a SELECT stands for columns, also within an expression; that of `count(*)` does not."""
    stars = (star for star in select.find_all(exp.Star) if star.find_ancestor(exp.Select) is select)
    return any(not isinstance(star.parent, exp.Count) for star in stars)


def _add_views(select: exp.Select, rows: QueryRows) -> QueryRows:
    """Return the rows with the columns of LATERAL VIEW; Spark names those of a view without AS."""
    views = select.args.get("laterals") or []
    names = [str(column.name) for view in views for column in view.args["alias"].columns]
    names += [""] * any(not view.args["alias"].columns for view in views)
    unknown = {name.lower(): None for name in names}
    return replace(
        rows,
        columns=(*rows.columns, *names),
        origins={**rows.origins, **unknown},
        kinds={**rows.kinds, **unknown},
    )


def _check_places(query: exp.SetOperation, left: QueryRows, right: QueryRows) -> None:
    """Refuse queries of UNION, INTERSECT or EXCEPT whose columns cannot be taken by their place."""
    kind = query.key.upper()
    if query.args.get("by_name"):
        raise bad(f"{kind} BY NAME comes later: give both queries the columns in one order", query)
    if left.windowed != right.windowed:
        raise bad(f"both queries of {kind} must be over windows, or both below them", query)
    several = any(isinstance(one, AllColumns) for one in (*left.columns, *right.columns))
    if (several and left.columns != right.columns) or len(left.columns) != len(right.columns):
        raise bad(f"both queries of {kind} must have the same columns: name them", query)


def _takes_all_rows(query: exp.SetOperation) -> bool:
    """Return whether a query is UNION ALL, which compares no rows."""
    return isinstance(query, exp.Union) and not query.args.get("distinct")


def _unite(query: exp.SetOperation, left: QueryRows, right: QueryRows, bounds: Sequence[str]) -> QueryRows:
    """Return the rows of UNION, INTERSECT or EXCEPT, which take columns by their place."""
    kind = query.key.upper()
    origins: dict[str, str | None] = {}
    kinds: dict[str, ResultType | None] = {}
    for one, other in zip(left.columns, right.columns, strict=True):
        if isinstance(one, str) and isinstance(other, str):
            given = left.find_kind(exp.column(one))
            kinds[one.lower()] = given if given == right.find_kind(exp.column(other)) else None
            origin = left.find_origin(one)
            origins[one.lower()] = origin if origin == right.find_origin(other) else None
    rows = QueryRows(left.columns, left.table, origins, kinds=kinds)
    if _takes_all_rows(query):
        return rows
    if not rows.find_bounds(bounds):
        raise bad(
            f"{kind} needs window_start, window_end in one place of both queries: else it compares rows of "
            "several windows (UNION ALL compares none)",
            query,
        )
    return rows


def _changes(node: exp.Expr) -> bool:
    """Return whether a node has another value when the same rows are computed again."""
    if isinstance(node, exp.Anonymous):
        return node.name.upper() in _CHANGING
    if isinstance(node, _TO_TIME) or (isinstance(node, exp.Cast) and node.to.is_type(*exp.DataType.TEMPORAL_TYPES)):
        text = node.this.unnest()
        return isinstance(text, exp.Literal) and _CHANGING_TEXT.fullmatch(text.name) is not None
    if isinstance(node, exp.Func):
        return node.key.upper() in _CHANGING or not _CHANGING.isdisjoint(node.sql_names())
    if isinstance(node, exp.Column):
        return _METADATA in {node.name.upper(), node.table.upper()} or (
            not node.table and not node.this.args.get("quoted") and node.name.upper() in _LITERALS
        )
    return False


def name_of(table: exp.Table) -> str:
    """Return the name of a table as the text has it; `BadStatement` for a name of more than two parts."""
    if table.args.get("catalog") is not None:
        raise bad(f"{table.sql(dialect=WindowSql)} has too many parts: write <namespace>.<file set>", table)
    return f"{table.db}.{table.name}" if table.db else str(table.name)
