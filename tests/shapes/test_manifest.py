"""Manifests: what a change consists of, to the byte."""

from __future__ import annotations

import json
import shutil
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.transactions import Snapshot
from tidemill.errors import Internal
from tidemill.names import CommitSeq, WritePointer
from tidemill.shapes.keys import BadKey, KeySchema
from tidemill.shapes.manifest import (
    DamagedFiles,
    DataFile,
    Manifest,
    check_files,
    group_by_partition,
    is_marked,
    list_written,
    mark_committed,
    tx_directory,
    write_side_car,
)
from tidemill.storage.files import StorageUnavailable, checksum
from tidemill.storage.locations import local_folder, open_files
from tidemill.world import World

SNAPSHOT = Snapshot(WritePointer(7), "inc")
HOURS = KeySchema.of({"hour": "int"})


@pytest.fixture
def files(tmp_path):
    """A folder with what a write call left: two partitions, and what is Spark's own."""
    opened = open_files(tmp_path, World())
    for name in ("1/hour=5/b.parquet", "1/hour=5/a.parquet", "1/hour=6/a.parquet"):
        opened.put(f"tx-7-inc/{name}", b"rows")
    for name in ("1/_SUCCESS", "1/hour=5/.a.parquet.crc", "1/_temporary/0/hour=5/c.parquet", "10/hour=5/d.parquet"):
        opened.put(f"tx-7-inc/{name}", b"x")
    return opened


@given(st.dictionaries(st.text(min_size=1), st.tuples(st.integers(0), st.integers(0), st.text(), st.text())))
def test_a_manifest_survives_being_stored(drawn) -> None:
    """The catalog's copy is the truth about the files."""
    manifest = Manifest(tuple(DataFile(name, *rest) for name, rest in drawn.items()))

    assert Manifest.decode(manifest.encode()) == manifest


def test_a_manifest_of_a_later_version_is_refused() -> None:
    """An older program must not read half of what a newer one meant."""
    later = zlib.compress(json.dumps({"format": 2, "files": []}).encode())

    with pytest.raises(Internal, match="format 2"):
        Manifest.decode(later)


def test_a_file_named_twice_is_refused() -> None:
    """Its rows would be read twice."""
    file = DataFile("a", 1, 1, "e")

    with pytest.raises(Internal, match="twice"):
        Manifest((file,)).with_files_of(Manifest((file,)))


def test_only_data_files_of_this_very_call_are_listed(files) -> None:
    """Spark's own files, and the directory of another call, do not belong to the manifest."""
    listed = [status.name for status in list_written(files, "tx-7-inc/1")]

    assert listed == [f"tx-7-inc/1/{name}" for name in ("hour=5/a.parquet", "hour=5/b.parquet", "hour=6/a.parquet")]


def test_files_are_grouped_by_the_keys_of_their_directories(files) -> None:
    """Names are relative to the transaction's directory, so that two calls can be folded."""
    listed = list_written(files, "tx-7-inc/1")

    grouped = group_by_partition(HOURS, "tx-7-inc/1", listed, {status.name: 3 for status in listed})

    assert {key: [file.name for file in manifest.files] for key, manifest in grouped.items()} == {
        (5,): ["1/hour=5/a.parquet", "1/hour=5/b.parquet"],
        (6,): ["1/hour=6/a.parquet"],
    }
    assert (grouped[5,].total_rows, grouped[5,].total_bytes) == (6, 8)


def test_a_file_outside_of_any_partition_is_refused(files) -> None:
    """Rows without a key would be published nowhere."""
    files.put("tx-7-inc/1/stray.parquet", b"rows")
    listed = list_written(files, "tx-7-inc/1")

    with pytest.raises(BadKey):
        group_by_partition(HOURS, "tx-7-inc/1", listed, {status.name: 3 for status in listed})


