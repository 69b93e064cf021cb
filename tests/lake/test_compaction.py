"""Compactions: the same rows in fewer files, for readers of whole partitions; consumers see nothing of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest

from tests.lake.conftest import SQL, make_lake
from tidemill.catalog.transactions import UndeclaredOutput, commit
from tidemill.lake.consumer.consumer import FROM_BEGINNING, consume_partitions
from tidemill.lake.fileset.compaction import Compact, CompactedPartition, CompactionConflict, is_worth_compacting
from tidemill.lake.fileset.expiry import expire_superseded
from tidemill.lake.fileset.fileset import Change, NotKept, Partition, WriteOp, read_partitions
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.lake.fileset.stored import FILE_BYTES
from tidemill.lake.fileset.time_travel import find_snapshot_at, now
from tidemill.lake.janitor import sweep
from tidemill.names import CommitSeq, WritePointer
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import DataFile, Manifest, tx_directory
from tidemill.upkeep.audit import audit
from tidemill.upkeep.fsck import fsck

KEY = KeyText("")

_numbers = count()


@pytest.fixture
def lake(catalog, tmp_path):
    """A file set in a folder of its own."""
    return make_lake(catalog, tmp_path / "lines")


def add(lake, hour, op="append", metadata=None):
    """Publish one file of one row, which is there."""
    tx = lake.begin()
    file = put(lake, tx, hour)
    key = lake.lines.keys.check({"hour": hour})
    lake.commit(tx, PartitionWrite(key, WriteOp(op), Manifest((file,)), metadata or {}))
    return tx


def put(lake, tx, hour, rows=1):
    """Put a file where `tx` writes."""
    name = f"1/hour={hour}/part-{next(_numbers)}.parquet"
    path = folder(lake) / tx_directory(tx) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"row" * rows)
    return DataFile(name, 3 * rows, rows, f"{path.stat().st_ino:x}-{path.stat().st_mtime_ns:x}-{path.stat().st_size:x}")


def folder(lake):
    """Folder with the files of the file set."""
    return Path(lake.lines.dataset.location.removeprefix("file://"))


def see(lake, snapshot=None, *, compacted=True):
    """Return the files that a reader sees, by hour."""
    snapshot = snapshot or lake.catalog.read(lambda db: now(db, lake.catalog.incarnation))
    found = lake.catalog.read(lambda db: read_partitions(db, lake.lines.dataset_id, snapshot, compacted=compacted))
    return {lake.hour(one.partition_key): one for one in found}


def prepare(lake, tx, *hours):
    """Return the reads and writes of `tx`: one file for each of `hours`."""
    seen = see(lake, tx)
    return Compact(
        tx,
        lake.lines,
        [CompactedPartition(seen[hour], Manifest((put(lake, tx, hour, seen[hour].rows),))) for hour in hours],
    )


def compact(lake, *hours):
    """Compact in a transaction of its own."""
    tx = lake.begin()
    commit(lake.catalog, tx, [prepare(lake, tx, *hours)])
    return tx


def holding(sizes, *, compacts=False):
    """A change, or a compaction, with files of these sizes; none without sizes."""
    files = tuple(DataFile(f"{n}", size, 1, "e") for n, size in enumerate(sizes))
    named = WritePointer(1), CommitSeq(2), WriteOp.APPEND, "tx-1-a"
    return [Change(KEY, *named, Manifest(files), compacts=compacts)] if files else []


def close(lake):
    """End what the test has left open."""
    lake.catalog.write(lambda db: db.run(SQL.end_all))


def test_readers_get_the_same_rows_in_one_file(lake):
    """That is what it is for; what is appended later comes beside it."""
    for _ in range(3):
        add(lake, 1)
    add(lake, 2)
    merged = compact(lake, 1)
    add(lake, 1)

    partition = see(lake)[1]
    assert partition.rows == 4
    assert [name.partition("/")[0] for name, _ in partition.files][-2:].count(tx_directory(merged)) == 1
    assert len(partition.files) == 2
    assert len(see(lake)[2].files) == 1


def test_a_second_compaction_replaces_the_first(lake):
    """Its files hold the rows of the first and of what came since."""
    for _ in range(3):
        add(lake, 1)
    compact(lake, 1)
    add(lake, 1)
    second = compact(lake, 1)

    partition = see(lake)[1]
    assert (partition.rows, len(partition.files)) == (4, 1)
    assert partition.files[0][0].startswith(tx_directory(second))


def test_each_snapshot_sees_the_rows_that_it_saw(lake):
    """Whenever it looks, before and after the compaction committed."""
    add(lake, 1)
    add(lake, 1)
    before = lake.begin()
    rows = {before: see(lake, before)[1].rows}
    tx = lake.begin()
    add(lake, 1)
    made = prepare(lake, tx, 1)
    during = lake.begin()
    rows[during] = see(lake, during)[1].rows
    commit(lake.catalog, tx, [made])
    add(lake, 1)
    after = lake.begin()
    rows[after] = see(lake, after)[1].rows
    compact(lake, 1)
    add(lake, 1, "overwrite")

    assert {one: see(lake, one)[1].rows for one in rows} == rows
    assert list(rows.values()) == [2, 3, 4]
    assert [len(see(lake, one)[1].files) for one in (before, during, after)] == [2, 3, 3]


def test_metadata_stay(lake):
    """Metadata stay: of the changes that a compaction holds, and of changes during the compaction."""
    add(lake, 1, metadata={"source": "crm", "by": "a"})
    add(lake, 1)
    tx = lake.begin()
    made = prepare(lake, tx, 1)
    add(lake, 1, metadata={"by": "b"})
    commit(lake.catalog, tx, [made])

    assert see(lake)[1].metadata == {"source": "crm", "by": "b"}


@pytest.mark.parametrize("op", ["overwrite", "drop"])
def test_a_commit_that_replaces_the_partition_wins(lake, op):
    """The compaction holds rows that no reader may see any more."""
    add(lake, 1)
    add(lake, 1)
    tx = lake.begin()
    made = prepare(lake, tx, 1)
    winner = lake.begin()
    lake.commit(winner, lake.write(1, op))

    with pytest.raises(CompactionConflict, match=f"hour=1 of default.lines.*{winner.run_id}"):
        commit(lake.catalog, tx, [made])
    assert (see(lake)[1].rows if op == "overwrite" else see(lake)) == (1 if op == "overwrite" else {})


def test_of_two_compactions_the_first_to_commit_wins(lake):
    """Both have the same rows: together they would be there twice."""
    add(lake, 1)
    add(lake, 1)
    first, second = lake.begin(), lake.begin()
    made = [prepare(lake, tx, 1) for tx in (first, second)]
    commit(lake.catalog, first, [made[0]])

    with pytest.raises(CompactionConflict):
        commit(lake.catalog, second, [made[1]])
    assert see(lake)[1].rows == 2


@pytest.mark.parametrize("op", ["overwrite", "append", "drop"])
def test_a_compaction_refuses_no_commit_of_others(lake, op):
    """A program that began before and commits after knows nothing of it."""
    add(lake, 1)
    add(lake, 1)
    tx = lake.begin()
    compact(lake, 1)
    lake.commit(tx, lake.write(1, op))

    assert {hour: one.rows for hour, one in see(lake).items()} == {"overwrite": {1: 1}, "append": {1: 3}, "drop": {}}[
        op
    ]


def test_what_replaces_the_partition_replaces_its_compaction(lake):
    """Also when the key is made again."""
    add(lake, 1)
    add(lake, 1)
    compact(lake, 1)
    add(lake, 1, "overwrite")
    assert see(lake)[1].rows == 1
    lake.commit(lake.begin(), lake.write(1, "drop"))
    add(lake, 1, "create")

    assert (see(lake)[1].rows, len(see(lake)[1].files)) == (1, 1)


@pytest.mark.parametrize("taken", [0, 1, 2, 3])
def test_consumers_get_each_change_once_whatever_was_compacted(lake, taken):
    """Delivered changes do not come again. Other changes are delivered from their own files."""
    lake.consumer()
    got = []
    pointers = []

    def take():
        tx = lake.begin()
        got.extend(change.write_pointer for one in lake.take(tx) for change in one.changes)
        lake.complete(tx)

    for number in range(3):
        pointers.append(add(lake, 1).write_pointer)
        if number < taken:
            take()
    compact(lake, 1)
    pointers.append(add(lake, 1).write_pointer)
    compact(lake, 1)
    take()
    take()

    assert got == pointers


def test_a_run_keeps_its_claims_while_they_are_compacted(lake):
    """Its next attempt gets the same changes."""
    lake.consumer()
    add(lake, 1)
    tx = lake.begin()
    first = lake.take(tx)
    add(lake, 1)
    compact(lake, 1)
    lake.end(tx)
    again = lake.try_again(tx)

    assert lake.take(again) == first


def test_a_state_that_the_caller_keeps_sees_nothing_of_it(lake):
    """From the beginning, and from between two changes."""
    add(lake, 1)
    first = consume_partitions(lake.catalog, lake.lines, FROM_BEGINNING)
    add(lake, 1)
    before = (
        consume_partitions(lake.catalog, lake.lines, first.state),
        consume_partitions(lake.catalog, lake.lines, FROM_BEGINNING),
    )
    compact(lake, 1)
    after = (
        consume_partitions(lake.catalog, lake.lines, first.state),
        consume_partitions(lake.catalog, lake.lines, FROM_BEGINNING),
    )

    assert [one.partitions for one in after] == [one.partitions for one in before]


def test_a_compaction_announces_nothing(lake):
    """No trigger counts it."""
    add(lake, 1)
    add(lake, 1)
    before = lake.read(lambda db: db.all(SQL.count_messages))
    compact(lake, 1)

    assert lake.read(lambda db: db.all(SQL.count_messages)) == before


def test_files_of_a_replaced_compaction_are_deleted_and_those_of_changes_stay(lake):
    """Consumers may still ask for a change. No reader asks for an earlier compaction."""
    for _ in range(2):
        add(lake, 1)
    compact(lake, 1)
    add(lake, 1)
    compact(lake, 1)
    close(lake)
    assert len(list(folder(lake).rglob("*.parquet"))) == 5

    assert expire_superseded(lake.catalog, timedelta(0)) == 1
    lake.catalog.write(lambda db: db.run(SQL.pass_garbage_time))
    sweep(lake.catalog)

    assert len(list(folder(lake).rglob("*.parquet"))) == 4
    assert see(lake)[1].rows == 3
    assert all((folder(lake) / name).exists() for name, _ in see(lake)[1].files)
    assert fsck(lake.catalog, [lake.lines]).clean


def test_time_travel_ends_where_a_compaction_was_deleted(lake):
    """A state that needs it is refused, not read without it."""
    add(lake, 1)
    add(lake, 1)
    first = compact(lake, 1)
    add(lake, 1)
    compact(lake, 1)
    close(lake)
    seen = lake.catalog.read(lambda db: now(db, lake.catalog.incarnation))
    expire_superseded(lake.catalog, timedelta(0))

    with pytest.raises(NotKept):
        lake.catalog.read(lambda db: find_snapshot_at(db, lake.lines, int(first.write_pointer) + 2, seen))


def test_an_open_reader_keeps_a_compaction(lake):
    """Its snapshot sees it."""
    add(lake, 1)
    add(lake, 1)
    compact(lake, 1)
    close(lake)
    reader = lake.begin()
    add(lake, 1, "overwrite")

    assert expire_superseded(lake.catalog, timedelta(0)) == 0
    assert see(lake, reader)[1].rows == 2
    lake.end(reader)
    assert expire_superseded(lake.catalog, timedelta(0)) == 3


def test_catalog_and_storage_agree_after_it(lake):
    """The directory is no stray, the files are named."""
    add(lake, 1)
    add(lake, 1)
    compact(lake, 1)
    close(lake)
    sweep(lake.catalog)
    found = fsck(lake.catalog, [lake.lines])

    assert (found.clean, found.files) == (True, 3)
    assert audit(lake.catalog).clean


def test_a_transaction_compacts_only_what_it_has_declared(lake):
    """As each write."""
    tx = replace(lake.begin(), writes=frozenset())

    with pytest.raises(UndeclaredOutput):
        Compact(tx, lake.lines, [])


@pytest.mark.parametrize(
    ("sizes", "worth"),
    [
        ([], False),
        ([1], False),
        ([1, 1], True),
        ([FILE_BYTES - 1, 1], False),
        ([FILE_BYTES, FILE_BYTES], False),
        ([FILE_BYTES // 8] * 8, True),
        ([FILE_BYTES // 4] * 8, True),
        ([FILE_BYTES // 2] * 8, False),
    ],
)
def test_only_what_leaves_half_of_the_files_is_worth_it(sizes, worth):
    """Else each compaction would copy all that earlier ones have made."""
    assert is_worth_compacting(Partition(KEY, tuple(holding(sizes)))) is worth


@pytest.mark.parametrize(("merged", "later", "worth"), [(1, 0, False), (3, 0, False), (3, 2, False), (3, 3, True)])
def test_what_a_compaction_has_made_is_not_made_again(merged, later, worth):
    """Spark makes as many files again of the same rows, however few would hold their bytes."""
    changes = (*holding([1] * merged, compacts=True), *holding([1] * later))

    assert is_worth_compacting(Partition(KEY, changes)) is worth
