"""Tables with windows on demand: a watermark is declared, but `streaming-source.enable` does not let it move.

The catalog keeps no times of the partitions of such a table, and no run starts by itself. A query that is run by hand
takes all partitions that are there for complete. So it reads the keys of all partitions.
"""

from __future__ import annotations

from dataclasses import replace

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.datasets import Dataset
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.lake.window.window_plan import Stored
from tidemill.shapes.keys import KeyText
from tidemill.shapes.partition_time import Span
from tidemill.shapes.watermark_spec import WatermarkSpec


def source_of(dataset: Dataset) -> Fileset:
    """Return a table of a window query, with its declared watermark, which may be one that does not move.

    `BadTableOption` for a watermark that lacks the option by which times of partitions are read.
    """
    fileset = Fileset.of(dataset)
    column, options = fileset.storing.watermark_column, fileset.storing.options or {}
    if fileset.watermark is not None or column is None:
        return fileset
    return replace(fileset, watermark=WatermarkSpec.of(column, options, fileset.keys))


def is_on_demand(source: Fileset) -> bool:
    """Return whether the watermark of a table is declared, and does not move."""
    return source.watermark is not None and not source.watermark.enabled


def span_of(source: Fileset, key: KeyText) -> Span | None:
    """Return the span of a partition; None if its key has no time that can be read."""
    return None if source.watermark is None else source.watermark.partition_time.span_of(source.keys.decode(key))


def instants_of(source: Fileset, span: Span) -> tuple[int, int]:
    """Return the instants of the rows that belong to a partition of that span."""
    return span.begins - (0 if source.watermark is None else source.watermark.row_lag), span.ends


def list_present(db: Db, source: Fileset, snapshot: Snapshot, low: int, high: int) -> list[Stored]:
    """List the partitions that `snapshot` sees of wall-clock times `[low, high)`, by key."""
    found = []
    for one in read_partitions(db, source.dataset_id, snapshot):
        span = span_of(source, one.partition_key)
        if span is not None and low <= span.time < high:
            found.append(Stored(one.partition_key, *instants_of(source, span), one.bytes, source.dataset_id))
    return found
