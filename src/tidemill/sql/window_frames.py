"""Windows by Spark: rows of partitions into windows, and results into the place of earlier ones.

Spark's own `window()` on TIMESTAMP is aligned to UTC and drops null times silently: so times are turned into wall-clock
times of the windows' zone first, and rows are checked against the span of their partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidemill.frames.schema import quoted
from tidemill.frames.spark import RowCount, count_of
from tidemill.lake.fileset.fileset import Partition
from tidemill.lake.window.carry import CARRY_BEGAN, CARRY_KEYS
from tidemill.lake.window.outside_times import STEP, Stretches, to_stretches
from tidemill.lake.window.side import SIDE_OFFSET, SideReason
from tidemill.lake.window.window_plan import Window, WindowShape
from tidemill.shapes.keys import KeyText, KeyValue
from tidemill.shapes.manifest import FileTimes
from tidemill.shapes.partition_time import Instant, WallTime, Zone
from tidemill.shapes.watermark_spec import OutsidePolicy
from tidemill.sql.batches import Batch
from tidemill.sql.empty_windows import fill_in
from tidemill.sql.partition_windows import assign_by_partition, assign_to_window, find_times, find_windows
from tidemill.sql.result_types import widen
from tidemill.sql.session_frames import OPENS, OWN, assign_sessions, find_open
from tidemill.sql.window_rows import FORCED, ROW_TIME, WINDOW_COLUMNS, Columns, find_hidden
from tidemill.sql.window_text import (
    all_but,
    are_among,
    assign_windows,
    have_bounds_of,
    is_inside,
    is_within,
    spans_table,
    text_literal,
    wall_literal,
    window_time,
)
from tidemill.sql.windows import WindowQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.run.step.workspace import Workspace

_FILES: Final = "tidemill_files"
"""The rows of the batch's partitions, as their files have them."""
_CHECKED: Final = "tidemill_rows"
_CARRIED: Final = "tidemill_carried"
_SESSIONS: Final = "tidemill_sessions"
_LOOK_UP: Final = "tidemill_look_up"
_QUARTER: Final = 15 * 60_000_000
_MOST_QUARTERS: Final = 26 * 4
"""No two clocks are further apart."""
_LONGEST_QUARTERS: Final = 366 * 24 * 4


