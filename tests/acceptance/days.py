"""Windows of two days over lines of days, without Spark: how many lines began in each."""

from __future__ import annotations

from collections.abc import Sequence

from tests.sql.plain import replace_whole
from tidemill.lake.fileset.fileset import Partition
from tidemill.lake.window.window_plan import Window
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import from_wall
from tidemill.sql.batches import Batch
from tidemill.sql.windows import WindowQuery
from tidemill.storage.locations import open_files


class Days:
    """Counts lines by the first instant of their partition; a result is one partition, named by its window's start."""

    def __init__(self, query: WindowQuery) -> None:
        """Nothing of it is needed."""

    def compute(self, run, batches: Sequence[Batch]) -> dict[str, str]:
        """The windows that have lines."""
        (batch,) = batches
        files = open_files(batch.source.dataset.location, run.world)
        found: dict[str, int] = {}
        for partition in batch.partitions:
            begins, _ = batch.instants[partition.partition_key]
            for window in batch.windows:
                if window.start <= begins < window.end:
                    lines = sum(files.read(name).count(b"\n") for name, _ in partition.files)
                    found[name_of(window)] = found.get(name_of(window), 0) + lines
        return {name: f"{number} lines\n" for name, number in found.items()}

    def count_outside(self, run, batch: Batch) -> dict[KeyText, int]:
        """Lines have no time of their own."""
        del run, batch
        return {}

    def replace(self, run, batches: Sequence[Batch], gone: Sequence[Window], old: Sequence[Partition]):
        """Replace windows that are partitions of their own: each is overwritten whole."""
        (batch,) = batches
        new = self.compute(run, batches) if batch.windows else {}
        return replace_whole(batch, gone, old, new, name_of)


def name_of(window: Window) -> str:
    """The day on which it begins."""
    return f"{from_wall(window.start):%Y-%m-%d}"
