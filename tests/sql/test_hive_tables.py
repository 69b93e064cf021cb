"""Tables of a Hive metastore: monitored as they are, while Spark reads and writes them as before."""

from __future__ import annotations

import os
import re
import shutil
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pymetastore.hive_metastore.ttypes import FieldSchema, SerDeInfo, StorageDescriptor, Table
from pyspark.sql import SparkSession

from tests.hive_server import running_metastore, running_spark
from tests.modes import bound_by_modes
from tests.sql.conftest import Windows
from tests.sql.test_ddl import ADD, SELECT
from tests.stage import EMPTY, Stage, open_stage
from tests.thrift_metastore import TablesOfHive, serving_metastore
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.lake.fileset.stored import HiveName
from tidemill.lake.fileset.time_travel import now
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


def open_beside(address: str, folder: Path, catalog_url: str, spark: SparkSession) -> Windows:
    """Open a project without declarations, beside a metastore."""
    environ = {**os.environ, "TIDEMILL_HIVE_METASTORE": address}
    return open_stage(Windows, folder / "project", catalog_url, "import tidemill as tm\n", environ=environ, spark=spark)


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
        stage = open_beside(f"thrift://127.0.0.1:1,{address}", tmp_path, sqlite_catalog_url, spark)
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


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_the_statements_of_the_seed_give_an_existing_table_of_hive_a_watermark(sqlite_catalog_url, tmp_path, spark):
    """First the watermark, then the options. The table of Hive is as before when its declaration is dropped."""
    folder = tmp_path / "hive"
    folder.mkdir()
    with running_metastore(folder) as address, running_spark(address, folder) as other:
        other(CREATE.format("PARQUET"))
        other("ALTER TABLE hive_table UNSET TBLPROPERTIES ('partition.time-interval')")
        other(write(10, 1, 2))
        stage = open_beside(address, tmp_path, sqlite_catalog_url, spark)

        def find_properties() -> dict[str, str]:
            found = {row["key"]: row["value"] for row in other("SHOW TBLPROPERTIES hive_table")}
            return {name: value for name, value in found.items() if name != "transient_lastDdlTime"}

        before = find_properties()
        said = stage.mill.sql(ADD)
        told: list[str] = []
        Discoverer(stage.mill.project.catalog, Narrator(stage.world, told.append, as_json=False)).list_due()
        watermark = str(stage.mill.watermarks.show("hive_table").watermark)
        (selected,) = stage.mill.sql(SELECT)
        declared = find_properties()
        stage.mill.sql("DROP TABLE hive_table")
        after = find_properties()
        rows = other("SELECT x FROM hive_table ORDER BY x")
        stage.mill.close()

    assert [one.notices for one in said] == [(), ()]
    assert watermark.startswith("2021-03-19 11:00:00"), told
    assert [[*row.values()][2:] for row in selected.rows] == [[2, "2", 3]]
    assert declared.items() - before.items() == {
        ("tidemill.watermark", "ts"),
        ("streaming-source.enable", "true"),
        ("streaming-source.monitor-interval", "1s"),
        ("partition.time-extractor.timestamp-pattern", "$pt_day $pt_hour:00:00"),
        ("partition.time-interval", "1h"),
    }
    assert after == before
    assert rows == [{"x": 1}, {"x": 2}]


@pytest.mark.spark
@pytest.mark.parametrize(
    "library", ["org.apache.hive.hcatalog.data.JsonSerDe", "org.apache.hadoop.hive.serde2.JsonSerDe"]
)
def test_a_table_of_hive_in_json_has_windows(sqlite_catalog_url, tmp_path, spark, library):
    """The Spark of PySpark has neither class: `spark.read.table` fails. Tidemill reads the files."""
    with serving_metastore() as (hive, address):
        hive.create("clicks", f"file:{tmp_path}/clicks", "org.apache.hadoop.mapred.TextInputFormat", library)
        stage = open_beside(address, tmp_path, sqlite_catalog_url, spark)
        file = tmp_path / "clicks/day=2021-03-19/000000_0"
        file.parent.mkdir(parents=True)
        file.write_text(
            '{"x":1,"ts":"2021-03-19 10:05:00","more":9}\n{"ts":"2021-03-19 10:06:00.5"}\n', encoding="utf-8"
        )
        hive.days.append("2021-03-19")
        stage.mill.sql(
            "ALTER TABLE clicks ADD WATERMARK FOR ts AS SOURCE_WATERMARK;"
            "ALTER TABLE clicks SET ('streaming-source.enable'='true', 'partition.time-interval'='1d')"
        )
        told: list[str] = []
        Discoverer(stage.mill.project.catalog, Narrator(stage.world, told.append, as_json=False)).list_due()
        (selected,) = stage.mill.sql(
            "SELECT window_start, count(*) AS n, sum(x) AS x"
            " FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end"
        )
        stage.mill.close()

    assert [[*row.values()][1:] for row in selected.rows] == [[2, 1]], told


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


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ({"mapping.ts": "at"}, "its property 'mapping.ts'='at' is not supported: name the column as the field"),
        ({"timestamp.formats": "millis"}, "its property 'timestamp.formats'='millis' is not supported: write times"),
        ({"ignore.malformed.json": "TRUE"}, "its property 'ignore.malformed.json'='TRUE' is not supported: write the"),
        ({"case.insensitive": "true", "serialization.format": "1"}, ""),
    ],
)
def test_a_table_in_json_that_only_hive_can_read_says_why(own, why):
    """The column would be null, or the file be refused."""
    found = describe(text_table(own, "org.openx.data.jsonserde.JsonSerDe"))

    assert found.file_format == "json"
    assert found.why_not.startswith(why)
    assert bool(found.why_not) is bool(why)


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


