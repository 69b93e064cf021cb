"""Checks applied to a data frame: rows that pass, rows to quarantine, and the number of rows that break each check.

Without quarantine the job that writes also counts, at no extra pass. With quarantine the rows are kept in memory or on
disk meanwhile. Otherwise a source that changes could have a row counted in one place and written to another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidemill.errors import Unavailable
from tidemill.frames.checks import (
    BadCheck,
    Check,
    CheckFailed,
    CheckResult,
    Expect,
    NotNull,
    Otherwise,
    RowCheck,
    Rows,
    Unique,
)
from tidemill.frames.schema import quoted
from tidemill.frames.spark import read_counts
from tidemill.names import advise

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FAILED_CHECKS: Final = "failed_checks"
"""The column of quarantined rows that says what they broke."""
_OWN: Final = "tidemill check "


@dataclass(slots=True)
class CheckedRows:
    """Rows under checks, for one write: write `rows`, then ask for `results`; `close` frees what is held."""

    rows: DataFrame
    quarantined: DataFrame | None
    checks: Sequence[Check]
    counts: Any
    """By place of the check, and of all rows; or the observation that will have them."""
    held: DataFrame | None

    def results(self, dataset: str, written: int) -> list[CheckResult]:
        """Return the results for this number of written rows; `CheckFailed`, and `Unavailable` if not known."""
        counts = self.counts
        if not isinstance(counts, Mapping):
            counts = read_counts(self.rows.sparkSession, counts)
        if counts is None:
            raise Unavailable(
                f"the Spark job for {dataset} did not say how many rows broke its checks; write them again"
            )
        results = [_judge(check, place, written, counts) for place, check in enumerate(self.checks)]
        broken = [result for result in results if not result.passed and result.otherwise == Otherwise.FAIL]
        if broken:
            raise CheckFailed(dataset, broken)
        return results

    def close(self) -> None:
        """Forget the rows that were kept."""
        if self.held is not None:
            self.held.unpersist()


def _judge(check: Check, place: int, written: int, counts: Mapping[str, int]) -> CheckResult:
    if isinstance(check, Rows):
        passed = check.holds(written)
        return CheckResult(check.name, check.otherwise, passed, 0 if passed else written, written)
    failed = int(counts[str(place)])
    return CheckResult(check.name, check.otherwise, failed == 0, failed, int(counts["all"]))


def put_under(rows: DataFrame, checks: Sequence[Check], *, quarantine: bool) -> CheckedRows:
    """Return `rows` under `checks`; `quarantine` is true if there is a file set for quarantined rows.

    Raises `BadCheck` for a column that is not there, SQL that cannot be understood, or a missing file set.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    columns = rows.columns
    broken: dict[int, Column] = {}
    frame = rows
    for place, check in enumerate(checks):
        if isinstance(check, Rows):
            continue
        if check.otherwise == Otherwise.QUARANTINE and not quarantine:
            raise BadCheck(check.name, "quarantines rows, and no file set is named for them: name one in quarantine=")
        frame = frame.withColumn(f"{_OWN}{place}", _breaks(rows, columns, check))
        broken[place] = sf.col(quoted(f"{_OWN}{place}"))
    sums = [sf.count(sf.lit(1)).alias("all"), *(sf.count_if(bad).alias(str(n)) for n, bad in broken.items())]
    own = [f"{_OWN}{place}" for place in broken]
    aside = {n: bad for n, bad in broken.items() if checks[n].otherwise == Otherwise.QUARANTINE}
    if not aside:
        counted = Observation()
        return CheckedRows(frame.observe(counted, *sums).drop(*own), None, checks, counted, None)
    held = frame.persist()
    first = held.agg(*sums).first()
    assert first is not None  # noqa: S101  # an aggregate without groups has one row
    any_bad = sf.lit(False)
    for bad in aside.values():
        any_bad = any_bad | bad
    told = sf.concat_ws("; ", *(sf.when(bad, sf.lit(checks[n].name)) for n, bad in aside.items()))
    quarantined = held.where(any_bad).withColumn(FAILED_CHECKS, told).drop(*own)
    # A quarantined row does not count for the checks that fail.
    kept = held.where(~any_bad)
    rest = kept.agg(*sums).first()
    assert rest is not None  # noqa: S101  # as above
    counts = {name: first[name] if name == "all" or int(name) in aside else rest[name] for name in first.asDict()}
    nothing = not any(counts[str(n)] for n in aside)
    return CheckedRows(kept.drop(*own), None if nothing else quarantined, checks, counts, held)


def _breaks(rows: DataFrame, columns: Sequence[str], check: RowCheck) -> Column:
    """Return whether a row breaks the check; never null."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    match check:
        case NotNull(column):
            return sf.col(quoted(_known(columns, column, check.name))).isNull()
        case Unique():
            same = [sf.col(quoted(_known(columns, column, check.name))) for column in check.columns]
            return sf.count(sf.lit(1)).over(Window.partitionBy(*same)) > 1
        case Expect(condition, name):
            try:
                holds = sf.expr(condition) if isinstance(condition, str) else condition(rows)
                rows.select(holds.cast("boolean"))
            except (AnalysisException, ParseException) as error:
                raise BadCheck(name, f"cannot be understood: {str(error).splitlines()[0]}") from None
            return ~sf.coalesce(holds.cast("boolean"), sf.lit(False))


def _known(columns: Sequence[str], column: str, check: str) -> str:
    if column.lower() not in {known.lower() for known in columns}:
        advice = advise(column, columns, f"there are {', '.join(columns)}")
        raise BadCheck(check, f"names a column that the rows do not have; {advice}")
    return column
