"""The difference of two versions of a snapshot, by key: inserted, deleted and updated rows, on Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemill.errors import Unavailable, UserError
from tidemill.frames.schema import quoted
from tidemill.frames.spark import read_counts
from tidemill.names import advise

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGE: Final = "change"
_BEFORE: Final = "before"
_AFTER: Final = "after"
_KINDS: Final = ("inserted", "deleted", "updated")
_OWN: Final = (CHANGE, _BEFORE, _AFTER)


class NotComparable(UserError):
    """Two versions that cannot be compared row by row."""

    code = "not_comparable"
    hint = "compare two versions that have the same key, and the columns of the key"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        self.why = why
        super().__init__(f"versions of {dataset} cannot be compared: {why}")


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that differs: inserted, deleted or updated; `before` and `after` are whole rows, as JSON has them."""

    change: str
    key: Mapping[str, object]
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """Difference of versions `old` and `new`: the numbers of rows that differ, and the first such rows by key."""

    dataset: str
    old: int
    new: int
    key: tuple[str, ...]
    inserted: int
    deleted: int
    updated: int
    rows: tuple[RowChange, ...]

    @property
    def total(self) -> int:
        """All rows that differ."""
        return self.inserted + self.deleted + self.updated


def check_key(dataset: str, version: str, columns: Sequence[str], key: Sequence[str]) -> None:
    """Raise `NotComparable` unless there is a key and the columns of a version have it."""
    if not key:
        why = "it has no key: name its columns where it is declared, key=[…], or in the call (`--key COLUMN`)"
        raise NotComparable(dataset, why)
    present = {column.lower() for column in columns}
    for name in key:
        if name.lower() in _OWN:
            raise NotComparable(dataset, f"a diff has columns {', '.join(_OWN)} of its own, and the key has {name} too")
        if name.lower() not in present:
            hint = advise(name, columns, f"it has {', '.join(columns)}")
            raise NotComparable(dataset, f"{version} has no column {name}, which is in the key; {hint}")


def count_changes(
    differing: DataFrame, dataset: str, versions: tuple[int, int], key: Sequence[str], most: int
) -> VersionDiff:
    """Count the result of `diff_frames`, and return its first `most` rows by key. Cost: the diff, once."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    counted = Observation()
    # Counted below the sort, which goes through all rows also for the first of them: to keep them for a second job
    # took four times as long as the whole diff of small versions (tried).
    seen = differing.observe(counted, *(sf.count_if(sf.col(CHANGE) == kind).alias(kind) for kind in _KINDS))
    # Spark's JSON has every type that a column can have, and null as null.
    named = ", ".join(map(quoted, key))
    texts = [f"to_json({what}, map('ignoreNullFields', 'false'))" for what in (f"struct({named})", _BEFORE, _AFTER)]
    shown = seen.orderBy(*map(quoted, key)).limit(max(most, 1)).selectExpr(CHANGE, *texts).collect()
    counts = read_counts(differing.sparkSession, counted)
    if counts is None:
        raise Unavailable(f"Spark did not say by how many rows the versions of {dataset} differ; compare them again")
    rows = [RowChange(str(change), _of_json(k) or {}, _of_json(old), _of_json(new)) for change, k, old, new in shown]
    inserted, deleted, updated = (counts[kind] for kind in _KINDS)
    return VersionDiff(dataset, *versions, tuple(key), inserted, deleted, updated, tuple(rows[:most]))


def _of_json(text: str | None) -> Mapping[str, object] | None:
    read: Mapping[str, object] | None = None if text is None else json.loads(text)
    return read


def diff_frames(dataset: str, old: DataFrame, new: DataFrame, key: Sequence[str]) -> DataFrame:
    """The rows by which `new` differs from `old`: `change` (inserted, deleted, updated), the key, `before`, `after`.

    `before` and `after` are the whole rows, each with the columns that its version has. Raises `NotComparable` without
    a key, when a column of it is missing, and when a key is null or stands in two rows. Cost: one pass over each
    version for that look, then a join of both.
    """
    for frame in (old, new):
        _check_key(dataset, frame, key)
    named = [quoted(name) for name in key]
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
    check_key(dataset, "a version", frame.columns, key)
    no_key = " OR ".join(f"{quoted(name)} IS NULL" for name in key)
    wrong = frame.groupBy(*map(quoted, key)).agg({"*": "count"}).where(f"`count(1)` > 1 OR {no_key}").limit(1).collect()
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
        before, after = f"{_BEFORE}.{quoted(name)}", f"{_AFTER}.{quoted(name)}"
        if name not in types_after:
            conditions.append(f"{before} IS NULL")
        elif name not in types_before:
            conditions.append(f"{after} IS NULL")
        elif types_before[name] == types_after[name] and "map<" not in types_before[name]:
            conditions.append(f"{before} <=> {after}")
        else:  # maps have no equality in Spark, other types perhaps none with each other
            conditions.append(f"to_json(struct({before} AS v)) <=> to_json(struct({after} AS v))")
    return " AND ".join(conditions)
