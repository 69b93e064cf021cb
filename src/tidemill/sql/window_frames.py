"""Windows by Spark: rows of partitions into windows, and results into the place of earlier ones.

Spark's own `window()` on TIMESTAMP is aligned to UTC and drops null times silently: so times are turned into wall-clock
times of the windows' zone first, and rows are checked against the span of their partition.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from tidemill.epoch import EPOCH, to_micros
from tidemill.frames.spark import RowCount, count_of
from tidemill.lake.fileset.fileset import Partition
from tidemill.lake.window.side import SIDE_OFFSET, SideReason, name_partition
from tidemill.lake.window.window_plan import Window
from tidemill.shapes.keys import KeySchema, KeyText, KeyType, KeyValue
from tidemill.shapes.partition_time import WallTime, from_wall, to_wall
from tidemill.shapes.watermark_spec import OutsidePolicy
from tidemill.sql.batches import Batch
from tidemill.sql.windows import WindowQuery

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from tidemill.run.step.workspace import Workspace

_VIEW: Final = "tidemill_windows"
_PLAIN_TYPES: Final[Mapping[KeyType, str]] = {
    KeyType.STRING: "string",
    KeyType.INT: "int",
    KeyType.LONG: "bigint",
    KeyType.DATE: "int",
    KeyType.TIMESTAMP: "bigint",
}
_KEY_OF: Final[Mapping[KeyType, str]] = {
    KeyType.DATE: "date_from_unix_date({})",
    KeyType.TIMESTAMP: "timestamp_micros({})",
}
_QUARTER: Final = 15 * 60_000_000
_MOST_QUARTERS: Final = 26 * 4
"""No two clocks are further apart."""
_LONGEST_QUARTERS: Final = 366 * 24 * 4
_HELPERS: Final = ("__partition", "__begins", "__ends", "__local", "__window")


class SparkWindows:
    """Computes the windows of a query."""

    def __init__(self, query: WindowQuery) -> None:
        self._query = query
        self._counted: list[tuple[RowCount, AbstractSet[KeyText]]] = []
        """Counts of rows outside their partition, by the partitions that were read, which writes fill."""

    def compute(self, workspace: Workspace, batch: Batch) -> DataFrame:
        """The rows of all windows of `batch`, one query over one read of the partitions."""
        windowed = self._assign(workspace, batch)
        windowed.createOrReplaceTempView(_VIEW)
        return workspace.spark.sql(self._query.select(_VIEW))

    def count_outside(self, workspace: Workspace, batch: Batch) -> dict[KeyText, int]:
        """See `Calculator`. No query where the writes of the windows met no such row; else one over all partitions.

        The writes only tell none from some: Spark counts again what it computes again. A query of its own costs a third
        to a half of a run (1 M rows in 100 partitions).
        """
        from pyspark.sql import functions as sf

        seen = {key for counted, keys in self._counted if count_of(workspace.spark, counted) == 0 for key in keys}
        if seen >= batch.instants.keys():
            return {}
        joined, inside = self._join_spans(workspace, batch)
        outside = joined.filter(~sf.coalesce(inside, sf.lit(False)))
        keys = list(batch.instants)
        return {keys[row[0]]: int(row[1]) for row in outside.groupBy("__partition").count().collect()}

    def pick_outside(self, workspace: Workspace, batch: Batch) -> DataFrame:
        """See `Calculator`."""
        from pyspark.sql import functions as sf

        joined, inside = self._join_spans(workspace, batch)
        return self._to_side(workspace, batch, joined.filter(~sf.coalesce(inside, sf.lit(False))), SideReason.OUTSIDE)

    def pick_late(self, workspace: Workspace, batch: Batch, before: WallTime) -> DataFrame:
        """See `Calculator`."""
        from pyspark.sql import functions as sf

        joined, inside = self._join_spans(workspace, batch)
        local = sf.col(self._column(joined)).cast("timestamp_ntz")
        return self._to_side(workspace, batch, joined.filter(inside & (local < _literal(before))), SideReason.LATE)

    def find_shifts(self, workspace: Workspace, batch: Batch) -> dict[KeyText, AbstractSet[int]]:
        """See `Calculator`. One query over the partitions: their rows by the quarter hours after the begin."""
        from pyspark.sql import functions as sf

        joined, _ = self._join_spans(workspace, batch)
        after = sf.unix_micros(sf.col(self._column(joined)).cast("timestamp")) - sf.col("__begins")
        number = sf.floor(after / _QUARTER).cast("long")
        fits = after - number * _QUARTER < (sf.col("__ends") - sf.col("__begins")) % _QUARTER
        grouped = joined.groupBy("__partition", number.alias("number"), fits.alias("fits")).count()
        near = grouped.filter(sf.col("number").between(-_MOST_QUARTERS, sf.lit(_MOST_QUARTERS) + _LONGEST_QUARTERS))
        counted: dict[int, dict[tuple[int, bool], int]] = {}
        for place, quarters, rest, rows in near.collect():
            counted.setdefault(place, {})[quarters, rest] = rows
        rows_of = {partition.partition_key: partition.rows for partition in batch.partitions}
        return {
            key: find_shifts(counted.get(place, {}), (ends - begins) // _QUARTER, rows_of.get(key, 0))
            for place, (key, (begins, ends)) in enumerate(batch.instants.items())
        }

    def _to_side(self, workspace: Workspace, batch: Batch, rows: DataFrame, reason: SideReason) -> DataFrame:
        """Rows that `_join_spans` has joined, with the columns of a side table."""
        from pyspark.sql import functions as sf

        keys = batch.source.keys
        named = [{"p": place, "n": name_partition(keys, key)} for place, key in enumerate(batch.instants)]
        text = "SELECT inline(from_json(:rows, 'array<struct<p: int, n: string>>'))"
        names = workspace.spark.sql(text, {"rows": json.dumps(named)}).toDF("__partition", "side_partition")
        began = sf.col("__begins") + batch.watermark.row_lag
        offset = sf.unix_micros(sf.col(self._column(rows)).cast("timestamp")) - began
        aside = rows.join(sf.broadcast(names), ["__partition"]).withColumn("side_reason", sf.lit(reason.value))
        return aside.withColumn(SIDE_OFFSET, offset).drop(*_HELPERS)

    def replace(
        self, workspace: Workspace, batch: Batch, gone: Sequence[Window], old: Sequence[Partition]
    ) -> tuple[DataFrame | None, DataFrame | None, list[dict[str, Any]]]:
        """See `Calculator`. The results are computed once, and kept for both ways of writing them."""
        from pyspark.sql import functions as sf

        names = list(batch.sink.keys.names)
        present = workspace.read_exactly(batch.sink, old)
        new = self.compute(workspace, batch).persist() if batch.windows else None
        if not present.columns or not old:
            return None, new, []
        replaced = self._among([*batch.windows, *gone])
        held = [row.asDict() for row in present.filter(replaced).select(*names).distinct().collect()]
        if not held:
            return None, new, []
        keys = workspace.spark.createDataFrame(
            [tuple(row[name] for name in names) for row in held], present.select(*names).schema
        )
        rest = present.join(sf.broadcast(keys), names, "left_semi").filter(~sf.coalesce(replaced, sf.lit(False)))
        if new is None:
            return rest, None, held
        over = rest.unionByName(new.join(sf.broadcast(keys), names, "left_semi").select(*rest.columns))
        more = new.join(sf.broadcast(keys), names, "left_anti")
        return over, None if more.isEmpty() else more, held

    def _assign(self, workspace: Workspace, batch: Batch) -> DataFrame:
        """The rows that belong to their partitions, each with its windows of the batch."""
        from pyspark.sql import functions as sf

        shape = self._query.shape
        rows = self._check_rows(workspace, batch)
        window = sf.window(
            sf.col("__local"),
            f"{shape.size} microseconds",
            f"{shape.slide} microseconds",
            f"{shape.offset} microseconds",
        )
        named = rows.withColumn("__window", window)
        named = named.withColumn("window_start", sf.col("__window.start")).withColumn(
            "window_end", sf.col("__window.end")
        )
        named = named.filter(_ranges(sf.col("window_start"), [window.start for window in batch.windows], shape.slide))
        return named.withColumn("window_time", self._window_time(rows, batch)).drop(*_HELPERS)

    def _join_spans(self, workspace: Workspace, batch: Batch) -> tuple[DataFrame, Column]:
        """The rows of the partitions, each with the instants of its partition, and whether it lies between them."""
        from pyspark.sql import functions as sf

        # The session belongs to this run alone.
        workspace.spark.conf.set("spark.sql.session.timeZone", batch.watermark.window_zone.name)
        rows = workspace.read_exactly(batch.source, batch.partitions)
        keys = batch.source.keys
        column = self._column(rows)
        joined = rows.join(sf.broadcast(literal_spans(workspace.spark, keys, batch.instants)), list(keys.names))
        micros = sf.unix_micros(sf.col(column).cast("timestamp"))
        return joined, (micros >= sf.col("__begins")) & (micros < sf.col("__ends"))

    def _check_rows(self, workspace: Workspace, batch: Batch) -> DataFrame:
        """Add the wall-clock time of rows; leave out, or fail at, those outside the span of their partition."""
        from pyspark.sql import Observation
        from pyspark.sql import functions as sf

        joined, inside = self._join_spans(workspace, batch)
        keys, spec = batch.source.keys, batch.watermark
        column = self._column(joined)
        local = sf.col(column).cast("timestamp_ntz")
        if spec.outside is not OutsidePolicy.ERROR:
            counted = RowCount(Observation())
            outside = sf.count_if(~sf.coalesce(inside, sf.lit(False)))
            joined = joined.observe(counted.observation, outside.alias("rows"))
            workspace.note_count(counted)
            self._counted.append((counted, batch.instants.keys()))
            return joined.filter(inside).withColumn("__local", local)
        told = [sf.lit(f"a row of {batch.source.qualified_name} lies outside the time of its partition: {column}=")]
        told += [sf.coalesce(sf.col(column).cast("string"), sf.lit("null"))]
        for name in keys.names:
            told += [sf.lit(f" {name}="), sf.col(name).cast("string")]
        advice = (
            f". Is partition.time-zone '{spec.partition_time.zone.name}' right? outside='side' keeps such rows beside"
        )
        # In the value that windows are found by: a filter of its own would stand behind that for the windows, which
        # Spark pushes down to the files, and never see such rows (tried).
        checked = sf.when(inside, local).otherwise(sf.raise_error(sf.concat(*told, sf.lit(advice))))
        return joined.withColumn("__local", checked)

    def _window_time(self, rows: DataFrame, batch: Batch) -> Column:
        """The last millisecond of the window, of the type of the time column."""
        from pyspark.sql import functions as sf

        end = sf.col("window_end")
        if dict(rows.dtypes)[self._column(rows)] == "timestamp_ntz":
            return end - sf.expr("INTERVAL '0.001' SECOND")
        zone = batch.watermark.window_zone
        instant = end.cast("timestamp")
        # When clocks change, Spark takes the first of two instants, or one beyond the gap.
        for local in sorted({from_wall(window.end) for window in batch.windows}):
            closes = zone.closes(local)
            if zone.opens(local) != closes or zone.local(closes) != local:
                instant = sf.when(end == _literal(to_wall(local)), sf.timestamp_micros(sf.lit(closes))).otherwise(
                    instant
                )
        return instant - sf.expr("INTERVAL '0.001' SECOND")

    def _among(self, windows: Sequence[Window]) -> Column:
        """Return whether a row of the output is of one of `windows`."""
        from pyspark.sql import functions as sf

        bound, column = max(self._query.bounds.items())
        walls = [window.end if bound == "window_end" else window.start for window in windows]
        return _ranges(sf.col(f"`{column}`"), walls, self._query.shape.slide)

    def _column(self, rows: DataFrame) -> str:
        wanted = self._query.time_column
        return next((name for name in rows.columns if name.lower() == wanted.lower()), wanted)


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


def literal_spans(spark: SparkSession, keys: KeySchema, instants: Mapping[KeyText, tuple[int, int]]) -> DataFrame:
    """The keys of partitions, each with its place among them and the instants (microseconds) of its rows; one literal.

    Rows that come from Python cost a job through a Python worker: half of what one small window takes.
    """
    rows: list[dict[str, str | int]] = [
        {"p": place, "b": begins, "e": ends, **{f"k{n}": _plain(value) for n, value in enumerate(keys.decode(key))}}
        for place, (key, (begins, ends)) in enumerate(instants.items())
    ]
    columns = [f"k{n}: {_PLAIN_TYPES[field.type]}" for n, field in enumerate(keys.fields)]
    shape = f"array<struct<{', '.join([*columns, 'p: int, b: bigint, e: bigint'])}>>"
    # No text of users is in it.
    found = spark.sql(f"SELECT inline(from_json(:rows, '{shape}'))", {"rows": json.dumps(rows)})
    named = [_KEY_OF.get(field.type, "{}").format(f"k{n}") for n, field in enumerate(keys.fields)]
    return found.selectExpr(*named, "p", "b", "e").toDF(*keys.names, "__partition", "__begins", "__ends")


def _plain(value: KeyValue) -> str | int:
    match value:
        case datetime():
            return to_micros(value)
        case date():
            return (value - EPOCH.date()).days
        case _:
            return value


def _ranges(column: Column, walls: Sequence[int], step: int) -> Column:
    """Return whether a wall-clock time is among `walls`; stretches in even steps are asked as one."""
    ordered = sorted(set(walls))
    stretches = [[ordered[0], ordered[0]]]
    for wall in ordered[1:]:
        if wall - stretches[-1][1] == step:
            stretches[-1][1] = wall
        else:
            stretches.append([wall, wall])
    if all(low == high for low, high in stretches):
        return column.isin([_literal(low) for low, _ in stretches])
    return reduce(or_, [column.between(_literal(low), _literal(high)) for low, high in stretches])


def _literal(wall: int) -> Column:
    from pyspark.sql import functions as sf

    return sf.expr(f"TIMESTAMP_NTZ'{from_wall(wall).isoformat(' ')}'")
