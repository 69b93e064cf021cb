"""The difference of two sets of rows, on Spark: rows that are only in one of them, whichever files hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemill.frames.schema import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TIMES: Final = "map('ignoreNullFields', 'false', 'timestampFormat', 'yyyy-MM-dd HH:mm:ss.SSSSSSXXX')"


@dataclass(frozen=True, slots=True)
class RowDiff:
    """Numbers of rows that only one side has, by the values of the key, and some of these rows as JSON."""

    numbers: dict[tuple[object, ...], tuple[int, int]]
    only_old: tuple[str, ...]
    only_new: tuple[str, ...]


def diff_rows(old: DataFrame, new: DataFrame, key: Sequence[str], most: int) -> RowDiff:
    """Compare two frames of the same columns as multisets, with at most `most` rows of each side.

    A row counts as often as it is there. Cost: one shuffle of both; another one if they differ.
    """
    columns = ", ".join(_comparable(name, kind) for name, kind in new.dtypes)
    before, after = (
        frame.selectExpr(f"struct({columns}) AS row", f"{side} AS side") for frame, side in ((old, -1), (new, 1))
    )
    differing = before.union(after).groupBy("row").agg({"side": "sum"}).toDF("row", "side").where("side <> 0")
    keys = [f"row.{quoted(name)}" for name in key]
    counted = (
        differing.selectExpr(*keys, "greatest(-side, 0) AS `only old`", "greatest(side, 0) AS `only new`")
        .groupBy(*map(quoted, key))
        .agg({"only old": "sum", "only new": "sum"})
    )
    numbers = {}
    for row in counted.selectExpr(*map(quoted, key), "`sum(only old)`", "`sum(only new)`").collect():
        *values, lost, won = row
        if lost or won:
            numbers[tuple(values)] = (int(lost), int(won))
    if not numbers:
        return RowDiff({}, (), ())
    shown = []
    for sign in ("<", ">"):
        some = differing.where(f"side {sign} 0").selectExpr(f"to_json(row, {_TIMES}) AS text")
        shown.append(tuple(str(row[0]) for row in some.orderBy("text").limit(most).collect()))
    return RowDiff(numbers, *shown)


def _comparable(name: str, kind: str) -> str:
    """Return a column by whose values Spark can group rows: it has no order of the entries of a map."""
    column = quoted(name)
    return f"to_json({column}, {_TIMES}) AS {column}" if "map<" in kind or kind == "variant" else column