def test_damage_is_named_by_partition_and_file(files) -> None:
    """A person has to bring back just that."""
    sound = DataFile("1/hour=5/a.parquet", 4, 1, "e")
    cut, gone = DataFile("1/hour=5/b.parquet", 5, 1, "e"), DataFile("1/hour=5/z.parquet", 4, 1, "e")
    check_files(files, "default.lines", lambda: "hour=5", "tx-7-inc", Manifest((sound,)))

    with pytest.raises(DamagedFiles, match=r"hour=5 of default\.lines") as caught:
        check_files(files, "default.lines", lambda: "hour=5", "tx-7-inc", Manifest((sound, cut, gone)))

    assert caught.value.files == (
        "tx-7-inc/1/hour=5/b.parquet has 4 bytes instead of 5",
        "tx-7-inc/1/hour=5/z.parquet is gone",
    )


@pytest.mark.parametrize("mount_point", [True, False])
def test_a_file_set_on_a_disk_that_is_not_mounted_is_not_damaged(files, *, mount_point: bool) -> None:
    """Its partitions were discarded after some attempts, though nothing of them was lost."""
    sound = DataFile("1/hour=5/a.parquet", 4, 1, "e")
    folder = local_folder(files)
    folder.rename(folder.with_name(f"{folder.name} away"))
    if mount_point:
        folder.mkdir()

    with pytest.raises(StorageUnavailable, match="not mounted" if mount_point else "no such folder"):
        check_files(files, "default.lines", lambda: "hour=5", "tx-7-inc", Manifest((sound,)))


def test_a_file_that_was_written_again_differs_from_a_copied_one(files) -> None:
    """The same size says nothing; a new time, or another inode, says nothing either."""
    name = "tx-7-inc/1/hour=5/a.parquet"
    known = DataFile("1/hour=5/a.parquet", 4, 1, "of another disk", checksum(files, name))
    check_files(files, "default.lines", lambda: "hour=5", "tx-7-inc", Manifest((known,)))

    files.put(name, b"row5")

    with pytest.raises(DamagedFiles, match=r"hour=5 of default\.lines is damaged: .*a.parquet has other content"):
        check_files(files, "default.lines", lambda: "hour=5", "tx-7-inc", Manifest((known,)))


def test_a_manifest_without_checksums_says_what_it_can(files) -> None:
    """Sizes are compared in any case."""
    assert DataFile(*json.loads('["a", 4, 1, "e"]')).checksum == ""
    known = DataFile("1/hour=5/a.parquet", 4, 1, "of another disk")
    check_files(files, "default.lines", lambda: "hour=5", "tx-7-inc", Manifest((known,)))


def test_side_cars_name_the_run_and_the_commit(files) -> None:
    """After a restore they are all that is known of what the catalog has forgotten."""
    write_side_car(files, SNAPSHOT, {"dataset": "default.lines"})
    before = is_marked(files, SNAPSHOT)
    mark_committed(files, SNAPSHOT, CommitSeq(9))
    mark_committed(files, SNAPSHOT, CommitSeq(9))

    side_car = json.loads(files.read(f"{tx_directory(SNAPSHOT)}/_manifest.json"))
    marker = json.loads(files.read(f"{tx_directory(SNAPSHOT)}/_committed"))

    identity = {"write_pointer": 7, "incarnation": "inc"}
    assert side_car == {"format": 1, **identity, "dataset": "default.lines"}
    assert marker == {**identity, "commit_seq": 9}
    assert (before, is_marked(files, SNAPSHOT)) == (False, True)


def test_a_marker_that_comes_after_all_was_deleted_leaves_nothing(files, tmp_path) -> None:
    """Its process was stopped after the commit until the data had expired: no janitor looks there a second time."""
    shutil.rmtree(tmp_path / tx_directory(SNAPSHOT))

    mark_committed(files, SNAPSHOT, CommitSeq(9))

    assert list(tmp_path.iterdir()) == []


def test_where_only_the_manifest_is_lost_a_late_marker_deletes_no_data(files, tmp_path) -> None:
    """Another program than Tidemill has deleted the manifest."""
    before = sorted(tmp_path.rglob("*"))

    mark_committed(files, SNAPSHOT, CommitSeq(9))

    assert sorted(tmp_path.rglob("*")) == before