@dataclass
class Days:
    """A table of Hive in Parquet with a day, whose metastore is in this process."""

    hive: TablesOfHive
    root: Path
    stage: Stage

    def put(self, path: str, rows: int = 1) -> None:
        """Write a file as Hive does."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        times = pa.array([1616112000_000000] * rows, pa.timestamp("us", "UTC"))
        parquet.write_table(pa.table({"x": pa.array(range(rows), pa.int32()), "ts": times}), target)

    def restart(self) -> None:
        """Have another process list the table."""
        self.told: list[str] = []
        narrator = Narrator(self.stage.world, self.told.append, as_json=False)
        self.discoverer = Discoverer(self.stage.mill.project.catalog, narrator)

    def list(self) -> dict[str, int]:
        """List the table; return the rows of its partitions."""
        self.stage.world.clock.sleep(timedelta(seconds=1))
        self.discoverer.list_due()
        catalog = self.stage.mill.project.catalog
        fileset = catalog.read(lambda db: Fileset.of(self.stage.mill.project.dataset(db, "t")))
        snapshot = catalog.read(lambda db: now(db, catalog.incarnation))
        found = catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot))
        return {fileset.show(one.partition_key): one.rows for one in found}


@pytest.fixture
def days(sqlite_catalog_url, tmp_path):
    """A table of Hive with a watermark."""
    with serving_metastore() as (hive, address):
        options = {"streaming-source.enable": "true", "streaming-source.monitor-interval": "1s"}
        hive.create("t", f"file:{tmp_path}/t", **options, **{"partition.time-interval": "1d"})
        environ = {**os.environ, "TIDEMILL_HIVE_METASTORE": address}
        stage = open_stage(Stage, tmp_path / "project", sqlite_catalog_url, EMPTY, environ=environ)
        stage.mill.sql("ALTER TABLE t ADD WATERMARK FOR ts AS SOURCE_WATERMARK")
        days = Days(hive, tmp_path / "t", stage)
        days.restart()
        yield days
        stage.mill.close()


def test_a_partition_of_hive_has_all_its_files_beside_hidden_directories(days):
    """An INSERT of Hive writes below `.hive-staging…`, and one of Spark below `_temporary`."""
    days.hive.days = ["2021-03-19"]
    for name in ("000000_0", "_temporary/0/part-1", ".hive-staging_1/000000_0", "part-0"):
        days.put(f"day=2021-03-19/{name}")

    assert days.list() == {"day=2021-03-19": 2}


@pytest.mark.parametrize("closed", ["day=2021-03-19", "."])
def test_a_partition_of_hive_whose_directory_cannot_be_read_stays_as_it_is(days, closed):
    """Else the partition would lose its rows, and the windows over it would be deleted."""
    days.hive.days = ["2021-03-19", "2021-03-20", "2021-03-21"]
    for day in days.hive.days:
        days.put(f"day={day}/000000_0", 2)
    days.list()
    days.hive.days = ["2021-03-19", "2021-03-20"]
    days.put("day=2021-03-19/000001_0")
    (days.root / closed).chmod(0)
    with bound_by_modes():
        unread = days.list()
    told = days.told[-1]
    (days.root / closed).chmod(0o755)
    days.restart()

    assert unread == {"day=2021-03-19": 2, "day=2021-03-20": 2} | ({"day=2021-03-21": 2} if closed == "." else {})
    assert "Permission denied" in told
    assert days.list() == {"day=2021-03-19": 3, "day=2021-03-20": 2}


def test_a_partition_of_hive_with_a_directory_in_it_is_refused(days):
    """Hive writes the parts of a UNION ALL so: the partition would be complete, and have no rows."""
    days.hive.days = ["2021-03-19", "2021-03-20", "2021-03-21"]
    days.put("day=2021-03-19/HIVE_UNION_SUBDIR_1/000000_0")
    days.put("day=2021-03-20/000000_0")
    days.put("day=2021-03-21/000000_0")
    days.put("stray/000000_0")
    first = days.list()
    days.put("day=2021-03-20/HIVE_UNION_SUBDIR_2/000000_0")
    second = days.list()
    told = " ".join(days.told)
    days.put("day=2021-03-19/000000_0", 3)
    shutil.rmtree(days.root / "day=2021-03-19" / "HIVE_UNION_SUBDIR_1")

    assert first == second == {"day=2021-03-20": 1, "day=2021-03-21": 1}
    assert "day=2021-03-19 (it has the directory HIVE_UNION_SUBDIR_1, whose files" in told
    assert "day=2021-03-20 (it has the directory HIVE_UNION_SUBDIR_2, whose files" in told
    assert "stray" not in told
    assert days.list() == {"day=2021-03-19": 3, "day=2021-03-20": 1, "day=2021-03-21": 1}


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
