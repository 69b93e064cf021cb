"""Horizon: the end of the history that retention may delete, and that audits pass over."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql

if TYPE_CHECKING:
    from tidemill.upkeep.horizon_sql import Sql

SQL: Sql = load_sql(__file__)

BEGINNING: Final = datetime.fromtimestamp(0, tz=UTC)
"""The time of a horizon that was never moved."""
_LATE: Final = timedelta(days=1)
"""The time for which a horizon may stand: a site may be switched off at night."""


@dataclass(frozen=True, slots=True)
class Horizon:
    """The end of what audits compare: the last commit that they pass over, and a time after all that is passed over.

    Retention deletes runs, jobs and fires of before the time `delete_at`. It deletes replaced changes up to the commit
    `delete_seq`.
    """

    seq: int
    at: datetime
    moved_at: datetime
    delete_seq: int
    delete_at: datetime


ALL_KEPT: Final = Horizon(0, BEGINNING, BEGINNING, 0, BEGINNING)
"""The horizon of a catalog that has deleted nothing."""


def read_horizon(db: Db) -> Horizon:
    """Return the horizon of the catalog; `ALL_KEPT` before the first move."""
    return db.record(SQL.read_horizon, Horizon) or ALL_KEPT


@dataclass(frozen=True, slots=True)
class Standstill:
    """A horizon that no janitor has moved for long, although there is history to delete."""

    moved_at: datetime | None
    """The time of the last move; None for never."""
    oldest: datetime
    """The time of the oldest run."""


def find_standstill(db: Db, keep: timedelta) -> Standstill | None:
    """Return the standstill of the horizon, if no janitor has moved it for a day and a run is a day too old."""
    now, moved_at = db.now(), read_horizon(db).moved_at
    oldest = db.value(SQL.find_oldest_run, datetime)
    if oldest is None or oldest > now - keep - _LATE or moved_at > now - _LATE:
        return None
    return Standstill(None if moved_at == BEGINNING else moved_at, oldest)