class SparkWindows:
    """Computes the windows of a query. `look_up` reads a snapshot that the query names."""

    def __init__(self, query: WindowQuery, look_up: Callable[[str], DataFrame]) -> None:
        self._query = query
        self._look_up = look_up
        self._views: dict[str, str] = {}
        """The names that texts have for the rows of snapshots."""
        self._counted: dict[str, list[tuple[RowCount | None, AbstractSet[KeyText]]]] = {}
        """By table, counts of rows outside their partition, with the partitions that were read. Writes fill them.

        None where the footers of the files show that there are no such rows.
        """
        self._forced: list[RowCount] = []
        """Counts of sessions that were closed by force."""

    def compute(self, workspace: Workspace, batches: Sequence[Batch]) -> DataFrame:
        """The rows of all windows of `batches`, one query over one read of the partitions."""
        tables = {
            table: self._open(workspace, batch, f"_{number}")
            for number, (table, batch) in enumerate(zip(self._query.tables, batches, strict=True))
        }
        shape, wanted = self._query.shape, batches[0].windows

        def windows(given: str, column: str, of: Sequence[str], columns: Columns) -> str:
            # UNION ALL has wall-clock times if those of all its tables are such times.
            one = next((tables[table] for table in of if tables[table].zone is not None), tables[of[0]])
            hidden = self._find_hidden(columns, one)
            if shape.sessions:
                found = self._find_sessions(workspace, batches[0], given, column, hidden)
                self._count_forced(workspace, found).createOrReplaceTempView(_SESSIONS)
                return _SESSIONS
            return f"({one.assign(given, column, shape, wanted, hidden)})"

        for number, name in enumerate(self._query.look_ups):
            if name not in self._views:
                self._look_up(name).createOrReplaceTempView(f"{_LOOK_UP}_{number}")
                self._views[name] = f"{_LOOK_UP}_{number}"

        def rows(table: str) -> str:
            return tables[table].text if table in tables else self._views[table]

        text = self._query.select(rows, windows)
        if self._query.interval is not None:
            text = f"SELECT * FROM (\n{text}\n) WHERE {self._lies_in(wanted)}"
        if self._query.emits_empty(batches[0].watermark):
            time = next(iter(tables.values())).time
            empty = self._query.select_empty(wanted, time, rows, windows)
            text = fill_in(text, empty, quoted(max(self._query.bounds.items())[1]))
        found = workspace.spark.sql(text)
        if not self._query.sink:
            return found
        schema = workspace.columns_of(batches[0].sink)
        columns = None if schema is None else schema.types
        self._query.check_result(batches[0].sink, columns, dict(found.dtypes))
        return found if columns is None else widen(found, batches[0].sink, columns)

    def _find_hidden(self, columns: Columns, table: _Table) -> list[str]:
        """Return the columns of rows that those of the window function hide."""
        more = (FORCED,) if self._query.shape.sessions else ()
        return [quoted(name) for name in find_hidden(columns, table.columns, (*WINDOW_COLUMNS, *more))]

    def _lies_in(self, windows: Sequence[Window]) -> str:
        """Return the condition that a result of an interval join lies in one of `windows`."""
        return is_within(f"CAST({quoted(self._query.bounds[ROW_TIME])} AS TIMESTAMP_NTZ)", windows)

    def _open(self, workspace: Workspace, batch: Batch, suffix: str) -> _Table:
        """Return the rows of a table that belong to their partitions. Views of the rows end in `suffix`."""
        rows = self._read(workspace, batch, suffix)
        times = find_times(batch)
        if times is not None:
            self._counted.setdefault(batch.source.qualified_name, []).append((None, batch.instants.keys()))
            checked = f"{_FILES}{suffix}"
        elif batch.watermark.outside is OutsidePolicy.ERROR:
            checked = f"({self._check(batch, rows, suffix)})"
        else:
            checked = self._leave_out(workspace, batch, rows, suffix)
        if some := [one for one in batch.carried.values() if one.partition.files]:
            own = workspace.spark.sql(f"SELECT * FROM {checked}")
            carried = workspace.read_exactly(some[0].fileset, [one.partition for one in some])
            known = {name.lower() for name in own.columns}
            kept = [quoted(name) for name in carried.columns if name.lower() in known]
            both = own.unionByName(carried.select(*kept), allowMissingColumns=True)
            checked = f"{_CARRIED}{suffix}"
            both.createOrReplaceTempView(checked)
        zone = None if dict(rows.dtypes)[_column(batch, rows)] == "timestamp_ntz" else batch.watermark.window_zone
        return _Table(checked, zone, rows.columns, batch, times)

    def _find_sessions(
        self, workspace: Workspace, batch: Batch, given: str, column: str, hidden: Sequence[str]
    ) -> DataFrame:
        """Return the rows `given`, without their columns `hidden`, that lie in sessions of the slots of `batch`."""
        shape = self._query.fit_shape(batch.watermark)
        assert shape.sessions is not None, "it is a query over sessions"  # noqa: S101
        rows = self._read_sessions(workspace, batch, given, column, hidden)
        found = assign_sessions(rows, column, self._query.keys, shape.sessions)
        return found.filter(are_among(shape, batch.windows, {"window_end": "window_end"}))

    def _read_sessions(
        self, workspace: Workspace, batch: Batch, given: str, column: str, hidden: Sequence[str]
    ) -> DataFrame:
        """Return the rows `given`, without their columns `hidden`. A carry has those before the end of its slot."""
        carry = batch.carry
        since = "" if carry is None else f" WHERE unix_micros(CAST({quoted(column)} AS TIMESTAMP)) >= {carry.closes}"
        rows = workspace.spark.sql(f"SELECT {all_but(hidden)} FROM {given}{since}")
        if carry is None or not carry.partition.files:
            return rows
        carried = workspace.read_exactly(carry.fileset, [carry.partition])
        known = {name.lower() for name in (*rows.columns, CARRY_BEGAN)}
        kept = [quoted(name) for name in carried.columns if name.lower() in known]
        return rows.unionByName(carried.select(*kept), allowMissingColumns=True)

    def pick_open(self, workspace: Workspace, batch: Batch, closes: Instant, key: Mapping[str, KeyValue]) -> DataFrame:
        """See `Calculator`."""
        from pyspark.sql import functions as sf

        sessions = self._query.fit_shape(batch.watermark).sessions
        assert sessions is not None, "it is a query over sessions"  # noqa: S101
        one = self._open(workspace, batch, "_0")
        found: list[DataFrame] = []

        def windows(given: str, column: str, of: Sequence[str], columns: Columns) -> str:
            del of
            rows = self._read_sessions(workspace, batch, given, column, self._find_hidden(columns, one))
            before = rows.filter(f"unix_micros(CAST({quoted(column)} AS TIMESTAMP)) < {closes}")
            found.append(find_open(before, column, self._query.keys, sessions, batch.windows[-1].end, closes))
            return given

        self._query.select(lambda _: one.text, windows)
        return found[0].select("*", *(sf.lit(value).alias(name) for name, value in key.items()))

    def _count_forced(self, workspace: Workspace, found: DataFrame) -> DataFrame:
        """Return the rows of sessions. The write that takes all of them counts the sessions closed by force."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        counted = RowCount(Observation())
        seen = found.observe(counted.observation, sf.expr(f"count_if({OPENS} AND {FORCED}) AS rows"))
        workspace.note_count(counted)
        self._forced.append(counted)
        return seen.drop(*OWN)

    def count_forced(self, workspace: Workspace, batch: Batch) -> int:
        """See `Calculator`. No query where the writes of the windows met no such session, as for `count_outside`."""
        if not batch.windows or all(count_of(workspace.spark, counted) == 0 for counted in self._forced):
            return 0
        one = self._open(workspace, batch, "_0")
        numbers: list[int] = []

        def windows(given: str, column: str, of: Sequence[str], columns: Columns) -> str:
            del of
            found = self._find_sessions(workspace, batch, given, column, self._find_hidden(columns, one))
            numbers.append(found.filter(f"{OPENS} AND {FORCED}").count())
            return given

        self._query.select(lambda _: one.text, windows)
        return numbers[0]

    def count_outside(self, workspace: Workspace, batch: Batch) -> dict[KeyText, int]:
        """See `Calculator`. No query where the writes of the windows met no such row; else one over all partitions.

        The writes only tell none from some: Spark counts again what it computes again. A query of its own costs a third
        to a half of a run (1 M rows in 100 partitions).
        """
        filled = self._counted.get(batch.source.qualified_name, [])
        seen = {
            key
            for counted, keys in filled
            if counted is None or count_of(workspace.spark, counted) == 0
            for key in keys
        }
        if seen >= batch.instants.keys():
            return {}
        _, joined, inside = self._join(workspace, batch)
        found = workspace.spark.sql(
            f"SELECT __partition, count(*) FROM {joined} WHERE NOT coalesce({inside}, false) GROUP BY 1"
        )
        keys = list(batch.instants)
        return {keys[row[0]]: int(row[1]) for row in found.collect()}

    def find_outside_times(self, workspace: Workspace, batch: Batch) -> dict[KeyText, Stretches]:
        """See `Calculator`. No query where the footers show that there are none; else one over the time columns."""
        if find_times(batch) is not None:
            return {}
        rows, joined, _ = self._join(workspace, batch)
        time = _time(batch, rows)
        found = workspace.spark.sql(
            f"SELECT __partition, collect_set(({time} - pmod({time}, {STEP})) DIV {STEP}) FROM {joined} "
            f"WHERE {time} < __begins OR {time} >= __ends GROUP BY 1"
        )
        keys = list(batch.instants)
        return {keys[row[0]]: to_stretches(row[1]) for row in found.collect()}

    def pick_outside(self, workspace: Workspace, batch: Batch) -> DataFrame:
        """See `Calculator`."""
        rows, joined, inside = self._join(workspace, batch)
        where = f"NOT coalesce({inside}, false)"
        return workspace.spark.sql(self._to_side(batch, rows, joined, where, SideReason.OUTSIDE))

    def pick_carried(self, workspace: Workspace, batch: Batch, of: str, seen: int) -> DataFrame:
        """See `Calculator`. Columns that the query does not name are left out."""
        rows, joined, inside = self._join(workspace, batch)
        mentioned = self._query.mentioned
        kept = [
            quoted(name)
            for name in rows.columns
            if mentioned is None or name.lower() in mentioned or name == _column(batch, rows)
        ]
        place = dict(zip(CARRY_KEYS, (text_literal(of), "__name", f"CAST({seen} AS BIGINT)"), strict=True))
        columns = ", ".join([*kept, *(f"{value} AS {name}" for name, value in place.items())])
        return workspace.spark.sql(f"SELECT {columns} FROM {joined} WHERE coalesce({inside}, false)")

    def count_late(
        self, workspace: Workspace, batch: Batch, before: WallTime, waiting: Sequence[Window]
    ) -> dict[KeyText, int]:
        """See `Calculator`."""
        rows, joined, inside = self._join(workspace, batch)
        where = _is_late(batch, rows, inside, before, waiting)
        found = workspace.spark.sql(f"SELECT __partition, count(*) FROM {joined} WHERE {where} GROUP BY 1")
        keys = list(batch.instants)
        return {keys[row[0]]: int(row[1]) for row in found.collect()}

    def pick_late(self, workspace: Workspace, batch: Batch, before: WallTime, waiting: Sequence[Window]) -> DataFrame:
        """See `Calculator`."""
        rows, joined, inside = self._join(workspace, batch)
        where = _is_late(batch, rows, inside, before, waiting)
        return workspace.spark.sql(self._to_side(batch, rows, joined, where, SideReason.LATE))

    def find_shifts(self, workspace: Workspace, batch: Batch) -> dict[KeyText, AbstractSet[int]]:
        """See `Calculator`. One query over the partitions: their rows by the quarter hours after the begin."""
        rows, joined, _ = self._join(workspace, batch)
        after = f"SELECT __partition, __begins, __ends, {_time(batch, rows)} - __begins AS after FROM {joined}"
        number = f"SELECT *, CAST(floor(after / {_QUARTER}) AS BIGINT) AS number FROM ({after})"
        fits = f"after - number * {_QUARTER} < (__ends - __begins) % {_QUARTER}"
        near = f"number BETWEEN {-_MOST_QUARTERS} AND {_MOST_QUARTERS + _LONGEST_QUARTERS}"
        found = workspace.spark.sql(
            f"SELECT __partition, number, {fits} AS fits, count(*) FROM ({number}) WHERE {near} GROUP BY ALL"
        )
        counted: dict[int, dict[tuple[int, bool], int]] = {}
        for place, quarters, rest, many in found.collect():
            counted.setdefault(place, {})[quarters, rest] = many
        rows_of = {partition.partition_key: partition.rows for partition in batch.partitions}
        return {
            key: find_shifts(counted.get(place, {}), (ends - begins) // _QUARTER, rows_of.get(key, 0))
            for place, (key, (begins, ends)) in enumerate(batch.instants.items())
        }

    def _to_side(self, batch: Batch, rows: DataFrame, joined: str, where: str, reason: SideReason) -> str:
        """Return a query of rows that `_join` has joined, with the columns of a side table."""
        offset = f"{_time(batch, rows)} - __begins - {batch.watermark.row_lag} AS {SIDE_OFFSET}"
        columns = [quoted(name) for name in rows.columns]
        told = f"'{reason.value}' AS side_reason, __name AS side_partition"
        return f"SELECT {', '.join(columns)}, {told}, {offset} FROM {joined} WHERE {where}"

    def replace(
        self, workspace: Workspace, batches: Sequence[Batch], gone: Sequence[Window], old: Sequence[Partition]
    ) -> tuple[DataFrame | None, DataFrame | None, list[dict[str, Any]]]:
        """See `Calculator`. The results are computed once, and kept for both ways of writing them."""
        from pyspark.sql import functions as sf

        sink, windows = batches[0].sink, batches[0].windows
        names = list(sink.keys.names)
        present = workspace.read_exactly(sink, old)
        new = self.compute(workspace, batches).persist() if windows else None
        if not present.columns or not old:
            return None, new, []
        query = self._query
        there = {name.lower() for name in present.columns}
        columns = {bound: quoted(column) for bound, column in query.bounds.items() if column.lower() in there}
        if query.bounds and not columns:  # all rows are of a query that had other names for its bounds
            return None, new, []
        _set_zone(workspace, batches[0])
        wanted = [*windows, *gone]
        replaced = have_bounds_of(query.shape, wanted, columns) if query.interval is None else self._lies_in(wanted)
        held = [row.asDict() for row in present.filter(replaced).select(*names).distinct().collect()]
        if not held:
            return None, new, []
        keys = workspace.spark.createDataFrame(
            [tuple(row[name] for name in names) for row in held], present.select(*names).schema
        )
        rest = present.join(sf.broadcast(keys), names, "left_semi").filter(f"NOT coalesce({replaced}, false)")
        if new is None:
            return rest, None, held
        over = rest.unionByName(new.join(sf.broadcast(keys), names, "left_semi").select(*rest.columns))
        more = new.join(sf.broadcast(keys), names, "left_anti")
        return over, None if more.isEmpty() else more, held

    def _read(self, workspace: Workspace, batch: Batch, suffix: str = "") -> DataFrame:
        """Read the partitions, and give their rows the name that texts have for them."""
        _set_zone(workspace, batch)
        rows = workspace.read_exactly(batch.source, batch.partitions)
        rows.createOrReplaceTempView(f"{_FILES}{suffix}")
        return rows

    def _join(self, workspace: Workspace, batch: Batch) -> tuple[DataFrame, str, str]:
        """Read the partitions; the join of their rows with their spans, and whether a row lies in its span."""
        rows = self._read(workspace, batch)
        inside, spans = _inside_by_table(batch, _time(batch, rows))
        return rows, f"{_FILES} {spans}", inside

    def _check(self, batch: Batch, rows: DataFrame, suffix: str) -> str:
        """Return a query of the rows that fails at a row outside the span of its partition."""
        column = quoted(_column(batch, rows))
        told = [text_literal(f"a row of {batch.source.qualified_name} lies outside the time of its partition: ")]
        for name in (_column(batch, rows), *batch.source.keys.names):
            told += [text_literal(f"{name}="), f"coalesce(CAST({quoted(name)} AS STRING), 'null')", "' '"]
        zone = batch.watermark.partition_time.zone.name
        told[-1] = text_literal(f". Is partition.time-zone '{zone}' right? outside='side' keeps such rows beside")
        inside, spans = _inside(batch, _time(batch, rows))
        # In the value that windows are found by: a filter of its own would stand behind that for the windows, which
        # Spark pushes down to the files, and never see such rows (tried).
        value = f"CASE WHEN {inside} THEN {column} ELSE raise_error(concat({', '.join(told)})) END AS {column}"
        columns = [value if quoted(name) == column else quoted(name) for name in rows.columns]
        return f"SELECT {', '.join(columns)} FROM {_FILES}{suffix} {spans}"

    def _leave_out(self, workspace: Workspace, batch: Batch, rows: DataFrame, suffix: str) -> str:
        """Return a query of the rows without those outside the span of their partition, which are counted."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        inside, spans = _inside(batch, _time(batch, rows))
        columns = [quoted(name) for name in rows.columns]
        marked = workspace.spark.sql(
            f"SELECT {', '.join(columns)}, coalesce({inside}, false) AS __inside FROM {_FILES}{suffix} {spans}"
        )
        counted = RowCount(Observation())
        seen = marked.observe(counted.observation, sf.expr("count_if(NOT __inside) AS rows"))
        workspace.note_count(counted)
        found = self._counted.setdefault(batch.source.qualified_name, [])
        found.append((counted, batch.instants.keys()))
        seen.createOrReplaceTempView(f"{_CHECKED}{suffix}")
        return f"(SELECT * EXCEPT (__inside) FROM {_CHECKED}{suffix} WHERE __inside)"


