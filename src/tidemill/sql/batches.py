"""What a window program hands to whoever computes it: windows, and the partitions whose rows may lie in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidemill.lake.fileset.fileset import Fileset, Partition
from tidemill.lake.keys import KeyText
from tidemill.lake.window.watermark_spec import WatermarkSpec
from tidemill.lake.window.window_plan import Window

if TYPE_CHECKING:
    from tidemill.run.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows to be computed together, and what they are computed from."""

    source: Fileset
    sink: Fileset
    windows: tuple[Window, ...]
    partitions: tuple[Partition, ...]
    instants: dict[KeyText, tuple[int, int]]
    """Of each partition, the instants of the rows that belong to it."""

    @property
    def watermark(self) -> WatermarkSpec:
        """The declaration by which it is computed."""
        assert self.source.watermark is not None, "a window program is over a table with a watermark"  # noqa: S101
        return self.source.watermark


class Calculator(Protocol):
    """Computes the rows of windows, of its own kind; what it gives is written by the run's writer."""

    def compute(self, workspace: Workspace, batch: Batch) -> Any:  # noqa: ANN401  # of its own kind
        """The rows of all windows of `batch`."""

    def count_outside(self, workspace: Workspace, batch: Batch) -> Mapping[KeyText, int]:
        """How many rows of each partition lie outside its instants; partitions without such rows may be missing."""

    def replace(
        self, workspace: Workspace, batch: Batch, gone: Sequence[Window], old: Sequence[Partition]
    ) -> tuple[Any, Any, Sequence[dict[str, Any]]]:
        """What to write instead of `old`, where rows of the batch's and of the `gone` windows lie.

        Rows to overwrite partitions with, rows to append, and the keys of the partitions that held such rows.
        """
