"""Windows over a directory that Spark writes beside Tidemill: the setting of the seed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.sql.conftest import Windows
from tests.stage import open_stage
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer

APP = """
import tidemill as tm

app = tm.App("shop")
hourly = app.fileset("hourly", keys={"day": "date"})
app.window_sql("count_hours", '''
    INSERT INTO hourly SELECT window_start, window_end, count(*) AS n, max(y) AS y, sum(z) AS z,
           to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE fs_table, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end''')
"""
CREATE = """
CREATE TABLE fs_table (
    x int,
    y string,
    z int,
    ts TIMESTAMP(3),
    pt_day string,
    pt_hour string,
    WATERMARK FOR ts AS SOURCE_WATERMARK
) PARTITIONED BY (pt_day, pt_hour)
  WITH (
    'connector' = 'filesystem',
    'path' = 'others',
    'format' = '{format}',

    'streaming-source.enable'='true',
    'streaming-source.monitor-interval'='1 ms',
    'partition.time-extractor.timestamp-pattern'='$pt_day $pt_hour:00:00',
    'partition.time-interval'='1h'
)
"""


DECLARE = """
app.fileset("fs_table", keys={{"pt_day": "string", "pt_hour": "string"}}, location="others", format="{format}",
            columns="x int, y string, z int, ts timestamp(3)", monitor_every="1 ms",
            watermark=tm.Watermark("ts", pattern="$pt_day $pt_hour:00:00", interval="1h"))
"""


@pytest.mark.parametrize(
    ("file_format", "in_python"),
    [
        ("parquet", False),
        *(pytest.param(other, False, marks=pytest.mark.long) for other in ("orc", "csv", "json")),
        *(pytest.param(other, True, marks=pytest.mark.long) for other in ("csv", "json")),
    ],
)
def test_an_hour_that_spark_writes_is_counted_as_soon_as_it_is_there(
    sqlite_catalog_url, tmp_path, spark, file_format, in_python
):
    """No row of hour 11 is needed for the window [10:00, 11:00). A rewritten hour is counted again."""
    stage = open_stage(Windows, tmp_path / "project", sqlite_catalog_url, "import tidemill as tm\n", spark=spark)
    if not in_python:
        stage.mill.sql(CREATE.format(format=file_format))
    declared = DECLARE.format(format=file_format) if in_python else ""
    stage.deploy(APP.replace("hourly = ", f"{declared}hourly = "))
    told: list[str] = []
    discoverer = Discoverer(stage.mill.project.catalog, Narrator(stage.world, told.append, as_json=False))

    def write(hour: int, *rows: int) -> None:
        # As Spark writes by default, but for the head that CSV needs.
        values = ", ".join(f"({row})" for row in rows)
        frame = spark.sql(
            "SELECT CAST(id AS INT) AS x, CAST(id AS STRING) AS y, CAST(id AS INT) AS z,"
            f" make_timestamp_ntz(2021, 3, 19, {hour}, 5, id) AS ts, '2021-03-19' AS pt_day, '{hour}' AS pt_hour"
            f" FROM VALUES {values} AS t(id)"
        )
        writer = frame.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").option("header", True)
        writer.partitionBy("pt_day", "pt_hour").format(file_format).save(f"{stage.mill.project.config.folder}/others")

    def count() -> list[tuple[str, int, str, int]]:
        stage.world.clock.sleep(timedelta(milliseconds=2))
        discoverer.list_due()
        run = stage.run()
        assert run.state == "COMPLETED", told
        rows = stage.read("hourly").collect()
        return sorted((f"{row.window_start:%H:%M}", row.n, row.y, row.z) for row in rows)

    write(10, 1, 2)
    first = count()
    write(11, 3)
    write(10, 7)
    second = count()

    assert first == [("10:00", 2, "2", 3)], told
    assert second == [("10:00", 1, "7", 7), ("11:00", 1, "3", 3)], told
    stage.mill.close()


SEED_TABLE = """
      CREATE TABLE fs_table (
          x int,
          y string,
          z int,
          ts TIMESTAMP(3),
          pt_day string,
          pt_hour string,
          WATERMARK FOR ts AS SOURCE_WATERMARK
      ) PARTITIONED BY (pt_day, pt_hour)
        WITH (
          'connector' = 'filesystem',
          'path' = '/path/to/file',
          'format' = 'parquet',

          'streaming-source.enable'='true',
          'streaming-source.monitor-interval'='1s',
          'partition.time-extractor.timestamp-pattern'='$pt_day $pt_hour:00:00',
          'partition.time-interval'='1h'
      );
"""
SEED_QUERY = """
      -- window aggregate on the hive table
      SELECT window_start, window_end, COUNT(*), MAX(y), SUM(z)
      FROM TABLE(
         TUMBLE(TABLE hive_table, DESCRIPTOR(ts), INTERVAL '1' HOUR))
      GROUP BY window_start, window_end;
"""


@pytest.mark.spark
def test_the_statements_of_the_seed_print_hour_10_before_a_row_of_hour_11(sqlite_catalog_url, tmp_path, spark):
    """Only the path, and the name of the table in the query, are those of the test. Columns have the names of Spark."""
    stage = open_stage(Windows, tmp_path / "project", sqlite_catalog_url, "import tidemill as tm\n", spark=spark)
    stage.mill.sql(SEED_TABLE.replace("/path/to/file", str(tmp_path / "file")))
    spark.sql(
        "SELECT CAST(id AS INT) AS x, concat('y', id) AS y, CAST(10 * id AS INT) AS z,"
        " make_timestamp_ntz(2021, 3, 19, 10, 20 * id, 0) AS ts, '2021-03-19' AS pt_day, '10' AS pt_hour FROM range(3)"
    ).write.mode("append").partitionBy("pt_day", "pt_hour").parquet(str(tmp_path / "file"))
    Discoverer(stage.mill.project.catalog, Narrator(stage.world, [].append, as_json=False)).list_due()

    (done,) = stage.mill.sql(SEED_QUERY.replace("hive_table", "fs_table"))
    stage.mill.close()

    assert done.rows == (
        {
            "window_start": "2021-03-19T10:00:00.000",
            "window_end": "2021-03-19T11:00:00.000",
            "count(1)": 3,
            "max(y)": "y2",
            "sum(z)": 30,
        },
    )
