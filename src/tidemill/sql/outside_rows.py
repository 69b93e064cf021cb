"""Rows outside the time of their partition that count in the windows of their own times (`outside_times`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Snapshot, Transaction
from tidemill.errors import Conflict, Fenced, Unavailable, UserError
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window.on_demand import instants_of, is_on_demand, span_of
from tidemill.lake.window.outside_times import OutsideTimes, Stretches, UnreadPartition, list_unread
from tidemill.lake.window.window_plan import Dirty, Stored
from tidemill.lake.window.windows import LateRows, list_arrivals, read_keys
from tidemill.names import DatasetId, ProgramId
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import Instant
from tidemill.shapes.watermark_spec import OUTSIDE, OutsidePolicy
from tidemill.sql.batches import Batch, Calculator

if TYPE_CHECKING:
    from tidemill.run.step.workspace import Workspace
    from tidemill.sql.windows import WindowQuery

Outside: TypeAlias = Mapping[DatasetId, Mapping[KeyText, Stretches]]
"""Stretches of partitions by table, of the tables whose rows outside count in windows."""

_MOST_DAMAGED: Final = 20
"""With more partitions that cannot be read, the run fails: the reason may be none of theirs."""


def includes_outside(source: Fileset) -> bool:
    """Return whether rows outside the partitions of a table count in windows."""
    return source.watermark is not None and source.watermark.outside is OutsidePolicy.INCLUDE


def check_outside(query: WindowQuery, sources: Iterable[Fileset]) -> None:
    """Refuse queries over rows outside their partition whose windows need other rows than those between their bounds.

    Also tables on demand, of whose changes the catalog keeps no times.
    """
    for table, source in zip(query.tables, sources, strict=True):
        if not includes_outside(source):
            continue
        given = f"{source.qualified_name} with '{OUTSIDE}'='include'"
        if query.shape.sessions or query.interval is not None:
            what = "SESSION" if query.shape.sessions else "an interval join"
            why = f"{given} has the windows of TUMBLE, HOP and CUMULATE, and not those of {what}"
            raise query.locate(UserError(why), table)
        if is_on_demand(source):
            why = f"{given} has no windows on demand: set 'streaming-source.enable'='true'"
            raise query.locate(UserError(why), table)


def read_times(
    workspace: Workspace, calculator: Calculator, source: Fileset, program_id: ProgramId, seen: int
) -> list[OutsideTimes]:
    """Read the times of the rows of all partitions that a program has not read as they are now, in one go.

    A partition that was dropped from the commit `seen` on has no times. Later runs read partitions that this run cannot
    read.
    """

    def block(db: Db, tx: Transaction) -> tuple[list[UnreadPartition], Batch]:
        unread = list_unread(db, program_id, source, tx, seen)
        keys = [one.partition_key for one in unread]
        instants = {key: span for key in keys if (span := find_instants(source, key)) is not None}
        return unread, Batch(source, source, (), tuple(read_keys(db, source, tx, instants)), instants)

    unread, batch = workspace.ask(block)
    found, damaged = _find_times(workspace, calculator, batch)
    return [
        OutsideTimes(source.dataset_id, *one, found.get(one.partition_key, ()))
        for one in unread
        if one.partition_key not in damaged
    ]


def _find_times(
    workspace: Workspace, calculator: Calculator, batch: Batch
) -> tuple[dict[KeyText, Stretches], set[KeyText]]:
    """Return the stretches of partitions, and the partitions that cannot be read. Halving finds them."""
    found: dict[KeyText, Stretches] = {}
    damaged: set[KeyText] = set()
    left = [batch.partitions]
    while left:
        some = left.pop()
        instants = {one.partition_key: batch.instants[one.partition_key] for one in some}
        part = replace(batch, partitions=some, instants=instants)
        if not part.has_files:
            continue
        try:
            found |= calculator.find_outside_times(workspace, part)
        except (Conflict, Fenced, Unavailable):
            raise  # not the partitions' doing
        except Exception:  # whatever Spark raises; the windows of such a partition are postponed with the reason
            if len(damaged) > _MOST_DAMAGED:
                raise
            if len(some) == 1:
                damaged |= instants.keys()
            else:
                half = len(some) // 2
                left += [some[:half], some[half:]]
    return found, damaged


def list_late_outside(
    db: Db, source: Fileset, snapshot: Snapshot, noted: Iterable[OutsideTimes], seen: int
) -> list[LateRows]:
    """List the rows of commits before `seen` of `noted` partitions that earlier runs could not read.

    The runs that failed to read a partition left its late rows outside in no window, in no side table and in no count.
    """
    missed = {one.key: one for one in noted if one.dataset_id == source.dataset_id and one.commit_seq < seen}
    late: list[LateRows] = []
    for partition in read_keys(db, source, snapshot, missed):
        key, since = partition.partition_key, missed[partition.partition_key].read_seq + 1
        if (span := span_of(source, key)) is not None:
            rows = sum(one.manifest.total_rows for one in partition.changes if since <= one.commit_seq < seen)
            instants = instants_of(source, span)
            late.append(LateRows(source.dataset_id, key, span.time, *instants, rows, since, seen, outside=True))
    return late


def find_instants(source: Fileset, key: KeyText) -> tuple[int, int] | None:
    """Return the instants of the rows that belong to a partition; None for a partition without a time."""
    span = span_of(source, key)
    return None if span is None else instants_of(source, span)


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
    source: Fileset, outside: Mapping[KeyText, Stretches], spans: Iterable[tuple[Instant, Instant]]
) -> dict[KeyText, tuple[int, int]]:
    """Return the partitions with rows outside themselves in one of `spans`, with the instants of their other rows."""
    wanted = list(spans)
    near = (
        key
        for key, stretches in outside.items()
        if any(begins < last and ends > first for begins, ends in stretches for first, last in wanted)
    )
    return {key: instants for key in near if (instants := find_instants(source, key)) is not None}
