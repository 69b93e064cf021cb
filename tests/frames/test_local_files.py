"""Writes to a local folder: Hadoop starts no process for permissions, and the permissions are the same."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tidemill.frames.jvm import gateway_of, jvm_of
from tidemill.frames.local_files import set_permissions_in_jvm

pytestmark = pytest.mark.spark


@pytest.fixture
def with_processes(spark):
    """Hadoop's own class, until the end of a test."""
    jvm_of(spark).org.apache.hadoop.fs.FileSystem.closeAll()
    yield
    assert set_permissions_in_jvm(spark)


def test_a_write_starts_no_process(spark, tmp_path):
    """Hadoop's own class starts `chmod` for each file, checksum file and folder."""
    write(spark, tmp_path / "first")  # what the JVM starts once

    before = count_ended_processes(spark)
    write(spark, tmp_path / "second")

    assert count_ended_processes(spark) == before


def test_hadoop_itself_starts_processes(spark, tmp_path, with_processes):
    """Else the test above would show nothing."""
    before = count_ended_processes(spark)

    write(spark, tmp_path / "first")

    assert count_ended_processes(spark) > before


def test_permissions_are_those_of_hadoop(spark, tmp_path):
    """A user that could read a file before can read it now, also by the group that a shared folder gives its files."""
    tmp_path.chmod(0o2775)
    write(spark, tmp_path / "ours")
    jvm_of(spark).org.apache.hadoop.fs.FileSystem.closeAll()
    write(spark, tmp_path / "hadoop")
    assert set_permissions_in_jvm(spark)

    assert list_modes(tmp_path / "ours") == list_modes(tmp_path / "hadoop")
    assert ("folder", 0o2755) in list_modes(tmp_path / "ours")


@pytest.mark.parametrize("mode", [0o000, 0o640, 0o775, 0o1777])
def test_each_permission_can_be_set(spark, tmp_path, mode):
    """Also the bit of folders like `/tmp`, in which users remove their own files alone."""
    fs = jvm_of(spark).org.apache.hadoop.fs
    path = fs.Path(str(tmp_path))

    path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration()).setPermission(
        path, fs.permission.FsPermission(f"{mode:04o}")
    )

    assert stat.S_IMODE(tmp_path.stat().st_mode) == mode
    tmp_path.chmod(0o700)


def test_a_class_that_a_site_has_named_is_left_alone(spark, tmp_path, with_processes):
    """The raw file system writes no checksum files: some sites want that."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    try:
        installed = set_permissions_in_jvm(spark)
        write(spark, tmp_path / "raw")
    finally:
        settings.unset("fs.file.impl")
        jvm_of(spark).org.apache.hadoop.fs.FileSystem.closeAll()

    assert not installed
    assert list((tmp_path / "raw").rglob("*.crc")) == []


def write(spark, folder: Path) -> None:
    """Write five partitions."""
    spark.range(0, 10, 1, 1).selectExpr("id", "id % 5 AS part").write.partitionBy("part").parquet(str(folder))


def list_modes(folder: Path) -> set[tuple[str, int]]:
    """Return the kinds of what lies below a folder, with their permissions."""
    return {
        ("folder" if path.is_dir() else path.suffix, stat.S_IMODE(path.stat().st_mode)) for path in folder.rglob("*")
    }


def count_ended_processes(spark) -> int:
    """Return the page faults of the processes that the JVM has started and that have ended: each process has some."""
    words = Path(f"/proc/{gateway_of(spark).proc.pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[8])
