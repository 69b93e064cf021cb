"""Lines of Hive's text tables: the values that Hive's own reader gives, as far as its versions agree."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from tidemill.frames.hive_rows import take_apart
from tidemill.lake.fileset.stored import HiveName, Storing, count_lines, reading_options
from tidemill.shapes.formats import FileFormat
from tidemill.shapes.keys import KeySchema
from tidemill.storage.hive_lines import HiveLines
from tidemill.storage.locations import open_files
from tidemill.world import World

COLUMNS = "i int, l bigint, s string, d double, m decimal(6,2), b boolean, dt date, ts timestamp"
DAY = date(2021, 3, 19)
TEN = "2021-03-19 01:00:00"
"""Ten o'clock in Tokyo, in UTC."""
READ = (
    ("1,2,abc,1.5,1.005,true,2021-03-19,2021-03-19 10:00:00", (1, 2, "abc", 1.5, Decimal("1.01"), True, DAY, TEN)),
    (" 1, 2,abc, 1.5, 1.5, true, 2021-03-19, 2021-03-19 10:00:00", (None, None, "abc", 1.5, None, None, None, TEN)),
    (
        r"1.7,2.9,a\,b\n\\c,1d,12345.678,TRUE,2021-3-9,2021-3-9 10:2:3",
        (1, 2, "a,b\n\\c", 1.0, None, True, date(2021, 3, 9), "2021-03-09 01:02:03"),
    ),
    (r"+1,-0,\N,-Infinity,1e2,t,20210319,2021-03-19T10:00:00", (1, 0, None, float("-inf"), Decimal(100), *[None] * 3)),
    (",,,,,,,", (None, None, "", *[None] * 5)),
    ("", (None,) * 8),
    (
        "9" * 20 + ",x,x,y,.5,1,,2021-03-19 10:00:00.123456789",
        (None, None, "x", None, Decimal("0.5"), None, None, f"{TEN}.123456"),
    ),
    (r"1,2,\\,1,1,False,2021-03-19,2021-03-19 10:00,extra,more", (1, 2, "\\", 1.0, Decimal(1), False, DAY, None)),
    ("1,2", (1, 2, *[None] * 6)),
    ("2,3,a\\", (2, 3, "a\\", *[None] * 5)),
)
"""Lines with commas and a backslash before those that belong to a value, and their values."""


@pytest.mark.spark
def test_a_line_has_the_values_that_hive_reads_in_it(spark):
    """A text that Hive cannot read as a value is null. An empty line is a row. A line may be too short or too long."""
    lines = HiveLines(",", escape="\\")
    storing = Storing(
        KeySchema.of({"day": "string"}),
        FileFormat.TEXT,
        options={"partition.time-zone": "Asia/Tokyo"},
        hive=HiveName("thrift://there", "default", "t", lines),
    )
    written = spark.createDataFrame([(line, str(at)) for at, (line, _) in enumerate(READ)], "value string, day string")

    columns = spark.createDataFrame([], COLUMNS).schema
    found = take_apart(written, storing, lines, columns)
    (usual,) = take_apart(
        spark.createDataFrame([("7\x01\\N\x01\\N",)], "value string"), storing, HiveLines(), columns
    ).collect()

    assert found.columns == [*columns.names, "day"]
    assert found.schema["m"].dataType == columns["m"].dataType
    utc = "date_format(to_utc_timestamp(ts, current_timezone()), 'yyyy-MM-dd HH:mm:ss.SSSSSS') AS ts"
    told = found.selectExpr("* EXCEPT (ts)", utc)
    rows = sorted(told.collect(), key=lambda row: int(row.day))
    for row, (line, wanted) in zip(rows, READ, strict=True):
        *values, at = (row[name] for name in columns.names)
        time = None if wanted[-1] is None else f"{wanted[-1]}.000000"[:26]
        assert (*values, at) == (*wanted[:-1], time), line
    assert usual[:3] == (7, None, None)


@pytest.mark.spark
def test_times_in_json_of_hive_are_of_the_zone_of_the_table(spark, tmp_path):
    """Hive writes no zone. A time with a zone, as Spark writes it, has its own."""
    named = HiveName("thrift://there", "default", "t")
    storing = Storing(
        KeySchema.of({"day": "string"}), FileFormat.JSON, options={"partition.time-zone": "Asia/Tokyo"}, hive=named
    )
    times = ("2021-03-19 10:00:00", "2021-03-19 10:00:00.5", "2021-03-19T01:00:00.000Z")
    (tmp_path / "a").write_text("".join(f'{{"ts":"{one}"}}\n' for one in times), encoding="utf-8")

    read = spark.read.schema("ts timestamp").options(**reading_options(storing)).json(str(tmp_path))

    found = [row[0] for row in read.selectExpr("unix_micros(ts) - 1616115600000000").collect()]
    assert sorted(found) == [0, 0, 500_000]


@pytest.mark.parametrize(
    ("text", "lines"), [(b"", 0), (b"a", 1), (b"a\n", 1), (b"a\r\nb\rc\n\nd", 5), (b"a\r", 1), (b"\r\r\n", 2)]
)
def test_each_end_of_a_line_of_hive_counts_once(tmp_path, text, lines):
    """By a line feed, a carriage return, or both, as Hadoop and Spark see them."""
    (tmp_path / "a").write_bytes(text)

    assert count_lines(open_files(str(tmp_path), World()), "a") == lines
