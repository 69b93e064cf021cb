"""Data sets: what has a name, a kind and a location of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from tidemill.catalog.db import Db
from tidemill.catalog.named import ALL_ROWS, Row, load_sql
from tidemill.errors import NotFound, UserError
from tidemill.json_specs import read_plain
from tidemill.names import DatasetId, Namespace, WritePointer, check_name, nearest, qualified
from tidemill.shapes.expectation import Arrivals
from tidemill.storage.locations import resolved

if TYPE_CHECKING:
    from tidemill.lake.datasets_sql import Sql

SQL: Sql = load_sql(__file__)


class DatasetKind(StrEnum):
    """The kind of a data set: published partitions, a folder of incoming files, or versions of a whole."""

    FILESET = "fileset"
    INBOX = "inbox"
    SNAPSHOT = "snapshot"


class DatasetClash(UserError):
    """A declaration that would make two data sets one, or one data set another."""

    code = "dataset_clash"
    hint = "correct the declaration of the data set, and deploy again"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        self.why = why
        super().__init__(f"data set {dataset} {why}")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set as the catalog keeps it; `spec` is what its kind needs to know (keys of a file set, …)."""

    dataset_id: DatasetId
    namespace: Namespace
    name: str
    kind: DatasetKind
    location: str
    spec: Mapping[str, object]
    app: str | None = None
    root: str | None = field(default=None, compare=False)
    """The identity of the folder of an inbox when files were in it (`Files.check_location`); None if not known."""
    generation: int = field(default=1, compare=False)
    """The number of the declaration: each change of the row makes the next."""

    def __post_init__(self) -> None:
        """Refuse a bad name."""
        check_name("data set", self.name)

    @property
    def qualified_name(self) -> str:
        """The name that messages and people use: `default.clicks`."""
        return qualified(self.namespace, self.name)

    @property
    def archive(self) -> str | None:
        """The archive for processed files of an inbox, as a URL; None without an archive."""
        archive = self.spec.get("archive")
        return archive if isinstance(archive, str) else None

    @property
    def expect(self) -> Arrivals | None:
        """The arrival expectation, if the data set declares one."""
        expect = self.spec.get("expect")
        return None if expect is None else read_plain(Arrivals, expect)

    @property
    def altered(self) -> Mapping[str, object]:
        """The additions of statements (ALTER TABLE) to the spec. A deployment without such options keeps them."""
        watermark = self.spec.get("watermark")
        by_statement = isinstance(watermark, Mapping) and watermark.get("by") == "statement"
        return {"watermark": watermark} if by_statement else {}


def declare(db: Db, dataset: Dataset, resolve: Callable[[str], str] = resolved) -> Dataset:
    """Create the data set, or bring the one of this name up to date; give it with the id that it has in the catalog.

    `location` is an absolute URL, as `Files.url` gives it. Raises `DatasetClash` when the name belongs to another kind
    or another app, when the location is, holds or lies in that of another data set (the janitor would delete the
    other's files), when the one's archive is, holds or lies in the location of the other or of its own inbox (what is
    moved there would be found as new), or when what is published would change its keys or its location, under which its
    files are. A caller that declares many passes a `resolve` that remembers. Cost: grows with the number of data sets.
    """
    _refuse_overlaps(db, dataset, resolve)
    row = db.one(SQL.find_by_name, namespace=dataset.namespace, name=dataset.name)
    if row is None:
        db.run(
            SQL.insert_dataset,
            dataset_id=dataset.dataset_id,
            namespace=dataset.namespace,
            name=dataset.name,
            app=dataset.app,
            kind=dataset.kind,
            location=dataset.location,
            spec=json.dumps(dataset.spec),
        )
        return dataset
    present = _dataset(row)
    _refuse_change(present, dataset)
    kept = replace(dataset, dataset_id=present.dataset_id, spec=dict(present.altered) | dict(dataset.spec))
    if kept != present:
        db.run(
            SQL.update_dataset,
            dataset_id=kept.dataset_id,
            app=kept.app,
            location=kept.location,
            spec=json.dumps(kept.spec),
        )
    return kept


def change_spec(db: Db, dataset: Dataset) -> None:
    """Store the spec of a data set that is there, and nothing else of it."""
    db.run(
        SQL.update_dataset,
        dataset_id=dataset.dataset_id,
        app=dataset.app,
        location=dataset.location,
        spec=json.dumps(dataset.spec),
    )


def drop_dataset(db: Db, dataset: Dataset) -> None:
    """Mark a data set as dropped: its name is free, its rows stay as history. Call it after a tick.

    The caller has checked that nothing uses the data set.
    """
    db.run(SQL.drop_dataset, dataset_id=dataset.dataset_id)


def list_writers(db: Db, dataset: Dataset) -> list[WritePointer]:
    """List the open transactions that have declared to write the data set, oldest first."""
    return db.records(SQL.list_writers, WritePointer, dataset_id=dataset.dataset_id)


