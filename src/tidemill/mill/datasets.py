"""Data sets, as `Mill` offers them: what there is, its partitions, its committed files.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import Row, load_sql
from tidemill.lake import datasets
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import Fileset, find_schema, read_partitions
from tidemill.lake.fileset.time_travel import AsOf, find_snapshot_at, now
from tidemill.lake.filters import Where, choose
from tidemill.lake.inbox import inbox
from tidemill.lake.keys import KeyText
from tidemill.lake.snapshot.snapshot import find_visible
from tidemill.mill.project import Project
from tidemill.names import RunId
from tidemill.storage.files import path_for_readers

SQL: Final = load_sql(__file__)


@dataclass(frozen=True, slots=True)
class DatasetView:
    """A data set with its size: current partitions of a file set, current version of a snapshot, files of an inbox."""

    name: str
    kind: str
    app: str | None
    location: str
    spec: Mapping[str, object]
    schema: str | None
    partitions: int | None
    files: int
    bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One current change of a partition; a partition has several after appends.

    `metadata` is what this one says; of a name the last one counts, and None takes it away.
    """

    partition: str
    op: str
    write_pointer: int
    commit_seq: int
    files: int
    bytes: int
    rows: int
    run_id: RunId
    committed_at: int
    metadata: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class FileView:
    """A committed file of a file set: where it is, and the typed key values that are not stored in it."""

    path: str
    bytes: int
    rows: int
    partition: str
    key: Mapping[str, object]


class Datasets(Project):
    """Operations on data sets of all kinds, and on file sets."""

    def list_datasets(self) -> list[DatasetView]:
        """All data sets by name, with their sizes."""
        return self.catalog.read(lambda db: _dataset_views(db, datasets.list_datasets(db)))

    def show_dataset(self, name: str) -> DatasetView:
        """One data set; `NotFound` with the nearest name."""
        return self.catalog.read(lambda db: _dataset_views(db, [self._dataset(db, name)])[0])

    def list_partitions(self, name: str, *, limit: int = 100) -> list[PartitionView]:
        """The current changes of a file set by partition."""

        def block(db: Db) -> list[PartitionView]:
            fileset = Fileset.of(self._dataset(db, name))
            rows = db.all(SQL.list_current, dataset_id=fileset.dataset_id, limit=limit)
            return [_partition_view(fileset, row) for row in rows]

        return self.catalog.read(block)

    def list_files(
        self, name: str, *, where: Where | Sequence[str] | None = None, as_of: AsOf | None = None
    ) -> list[FileView]:
        """The committed files of a file set by partition: for any engine that reads its format.

        `where` chooses partitions, by values (`{"day": Range(date(2026, 1, 1))}`) or as people write it
        (`["day>=2026-01-01"]`); `as_of`, a commit sequence or an aware time, an earlier state. The values of the key
        columns are not in the files; each file's stand beside it. Nothing keeps the files but the file set's
        `keep_superseded`. Raises `BadKey`, `BadTime`, `NotKept`.
        """

        def block(db: Db) -> list[FileView]:
            fileset = Fileset.of(self._dataset(db, name))
            accepted = choose(fileset.keys, where)
            snapshot = find_snapshot_at(db, fileset, as_of, now(db, self.catalog.incarnation))
            partitions = read_partitions(db, fileset.dataset_id, snapshot, accepted)
            return [
                FileView(
                    path_for_readers(fileset.dataset.location, path),
                    file.bytes,
                    file.rows,
                    fileset.show(partition.partition_key),
                    dict(zip(fileset.keys.names, fileset.keys.decode(partition.partition_key), strict=True)),
                )
                for partition in partitions
                for path, file in partition.files
            ]

        return self.catalog.read(block)


def _dataset_views(db: Db, found: Sequence[Dataset]) -> list[DatasetView]:
    ids = [dataset.dataset_id for dataset in found if dataset.kind is not DatasetKind.INBOX]
    sizes = {str(row[0]): row[1:] for row in db.all(SQL.measure_filesets, dataset_ids=json.dumps(ids))}
    views = []
    for dataset in found:
        partitions, files, size, rows = cast("tuple[int, ...]", sizes.get(dataset.dataset_id, (0, 0, 0, 0)))
        schema = None
        if dataset.kind is DatasetKind.INBOX:
            counts = inbox.count_files(db, dataset.dataset_id).values()
            files, size = sum(number for number, _ in counts), sum(total for _, total in counts)
        elif dataset.kind is DatasetKind.SNAPSHOT:
            current = find_visible(db, dataset.dataset_id, now(db, ""))
            schema = None if current is None else current.columns.text
        elif (columns := find_schema(db, dataset.dataset_id)) is not None:
            schema = columns.text
        is_inbox = dataset.kind is DatasetKind.INBOX
        views.append(
            DatasetView(
                dataset.qualified_name,
                dataset.kind,
                dataset.app,
                dataset.location,
                dataset.spec,
                schema,
                partitions if dataset.kind is DatasetKind.FILESET else None,
                files,
                size,
                None if is_inbox else rows,
            )
        )
    return views


def _partition_view(fileset: Fileset, row: Row) -> PartitionView:
    key, op, write_pointer, commit_seq, files, size, rows, run_id, at, metadata = row
    return PartitionView(
        fileset.show(KeyText(str(key))),
        str(op),
        cast("int", write_pointer),
        cast("int", commit_seq),
        cast("int", files),
        cast("int", size),
        cast("int", rows or 0),
        RunId(str(run_id)),
        cast("int", at),
        {} if metadata is None else json.loads(str(metadata)),
    )
