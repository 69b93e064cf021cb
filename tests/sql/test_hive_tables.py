"""Tables of a Hive metastore: monitored as they are, while Spark reads and writes them as before."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pymetastore.hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table

from tests.hive_server import running_metastore, running_spark
from tests.sql.conftest import Windows
from tests.stage import open_stage
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.stored import HiveName
from tidemill.mill.statements import BadTable
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.run.processes.monitoring import find_fault
from tidemill.shapes.formats import FileFormat
from tidemill.storage.hive_lines import HiveLines
from tidemill.storage.metastore import MetastoreUnavailable, describe, describe_partition

APP = """
import tidemill as tm

app = tm.App("shop")
hourly = app.fileset("hourly", keys={"day": "date"})
app.window_sql("count_hours", '''
    INSERT INTO hourly SELECT window_start, window_end, count(*) AS n, max(y) AS y, sum(z) AS z,
           to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE hive_table, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end''')
"""
CREATE = """
CREATE TABLE hive_table (x int, y string, z int, ts timestamp)
PARTITIONED BY (pt_day string, pt_hour string) STORED AS {}
TBLPROPERTIES ('partition.time-interval'='1h')
"""
"""The seed's table, as Hive and Spark make it: without the watermark, which they do not know."""
PAGE = Path(__file__).parent.parent.parent / "docs" / "hive.md"
SCHEMA = '{"fields":[{"metadata":{},"name":"ts","nullable":true,"type":"timestamp_ntz"}],"type":"struct"}'


def write(hour: int, *rows: int) -> str:
    """Return the statement by which Spark replaces the rows of an hour."""
    values = ", ".join(f"({row}, '{row}', {row}, TIMESTAMP '2021-03-19 {hour}:05:00')" for row in rows)
    return f"INSERT OVERWRITE hive_table PARTITION (pt_day='2021-03-19', pt_hour='{hour}') VALUES {values}"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("stored", ["PARQUET", "TEXTFILE"])
def test_a_table_of_hive_has_windows_while_spark_reads_and_writes_it_as_before(
    sqlite_catalog_url, tmp_path, spark, stored
):
    """An hour that the metastore lists is counted; a directory that it does not list is no partition."""
    folder = tmp_path / "hive"
    folder.mkdir()
    with running_metastore(folder) as address, running_spark(address, folder) as other:
        other(CREATE.format(stored))
        other(write(10, 1, 2))
        before = other("SELECT * FROM hive_table")
        stage = open_stage(
            Windows,
            tmp_path / "project",
            sqlite_catalog_url,
            "import tidemill as tm\n",
            environ={**os.environ, "TIDEMILL_HIVE_METASTORE": f"thrift://127.0.0.1:1,{address}"},
            spark=spark,
        )
        (statements,) = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        said = stage.mill.sql(statements)
        stage.deploy(APP)
        told: list[str] = []
        discoverer = Discoverer(stage.mill.project.catalog, Narrator(stage.world, told.append, as_json=False))

        def count() -> list[tuple[str, int, str, int]]:
            stage.world.clock.sleep(timedelta(seconds=1))
            discoverer.list_due()
            run = stage.run()
            assert run.state == "COMPLETED", told
            return sorted((f"{row.window_start:%H:%M}", row.n, row.y, row.z) for row in stage.read("hourly").collect())

        first = count()
        meanwhile = other("SELECT * FROM hive_table")
        other(write(11, 3))
        other(write(10, 7))
        day = folder / "warehouse/hive_table/pt_day=2021-03-19"
        shutil.copytree(day / "pt_hour=11", day / "pt_hour=20")  # Hive sees none of it
        second = count()
        other("ALTER TABLE hive_table ADD PARTITION (pt_day='2021-03-19', pt_hour='12')")
        other(f"ALTER TABLE hive_table ADD PARTITION (pt_day='2021-03-19', pt_hour='13') LOCATION '{tmp_path}/away'")
        other("ALTER TABLE hive_table DROP PARTITION (pt_day='2021-03-19', pt_hour='10')")
        third = count()
        after = other("SELECT x FROM hive_table")
        properties = {row["key"]: row["value"] for row in other("SHOW TBLPROPERTIES hive_table")}
        (described,) = stage.mill.sql("DESCRIBE hive_table")
        watermark = str(stage.mill.watermarks.show("hive_table").watermark)
        other("ALTER TABLE hive_table SET SERDEPROPERTIES ('field.delim'='|')")
        other(write(14, 9))
        fourth = count()
        stage.mill.close()

    assert [one.notices for one in said] == [(), ()]
    assert first == [("10:00", 2, "2", 3)], told
    assert meanwhile == before
    assert second == [("10:00", 1, "7", 7), ("11:00", 1, "3", 3)], told
    assert third == [("11:00", 1, "3", 3)], told
    # Hive reads a partition by the delimiters of before, and Spark by those that the table has now.
    assert fourth[1:] == ([] if stored == "TEXTFILE" else [("14:00", 1, "9", 9)]), told
    assert any("pt_hour=13" in line and f"its files are at file://{tmp_path}/away" in line for line in told), told
    assert any("delimiters in Hive are '|'" in line for line in told) is (stored == "TEXTFILE"), told
    assert watermark.startswith("2021-03-19 13:00:00"), watermark
    assert after == [{"x": 3}]
    assert properties["tidemill.watermark"] == "ts"
    assert properties["partition.time-interval"] == "1h"
    assert {row["column"]: row["watermark"] for row in described.rows}["ts"] == "SOURCE_WATERMARK"


