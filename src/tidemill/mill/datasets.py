"""Data sets, as `Mill` offers them: what there is, its partitions, its committed files.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.named import Row, load_sql
from tidemill.durations import parse_duration
from tidemill.errors import NotFound, UserError
from tidemill.lake import datasets
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.compaction import needed_files
from tidemill.lake.fileset.fileset import Change, Fileset, find_schema, read_partitions, to_change
from tidemill.lake.fileset.time_travel import AsOf, find_snapshot_at, now
from tidemill.lake.filters import ALL_KEYS, KeyFilter, Where, choose
from tidemill.lake.head import read_head, to_json
from tidemill.lake.inbox import inbox
from tidemill.lake.keys import KeyText
from tidemill.lake.manifest import Manifest, check_files
from tidemill.lake.snapshot.snapshot import find_visible
from tidemill.mill.operation import Right, operation
from tidemill.mill.project import MOST_SHOWN, Noun
from tidemill.names import RunId
from tidemill.sizes import format_bytes
from tidemill.storage.files import open_files, path_for_readers

if TYPE_CHECKING:
    from tidemill.mill.datasets_sql import Sql
    from tidemill.run.external import ExternalTransaction
    from tidemill.run.outputs import Compacted, Dropped
    from tidemill.run.partitions import Adoption

SQL: Sql = load_sql(__file__)

_MANY_FILES: Final = 4
"""So many times more files than the rows need are worth a hint."""


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
    hint: str | None
    """Advice for a person who looks at the list: `tidemill dataset compact` for a file set with many small files."""


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


class PartitionNotAdded(UserError):
    """Files that are there and cannot be the partition that was asked for."""

    code = "partition_not_added"

    def __init__(self, dataset: str, partition: str, why: str) -> None:
        self.dataset = dataset
        self.partition = partition
        self.why = why
        super().__init__(f"partition {partition} cannot be added to {dataset}: {why}")


@dataclass(frozen=True, slots=True)
class DroppedView:
    """A drop of the past: what, when, by which run."""

    partition: str
    write_pointer: int
    commit_seq: int
    run_id: RunId
    dropped_at: int


@dataclass(frozen=True, slots=True)
class SchemaView:
    """Columns that a file set has had since a commit, as Spark's JSON, with the run that introduced them."""

    schema: str
    commit_seq: int
    run_id: RunId


