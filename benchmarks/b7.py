"""B7: hourly windows are back-filled by a window program, beside one plain batch groupBy with the same output.

What ours does beside: it finds the windows that the watermark has closed, checks that each row lies in the time of
its partition, computes in batches of windows, and commits each with its state. Then one partition arrives: its window
beside a plain job that reads that partition and writes the same rows.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.b5 import SCALE
from benchmarks.spark_sessions import PlainSpark, spark_session
from benchmarks.table import Figure
from tests.sql.conftest import open_windows
from tidemill.shapes.filters import Range

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOURS = (1_000, 10_000)
"""Numbers of partitions that are back-filled, in one run and in ten."""
ROWS = int(10_000_000 * SCALE)
ROUNDS = 3
EPOCH = date(1970, 1, 1)
AMOUNTS = 20
"""Number of partitions, which arrive one after the other."""
APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h"))
hourly = app.fileset("hourly", keys={"day": "date"})
app.window_sql("count_hours", '''
    INSERT INTO hourly SELECT window_start, window_end, count(*) AS n, sum(amount) AS amount,
           to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end''')
"""


def run(url: str) -> Iterator[Figure]:
    """Times of both in alternating rounds, after a warm-up; on SQLite only: the catalog does one commit a batch."""
    if not url.startswith("sqlite"):
        return
    with spark_session() as spark:
        for hours in HOURS:
            yield from back_fill(spark, hours)


def back_fill(spark: SparkSession, hours: int) -> Iterator[Figure]:
    """Times of both over so many hours, in a project of its own."""
    with tempfile.TemporaryDirectory(prefix="tidemill-b7-") as folder:
        windows = open_windows(Path(folder) / "project", f"sqlite:///{folder}/catalog.db", APP, spark=spark)
        windows.commit("clicks", make_rows(spark, 0, hours, hours))
        source, rows = newest_write(folder), ROWS // hours * hours

        def ours() -> None:
            windows.mill.watermarks.reset("shop.count_hours")
            while True:
                run = windows.run()
                assert run.state == "COMPLETED", (run.exit_reason, windows.spawner.complaints)
                if windows.sql("SELECT computed FROM window_program") == windows.sql("SELECT value FROM watermark"):
                    break

        def plain(files: Path) -> None:
            group(spark.read.parquet(str(files))).write.partitionBy("day").parquet(f"{folder}/plain")
            shutil.rmtree(f"{folder}/plain")

        as_it_comes = PlainSpark(spark)
        ratios, within, speeds = [], [], []
        for turn in range(ROUNDS + 1):
            with as_it_comes.in_place():
                batch = seconds(lambda: plain(source))
            windowed, alike = seconds(ours), seconds(lambda: plain(source))
            empty(windows)
            if turn:
                ratios.append(batch / windowed)
                within.append(alike / windowed)
                speeds.append(rows / windowed)
        ours()
        more = []
        for number in range(AMOUNTS):
            windows.commit("clicks", make_rows(spark, hours + number, 1, hours))
            last = newest_write(folder)
            with as_it_comes.in_place():
                batch = seconds(lambda: plain(last))  # noqa: B023  # called at once
            more.append((seconds(windows.run) - batch) * 1000)
        windows.mill.close()
    what = f"{rows:,} rows in {hours:,} hours"
    yield Figure("B7", f"ours : plain, rows/s of {what}", "SQLite", ratios, "", "≥ 0.9")
    yield Figure("B7", f"ours : plain with our local files, {what}", "SQLite", within, "", "≥ 0.9")
    yield Figure("B7", f"ours, {hours:,} hours", "SQLite", speeds, "rows/s")
    yield Figure("B7", f"one more window after {hours:,}, less the plain job", "SQLite", more[1:], "ms", "≤ 100")


def make_rows(spark: SparkSession, first: int, hours: int, among: int) -> DataFrame:
    """So many hours of clicks, each with its share of the rows `among` so many hours."""
    each = ROWS // among
    rows = spark.range(0, hours * each, 1, min(hours, 100)).selectExpr(
        f"timestamp_micros((id div {each} + {first}) * 3600000000 + (id % {each}) * 3600000000 div {each}) AS ts",
        "double(abs(hash(id)) % 10000) / 100 AS amount",
        "id % 1000 AS customer",
    )
    return rows.selectExpr("*", "to_date(ts) AS day", "hour(ts) AS hour")


def group(frame: DataFrame) -> DataFrame:
    """Compute the result of the window program's query by Spark alone."""
    from pyspark.sql import functions as sf

    hours = frame.groupBy(sf.window("ts", "1 hour").alias("w")).agg(
        sf.count("*").alias("n"), sf.sum("amount").alias("amount")
    )
    return hours.selectExpr("w.start AS window_start", "w.end AS window_end", "n", "amount", "to_date(w.start) AS day")


def newest_write(folder: str) -> Path:
    """The files of the newest commit, which a plain job has to list by itself, as ours has its manifest to read."""
    return max(Path(folder).rglob("clicks/tx-*/1"), key=lambda path: path.stat().st_mtime_ns)


def empty(windows) -> None:
    """Let the next round write all windows as new ones, not replace those of the last."""
    windows.mill.datasets.drop("hourly", {"day": Range(EPOCH)})
    windows.sql("DELETE FROM window_result RETURNING 1")


def seconds(work) -> float:
    """Measure the time of `work`."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
