"""The janitor: no orphan stays, and nothing that is published ever goes."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.lake.conftest import SQL, make_lake
from tidemill.catalog.transactions import TxState
from tidemill.epoch import to_ms
from tidemill.lake import janitor
from tidemill.lake.janitor import CLEAN_SWEEPS, Swept, sweep
from tidemill.shapes.manifest import Manifest, mark_committed, tx_directory, write_side_car
from tidemill.storage.folder import LocalFiles
from tidemill.storage.locations import open_files
from tidemill.world import World


@pytest.fixture
def lake(catalog, folder):
    """A file set in a folder of its own."""
    return make_lake(catalog, folder)


@pytest.fixture
def folder(tmp_path) -> Path:
    """Folder with the files of the file set, as its declaration has made it."""
    folder = tmp_path / "mount" / "lines"
    folder.mkdir(parents=True)
    return folder


def leave(folder, tx, name="1/hour=5/part-0.parquet"):
    """A file of `tx`, and what Spark leaves beside it."""
    path = folder / tx_directory(tx) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"rows")
    (path.parent / "_temporary").mkdir(exist_ok=True)
    return path


def put_manifests(folder, *txs):
    """The side-cars that transactions put beside their files before they commit."""
    for tx in txs:
        write_side_car(open_files(folder, World()), tx, {})


def wait_for_garbage(lake):
    """Let the time of all garbage come."""
    lake.catalog.write(lambda db: db.run(SQL.pass_garbage_time))


def count_garbage(lake):
    """Count the directories that the janitor still looks after."""
    return len(lake.read(lambda db: db.all(SQL.read_garbage)))


@pytest.mark.parametrize("state", [TxState.ABORTED, TxState.INVALID])
def test_what_a_transaction_left_that_cannot_commit_goes(lake, folder, state):
    """Each killed attempt would leave its files for ever."""
    tx = lake.begin()
    leave(folder, tx)
    lake.end(tx, state=state)

    swept = sweep(lake.catalog)

    assert swept == Swept(1, 0)
    assert list(folder.iterdir()) == []


def test_files_of_open_and_committed_transactions_stay(lake, folder):
    """Deleted files cannot be restored."""
    still_open, committed = lake.begin(), lake.begin()
    kept = [leave(folder, still_open), leave(folder, committed)]
    lake.commit(committed, lake.write(5))

    swept = sweep(lake.catalog)

    assert swept.deleted == 0
    assert all(path.exists() for path in kept)


def test_garbage_that_names_a_published_directory_is_not_believed(lake, folder):
    """A mistake anywhere else must not cost data."""
    tx = lake.begin()
    kept = leave(folder, tx)
    lake.commit(tx, lake.write(5))
    garbage = {"dataset_id": lake.lines.dataset_id, "write_pointer": tx.write_pointer}
    lake.catalog.write(lambda db: db.run(SQL.insert_garbage, **garbage))

    swept = sweep(lake.catalog)

    assert swept.deleted == 0
    assert kept.exists()
    assert lake.read(lambda db: db.all(SQL.read_garbage))[0][2] == "its transaction may have published"


def test_a_zombie_that_writes_on_is_swept_again_and_again(lake, folder):
    """A fenced process may be stopped for an hour and go on as if nothing had happened."""
    tx = lake.begin()
    lake.end(tx, state=TxState.INVALID)
    deleted = []
    for clean_before in (0, 3, CLEAN_SWEEPS - 1):
        for _ in range(clean_before):
            deleted.append(sweep(lake.catalog).deleted)
            wait_for_garbage(lake)
        leave(folder, tx)
        deleted.append(sweep(lake.catalog).deleted)
        wait_for_garbage(lake)

    assert sum(deleted) == 3
    assert list(folder.iterdir()) == []
    assert count_garbage(lake) == 1


def test_a_directory_that_stays_empty_is_forgotten_in_the_end(lake):
    """Looking for ever after each attempt that ever failed would cost more each day."""
    tx = lake.begin()
    lake.end(tx)
    waits = []
    for _ in range(CLEAN_SWEEPS):
        now = lake.read(lambda db: db.now())
        sweep(lake.catalog)
        waits += [round((row[1] - to_ms(now)) / 60_000) for row in lake.read(lambda db: db.all(SQL.read_garbage))]
        before_its_time = sweep(lake.catalog)
        wait_for_garbage(lake)

    assert waits == [2**clean for clean in range(1, CLEAN_SWEEPS)]
    assert before_its_time == Swept(0, 0)
    assert count_garbage(lake) == 0


def test_what_cannot_be_deleted_now_is_tried_again(lake, folder):
    """A full or slow disk must not stop the sweep of the others."""
    stuck, other = lake.begin(), lake.begin()
    leave(folder, stuck)
    leave(folder, other)
    lake.end(stuck)
    lake.end(other)

    tries = count()

    def refuse_first(mark):
        if mark == "storage.before_delete" and next(tries) == 0:
            raise OSError("directory is busy")

    world = lake.catalog.world
    lake.catalog.world = replace(world, marked=refuse_first)
    first = sweep(lake.catalog).deleted
    errors = [row[2] for row in lake.read(lambda db: db.all(SQL.read_garbage))]
    lake.catalog.world = world
    wait_for_garbage(lake)

    assert first == 1
    assert [error for error in errors if error and error.endswith("directory is busy")]
    assert sweep(lake.catalog).deleted == 1


def test_a_directory_of_more_files_than_one_call_deletes_is_deleted_by_the_next_sweeps(lake, folder, monkeypatch):
    """A million files of one failed run must not hold up the other directories, nor be forgotten half deleted."""
    monkeypatch.setattr(LocalFiles.delete_below, "__defaults__", (2,))
    tx = lake.begin()
    for number in range(3):
        leave(folder, tx, f"{number}/part-0.parquet")
    lake.end(tx)

    swept = []
    while (folder / tx_directory(tx)).exists():
        wait_for_garbage(lake)
        swept.append(sweep(lake.catalog).deleted)

    assert len(swept) > 1
    assert set(swept) == {1}
    assert count_garbage(lake) == 1


@pytest.mark.parametrize("mark", ["janitor.before_delete", "janitor.after_delete", "janitor.marked"])
def test_a_janitor_that_dies_leaves_the_work_to_the_next(lake, folder, mark):
    """The intent stands before the deed."""
    tx = lake.begin()
    leave(folder, tx)
    lake.end(tx)
    published = lake.publish(1)
    put_manifests(folder, published)
    world = lake.catalog.world

    class Crash(BaseException):
        pass

    def die(name):
        if name == mark:
            raise Crash

    lake.catalog.world = replace(world, marked=die)
    with pytest.raises(Crash):
        sweep(lake.catalog)
    lake.catalog.world = world

    sweep(lake.catalog)

    assert [path.name for path in folder.iterdir()] == [tx_directory(published)]


def test_a_missing_marker_is_written_and_one_that_is_there_stays(lake, folder):
    """After a restore only what is marked is taken up again; the driver may have died between commit and marker."""
    marked, unmarked = lake.begin(), lake.begin()
    files = open_files(folder, World())
    put_manifests(folder, marked, unmarked)
    mark_committed(files, marked, lake.commit(marked, lake.write(1)))
    seq = lake.commit(unmarked, lake.write(2), lake.write(3))
    lake.complete(lake.begin())

    first, second = sweep(lake.catalog), sweep(lake.catalog)

    assert (first, second) == (Swept(0, 1), Swept(0, 0))
    assert json.loads(files.read(f"{tx_directory(unmarked)}/_committed")) == {
        "write_pointer": unmarked.write_pointer,
        "incarnation": unmarked.incarnation,
        "commit_seq": seq,
    }


def age(lake, hours):
    """Let all transactions have ended that much longer ago."""
    lake.catalog.write(lambda db: db.run(SQL.age_transactions, by=hours * 3_600_000))


def test_what_a_zombie_left_in_a_committed_directory_goes_a_day_later(lake, folder):
    """A task attempt that was declared dead goes on writing, and no reader ever reads its files."""
    tx = lake.begin()
    write = lake.write(5)
    (named,) = write.manifest.files
    keeps = leave(folder, tx, named.name)
    put_manifests(folder, tx)
    lake.commit(tx, write)
    strays = [leave(folder, tx, "1/hour=5/.part-0.parquet.crc"), leave(folder, tx, "2/hour=6/part-9.parquet")]

    age(lake, 24)
    early = sweep(lake.catalog)
    age(lake, 2)
    swept, again = sweep(lake.catalog), sweep(lake.catalog)

    assert (early.strays, swept.strays, again.strays) == (0, 2, 0)
    assert keeps.exists()
    assert not any(path.exists() for path in strays)
    assert sorted(path.name for path in (folder / tx_directory(tx)).iterdir() if path.is_file()) == [
        "_committed",
        "_manifest.json",
    ]


def test_checksums_of_spark_go_without_a_warning(lake, folder, caplog):
    """Spark writes one beside each file, so a warning would be there for each commit."""
    tx = lake.begin()
    write = lake.write(5)
    above, _, name = write.manifest.files[0].name.rpartition("/")
    leave(folder, tx, f"{above}/{name}")
    leave(folder, tx, f"{above}/.{name}.crc")
    put_manifests(folder, tx)
    lake.commit(tx, write)
    age(lake, 26)

    assert sweep(lake.catalog).strays == 1
    assert "no manifest names" not in caplog.text


def test_files_that_another_commit_names_are_no_strays(lake, folder):
    """A roll-back or an adoption names files in the directory of another transaction."""
    tx, later = lake.begin(), lake.begin()
    mine, theirs = lake.write(5), lake.write(6)
    keeps = [leave(folder, tx, write.manifest.files[0].name) for write in (mine, theirs)]
    put_manifests(folder, tx)
    lake.commit(tx, mine)
    lake.commit(later, replace(theirs, location=tx_directory(tx)))

    age(lake, 26)

    assert sweep(lake.catalog).strays == 0
    assert all(path.exists() for path in keeps)


@pytest.mark.parametrize(
    "stored", [b"", b"torn", Manifest(()).encode()[:-4], zlib.compress(b"[]"), zlib.compress(b"{")]
)
def test_a_damaged_manifest_hides_only_its_own_directory(lake, folder, caplog, stored):
    """A directory with an unknown content has no strays; the next commits are looked at all the same."""
    damaged, sound = lake.begin(), lake.begin()
    for tx, hour in ((damaged, 5), (sound, 6)):
        put_manifests(folder, tx)
        lake.commit(tx, lake.write(hour))
    left = [leave(folder, tx, "2/hour=5/part-9.parquet") for tx in (damaged, sound)]
    lake.catalog.write(lambda db: db.run(SQL.damage_manifest, write_pointer=damaged.write_pointer, manifest=stored))
    age(lake, 26)

    swept = sweep(lake.catalog)

    assert swept.strays == 1
    assert [path.exists() for path in left] == [True, False]
    assert f"write pointer {damaged.write_pointer} of default.lines" in caplog.text
    assert "overwrite the partition" in caplog.text


def test_a_committed_directory_that_is_away_is_looked_at_later(lake, folder, monkeypatch):
    """Nothing is passed over because a disk was not there."""
    tx = lake.begin()
    put_manifests(folder, tx)
    lake.commit(tx, lake.write(5))
    sweep(lake.catalog)
    stray = leave(folder, tx, "2/hour=5/part-9.parquet")
    age(lake, 26)

    with monkeypatch.context() as patch:
        patch.setattr(janitor, "open_files", _away)
        away = sweep(lake.catalog)

    assert (away.strays, sweep(lake.catalog).strays) == (0, 1)
    assert not stray.exists()


def _away(*_):
    raise OSError("no such device")


def test_a_marker_that_cannot_be_written_is_not_passed_over(lake, folder):
    """Passed over once, it would be missing for ever."""
    published = lake.publish(1)
    folder.rmdir()
    folder.write_bytes(b"in the way")

    before = sweep(lake.catalog)
    folder.unlink()
    folder.mkdir()
    put_manifests(folder, published)
    after = sweep(lake.catalog)

    assert (before, after) == (Swept(0, 0), Swept(0, 1))
    assert (folder / tx_directory(published) / "_committed").exists()


def test_the_folder_of_a_disk_that_is_not_mounted_is_not_made(lake, folder, tmp_path):
    """Runs would write into the empty place of the mount, and what they publish would be gone when the disk is back."""
    published = lake.publish(1)
    put_manifests(folder, published)
    (tmp_path / "mount").rename(tmp_path / "disk")
    (tmp_path / "mount").mkdir()

    away = sweep(lake.catalog)
    found = list((tmp_path / "mount").iterdir())
    (tmp_path / "mount").rmdir()
    (tmp_path / "disk").rename(tmp_path / "mount")

    assert (away, found) == (Swept(0, 0), [])
    assert sweep(lake.catalog) == Swept(0, 1)
