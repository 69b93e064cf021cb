"""Publishing in time: the watermark, the period slots and the windows of a file set follow its partitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call
from tidemill.catalog.transactions import Transaction
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.publish import AddPartitions, PartitionWrite
from tidemill.lake.window.watermark import (
    MoveWatermark,
    fill_slots,
    find_times,
    forget_parked,
    forget_partitions,
    guard_declaration,
    note_commit,
    park_partitions,
)
from tidemill.lake.window.windows import announce_late
from tidemill.names import RunId
from tidemill.shapes.keys import Key, KeyText
from tidemill.shapes.partition_time import Instant, Span, WallTime


def publish_partitions(  # noqa: PLR0913  # options by keyword, each with a default
    tx: Transaction,
    fileset: Fileset,
    changes: Sequence[PartitionWrite],
    schema: ColumnSchema | None,
    existing: frozenset[KeyText],
    *,
    base: ColumnSchema | None = None,
    known: Mapping[Key, WallTime] | None = None,
    completes: Sequence[Span] = (),
    quiet: bool = False,
    seen: int | None = None,
) -> list[Effect]:
    """Publish partitions (`AddPartitions`) and bring the watermark of their file set up to them.

    `known` are the times of partitions that the catalog has (`find_known_times`). `completes` are period slots that are
    complete with this commit, even without rows (`list_slots`). If `quiet`, no consumer gets the partitions and nothing
    is announced; the watermark moves all the same. `seen` is as in `AddPartitions`.
    """
    spans = find_times(fileset, (change.key for change in changes), known)
    times = {key: span.time for key, span in spans.items() if span is not None}
    added = AddPartitions(tx, fileset, changes, schema, existing, not quiet, base, times, seen)
    return [added, FollowPartitions(fileset, tx.run_id, changes, spans, completes, quiet)]


@dataclass(frozen=True, slots=True)
class FollowPartitions(Effect):
    """Fill the period slots of published partitions, move the watermark, and announce late data to window programs.

    `spans` are the period slots of the partitions, None for parked ones.
    """

    phase = Phase.WATERMARK

    fileset: Fileset
    run_id: RunId
    changes: Sequence[PartitionWrite]
    spans: Mapping[Key, Span | None]
    completes: Sequence[Span]
    quiet: bool = False

    def guards(self) -> Sequence[Call]:
        """Refuse times that were found by another declaration than the catalog has now."""
        return (guard_declaration(self.fileset),)

    def writes(self) -> Sequence[Call]:
        """Fill slots, move the watermark, announce late data."""
        return tuple(self._writes())

    def _writes(self) -> Iterable[Call]:
        spans = self.spans
        added = {change.key: spans[change.key] for change in self.changes if change.key in spans and change.brings_rows}
        dropped = [change.key for change in self.changes if change.op is WriteOp.DROP and change.key in spans]
        forgotten = list(forget_partitions(self.fileset, {key: spans[key] for key in dropped})) if dropped else []
        yield from forgotten
        # An append leaves earlier changes without a time: the next release finds them.
        replaced = [change.key for change in self.changes if change.op is not WriteOp.APPEND and spans.get(change.key)]
        yield from forget_parked(self.fileset, (*dropped, *replaced))
        there = {change.key for change in self.changes if change.op is not WriteOp.DROP}
        yield from park_partitions(self.fileset, (key for key in there if key in spans and spans[key] is None))
        if added or self.completes or forgotten:
            unmarked = {change.key for change in self.changes if change.lacks_marker}
            yield from fill_slots(self.fileset, added, self.completes, unmarked)
            yield from MoveWatermark(self.fileset, self.run_id, quiet=self.quiet).writes()
        if self.fileset.watermark is not None:
            yield note_commit(self.fileset)
        touching = {change.key for change in self.changes if change.brings_rows or change.op is not WriteOp.APPEND}
        begins = [span.begins for key, span in spans.items() if span is not None and key in touching]
        if begins and not self.quiet:
            yield announce_late(self.fileset, Instant(min(begins)))
