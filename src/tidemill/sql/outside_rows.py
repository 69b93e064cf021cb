"""Rows outside the time of their partition that count in the windows of their own times (`outside_times`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Snapshot, Transaction
from tidemill.errors import Conflict, Fenced, Unavailable
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.on_demand import instants_of
from tidemill.lake.window.outside_times import (
    OutsideTimes,
    Stretches,
    TimesRead,
    UnreadPartition,
    find_seen,
    list_unread,
)
from tidemill.lake.window.window_plan import Dirty, Stored
from tidemill.lake.window.windows import LateRows, WindowState, find_instants, find_spans, list_arrivals, read_keys
from tidemill.names import DatasetId, ProgramId
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import DamagedFiles
from tidemill.shapes.partition_time import Instant
from tidemill.shapes.watermark_spec import OutsidePolicy
from tidemill.sql.batches import Batch, Calculator

if TYPE_CHECKING:
    from tidemill.run.step.workspace import Workspace

Outside: TypeAlias = Mapping[DatasetId, Mapping[KeyText, Stretches]]
"""Stretches of partitions by table, of the tables whose rows outside count in windows."""

_MOST_DAMAGED: Final = 20
"""With more partitions that cannot be read, the run fails: the reason may be none of theirs."""


def includes_outside(source: Fileset) -> bool:
    """Return whether rows outside the partitions of a table count in windows."""
    return source.watermark is not None and source.watermark.outside is OutsidePolicy.INCLUDE


def read_times(workspace: Workspace, calculator: Calculator, source: Fileset, state: WindowState | None) -> TimesRead:
    """Read the times of the rows of all partitions that a program has not read as they are now, in one go.

    A partition that was dropped has no times. `state` is that of the program, None for a query that has none.
    """
    program_id = ProgramId("") if state is None else state.program_id

    def block(db: Db, tx: Transaction) -> tuple[int, int, list[UnreadPartition], Batch]:
        since, until = find_seen(db, program_id, source.dataset_id), tx.write_pointer
        unread = list_unread(db, program_id, source, since, until)
        instants = find_instants(db, source, tx, [one.partition_key for one in unread])
        return since, until, unread, Batch(source, source, (), tuple(read_keys(db, source, tx, instants)), instants)

    since, until, unread, batch = workspace.ask(block)
    stretches, damaged = _find_times(workspace, calculator, batch)
    found = [
        OutsideTimes(source.dataset_id, one.partition_key, stretches.get(one.partition_key, ()), one.unread_since)
        for one in unread
        if one.partition_key not in damaged
    ]
    # A program that has computed windows and read no times had another policy for rows outside, and kept its state.
    kept = not since and state is not None and state.computed is not None
    return TimesRead(source.dataset_id, state.seen if kept and state else since, until, found, damaged)


def _find_times(
    workspace: Workspace, calculator: Calculator, batch: Batch
) -> tuple[dict[KeyText, Stretches], dict[KeyText, Exception]]:
    """Return the stretches of partitions, and the partitions that cannot be read. Halving finds them."""
    found: dict[KeyText, Stretches] = {}
    damaged: dict[KeyText, Exception] = {}
    left = [batch.partitions]
    while left:
        some = left.pop()
        instants = {one.partition_key: batch.instants[one.partition_key] for one in some}
        part = replace(batch, partitions=some, instants=instants)
        if not part.has_files:
            continue
        error: Exception
        try:
            found |= calculator.find_outside_times(workspace, part)
        except DamagedFiles as damage:
            error = damage
        except (Conflict, Fenced, Unavailable):
            raise  # not the partitions' doing
        except Exception as other:  # noqa: BLE001  # whatever Spark raises
            error = other
        else:
            continue
        if len(damaged) > _MOST_DAMAGED:
            raise error
        if len(some) == 1:
            damaged[some[0].partition_key] = error
        else:
            half = len(some) // 2
            left += [some[:half], some[half:]]
    return found, damaged


def list_missed(
    db: Db, source: Fileset, snapshot: Snapshot, noted: Iterable[OutsideTimes], seen: int
) -> list[LateRows]:
    """List the rows of commits before `seen` of `noted` partitions that earlier runs could not read.

    The runs that failed to read a partition left its late rows in no window, in no side table and in no count.
    """
    missed = {one.key: one.missed_since for one in noted if one.missed_since is not None}
    spans = find_spans(db, source, snapshot, missed)
    late: list[LateRows] = []
    for partition in read_keys(db, source, snapshot, spans):
        key, span = partition.partition_key, spans[partition.partition_key]
        since = missed[key] or 0
        rows = sum(one.manifest.total_rows for one in partition.changes if since <= one.commit_seq < seen)
        late.append(LateRows(source.dataset_id, key, span.time, *instants_of(source, span), rows, since, seen))
    return late


def to_stored(source: Fileset, outside: Mapping[KeyText, Stretches]) -> list[Stored]:
    """Return the stretches of partitions as the planner sees partitions. It has counted their bytes already."""
    return [
        Stored(key, begins, ends, 0, source.dataset_id)
        for key, stretches in outside.items()
        for begins, ends in stretches
    ]


def list_changed(
    db: Db,
    source: Fileset,
    snapshot: Snapshot,
    seen: int,
    final: Instant | None,
    each: Sequence[Mapping[KeyText, Stretches]],
) -> list[Dirty]:
    """List the changes from the commit `seen` on, each with the stretches of its partition before and after."""
    return [
        Dirty(commit_seq, begins, ends, final)
        for commit_seq, key, _ in list_arrivals(db, source, seen, snapshot.write_pointer)
        for stretches in each
        for begins, ends in stretches.get(key, ())
    ]


def list_needed_outside(
    db: Db,
    source: Fileset,
    snapshot: Snapshot,
    outside: Mapping[KeyText, Stretches],
    spans: Iterable[tuple[Instant, Instant]],
) -> dict[KeyText, tuple[int, int]]:
    """Return the partitions with rows outside themselves in one of `spans`, with the instants of their other rows."""
    wanted = list(spans)
    near = [
        key
        for key, stretches in outside.items()
        if any(begins < last and ends > first for begins, ends in stretches for first, last in wanted)
    ]
    return find_instants(db, source, snapshot, near) if near else {}
