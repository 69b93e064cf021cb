"""Snapshots, as `Mill` offers them: their versions, what differs, the way back to one, the end of those that may go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect
from tidemill.errors import NotFound
from tidemill.frames.version_diff import NotComparable, VersionDiff, check_key, count_changes
from tidemill.lake.snapshot.comparison import VersionComparison, compare_versions
from tidemill.lake.snapshot.snapshot import SnapshotDataset, find_current
from tidemill.lake.snapshot.versions import KeptVersion, expire_of, find_version, list_versions
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, BadPage, Page, cut, one_more
from tidemill.mill.project import Noun


@dataclass(frozen=True, slots=True)
class ExpiredVersions:
    """The versions of a snapshot that were expired."""

    dataset: str
    expired: tuple[int, ...]


class Snapshots(Noun):
    """Operations on snapshots."""

    noun = "snapshot"

    @operation(Right.READ, own=True)
    def versions(self, name: str, *, limit: int = PAGE, after: str = "") -> Page[KeptVersion]:
        """List the versions of a snapshot that can be read, newest first; `NotFound`, `NotASnapshot`.

        `after` is a version. Cost: the number of versions that are kept, since each may keep another.
        """
        found = self._catalog.read(lambda db: list_versions(db, self._snapshot(db, name)))
        places = {str(one.version): place for place, one in enumerate(found, 1)}
        if after and after not in places:
            raise BadPage("after", after)
        first = places.get(after, 0)
        return cut(found[first : first + one_more(limit)], limit, lambda one: str(one.version), lambda one: one)

    @operation(Right.READ, own=True)
    def compare(self, name: str, old: int, new: int) -> VersionComparison:
        """Compare two versions of a snapshot by rows, bytes, columns and contents of files, without Spark.

        `diff` finds the rows that differ. Cost: two look-ups. `NotFound`, `VersionGone`.
        """

        def block(db: Db) -> VersionComparison:
            snapshot = self._snapshot(db, name)
            versions = find_version(db, snapshot, old), find_version(db, snapshot, new)
            return compare_versions(snapshot.qualified_name, *versions)

        return self._catalog.read(block)

    @operation(Right.DEPLOY)
    def rollback(self, name: str, version: int) -> KeptVersion:
        """Make an older version current again, as a new version with the same files, and return the new version.

        The next refresh replaces the new version: suspend the schedule of the refreshes first. The record of the run
        has the actor. Raises `NotFound`, `VersionGone`, `RefreshedMeanwhile`.
        """
        # Half of what this module would load, and no list needs it.
        from tidemill.run.processes.external import open_transaction, outputs_of

        snapshot = self._catalog.read(lambda db: self._snapshot(db, name))
        qualified = snapshot.qualified_name
        if self._part is None:
            taken: list[Effect] = []
            with open_transaction(self._catalog, self._world, [qualified], lease=self._config.lease, also=taken) as tx:
                tx.roll_back(qualified, version)
                # Current also at the commit, which a refresh in between refuses.
                current = self._catalog.read(lambda db: find_current(db, snapshot, outputs_of(tx).tx))
                note = self._note("rollback", qualified, to=version)
                taken.append(note.between({"version": current.version}, {"version": tx.write_pointer}))
                taken += self._keep_part({"version": tx.write_pointer})
            made = tx.write_pointer
        else:  # an earlier try of the same request has made it
            made = self._part["version"]
        versions = self._catalog.read(lambda db: list_versions(db, snapshot))
        found = next((one for one in versions if one.version == made), None)
        if found is None:  # the repetition came after retention has expired the version
            raise NotFound("version", f"{made} of {qualified}")
        return found

    @operation(Right.DEPLOY)
    def expire(self, name: str, versions: Collection[int] = ()) -> ExpiredVersions:
        """Expire the versions that retention does not keep, or else `versions`.

        `VersionHeld` for one that is current or has a reader.
        """
        snapshot = self._catalog.read(lambda db: self._snapshot(db, name))
        note = self._note("expire", snapshot.qualified_name, versions=[*versions] or "by retention")

        def made(expired: Sequence[int]) -> ExpiredVersions:
            return ExpiredVersions(snapshot.qualified_name, tuple(expired))

        def also(expired: Sequence[int]) -> Sequence[Effect]:
            return [note.between({"versions": [*expired]}, None), *self._keep(made(expired))]

        return made(expire_of(self._catalog, snapshot, self._config.keep_superseded, versions, also))

    @operation(Right.READ, no_route="compares on the Spark of the calling process")
    def diff(self, name: str, old: int, new: int, *, key: Sequence[str] = (), limit: int = 1000) -> VersionDiff:
        """Count the rows by which version `new` of a snapshot differs from `old`, and return the first `limit` by key.

        `key` names columns where another is wanted than the declared one. Compares on the Spark of this process, which
        is started if there is none, in a transaction that keeps both versions. Raises `NotFound`, `VersionGone`,
        `NotComparable`.
        """
        from tidemill.run.processes.external import open_transaction
        from tidemill.run.processes.session import spark_of_our_own

        snapshot = self._catalog.read(lambda db: self._snapshot(db, name))
        qualified, columns = snapshot.qualified_name, tuple(key) or snapshot.spec.key
        if old == new:
            raise NotComparable(qualified, f"version {old} is named twice")

        def check(db: Db) -> None:
            for number in (old, new):
                check_key(qualified, f"version {number}", find_version(db, snapshot, number).columns.names, columns)

        self._catalog.read(check)  # before Spark is started
        with (
            spark_of_our_own(self._world, self._config) as spark,
            open_transaction(self._catalog, self._world, [], lease=self._config.lease) as tx,
        ):
            differing = tx.diff(spark, qualified, old, new, key=columns)
            return count_changes(differing, qualified, (old, new), columns, limit)

    def _snapshot(self, db: Db, name: str) -> SnapshotDataset:
        return SnapshotDataset.of(self._project.dataset(db, name))
