"""Reads of a run: the files are checked again before the commit, and errors name the partition."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.lake.conftest import make_fileset
from tidemill.lake.fileset.fileset import Change, Partition, WriteOp
from tidemill.names import CommitSeq, WritePointer
from tidemill.run.step.reads import ReadChanges
from tidemill.shapes.manifest import DamagedFiles, DataFile, Manifest
from tidemill.storage.files import checksum
from tidemill.storage.locations import open_files
from tidemill.world import World

TX = "tx-7-inc"
FAILED = (
    "SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file file://{path}.  SQLSTATE: KD001"
)


class Read:
    """Published file that a run has read."""

    def __init__(self, folder: Path) -> None:
        self.fileset = make_fileset(folder, {"hour": "int"})
        self.path = folder / TX / "1/hour=5/a b.parquet"
        self.path.parent.mkdir(parents=True)
        self.path.write_bytes(b"rows")
        files = open_files(self.fileset.dataset.location, World())
        name = self.path.relative_to(folder).as_posix()
        status = files.stat(name)
        assert status is not None
        file = DataFile(name.removeprefix(f"{TX}/"), 4, 1, status.etag, checksum(files, name))
        key = self.fileset.keys.encode((5,))
        change = Change(key, WritePointer(7), CommitSeq(8), WriteOp.CREATE, TX, Manifest((file,)))
        self.reads = ReadChanges(World())
        self.reads.add(self.fileset, [Partition(key, (change,))])

    def failed(self) -> str:
        """Return Spark's error for an unreadable file."""
        return FAILED.format(path=str(self.path).replace(" ", "%20"))

    def forget(self, content: bytes) -> None:
        """Change the content as a bad disk does: without a new time."""
        status = self.path.stat()
        self.path.write_bytes(content)
        os.utime(self.path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.fixture
def read(tmp_path):
    """Make a published file that a run has read."""
    return Read(tmp_path)


def test_what_is_as_it_was_is_no_damage(read):
    """Most runs, and errors of a program's own."""
    read.reads.verify()

    assert read.reads.blame("ValueError: no") is None
    assert read.reads.blame(read.failed()) is None  # a disk that did not answer: the file is sound


@pytest.mark.parametrize(
    ("content", "why"), [(b"ROWS.", "has 5 bytes instead of 4"), (b"ROWS", "has other content"), (None, "is gone")]
)
def test_a_file_that_has_changed_since_refuses_the_commit(read, content, why):
    """Spark may have read the one or the other."""
    read.path.unlink()
    if content is not None:
        read.path.write_bytes(content)
        os.utime(read.path, (1, 1))  # else it may have the same within a step of the kernel's clock

    with pytest.raises(DamagedFiles, match=f"hour=5 of default.lines is damaged: .*{why}"):
        read.reads.verify()
    damage = read.reads.blame("a failure that may come from it")

    assert damage is not None
    assert why in str(damage)


def test_an_error_of_spark_names_the_partition(read):
    """A person has to restore just that partition: a path in the middle of a log does not help."""
    read.forget(b"ROWS")

    damage = read.reads.blame(read.failed())

    assert damage is not None
    assert (damage.dataset, damage.partition) == ("default.lines", "hour=5")
    assert "a b.parquet cannot be read: [FAILED_READ_FILE" in str(damage)
