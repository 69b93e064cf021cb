"""Guards of a snapshot: what a refresh must look like to be published. Pure.

A source that is empty by mistake, or half there, would replace what is good with nothing and everybody would read it.
So a refresh is compared with the version that it replaces; what is refused leaves that version as it is.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidemill.errors import UserError
from tidemill.names import advise

ALLOW: Final = "allow"
"""The argument by which a run lets guards pass once."""


class Guard(StrEnum):
    """A fault of a refresh. Its value is the word that lets the refresh pass once."""

    EMPTY = "empty"
    DROP = "drop"
    GROWTH = "growth"
    SCHEMA = "schema"
    KEY = "key"
    CHECK = "check"


class ColumnPolicy(StrEnum):
    """The other columns that a refresh may have: none, more, any."""

    FAIL = "fail"
    ADD = "add"
    ALLOW = "allow"


class BadGuard(UserError):
    """A guard with an impossible value, or an unknown guard."""

    code = "bad_guard"
    hint = "correct the guard as the reason says"

    def __init__(self, subject: str, why: str) -> None:
        self.subject = subject
        self.why = why
        super().__init__(f"{subject} is refused: {why}")


class RefreshRefused(UserError):
    """A guard refuses a refresh: nothing is published, and the old version stays current."""

    code = "refresh_refused"

    def __init__(self, dataset: str, refusals: Sequence[tuple[Guard, str]], version: int | None) -> None:
        self.dataset = dataset
        self.guards = tuple(guard for guard, _ in refusals)
        self.version = version
        stays = "there is no version yet" if version is None else f"version {version} stays"
        words = ",".join(dict.fromkeys(self.guards))
        super().__init__(
            f"the refresh of {dataset} is refused, {stays}: {'; '.join(why for _, why in refusals)}",
            f"To let it pass once, start the run with --arg {ALLOW}={words}",
            before=". ",
        )


@dataclass(frozen=True, slots=True)
class Guards:
    """The active guards: `max_drop` and `max_growth` are shares of the rows there were (0.5: half), None for off."""

    allow_empty: bool = False
    max_drop: float | None = 0.5
    max_growth: float | None = None
    schema: ColumnPolicy = ColumnPolicy.ALLOW
    check_key: bool = False
    checks: Mapping[str, str] | None = None
    """Conditions in SQL that hold for every row, by name."""

    def __post_init__(self) -> None:
        """Refuse shares that no refresh could break, or all would."""
        for name, share, most in (("max_drop", self.max_drop, 1), ("max_growth", self.max_growth, 1e9)):
            if share is not None and (isinstance(share, bool) or not 0 <= share <= most):
                why = f"use a share from 0 to {most:g} (0.5 is half), or None for no bound"
                raise BadGuard(f"{name}={share!r}", why)

    @property
    def read_rows(self) -> bool:
        """Return whether some guard looks at the rows themselves."""
        return self.check_key or bool(self.checks)


@dataclass(frozen=True, slots=True)
class Figures:
    """The facts for guards: rows, columns (Spark's JSON), and, if needed, the number of rows that break a rule."""

    rows: int
    columns: str
    null_keys: int = 0
    duplicate_keys: int = 0
    broken_checks: Mapping[str, int] | None = None


def find_refusals(
    guards: Guards, before: Figures | None, after: Figures, allowed: Collection[Guard] = ()
) -> list[tuple[Guard, str]]:
    """Return the faults of replacing `before` (None: no version yet) by `after`, without those allowed this once."""
    found = [
        *_compare_rows(guards, before, after),
        *_compare_columns(guards.schema, before, after),
    ]
    if after.null_keys:
        found.append((Guard.KEY, f"{after.null_keys} rows have a null in their key"))
    if after.duplicate_keys:
        found.append((Guard.KEY, f"{after.duplicate_keys} keys stand in more than one row"))
    for name, broken in (after.broken_checks or {}).items():
        if broken:
            found.append((Guard.CHECK, f"{broken} rows break the check {name!r}"))
    return [(guard, why) for guard, why in found if guard not in allowed]


def parse_allowed(text: str) -> frozenset[Guard]:
    """The guards that a run's argument names, with commas between; `BadGuard` with the nearest for others."""
    return frozenset(_guard(word.strip()) for word in text.split(",") if word.strip())


def _guard(word: str) -> Guard:
    try:
        return Guard(word)
    except ValueError:
        hint = advise(word, Guard, before=" ")
        raise BadGuard(f"{ALLOW}={word}", f"there is no such guard;{hint} known are {', '.join(Guard)}") from None


def _compare_rows(guards: Guards, before: Figures | None, after: Figures) -> list[tuple[Guard, str]]:
    if after.rows == 0:
        return [] if guards.allow_empty else [(Guard.EMPTY, "it has no rows")]
    if before is None or before.rows == 0:
        return []
    change = (after.rows - before.rows) / before.rows
    what = f"{after.rows} rows after {before.rows}"
    if guards.max_drop is not None and -change > guards.max_drop:
        return [(Guard.DROP, f"{what} is a drop of {-change:.0%}, more than {guards.max_drop:.0%}")]
    if guards.max_growth is not None and change > guards.max_growth:
        return [(Guard.GROWTH, f"{what} is a growth of {change:.0%}, more than {guards.max_growth:.0%}")]
    return []


def _compare_columns(policy: ColumnPolicy, before: Figures | None, after: Figures) -> list[tuple[Guard, str]]:
    if before is None or policy is ColumnPolicy.ALLOW:
        return []
    old, new = _columns(before.columns), _columns(after.columns)
    gone = [name for name in old if name not in new]
    other = [name for name in old if name in new and old[name] != new[name]]
    added = [name for name in new if name not in old] if policy is ColumnPolicy.FAIL else []
    told = [
        f"{what} {', '.join(names)}"
        for what, names in (("it lacks the columns", gone), ("other types have", other), ("it adds the columns", added))
        if names
    ]
    return [(Guard.SCHEMA, "; ".join(told))] if told else []


def _columns(text: str) -> dict[str, str]:
    """Types by name; the order does not count."""
    return {field["name"]: json.dumps(field["type"], sort_keys=True) for field in json.loads(text)["fields"]}
