"""Expiry of time travel: expired changes, changes that stay for a reader, and errors of late readers."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.lake.conftest import SQL, make_lake
from tidemill.catalog.transactions import Snapshot, TransactionEnded
from tidemill.lake.claims import Complete
from tidemill.lake.consumer.claims import PARTITIONS
from tidemill.lake.fileset import expiry
from tidemill.lake.fileset.expiry import expire_superseded
from tidemill.lake.fileset.fileset import NotKept, Unpin, WriteOp, pin, pin_within, read_partitions
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.lake.fileset.time_travel import find_snapshot_at, now
from tidemill.lake.janitor import sweep
from tidemill.names import PinId, WritePointer
from tidemill.shapes.manifest import DataFile, Manifest, mark_committed, tx_directory
from tidemill.storage.folder import LocalFiles
from tidemill.storage.locations import open_files
from tidemill.world import World

AT_ONCE = timedelta(0)


@pytest.fixture
def lake(catalog, tmp_path):
    """A file set in a folder of its own."""
    return make_lake(catalog, tmp_path / "lines")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Folder with the files of the file set."""
    return tmp_path / "lines"


def write(lake, folder, hour, op="append"):
    """Publish one file, which is there, in a transaction of its own."""
    tx = lake.begin()
    publish(lake, folder, tx, (hour, op))
    return tx


def publish(lake, folder, tx, *parts):
    """Publish one file for each (hour, op) in `tx`."""
    writes = []
    for hour, op in parts:
        name = f"1/hour={hour}/part-0.parquet"
        path = folder / tx_directory(tx) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"rows")
        file = DataFile(name, 4, 1, "etag")
        writes.append(PartitionWrite(lake.lines.keys.check({"hour": hour}), WriteOp(op), Manifest((file,))))
    seq = lake.commit(tx, *writes)
    mark_committed(open_files(folder, World()), tx, seq)


def drop(lake, hour):
    """Drop a partition."""
    lake.commit(lake.begin(), PartitionWrite(lake.lines.keys.check({"hour": hour}), WriteOp.DROP))


def close(lake):
    """End what the test has left open, which would keep all that it sees."""
    lake.catalog.write(lambda db: db.run(SQL.end_all))


def expire(lake, keep=AT_ONCE):
    """Expire what is `keep` old, and delete."""
    expired = expire_superseded(lake.catalog, keep)
    lake.catalog.write(lambda db: db.run(SQL.pass_garbage_time))
    sweep(lake.catalog)
    return expired