class Datasets(Noun):
    """Operations on data sets of all kinds, and on the partitions of file sets.

    What changes partitions imports the room of transactions late: most of what this module would load, and no list
    needs it.
    """

    noun = "dataset"

    @operation(Right.READ)
    def list(self) -> Sequence[DatasetView]:
        """List all data sets by name, with their sizes."""
        return self._catalog.read(lambda db: _dataset_views(db, datasets.list_datasets(db)))

    @operation(Right.READ)
    def show(self, name: str) -> DatasetView:
        """Return a data set; `NotFound` with the nearest name."""
        return self._catalog.read(lambda db: _dataset_views(db, [self._project.dataset(db, name)])[0])

    @operation(Right.READ)
    def partitions(self, name: str, *, limit: int = 100) -> Sequence[PartitionView]:
        """List the current changes of a file set by partition."""

        def block(db: Db) -> Sequence[PartitionView]:
            fileset = Fileset.of(self._project.dataset(db, name))
            rows = db.all(SQL.list_current, dataset_id=fileset.dataset_id, limit=limit)
            return [_partition_view(fileset, row) for row in rows]

        return self._catalog.read(block)

    @operation(Right.READ)
    def files(
        self, name: str, *, where: Where | Sequence[str] | None = None, as_of: AsOf | None = None
    ) -> Sequence[FileView]:
        """List the committed files of a file set by partition: for any engine that reads its format.

        `where` chooses partitions, by values (`{"day": Range(date(2026, 1, 1))}`) or as people write it
        (`["day>=2026-01-01"]`); `as_of`, a commit sequence or an aware time, an earlier state. The values of the key
        columns are not in the files; each file's stand beside it. Nothing keeps the files but the file set's
        `keep_superseded`. Raises `BadKey`, `BadTime`, `NotKept`.
        """

        def block(db: Db) -> Sequence[FileView]:
            fileset = Fileset.of(self._project.dataset(db, name))
            accepted = choose(fileset.keys, where)
            snapshot = find_snapshot_at(db, fileset, as_of, now(db, self._catalog.incarnation))
            partitions = read_partitions(db, fileset.dataset_id, snapshot, accepted, compacted=True)
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

        return self._catalog.read(block)

    @operation(Right.READ)
    def head(
        self, name: str, key: Mapping[str, object] | str | None = None, *, limit: int = 10
    ) -> Sequence[dict[str, object]]:
        """Return the first `limit` rows of a file set, of one of its partitions, or of a snapshot; without Spark.

        Partitions come by key; `key` is given in values or as people write it. The values of the key columns, which are
        not in the files, stand last. Values are as JSON knows them. Cost: as many files as hold the rows. `BadKey`,
        `NotFound` for a partition, `DamagedFiles`, `NoPyArrow`.
        """
        dataset, changes = self._catalog.read(lambda db: self._first_changes(db, name, key, limit))
        fileset = Fileset.of(dataset)
        files = open_files(dataset.location, self._world)
        rows: list[dict[str, object]] = []
        for change in changes:
            shown = fileset.show(change.partition_key)
            values = zip(fileset.keys.names, fileset.keys.decode(change.partition_key), strict=True)
            of_partition = {column: to_json(value) for column, value in values}
            for file in change.manifest.files:
                if len(rows) >= limit:
                    return rows
                check_files(files, fileset.qualified_name, shown, change.location, Manifest((file,)))
                path, missing = f"{change.location}/{file.name}", limit - len(rows)
                rows += [row | of_partition for row in read_head(files, path, fileset.storing.format, missing)]
        return rows

    @operation(Right.DEPLOY)
    def drop(self, name: str, where: Where | Sequence[str], *, dry_run: bool = False) -> Sequence[Dropped]:
        """Drop the partitions that `where` accepts, in values or as people write it, and return them.

        With `dry_run` nothing happens. Raises `BadKey`, `NotFound`; `Conflict` when somebody worked on one of them.
        """
        fileset = self._fileset(name)
        if not where:
            raise UserError(f"say which partitions of {fileset.qualified_name} to drop: nothing means all of them")
        return self._drop("drop", fileset, choose(fileset.keys, where), dry_run=dry_run)

    @operation(Right.DEPLOY)
    def expire(
        self, name: str, older_than: str | timedelta | None = None, *, dry_run: bool = False
    ) -> Sequence[Dropped]:
        """Drop the partitions whose time passed `older_than` ago, else the file set's `retention`; return them."""
        from tidemill.run.partitions import find_outlived

        fileset = self._fileset(name)
        age = fileset.storing.retention if older_than is None else parse_duration(older_than)
        if age is None:
            raise UserError(f"{fileset.qualified_name} is declared without retention: say how old partitions may be")
        return self._drop("expire", fileset, find_outlived(self._catalog, fileset, age), dry_run=dry_run)

    @operation(Right.DEPLOY)
    def compact(self, name: str, where: Where | Sequence[str] = ()) -> Sequence[Compacted]:
        """Put the rows of each partition with many small files into fewer files; return these partitions.

        `where` chooses partitions, in values or as people write it. Uses the Spark of this process, which is started if
        there is none and there is work. The rows stay the same, and consumers get nothing. Raises `BadKey`, `NotFound`;
        `Conflict` when another transaction replaced such a partition meanwhile.
        """
        from tidemill.run.partitions import find_fragmented
        from tidemill.run.session import settings_of, spark_of_our_own

        fileset = self._fileset(name)
        accepted = choose(fileset.keys, where)
        if not find_fragmented(self._catalog, fileset, accepted):
            return []
        taken: list[Effect] = []
        with (
            spark_of_our_own(
                self._world,
                self._config.state,
                self._config.cache,
                settings_of(self._config),
            ) as spark,
            self._transaction(fileset, taken) as tx,
        ):
            if compacted := tx.compact(spark, fileset.qualified_name, where=accepted):
                taken.append(self._note("compact", fileset.qualified_name))
            return compacted

    @operation(Right.READ)
    def dropped(self, name: str, *, limit: int = 100) -> Sequence[DroppedView]:
        """List the drops of a file set, newest first."""
        fileset = self._fileset(name)
        rows = self._catalog.read(lambda db: db.all(SQL.list_dropped, dataset_id=fileset.dataset_id, limit=limit))
        return [
            DroppedView(
                fileset.show(KeyText(str(key))), cast("int", w), cast("int", seq), RunId(str(run)), cast("int", at)
            )
            for key, w, seq, run, at in rows
        ]

    @operation(Right.READ)
    def schemas(self, name: str) -> Sequence[SchemaView]:
        """List the columns that a file set has had, oldest first."""
        fileset = self._fileset(name)
        rows = self._catalog.read(lambda db: db.all(SQL.list_schemas, dataset_id=fileset.dataset_id))
        return [SchemaView(str(schema), cast("int", seq), RunId(str(run))) for schema, seq, run in rows]

    @operation(Right.DEPLOY)
    def describe(
        self,
        name: str,
        key: Mapping[str, object] | str,
        *,
        add: Mapping[str, str] | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002  # the word for it
        remove: Collection[str] = (),
    ) -> None:
        """Change the metadata of one partition, given in values or as people write it; see `Output.describe`."""
        fileset = self._fileset(name)
        if isinstance(key, str):
            key = dict(zip(fileset.keys.names, fileset.keys.parse(key), strict=True))
        changed = {"add": add or {}, "set": set or {}, "remove": [*remove]}
        note = self._note("describe", fileset.qualified_name, key=key, **changed)
        with self._transaction(fileset, [note]) as tx:
            tx.fileset(fileset.qualified_name).describe(key, add=add, set=set, remove=remove)

    @operation(Right.DEPLOY)
    def adopt(self, name: str, below: str = "") -> Adoption:
        """Register the files that lie in the location of a file set in Hive's layout; see `tidemill dataset adopt`."""
        from tidemill.run.partitions import adopt_partitions

        fileset = self._fileset(name)
        note = self._note("adopt", fileset.qualified_name, below=below)
        return adopt_partitions(self._catalog, self._world, fileset, below, also=[note])

    @operation(Right.DEPLOY)
    def add(self, name: str, key: Mapping[str, object] | str) -> Adoption:
        """Register the files of one partition, in values or as people write it, that lie there in Hive's layout.

        `NotFound` when there are none, `PartitionNotAdded` when they cannot be that partition.
        """
        from tidemill.run.partitions import adopt_partitions

        fileset = self._fileset(name)
        checked = fileset.keys.parse(key) if isinstance(key, str) else fileset.keys.check(key)
        place = fileset.keys.to_path(checked)
        note = self._note("add", fileset.qualified_name, partition=fileset.keys.show(checked))
        done = adopt_partitions(self._catalog, self._world, fileset, place, also=[note])
        if done.refused:
            raise PartitionNotAdded(fileset.qualified_name, fileset.keys.show(checked), done.refused[0].why)
        if not done.partitions + done.known:
            raise NotFound("files of a partition", f"{fileset.dataset.location}/{place}")
        return done

    def _first_changes(
        self, db: Db, name: str, key: Mapping[str, object] | str | None, limit: int
    ) -> tuple[Dataset, Sequence[Change]]:
        dataset = self._project.dataset(db, name)
        fileset = Fileset.of(dataset)
        lower, upper = "", str(ALL_KEYS)
        if key is not None:
            lower = upper = fileset.keys.encode(
                fileset.keys.parse(key) if isinstance(key, str) else fileset.keys.check(key)
            )
        # A change may have no rows: some more than `limit` are looked at.
        most = limit + MOST_SHOWN
        rows = db.all(SQL.list_first_changes, dataset_id=dataset.dataset_id, lower=lower, upper=upper, limit=most)
        if key is not None and not rows:
            cure = f"`tidemill dataset partitions {name}` lists those that it has"
            raise NotFound("partition", fileset.show(KeyText(lower)), hint=cure)
        return dataset, [to_change(row) for row in rows]

    def _drop(self, verb: str, fileset: Fileset, where: KeyFilter, *, dry_run: bool) -> Sequence[Dropped]:
        from tidemill.run.partitions import drop_matching, list_matching

        found = list_matching(self._catalog, fileset, where)
        if dry_run or not found:
            return found
        note = self._note(verb, fileset.qualified_name, partitions=[one.partition for one in found])
        return drop_matching(self._catalog, self._world, fileset, where, [note])

    def _transaction(self, fileset: Fileset, also: Sequence[Effect]) -> AbstractContextManager[ExternalTransaction]:
        from tidemill.run.external import open_transaction

        names, lease = [fileset.qualified_name], self._config.lease
        return open_transaction(self._catalog, self._world, names, lease=lease, also=also)

    def _fileset(self, name: str) -> Fileset:
        return Fileset.of(self._catalog.read(lambda db: self._project.dataset(db, name)))


def _dataset_views(db: Db, found: Sequence[Dataset]) -> list[DatasetView]:
    ids = [dataset.dataset_id for dataset in found if dataset.kind is not DatasetKind.INBOX]
    sizes = {str(row[0]): row[1:] for row in db.all(SQL.measure_filesets, dataset_ids=json.dumps(ids))}
    views = []
    for dataset in found:
        partitions, files, size, rows, merged = cast("tuple[int, ...]", sizes.get(dataset.dataset_id, (0, 0, 0, 0, 0)))
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
                _find_hint(dataset, partitions, files, size, merged),
            )
        )
    return views


def _find_hint(dataset: Dataset, partitions: int, files: int, size: int, merged: int) -> str | None:
    few = files < _MANY_FILES * needed_files(partitions, size, merged)
    if dataset.kind is not DatasetKind.FILESET or few or not files:
        return None
    within = "1 partition" if partitions == 1 else f"{partitions} partitions"
    most = f"{files} files of {format_bytes(size // files)} on average in {within}"
    return f"{dataset.qualified_name} has {most}: `tidemill dataset compact {dataset.qualified_name}` merges them"


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
