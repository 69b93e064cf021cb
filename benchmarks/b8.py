"""B8: a snapshot is refreshed from PostgreSQL, beside Spark's plain parallel JDBC read and Parquet write.

The refresh also does the following: one exported snapshot for all readers, bounds, guards, a count in the job, a look
at each footer, a checksum of each file, side-car, commit, marker. The commit writes one row, whatever the size. Its
time is reported alone.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from benchmarks.spark_sessions import spark_session
from benchmarks.table import Figure
from tidemill.catalog.engine import open_catalog
from tidemill.frames.jdbc import Jdbc
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.snapshot.snapshot import SnapshotSpec
from tidemill.names import DatasetId, Namespace
from tidemill.run.processes.external import open_transaction
from tidemill.world import World

ROWS = int(10_000_000 * float(os.environ.get("BENCH_SCALE", "1")))
ROUNDS = 3
COLUMNS = "id, 'customer ' || id AS name, md5(id::text) AS code, now() AS seen, id % 100 AS area"


def run(url: str) -> Iterator[Figure]:
    """Times of both in alternating rounds, after a warm-up; the source is the PostgreSQL, the catalog a SQLite."""
    if url.startswith("sqlite"):
        return
    with psycopg.connect(url, autocommit=True) as connection:
        for name, rows in (("large", ROWS), ("small", ROWS // 100)):
            connection.execute(f"DROP TABLE IF EXISTS {name}")
            connection.execute(f"CREATE TABLE {name} AS SELECT {COLUMNS} FROM generate_series(1, {rows}) AS id")
            connection.execute(f"CREATE INDEX ON {name} (id)")
    with tempfile.TemporaryDirectory(prefix="tidemill-b8-") as folder, spark_session() as spark:
        marks: dict[str, float] = {}
        world = World(marked=lambda mark: marks.update({mark: time.perf_counter()}))
        catalog = open_catalog(f"sqlite:///{folder}/catalog.db", world)
        place, spec = f"file://{folder}/ours", write_plain(SnapshotSpec())
        dataset = Dataset(DatasetId("ds"), Namespace("default"), "mirror", DatasetKind.SNAPSHOT, place, spec)
        Path(folder, "ours").mkdir()
        catalog.write(lambda db: declare(db, dataset))

        def ours(table: str) -> float:
            source = Jdbc(url, table=table, partition_column="id")
            with open_transaction(catalog, world, ["default.mirror"]) as tx, source.open(world, spark) as frame:
                tx.snapshot("default.mirror").replace(frame, allow=["drop"])
            return marks["commit.after_message"] - marks["commit.before_message"]

        def plain() -> None:
            options = {"url": f"jdbc:{url.replace('postgres@', '', 1)}", "user": "postgres", "dbtable": "large"}
            options |= {"driver": "org.postgresql.Driver", "fetchsize": "10000", "partitionColumn": "id"}
            options |= {"lowerBound": "1", "upperBound": str(ROWS), "numPartitions": "2"}
            spark.read.format("jdbc").options(**options).load().write.parquet(f"{folder}/plain")
            shutil.rmtree(f"{folder}/plain")

        ratios, commits = [], {"large": [], "small": []}
        for turn in range(ROUNDS + 1):
            started = time.perf_counter()
            large = ours("large")
            middle = time.perf_counter()
            plain()
            ended = time.perf_counter()
            small = ours("small")
            if turn:
                ratios.append((ended - middle) / (middle - started))
                commits["large"].append(large * 1000)
                commits["small"].append(small * 1000)
            for old in sorted(Path(folder, "ours").glob("tx-*"))[:-1]:
                shutil.rmtree(old)
        catalog.close()
    yield Figure("B8", f"plain : ours, {ROWS:,} rows", "PostgreSQL", ratios, "", "≥ 0.95")
    yield Figure("B8", f"commit of {ROWS:,} rows", "SQLite", commits["large"], "ms", "as below")
    yield Figure("B8", f"commit of {ROWS // 100:,} rows", "SQLite", commits["small"], "ms")