def files(folder):
    """The data files that are there."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.parquet"))


def test_what_was_replaced_goes_and_what_is_current_stays(lake, folder):
    """File by file: one transaction has published both."""
    both = lake.begin()
    publish(lake, folder, both, (1, "append"), (2, "append"))
    second = write(lake, folder, 1, "overwrite")

    assert expire(lake) == 1
    assert files(folder) == [
        f"{tx_directory(t)}/1/hour={h}/part-0.parquet"
        for t, h in sorted([(both, 2), (second, 1)], key=lambda one: tx_directory(one[0]))
    ]
    assert expire(lake) == 0


def test_a_directory_without_anything_to_keep_goes_as_a_whole(lake, folder):
    """Else side-cars and markers would stay for ever."""
    write(lake, folder, 1)
    drop(lake, 1)

    assert expire(lake) == 2
    assert list(folder.iterdir()) == []
    assert lake.read(lambda db: db.all(SQL.read_garbage)) == []


def test_a_directory_of_more_files_than_one_call_deletes_is_deleted_by_the_next_sweeps(lake, folder, monkeypatch):
    """Its row of garbage stays until nothing is left, so that no side-car stays for ever."""
    monkeypatch.setattr(LocalFiles.delete_below, "__defaults__", (1,))
    tx = write(lake, folder, 1)
    for number in range(3):
        open_files(folder, World()).put(f"{tx_directory(tx)}/_{number}", b"")
    drop(lake, 1)

    expire(lake)
    kept = (folder / tx_directory(tx)).exists()
    for _ in range(8):
        expire(lake)

    assert kept
    assert list(folder.iterdir()) == []
    assert lake.read(lambda db: db.all(SQL.read_garbage)) == []


def test_an_expired_change_with_a_damaged_manifest_keeps_its_files_and_no_other_ones(lake, folder):
    """The names of its files are not known; a person finds the reason beside the garbage that stays."""
    damaged = write(lake, folder, 1)
    write(lake, folder, 2)
    drop(lake, 1)
    drop(lake, 2)
    lake.catalog.write(lambda db: db.run(SQL.damage_manifest, write_pointer=damaged.write_pointer, manifest=b"torn"))

    expire(lake)

    assert files(folder) == [f"{tx_directory(damaged)}/1/hour=1/part-0.parquet"]
    (error,) = [error for _, _, error in lake.read(lambda db: db.all(SQL.read_garbage))]
    assert f"write pointer {damaged.write_pointer} of default.lines" in error


def test_files_of_a_location_that_is_away_are_deleted_when_it_is_back(lake, folder):
    """They were taken for deleted, and no janitor looked for them again."""
    write(lake, folder, 1)
    drop(lake, 1)
    folder.rename(folder.with_name("away"))

    expire(lake)
    (error,) = [error for _, _, error in lake.read(lambda db: db.all(SQL.read_garbage))]
    folder.with_name("away").rename(folder)
    expire(lake)

    assert "there is no such folder" in error
    assert files(folder) == []


def test_nothing_goes_before_its_time(lake, folder):
    """The default is seven days, a setting of the site comes before, and the file set's own time before both."""
    write(lake, folder, 1)
    write(lake, folder, 1, "overwrite")

    assert expire(lake, timedelta(days=7)) == 0
    assert len(files(folder)) == 2


def test_deletion_waits_a_while_after_it_was_decided(lake, folder):
    """A reader that has just got the list of files can still open them."""
    write(lake, folder, 1)
    write(lake, folder, 1, "overwrite")
    lake.catalog.write(lambda db: db.run(SQL.age_transactions, by=86_400_000))

    expired = expire_superseded(lake.catalog, timedelta(hours=1))
    sweep(lake.catalog)

    assert expired == 1
    assert len(files(folder)) == 2


def test_an_attempt_that_was_taken_over_pins_nothing(lake, folder):
    """Its run may have ended meanwhile: nothing would give up the pin, and the files would never expire."""
    write(lake, folder, 1)
    tx = lake.begin("run_reader")
    lake.end(tx)

    with pytest.raises(TransactionEnded):
        lake.catalog.write(lambda db: pin_within(db, tx, PinId("late"), lake.lines.dataset_id, tx))

    write(lake, folder, 1, "overwrite")
    assert expire(lake) == 1


@pytest.mark.parametrize("reader", ["open transaction", "pin", "pin as of"])
def test_what_a_reader_sees_stays_as_long_as_it_reads(lake, folder, reader):
    """A reader may open the files hours after they were replaced."""
    write(lake, folder, 1)
    tx = lake.begin("run_reader")
    seen = tx if reader != "pin as of" else Snapshot(WritePointer(tx.write_pointer - 1), tx.incarnation)
    if reader != "open transaction":
        lake.catalog.write(lambda db: pin(db, PinId("pin_1"), lake.lines.dataset_id, seen, tx.run_id))
        lake.end(tx)
    write(lake, folder, 1, "overwrite")

    kept = expire(lake)
    still_there = len(files(folder))
    lake.catalog.apply([Unpin(tx.run_id)])
    close(lake)

    assert (kept, still_there) == (0, 2)
    assert expire(lake) == 1
    assert len(files(folder)) == 1


def test_what_a_run_has_claimed_stays_until_it_is_done(lake, folder):
    """Between two attempts nothing is open, and the next one gets the same."""
    write(lake, folder, 1)
    tx = lake.begin()
    lake.take(tx)
    lake.end(tx)
    write(lake, folder, 1, "overwrite")

    kept = expire(lake)
    again = lake.try_again(tx)
    lake.commit(again, effects=[Complete(PARTITIONS, again.run_id, again.epoch)])

    assert kept == 0
    assert expire(lake) == 1


