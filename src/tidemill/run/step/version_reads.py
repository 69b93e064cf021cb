"""Reading versions of snapshots, and what changed between them: pinned for a run first, so that they stay meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.transactions import Snapshot, Transaction
from tidemill.frames.version_diff import diff_frames
from tidemill.lake.fileset.fileset import pin_within
from tidemill.lake.snapshot.changes import FeedChange
from tidemill.lake.snapshot.snapshot import NoVersionYet, SnapshotDataset, Version
from tidemill.lake.snapshot.versions import find_version
from tidemill.names import PinId, WritePointer
from tidemill.run.records.declared import find_dataset
from tidemill.run.step.reads import ReadChanges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def find_snapshot(db: Db, name: str) -> SnapshotDataset:
    """The snapshot of that qualified name; `NotFound`, `NotASnapshot`."""
    return SnapshotDataset.of(find_dataset(db, name))


@dataclass(frozen=True, slots=True)
class VersionReader:
    """Reads of a snapshot's versions by a run. The files in `reads` are checked once more before the commit."""

    catalog: Catalog
    tx: Transaction
    reads: ReadChanges

    def read(self, spark: SparkSession, snapshot: SnapshotDataset, number: int) -> DataFrame:
        """The rows of a version, pinned; `NotFound`, `VersionGone`."""
        return self.read_pinned(spark, snapshot, self._pin(snapshot, number))

    def read_pinned(self, spark: SparkSession, snapshot: SnapshotDataset, version: Version) -> DataFrame:
        """The rows of a version that the run has pinned, by the columns that it was written with."""
        from tidemill.frames.spark import read_partitions

        parts = [version.partition]
        frame = read_partitions(self.catalog.world, spark, snapshot.fileset, parts, version.columns)
        self.reads.add(snapshot.fileset, parts)
        return frame

    def diff(
        self, spark: SparkSession, snapshot: SnapshotDataset, old: int, new: int, key: Sequence[str] = ()
    ) -> DataFrame:
        """Return the rows by which version `new` differs from `old` (`diff_frames`). Both versions are pinned.

        `key` replaces the declared key.
        """
        before, after = (self.read(spark, snapshot, number) for number in (old, new))
        return diff_frames(snapshot.qualified_name, before, after, key or snapshot.spec.key)

    def diff_changed(self, spark: SparkSession, changed: FeedChange) -> DataFrame:
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
            pin_within(db, self.tx, pin_id, snapshot.dataset_id, at)
            return find_version(db, snapshot, number)  # under the lock that `pin` has taken

        return self.catalog.write(block)
