"""Time travel: what a file set held after a commit, or at a time, for as long as its files are kept."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import Snapshot
from tidemill.epoch import floor_ms
from tidemill.errors import UserError
from tidemill.lake.fileset.fileset import Fileset, NotKept
from tidemill.names import DatasetId, WritePointer

if TYPE_CHECKING:
    from tidemill.lake.fileset.time_travel_sql import Sql

SQL: Sql = load_sql(__file__)

AsOf: TypeAlias = int | datetime | str
"""A commit sequence, or an aware time; or either as people write it."""


class BadAsOf(UserError):
    """A time, or a commit, as of which nothing can be read."""

    code = "bad_time"
    hint = "give a commit, or a time with its zone, that has been"

    def __init__(self, when: str, why: str) -> None:
        self.when = when
        self.why = why
        super().__init__(f"nothing can be read as of {when}: {why}")


def find_snapshot_at(db: Db, fileset: Fileset, as_of: AsOf | None, newest: Snapshot) -> Snapshot:
    """Return the snapshot of all readers of `as_of`: a commit and all earlier ones, or the commits up to a time.

    None is `newest`. A time is compared with the catalog's time of each commit. `BadAsOf` for a state that `newest`
    does not see, or a time without zone. `NotKept` if files of that state may be deleted. Cost: look-ups.
    """
    if as_of is None:
        return newest
    if isinstance(as_of, str):
        as_of = _parse(as_of)
    if isinstance(as_of, datetime):
        if as_of.tzinfo is None:
            raise BadAsOf(str(as_of), "it has no time zone: write 2026-01-01T12:00Z, or give an aware datetime")
        at = floor_ms(as_of)
        if at > db.now():
            raise BadAsOf(str(as_of), "that is still to come")
        seq = db.value(SQL.find_commit_at, int, at=at) or 0
    else:
        seq = as_of
    if not 0 <= seq < newest.write_pointer:
        raise BadAsOf(f"commit {seq}", f"it is none that can be seen; the newest is below {newest.write_pointer}")
    if seq + 1 < (horizon := read_horizon(db, fileset.dataset_id)):
        raise NotKept(fileset.qualified_name, seq + 1, horizon)
    return Snapshot(WritePointer(seq + 1), newest.incarnation)


def _parse(text: str) -> int | datetime:
    try:
        # The number may have more digits than Python reads.
        return int(text) if text.isdecimal() else datetime.fromisoformat(text)
    except ValueError:
        raise BadAsOf(repr(text), "write a commit sequence (1234), or a time (2026-01-01T12:00Z)") from None


def now(db: Db, incarnation: str) -> Snapshot:
    """Return the snapshot that a transaction would have if it began now."""
    return Snapshot(WritePointer(db.records(SQL.read_clock, int)[0] + 1), incarnation)


def read_horizon(db: Db, dataset_id: DatasetId) -> int:
    """The lowest write pointer whose snapshot of the data set can still be read."""
    return db.value(SQL.read_horizon, int, dataset_id=dataset_id) or 0


def seq_before(db: Db, age: timedelta) -> int:
    """The last commit that is at least that old; 0 when there is none."""
    return db.value(SQL.find_commit_at, int, at=db.now() - age) or 0