def test_what_waits_for_a_consumer_and_was_replaced_goes(lake, folder):
    """A replaced change is not delivered any more. The replacing change is."""
    write(lake, folder, 1)
    lake.consumer()
    second = write(lake, folder, 1, "overwrite")

    expire(lake)

    (delivery,) = lake.take(lake.begin())
    assert [change.write_pointer for change in delivery.changes] == [second.write_pointer]


def test_a_reader_that_comes_too_late_gets_an_error(lake, folder):
    """An earlier state without its files must not be read as one with fewer rows."""
    write(lake, folder, 1)
    old = lake.begin()
    lake.end(old)
    write(lake, folder, 1, "overwrite")
    expire(lake)
    newest = lake.read(lambda db: now(db, lake.catalog.incarnation))

    with pytest.raises(NotKept, match=r"default\.lines cannot be read as of commit .* oldest state that is kept"):
        lake.catalog.write(lambda db: pin(db, PinId("late"), lake.lines.dataset_id, old, old.run_id))
    with pytest.raises(NotKept) as caught:
        lake.read(lambda db: find_snapshot_at(db, lake.lines, old.write_pointer - 1, newest))
    oldest = lake.read(lambda db: find_snapshot_at(db, lake.lines, caught.value.horizon - 1, newest))
    assert len(lake.read(lambda db: read_partitions(db, lake.lines.dataset_id, oldest))) == 1


def test_files_that_another_change_names_stay(lake, folder):
    """After an adoption or a roll-back, new rows of the catalog name old files."""
    first = write(lake, folder, 1)
    write(lake, folder, 1, "overwrite")
    again = lake.begin()
    key = lake.lines.keys.check({"hour": 1})
    manifest = Manifest((DataFile("1/hour=1/part-0.parquet", 4, 1, "etag"),))
    lake.commit(again, PartitionWrite(key, WriteOp.OVERWRITE, manifest, location=tx_directory(first)))

    expire(lake)

    assert files(folder) == [f"{tx_directory(first)}/1/hour=1/part-0.parquet"]


def test_files_that_were_there_before_are_never_deleted(lake, folder):
    """Adopted files were only registered: they belong to the user."""
    path = folder / "hour=1" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"rows")
    manifest = Manifest((DataFile("part-0.parquet", 4, 1, "etag"),))
    key = lake.lines.keys.check({"hour": 1})
    lake.commit(lake.begin(), PartitionWrite(key, WriteOp.CREATE, manifest, location="hour=1"))
    drop(lake, 1)

    assert expire(lake) == 2
    assert files(folder) == ["hour=1/part-0.parquet"]
    assert lake.read(lambda db: db.all(SQL.read_garbage)) == []


def test_much_goes_in_pieces_that_end_between_commits(lake, folder, monkeypatch):
    """The horizon cannot stand within a commit."""
    monkeypatch.setattr(expiry, "_MOST", 1)
    tx = lake.begin()
    publish(lake, folder, tx, *((hour, "append") for hour in range(4)))
    tx = lake.begin()
    publish(lake, folder, tx, *((hour, "overwrite") for hour in range(3)))
    write(lake, folder, 3, "overwrite")

    assert [expire(lake), expire(lake), expire(lake)] == [3, 1, 0]


@pytest.mark.parametrize(
    "mark", ["expiry.before_commit", "expiry.committed", "janitor.before_files", "janitor.after_files"]
)
def test_a_janitor_that_dies_leaves_the_rest_to_the_next(lake, folder, mark):
    """The intent stands before the deed."""
    write(lake, folder, 1)
    last = write(lake, folder, 1, "overwrite")
    world = lake.catalog.world

    class Crash(BaseException):
        pass

    def die(name):
        if name == mark:
            raise Crash

    lake.catalog.world = replace(world, marked=die)
    with pytest.raises(Crash):
        expire(lake)
    lake.catalog.world = world
    expire(lake)

    assert files(folder) == [f"{tx_directory(last)}/1/hour=1/part-0.parquet"]
    assert lake.read(lambda db: db.all(SQL.read_garbage)) == []
