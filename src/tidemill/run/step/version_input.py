"""`SnapshotInput`: the version of a snapshot that is current when an attempt begins. It is pinned, not claimed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.lake.claims import ClaimTable
from tidemill.lake.consumer.managed import Consumer
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.snapshot.snapshot import PinVersions, RecordVersions, SnapshotDataset, Version, find_current
from tidemill.names import PinId, WritePointer
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import RunRecord
from tidemill.run.step.input_kind import InputKind, TakenInput
from tidemill.run.step.workspace import Workspace
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class SnapshotInput:
    """The version of a snapshot that was current at the begin of this attempt; it stays while the attempt lasts."""

    def __init__(self, run: Workspace, snapshot: SnapshotDataset, version: Version) -> None:
        self._run = run
        self._snapshot = snapshot
        self._version = version

    @property
    def version(self) -> int:
        """Number of the version: the write pointer of its refresh."""
        return self._version.version

    def read(self) -> DataFrame:
        """All its rows."""
        return self._run.versions.read_pinned(self._run.spark, self._snapshot, self._version)


class TakenVersion(TakenInput):
    """A version that an attempt has pinned."""

    def __init__(self, snapshot: SnapshotDataset, version: Version) -> None:
        self.snapshot = snapshot
        self.version = version

    @property
    def empty(self) -> None:
        """None: there always is a version, which says nothing about work."""
        return

    def open(self, run: Workspace) -> SnapshotInput:
        """Return what the program sees."""
        return SnapshotInput(run, self.snapshot, self.version)

    def count(self) -> dict[str, object]:
        """Return the rows of the version."""
        rows = self.version.manifest.total_rows
        return {"kind": "snapshot", "count": 1, "of": "version", "rows": rows, "version": self.version.version}


@dataclass(eq=False)
class VersionInputs(InputKind):
    """The snapshots that a program reads whole."""

    source_kind = DatasetKind.SNAPSHOT

    sources: Mapping[str, SnapshotDataset]
    taken: Mapping[str, TakenVersion] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, db: Db, program: Program, datasets: Mapping[str, Dataset], consumers: Mapping[str, Consumer]
    ) -> VersionInputs:
        """Find the snapshots of which the program has no feed."""
        del db, program
        sources = {
            name: SnapshotDataset.of(dataset)
            for name, dataset in datasets.items()
            if dataset.kind is cls.source_kind and name not in consumers
        }
        return cls(sources)

    @classmethod
    def show_item(cls, dataset: Dataset, write_pointer: WritePointer, item: str) -> str:
        """Return the version."""
        del dataset, item
        return f"version {write_pointer}"

    def begin(self, record: RunRecord, world: World) -> Sequence[Effect]:
        """Pin what is current."""
        pins = [(PinId(world.new_id("pin")), snapshot.dataset_id) for snapshot in self.sources.values()]
        return (PinVersions(record.run_id, pins),)

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Find the versions; `NoVersionYet`."""
        del beside
        self.taken = {
            name: TakenVersion(snapshot, catalog.read(partial(find_current, snapshot=snapshot, seen=tx)))
            for name, snapshot in self.sources.items()
        }

    def complete(self, tx: Transaction) -> Sequence[Effect]:
        """Record the versions as inputs of the run."""
        read = [(one.snapshot.dataset_id, one.version.version) for one in self.taken.values()]
        return (RecordVersions(tx.run_id, read),)
