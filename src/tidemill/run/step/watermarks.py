"""Watermarks as triggers see them: whether a file set has one, and when it moved last."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from tidemill.catalog.db import Db
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.window import watermark
from tidemill.run.records.declared import find_dataset


def has_watermark(db: Db, dataset: str) -> bool:
    """Return whether the file set of that name has a watermark. Errors: `NotFound`."""
    return Fileset.of(find_dataset(db, dataset)).watermark is not None


def read_last_moves(db: Db, datasets: Collection[str]) -> dict[str, datetime]:
    """Return the times of the last moves, by file set. Cost: a look-up for each, and none without file sets."""
    return watermark.read_last_moves(db, datasets) if datasets else {}