@dataclass(frozen=True, slots=True)
class _Table:
    """Rows of a table: their text, the zone of `window_time` in them, and the columns of the table."""

    text: str
    zone: Zone | None
    """None where the times of the rows are wall-clock times."""
    columns: Sequence[str]
    batch: Batch
    times: Mapping[KeyText, FileTimes] | None
    """The times of the rows of each partition; None if the footers of the files do not say them."""

    @property
    def time(self) -> str:
        """The expression of `window_time`, of a `window_end`."""
        return window_time(self.zone, self.batch.windows)

    def assign(
        self, given: str, column: str, shape: WindowShape, windows: Sequence[Window], hidden: Sequence[str]
    ) -> str:
        """Return the query of the rows `given` in those of `windows` that they lie in: see `assign_windows`."""
        keys = self.batch.source.keys
        if self.times is not None and given == self.text:
            windows_of = find_windows(self.times, shape, windows, self.batch.watermark.window_zone)
            if windows_of is not None and len(windows_of) == len(self.times) == 1:
                return assign_to_window(given, keys, windows_of[0][1], self.time, hidden)
            if windows_of is not None:
                return assign_by_partition(given, keys, windows_of, self.time, hidden)
        return assign_windows(given, column, shape, windows, self.time, hidden)


def _set_zone(workspace: Workspace, batch: Batch) -> None:
    # The session belongs to this run alone.
    workspace.spark.conf.set("spark.sql.session.timeZone", batch.watermark.window_zone.name)


