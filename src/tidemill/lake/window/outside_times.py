"""Times of rows outside their partition, where such rows count in the windows of their own times (`include`).

The keys of partitions do not say which windows such rows lie in. So a run of a window program first reads the times of
the rows of each partition that the program has not read yet, whatever windows are closed. Its commit keeps the
stretches of time with rows outside the partition. From then on the partition is one of those that a window in these
stretches needs. A change of the partition touches the windows of the earlier and of the present stretches. A run
postpones the windows that need a partition which the run could not read.

A window is computed from all rows that the run knows of. If a row comes to be known later, the window is computed
already, and the row is late. So neither the size of batches nor the order of partitions changes a result.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import DatasetId, ProgramId
from tidemill.shapes.keys import KeyText
from tidemill.shapes.watermark_spec import OutsidePolicy

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
    """A partition that a program has not read as it is now.

    No run could read the commits of the partition from `unread_since` on that the program has seen; None for none.
    """

    partition_key: KeyText
    unread_since: int | None


class OutsideTimes(NamedTuple):
    """The stretches of time in which rows of a partition lie outside the partition, as a run has read the partition.

    Earlier runs could not read its commits from `missed_since` on; None if they have read all that they saw.
    """

    dataset_id: DatasetId
    key: KeyText
    stretches: Stretches
    missed_since: int | None


@dataclass(frozen=True, slots=True)
class TimesRead:
    """Result of a read of the partitions of a table that the commits before `until` have changed.

    `damaged` are the partitions that could not be read, each with the error. The program has counted their rows of the
    commits before `unread_since`.
    """

    dataset_id: DatasetId
    unread_since: int
    until: int
    found: Sequence[OutsideTimes]
    damaged: Mapping[KeyText, Exception]


@dataclass(frozen=True, slots=True)
class NoteOutsideTimes(Effect):
    """Note in the commit of a run the times outside partitions that it has read, beside `MoveWindows`.

    Later runs read again what this run could not read.
    """

    phase = Phase.CLAIMS

    program_id: ProgramId
    reads: Sequence[TimesRead]

    def writes(self) -> Sequence[Call]:
        """The stretches of each partition, the damaged partitions, and how far each table was read."""
        return [call for one in self.reads for call in self._note(one)]

    def _note(self, read: TimesRead) -> Iterator[Call]:
        of: dict[str, Param] = {"program_id": self.program_id, "dataset_id": read.dataset_id}
        times = [{"partition_key": one.key, "stretches": json.dumps(one.stretches)} for one in read.found]
        if some := [row for row in times if row["stretches"] != "[]"]:
            yield SQL.put_times(**of, times=json.dumps(some))
        if none := [row["partition_key"] for row in times if row["stretches"] == "[]"]:
            yield SQL.delete_times(**of, keys=json.dumps(none))
        if read.damaged:
            unread = json.dumps([{"partition_key": key} for key in read.damaged])
            yield SQL.put_unread(**of, unread=unread, since=read.unread_since)
        yield SQL.set_seen(**of, until=read.until)


def find_seen(db: Db, program_id: ProgramId, dataset_id: DatasetId) -> int:
    """Return the first commit to a table of whose partitions a program has not listed the times yet."""
    return db.value(SQL.find_seen, int, program_id=program_id, dataset_id=dataset_id) or 0


def list_unread(db: Db, program_id: ProgramId, source: Fileset, since: int, until: int) -> list[UnreadPartition]:
    """List the partitions that the commits `[since, until)` have changed, and those that no run could read, by key.

    Also dropped partitions, and partitions without a time. Cost: what they are.
    """
    one: dict[str, Param] = {"program_id": program_id, "dataset_id": source.dataset_id}
    return db.records(SQL.list_unread, UnreadPartition, **one, since=since, until=until)


def read_outside(db: Db, program_id: ProgramId, dataset_id: DatasetId) -> dict[KeyText, Stretches]:
    """Return the stretches that a program has noted, of the partitions that have some."""
    one: dict[str, Param] = {"program_id": program_id, "dataset_id": dataset_id}
    found = db.records(SQL.list_times, tuple[KeyText, str], **one)
    noted = {key: [(begins, ends) for begins, ends in json.loads(stretches)] for key, stretches in found}
    return {key: stretches for key, stretches in noted.items() if stretches}


def release_outside(source: Fileset, keys: Iterable[KeyText]) -> Iterator[Call]:
    """Have programs read partitions of `source` that have a time from now on, where rows outside count in windows."""
    if source.watermark is not None and source.watermark.outside is OutsidePolicy.INCLUDE:
        released = json.dumps([{"partition_key": key} for key in keys])
        yield SQL.put_released(dataset_id=source.dataset_id, released=released)


def forget_outside(db: Db, program_id: ProgramId) -> None:
    """Forget what a program has noted: the next run reads all partitions."""
    db.run(SQL.forget_times, program_id=program_id)
    db.run(SQL.forget_seen, program_id=program_id)


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
