"""The end of time travel: replaced and dropped partitions leave it, and their files become garbage.

First the intent, in one transaction under the data set's lock: the changes are marked, the horizon rises, garbage rows
name their files. Then, later, the janitor deletes. A snapshot at or above the horizon finds all its files; one below is
refused. The rows of changes stay, as history.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.lake.datasets import find_some
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.time_travel import seq_before
from tidemill.names import CommitSeq, DatasetId, WritePointer
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.lake.fileset.expiry_sql import Sql

SQL: Sql = load_sql(__file__)

KEEP_SUPERSEDED: Final = timedelta(days=7)
"""Replaced files stay at least this long, unless the file set declares another time."""
_MOST: Final = 1000
BEFORE_DELETION: Final = timedelta(minutes=10)
"""Expired files stay this long, for readers that have just got their names. The limit is the time for which replaced
files stay."""


def expire_superseded(catalog: Catalog, keep: timedelta = KEEP_SUPERSEDED) -> int:
    """Expire changes and compactions of file sets that were replaced long enough ago; return their number.

    A change stays while a pin or an open transaction sees the change, or a run has claimed it. A bounded piece of work,
    to be called again and again. Cost: one statement, a look-up a file set in it, and what expires.
    """

    def find(db: Db) -> list[tuple[DatasetId, int, timedelta]]:
        oldest = {
            dataset_id: min(seq for seq in seqs if seq is not None)
            for dataset_id, *seqs in db.records(SQL.list_next_superseded, tuple[DatasetId, int | None, int | None])
        }
        filesets = map(Fileset.of, find_some(db, oldest).values()) if oldest else ()
        kept = {fileset.dataset_id: fileset.storing.keep_superseded or keep for fileset in filesets}
        bounds = {age: seq_before(db, age) for age in set(kept.values())}
        due = {dataset_id: age for dataset_id, age in kept.items() if oldest[dataset_id] <= bounds[age]}
        return [(dataset_id, bounds[age], min(age, BEFORE_DELETION)) for dataset_id, age in due.items()]

    return sum(_expire_up_to(catalog, *one) for one in catalog.read(find))


def release_files(db: Db, dataset_id: DatasetId, seq: CommitSeq) -> None:
    """Have all files of a dropped file set expire like replaced ones. `seq` is the tick that the caller took first.

    The age of replaced files is known by commits: the files expire after a later transaction has committed. Cost: the
    current partitions.
    """
    for statement in (SQL.supersede_all, SQL.supersede_compactions):
        db.run(statement, dataset_id=dataset_id, commit_seq=seq)


def _expire_up_to(catalog: Catalog, dataset_id: DatasetId, old: int, wait: timedelta) -> int:
    def block(db: Db) -> int:
        horizon = db.value(SQL.lock_horizon, int, dataset_id=dataset_id) or 0
        pinned = db.value(SQL.find_pinned, int, dataset_id=dataset_id)
        claimed = db.value(SQL.find_claimed, int, dataset_id=dataset_id, horizon=horizon)
        needed = [pointer - 1 for pointer in (pinned, claimed) if pointer is not None]
        bound = min(old, *needed) if needed else old
        cut = db.value(SQL.find_bound, int, dataset_id=dataset_id, horizon=horizon, bound=bound, most=_MOST)
        # All that one commit replaced goes at once, however much it is: the horizon cannot stand within it.
        bound = bound if cut is None else cut
        rows = db.records(
            SQL.list_superseded,
            tuple[WritePointer, KeyText, int],
            dataset_id=dataset_id,
            horizon=horizon,
            bound=bound,
        )
        if rows:
            expire(db, dataset_id, [(pointer, key) for pointer, key, _ in rows], wait)
            db.run(SQL.raise_horizon, dataset_id=dataset_id, horizon=max(seq for _, _, seq in rows) + 1)
        return len(rows)

    catalog.world.mark("expiry.before_commit")
    expired = catalog.write(block)
    catalog.world.mark("expiry.committed")
    return expired


def expire(
    db: Db,
    dataset_id: DatasetId,
    changes: Sequence[tuple[WritePointer, KeyText]],
    wait: timedelta = BEFORE_DELETION,
) -> None:
    """Expire these changes, none of them current, and record that their files are to be deleted after `wait`.

    The caller holds the data set's row lock, and has checked that no reader needs the changes. A file that a change
    without expiry names stays. Idempotent.
    """
    listed = json.dumps([{"write_pointer": pointer, "partition_key": key} for pointer, key in changes])
    for statement in (SQL.mark_expired, SQL.mark_compactions):
        db.run(statement, dataset_id=dataset_id, changes=listed)
    db.run(SQL.insert_garbage, dataset_id=dataset_id, changes=listed, wait=wait)
