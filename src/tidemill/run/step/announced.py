"""Partition keys as messages announce them: their fields, and the types of the fields."""

from __future__ import annotations

from tidemill.catalog.db import Db
from tidemill.lake.fileset.fileset import Fileset
from tidemill.run.records.declared import find_dataset
from tidemill.shapes.keys import split_shown


def read_key_types(db: Db, dataset: str) -> dict[str, str]:
    """Return the types of the key fields of a file set, by name. Errors: `NotFound`."""
    return Fileset.of(find_dataset(db, dataset)).keys.types


def split_key(shown: str) -> dict[str, str]:
    """Return the texts of the fields of a key, as a message shows it: `day=2026-01-01 hour=5`."""
    return dict(split_shown(shown))
