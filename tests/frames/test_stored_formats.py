"""Formats of file sets: each returns the written values, or refuses them. Evolved columns read earlier rows."""

from __future__ import annotations

import io
import os
from codecs import BOM_UTF8
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from tests.frames.test_spark import partitions, rows_of
from tests.lake.conftest import make_fileset
from tidemill.app.app import App
from tidemill.app.declared import BadDeclaration
from tidemill.frames.schema import BadFrame, look_into
from tidemill.frames.spark import PartitionWrites, read_partitions, spark_errors, write_partitions
from tidemill.lake.fileset.adopt import list_directories, look_at_files
from tidemill.lake.fileset.columns import column_schema, to_fields
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.publish import SchemaChanged
from tidemill.lake.fileset.stored import count_objects, count_others, count_records
from tidemill.shapes.formats import BadFormat, FileFormat, reason
from tidemill.shapes.head import read_head
from tidemill.shapes.manifest import DamagedFiles, Manifest
from tidemill.storage.locations import open_files
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


NO_ZONE = {
    "2021-03-19 10:05:00": "2021-03-19 10:05:00",
    "2021-03-19T10:05:00": "2021-03-19 10:05:00",
    "2021-03-19 10:05": "2021-03-19 10:05:00",
    "2021-03-19": "2021-03-19 00:00:00",
    "2021-03-19 10:05:00.5": "2021-03-19 10:05:00.5",
    "2021-03-19T10:05:00.123456": "2021-03-19 10:05:00.123456",
}
"""Times as Flink, Python, pandas and Spark write them, and as Spark shows them."""
NO_TIMES = ["10:30", "2021", "2021-02-30 10:00:00", "2021-03-19 10:05:00.1234567", " "]


def put(folder, file_format, content, **types):
    """A file set with these columns, and its partition with one file, which another program wrote; and the columns."""
    files = open_files(folder, World())
    files.prepare()
    files.put("hour=1/a", content)
    fileset = stored(folder, file_format)
    (found,) = list_directories(fileset, files)
    columns = column_schema(to_fields(types))

    def look(files, name, file_format):
        if file_format in {FileFormat.PARQUET, FileFormat.ORC}:
            return look_into(files, name, file_format)
        return count_others(files, name, file_format, columns.names), columns

    manifest = Manifest(tuple(look_at_files(fileset, files, found.files, None, look)[0]))
    return fileset, partitions(fileset, PartitionWrites({(1,): manifest}, columns), "hour=1"), columns


def with_times(file_format, texts):
    """The content of a file with these times."""
    head, line = ("ts,id\n", "{},1\n") if file_format == "csv" else ("", '{{"ts": "{}", "id": 1}}\n')
    return (head + "".join(map(line.format, texts))).encode()


@pytest.mark.spark
@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_times_of_other_programs_are_read_in_their_usual_forms(spark, tmp_path, file_format):
    """A listing takes such files. Each run over them would fail."""
    zones = {"Z": 0, "+01:00": -1, "-00:00": 0}
    zoned = {f"{text}{zone}": (time, hours) for text, time in NO_ZONE.items() for zone, hours in zones.items()}

    plain = put(tmp_path / "a", file_format, with_times(file_format, NO_ZONE), ts="timestamp_ntz", id="integer")
    fixed = put(tmp_path / "b", file_format, with_times(file_format, zoned), ts="timestamp", id="integer")
    plain, fixed = (read_partitions(World(), spark, *one) for one in (plain, fixed))

    assert [row[0] for row in plain.selectExpr("string(ts)").collect()] == list(NO_ZONE.values())
    wanted = [f"timestamp'{time} UTC' + make_interval(0, 0, 0, 0, {hours})" for time, hours in zoned.values()]
    (times,) = spark.sql(f"SELECT transform(array({', '.join(wanted)}), t -> unix_micros(t))").first()
    assert [row[0] for row in fixed.selectExpr("unix_micros(ts)").collect()] == times


@pytest.mark.spark
@pytest.mark.parametrize("file_format", ["csv", "json"])
@pytest.mark.parametrize(
    ("kind", "text"),
    [*(("timestamp_ntz", text) for text in (*NO_TIMES, "2021-03-19T10:05:00Z")), ("timestamp", "2021-03-19T10:05:00")],
)
def test_a_text_that_is_no_time_of_its_column_fails_its_file(spark, tmp_path, file_format, kind, text):
    """Null would lose the row from its window. A time without a zone is no instant."""
    file = put(tmp_path, file_format, with_times(file_format, [text]), ts=kind, id="integer")
    read = read_partitions(World(), spark, *file)

    with pytest.raises(spark_errors(), match=r"(?s)Encountered error while reading file .*/hour=1/a") as caught:
        read.collect()

    why = "Invalid date 'FEBRUARY 30'" if "02-30" in text else f"Text '{text}' could not be parsed"
    assert why in reason(str(caught.value))


