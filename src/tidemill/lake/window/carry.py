"""Carry of a window program over sessions: the file set of the rows whose sessions are open at the end of a slot.

A run that has computed slots writes such a partition in its own transaction, for the end of the last slot. A later run
reads that partition in the place of all rows before that end. No result needs a carry: without one, a run reads the
partitions of `Sessions.reach` before its slots. So a carry counts only if no partition of that time has changed since,
and slots may be computed in any order, by halves, and again.

This is exact: the rows of `Sessions.reach` before a time decide which sessions are open then, and how they will be cut.
The begin of a chain may lie further back. But then the chain has gone on for `longest` already, and all its cuts are at
multiples of `longest`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.fileset import Fileset, Partition, read_partitions
from tidemill.lake.window.window_plan import Grid, Window
from tidemill.lake.window.windows import list_dirty
from tidemill.shapes.keys import KeySchema, KeyValue
from tidemill.shapes.partition_time import Instant, WallTime, from_wall, to_wall

CARRY_KEYS: Final[Mapping[str, str]] = {"carry_of": "string", "carry_at": "string", "carry_seen": "long"}
"""The definition of the program, the end of the slot on the wall clock, and the first commit that the run did not see.
"""
CARRY_BEGAN: Final = "carry_began"
"""Column of a carry: the instant of the first row in the chain of the row, in microseconds."""
_SCHEMA: Final = KeySchema.of(CARRY_KEYS)


def carry_of(program: str) -> str:
    """Return the name of the carry of a window program, qualified or not as the name of the program is."""
    return f"{program}_carry"


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
        return to_carry_key(self.of, self.at, self.seen)


def to_carry_key(of: str, at: WallTime, seen: int) -> dict[str, KeyValue]:
    """Return the key of the partition of a carry."""
    return dict(zip(CARRY_KEYS, (of, from_wall(at).isoformat(), seen), strict=True))


def list_carries(db: Db, fileset: Fileset, snapshot: Snapshot, grid: Grid) -> list[Carry]:
    """List the carries of a program, the latest first."""
    found = []
    for partition in read_partitions(db, fileset.dataset_id, snapshot):
        of, at, seen = _SCHEMA.decode(partition.partition_key)
        assert isinstance(of, str) and isinstance(at, str) and isinstance(seen, int)  # noqa: S101, PT018  # their types
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
