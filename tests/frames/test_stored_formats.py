"""Formats of file sets: each returns the written values, or refuses them. Evolved columns read earlier rows."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tests.frames.test_spark import partitions, rows_of
from tests.lake.conftest import make_fileset
from tidemill.app.app import App
from tidemill.app.declared import BadDeclaration
from tidemill.frames.schema import BadFrame
from tidemill.frames.spark import read_partitions, write_partitions
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.publish import SchemaChanged
from tidemill.shapes.formats import BadFormat
from tidemill.shapes.manifest import DamagedFiles
from tidemill.world import World

NASTY = [
    "a",
    "",
    None,
    " x ",
    '"',
    "\\",
    'a"b',
    "a,b",
    "x\ny",
    "x\r\ny",
    "\r",
    "#c",
    "\\N",
    "ü€😀",
    "null",
    '""',
    "\0z",
    "\ufeffq",
]


def stored(folder, file_format, **more):
    """A file set keyed by hour, in that format."""
    dataset = make_fileset(folder, {"hour": "int"}).dataset
    return Fileset.of(replace(dataset, spec={**dataset.spec, "format": file_format, **more}))


def there_and_back(spark, fileset, frame, *, call=1, columns=None):
    """The rows of a write, read again; and the columns that the file set has."""
    written = write_partitions(World(), frame, fileset, f"tx-7-inc/{call}", columns)
    found = partitions(fileset, written)
    assert sum(partition.rows for partition in found) == frame.count()
    return found, read_partitions(World(), spark, fileset, found, written.schema), written.schema


@pytest.mark.spark
@pytest.mark.parametrize("file_format", ["orc", "csv", "json"])
def test_every_value_comes_back(spark, tmp_path, file_format):
    """Spark's own options for text turn '' into null, strip blanks and cut microseconds."""
    rows = [
        (text, n / 7 if n else float("inf"), datetime(2013, 10, 27, 0, 30, n, 123456, UTC), date(1969, 12, 31), n % 3)
        for n, text in enumerate(NASTY)
    ]
    columns = "s string, x double, t timestamp, d date, hour int"
    frame = spark.createDataFrame(rows, columns).selectExpr(
        "*", "cast(1.1 as decimal(5,2)) as n", "cast('2013-03-31 02:30:00.123456' as timestamp_ntz) as local", "s as z"
    )

    found, read, _ = there_and_back(spark, stored(tmp_path, file_format), frame)

    assert [partition.rows for partition in found] == [6, 6, 6]
    assert set(map(repr, rows_of(read.select("x", "t", "d", "n", "local", "hour", "s")))) == set(
        map(repr, rows_of(frame.select("x", "t", "d", "n", "local", "hour", "s")))
    )
    assert read.first()["n"] == Decimal("1.10")


@pytest.mark.spark
def test_text_holds_one_column_of_lines(spark, tmp_path):
    """A text that a line cannot hold is refused, not lost."""
    lines = stored(tmp_path, "text")
    texts = ["", " a ", '"', "\ufeffq", "x\ry"]
    frame = spark.createDataFrame([(text, 1) for text in texts], "line string, hour int")

    _, read, _ = there_and_back(spark, lines, frame)

    assert sorted(row["line"] for row in read.collect()) == sorted(texts)
    with pytest.raises(BadFrame, match="end of line"):
        write_partitions(World(), spark.sql("SELECT 'a\nb' AS line, 1 AS hour"), lines, "tx-7-inc/2")
    with pytest.raises(BadFrame, match="null in line"):
        write_partitions(World(), spark.sql("SELECT string(null) AS line, 1 AS hour"), lines, "tx-7-inc/3")
    with pytest.raises(BadFrame, match="one column, a string"):
        write_partitions(World(), spark.sql("SELECT 1 AS line, 1 AS hour"), lines, "tx-7-inc/4")


@pytest.mark.spark
def test_what_a_format_has_no_text_for_is_refused(spark, tmp_path):
    """A line of CSV without anything is skipped by readers; a struct has no text."""
    one = stored(tmp_path, "csv")

    with pytest.raises(BadFrame, match="null in s"):
        write_partitions(World(), spark.sql("SELECT string(null) AS s, 1 AS hour"), one, "tx-7-inc/1")
    with pytest.raises(BadFrame, match="STRUCT"):
        write_partitions(World(), spark.sql("SELECT struct(1 AS a) AS s, 1 AS hour"), one, "tx-7-inc/2")


@pytest.mark.spark
@pytest.mark.parametrize("file_format", ["parquet", "orc", "json"])
def test_old_partitions_read_under_columns_that_have_evolved(spark, tmp_path, file_format):
    """Null where a column was not yet there; wider types hold the same values."""
    fileset = stored(tmp_path, file_format, policy="evolve")
    old = spark.sql("SELECT 1 AS a, float(1.5) AS f, 1 AS hour")
    new = spark.sql("SELECT 'x' AS b, bigint(5000000000) AS a, 2 AS hour")
    first, _, columns = there_and_back(spark, fileset, old)

    second, _, evolved = there_and_back(spark, fileset, new, call=2, columns=columns)
    both = read_partitions(World(), spark, fileset, [*first, *second], evolved)

    assert both.columns == ["a", "f", "b", "hour"]
    assert dict(both.dtypes) == {"a": "bigint", "f": "float", "b": "string", "hour": "int"}
    assert sorted(map(tuple, both.collect())) == [(1, 1.5, None, 1), (5000000000, None, "x", 2)]
    with pytest.raises(SchemaChanged):
        write_partitions(World(), spark.sql("SELECT 'x' AS a, 1 AS hour"), fileset, "tx-7-inc/3", evolved)


@pytest.mark.spark
@pytest.mark.parametrize("file_format", ["orc", "csv", "json", "text"])
def test_a_flipped_byte_is_found_where_the_file_set_asks_for_checksums(spark, tmp_path, file_format):
    """A disk that forgets changes neither size nor time; only Parquet's pages tell by themselves."""
    fileset = stored(tmp_path, file_format, checksum=True)
    found, _, columns = there_and_back(spark, fileset, spark.sql("SELECT 'abcdef' AS s, 1 AS hour"))
    path = Path(tmp_path, "tx-7-inc", found[0].changes[0].manifest.files[0].name)
    content, times = path.read_bytes(), path.stat()
    path.write_bytes(content.replace(b"abcdef", b"abcxef"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    with pytest.raises(DamagedFiles, match=r"hour=1 of default\.lines is damaged: .* has other content"):
        read_partitions(World(), spark, fileset, found, columns)


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"format": "parkuet"}, BadDeclaration, "did you mean 'parquet'"),
        ({"schema": "evolv"}, BadDeclaration, "did you mean 'evolve'"),
        ({"format": "csv", "schema": "evolve"}, BadFormat, "cannot evolve"),
        ({"keep_superseded": "0s"}, BadFormat, "is no time"),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(options, error, why):
    """A bad declaration is refused where it is made, before anything is written."""
    with pytest.raises(error, match=why):
        App("shop").fileset("clicks", keys={"hour": "int"}, **options)
