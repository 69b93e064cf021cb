"""The watermark of partitions beside the watermark of records, over the same files: the promise of the seed."""

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
    INSERT INTO hourly SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end''')
"""
CREATE = """
CREATE TABLE clicks (x int, ts TIMESTAMP(3), pt_day string, pt_hour string, WATERMARK FOR ts AS SOURCE_WATERMARK)
PARTITIONED BY (pt_day, pt_hour) WITH (
  'connector' = 'filesystem', 'path' = 'others', 'format' = 'parquet',
  'streaming-source.enable'='true', 'streaming-source.monitor-interval'='1 ms',
  'partition.time-extractor.timestamp-pattern'='$pt_day $pt_hour:00:00', 'partition.time-interval'='1h'
)
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.long
def test_a_window_is_out_one_partition_sooner_than_by_the_watermark_of_records(sqlite_catalog_url, tmp_path, spark):
    """Structured Streaming needs a row of hour 11 to know that hour 10 is over. Both read the same files in one run."""
    from pyspark.sql import functions as f

    stage = open_stage(Windows, tmp_path / "project", sqlite_catalog_url, "import tidemill as tm\n", spark=spark)
    stage.mill.sql(CREATE)
    stage.deploy(APP)
    discoverer = Discoverer(stage.mill.project.catalog, Narrator(stage.world, [].append, as_json=False))
    folder = tmp_path / "project" / "others"
    columns = "x int, ts timestamp_ntz, pt_day string, pt_hour string"
    query = (
        spark.readStream.schema(columns)
        .parquet(str(folder))
        .withColumn("ts", f.col("ts").cast("timestamp"))
        .withWatermark("ts", "0 seconds")
        .groupBy(f.window("ts", "1 hour"))
        .count()
        .writeStream.outputMode("append")
        .format("memory")
        .queryName("by_records")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    found = []
    for hour in (10, 11, 12):
        frame = spark.sql(
            f"SELECT 1 AS x, make_timestamp_ntz(2021, 3, 19, {hour}, 59, 0) AS ts, '2021-03-19' AS pt_day,"
            f" '{hour}' AS pt_hour"
        )
        frame.write.mode("append").partitionBy("pt_day", "pt_hour").parquet(str(folder))
        stage.world.clock.sleep(timedelta(milliseconds=2))
        discoverer.list_due()
        assert stage.run().state == "COMPLETED"
        query.processAllAvailable()
        by_partitions = sorted(row.window_start.hour for row in stage.read("hourly").collect())
        by_records = sorted(
            row.hour for row in spark.sql("SELECT hour(window.start) AS hour FROM by_records").collect()
        )
        found.append((by_partitions, by_records))
    query.stop()
    stage.mill.close()

    assert found == [([10], []), ([10, 11], [10]), ([10, 11, 12], [10, 11])]
