"""Checks before publishing: conditions on rows, and the effect on rows that break a condition.

Checks are values, without Spark; `checked.py` applies them. A broken check ends the write (`fail`), quarantines the
rows that break it (`quarantine`), or is only reported (`warn`). The number of such rows is stored with the data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemill.errors import UserError
from tidemill.json_specs import renamed, write_plain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CHECKS_METADATA: Final = "tidemill.checks"
"""Under this name the results stand in a partition's metadata."""
_MOST_NAME: Final = 200


class Otherwise(StrEnum):
    """The effect of rows that break a check."""

    FAIL = "fail"
    QUARANTINE = "quarantine"
    WARN = "warn"


class BadCheck(UserError):
    """A check that cannot be made of these rows."""

    code = "bad_check"
    hint = "correct the check as the reason says, and run again"

    def __init__(self, check: str, why: str) -> None:
        self.check = check
        self.why = why
        super().__init__(f"check {check} {why}")


class CheckFailed(UserError):
    """Rows that were to be published are not as they have to be; nothing of this write is published."""

    code = "check_failed"
    hint = "correct the rows or the check, and run again"

    def __init__(self, dataset: str, results: Sequence[CheckResult]) -> None:
        self.dataset = dataset
        self.results = write_plain(results)
        told = "; ".join(f"{result.name}: {result.failed} of {result.of} rows" for result in results)
        super().__init__(f"rows for {dataset} are not as expected, nothing of them is published: {told}")


@dataclass(frozen=True, slots=True)
class NotNull:
    """`column` has a value in each row."""

    column: str
    otherwise: str = Otherwise.FAIL

    def __post_init__(self) -> None:
        _check_otherwise(self.name, self.otherwise)

    @property
    def name(self) -> str:
        """Return the name of the check in results."""
        return f"not_null({self.column})"


@dataclass(frozen=True, slots=True, init=False)
class Unique:
    """No two rows of a write have the same values in `columns`; null counts as a value. All of such rows break it."""

    columns: tuple[str, ...]
    otherwise: str

    def __init__(self, *columns: str, otherwise: str = Otherwise.FAIL) -> None:
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "otherwise", otherwise)
        if not columns:
            raise BadCheck("unique()", "names no column")
        _check_otherwise(self.name, otherwise)

    @property
    def name(self) -> str:
        """Return the name of the check in results."""
        return f"unique({', '.join(self.columns)})"


@dataclass(frozen=True, slots=True)
class Expect:
    """`condition` is true for each row: SQL (`"amount >= 0"`), or a function from the rows to a boolean column."""

    condition: str | Callable[[DataFrame], Column]
    name: str = ""
    otherwise: str = Otherwise.FAIL

    def __post_init__(self) -> None:
        if not self.name:
            told = self.condition if isinstance(self.condition, str) else self.condition.__name__
            object.__setattr__(self, "name", told[:_MOST_NAME])
        _check_otherwise(self.name, self.otherwise)


@dataclass(frozen=True, slots=True)
class Rows:
    """A write has at least `min` and at most `max` rows, each side open when None."""

    min: int | None = None
    max: int | None = None
    otherwise: str = Otherwise.FAIL

    def __post_init__(self) -> None:
        _check_otherwise(self.name, self.otherwise)
        if self.otherwise == Otherwise.QUARANTINE:
            raise BadCheck(self.name, "is about all rows together: it has no rows to quarantine")
        if self.min is None and self.max is None:
            raise BadCheck(self.name, "has no bound")

    @property
    def name(self) -> str:
        """Return the name of the check in results."""
        return f"rows({'' if self.min is None else self.min}..{'' if self.max is None else self.max})"

    def holds(self, rows: int) -> bool:
        """Return whether so many are right."""
        return (self.min is None or rows >= self.min) and (self.max is None or rows <= self.max)


RowCheck: TypeAlias = NotNull | Unique | Expect
Check: TypeAlias = RowCheck | Rows


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check, and the number of rows that broke it (of `Rows`: all, or none)."""

    name: str
    otherwise: str
    passed: bool
    failed: int
    of: int


renamed(CheckResult, name="check")


def to_metadata(results: Sequence[CheckResult]) -> dict[str, str]:
    """Return the metadata of a partition about the checks of its last write; empty without checks."""
    if not results:
        return {}
    return {CHECKS_METADATA: json.dumps(write_plain(results), ensure_ascii=False)}


def _check_otherwise(name: str, given: str) -> None:
    if given not in set(Otherwise):
        raise BadCheck(name, f"says otherwise={given!r}: use {', '.join(Otherwise)}")