def _column(batch: Batch, rows: DataFrame) -> str:
    wanted = batch.watermark.column
    return next((name for name in rows.columns if name.lower() == wanted.lower()), wanted)


def _time(batch: Batch, rows: DataFrame) -> str:
    return f"unix_micros(CAST({quoted(_column(batch, rows))} AS TIMESTAMP))"


def _inside(batch: Batch, time: str) -> tuple[str, str]:
    """Return the condition that a row counts in windows, and the join that the condition needs."""
    if batch.watermark.outside is OutsidePolicy.INCLUDE:
        return f"{time} IS NOT NULL", ""
    if len(batch.instants) == 1:  # a join is a Spark job of its own
        return is_inside(*next(iter(batch.instants.values())), time), ""
    return _inside_by_table(batch, time)


def _is_late(batch: Batch, rows: DataFrame, inside: str, before: WallTime, waiting: Sequence[Window]) -> str:
    local = f"CAST({quoted(_column(batch, rows))} AS TIMESTAMP_NTZ)"
    waits = f" AND NOT {is_within(local, waiting)}" if waiting else ""
    return f"{inside} AND {local} < {wall_literal(before)}{waits}"


def _inside_by_table(batch: Batch, time: str) -> tuple[str, str]:
    keys = batch.source.keys
    names = ", ".join(quoted(name) for name in keys.names)
    spans = f"JOIN (SELECT /*+ BROADCAST */ * FROM ({spans_table(keys, batch.instants)})) USING ({names})"
    if batch.watermark.outside is OutsidePolicy.INCLUDE:
        return f"{time} IS NOT NULL", spans
    return f"{time} >= __begins AND {time} < __ends", spans


def find_shifts(counted: Mapping[tuple[int, bool], int], length: int, rows: int) -> AbstractSet[int]:
    """Return the numbers of quarter hours by which at least 99 % of `rows` may lie outside their partition.

    `counted` are rows by the whole quarter hours after the begin, and by the truth of: the rest of the time is shorter
    than the rest of the partition, whose `length` is whole quarter hours.
    """
    found = set()
    for shift in range(-_MOST_QUARTERS, _MOST_QUARTERS + 1):
        moved = ((quarters - shift, fits, number) for (quarters, fits), number in counted.items())
        inside = sum(number for after, fits, number in moved if 0 <= after < length or (after == length and fits))
        if shift and rows and inside * 100 >= rows * 99:
            found.add(shift)
    return found
