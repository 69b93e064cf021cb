"""Totals of a file set: its partitions, files, bytes and rows, kept by each commit that changes them.

A page that counted a million partitions took 2 s. A commit adds what it writes and subtracts what it replaces, so its
cost is that of its own changes. The audit counts again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.catalog.db import Db
from tidemill.catalog.named import Call, Row, load_sql
from tidemill.names import DatasetId
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import Manifest

if TYPE_CHECKING:
    from tidemill.lake.fileset.totals_sql import Sql

SQL: Sql = load_sql(__file__)


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers of the current partitions of a file set, and of their files. A compaction counts in place of its changes.

    `merged` are the files of compactions among `files`.
    """

    partitions: int = 0
    files: int = 0
    bytes: int = 0
    rows: int = 0
    merged: int = 0


def subtract_replaced(dataset_id: DatasetId, keys: Sequence[KeyText]) -> Call:
    """Return the call that subtracts these partitions; a commit does it before it supersedes them."""
    return SQL.subtract_replaced(dataset_id=dataset_id, keys=json.dumps(keys))


def add_written(dataset_id: DatasetId, written: Mapping[KeyText, Manifest]) -> Call:
    """Return the call that adds writes; a commit does it after it supersedes, before it inserts."""
    added = [{"partition_key": key, **_sums(manifest)} for key, manifest in written.items()]
    return SQL.add_written(dataset_id=dataset_id, added=json.dumps(added))


def replace_compacted(dataset_id: DatasetId, named: str, keys: Sequence[KeyText], merged: Iterable[Manifest]) -> Call:
    """Return the call that counts compactions in place of the changes `named`; before these are marked."""
    made = [_sums(manifest) for manifest in merged]
    sums = {name: sum(one[name] for one in made) for name in ("files", "bytes", "row_count")}
    return SQL.replace_compacted(dataset_id=dataset_id, named=named, keys=json.dumps(keys), **sums)


def _sums(manifest: Manifest) -> dict[str, int]:
    return {"files": len(manifest.files), "bytes": manifest.total_bytes, "row_count": manifest.total_rows}


def find_totals(db: Db, dataset_ids: Iterable[DatasetId]) -> Mapping[str, Totals]:
    """Return the totals of file sets by `dataset_id`. A file set without a commit has none."""
    rows = db.all(SQL.find_totals, dataset_ids=json.dumps(list(dataset_ids)))
    return {str(row[0]): _read(row[1:]) for row in rows}


def compare_totals(db: Db, dataset_id: DatasetId) -> Sequence[Totals]:
    """Return the totals of a file set as kept and as counted again; one if they are the same. Cost: what is current."""
    return [_read(row) for row in db.all(SQL.compare_totals, dataset_id=dataset_id)]


def _read(row: Row) -> Totals:
    return Totals(*(int(str(one)) for one in row))
