"""Reading versions of snapshots, and what changed between them: pinned for a run first, so that they stay meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.fileset import pin
from tidemill.lake.snapshot.changes import Changed
from tidemill.lake.snapshot.snapshot import NoVersionYet, SnapshotDataset, Version
from tidemill.lake.snapshot.version_diff import diff_frames
from tidemill.lake.snapshot.versions import find_version
from tidemill.names import PinId, RunId, WritePointer
from tidemill.run.inputs import find_dataset
from tidemill.run.reads import Reads

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def find_snapshot(db: Db, name: str) -> SnapshotDataset:
    """The snapshot of that qualified name; `NotFound`, `NotASnapshot`."""
    return SnapshotDataset.of(find_dataset(db, name))


class ReadingRun(Protocol):
    """The run that an input is of."""

    @property
    def spark(self) -> SparkSession:
        """Its session."""

    @property
    def versions(self) -> VersionReader:
        """By which its inputs read."""


class SnapshotInput:
    """The version of a snapshot that was current at the begin of this attempt; it stays while the attempt lasts."""

    def __init__(self, run: ReadingRun, snapshot: SnapshotDataset, version: Version) -> None:
        self._run = run
        self._snapshot = snapshot
        self._version = version

    @property
    def version(self) -> int:
        """Its number: the write pointer of its refresh, its logical time."""
        return self._version.version

    def read(self) -> DataFrame:
        """All its rows."""
        return self._run.versions.read_pinned(self._run.spark, self._snapshot, self._version)


class ChangesInput:
    """What has changed in a snapshot since the last run of this program that committed, and no other run of it gets."""

    def __init__(self, run: ReadingRun, changed: Changed) -> None:
        self._run = run
        self._changed = changed

    @property
    def since(self) -> int | None:
        """The version that this program has seen; None at the first time, when all rows are inserted."""
        return None if self._changed.old is None else self._changed.old.version

    @property
    def version(self) -> int | None:
        """The version that was current at the begin of this attempt; None before the first."""
        return None if self._changed.new is None else self._changed.new.version

    def read(self) -> DataFrame:
        """The rows that differ, as `Run.diff` has them: `change`, the key, `before` and `after`."""
        return self._run.versions.diff_changed(self._run.spark, self._changed)


@dataclass(frozen=True, slots=True)
class VersionReader:
    """What a run reads of versions, by whichever number; `reads` are looked at once more before its commit."""

    catalog: Catalog
    run_id: RunId
    reads: Reads

    def read(self, spark: SparkSession, snapshot: SnapshotDataset, number: int) -> DataFrame:
        """The rows of a version, pinned; `NotFound`, `VersionGone`."""
        return self.read_pinned(spark, snapshot, self._pin(snapshot, number))

    def read_pinned(self, spark: SparkSession, snapshot: SnapshotDataset, version: Version) -> DataFrame:
        """The rows of a version that the run has pinned, by the columns that it was written with."""
        from tidemill.lake.spark import read_partitions

        parts = [version.partition]
        frame = read_partitions(self.catalog.world, spark, snapshot.fileset, parts, version.columns)
        self.reads.add(snapshot.fileset, parts)
        return frame

    def diff(
        self, spark: SparkSession, snapshot: SnapshotDataset, old: int, new: int, key: Sequence[str] = ()
    ) -> DataFrame:
        """By which rows version `new` differs from `old` (`diff_frames`), both pinned; `key`: not the declared one."""
        before, after = (self.read(spark, snapshot, number) for number in (old, new))
        return diff_frames(snapshot.qualified_name, before, after, key or snapshot.spec.key)

    def diff_changed(self, spark: SparkSession, changed: Changed) -> DataFrame:
        """The rows that changed; all of the first version as inserted. `NoVersionYet`."""
        snapshot = changed.snapshot
        if changed.new is None:
            raise NoVersionYet(snapshot.qualified_name)
        new = changed.new.version
        if changed.old is not None:
            return self.diff(spark, snapshot, changed.old.version, new)
        after = self.read(spark, snapshot, new)
        return diff_frames(snapshot.qualified_name, after.limit(0), after, snapshot.spec.key)

    def _pin(self, snapshot: SnapshotDataset, number: int) -> Version:
        pin_id = PinId(self.catalog.world.new_id("pin"))

        def block(db: Db) -> Version:
            # At its own commit: so a version that never was current is pinned too.
            seen = find_version(db, snapshot, number)
            at = Snapshot(WritePointer(seen.commit_seq), self.catalog.incarnation)
            pin(db, pin_id, snapshot.dataset_id, at, self.run_id)
            return find_version(db, snapshot, number)  # under the lock that `pin` has taken

        return self.catalog.write(block)
