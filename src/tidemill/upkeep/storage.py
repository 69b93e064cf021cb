"""The directories of transactions in the locations of file sets, and the state of each in the catalog.

Lives of a catalog are distinguished by write pointer and incarnation: a restored one begins above all that is there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from tidemill.catalog.db import Catalog
from tidemill.catalog.named import Param, Statement, load_sql
from tidemill.catalog.transactions import Snapshot, TxState
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import CommitSeq, DatasetId
from tidemill.shapes.manifest import find_snapshot, read_marker, tx_directory
from tidemill.storage.files import Files
from tidemill.storage.locations import open_files
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.upkeep.storage_sql import Sql

_R = TypeVar("_R")

SQL: Sql = load_sql(__file__)

_WINDOW: Final = 1000


class DirectoryKind(StrEnum):
    """The state of a directory that no manifest names."""

    OPEN = "open"
    """Belongs to a transaction in progress."""
    GARBAGE = "garbage"
    """The janitor deletes it."""
    ADOPTABLE = "adoptable"
    """Marked as committed by another life of the catalog."""
    QUARANTINED = "quarantined"
    """Belongs to another life of the catalog, without a sign of a commit: a person decides."""
    FORGOTTEN = "forgotten"
    """Belongs to an ended transaction of this catalog; no janitor will delete it."""


@dataclass(frozen=True, slots=True)
class Directory:
    """A directory of a transaction that no manifest of its data set names; `commit_seq` is that of its marker."""

    dataset: str
    name: str
    snapshot: Snapshot
    kind: DirectoryKind
    commit_seq: CommitSeq | None


def list_snapshots(world: World, location: str) -> list[Snapshot]:
    """List the directories in the location of a file set, by write pointer. Cost: one listing of one folder."""
    found = [find_snapshot(name) for name in open_files(location, world).list_folders()]
    return sorted((one for one in found if one), key=lambda one: (one.write_pointer, one.incarnation))


class _Known(NamedTuple):
    """A transaction that the catalog knows."""

    write_pointer: int
    state: TxState
    has_garbage: int | None


def read_windows(catalog: Catalog, fileset: Fileset, statement: Statement[...], kind: type[_R]) -> Iterator[list[_R]]:
    """Yield the rows of `statement` over all changes of a file set as records, some thousand changes at a time."""
    dataset_id, after = fileset.dataset_id, 0
    while True:
        if (bound := _find_bound(catalog, dataset_id, after)) is None:
            return
        yield _ask(catalog, statement, kind, dataset_id=dataset_id, after=after, bound=bound)
        after = bound


def _find_bound(catalog: Catalog, dataset_id: DatasetId, after: int) -> int | None:
    return catalog.read(lambda db: db.value(SQL.find_bound, int, dataset_id=dataset_id, after=after, place=_WINDOW))


def _ask(catalog: Catalog, statement: Statement[...], kind: type[_R], **params: Param) -> list[_R]:
    return catalog.read(lambda db: db.records(statement, kind, **params))


def find_unnamed(catalog: Catalog, fileset: Fileset) -> tuple[list[Directory], int]:
    """The directories that no manifest names, by write pointer, and how many there are in all.

    Cost: all locations of the file set are read; of each directory that is not named, its marker.
    """
    snapshots = list_snapshots(catalog.world, fileset.dataset.location)
    # Read after the listing: what commits in between is named.
    named = {location for window in read_windows(catalog, fileset, SQL.read_locations, str) for location in window}
    unnamed = [snapshot for snapshot in snapshots if tx_directory(snapshot) not in named]
    files = open_files(fileset.dataset.location, catalog.world)
    found: list[Directory] = []
    for start in range(0, len(unnamed), _WINDOW):
        found += _describe(catalog, fileset, files, unnamed[start : start + _WINDOW])
    return found, len(snapshots)


def _describe(catalog: Catalog, fileset: Fileset, files: Files, snapshots: Sequence[Snapshot]) -> Iterator[Directory]:
    pointers = json.dumps([int(snapshot.write_pointer) for snapshot in snapshots])
    known: dict[str, dict[int, tuple[TxState, bool]]] = {}
    for incarnation in {snapshot.incarnation for snapshot in snapshots}:
        place: dict[str, Param] = {"dataset_id": fileset.dataset_id, "incarnation": incarnation}
        rows = _ask(catalog, SQL.find_transactions, _Known, pointers=pointers, **place)
        known[incarnation] = {row.write_pointer: (row.state, row.has_garbage is not None) for row in rows}
    for snapshot in snapshots:
        state, garbage = known[snapshot.incarnation].get(snapshot.write_pointer, (None, False))
        marker = read_marker(files, snapshot)
        ours = snapshot.incarnation == catalog.incarnation
        kind = _decide(state, garbage=garbage, ours=ours, marked=marker is not None)
        yield Directory(fileset.qualified_name, tx_directory(snapshot), snapshot, kind, marker)


def _decide(state: TxState | None, *, garbage: bool, ours: bool, marked: bool) -> DirectoryKind:
    """Return the state of an unnamed directory, from the catalog's facts about its write pointer. Pure."""
    if not ours and marked:
        return DirectoryKind.ADOPTABLE
    if state is TxState.IN_PROGRESS and ours:
        return DirectoryKind.OPEN
    if garbage:
        return DirectoryKind.GARBAGE
    return DirectoryKind.FORGOTTEN if ours else DirectoryKind.QUARANTINED
