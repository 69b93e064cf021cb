"""Snapshots: data sets that mirror a source whole; each refresh is a version, and one version is current (seed 002).

A snapshot is a file set with one partition, overwritten whole: its versions are that partition's history, named by the
write pointers of their transactions. When two refreshes overlap and the earlier one (`refresh_order`) finishes last, it
becomes history and never current.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Self

from tidemill.catalog.db import Db, refusal
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, Param, load_sql
from tidemill.catalog.transactions import Snapshot as TransactionSnapshot
from tidemill.catalog.transactions import Transaction, UndeclaredOutput
from tidemill.errors import UserError
from tidemill.json_specs import read_plain
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import Change, ColumnSchema, Fileset, Partition, WriteOp
from tidemill.lake.fileset.publish import SQL as PUBLISH
from tidemill.lake.snapshot.guards import Figures, Guards
from tidemill.lake.snapshot.refresh_order import RefreshOrder
from tidemill.lake.snapshot.version_retention import Retention
from tidemill.names import CommitSeq, DatasetId, PinId, RunId, WritePointer, snapshot_event
from tidemill.shapes.expectation import Arrivals
from tidemill.shapes.keys import NO_KEYS
from tidemill.shapes.manifest import Manifest, tx_directory

if TYPE_CHECKING:
    from tidemill.lake.snapshot.snapshot_sql import Sql

SQL: Sql = load_sql(__file__)

_KEY: Final = NO_KEYS.encode(())


class NoVersionYet(UserError):
    """A snapshot was to be read before its first refresh has committed."""

    code = "no_version_yet"

    def __init__(self, dataset: str) -> None:
        self.dataset = dataset
        super().__init__(f"{dataset} has no version yet", "run the program that refreshes it first", before=": ")


@refusal
class VersionGone(UserError):
    """An expired version: its files are deleted, or soon will be."""

    code = "version_gone"

    def __init__(self, dataset: str, version: str) -> None:
        self.dataset = dataset
        self.version = int(version)
        super().__init__(
            f"version {version} of {dataset} has expired",
            f"`tidemill snapshot versions {dataset}` lists them all; ttl, min_versions and max_versions say how long",
        )


class NotASnapshot(UserError):
    """Something that only snapshots know was asked of another data set, or the other way round."""

    code = "not_a_snapshot"
    hint = "name a data set of the wanted kind: `tidemill dataset list` shows the kinds"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        self.why = why
        super().__init__(f"{dataset} {why}")


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """The declaration of a snapshot; `key` names the columns that identify a row, for diffs and guards."""

    key: tuple[str, ...] = ()
    retention: Retention = field(default_factory=Retention)
    guards: Guards = field(default_factory=Guards)
    expect: Arrivals | None = None

    def __post_init__(self) -> None:
        """Refuse a check of a key that there is not."""
        if self.guards.check_key and not self.key:
            raise UserError("check_key needs a key: name its columns in key=[…]")


@dataclass(frozen=True, slots=True)
class SnapshotDataset:
    """A data set of versions."""

    fileset: Fileset
    spec: SnapshotSpec

    @classmethod
    def of(cls, dataset: Dataset) -> Self:
        """Return `dataset` as a snapshot; `NotASnapshot` if it is of another kind."""
        if dataset.kind is not DatasetKind.SNAPSHOT:
            raise NotASnapshot(dataset.qualified_name, f"is a data set of kind {dataset.kind}, not a snapshot")
        return cls(Fileset.of(dataset), read_plain(SnapshotSpec, dataset.spec))

    @property
    def dataset_id(self) -> DatasetId:
        """Id of the data set."""
        return self.fileset.dataset_id

    @property
    def qualified_name(self) -> str:
        """Name of the snapshot, as people and messages use it."""
        return self.fileset.qualified_name


@dataclass(frozen=True, slots=True)
class Version:
    """A committed version; `version` is the write pointer of its refresh, `superseded_seq` None while it is current."""

    version: WritePointer
    commit_seq: CommitSeq
    superseded_seq: CommitSeq | None
    location: str
    manifest: Manifest
    columns: ColumnSchema
    run_id: RunId
    at: datetime
    metadata: Mapping[str, object]

    @property
    def partition(self) -> Partition:
        """Files of the version, as the only partition."""
        change = Change(_KEY, self.version, self.commit_seq, WriteOp.OVERWRITE, self.location, self.manifest)
        return Partition(_KEY, (change,))

    @property
    def figures(self) -> Figures:
        """Return the measures that guards compare with the next refresh."""
        return Figures(self.manifest.total_rows, self.columns.text)


@dataclass(frozen=True, slots=True)
class StoredVersion:
    """A version as the catalog keeps it, which may have expired."""

    found: Version
    dataset: str
    expired_at: datetime | None

    @property
    def kept(self) -> Version:
        """The version; `VersionGone` if it has expired."""
        if self.expired_at is not None:
            raise VersionGone(self.dataset, str(self.found.version))
        return self.found


def find_visible(db: Db, dataset_id: DatasetId, snapshot: TransactionSnapshot) -> Version | None:
    """The version that was current at the begin of `snapshot`, at any later time; None before the first.

    `VersionGone` if the version has expired, which never happens under an open transaction.
    """
    found = db.record(SQL.find_visible, StoredVersion, dataset_id=dataset_id, write_pointer=snapshot.write_pointer)
    return None if found is None else found.kept


def find_current(db: Db, snapshot: SnapshotDataset, seen: TransactionSnapshot) -> Version:
    """The version that was current at the begin of `seen`; `NoVersionYet` before the first."""
    version = find_visible(db, snapshot.dataset_id, seen)
    if version is None:
        raise NoVersionYet(snapshot.qualified_name)
    return version


@dataclass(frozen=True, slots=True)
class PublishVersion(Effect):
    """Publish what a refresh wrote: current with the commit, and announced, unless a later version is current already.

    `order` is what `find_order` gives. `location` is the directory of the files when that is not the transaction's own.
    If `quiet`, the version is not announced.
    """

    phase = Phase.PUBLISH

    tx: Transaction
    snapshot: SnapshotDataset
    manifest: Manifest
    columns: ColumnSchema
    order: RefreshOrder
    location: str | None = None
    metadata: Mapping[str, object] | None = None
    quiet: bool = False

    def __post_init__(self) -> None:
        """Refuse what was not declared at begin."""
        if self.snapshot.dataset_id not in self.tx.writes:
            raise UndeclaredOutput(self.snapshot.qualified_name, str(self.tx.write_pointer))

    def writes(self) -> Sequence[Call]:
        """Supersede, insert, announce."""
        dataset = self.snapshot.fileset.dataset
        place: dict[str, Param] = {"dataset_id": dataset.dataset_id, "write_pointer": self.tx.write_pointer}
        schema_id, run_id = self.columns.schema_id, self.tx.run_id
        version = {
            "manifest": base64.b64encode(self.manifest.encode()).decode(),
            "files": len(self.manifest.files),
            "bytes": self.manifest.total_bytes,
            "row_count": self.manifest.total_rows,
        }
        ordered: dict[str, Param] = {**place, "order_time": self.order.order_time}
        inserted: dict[str, Param] = {
            **ordered,
            "logical_time": self.order.logical_time,
            "location": self.location or tx_directory(self.tx),
            "schema_id": schema_id,
            "metadata": None if self.metadata is None else json.dumps(self.metadata),
            "run_id": run_id,
            "version": json.dumps([version]),
        }
        payload = {
            "dataset": dataset.qualified_name,
            "run": run_id,
            "version": self.tx.write_pointer,
            "count": 1,
            "rows": self.manifest.total_rows,
            "bytes": self.manifest.total_bytes,
        }
        event_key = snapshot_event(dataset.namespace, dataset.name)
        schema: dict[str, Param] = {"schema_id": schema_id, "schema": self.columns.text, "run_id": run_id}
        announced = (
            () if self.quiet else (SQL.publish_if_current(**place, event_key=event_key, payload=json.dumps(payload)),)
        )
        return (
            PUBLISH.insert_schema(dataset_id=dataset.dataset_id, **schema),
            SQL.supersede_older(**ordered),
            SQL.insert_version(**inserted),
            *announced,
        )


@dataclass(frozen=True, slots=True)
class PinVersions(Effect):
    """Keep the versions that a transaction sees from its begin on, until its run drops its pins; an effect of begin.

    Takes no lock of the data set: an expiry takes a tick too, and the current version never expires.
    """

    phase = Phase.CLAIMS

    run_id: RunId
    pins: Sequence[tuple[PinId, DatasetId]]

    def writes(self) -> Sequence[Call]:
        """Return a pin for each version."""
        return tuple(
            SQL.pin_at_begin(pin_id=pin_id, dataset_id=dataset_id, run_id=self.run_id)
            for pin_id, dataset_id in self.pins
        )


@dataclass(frozen=True, slots=True)
class RecordVersions(Effect):
    """Note which versions a run has read, with its other inputs: what came of a bad one is found by it."""

    phase = Phase.CLAIMS

    run_id: RunId
    versions: Sequence[tuple[DatasetId, WritePointer]]

    def writes(self) -> Sequence[Call]:
        """Return a row for each version."""
        read = json.dumps([{"dataset_id": dataset_id, "version": version} for dataset_id, version in self.versions])
        return (SQL.record_read(run_id=self.run_id, read=read),) if self.versions else ()