def find(db: Db, namespace: Namespace, name: str, *, everywhere: bool = False) -> Dataset:
    """The data set of this name; `NotFound`, with the nearest name of its namespace, when there is none.

    `everywhere` looks for the nearest name in all namespaces, for a caller that may read all of them.
    """
    row = db.one(SQL.find_by_name, namespace=namespace, name=name)
    if row is None:
        known = [d.qualified_name for d in list_datasets(db) if everywhere or d.namespace == namespace]
        wanted = qualified(namespace, name)
        raise NotFound("data set", wanted, nearest(wanted, known), hint="`tidemill dataset list` lists them all")
    return _dataset(row)


def find_present(db: Db, namespace: Namespace, name: str) -> Dataset | None:
    """The data set of this name, if there is one."""
    row = db.one(SQL.find_by_name, namespace=namespace, name=name)
    return None if row is None else _dataset(row)


def find_by_id(db: Db, dataset_id: DatasetId) -> Dataset:
    """The data set with this id; `NotFound` when there is none."""
    row = db.one(SQL.find_by_id, dataset_id=dataset_id)
    if row is None:
        raise NotFound("data set", dataset_id)
    return _dataset(row)


def find_some(db: Db, dataset_ids: Iterable[DatasetId]) -> dict[DatasetId, Dataset]:
    """Return those of `dataset_ids` that are there, by their ids. Cost: look-ups."""
    found = db.records(SQL.find_some, Dataset, dataset_ids=json.dumps(sorted(set(dataset_ids))))
    return {dataset.dataset_id: dataset for dataset in found}


def list_datasets(
    db: Db,
    *,
    kind: DatasetKind | None = None,
    app: tuple[Namespace, str] | None = None,
    after: tuple[str, str] = ("", ""),
    limit: int = ALL_ROWS,
) -> list[Dataset]:
    """List data sets (of a kind, of an app) by namespace and name, from the name behind `after` on.

    Cost: the page. With an app, the data sets of the kind, or of the namespace.
    """
    namespace, name = after
    of = {"of_namespace": None if app is None else app[0], "app": None if app is None else app[1], "limit": limit}
    if kind is not None:
        return db.records(SQL.list_of_kind, Dataset, kind=kind, after_namespace=namespace, after_name=name, **of)
    if app is not None:
        return db.records(SQL.list_of_app, Dataset, after_name=name if namespace == app[0] else "", **of)
    return db.records(SQL.list_all, Dataset, after_namespace=namespace, after_name=name, limit=limit)


def _refuse_overlaps(db: Db, dataset: Dataset, resolve: Callable[[str], str]) -> None:
    def meet(one: str | None, other: str | None) -> bool:
        if one is None or other is None:
            return False
        first, second = f"{resolve(one)}/", f"{resolve(other)}/"
        return first.startswith(second) or second.startswith(first)

    name, location, archive = dataset.qualified_name, dataset.location, dataset.archive
    if meet(archive, location):
        why = f"has its archive {archive} within {location}, or around it: its files would be found again"
        raise DatasetClash(name, why)
    for other in list_datasets(db):
        if other.qualified_name == name:
            continue
        if meet(location, other.location):
            why = f"shares its location with {other.qualified_name}: {location} and {other.location}"
            raise DatasetClash(name, f"{why}; give each a folder of its own")
        # Two may share one archive: nothing in it is overwritten, and no inbox looks for files there.
        for whose, put, theirs, there in (
            (name, archive, other.qualified_name, other.location),
            (other.qualified_name, other.archive, name, location),
        ):
            if meet(put, there):
                why = f"the archive {put} of {whose} lies within {there} of {theirs}, or around it"
                raise DatasetClash(name, f"cannot be: {why}; files that are put there would be taken for files of it")


def _refuse_change(present: Dataset, wanted: Dataset) -> None:
    name = present.qualified_name
    if present.kind is not wanted.kind:
        raise DatasetClash(name, f"is a data set of kind {present.kind}, not {wanted.kind}: give it another name")
    if present.app != wanted.app:
        raise DatasetClash(name, f"belongs to app {present.app}, not to {wanted.app}: give it another name")
    if present.kind is not DatasetKind.INBOX:
        if present.spec.get("keys") != wanted.spec.get("keys"):
            raise DatasetClash(name, f"has the keys {present.spec.get('keys')}, which cannot be changed")
        if present.location != wanted.location:
            raise DatasetClash(name, f"has its files at {present.location}, not at {wanted.location}")
        if present.spec.get("format") != wanted.spec.get("format"):
            was = present.spec.get("format", "parquet")
            raise DatasetClash(name, f"has files of format {was}, which cannot be changed: give it another name")


def _dataset(row: Row) -> Dataset:
    dataset_id, namespace, name, kind, location, spec, app, root, generation = row
    decoded: dict[str, Any] = json.loads(str(spec))
    return Dataset(
        DatasetId(str(dataset_id)),
        Namespace(str(namespace)),
        str(name),
        DatasetKind(str(kind)),
        str(location),
        decoded,
        None if app is None else str(app),
        None if root is None else str(root),
        int(str(generation)),
    )
