"""What differs between two versions of a snapshot, by key: inserted, deleted and updated rows, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidemill.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGE: Final = "change"
_BEFORE: Final = "before"
_AFTER: Final = "after"


class NotComparable(UserError):
    """Two versions that cannot be compared row by row."""

    code = "not_comparable"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        self.why = why
        super().__init__(f"versions of {dataset} cannot be compared: {why}")


def diff_frames(dataset: str, old: DataFrame, new: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows by which `new` differs from `old`: `change` (inserted, deleted, updated), the key, `before`, `after`.

    `before` and `after` are the whole rows, each with the columns that its version has. Raises `NotComparable` without
    a key, when a column of it is missing, and when a key is null or stands in two rows. Cost: one pass over each
    version for that look, then a join of both.
    """
    if not key:
        raise NotComparable(dataset, "it has no key; name its columns where it is declared: key=[…]")
    for frame in (old, new):
        _check_key(dataset, frame, key)
    named = [_quoted(name) for name in key]
    # By USING each key column comes once, from whichever side has the row.
    before = old.selectExpr(*named, f"struct(*) AS {_BEFORE}")
    after = new.selectExpr(*named, f"struct(*) AS {_AFTER}")
    change = (
        f"CASE WHEN {_BEFORE} IS NULL THEN 'inserted' WHEN {_AFTER} IS NULL THEN 'deleted' "
        f"WHEN NOT ({_same(old, new)}) THEN 'updated' END AS {CHANGE}"
    )
    joined = before.join(after, on=list(key), how="full_outer")
    return joined.selectExpr(change, *named, _BEFORE, _AFTER).where(f"{CHANGE} IS NOT NULL")


def _check_key(dataset: str, frame: DataFrame, key: Sequence[str]) -> None:
    present = {column.lower() for column in frame.columns}
    if missing := [name for name in key if name.lower() not in present]:
        raise NotComparable(dataset, f"a version has no column {', '.join(missing)}, which is in its key")
    no_key = " OR ".join(f"{_quoted(name)} IS NULL" for name in key)
    wrong = frame.groupBy(*key).count().where(f"count > 1 OR {no_key}").limit(1).collect()
    if wrong:
        *values, rows = wrong[0]
        shown = ", ".join(f"{name}={value}" for name, value in zip(key, values, strict=True))
        why = f"the key {shown} stands in {rows} rows, or is null; check_key=True would have refused that refresh"
        raise NotComparable(dataset, why)


def _same(old: DataFrame, new: DataFrame) -> str:
    """The condition that a row is the same in both; a column that one of them lacks is as null there."""
    types_before, types_after = dict(old.dtypes), dict(new.dtypes)
    conditions = []
    for name in dict.fromkeys([*types_before, *types_after]):
        before, after = f"{_BEFORE}.{_quoted(name)}", f"{_AFTER}.{_quoted(name)}"
        if name not in types_after:
            conditions.append(f"{before} IS NULL")
        elif name not in types_before:
            conditions.append(f"{after} IS NULL")
        elif types_before[name] == types_after[name] and "map<" not in types_before[name]:
            conditions.append(f"{before} <=> {after}")
        else:  # maps have no equality in Spark, other types perhaps none with each other
            conditions.append(f"to_json(struct({before} AS v)) <=> to_json(struct({after} AS v))")
    return " AND ".join(conditions)


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"
