"""Versions of a snapshot: the current one, and the one that each reader sees, on both databases."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.run.conftest import rows_of
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import EndTransaction, Snapshot, TxState, begin, commit
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import ColumnSchema
from tidemill.lake.snapshot.refresh_order import OrderRefreshes, find_order
from tidemill.lake.snapshot.snapshot import (
    NoVersionYet,
    PublishVersion,
    SnapshotDataset,
    SnapshotSpec,
    find_current,
    find_visible,
)
from tidemill.names import DatasetId, Namespace, RunId, WritePointer
from tidemill.shapes.manifest import DataFile, Manifest, tx_directory
from tidemill.world import World

COLUMNS = ColumnSchema('{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}')


@dataclass
class Mirror:
    """A catalog with the snapshot `default.users`."""

    catalog: object
    users: SnapshotDataset
    runs: object = field(default_factory=count)

    def begin(self, logical_time=None, run_began=None):
        """A refresh that may read its source from now on."""
        run_id = RunId(f"run_{next(self.runs)}")
        effects = [OrderRefreshes([self.users.fileset], logical_time, run_began)]
        return begin(self.catalog, run_id=run_id, epoch=1, writes=[self.users.dataset_id], effects=effects)

    def commit(self, tx, rows=1):
        """The refresh has written `rows` rows, and commits."""
        manifest = Manifest((DataFile("1/part-0.parquet", rows * 10, rows, "etag"),))
        order = self.catalog.read(lambda db: find_order(db, self.users.dataset_id, tx))
        return commit(self.catalog, tx, [PublishVersion(tx, self.users, manifest, COLUMNS, order)])

    def refresh(self, rows=1):
        """A whole refresh; its version."""
        tx = self.begin()
        self.commit(tx, rows)
        return tx.write_pointer

    def see(self, snapshot):
        """The version that `snapshot` sees, None for none."""
        version = self.catalog.read(lambda db: find_visible(db, self.users.dataset_id, snapshot))
        return None if version is None else version.version

    def now(self):
        """The version that is current."""
        return self.see(Snapshot(WritePointer(2**62), ""))

    def messages(self):
        """The versions that were announced, in their order."""
        event = "event_key = 'snapshot:default.users'"
        rows = rows_of(self.catalog, f"SELECT payload FROM message WHERE {event} ORDER BY seq")
        return [json.loads(text)["version"] for (text,) in rows]


def make_mirror(catalog):
    """The snapshot `default.users` in `catalog`."""
    place = "file:///lake/users"
    spec = write_plain(SnapshotSpec())
    dataset = Dataset(DatasetId("users"), Namespace("default"), "users", DatasetKind.SNAPSHOT, place, spec)
    return Mirror(catalog, SnapshotDataset.of(catalog.write(lambda db: declare(db, dataset))))


@pytest.fixture
def mirror(catalog):
    """A catalog with one snapshot, on each database."""
    return make_mirror(catalog)


def test_a_version_is_current_with_the_commit_of_its_refresh(mirror):
    """Not before: a refresh that dies half-way was never there (seed 002)."""
    first = mirror.refresh()
    tx = mirror.begin()
    before = mirror.now()

    mirror.commit(tx)

    assert (before, mirror.now()) == (first, tx.write_pointer)
    assert mirror.messages() == [first, tx.write_pointer]


def test_a_reader_sees_the_version_of_its_begin_whatever_is_refreshed(mirror):
    """Seed 002: no update is seen until the data set is asked for again."""
    first = mirror.refresh()
    reader = mirror.begin()
    second = mirror.refresh()
    later = mirror.begin()
    third = mirror.refresh()

    assert (mirror.see(reader), mirror.see(later), mirror.now()) == (first, second, third)


def test_an_older_refresh_that_ends_last_never_becomes_current(mirror):
    """The older refresh read the source first: as current version it would take the data back in time."""
    slow = mirror.begin()
    fast = mirror.begin()
    mirror.commit(fast)
    between = mirror.begin()

    mirror.commit(slow)

    assert mirror.now() == mirror.see(between) == mirror.see(mirror.begin()) == fast.write_pointer
    assert mirror.messages() == [fast.write_pointer]
    assert rows_of(mirror.catalog, "SELECT count(*) FROM partition_change") == [(2,)]


def test_an_aborted_refresh_was_never_there(mirror):
    """Its files are swept like those of any transaction."""
    tx = mirror.begin()
    mirror.catalog.apply([EndTransaction(tx.write_pointer, TxState.ABORTED, "test")])

    assert mirror.now() is None
    assert rows_of(mirror.catalog, "SELECT location FROM garbage") == [(f"users/tx-{tx.write_pointer}",)]


def test_reading_before_the_first_version_is_a_clear_error(mirror):
    """An empty frame would be joined with, and taken for the truth."""
    reader = mirror.begin()
    mirror.refresh()

    with pytest.raises(NoVersionYet, match=r"default\.users has no version yet: run the program that refreshes it"):
        mirror.catalog.read(lambda db: find_current(db, mirror.users, reader))


def test_a_version_knows_its_files_and_columns(mirror):
    """Each version is read by its own columns."""
    tx = mirror.begin()
    mirror.commit(tx, rows=7)

    reader = mirror.begin()
    version = mirror.catalog.read(lambda db: find_current(db, mirror.users, reader))

    assert (version.figures.rows, version.columns, version.location) == (7, COLUMNS, tx_directory(tx))
    assert [name for name, _ in version.partition.files] == [f"{tx_directory(tx)}/1/part-0.parquet"]


@settings(max_examples=60)
@given(steps=st.lists(st.tuples(st.integers(0, 5), st.sampled_from([None, None, 10, 20, 30])), max_size=24))
def test_what_is_current_never_goes_back(steps):
    """Refreshes begin and end in any order; each reader sees one version, and none later an older one."""
    catalog = open_catalog("sqlite:///versions?vfs=memdb", World())
    try:
        mirror = make_mirror(catalog)
        open_ones: list = []
        order: dict[int, tuple[int, int]] = {}
        committed: dict[int, int] = {}
        readers = []
        for step, logical_time in steps:
            if step <= 1 or not open_ones:
                before = [order[mirror.now()][0]] if mirror.now() else []
                open_ones.append(tx := mirror.begin(logical_time))
                if logical_time is None:
                    before += [order[one.write_pointer][0] for one in open_ones[:-1]]
                order[tx.write_pointer] = (max([logical_time or 0, *before]), tx.write_pointer)
            else:
                tx = open_ones.pop(step % len(open_ones))
                committed[tx.write_pointer] = mirror.commit(tx)
            readers.append(mirror.begin())
            catalog.apply([EndTransaction(readers[-1].write_pointer, TxState.ABORTED, "it has looked")])

        seen = [mirror.see(reader) for reader in readers]

        expected = [
            max((v for v, seq in committed.items() if seq < reader.write_pointer), key=order.get, default=None)
            for reader in readers
        ]
        places = [order[version] if version else (0, 0) for version in seen]
        assert seen == expected
        assert places == sorted(places)
    finally:
        catalog.close()


def test_overlapping_refreshes_go_by_their_logical_times(mirror):
    """Whichever begins or ends last: the schedule says which of them is the later."""
    late, early = mirror.begin(20), mirror.begin(10)
    between = mirror.begin(15)
    mirror.commit(late)

    mirror.commit(between)
    mirror.commit(early)

    assert (mirror.now(), mirror.messages()) == (late.write_pointer, [late.write_pointer])


def test_a_refresh_replaces_what_had_committed_before_its_run_began(mirror):
    """The refresh waited for a slot while another schedule refreshed. Its rows are newer, whatever its logical time."""
    mirror.commit(mirror.begin(20))

    mirror.commit(waited := mirror.begin(10))

    assert mirror.now() == waited.write_pointer


def test_a_retry_has_the_order_of_the_first_attempt(mirror):
    """An attempt that is lost must not change which run is the last."""
    first = mirror.begin(10)
    mirror.catalog.apply([EndTransaction(first.write_pointer, TxState.ABORTED, "lost")])
    mirror.commit(late := mirror.begin(20))
    mirror.commit(by_hand := mirror.begin())

    mirror.commit(mirror.begin(10, run_began=first.write_pointer))

    assert (mirror.now(), mirror.messages()) == (by_hand.write_pointer, [late.write_pointer, by_hand.write_pointer])


def test_a_refresh_by_hand_replaces_what_began_before_it(mirror):
    """Also what ends after it; a later logical time that begins after it replaces it."""
    open_one = mirror.begin(20)
    by_hand = mirror.begin()
    later = mirror.begin(30)
    mirror.commit(by_hand)
    mirror.commit(open_one)
    before = mirror.now()

    mirror.commit(later)

    assert (before, mirror.now()) == (by_hand.write_pointer, later.write_pointer)
