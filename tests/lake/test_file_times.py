"""Times of files: a footer gives the least and the largest time where each row has one, and is believed only then."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyarrow import parquet

from tidemill.lake.fileset.stored import measure_file
from tidemill.shapes.formats import FileFormat
from tidemill.shapes.manifest import DataFile, FileTimes, Manifest
from tidemill.storage.locations import open_files
from tidemill.world import World

UTC_TIME = pa.timestamp("us", tz="UTC")


@pytest.mark.parametrize(
    ("times", "kind", "options", "wanted"),
    [
        ([30, 10, 20, 40], UTC_TIME, {}, (10, 40)),
        ([-5, -9, 3, 2], UTC_TIME, {}, (-9, 3)),
        ([30, None, 20, 40], UTC_TIME, {}, None),
        ([30, 10, 20, 40], UTC_TIME, {"write_statistics": False}, None),
        ([30, 10, 20, 40], UTC_TIME, {"use_deprecated_int96_timestamps": True}, None),
        ([30, 10, 20, 40], pa.timestamp("us"), {}, None),
        ([30, 10, 20, 40], pa.timestamp("ms", tz="UTC"), {}, None),
        ([30, 10, 20, 40], pa.int64(), {}, None),
        ([], UTC_TIME, {}, None),
    ],
)
def test_a_footer_gives_the_times_of_all_rows_or_none(tmp_path, times, kind, options, wanted):
    """The row groups count together. A wall-clock time is no instant."""
    table = pa.table({"amount": pa.array(range(len(times))), "Ts": pa.array(times, pa.int64()).cast(kind)})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=2, **options)
    files = open_files(str(tmp_path), World())

    rows, found = measure_file(files, "a.parquet", FileFormat.PARQUET, "ts")

    assert rows == len(times)
    assert found == (wanted and FileTimes("ts", *wanted))
    assert measure_file(files, "a.parquet", FileFormat.PARQUET, None) == (rows, None)


def test_a_manifest_keeps_the_times_of_those_files_that_have_them():
    """Catalogs of before have files without."""
    manifest = Manifest((DataFile("1/a", 1, 1, "e", "", FileTimes("ts", 1, 2)), DataFile("1/b", 1, 1, "e")))

    assert Manifest.decode(manifest.encode()) == manifest
