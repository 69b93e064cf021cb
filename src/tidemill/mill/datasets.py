"""Data sets, as `Mill` offers them: what there is, its partitions, its committed files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.named import FROM_NEWEST, Param, load_sql
from tidemill.catalog.transactions import Snapshot
from tidemill.durations import parse_duration
from tidemill.errors import NotFound, UserError
from tidemill.lake import datasets
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.expectations import Expectation, find_expectations
from tidemill.lake.fileset.compaction import needed_files
from tidemill.lake.fileset.fileset import Change, Fileset, find_schema, read_partitions
from tidemill.lake.fileset.metadata import MetadataChange
from tidemill.lake.fileset.time_travel import AsOf, find_snapshot_at, now
from tidemill.lake.fileset.totals import Totals, find_totals
from tidemill.lake.inbox import inbox
from tidemill.lake.snapshot.snapshot import find_visible
from tidemill.mill.calendar import Calendar, lay_out
from tidemill.mill.lineage import DEPTH, NODES, BadLineage, Lineage, read_bounds
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, one_more, read_key, write_key
from tidemill.mill.partition_views import Growth, PartitionDetail, measure_growth, show_partition
from tidemill.mill.project import MOST_SHOWN, Noun
from tidemill.names import Namespace, RunId
from tidemill.shapes.filters import ALL_KEYS, KeyFilter, Where, choose
from tidemill.shapes.head import read_head, to_json
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import Manifest, check_files
from tidemill.sizes import format_bytes
from tidemill.storage.locations import open_files, path_for_readers

if TYPE_CHECKING:
    from tidemill.mill.datasets_sql import Sql
    from tidemill.run.processes.external import ExternalTransaction
    from tidemill.run.processes.partitions import Adoption
    from tidemill.run.step.outputs import Compacted, Dropped

SQL: Sql = load_sql(__file__)

_NOTED: Final = 100
"""The most partitions that an audit row names."""
_PART: Final = 1000
"""Changes that are read at once, to be filtered."""
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
    """Advice for readers of the list: `tidemill dataset compact` for a file set with many small files."""
    expectation: Expectation | None
    """The arrival expectation, if the data set declares one."""
    generation: int
    """The number of its declarations. A deployment or statement that changes the data set adds 1."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """Current change of a partition. After appends, a partition has several.

    `metadata` is this change's part. For each name the last change counts, and None deletes the name.
    """

    partition: str
    op: str
    write_pointer: int
    commit_seq: int
    files: int
    bytes: int
    rows: int
    run_id: RunId
    committed_at: datetime
    metadata: Mapping[str, str | None]


class _Current(NamedTuple):
    """Row of a current change or compaction."""

    partition_key: KeyText
    op: str
    write_pointer: int
    commit_seq: int
    files: int
    bytes: int
    row_count: int | None
    run_id: RunId
    at: datetime
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
    hint = "correct the files or the key, and add the partition again"

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
    dropped_at: datetime


@dataclass(frozen=True, slots=True)
class SchemaView:
    """Columns that a file set has had since a commit, as Spark's JSON, with the run that introduced them."""

    schema: str
    commit_seq: int
    run_id: RunId


@dataclass(frozen=True, slots=True)
class Described:
    """A partition whose metadata were changed."""

    dataset: str
    partition: str


