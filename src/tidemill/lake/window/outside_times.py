"""Times of rows outside their partition, where such rows count in the windows of their own times (`include`).

The keys of partitions do not say which windows such rows lie in. So a run of a window program first reads the times of
the rows of each partition that the program has not read yet, whatever windows are closed. Its commit keeps the
stretches of time with rows outside the partition. From then on the partition is one of those that a window in these
stretches needs. A change of the partition touches the windows of the earlier and of the present stretches.

A window is computed from all rows that the run knows of. If a row comes to be known later, the window is computed
already, and the row is late. So neither the size of batches nor the order of partitions changes a result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import DatasetId, ProgramId
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.lake.window.outside_times_sql import Sql

SQL: Sql = load_sql(__file__)

Stretches: TypeAlias = Sequence[tuple[int, int]]
"""Instants `[begins, ends)` without overlaps, by their begin."""

STEP: Final = 15 * 60_000_000
"""Stretches begin and end at whole steps since 1970, in microseconds."""
_MOST: Final = 1_000
"""The most stretches of a partition. Shorter gaps between stretches are closed, so that a window may read too much."""


class UnreadPartition(NamedTuple):
    """A partition that a program has not read as of its last commit `commit_seq`.

    The program has read the partition as of the commit `read_seq`, -1 if never.
    """

    partition_key: KeyText
    commit_seq: int
    read_seq: int


class OutsideTimes(NamedTuple):
    """The stretches of time in which rows of a partition lie outside the partition, as of its commit `commit_seq`.

    The program had read the partition as of the commit `read_seq`, -1 if never.
    """

    dataset_id: DatasetId
    key: KeyText
    commit_seq: int
    read_seq: int
    stretches: Stretches


@dataclass(frozen=True, slots=True)
class NoteOutsideTimes(Effect):
    """Note in the commit of a run the times outside partitions that it has read, beside `MoveWindows`."""

    phase = Phase.CLAIMS

    program_id: ProgramId
    found: Sequence[OutsideTimes]

    def writes(self) -> Sequence[Call]:
        """The stretches of each partition."""
        rows = [
            {
                "dataset_id": one.dataset_id,
                "partition_key": one.key,
                "commit_seq": one.commit_seq,
                "stretches": json.dumps(one.stretches),
            }
            for one in self.found
        ]
        return [SQL.put_times(program_id=self.program_id, times=json.dumps(rows))] if rows else []


def list_unread(db: Db, program_id: ProgramId, source: Fileset, snapshot: Snapshot, seen: int) -> list[UnreadPartition]:
    """List the partitions that `snapshot` sees and the program has not read as they are, by key.

    Also dropped partitions with noted times, if a commit from `seen` on dropped them. Cost: what is current.
    """
    one: dict[str, Param] = {"program_id": program_id, "dataset_id": source.dataset_id}
    return db.records(SQL.list_unread, UnreadPartition, **one, write_pointer=snapshot.write_pointer, seen=seen)


def read_outside(db: Db, program_id: ProgramId, dataset_id: DatasetId) -> dict[KeyText, Stretches]:
    """Return the stretches that a program has noted, of the partitions that have some."""
    one: dict[str, Param] = {"program_id": program_id, "dataset_id": dataset_id}
    found = db.records(SQL.list_times, tuple[KeyText, str], **one)
    return {key: [(begins, ends) for begins, ends in json.loads(stretches)] for key, stretches in found}


def forget_outside(db: Db, program_id: ProgramId) -> None:
    """Forget what a program has noted: the next run reads all partitions."""
    db.run(SQL.forget_times, program_id=program_id)


def to_stretches(steps: Iterable[int]) -> Stretches:
    """Return the stretches of these steps, given by their numbers since 1970."""
    ordered = sorted(set(steps))
    gaps = sorted(((after - before, before) for before, after in pairwise(ordered) if after - before > 1), reverse=True)
    wide = {before for _, before in gaps[: _MOST - 1]}
    stretches: list[tuple[int, int]] = []
    begins = True
    for step in ordered:
        first = step * STEP if begins else stretches.pop()[0]
        stretches.append((first, (step + 1) * STEP))
        begins = step in wide
    return stretches


def present_stretches(noted: Mapping[KeyText, Stretches], read_now: Iterable[OutsideTimes]) -> dict[KeyText, Stretches]:
    """Return the stretches that hold now: those that were `read_now` in place of those that were `noted`."""
    present = {**noted, **{one.key: one.stretches for one in read_now}}
    return {key: stretches for key, stretches in present.items() if stretches}
