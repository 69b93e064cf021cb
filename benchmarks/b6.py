"""B6: a full scan of a file set with 10,000 files by its manifests, beside plain `spark.read.parquet(folder)`.

One file is copied into 100 folders in Hive's layout, which are adopted, so that both read the same files.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import parquet

from benchmarks.b5 import SCALE
from benchmarks.spark_sessions import spark_session
from benchmarks.table import Figure
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.frames.spark import read_partitions as read_frame
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import Fileset, Partition, find_schema, read_partitions
from tidemill.lake.fileset.time_travel import now
from tidemill.names import DatasetId, Namespace
from tidemill.run.processes.partitions import adopt_partitions
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = int(10_000 * SCALE)
FOLDERS = 100
ROWS_A_FILE = 6_000  # about 100 KB
ROUNDS = 5


def run(url: str) -> Iterator[Figure]:
    """Times of both in alternating rounds, after a warm-up; on SQLite only: the catalog answers one look-up."""
    if not url.startswith("sqlite"):
        return
    world = World()
    with tempfile.TemporaryDirectory(prefix="tidemill-b6-") as folder, spark_session() as spark:
        catalog = open_catalog(url, world)
        size = _fill(Path(folder))
        spec = {"keys": {"part": "int"}}
        dataset = Dataset(
            DatasetId("scan"), Namespace("default"), "scan", DatasetKind.FILESET, f"file://{folder}", spec
        )
        fileset = Fileset.of(catalog.write(lambda db: declare(db, dataset)))
        adopted = adopt_partitions(catalog, world, fileset)
        assert adopted.refused == ()

        def ours() -> int:
            return _scan(read_now(catalog, spark, fileset)[0])

        def plain() -> int:
            return _scan(spark.read.parquet(folder))

        pairs = []
        for _ in range(ROUNDS + 1):
            times = []
            for work in (plain, ours):
                started = time.perf_counter()
                assert work() == FILES * ROWS_A_FILE
                times.append(time.perf_counter() - started)
            pairs.append(times)
        catalog.close()
    what = f"{FILES:,} files, {size / 1e6:,.0f} MB"
    yield Figure("B6", f"ours : plain, {what}", "SQLite", [o / p for p, o in pairs[1:]], "", "≤ 1.35")
    yield Figure("B6", f"plain, {what}", "SQLite", [p for p, _ in pairs[1:]], "s")


def read_now(catalog: Catalog, spark: SparkSession, fileset: Fileset) -> tuple[DataFrame, Sequence[Partition]]:
    """Return all rows of a file set, and its partitions, as they are now."""
    snapshot = catalog.read(lambda db: now(db, catalog.incarnation))
    found = catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot))
    columns = catalog.read(lambda db: find_schema(db, fileset.dataset_id))
    return read_frame(catalog.world, spark, fileset, found, columns), found


def _scan(frame) -> int:
    row = frame.selectExpr("count(*) AS n", "sum(id)", "sum(value)", "max(text)", "sum(part)").first()
    return int(row["n"])


def _fill(folder: Path) -> int:
    numbers = range(ROWS_A_FILE)
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "value": pa.array([n * 0.37 % 91 for n in numbers]),
            "text": [f"{n * 2654435761 % 4294967296:08x}" for n in numbers],
        }
    )
    first = folder / "part=0" / "0.parquet"
    first.parent.mkdir()
    parquet.write_table(table, first)
    for number in range(1, FILES):
        target = folder / f"part={number % FOLDERS}" / f"{number}.parquet"
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(first, target)
    return first.stat().st_size * FILES
