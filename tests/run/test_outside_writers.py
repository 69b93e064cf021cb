"""Files of an outside writer, read by Spark: with the key, whose values are in the folders alone."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet, table

from tests.stage import staged
from tidemill.frames.spark import read_partitions as read_frame
from tidemill.lake.fileset.fileset import Fileset, find_schema, read_partitions
from tidemill.lake.fileset.time_travel import now

APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={"at": "timestamp", "site": "string"})
"""
KEY = 'at=2026-01-01T05:00Z site="a b/c"'


@pytest.mark.spark
def test_spark_reads_rows_of_an_outside_writer_with_their_key(spark, sqlite_catalog_url, tmp_path):
    """A key whose folder has another name than Spark's would be null, or another key."""
    with staged(tmp_path, sqlite_catalog_url, APP) as stage:
        catalog, transactions = stage.mill.project.catalog, stage.mill.transactions
        fileset = Fileset.of(catalog.read(lambda db: stage.mill.project.dataset(db, "clicks")))
        begun = transactions.begin(["clicks"])
        place = fileset.keys.to_path(fileset.keys.parse(KEY))
        changes: list[dict[str, Any]] = []
        for name in ("a.parquet", "deep/b.parquet"):
            path = Path(begun.outputs[0].location) / place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            parquet.write_table(table({"n": [1, 2]}), path)
            files = [{"name": f"{place}/{name}", "bytes": path.stat().st_size, "rows": 2}]
            changes.append({"dataset": "clicks", "key": KEY, "op": "append", "files": files})
        transactions.commit(begun.write_pointer, changes)
        stage_reads = catalog.read(
            lambda db: (
                read_partitions(db, fileset.dataset_id, now(db, catalog.incarnation)),
                find_schema(db, fileset.dataset_id),
            )
        )
        frame = read_frame(stage.world, spark, fileset, *stage_reads)
        rows = frame.selectExpr("n", "unix_seconds(at)", "site").collect()

    at = int(datetime(2026, 1, 1, 5, tzinfo=UTC).timestamp())
    assert sorted(map(tuple, rows)) == [(1, at, "a b/c")] * 2 + [(2, at, "a b/c")] * 2
