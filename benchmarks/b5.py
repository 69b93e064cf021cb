"""B5: Spark publishes rows in 100 partitions as a transaction, beside the plain `DataFrame.write.partitionBy`.

Rows are like those of TPC-H's lineitem, made by expressions: both write the same without reading. What ours does
beside: a count in the job, a look at each footer, a checksum of each file, side-car, commit, marker.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.spark_sessions import PlainSpark, spark_session
from benchmarks.table import Figure
from tidemill.catalog.engine import open_catalog
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.names import DatasetId, Namespace
from tidemill.run.processes.external import open_transaction
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
ROWS = int(24_000_000 * SCALE)  # about 1 GB of Parquet
PARTITIONS = 100
ROUNDS = 5
LINEITEM = [
    "id AS l_orderkey",
    "int(hash(id) % 200000) AS l_partkey",
    "int(hash(id, 1) % 10000) AS l_suppkey",
    "int(id % 7) AS l_linenumber",
    "double(1 + abs(hash(id, 2)) % 50) AS l_quantity",
    "double(abs(hash(id, 3)) % 10000000) / 100 AS l_extendedprice",
    "double(abs(hash(id, 4)) % 11) / 100 AS l_discount",
    "double(abs(hash(id, 5)) % 9) / 100 AS l_tax",
    "substr('ANR', 1 + abs(hash(id, 6)) % 3, 1) AS l_returnflag",
    "date_add(date'1992-01-02', abs(hash(id, 7)) % 2526) AS l_shipdate",
    "hex(hash(id, 8)) AS l_comment",
]


def run(url: str) -> Iterator[Figure]:
    """Times of both in alternating rounds, after a warm-up; on SQLite only: the catalog has one commit to do."""
    if not url.startswith("sqlite"):
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-b5-") as folder, spark_session() as spark:
        rows = make_rows(spark, ROWS, PARTITIONS)
        catalog = open_catalog(url, World())
        spec = {"keys": {"part": "int"}}
        dataset = Dataset(
            DatasetId("lines"), Namespace("default"), "lines", DatasetKind.FILESET, f"file://{folder}/ours", spec
        )
        Path(folder, "ours").mkdir()
        catalog.write(lambda db: declare(db, dataset))

        def plain(frame: DataFrame) -> None:
            frame.write.partitionBy("part").parquet(f"{folder}/plain")
            size.append(sum(path.stat().st_size for path in Path(folder, "plain").rglob("*.parquet")))
            shutil.rmtree(f"{folder}/plain")

        def ours(frame: DataFrame) -> None:
            with open_transaction(catalog, World(), ["default.lines"]) as tx:
                tx.fileset("default.lines").overwrite(frame)

        size: list[int] = []
        pairs = []
        as_it_comes = PlainSpark(spark)
        for _ in range(ROUNDS + 1):
            with as_it_comes.in_place():
                without = _seconds(lambda: plain(rows))
            pairs.append((without, _seconds(lambda: ours(rows))))
            for old in sorted(Path(folder, "ours").glob("tx-*"))[:-1]:
                shutil.rmtree(old)
        catalog.close()
    what = f"{PARTITIONS} partitions, {size[-1] / 1e6:,.0f} MB"
    yield Figure("B5", f"ours : plain, {what}", "SQLite", [o / p for p, o in pairs[1:]], "", "≤ 1.05")
    yield Figure("B5", f"plain, {what}", "SQLite", [p for p, _ in pairs[1:]], "s")


def make_rows(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Return so many rows, in so many partitions by `part`, each of one task."""
    return spark.range(0, count, 1, partitions).selectExpr(*LINEITEM, f"int(id * {partitions} / {count}) AS part")


def _seconds(work: object) -> float:
    started = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - started