class Datasets(Noun):
    """Operations on data sets of all kinds, and on the partitions of file sets.

    What changes partitions imports the room of transactions late: most of what this module would load, and no list
    needs it.
    """

    noun = "dataset"

    @operation(Right.READ)
    def list(
        self, *, kind: str | None = None, app: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[DatasetView]:
        """List data sets by name, with their sizes: all, or those of a kind or of an app.

        A kind is `fileset`, `inbox` or `snapshot`. `BadFilter`, and `NotFound` for an app that is not there.
        """
        place = read_key(after, ("", ""))
        chosen = None if kind is None else check_filter("kind", kind, DatasetKind)

        def find_app(db: Db, name: str) -> tuple[Namespace, str] | None:
            from tidemill.mill.apps import find_app_named

            return find_app_named(self._project, db, name)

        def block(db: Db) -> Page[DatasetView]:
            of = None if app is None else find_app(db, app)
            found = self._rows(
                lambda behind, most: datasets.list_datasets(db, kind=chosen, app=of, after=behind, limit=most),
                place,
                limit,
                lambda one: (one.namespace, one.name),
                lambda rows: [one.namespace for one in rows],
                by_namespace=True,
            )
            views = {view.name: view for view in _dataset_views(db, found[:limit])}
            return cut(
                found, limit, lambda one: write_key(one.namespace, one.name), lambda one: views[one.qualified_name]
            )

        return self._catalog.read(block)

    @operation(Right.READ, own=True)
    def show(self, name: str) -> DatasetView:
        """Return a data set; `NotFound` with the nearest name."""
        return self._catalog.read(lambda db: _dataset_views(db, [self._project.dataset(db, name)])[0])

    @operation(Right.READ, own=True)
    def partitions(
        self, name: str, *, where: Where | Sequence[str] | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[PartitionView]:
        """List the current changes of a file set by partition.

        `where` chooses partitions, by values or as people write it (`["day>=2026-01-01"]`). Cost: the page, and what
        lies between its partitions by the first fields of the key. `BadKey`.
        """
        place = read_key(after, ("", 0))

        def block(db: Db) -> Page[PartitionView]:
            fileset = Fileset.of(self._project.dataset(db, name))
            accepted = choose(fileset.keys, where)
            return cut(
                _list_current(db, fileset, accepted, place, one_more(limit)),
                limit,
                lambda row: write_key(row.partition_key, row.commit_seq),
                lambda row: _partition_view(fileset, row),
            )

        return self._catalog.read(block)

    @operation(Right.READ)
    def calendar(self, name: str, *, within: str = "") -> Calendar:
        """Show the partitions of a file set by their times: present, late, rewritten, missing.

        `within` is a year, month, week or day (`2026`, `2026-01`, `2026-W02`, `2026-01-31`), or `all` for the years;
        without `within`, the last one that has partitions. Times are those of the watermark, else of the first key
        field. Slots are missing where a watermark has slots, or an expectation wants one each day. Cost: bounded, so
        that cells of very many partitions stop counting (`CalendarCell.more`). `BadFilter`.
        """

        def block(db: Db) -> Calendar:
            return lay_out(db, Fileset.of(self._project.dataset(db, name)), within)

        return self._catalog.read(block)

    @operation(Right.READ)
    def growth(self, name: str) -> Growth:
        """Show how much was written to a file set or snapshot, by the day of the commit.

        Cost: the newest 5,000 changes.
        """
        return self._catalog.read(lambda db: measure_growth(db, self._project.dataset(db, name)))

    @operation(Right.READ)
    def partition(self, name: str, key: Mapping[str, object] | str) -> PartitionDetail:
        """Show a partition of a file set: its files and metadata, its past, and the runs that read it.

        `key` is given in values or as people write it. `BadKey`, `NotFound`.
        """

        def block(db: Db) -> PartitionDetail:
            fileset = Fileset.of(self._project.dataset(db, name))
            checked = fileset.keys.read(key) if isinstance(key, str) else fileset.keys.check(key)
            return show_partition(db, fileset, checked, now(db, self._catalog.incarnation), self._project.access)

        return self._catalog.read(block)

    @operation(Right.READ, own=True)
    def files(
        self,
        name: str,
        *,
        where: Where | Sequence[str] | None = None,
        as_of: AsOf | None = None,
        limit: int | None = None,
        after: str = "",
    ) -> Page[FileView]:
        """List the committed files of a file set by partition: for any engine that reads its format.

        Without `limit` one page has all files, since a part of them is no table. All pages show one state, that of the
        first page.

        `where` chooses partitions, by values (`{"day": Range(date(2026, 1, 1))}`) or as people write it
        (`["day>=2026-01-01"]`); `as_of`, a commit sequence or an aware time, an earlier state. The values of the key
        columns are not in the files; each file's stand beside it. Nothing keeps the files but the file set's
        `keep_superseded`. Raises `BadKey`, `BadTime`, `NotKept`.
        """
        seq, *place = read_key(after, (-1, "", 0))

        def block(db: Db) -> Page[FileView]:
            fileset = Fileset.of(self._project.dataset(db, name))
            accepted = choose(fileset.keys, where)
            newest = now(db, self._catalog.incarnation)
            snapshot = find_snapshot_at(db, fileset, seq if after else as_of, newest)
            listed = _Listed(db, fileset, snapshot, accepted)
            behind = (file for file in listed.files(str(place[0]), limit) if [file.key, file.place] > place)
            found = list(behind if limit is None else islice(behind, one_more(limit)))
            return cut(
                found,
                limit or len(found),
                lambda file: write_key(snapshot.write_pointer - 1, file.key, file.place),
                lambda file: file.view,
            )

        return self._catalog.read(block)

    @operation(Right.READ, own=True)
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
            show = partial(fileset.show, change.partition_key)
            values = zip(fileset.keys.names, fileset.keys.decode(change.partition_key), strict=True)
            of_partition = {column: to_json(value) for column, value in values}
            for file in change.manifest.files:
                if len(rows) >= limit:
                    return rows
                check_files(files, fileset.qualified_name, show, change.location, Manifest((file,)))
                path, missing = f"{change.location}/{file.name}", limit - len(rows)
                rows += [row | of_partition for row in read_head(files, path, fileset.storing.format, missing)]
        return rows

    @operation(Right.READ)
    def lineage(
        self,
        name: str,
        *,
        partition: str | None = None,
        version: int | None = None,
        direction: str = "both",
        depth: int = DEPTH,
        limit: int = NODES,
    ) -> Lineage:
        """Show where data come from and where they go, as a graph of data and work.

        Without `partition` the graph is as declared: data sets, programs, schedules, with the times of the last moves.
        With a `partition` of a file set, or a `version` of a snapshot, it is what runs took and wrote. `direction` is
        `upstream`, `downstream` or `both`. The answer ends `depth` steps away, or with `limit` nodes: `Lineage.cut`.
        Cost: look-ups for the nodes of the answer and, as declared, all programs. `BadFilter`, `BadLineage`, `BadKey`,
        `NotFound`.
        """
        from tidemill.mill.lineage_actual import trace_partition, trace_version
        from tidemill.mill.lineage_declared import trace_dataset

        bounds = read_bounds(direction, depth, limit)
        if partition is not None and version is not None:
            raise BadLineage("version", version, "a partition is given too; give one of the two")

        def block(db: Db) -> Lineage:
            dataset = self._project.dataset(db, name)
            if partition is not None:
                return trace_partition(self._project, db, dataset, partition, bounds)
            if version is not None:
                return trace_version(self._project, db, dataset, version, bounds)
            return trace_dataset(self._project, db, dataset, bounds)

        return self._catalog.read(block)

    @operation(Right.DEPLOY)
    def drop(self, name: str, where: Where | Sequence[str], *, dry_run: bool = False) -> Sequence[Dropped]:
        """Drop the partitions that `where` accepts, as values or as people write them, and return them.

        With `dry_run` nothing happens. Raises `BadKey`, `NotFound`; `Conflict` if another transaction changed one of
        them.
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
        from tidemill.run.processes.partitions import find_outlived

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
        from tidemill.run.processes.partitions import find_fragmented
        from tidemill.run.processes.session import spark_of_our_own

        fileset = self._fileset(name)
        accepted = choose(fileset.keys, where)
        if not find_fragmented(self._catalog, fileset, accepted):
            return []
        taken: list[Effect] = []
        with (
            spark_of_our_own(self._world, self._config) as spark,
            self._transaction(fileset, taken) as tx,
        ):
            if compacted := tx.compact(spark, fileset.qualified_name, where=accepted):
                before, after = sum(one.files_before for one in compacted), sum(one.files for one in compacted)
                note = self._note("compact", fileset.qualified_name, partitions=len(compacted))
                taken += [note.between({"files": before}, {"files": after}), *self._keep(compacted)]
            return compacted

    @operation(Right.READ)
    def dropped(self, name: str, *, limit: int = PAGE, after: str = "") -> Page[DroppedView]:
        """List the drops of a file set, newest first."""
        seq, key = read_key(after, FROM_NEWEST)
        fileset = self._fileset(name)
        place: dict[str, Param] = {"before_seq": seq, "before_key": key}
        found = self._catalog.read(
            lambda db: db.records(
                SQL.list_dropped, _Drop, dataset_id=fileset.dataset_id, **place, limit=one_more(limit)
            )
        )
        return cut(
            found,
            limit,
            lambda one: write_key(one.commit_seq, one.partition_key),
            lambda one: DroppedView(
                fileset.show(one.partition_key), one.write_pointer, one.commit_seq, one.run_id, one.at
            ),
        )

    @operation(Right.READ, own=True)
    def schemas(self, name: str, *, limit: int = PAGE, after: str = "") -> Page[SchemaView]:
        """List the columns that a file set has had, oldest first."""
        (seq,) = read_key(after, (0,))
        fileset = self._fileset(name)
        found = self._catalog.read(
            lambda db: db.records(
                SQL.list_schemas, SchemaView, dataset_id=fileset.dataset_id, after=seq, limit=one_more(limit)
            )
        )
        return cut(found, limit, lambda one: write_key(one.commit_seq), lambda one: one)

    @operation(Right.DEPLOY)
    def describe(
        self,
        name: str,
        key: Mapping[str, object] | str,
        *,
        add: Mapping[str, str] | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002  # the word for it
        remove: Collection[str] = (),
    ) -> Described:
        """Change the metadata of one partition, given in values or as people write it; see `Output.describe`."""
        from tidemill.run.processes.external import outputs_of

        fileset = self._fileset(name)
        if isinstance(key, str):
            key = dict(zip(fileset.keys.names, fileset.keys.parse(key), strict=True))
        change = MetadataChange(add or {}, set or {}, remove)
        note = self._note("describe", fileset.qualified_name, key=key)
        described = Described(fileset.qualified_name, fileset.keys.show(fileset.keys.check(key)))
        taken: list[Effect] = [*self._keep(described)]
        with self._transaction(fileset, taken) as tx:
            taken.append(note.between(*outputs_of(tx).describe(fileset.qualified_name, key, change)))
        return described

    @operation(Right.DEPLOY)
    def adopt(self, name: str, below: str = "") -> Adoption:
        """Register the files that lie in the location of a file set in Hive's layout; see `tidemill dataset adopt`."""
        from tidemill.run.processes.partitions import adopt_partitions

        fileset = self._fileset(name)

        def note(partitions: Sequence[str]) -> NoteChange:
            note = self._note("adopt", fileset.qualified_name, below=below)
            return note.between(None, {"partitions": [*partitions[:_NOTED]], "count": len(partitions)})

        return adopt_partitions(self._catalog, self._world, fileset, below, note=note, at_last=self._keep)

    @operation(Right.DEPLOY)
    def add(self, name: str, key: Mapping[str, object] | str) -> Adoption:
        """Register the files of one partition, in values or as people write it, that lie there in Hive's layout.

        `NotFound` when there are none, `PartitionNotAdded` when they cannot be that partition.
        """
        from tidemill.run.processes.partitions import adopt_partitions

        fileset = self._fileset(name)
        checked = fileset.keys.parse(key) if isinstance(key, str) else fileset.keys.check(key)
        place = fileset.keys.to_path(checked)

        def note(partitions: Sequence[str]) -> NoteChange:
            return self._note("add", fileset.qualified_name).between(None, {"partitions": [*partitions]})

        def keep(done: Adoption) -> Sequence[Effect]:
            return () if done.refused else self._keep(done)

        done = adopt_partitions(self._catalog, self._world, fileset, place, note=note, at_last=keep)
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
        changes = db.records(
            SQL.list_first_changes, Change, dataset_id=dataset.dataset_id, lower=lower, upper=upper, limit=most
        )
        if key is not None and not changes:
            cure = f"`tidemill dataset partitions {name}` lists those that it has"
            raise NotFound("partition", fileset.show(KeyText(lower)), hint=cure)
        return dataset, changes

    def _drop(self, verb: str, fileset: Fileset, where: KeyFilter, *, dry_run: bool) -> Sequence[Dropped]:
        from tidemill.run.processes.partitions import drop_matching, list_matching

        found = list_matching(self._catalog, fileset, where)
        if dry_run or not found:
            return found

        def also(dropped: Sequence[Dropped]) -> Sequence[Effect]:
            before = {
                "partitions": [one.partition for one in dropped[:_NOTED]],
                "count": len(dropped),
                "files": sum(one.files for one in dropped),
                "rows": sum(one.rows for one in dropped),
            }
            return [self._note(verb, fileset.qualified_name).between(before, None), *self._keep(dropped)]

        return drop_matching(self._catalog, self._world, fileset, where, also)

    def _transaction(self, fileset: Fileset, also: Sequence[Effect]) -> AbstractContextManager[ExternalTransaction]:
        from tidemill.run.processes.external import open_transaction

        names, lease = [fileset.qualified_name], self._config.lease
        return open_transaction(self._catalog, self._world, names, lease=lease, also=also)

    def _fileset(self, name: str) -> Fileset:
        return Fileset.of(self._catalog.read(lambda db: self._project.dataset(db, name)))


def _list_current(
    db: Db, fileset: Fileset, accepted: KeyFilter, after: tuple[str, int], most: int
) -> Sequence[_Current]:
    """List at most `most` current changes that `accepted` accepts, from behind `after` on."""
    lower, upper = accepted.bounds
    place = max(after, (str(lower), -1))
    found: list[_Current] = []
    part = max(most, _PART) if accepted.conditions else most
    while len(found) < most:
        bounds: dict[str, Param] = {"after_key": place[0], "after_seq": place[1], "upper": upper}
        rows = db.records(SQL.list_current, _Current, dataset_id=fileset.dataset_id, **bounds, limit=part)
        found += [row for row in rows if accepted.accepts(row.partition_key)]
        if len(rows) < part:
            break
        place = (rows[-1].partition_key, rows[-1].commit_seq)
    return found[:most]


@dataclass(frozen=True, slots=True)
class _Drop:
    """A row of a drop."""

    partition_key: KeyText
    write_pointer: int
    commit_seq: int
    run_id: RunId
    at: datetime


@dataclass(frozen=True, slots=True)
class _File:
    """A committed file with its place in the list: the key of its partition, and its number there."""

    key: KeyText
    place: int
    view: FileView


@dataclass(frozen=True, slots=True)
class _Listed:
    """The committed files that a snapshot sees in the partitions that a filter accepts."""

    db: Db
    fileset: Fileset
    snapshot: Snapshot
    accepted: KeyFilter

    def files(self, lower: str, limit: int | None) -> Iterator[_File]:
        """Yield the files by partition, from the key `lower` on. With `limit` so many partitions are read at a time."""
        first, last = self.accepted.bounds
        lower = max(first, KeyText(lower))
        while lower < last:
            upper = last if limit is None else self._upper(lower, last, limit)
            for partition in read_partitions(
                self.db, self.fileset.dataset_id, self.snapshot, self.accepted, bounds=(lower, upper), compacted=True
            ):
                shown = self.fileset.show(partition.partition_key)
                values = self.fileset.keys.decode(partition.partition_key)
                key = dict(zip(self.fileset.keys.names, values, strict=True))
                for place, (path, file) in enumerate(partition.files, 1):
                    url = path_for_readers(self.fileset.dataset.location, path)
                    yield _File(partition.partition_key, place, FileView(url, file.bytes, file.rows, shown, key))
            lower = upper

    def _upper(self, lower: KeyText, last: KeyText, limit: int) -> KeyText:
        """Return a key above the next `limit` partitions, or `last`."""
        bounds = {"lower": lower, "upper": last}
        keys = self.db.records(
            SQL.list_keys, KeyText, dataset_id=self.fileset.dataset_id, **bounds, limit=one_more(limit)
        )
        return keys[-1] if len(keys) > limit else last


def _dataset_views(db: Db, found: Sequence[Dataset]) -> list[DatasetView]:
    totals = find_totals(db, (dataset.dataset_id for dataset in found if dataset.kind is DatasetKind.FILESET))
    expectations = find_expectations(db, (dataset.dataset_id for dataset in found))
    views = []
    for dataset in found:
        total, schema = totals.get(dataset.dataset_id, Totals()), None
        if dataset.kind is DatasetKind.INBOX:
            counts = inbox.count_files(db, dataset.dataset_id).values()
            total = Totals(files=sum(number for number, _ in counts), bytes=sum(size for _, size in counts))
        elif dataset.kind is DatasetKind.SNAPSHOT:
            if (current := find_visible(db, dataset.dataset_id, now(db, ""))) is not None:
                schema, manifest = current.columns.text, current.manifest
                total = Totals(1, len(manifest.files), manifest.total_bytes, manifest.total_rows)
        elif (columns := find_schema(db, dataset.dataset_id)) is not None:
            schema = columns.text
        views.append(
            DatasetView(
                dataset.qualified_name,
                dataset.kind,
                dataset.app,
                dataset.location,
                dataset.spec,
                schema,
                total.partitions if dataset.kind is DatasetKind.FILESET else None,
                total.files,
                total.bytes,
                None if dataset.kind is DatasetKind.INBOX else total.rows,
                _find_hint(dataset, total),
                expectations.get(dataset.dataset_id),
                dataset.generation,
            )
        )
    return views


def _find_hint(dataset: Dataset, total: Totals) -> str | None:
    partitions, files, size = total.partitions, total.files, total.bytes
    few = files < _MANY_FILES * needed_files(partitions, size, total.merged)
    if dataset.kind is not DatasetKind.FILESET or few or not files:
        return None
    within = "1 partition" if partitions == 1 else f"{partitions} partitions"
    most = f"{files} files of {format_bytes(size // files)} on average in {within}"
    return f"{dataset.qualified_name} has {most}: `tidemill dataset compact {dataset.qualified_name}` merges them"


def _partition_view(fileset: Fileset, row: _Current) -> PartitionView:
    return PartitionView(
        fileset.show(row.partition_key),
        row.op,
        row.write_pointer,
        row.commit_seq,
        row.files,
        row.bytes,
        row.row_count or 0,
        row.run_id,
        row.at,
        row.metadata,
    )
