"""The search of an audit through a catalog: as of one tick, a window of a key at a time; with its findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, TypeVar, cast

from tidemill.catalog.db import Catalog
from tidemill.catalog.named import Param, Statement
from tidemill.upkeep.findings import Findings
from tidemill.upkeep.horizon import Horizon

_R = TypeVar("_R")

Value: TypeAlias = str | int | None
Row: TypeAlias = tuple[Value, ...]

WINDOW: Final = 1000


class FindingKind(StrEnum):
    """The kind of a finding, in the words of the promises."""

    LOST = "lost"
    """Committed, and no consumer will ever get it; or closed as done by a run that has not committed."""
    DOUBLED = "doubled"
    """Delivered, consumed or announced more than once."""
    DIRTY = "dirty"
    """Visible, though its transaction has not committed so."""
    ORPHANED = "orphaned"
    """Held by a run or transaction that has ended."""
    BROKEN = "broken"
    """Two records of one fact that differ."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """A finding: what, of which object, and the next step."""

    kind: FindingKind
    subject: str
    what: str
    next_step: str


class Search:
    """A catalog as of one tick, above the horizon of retention, and what was found in it so far."""

    def __init__(self, catalog: Catalog, tick: int, horizon: Horizon) -> None:
        self.catalog = catalog
        self.tick = tick
        self.horizon = horizon
        self.findings = Findings[AuditFinding]()

    def ask(self, statement: Statement[...], **params: Param) -> list[Row]:
        """The rows of a statement."""
        rows = self.catalog.read(lambda db: db.all(statement, **params))
        return cast("list[Row]", rows)  # no statement of the audit reads a manifest

    def records(self, statement: Statement[...], kind: type[_R], **params: Param) -> list[_R]:
        """Return the rows of a statement as records of class `kind`."""
        return self.catalog.read(lambda db: db.records(statement, kind, **params))

    def report(self, kind: FindingKind, subject: str, what: str, next_step: str) -> None:
        """Keep a finding."""
        self.findings.add(AuditFinding(kind, subject, what, next_step))

    def windows(
        self, statement: Statement[...], first: Value, *, most: int = WINDOW, **params: Value
    ) -> Iterator[tuple[Value, Value]]:
        """Ranges (after, bound] of a key with about `most` rows each; the first are small, so that there are some."""
        after, place = first, 0
        while (bound := self.ask(statement, after=after, place=place, **params)[0][0]) is not None:
            yield after, bound
            after, place = bound, min(place * 5 // 4 + 1, most - 1)