def table(**changed: object) -> Table:
    """A table as Thrift gives it."""
    reads = "org.apache.hadoop.hive.ql.io.orc.OrcInputFormat"
    columns = [FieldSchema("ts", "timestamp"), FieldSchema("tags", "array<struct<a:int,b:string>>")]
    storage = StorageDescriptor(cols=columns, location="s3a://lake/clicks", inputFormat=reads, serdeInfo=SerDeInfo())
    facts = {"tableType": "EXTERNAL_TABLE", "parameters": {}, "partitionKeys": [FieldSchema("day", "string")]}
    return Table(**{"sd": storage, **facts, **changed})


def test_a_table_is_described_as_hive_and_spark_describe_it():
    """Spark keeps its own types in the properties: Hive has no TIMESTAMP_NTZ."""
    of_hive = describe(table())
    of_spark = describe(table(parameters={"spark.sql.sources.provider": "parquet", "spark.sql.sources.schema": SCHEMA}))
    in_parts = {"spark.sql.sources.schema.numParts": "2"}
    in_parts |= {f"spark.sql.sources.schema.part.{n}": SCHEMA[40 * n : 40 * n + 40 + 999 * n] for n in range(2)}

    assert (of_hive.location, of_hive.file_format, of_hive.keys) == ("s3://lake/clicks", "orc", {"day": "string"})
    assert of_hive.hive_columns == {"ts": "timestamp", "tags": "array<struct<a:int,b:string>>"}
    assert of_hive.columns == ()
    assert of_spark.file_format == "parquet"
    assert [one["type"] for one in of_spark.columns] == ["timestamp_ntz"]
    assert describe(table(parameters=in_parts)).columns == of_spark.columns


LAZY = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"


def text_table(own: dict[str, str], library: str = LAZY, kind: str = "timestamp", **changed: object) -> Table:
    """A table in text, with properties of its lines, as Thrift gives it."""
    reads = "org.apache.hadoop.mapred.TextInputFormat"
    serde = SerDeInfo(serializationLib=library, parameters=own)
    storage = StorageDescriptor(cols=[FieldSchema("ts", kind)], location="/t", inputFormat=reads, serdeInfo=serde)
    return table(sd=storage, **changed)


@pytest.mark.parametrize(
    ("own", "lines"),
    [
        ({"serialization.format": "1"}, HiveLines("\x01")),
        ({"serialization.format": ",", "field.delim": ","}, HiveLines(",")),
        ({"field.delim": "9", "escape.delim": "\\"}, HiveLines("\t", escape="\\")),
        ({"field.delim": "||", "serialization.null.format": ""}, HiveLines("|", "")),
    ],
)
def test_a_table_in_text_has_the_delimiters_that_hive_takes(own, lines):
    """Hive takes a number for the code of a character, and of a longer delimiter the first letter."""
    found = describe(text_table(own))

    assert (found.file_format, found.lines, found.why_not) == ("text", lines, "")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (
            {"library": "org.apache.hadoop.hive.serde2.OpenCSVSerde"},
            "OpenCSVSerde gives only texts, and no times",
        ),
        ({"parameters": {"skip.header.line.count": "1"}}, "its property 'skip.header.line.count'='1' is not supported"),
        (
            {"own": {"timestamp.formats": "yyyy"}},
            "its property 'timestamp.formats'='yyyy' is not supported",
        ),
        (
            {"kind": "map<string,int>"},
            "its column ts is of type map<string,int>, which has no one text: store",
        ),
        ({"own": {"field.delim": "ÿ"}}, "its field delimiter is no ASCII character: choose another one"),
    ],
)
def test_a_table_whose_lines_only_hive_can_read_says_why(changed, why):
    """Each has a cure: its rows would be read wrong."""
    assert describe(text_table(**{"own": {}, **changed})).why_not.startswith(why)


