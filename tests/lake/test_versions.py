"""Versions of a snapshot, on both databases: retention, readers, roll-back, and the deletion of files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.lake.conftest import SQL
from tests.run.conftest import rows_of
from tidemill.catalog.transactions import EndTransaction, Snapshot, TxState, begin, commit
from tidemill.errors import NotFound
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import ColumnSchema, Unpin, pin
from tidemill.lake.janitor import sweep
from tidemill.lake.snapshot.refresh_order import OrderRefreshes, find_order
from tidemill.lake.snapshot.snapshot import PublishVersion, SnapshotDataset, SnapshotSpec, VersionGone, find_visible
from tidemill.lake.snapshot.version_retention import Retention
from tidemill.lake.snapshot.versions import (
    RefreshedMeanwhile,
    RollBack,
    VersionHeld,
    expire_of,
    expire_versions,
    find_version,
    list_versions,
)
from tidemill.names import DatasetId, Namespace, PinId, RunId, WritePointer
from tidemill.shapes.manifest import DataFile, Manifest, mark_committed, tx_directory
from tidemill.storage.locations import open_files
from tidemill.world import World

COLUMNS = ColumnSchema('{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}')
AT_ONCE = timedelta(0)


class Users:
    """The snapshot `default.users` with its files in a folder."""

    def __init__(self, catalog, folder: Path, retention: Retention) -> None:
        self.catalog = catalog
        self.folder = folder
        self.runs = 0
        spec = write_plain(SnapshotSpec(retention=retention))
        place = folder.as_uri()
        dataset = Dataset(DatasetId("users"), Namespace("default"), "users", DatasetKind.SNAPSHOT, place, spec)
        self.snapshot = SnapshotDataset.of(catalog.write(lambda db: declare(db, dataset)))

    def begin(self, logical_time=None):
        self.runs += 1
        return begin(
            self.catalog,
            run_id=RunId(f"run_{self.runs}"),
            epoch=1,
            writes=[self.snapshot.dataset_id],
            effects=[OrderRefreshes([self.snapshot.fileset], logical_time)],
        )

    def order(self, tx):
        return self.catalog.read(lambda db: find_order(db, self.snapshot.dataset_id, tx))

    def commit(self, tx):
        path = self.folder / tx_directory(tx) / "1" / "part-0"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"rows")
        manifest = Manifest((DataFile("1/part-0", 4, 1, "etag"),))
        seq = commit(self.catalog, tx, [PublishVersion(tx, self.snapshot, manifest, COLUMNS, self.order(tx))])
        mark_committed(open_files(str(self.folder), World()), tx, seq)

    def refresh(self, logical_time=None):
        tx = self.begin(logical_time)
        self.commit(tx)
        return tx.write_pointer

    def roll_back(self, version, tx=None):
        tx = tx or self.begin()
        found = self.catalog.read(lambda db: find_version(db, self.snapshot, version))
        commit(self.catalog, tx, [RollBack(tx, self.snapshot, found, self.order(tx))])
        return tx.write_pointer

    def now(self):
        everything = Snapshot(WritePointer(2**62), "")
        return self.catalog.read(lambda db: find_visible(db, self.snapshot.dataset_id, everything))

    def kept(self):
        """Return each version that can be read, with the reason why it is kept."""
        return {one.version: one.kept_for for one in self.catalog.read(lambda db: list_versions(db, self.snapshot))}

    def expire(self, *by_hand):
        return expire_of(self.catalog, self.snapshot, AT_ONCE, by_hand)

    def pin(self, version, run="run_reader"):
        found = self.catalog.read(lambda db: find_version(db, self.snapshot, version))
        at = Snapshot(WritePointer(found.commit_seq), "")
        self.catalog.write(lambda db: pin(db, PinId("pin"), self.snapshot.dataset_id, at, RunId(run)))

    def clean(self):
        """The janitor comes when it is due."""
        self.catalog.write(lambda db: db.run(SQL.pass_garbage_time))
        sweep(self.catalog)

    def directories(self):
        return sorted(int(path.name.split("-")[1]) for path in self.folder.glob("tx-*"))


@pytest.fixture
def users(catalog, tmp_path):
    """At most two versions."""
    return Users(catalog, tmp_path / "users", Retention(max_versions=2))


def test_what_retention_does_not_keep_goes_with_its_files(users):
    """At most two versions are kept: the third refresh expires the first."""
    first, second, third = (users.refresh() for _ in range(3))

    gone = users.expire()
    users.clean()

    assert gone == [first]
    assert users.kept() == {third: ("current", "min_versions=1", "ttl=7d"), second: ("ttl=7d",)}
    assert users.directories() == [second, third]
    with pytest.raises(VersionGone, match=f"version {first} of default.users has expired"):
        users.catalog.read(lambda db: find_version(db, users.snapshot, first))
    with pytest.raises(NotFound, match="no version named '9999 of"):
        users.catalog.read(lambda db: find_version(db, users.snapshot, 9999))


def test_a_version_with_a_live_reader_stays_and_names_the_reader(users):
    """However many refreshes commit meanwhile, and whatever retention says."""
    first = users.refresh()
    reader = users.begin()
    users.pin(first)
    second, third, fourth = (users.refresh() for _ in range(3))

    gone = users.expire()
    kept = users.kept()
    users.catalog.apply([EndTransaction(reader.write_pointer, TxState.ABORTED, "done"), Unpin(RunId("run_reader"))])
    later = users.expire()

    assert gone == [second]
    assert kept[first] == (reader.run_id, "run_reader")
    assert (later, set(users.kept())) == ([first], {third, fourth})


def test_an_open_transaction_keeps_what_it_may_still_read(users):
    """The transaction pins a snapshot when it reads, perhaps an hour after its begin."""
    first = users.refresh()
    reader = users.begin()
    for _ in range(3):
        users.refresh()

    users.expire()

    assert users.kept()[first] == (reader.run_id,)


def test_a_version_that_never_was_current_can_be_pinned_too(users):
    """History is read by number."""
    slow = users.begin()
    fast, faster = users.refresh(), users.refresh()
    users.commit(slow)
    users.pin(slow.write_pointer)

    gone = users.expire()

    assert gone == []
    assert users.kept()[slow.write_pointer] == ("run_reader",)
    assert set(users.kept()) == {slow.write_pointer, fast, faster}


def test_a_roll_back_is_a_new_version_with_the_old_files(users):
    """The new version is current and newest. Its source can still be read, until retention expires it."""
    first, second = users.refresh(), users.refresh()

    back = users.roll_back(first)
    versions = {one.version: one for one in users.catalog.read(lambda db: list_versions(db, users.snapshot))}
    gone = users.expire()
    users.clean()

    assert (users.now().version, users.now().location) == (back, f"tx-{first}-{users.catalog.incarnation}")
    assert (versions[back].current, versions[back].rolled_back_to, versions[second].current) == (True, first, False)
    assert gone == [first]
    assert users.directories() == [first, second]  # the first one's files are those of the newest
    assert (users.folder / users.now().location / "1" / "part-0").exists()


def test_files_go_with_the_last_version_that_has_them(users):
    """After a roll-back and another refresh, no version has these files."""
    first = users.refresh()
    users.roll_back(first)
    for _ in range(2):
        users.refresh()

    users.expire()
    users.clean()

    assert first not in users.directories()


def test_the_versions_that_are_kept_are_the_last_in_the_order_of_refreshes(users):
    """Two of three: the one that goes is that of the earliest logical time, though it began after the current one."""
    late, early, between = (users.begin(logical_time) for logical_time in (30, 10, 20))
    for tx in (late, early, between):
        users.commit(tx)

    gone = users.expire()

    assert gone == [early.write_pointer]
    assert list(users.kept()) == [late.write_pointer, between.write_pointer]


@pytest.mark.parametrize("logical_time", [None, 10])
def test_a_refresh_that_began_before_a_roll_back_does_not_undo_it(users, logical_time):
    """The refresh read its source before the person looked."""
    first = users.refresh()
    users.refresh()
    slow = users.begin(logical_time)
    back = users.roll_back(first)

    users.commit(slow)

    assert users.now().version == back


def test_a_roll_back_does_not_hide_a_refresh_that_was_faster(users):
    """The person that rolls back has looked at the version that was current then."""
    first = users.refresh()
    users.refresh()
    tx = users.begin()
    fast = users.refresh()

    with pytest.raises(RefreshedMeanwhile, match=rf"refreshed by run_\d+ \(version {fast}\) while it was rolled back"):
        users.roll_back(first, tx)

    assert users.now().version == fast


def test_a_roll_back_to_what_has_gone_meanwhile_is_refused(users):
    """The janitor expired the version before the commit: its files would be deleted under the new version."""
    first = users.refresh()
    users.refresh()
    tx = users.begin()
    found = users.catalog.read(lambda db: find_version(db, users.snapshot, first))
    users.catalog.apply([EndTransaction(tx.write_pointer, TxState.ABORTED, "so that nobody holds it")])
    users.expire(first)
    again = users.begin()

    with pytest.raises(VersionGone):
        commit(users.catalog, again, [RollBack(again, users.snapshot, found, users.order(again))])


def test_by_hand_expires_what_no_reader_needs_and_nothing_else(users):
    """A person need not know which processes read."""
    first, second = users.refresh(), users.refresh()
    users.pin(first)

    with pytest.raises(VersionHeld, match=f"version {second} of default.users stays: current"):
        users.expire(second)
    with pytest.raises(VersionHeld, match=f"version {first} of default.users stays: run_reader"):
        users.expire(first)
    users.catalog.apply([Unpin(RunId("run_reader"))])
    assert users.expire(first) == [first]
    with pytest.raises(VersionGone):
        users.expire(first)


def test_replaced_files_stay_for_readers_that_know_them(users):
    """Other engines pin nothing: they have as long as the site gives them."""
    for _ in range(3):
        users.refresh()

    expired = expire_versions(users.catalog, timedelta(days=7))

    ((left,),) = rows_of(users.catalog, "SELECT not_before - tidemill_now() FROM garbage")
    assert expired == 1
    assert 6.9 * 86_400_000 < left <= 7 * 86_400_000
