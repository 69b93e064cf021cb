"""Measures of a refresh for the guards of its snapshot, read from the files that the refresh wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidemill.frames.schema import quoted
from tidemill.frames.spark import read_partitions
from tidemill.lake.fileset.fileset import ColumnSchema, Partition
from tidemill.lake.snapshot.guards import Figures, Guard, RefreshRefused
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.lake.snapshot.snapshot import SnapshotDataset


def measure(
    world: World, spark: SparkSession, snapshot: SnapshotDataset, written: Partition, columns: ColumnSchema
) -> Figures:
    """The figures of what was written, with those that only its rows tell. Cost: a job or two over them.

    Raises `RefreshRefused` when a column of the key is missing.
    """
    spec, rows = snapshot.spec, written.rows
    frame = read_partitions(world, spark, snapshot.fileset, [written], columns)
    missing = [name for name in spec.key if name.lower() not in {column.lower() for column in frame.columns}]
    if missing and spec.guards.check_key:
        why = f"it lacks {', '.join(missing)} of its key"
        raise RefreshRefused(snapshot.qualified_name, [(Guard.KEY, why)], None)
    key = [quoted(name) for name in spec.key] if spec.guards.check_key else []
    no_key = " OR ".join(f"{name} IS NULL" for name in key) or "FALSE"
    checks = spec.guards.checks or {}
    # A condition that is neither true nor false does not hold.
    broken = [f"count_if(NOT coalesce(({condition}), FALSE))" for condition in checks.values()]
    ((null_keys, *counts),) = frame.selectExpr(f"count_if({no_key})", *broken).collect()
    doubled = _count_doubled(frame.where(f"NOT ({no_key})"), key) if key else 0
    return Figures(rows, columns.text, null_keys, doubled, dict(zip(checks, counts, strict=True)))


def _count_doubled(frame: DataFrame, key: Sequence[str]) -> int:
    return frame.groupBy(*key).count().where("count > 1").count()
