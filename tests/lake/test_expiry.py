"""The end of time travel: what goes, what stays for whom, and what is said to who comes too late."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.lake.conftest import SQL, make_lake
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.consumer.claims import CompleteClaims
from tidemill.lake.fileset import expiry
from tidemill.lake.fileset.expiry import expire_superseded
from tidemill.lake.fileset.fileset import NotKept, Unpin, WriteOp, pin, read_partitions
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.lake.fileset.time_travel import find_snapshot_at, now
from tidemill.lake.janitor import sweep
from tidemill.lake.manifest import DataFile, Manifest, mark_committed, tx_directory
from tidemill.names import PinId, WritePointer
from tidemill.storage.files import open_files
from tidemill.world import World

AT_ONCE = timedelta(0)


@pytest.fixture
def lake(catalog, tmp_path):
    """A file set in a folder of its own."""
    return make_lake(catalog, tmp_path / "lines")


@pytest.fixture
def folder(tmp_path) -> Path:
    """Where the file set has its files."""
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


def let_go(lake, keep=AT_ONCE):
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

    assert let_go(lake) == 1
    assert files(folder) == [
        f"{tx_directory(t)}/1/hour={h}/part-0.parquet"
        for t, h in sorted([(both, 2), (second, 1)], key=lambda one: tx_directory(one[0]))
    ]
    assert let_go(lake) == 0


def test_a_directory_without_anything_to_keep_goes_as_a_whole(lake, folder):
    """Else side-cars and markers would stay for ever."""
    write(lake, folder, 1)
    drop(lake, 1)

    assert let_go(lake) == 2
    assert list(folder.iterdir()) == []
    assert lake.read(lambda db: db.all(SQL.read_garbage)) == []


def test_nothing_goes_before_its_time(lake, folder):
    """Seven days, unless somebody says otherwise; the file set's own word counts more."""
    write(lake, folder, 1)
    write(lake, folder, 1, "overwrite")

    assert let_go(lake, timedelta(days=7)) == 0
    assert len(files(folder)) == 2


def test_deletion_waits_a_while_after_it_was_decided(lake, folder):
    """Whoever was told the files a moment ago can still open them."""
    write(lake, folder, 1)
    write(lake, folder, 1, "overwrite")
    lake.catalog.write(lambda db: db.run(SQL.age_transactions, by=86_400_000))

    expired = expire_superseded(lake.catalog, timedelta(hours=1))
    sweep(lake.catalog)

    assert expired == 1
    assert len(files(folder)) == 2


@pytest.mark.parametrize("reader", ["open transaction", "pin", "pin as of"])
def test_what_a_reader_sees_stays_as_long_as_it_reads(lake, folder, reader):
    """It may open the files hours after they were replaced."""
    write(lake, folder, 1)
    tx = lake.begin("run_reader")
    seen = tx if reader != "pin as of" else Snapshot(WritePointer(tx.write_pointer - 1), tx.incarnation)
    if reader != "open transaction":
        lake.catalog.write(lambda db: pin(db, PinId("pin_1"), lake.lines.dataset_id, seen, tx.run_id))
        lake.end(tx)
    write(lake, folder, 1, "overwrite")

    kept = let_go(lake)
    still_there = len(files(folder))
    lake.catalog.apply([Unpin(tx.run_id)])
    close(lake)

    assert (kept, still_there) == (0, 2)
    assert let_go(lake) == 1
    assert len(files(folder)) == 1


def test_what_a_run_has_claimed_stays_until_it_is_done(lake, folder):
    """Between two attempts nothing is open, and the next one gets the same."""
    write(lake, folder, 1)
    tx = lake.begin()
    lake.take(tx)
    lake.end(tx)
    write(lake, folder, 1, "overwrite")

    kept = let_go(lake)
    again = lake.try_again(tx)
    lake.commit(again, effects=[CompleteClaims(again.run_id, again.epoch)])

    assert kept == 0
    assert let_go(lake) == 1


def test_what_waits_for_a_consumer_and_was_replaced_goes(lake, folder):
    """It is not delivered any more; what replaced it is."""
    write(lake, folder, 1)
    lake.consumer()
    second = write(lake, folder, 1, "overwrite")

    let_go(lake)

    (delivery,) = lake.take(lake.begin())
    assert [change.write_pointer for change in delivery.changes] == [second.write_pointer]


def test_who_comes_too_late_is_told(lake, folder):
    """An earlier state without its files must not be read as one with fewer rows."""
    write(lake, folder, 1)
    old = lake.begin()
    lake.end(old)
    write(lake, folder, 1, "overwrite")
    let_go(lake)
    newest = lake.read(lambda db: now(db, lake.catalog.incarnation))

    with pytest.raises(NotKept, match=r"default\.lines cannot be read as of commit .* oldest state that is kept"):
        lake.catalog.write(lambda db: pin(db, PinId("late"), lake.lines.dataset_id, old, old.run_id))
    with pytest.raises(NotKept) as caught:
        lake.read(lambda db: find_snapshot_at(db, lake.lines, old.write_pointer - 1, newest))
    oldest = lake.read(lambda db: find_snapshot_at(db, lake.lines, caught.value.horizon - 1, newest))
    assert len(lake.read(lambda db: read_partitions(db, lake.lines.dataset_id, oldest))) == 1


def test_files_that_another_change_names_stay(lake, folder):
    """What was adopted after a restore, or rolled back to, has new rows over old files."""
    first = write(lake, folder, 1)
    write(lake, folder, 1, "overwrite")
    again = lake.begin()
    key = lake.lines.keys.check({"hour": 1})
    manifest = Manifest((DataFile("1/hour=1/part-0.parquet", 4, 1, "etag"),))
    lake.commit(again, PartitionWrite(key, WriteOp.OVERWRITE, manifest, location=tx_directory(first)))

    let_go(lake)

    assert files(folder) == [f"{tx_directory(first)}/1/hour=1/part-0.parquet"]


def test_files_that_were_there_before_are_never_deleted(lake, folder):
    """They were only registered: they belong to somebody else."""
    path = folder / "hour=1" / "part-0.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"rows")
    manifest = Manifest((DataFile("part-0.parquet", 4, 1, "etag"),))
    key = lake.lines.keys.check({"hour": 1})
    lake.commit(lake.begin(), PartitionWrite(key, WriteOp.CREATE, manifest, location="hour=1"))
    drop(lake, 1)

    assert let_go(lake) == 2
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

    assert [let_go(lake), let_go(lake), let_go(lake)] == [3, 1, 0]


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
        let_go(lake)
    lake.catalog.world = world
    let_go(lake)

    assert files(folder) == [f"{tx_directory(last)}/1/hour=1/part-0.parquet"]
    assert lake.read(lambda db: db.all(SQL.read_garbage)) == []
