"""Batches of a window program: windows to compute, and the partitions of a table whose rows may lie in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from tidemill.lake.fileset.fileset import Fileset, Partition
from tidemill.lake.window.carry import CarriedPartition, Carry
from tidemill.lake.window.outside_times import Stretches
from tidemill.lake.window.window_plan import Window
from tidemill.shapes.keys import KeyText, KeyValue
from tidemill.shapes.partition_time import Instant, WallTime
from tidemill.shapes.watermark_spec import WatermarkSpec

if TYPE_CHECKING:
    from tidemill.run.step.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows to be computed together, and what they are computed from: of one of the tables of the query."""

    source: Fileset
    sink: Fileset
    windows: tuple[Window, ...]
    partitions: tuple[Partition, ...]
    instants: dict[KeyText, tuple[int, int]]
    """For each partition, the instants of the rows that belong to the partition."""
    carry: Carry | None = None
    """The rows of sessions that were open at the end of an earlier slot, in the place of all rows before that time."""
    carried: Mapping[KeyText, CarriedPartition] = field(default_factory=dict)
    """The rows of partitions that an earlier run has read, by their keys, which are not among `partitions`."""

    @property
    def has_files(self) -> bool:
        """Return whether there are rows to compute windows from."""
        carried = [one.partition for one in (self.carry, *self.carried.values()) if one is not None]
        return any(partition.files for partition in (*self.partitions, *carried))

    @property
    def watermark(self) -> WatermarkSpec:
        """The declaration by which it is computed."""
        assert self.source.watermark is not None, "a window program is over tables with a watermark"  # noqa: S101
        return self.source.watermark


class Calculator(Protocol):
    """Computes the rows of windows, of its own kind; what it gives is written by the run's writer.

    `batches` are of the same windows, one of each table of the query, in the order of `WindowQuery.tables`.
    """

    def compute(self, workspace: Workspace, batches: Sequence[Batch]) -> Any:  # noqa: ANN401  # of its own kind
        """The rows of all windows of `batches`."""

    def count_outside(self, workspace: Workspace, batch: Batch) -> Mapping[KeyText, int]:
        """Count the rows of each partition that lie outside its instants.

        A partition without such rows may be missing.
        """

    def find_outside_times(self, workspace: Workspace, batch: Batch) -> Mapping[KeyText, Stretches]:
        """Find the times of the rows of each partition that lie outside its instants.

        A partition without such rows may be missing, and rows without a time count for none.
        """

    def count_forced(self, workspace: Workspace, batch: Batch) -> int:
        """Count the sessions of the slots of `batch` that were closed by force."""

    def pick_open(self, workspace: Workspace, batch: Batch, closes: Instant, key: Mapping[str, KeyValue]) -> Any:  # noqa: ANN401  # of its own kind
        """The rows before `closes`, the end of the slot of `batch`, of sessions that are open then: the carry `key`.

        Open is also a session that a later slot gives out, and one that was cut and whose rows may go on.
        """

    def pick_carried(self, workspace: Workspace, batch: Batch, of: str, seen: int) -> Any:  # noqa: ANN401  # of its own kind
        """The rows of the partitions of `batch` that may count in windows, as `to_carry_key` has the keys of a carry.

        The place of a row is the name of its partition.
        """

    def pick_outside(self, workspace: Workspace, batch: Batch) -> Any:  # noqa: ANN401  # of its own kind
        """The rows of the partitions that lie outside their instants, as rows of the side table."""

    def count_late(
        self, workspace: Workspace, batch: Batch, before: WallTime, waiting: Sequence[Window]
    ) -> Mapping[KeyText, int]:
        """Count the rows of each partition that `pick_late` gives. A partition without such rows may be missing."""

    def pick_late(self, workspace: Workspace, batch: Batch, before: WallTime, waiting: Sequence[Window]) -> Any:  # noqa: ANN401  # of its own kind
        """The rows that may count in windows and have a wall-clock time before `before`, as rows of the side table.

        Without the rows whose times lie in one of `waiting`.
        """

    def find_shifts(self, workspace: Workspace, batch: Batch) -> Mapping[KeyText, AbstractSet[int]]:
        """Return for each partition the whole quarter hours by which at least 99 % of its rows lie outside."""

    def replace(
        self, workspace: Workspace, batches: Sequence[Batch], gone: Sequence[Window], old: Sequence[Partition]
    ) -> tuple[Any, Any, Sequence[dict[str, Any]]]:
        """Return the replacement of `old`, the partitions with rows of the windows of `batches` or of `gone` windows.

        The three parts are rows that overwrite partitions, rows to append, and the keys of partitions that held such
        rows.
        """