def test_a_partition_that_hive_reads_in_another_way_than_its_table_is_refused_with_a_cure(sqlite_catalog_url, tmp_path):
    """A partition keeps its delimiters when those of the table change: its rows would be read wrong."""
    stage = open_stage(Windows, tmp_path / "project", sqlite_catalog_url, "import tidemill as tm\n")
    stage.deploy("import tidemill as tm\napp = tm.App('shop')\napp.fileset('t', keys={'day': 'string'})")
    plain = stage.mill.project.catalog.read(lambda db: Fileset.of(stage.mill.project.dataset(db, "t")))

    def find(own: dict[str, str], lines: HiveLines | None, library: str = LAZY, location: str = "/t") -> str:
        hive = HiveName("thrift://m", "default", "t", lines)
        stored = FileFormat.PARQUET if lines is None else FileFormat.TEXT
        fileset = replace(plain, storing=replace(plain.storing, format=stored, hive=hive))
        return find_fault(fileset, describe_partition(text_table(own, library)), location)

    parquet = "org.apache.hadoop.hive.ql.io.parquet.serde.ParquetHiveSerDe"
    orc = "org.apache.hadoop.hive.ql.io.orc.OrcSerde"
    assert find({"field.delim": ","}, HiveLines(",")) == ""
    assert find({}, None, parquet) == ""
    assert "its files are at /t: they have to be in the directory" in find({}, HiveLines(), location="/t/day=1")
    assert re.match(
        r"its delimiters in Hive are '\|' with NULL as .*, and those of the table ','.*SET SERDEPROPERTIES",
        find({"field.delim": "|"}, HiveLines(",")),
    )
    assert "by other classes than the text of the table: write it again" in find({}, HiveLines(), parquet)
    assert "its files are orc in Hive, and those of the table parquet: write it again" in find({}, None, orc)
    stage.mill.close()


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"tableType": "VIRTUAL_VIEW"}, "it is a view"),
        ({"parameters": {"transactional": "TRUE"}}, "it is transactional: which of its files count, only Hive knows"),
    ],
)
def test_a_table_that_is_not_its_files_says_why(changed, why):
    """Such a table would be read wrong."""
    assert describe(table(**changed)).why_not == why


def test_a_metastore_that_is_away_is_named_with_its_address(sqlite_catalog_url, tmp_path):
    """Nothing is changed then."""
    environ = {"TIDEMILL_HIVE_METASTORE": "thrift://127.0.0.1:1"}
    stage = open_stage(Windows, tmp_path / "project", sqlite_catalog_url, "import tidemill as tm\n", environ=environ)
    with pytest.raises(MetastoreUnavailable, match=r"thrift://127\.0\.0\.1:1 fails: Could not connect"):
        stage.mill.sql("ALTER TABLE clicks ADD WATERMARK FOR ts AS SOURCE_WATERMARK")
    stage.mill.close()


def test_only_a_table_of_hive_waits_for_the_metastore(sqlite_catalog_url, tmp_path):
    """Each partition of such a table is in the metastore; no partition of another one is."""
    stage = open_stage(Windows, tmp_path / "project", sqlite_catalog_url, "import tidemill as tm\n")
    with pytest.raises(BadTable, match="names the metastore, and the table is in none"):
        stage.mill.sql(
            "CREATE TABLE t (ts timestamp, WATERMARK FOR ts AS SOURCE_WATERMARK) PARTITIONED BY (day string)"
            " WITH ('streaming-source.enable'='true', 'partition.time-interval'='1d', 'path'='there',"
            " 'partition.completeness'='metastore')"
        )
    stage.mill.close()