SOUND = [
    ("csv", b"id,s\r\n1,abc\r\n2,def\r\n", ["abc", "def"]),
    ("csv", b"id,s\r\n1,abc\r\n\r\n\r\n2,def", ["abc", "def"]),
    ("csv", b'id,s\r\n1,"a\nb"\r\n2,"c,""d"""\r\n', ["a\nb", 'c,"d"']),
    ("csv", b"id,s\n\n1,abc\n\n\n2,def\n\n", ["abc", "def"]),
    ("csv", b'id,s\n1,"a\r\nb"\n"2","\n\n"\n', ["a\r\nb", "\n\n"]),
    ("csv", b'\xef\xbb\xbfid,s\n1,"abc"\n', ["abc"]),
    ("csv", b'\xef\xbb\xbf"id","s"\r\n"1","""a"""\r\n"2",""""\r\n', ['"a"', '"']),
    ("csv", b"id,s\r\n", []),
    ("json", b'{"id":1,"s":"a"}\r\n\r\n{"id":2,"s":"b"}\r\n', ["a", "b"]),
    ("json", b'\n{"id":1,"s":"a"}\n \t\n\n {"id":2,"s":"b"}', ["a", "b"]),
    ("json", b'\xef\xbb\xbf{"id":1,"s":"a"}\n', ["a"]),
]
"""Files of other programs, and the texts in them."""


@pytest.mark.spark
@pytest.mark.parametrize(("file_format", "content", "texts"), SOUND, ids=range(len(SOUND)))
def test_a_file_of_another_program_has_the_rows_that_are_counted(spark, tmp_path, file_format, content, texts):
    """Python's `csv` ends lines by CR LF, and blank lines are rows to no reader."""
    fileset, found, columns = put(tmp_path, file_format, content, id="integer", s="string")
    files = open_files(tmp_path, World())

    read = read_partitions(World(), spark, fileset, found, columns).collect()
    head = list(read_head(files, "hour=1/a", fileset.storing.format, 9))

    assert [row["s"] for row in read] == [row["s"] for row in head] == texts
    assert found[0].rows == len(texts)


@pytest.mark.parametrize(
    ("file_format", "content", "why"),
    [
        ("csv", b"id,s\r\n1,abc\n2,def\r\n", "end in CR LF and in LF"),
        ("csv", b"id,s\n1,abc\r\n2,def\n", "end in CR LF and in LF"),
        ("csv", b'id,s\r\n1,"a\r\nb"\r\n', "a line within a field"),
        ("csv", b'id,s\n1,"abc\n2,def\n', "never closed"),
        ("csv", b'id,s\n1,5" a\n2,6" b\n', "a quote stands within a field"),
        ("csv", b'id,s\n1,"a\\"b"\n', "a quote stands within a field"),
        ("csv", b"id,s\r1,a\r2,b\r", "the first line has to be id,s, not"),
        ("csv", b"id," + b"s" * 200_000, "the first line has to be id,s, not"),
        ("csv", b"", "the first line has to be id,s, not ''"),
        ("json", b'[{"id":1},{"id":2}]\n', "an object in braces, not '"),
        ("json", b'{"id":1}\nnull\n', "an object in braces, not 'null'"),
    ],
)
def test_a_file_in_which_spark_reads_other_rows_is_refused(tmp_path, file_format, content, why):
    """A listing that takes the file makes each run fail, or counts rows that no run reads."""
    files = open_files(tmp_path, World())
    files.put("a", content)

    with pytest.raises(BadFormat, match=why):
        count_others(files, "a", FileFormat(file_format), ["id", "s"])


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_rows_are_counted_wherever_a_file_is_cut_into_pieces(file_format):
    """A file is read piece by piece: an end of a line, or a field, may lie in two."""
    contents = [content.removeprefix(BOM_UTF8) for kind, content, _ in SOUND if kind == file_format]
    count = {"csv": count_records, "json": count_objects}[file_format]

    for content in contents:
        whole = count([content])
        assert {count([content[:at], content[at:]]) for at in range(len(content))} == {whole}
        assert count([content[at : at + 1] for at in range(len(content))]) == whole


@pytest.mark.spark
@pytest.mark.parametrize(
    ("file_format", "column", "zone", "options"),
    [
        ("parquet", "timestamp", None, {"use_deprecated_int96_timestamps": True}),
        ("parquet", "timestamp_ntz", None, {"use_deprecated_int96_timestamps": True}),
        ("parquet", "timestamp", "UTC", {"coerce_timestamps": "us", "allow_truncated_timestamps": True}),
        ("orc", "timestamp", None, {}),
        ("orc", "timestamp", "UTC", {}),
    ],
)
def test_times_in_files_of_pyarrow_are_read(spark, tmp_path, file_format, column, zone, options):
    """A listing takes these files. Digits behind the microseconds are cut, as Spark has none."""
    rows = pa.table({"ts": pa.array([1616148300123456789], pa.timestamp("ns", zone))})
    content = io.BytesIO()
    (parquet.write_table if file_format == "parquet" else orc.write_table)(rows, content, **options)

    read = read_partitions(World(), spark, *put(tmp_path, file_format, content.getvalue(), ts=column))

    (found,) = read.selectExpr("typeof(ts)", "string(ts)").collect()
    session = spark.sql("SELECT string(timestamp'2021-03-19 10:05:00.123456 UTC')").first()[0]
    local = "2021-03-19 10:05:00.123456"
    assert tuple(found) == (column, session if column == "timestamp" else local)


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
