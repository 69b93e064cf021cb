"""Snapshots, as `Mill` offers them: their versions, what differs, the way back to one, the end of those that may go.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidemill.catalog.db import Db
from tidemill.lake.snapshot.snapshot import SnapshotDataset
from tidemill.lake.snapshot.version_diff import NotComparable, VersionDiff, check_key, count_changes
from tidemill.lake.snapshot.versions import KeptVersion, expire_of, find_version, list_versions
from tidemill.mill.project import Project


class Snapshots(Project):
    """Operations on snapshots."""

    def list_versions(self, name: str) -> list[KeptVersion]:
        """The versions of a snapshot that can be read, newest first; `NotFound`, `NotASnapshot`."""
        return self.catalog.read(lambda db: list_versions(db, self._snapshot(db, name)))

    def roll_back(self, name: str, version: int) -> KeptVersion:
        """Make an older version current again, as a new version that has its files; the new one.

        The next refresh replaces it: suspend its schedule first. Raises `NotFound`, `VersionGone`,
        `RefreshedMeanwhile`. Its run records who did it.
        """
        # Half of what this module would load, and no list needs it.
        from tidemill.run.external import open_transaction

        snapshot = self.catalog.read(lambda db: self._snapshot(db, name))
        qualified = snapshot.qualified_name
        with open_transaction(self.catalog, self.world, [qualified], lease=self.config.lease) as tx:
            tx.roll_back(qualified, version)
        versions = self.catalog.read(lambda db: list_versions(db, snapshot))
        return next(one for one in versions if one.version == tx.write_pointer)

    def expire_versions(self, name: str, versions: Collection[int] = ()) -> list[int]:
        """Let go what retention does not keep, or else the `versions` named; which. The janitor deletes their files.

        `VersionHeld` for one that is current or has a reader.
        """
        snapshot = self.catalog.read(lambda db: self._snapshot(db, name))
        return list(expire_of(self.catalog, snapshot, self.config.keep_superseded, versions))

    def diff_versions(
        self, name: str, old: int, new: int, *, key: Sequence[str] = (), limit: int = 1000
    ) -> VersionDiff:
        """By how many rows version `new` of a snapshot differs from `old`, and the first `limit` of them by key.

        `key` names columns where another is wanted than the declared one. Compares on the Spark of this process, which
        is started if there is none, in a transaction that keeps both versions. Raises `NotFound`, `VersionGone`,
        `NotComparable`.
        """
        from tidemill.run.external import open_transaction
        from tidemill.run.session import settings_of, spark_of_our_own

        snapshot = self.catalog.read(lambda db: self._snapshot(db, name))
        qualified, columns = snapshot.qualified_name, tuple(key) or snapshot.spec.key
        if old == new:
            raise NotComparable(qualified, f"version {old} is named twice")

        def check(db: Db) -> None:
            for number in (old, new):
                check_key(qualified, f"version {number}", find_version(db, snapshot, number).columns.names, columns)

        self.catalog.read(check)  # before Spark is started
        with (
            spark_of_our_own(self.world, self.config.state, self.config.cache, settings_of(self.config)) as spark,
            open_transaction(self.catalog, self.world, [], lease=self.config.lease) as tx,
        ):
            differing = tx.diff(spark, qualified, old, new, key=columns)
            return count_changes(differing, qualified, (old, new), columns, limit)

    def _snapshot(self, db: Db, name: str) -> SnapshotDataset:
        return SnapshotDataset.of(self._dataset(db, name))
