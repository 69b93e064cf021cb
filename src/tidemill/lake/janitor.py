"""The janitor: deletes files of transactions that can never commit, and expired files; marks committed directories.

The end of a transaction without commit leaves a row of garbage for each data set that it had declared: the intent. The
janitor deletes the directory and looks again, since a zombie may write on after its fence: after a minute, then after
two, four, … . Only when it has found nothing `CLEAN_SWEEPS` times in a row (the last time after more than a day, the
longest life of a transaction) is the row forgotten; any file that it finds starts the count again. So a zombie that was
stopped for days and goes on is seen too, as long as it does not sleep through all of them.

A process may also write on into a directory whose transaction has committed: an earlier attempt of a task, or a driver
that was taken for dead. `LONGEST_LIFE` after the commit the janitor deletes there what no manifest names, once.

Expired files (`expiry.py`) are deleted one by one, as the manifest names them, and once: no process writes there now.
Files that were there before Tidemill and were only registered are never deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import Param, load_sql
from tidemill.catalog.transactions import LONGEST_LIFE, Snapshot
from tidemill.errors import Unavailable
from tidemill.lake.datasets import Dataset, find_by_id, find_some
from tidemill.lake.fileset.time_travel import seq_before
from tidemill.names import CommitSeq, DatasetId, WritePointer
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import (
    DamagedManifest,
    Manifest,
    find_snapshot,
    is_checksum,
    is_marked,
    is_side_car,
    mark_committed,
    tx_directory,
)
from tidemill.storage.locations import open_files

if TYPE_CHECKING:
    from tidemill.lake.janitor_sql import Sql

SQL: Sql = load_sql(__file__)

CLEAN_SWEEPS: Final = 12
"""Sweeps in a row that found nothing, after which a directory is not looked for any more."""
_FIRST_WAIT: Final = timedelta(minutes=1)
_MOST: Final = 1000
_EVER: Final = 1 << 62

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """The work of one sweep: directories deleted, markers written, stray files deleted in committed directories."""

    deleted: int
    marked: int
    strays: int = 0


@dataclass(frozen=True, slots=True)
class _Garbage:
    location: str
    dataset_id: DatasetId
    write_pointer: WritePointer
    not_before: datetime
    attempts: int
    """The sweeps in a row that found no files."""
    partition_key: KeyText | None
    """The manifest of an expired change; None for a whole directory."""


@dataclass(frozen=True, slots=True)
class _Directory:
    """A directory that a commit has published."""

    commit_seq: CommitSeq
    write_pointer: WritePointer
    dataset: Dataset
    location: str


class _Committed(NamedTuple):
    """A commit, and a directory that it has published. A commit without changes has none."""

    commit_seq: CommitSeq
    write_pointer: WritePointer
    dataset_id: DatasetId | None
    location: str | None


def sweep(catalog: Catalog) -> Swept:
    """Delete what is due, write missing markers, delete strays; a bounded piece of work, to be called again and again.

    Never touches a directory of an open transaction, nor a file that a manifest names. What cannot be deleted now is
    tried again. Any number of janitors may sweep at once. Cost: what is due, and what has committed since the last
    sweep.
    """
    due = catalog.read(lambda db: db.records(SQL.find_due, _Garbage, most=_MOST))
    deleted = [_delete(catalog, one) if one.partition_key is None else _delete_expired(catalog, one) for one in due]
    return Swept(sum(deleted), _mark(catalog), _delete_strays(catalog))


def _delete(catalog: Catalog, garbage: _Garbage) -> bool:
    """Delete one directory, if it is there; whether it was."""
    publisher = catalog.read(
        lambda db: db.one(SQL.find_publisher, dataset_id=garbage.dataset_id, write_pointer=garbage.write_pointer)
    )
    if publisher is not None:
        _log.error("transaction %s is %s: its files are no garbage", garbage.write_pointer, publisher[0])
        _postpone(catalog, garbage, clean=0, error="its transaction may have published")
        return False
    dataset = catalog.read(lambda db: find_by_id(db, garbage.dataset_id))
    # What an earlier life of the catalog has left is named with its incarnation.
    named = garbage.location.rpartition("/")[2]
    directory = named if find_snapshot(named) else tx_directory(Snapshot(garbage.write_pointer, catalog.incarnation))
    try:
        catalog.world.mark("janitor.before_delete")
        deleted = open_files(dataset.location, catalog.world).delete_below(directory)
    except (OSError, Unavailable) as error:
        # A zombie writes while we delete, or the store is away: later.
        _log.warning("cannot delete %s of %s yet: %s", directory, dataset.qualified_name, error)
        _postpone(catalog, garbage, clean=0, error=str(error))
        return False
    catalog.world.mark("janitor.after_delete")
    found = deleted.names > 0 or not deleted.is_whole
    clean = 0 if found else garbage.attempts + 1
    if clean < CLEAN_SWEEPS:
        _postpone(catalog, garbage, clean=clean, error=None)
    else:
        catalog.write(lambda db: db.run(SQL.forget, location=garbage.location, not_before=garbage.not_before))
    return found


def _delete_expired(catalog: Catalog, garbage: _Garbage) -> bool:
    """Delete the files of an expired change that no other one names; whether it had any here."""
    place: dict[str, Param] = {"dataset_id": garbage.dataset_id, "partition_key": garbage.partition_key}
    expired = catalog.read(
        lambda db: db.record(SQL.find_expired, tuple[str, bytes], write_pointer=garbage.write_pointer, **place)
    )
    if expired is None:
        _log.error("partition %s of transaction %s is no garbage", garbage.partition_key, garbage.write_pointer)
        _postpone(catalog, garbage, clean=0, error="its change has not expired")
        return False
    location, stored = expired
    # Asked after the files are known: a later reader of these names would have to find the change not expired.
    sharing = catalog.read(
        lambda db: db.records(SQL.find_sharing, tuple[WritePointer, bytes], location=location, **place)
    )
    living = catalog.read(lambda db: db.one(SQL.find_living, dataset_id=garbage.dataset_id, location=location))
    ours = find_snapshot(location) is not None
    dataset = catalog.read(lambda db: find_by_id(db, garbage.dataset_id))
    files = open_files(dataset.location, catalog.world)
    try:
        names = _names_in(dataset, [(garbage.write_pointer, stored)]) - _names_in(dataset, sharing) if ours else ()
        catalog.world.mark("janitor.before_files")
        if names:
            files.check_location()  # while it is away, each of its files looks deleted
        files.delete_many([f"{location}/{name}" for name in sorted(names)])
        is_whole = not ours or living is not None or files.delete_below(location).is_whole
    except (OSError, Unavailable) as error:
        _log.warning("cannot delete files of %s in %s yet: %s", dataset.qualified_name, location, error)
        _postpone(catalog, garbage, clean=0, error=str(error))
        return False
    catalog.world.mark("janitor.after_files")
    if is_whole:
        catalog.write(lambda db: db.run(SQL.forget, location=garbage.location, not_before=garbage.not_before))
    else:
        _postpone(catalog, garbage, clean=0, error=None)
    return bool(names)


def _postpone(catalog: Catalog, garbage: _Garbage, *, clean: int, error: str | None) -> None:
    catalog.write(
        lambda db: db.run(
            SQL.postpone,
            location=garbage.location,
            not_before=garbage.not_before,
            attempts=clean,
            wait=_FIRST_WAIT * 2**clean,
            error=error,
        )
    )


def _mark(catalog: Catalog) -> int:
    """Write the markers that committed transactions lack: their drivers died between commit and marker."""
    return _follow_commits(catalog, "janitor", _EVER, _mark_one)


def _delete_strays(catalog: Catalog) -> int:
    """Delete what no manifest names in the directories of commits that are old enough; return the number of files."""
    bound = catalog.read(lambda db: seq_before(db, LONGEST_LIFE))
    return _follow_commits(catalog, "strays", bound, _delete_strays_of)


def _follow_commits(catalog: Catalog, name: str, bound: int, visit: Callable[[Catalog, _Directory], int]) -> int:
    """Visit each directory that commits up to `bound` have published, once, in the order of commits; sum the results.

    The position of that name is kept. A directory that cannot be reached ends the work until the next sweep.
    """
    after = catalog.read(lambda db: db.value(SQL.read_position, int, name=name)) or 0
    rows, datasets = catalog.read(lambda db: _read_committed(db, after, bound))
    done = 0
    seen = after
    for seq, group in groupby(rows, key=itemgetter(0)):
        published = [
            _Directory(seq, pointer, datasets[dataset_id], location)
            for _, pointer, dataset_id, location in group
            if dataset_id is not None and location is not None
        ]
        try:
            done += sum(visit(catalog, directory) for directory in published)
        except (OSError, Unavailable) as error:
            # In order, and never past one that is missing: after a restore only what is marked is taken up again.
            _log.warning("cannot look at what commit %s published yet: %s", seq, error)
            break
        seen = seq
    if seen > after:
        catalog.world.mark("janitor.marked")
        catalog.write(lambda db: db.run(SQL.move_position, name=name, seq=seen))
    return done


def _read_committed(db: Db, after: int, bound: int) -> tuple[list[_Committed], dict[DatasetId, Dataset]]:
    """Return the next commits with the directories that each published, and the data sets of these."""
    rows = db.records(SQL.find_committed, _Committed, after=after, bound=bound, most=_MOST)
    published = {one.dataset_id for one in rows if one.dataset_id is not None}
    return rows, find_some(db, published) if published else {}


def _delete_strays_of(catalog: Catalog, directory: _Directory) -> int:
    own = tx_directory(Snapshot(directory.write_pointer, catalog.incarnation))
    if directory.location != own:
        return 0  # Tidemill did not write there in this life of the catalog
    dataset = directory.dataset
    place: dict[str, Param] = {"dataset_id": dataset.dataset_id, "location": directory.location}
    manifests = catalog.read(lambda db: db.records(SQL.find_manifests, tuple[WritePointer, bytes], **place))
    try:
        named = _names_in(dataset, manifests)
    except DamagedManifest as error:
        _log.error("what no manifest names in %s stays: %s", own, error)
        return 0  # nor will a later sweep know more: the next commits are not held up
    files = open_files(dataset.location, catalog.world)
    found = [status.name for status in files.list_after(f"{own}/", None)]
    strays = [name for name in found if (short := name.removeprefix(f"{own}/")) not in named and not is_side_car(short)]
    if odd := sum(not is_checksum(name.removeprefix(f"{own}/"), named) for name in strays):
        _log.warning("%s of %s has %s files that no manifest names", own, dataset.qualified_name, odd)
    files.delete_many(strays)
    return len(strays)


def _names_in(dataset: Dataset, manifests: Iterable[tuple[WritePointer, bytes]]) -> set[str]:
    """Return the files that stored manifests name, decoded one after the other; `DamagedManifest`."""
    return {
        file.name
        for pointer, stored in manifests
        for file in Manifest.decode(stored, f"write pointer {pointer} of {dataset.qualified_name}").files
    }


def _mark_one(catalog: Catalog, directory: _Directory) -> bool:
    files = open_files(directory.dataset.location, catalog.world)
    # The name of what another life committed is that of its first transaction; what was there before has none.
    snapshot = find_snapshot(directory.location)
    if snapshot is None:
        return False
    catalog.world.mark("janitor.before_marker")
    if is_marked(files, snapshot):
        return False
    mark_committed(files, snapshot, directory.commit_seq)
    return True
