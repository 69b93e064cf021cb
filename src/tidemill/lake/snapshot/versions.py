"""The versions of a snapshot: the list with the reasons to keep them, roll-backs, and expiry."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db, refusal, write_effects
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.named import Call, load_sql
from tidemill.catalog.transactions import Transaction
from tidemill.errors import Conflict, NotFound, UserError
from tidemill.lake.datasets import DatasetKind, list_datasets
from tidemill.lake.fileset.expiry import BEFORE_DELETION, KEEP_SUPERSEDED, expire
from tidemill.lake.fileset.fileset import SQL as FILESETS
from tidemill.lake.snapshot.refresh_order import RefreshOrder
from tidemill.lake.snapshot.snapshot import PublishVersion, SnapshotDataset, StoredVersion, Version
from tidemill.lake.snapshot.version_retention import Kept, decide_kept
from tidemill.names import CommitSeq, RunId, WritePointer
from tidemill.shapes.keys import NO_KEYS

if TYPE_CHECKING:
    from tidemill.lake.snapshot.versions_sql import Sql

SQL: Sql = load_sql(__file__)

_KEY: Final = NO_KEYS.encode(())
_READERS: Final = ("run_", "changes for ")


@refusal
class RefreshedMeanwhile(Conflict):
    """A snapshot was refreshed during a roll-back."""

    code = "refreshed_meanwhile"

    def __init__(self, dataset: str, version: str, run: str) -> None:
        self.dataset = dataset
        self.version = int(version)
        self.run = run
        super().__init__(
            f"{dataset} was refreshed by {run} (version {version}) while it was rolled back; nothing was changed",
            "look at its versions and roll back again if that is still meant",
            before=": ",
        )


class VersionHeld(UserError):
    """A version that cannot expire: it is current, or a run reads it."""

    code = "version_held"
    hint = "expire the version when nothing keeps it any more"

    def __init__(self, dataset: str, version: int, kept_for: Sequence[str]) -> None:
        self.dataset = dataset
        self.version = version
        self.kept_for = tuple(kept_for)
        super().__init__(f"version {version} of {dataset} stays: {', '.join(kept_for)}")


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """A version that can be read: its figures, and the reasons why it is kept."""

    version: WritePointer
    committed_at: datetime
    logical_time: datetime | None
    """The time for which a time trigger started its run (aware)."""
    rows: int
    bytes: int
    files: int
    run_id: RunId
    current: bool
    replaced_at: datetime | None
    rolled_back_to: int | None
    kept_for: tuple[str, ...]
    """No reason: the version expires."""


@dataclass(frozen=True, slots=True)
class _KeptRow:
    version: WritePointer
    commit_seq: CommitSeq
    superseded_seq: CommitSeq | None
    files: int
    bytes: int
    row_count: int
    run_id: RunId
    at: datetime
    metadata: Mapping[str, object]
    logical_time: datetime | None
    replaced_at: datetime | None

    @property
    def rolled_back_to(self) -> int | None:
        version = self.metadata.get("rolled_back_to")
        return version if isinstance(version, int) else None


def list_versions(db: Db, snapshot: SnapshotDataset) -> list[KeptVersion]:
    """The versions that can be read, the last in the order of refreshes first. Cost: what is kept, and its readers."""
    found = db.records(SQL.list_kept, _KeptRow, dataset_id=snapshot.dataset_id)
    readers = db.records(SQL.list_readers, tuple[int, str], dataset_id=snapshot.dataset_id)
    judged = [Kept(one.version, one.at, one.superseded_seq is None, _readers_of(one, readers)) for one in found]
    reasons = decide_kept(judged, snapshot.spec.retention, db.now())
    return [
        KeptVersion(
            version=one.version,
            committed_at=one.at,
            logical_time=one.logical_time,
            rows=one.row_count,
            bytes=one.bytes,
            files=one.files,
            run_id=one.run_id,
            current=one.superseded_seq is None,
            replaced_at=one.replaced_at,
            rolled_back_to=one.rolled_back_to,
            kept_for=reasons[one.version],
        )
        for one in found
    ]


def find_version(db: Db, snapshot: SnapshotDataset, version: int) -> Version:
    """The version of that number; `NotFound`, and `VersionGone` if it has expired."""
    stored = db.record(SQL.find_version, StoredVersion, dataset_id=snapshot.dataset_id, version=version)
    if stored is None:
        hint = f"`tidemill snapshot versions {snapshot.qualified_name}` lists them all"
        raise NotFound("version", f"{version} of {snapshot.qualified_name}", hint=hint)
    return stored.kept


@dataclass(frozen=True, slots=True)
class RollBack(Effect):
    """Make an older version current again, as a new version that has its files.

    It comes after all refreshes that began before it: one that ends after it becomes history. One that has committed
    since it began refuses it (`RefreshedMeanwhile`), and so does retention when it was faster (`VersionGone`).
    """

    phase = Phase.PUBLISH

    tx: Transaction
    snapshot: SnapshotDataset
    version: Version
    order: RefreshOrder

    def guards(self) -> Sequence[Call]:
        """The version is still there, and nothing came since."""
        dataset_id, name = self.snapshot.dataset_id, self.snapshot.qualified_name
        pointer = self.tx.write_pointer
        return (
            FILESETS.lock_dataset(dataset_id=dataset_id),
            SQL.refuse_expired(dataset_id=dataset_id, dataset=name, version=self.version.version),
            SQL.refuse_refreshed(dataset_id=dataset_id, dataset=name, write_pointer=pointer),
        )

    def writes(self) -> Sequence[Call]:
        """The new version."""
        old = self.version
        said: Mapping[str, object] = {"rolled_back_to": old.version}
        publish = PublishVersion(self.tx, self.snapshot, old.manifest, old.columns, self.order, old.location, said)
        return publish.writes()


def expire_versions(catalog: Catalog, keep: timedelta = KEEP_SUPERSEDED) -> int:
    """Expire the versions that retention does not keep, of all snapshots, and return their number.

    Their files stay until they have been replaced for `keep`. Cost: what is kept of each snapshot.
    """
    snapshots = [
        SnapshotDataset.of(dataset) for dataset in catalog.read(list_datasets) if dataset.kind is DatasetKind.SNAPSHOT
    ]
    return sum(len(expire_of(catalog, snapshot, keep)) for snapshot in snapshots)


def expire_of(
    catalog: Catalog,
    snapshot: SnapshotDataset,
    keep: timedelta = KEEP_SUPERSEDED,
    by_hand: Collection[int] = (),
    also: Callable[[Sequence[WritePointer]], Sequence[Effect]] = lambda _: (),
) -> list[WritePointer]:
    """Expire what retention does not keep of one snapshot, and the versions `by_hand`; return the expired ones.

    If there are some, the transaction takes along what `also` gives for them.

    A version that is current or has a reader never expires: `VersionHeld` if it was named. `NotFound`.
    """

    def find(db: Db) -> list[KeptVersion]:
        versions = list_versions(db, snapshot)
        for number in sorted(set(by_hand) - {one.version for one in versions}):
            find_version(db, snapshot, number)  # says what is wrong with it
        named = [one for one in versions if one.version in by_hand]
        for one in named:
            held = [why for why in one.kept_for if why == "current" or why.startswith(_READERS)]
            if held:
                raise VersionHeld(snapshot.qualified_name, one.version, held)
        return named or [one for one in versions if not one.kept_for and not by_hand]

    def block(db: Db) -> list[WritePointer]:
        db.one(FILESETS.lock_dataset, dataset_id=snapshot.dataset_id)
        going = find(db)
        for one in going:
            # As with file sets: a reader with a list of files may read them that long, pinned or not.
            left = timedelta(0) if one.replaced_at is None else one.replaced_at + keep - db.now()
            wait = max(min(keep, BEFORE_DELETION), left)
            expire(db, snapshot.dataset_id, [(one.version, _KEY)], wait)
        expired = [one.version for one in going]
        if going:
            write_effects(db, also(expired))
        return expired

    catalog.world.mark("versions.before_expiry")
    if not catalog.read(find):
        return []
    return catalog.write(block)


def _readers_of(version: _KeptRow, readers: Sequence[tuple[int, str]]) -> tuple[str, ...]:
    """The runs and feeds that see a version; one that never was current is pinned at its own commit."""
    first, last = version.commit_seq, version.superseded_seq
    return tuple(sorted({run for at, run in readers if first <= at and (last is None or at <= last)}))
