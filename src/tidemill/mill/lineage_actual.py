"""Actual lineage: contents that runs took and wrote, by the inputs of committed runs and the changes of commits.

A content is one change of a partition, one version of a snapshot, or one content of a file. An append adds a change to
a partition, so a partition may be several nodes. A run of a window program records no inputs: the walk upstream ends
there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.records import to_json
from tidemill.errors import NotFound
from tidemill.lake.datasets import Dataset, DatasetKind, find_some
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.inbox.inbox import FileState, Inbox
from tidemill.mill.lineage import (
    FORGOTTEN,
    BadLineage,
    Bounds,
    DescribedPlace,
    Direction,
    EdgeKind,
    Lineage,
    LineageStep,
    NodeKind,
    walk,
)
from tidemill.mill.project import Project, program_names
from tidemill.mill.why_files import find_contents
from tidemill.names import DatasetId, ProgramId, RunId, WritePointer, split_qualified
from tidemill.run.records.runs import RunState
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.mill.lineage_actual_sql import Sql

SQL: Sql = load_sql(__file__)


class Content(NamedTuple):
    """A content that runs take and write. `write_pointer` is 0 for a file; `content_version` is empty for others."""

    dataset_id: DatasetId
    write_pointer: WritePointer
    item: str
    content_version: str = ""


_Place: TypeAlias = Content | RunId


class _RunRow(NamedTuple):
    """Row of a run."""

    run_id: RunId
    program_id: ProgramId | None
    state: RunState
    at: datetime


class _ChangeRow(NamedTuple):
    """Row of a change of a partition, or of a version."""

    dataset_id: DatasetId
    write_pointer: WritePointer
    item: str
    op: str
    is_current: bool
    at: datetime


class _FileRow(NamedTuple):
    """Row of a content of a file."""

    dataset_id: DatasetId
    item: str
    content_version: str
    status: FileState
    at: datetime


def trace_run(project: Project, db: Db, run_id: str, bounds: Bounds) -> Lineage:
    """Walk from a run; `NotFound`."""
    found = walk(_Actual(project, db), run_id, [RunId(run_id)], bounds)
    # A run without a program is of no namespace: a caller of one namespace knows such a run by its data only.
    known = [node for node in found.nodes if node.depth or node.program or project.access.only is None]
    if not known:
        raise NotFound("run", run_id)
    return found


def trace_partition(project: Project, db: Db, dataset: Dataset, partition: str, bounds: Bounds) -> Lineage:
    """Walk from the current changes of a partition, of a dropped one from the drop; `BadKey`, `NotFound`."""
    if dataset.kind is not DatasetKind.FILESET:
        cure = f"{dataset.qualified_name} is a data set of kind {dataset.kind}; name a file set"
        raise BadLineage("partition", partition, cure)
    keys = Fileset.of(dataset).keys
    key = keys.encode(keys.read(partition))
    of, most = dataset.dataset_id, bounds.nodes + 1
    pointers = db.records(SQL.list_current_changes, WritePointer, dataset_id=of, item=key, limit=most)
    thing = f"{dataset.qualified_name}/{keys.to_path(keys.decode(key))}"
    if not pointers:
        hint = f"`tidemill dataset partitions {dataset.qualified_name}` lists the partitions"
        raise NotFound("partition", thing, hint=hint)
    roots = [Content(of, pointer, key) for pointer in pointers]
    return walk(_Actual(project, db), thing, roots, bounds)


def trace_version(project: Project, db: Db, dataset: Dataset, version: int, bounds: Bounds) -> Lineage:
    """Walk from a version of a snapshot; `NotFound`."""
    if dataset.kind is not DatasetKind.SNAPSHOT:
        cure = f"{dataset.qualified_name} is a data set of kind {dataset.kind}; name a snapshot"
        raise BadLineage("version", version, cure)
    thing = f"version {version} of {dataset.qualified_name}"
    root = Content(dataset.dataset_id, WritePointer(version), "")
    if not _find_writers(db, root):
        hint = f"`tidemill snapshot versions {dataset.qualified_name}` lists the versions"
        raise NotFound("version", thing, hint=hint)
    return walk(_Actual(project, db), thing, [root], bounds)


def trace_file(project: Project, db: Db, inbox: Inbox, name: str, bounds: Bounds) -> Lineage:
    """Walk from all recorded contents of a file of an inbox; `NotFound`."""
    known = find_contents(db, {inbox.dataset_id: inbox}, name)
    thing = f"{inbox.qualified_name}/{name}"
    if not known:
        hint = f"`tidemill inbox files {inbox.qualified_name}` lists the files"
        raise NotFound("file", thing, hint=hint)
    roots = [Content(inbox.dataset_id, WritePointer(0), name, one.file.content_version) for one in known]
    return walk(_Actual(project, db), thing, roots, bounds)


class _Actual:
    """The actual graph in one read of the catalog, as far as the caller may read."""

    def __init__(self, project: Project, db: Db) -> None:
        self._project = project
        self._db = db
        self._datasets: dict[DatasetId, Dataset | None] = {}
        self._shapes: dict[DatasetId, Fileset] = {}

    def steps(self, places: Sequence[_Place], direction: Direction, most: int) -> Iterator[LineageStep[_Place]]:
        """Yield edges, place by place: each is a look-up by an index."""
        up = direction is Direction.UPSTREAM
        for place in places:
            match place, up:
                case Content(), True:
                    writers = _find_writers(self._db, place)
                    yield from (LineageStep[_Place](run_id, place, EdgeKind.WRITES) for run_id in writers)
                case Content(), False:
                    found = self._db.records(SQL.list_readers, RunId, **place._asdict(), limit=most)
                    yield from (LineageStep[_Place](place, run_id, EdgeKind.READS) for run_id in found)
                case _, True:
                    taken = self._db.records(SQL.list_inputs, Content, run_id=str(place), limit=most)
                    yield from (LineageStep[_Place](content, place, EdgeKind.READS) for content in taken)
                case _:
                    rows = self._db.records(
                        SQL.list_outputs, tuple[DatasetId, WritePointer, str], run_id=str(place), limit=most
                    )
                    yield from (LineageStep[_Place](place, Content(*row), EdgeKind.WRITES) for row in rows)

    def describe(self, places: Sequence[_Place]) -> Mapping[_Place, DescribedPlace]:
        """Describe runs, changes and files, each kind in one statement."""
        contents = [place for place in places if isinstance(place, Content)]
        self._know(contents)
        shown = [one for one in contents if self._datasets[one.dataset_id] is not None]
        found: dict[_Place, DescribedPlace] = {}
        found.update(self._describe_runs([place for place in places if not isinstance(place, Content)]))
        found.update(self._describe_changes([one for one in shown if self._kind(one) is not NodeKind.FILE]))
        found.update(self._describe_files([one for one in shown if self._kind(one) is NodeKind.FILE]))
        return found

    def _know(self, contents: Sequence[Content]) -> None:
        """Look up the data sets of `contents` that were not met before. None for what the caller may not read."""
        unknown = {one.dataset_id for one in contents} - self._datasets.keys()
        if not unknown:
            return
        known = find_some(self._db, unknown)
        for dataset_id in unknown:
            dataset = known.get(dataset_id)
            readable = dataset is not None and self._project.access.sees(dataset.namespace)
            self._datasets[dataset_id] = dataset if readable else None
            if dataset is not None and dataset.kind is DatasetKind.FILESET:
                self._shapes[dataset_id] = Fileset.of(dataset)

    def _kind(self, content: Content) -> NodeKind:
        dataset = self._datasets[content.dataset_id]
        match dataset:
            case Dataset(kind=DatasetKind.INBOX):
                return NodeKind.FILE
            case Dataset(kind=DatasetKind.SNAPSHOT):
                return NodeKind.VERSION
            case _:
                return NodeKind.PARTITION

    def _name(self, content: Content) -> str:
        """Return the name of a content, as `why` takes it."""
        dataset = self._datasets[content.dataset_id]
        assert dataset is not None, "contents that the caller may not read have no name"  # noqa: S101
        match self._kind(content):
            case NodeKind.FILE:
                return f"{dataset.qualified_name}/{content.item}"
            case NodeKind.VERSION:
                return dataset.qualified_name
            case _:
                keys = self._shapes[content.dataset_id].keys
                return f"{dataset.qualified_name}/{keys.to_path(keys.decode(KeyText(content.item)))}"

    def _describe_runs(self, run_ids: Sequence[RunId]) -> Iterator[tuple[_Place, DescribedPlace]]:
        rows = self._db.records(SQL.describe_runs, _RunRow, run_ids=json.dumps(run_ids)) if run_ids else []
        names = program_names(self._db, (row.program_id for row in rows))
        for row in rows:
            program = None if row.program_id is None else names.get(row.program_id)
            if program is None or self._project.access.sees(split_qualified("program", program, 2)[0]):
                yield row.run_id, DescribedPlace(row.run_id, NodeKind.RUN, row.run_id, row.state, row.at, program)

    def _describe_changes(self, contents: Sequence[Content]) -> Iterator[tuple[_Place, DescribedPlace]]:
        wanted = to_json([one._asdict() for one in contents])
        rows = self._db.records(SQL.describe_changes, _ChangeRow, contents=wanted) if contents else []
        for row in rows:
            content = Content(row.dataset_id, row.write_pointer, row.item)
            state = "dropped" if row.op == "drop" else "current" if row.is_current else "superseded"
            kind, name = self._kind(content), self._name(content)
            shown = f"{kind}:{name}@{row.write_pointer}"
            yield content, DescribedPlace(shown, kind, name, state, row.at, write_pointer=row.write_pointer)

    def _describe_files(self, contents: Sequence[Content]) -> Iterator[tuple[_Place, DescribedPlace]]:
        wanted = to_json([one._asdict() for one in contents])
        rows = self._db.records(SQL.describe_files, _FileRow, contents=wanted) if contents else []
        known = {Content(row.dataset_id, WritePointer(0), row.item, row.content_version): row for row in rows}
        for content in contents:
            row, name = known.get(content), self._name(content)
            state, at = (FORGOTTEN, None) if row is None else (str(row.status), row.at)
            shown = f"{NodeKind.FILE}:{name}@{content.content_version}"
            yield content, DescribedPlace(shown, NodeKind.FILE, name, state, at)


def _find_writers(db: Db, content: Content) -> list[RunId]:
    """Return the run that wrote a change or version; nothing for a file, and for what is not there."""
    return db.records(
        SQL.find_writer,
        RunId,
        dataset_id=content.dataset_id,
        write_pointer=content.write_pointer,
        item=content.item,
    )
