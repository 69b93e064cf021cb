"""Rows that are there twice: left out by key, among themselves and against what was published, and counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.errors import UserError
from tidemill.frames.schema import quoted
from tidemill.frames.spark import RowCount, count_of
from tidemill.lake.fileset.fileset import Partition
from tidemill.names import advise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class BadKeys(UserError):
    """Columns cannot serve as a key for duplicates."""

    code = "bad_keys"
    hint = "name columns that the rows have"

    def __init__(self, key: str, where: str, columns: Sequence[str]) -> None:
        self.key = key
        self.where = where
        super().__init__(f"{key!r} is no column of {where}, which has {', '.join(columns)}", advise(key, columns))


@dataclass(frozen=True, slots=True)
class Deduplicated:
    """Rows with what becomes known of them when they are written: how many there were, and where they were lost."""

    rows: DataFrame
    spark: SparkSession
    counted: tuple[RowCount, ...]
    """Before, without those in it twice, and without those published before."""

    def facts(self) -> dict[str, int | None]:
        """Rows in, left out within the run, left out as published, and out; None where not all was written, at once."""
        seen = [count_of(self.spark, one) for one in self.counted]
        before, once, after = (seen[0], seen[1], seen[-1])
        return {
            "rows_in": before,
            "within": None if before is None or once is None else before - once,
            "published": None if once is None or after is None else once - after,
            "rows_out": after,
        }


def leave_out_duplicates(
    rows: DataFrame, keys: Sequence[str], published: DataFrame | None, against: str
) -> Deduplicated:
    """Return a row of `rows` for each value of `keys` that `published` lacks.

    If rows share a value, any of them is kept. Null is a value like any other. Errors: `BadKeys`. Cost: a shuffle by
    the keys, and a shuffle of the keys of `published`, or a broadcast if they are few.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    if not keys:
        raise UserError("deduplicate() needs the columns that tell rows apart: keys=['id']")
    _check(keys, "the rows", rows.columns)
    counted: list[RowCount] = []

    def count(frame: DataFrame) -> DataFrame:
        counted.append(RowCount(Observation()))
        return frame.observe(counted[-1].observation, sf.count(sf.lit(1)).alias("rows"))

    once = count(count(rows).dropDuplicates(list(keys)))
    if published is None:
        return Deduplicated(once, rows.sparkSession, tuple(counted))
    _check(keys, against, published.columns)
    names = [f"published key {place}" for place in range(len(keys))]
    known = published.select(*[sf.col(quoted(key)).alias(name) for key, name in zip(keys, names, strict=True)])
    # A condition of plain columns: the frames may share an origin, whose columns Spark would take for one another.
    same = [sf.col(quoted(key)).eqNullSafe(sf.col(quoted(name))) for key, name in zip(keys, names, strict=True)]
    left = once.join(known, on=same, how="left_anti")
    return Deduplicated(count(left), rows.sparkSession, tuple(counted))


def since(partitions: Sequence[Partition], seq: int) -> list[Partition]:
    """Return the partitions that changed after `seq`, each with its changes after `seq`."""
    changed = [
        Partition(one.partition_key, tuple(change for change in one.changes if change.commit_seq > seq))
        for one in partitions
    ]
    return [one for one in changed if one.changes]


def _check(keys: Sequence[str], where: str, columns: Sequence[str]) -> None:
    for key in keys:
        if key not in columns:
            raise BadKeys(key, where, columns)
