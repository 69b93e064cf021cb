"""Published changes: what a transaction has written to a data set, and which runs have written what is there now."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.records import to_json
from tidemill.lake.fileset.fileset import Change, ColumnSchema
from tidemill.names import DatasetId, RunId, WritePointer
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.lake.written_sql import Sql

SQL: Sql = load_sql(__file__)


class WrittenChange(NamedTuple):
    """Change that a transaction has published, with the columns of its files."""

    change: Change
    columns: ColumnSchema | None


def read_written(db: Db, write_pointer: WritePointer, dataset_id: DatasetId) -> list[WrittenChange]:
    """Return what a transaction has published to a data set, by key."""
    return db.records(SQL.read_written, WrittenChange, write_pointer=write_pointer, dataset_id=dataset_id)


class PartitionWriter(NamedTuple):
    """Run whose change a partition has now, or, if the partition `is_dropped`, that has dropped the partition."""

    partition_key: KeyText
    run_id: RunId
    is_dropped: bool


def find_writers(db: Db, dataset_id: DatasetId, keys: Sequence[KeyText]) -> list[PartitionWriter]:
    """Return the runs that have written or dropped what these partitions are now, by key."""
    return db.records(SQL.find_writers, PartitionWriter, dataset_id=dataset_id, keys=to_json(list(keys)))
