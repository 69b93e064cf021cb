"""Carries of window programs: file sets of rows that a run has read, and that later runs need again.

The carry of a program over sessions has the rows whose sessions are open at the end of a slot. A run that has computed
slots writes such a partition in its own transaction, for the end of the last slot. A later run reads that partition in
the place of all rows before that end. No result needs a carry: without one, a run reads the partitions of
`Sessions.reach` before its slots. So a carry counts only if no partition of that time has changed since, and slots may
be computed in any order, by halves, and again.

This is exact: the rows of `Sessions.reach` before a time decide which sessions are open then, and how they will be cut.
The begin of a chain may lie further back. But then the chain has gone on for `longest` already, and all its cuts are at
multiples of `longest`.

The carry of a program over an interval join has the rows of partitions that later windows need too. A table has a carry
of its own, with a partition for each of its partitions. A run reads that partition in the place of the table's own
partition, unless the latter has changed since. So each file of a table is read by the run that computes its first
window, and once more by that run to write the carry.

A reset ends all carries of a program: the next run counts the rows of each partition again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.fileset import Fileset, Partition, read_partitions
from tidemill.lake.window.side import name_partition
from tidemill.lake.window.window_plan import Grid, Window
from tidemill.lake.window.windows import list_dirty
from tidemill.shapes.keys import KeySchema, KeyText, KeyValue
from tidemill.shapes.partition_time import Instant, WallTime, from_wall, to_wall

CARRY_KEYS: Final[Mapping[str, str]] = {"carry_of": "string", "carry_at": "string", "carry_seen": "long"}
"""The definition of the program, the place of the rows, and the first commit that the run did not see.

The place is the end of a slot on the wall clock, or for an interval join the name of a partition.
"""
CARRY_BEGAN: Final = "carry_began"
"""Column of a carry: the instant of the first row in the chain of the row, in microseconds."""
_SCHEMA: Final = KeySchema.of(CARRY_KEYS)


def carry_of(program: str, table: str = "") -> str:
    """Return the name of the carry of a window program, qualified or not as the name of the program is.

    `table` is the table whose rows it has, as the query names it, for a program over several tables.
    """
    return f"{program}_carry_{table.replace('.', '_')}" if table else f"{program}_carry"


@dataclass(frozen=True, slots=True)
class Carry:
    """Rows of the sessions that are open at `at`, the end of a slot. They are rows of instants before `closes`."""

    fileset: Fileset
    partition: Partition
    of: str
    at: WallTime
    closes: Instant
    seen: int

    @property
    def key(self) -> dict[str, KeyValue]:
        """The key of the partition."""
        return to_carry_key(self.of, name_slot(self.at), self.seen)


@dataclass(frozen=True, slots=True)
class CarriedPartition:
    """Rows of the partition `name` of a table, in the place of the partition's own files.

    The name is that of its directories.
    """

    fileset: Fileset
    partition: Partition
    of: str
    name: str
    seen: int

    @property
    def key(self) -> dict[str, KeyValue]:
        """The key of the partition of the carry."""
        return to_carry_key(self.of, self.name, self.seen)

    def holds(self, found: Partition) -> bool:
        """Return whether the partition, as a snapshot has `found` it, has the same rows."""
        return all(change.commit_seq < self.seen for change in found.changes)


def name_slot(at: WallTime) -> str:
    """Return the place in a carry of the slot that ends at `at`."""
    return from_wall(at).isoformat()


def to_carry_key(of: str, place: str, seen: int) -> dict[str, KeyValue]:
    """Return the key of the partition of a carry."""
    return dict(zip(CARRY_KEYS, (of, place, seen), strict=True))


def list_carried(db: Db, fileset: Fileset, snapshot: Snapshot) -> list[CarriedPartition]:
    """List the partitions of a table that a program carries, those of the earliest run first."""
    found = [CarriedPartition(fileset, *one) for one in _read(db, fileset, snapshot)]
    return sorted(found, key=lambda one: one.seen)


def find_carried(
    carried: Iterable[CarriedPartition], of: str, keys: KeySchema, partitions: Iterable[Partition]
) -> dict[KeyText, CarriedPartition]:
    """Return the carried ones of `partitions` that have the same rows since, by the key of the table's partition.

    `carried` are in the order of `list_carried`.
    """
    latest = {one.name: one for one in carried if one.of == of}
    named = ((one, latest.get(name_partition(keys, one.partition_key))) for one in partitions)
    return {one.partition_key: carry for one, carry in named if carry is not None and carry.holds(one)}


def list_carries(db: Db, fileset: Fileset, snapshot: Snapshot, grid: Grid) -> list[Carry]:
    """List the carries of a program, the latest first."""
    found = []
    for partition, of, at, seen in _read(db, fileset, snapshot):
        wall = to_wall(datetime.fromisoformat(at))
        found.append(Carry(fileset, partition, of, wall, grid.closes(Window(wall, wall)), seen))
    return sorted(found, key=lambda carry: (carry.at, carry.seen), reverse=True)


def find_carry(
    db: Db, source: Fileset, fileset: Fileset, snapshot: Snapshot, grid: Grid, of: str, first: Window
) -> Carry | None:
    """Return the latest carry from which the sessions of slots from `first` on follow; None for none.

    A carry that ends earlier than they reach saves nothing. Cost: the changes of `source` since the oldest carry.
    """
    earliest, _ = grid.spans(first)
    every = list_carries(db, fileset, snapshot, grid)
    near = [one for one in every if one.of == of and one.at <= first.start and one.closes > earliest]
    changed = list_dirty(db, source, snapshot, min(one.seen for one in near), None) if near else []
    for carry in near:
        since, _ = grid.spans(Window(carry.at, carry.at))
        later = (one for one in changed if one.commit_seq >= carry.seen)
        if not any(one.begins < carry.closes and one.ends > since for one in later):
            return carry
    return None


def _read(db: Db, fileset: Fileset, snapshot: Snapshot) -> Iterator[tuple[Partition, str, str, int]]:
    for partition in read_partitions(db, fileset.dataset_id, snapshot):
        of, place, seen = _SCHEMA.decode(partition.partition_key)
        assert isinstance(of, str) and isinstance(place, str) and isinstance(seen, int)  # noqa: S101, PT018  # their types
        yield partition, of, place, seen
