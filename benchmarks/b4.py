"""B4: a managed take with claim of 1 new partition, in a file set that has a million, and in one that has a thousand.

The history is there as real runs leave it (change rows, a working set with all of them completed), put in by SQL. Each
sample publishes one partition, then takes, measured from the call to the delivery; small and large alternate.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import apsw
import psycopg

from benchmarks.table import Figure
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Dialect
from tidemill.catalog.transactions import begin, commit
from tidemill.lake.claims import Complete
from tidemill.lake.consumer.claims import PARTITIONS
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.consumer.take import take_claims
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.publish import AddPartitions, PartitionWrite
from tidemill.names import ConsumerId, DatasetId, Namespace, RunId
from tidemill.shapes.manifest import Manifest
from tidemill.world import World

SMALL, LARGE = 1_000, 1_000_000
ROUNDS = 5
SAMPLES = 40
SCHEMA = ColumnSchema('{"type":"struct","fields":[]}')

HISTORY = """
CREATE TEMPORARY TABLE numbers AS
WITH RECURSIVE c(n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM c WHERE n < {partitions}) SELECT n FROM c;
INSERT INTO partition_change (dataset_id, write_pointer, partition_key, op, commit_seq, delivers, location, manifest,
                              files, bytes, row_count, schema_id, run_id, at)
SELECT 'lines', 2 * n, CAST(n AS TEXT), 'append', 2 * n + 1, 1, 'tx-' || CAST(2 * n AS TEXT) || '-abcdefgh',
       {manifest}, 1, 1000, 10, '{schema_id}', 'run_' || CAST(n AS TEXT), 0
  FROM numbers;
INSERT INTO consumer_work (consumer_id, write_pointer, partition_key, commit_seq, state, run_id, epoch)
SELECT '{consumer_id}', 2 * n, CAST(n AS TEXT), 2 * n + 1, 'completed', 'run_' || CAST(n AS TEXT), 1
  FROM numbers;
INSERT INTO dataset_schema (dataset_id, schema_id, schema, commit_seq, run_id)
VALUES ('lines', '{schema_id}', '{schema}', 3, 'run_1');
UPDATE consumer SET start_version = {clock} WHERE consumer_id = '{consumer_id}';
"""


@dataclass(frozen=True, slots=True)
class History:
    """A catalog whose file set has so many partitions, all of them consumed."""

    catalog: Catalog
    lines: Fileset
    consumer_id: ConsumerId

    def take_one(self, number: int) -> tuple[float, float]:
        """Publish one partition and take it: milliseconds of the begin, and of the take with its claim."""
        tx = begin(self.catalog, run_id=RunId(f"write_{number}"), epoch=1, writes=[self.lines.dataset_id])
        change = PartitionWrite(self.lines.keys.check({"n": LARGE + number}), WriteOp.APPEND, Manifest(()))
        commit(self.catalog, tx, [AddPartitions(tx, self.lines, [change], SCHEMA, frozenset())])
        started = time.perf_counter()
        tx = begin(self.catalog, run_id=RunId(f"read_{number}"), epoch=1)
        begun = time.perf_counter()
        given = take_claims(self.catalog, tx, {self.consumer_id: Terms()})[self.consumer_id]
        taken = time.perf_counter()
        assert len(given) == 1, given
        commit(self.catalog, tx, [Complete(PARTITIONS, tx.run_id, tx.epoch)])
        return (begun - started) * 1000, (taken - begun) * 1000


def run(url: str) -> Iterator[Figure]:
    """Medians of each round for both sizes, and their ratio."""
    small, large = _make(url, SMALL), _make(url, LARGE)
    database = "SQLite" if small.catalog.dialect is Dialect.SQLITE else "PostgreSQL"
    numbers = count()
    medians: dict[str, list[float]] = {"begin": [], "small": [], "large": []}
    for round_number in range(ROUNDS + 1):
        samples: dict[str, list[float]] = {name: [] for name in medians}
        for _ in range(SAMPLES):
            number = next(numbers)
            samples["small"].append(small.take_one(number)[1])
            begun, taken = large.take_one(number)
            samples["begin"].append(begun)
            samples["large"].append(taken)
        if round_number > 0:  # the first is the warm-up
            for name, some in samples.items():
                medians[name].append(sorted(some)[SAMPLES // 2])
    yield Figure("B4", f"take of 1 among {LARGE:,}", database, medians["large"], "ms", "≤ 5")
    yield Figure("B4", f"take of 1 among {SMALL:,}", database, medians["small"], "ms")
    ratios = [large / small for large, small in zip(medians["large"], medians["small"], strict=True)]
    yield Figure("B4", "1,000,000 : 1,000", database, ratios, "", "≤ 1.5")
    yield Figure("B4", "the begin before it", database, medians["begin"], "ms")
    small.catalog.close()
    large.catalog.close()


def _make(url: str, partitions: int) -> History:
    if url.startswith("sqlite"):
        url = f"{url}.{partitions}"
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA history_{partitions}")
        url = f"{url}?options=-csearch_path%3Dhistory_{partitions}"
    catalog = open_catalog(url, World())
    spec = {"keys": {"n": "int"}, "format": "parquet"}
    lines = Dataset(DatasetId("lines"), Namespace("default"), "lines", DatasetKind.FILESET, "file:///lines", spec, None)
    lines = catalog.write(lambda db: declare(db, lines))
    consumer = catalog.write(lambda db: ensure_consumer(db, lines.dataset_id, "default.shop.report"))
    clock = 2 * partitions + 10
    manifest = Manifest(()).encode().hex()
    sqlite = catalog.dialect is Dialect.SQLITE
    script = HISTORY.format(
        manifest=f"x'{manifest}'" if sqlite else f"decode('{manifest}', 'hex')",
        partitions=partitions,
        consumer_id=consumer.consumer_id,
        schema_id=SCHEMA.schema_id,
        schema=SCHEMA.text,
        clock=clock,
    )
    if sqlite:
        connection = apsw.Connection(url.removeprefix("sqlite:///"))
        connection.execute(f"BEGIN; {script} UPDATE clock SET value = {clock}; COMMIT").fetchall()
        connection.close()
    else:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"{script} SELECT setval('tidemill_clock', {clock})")
            connection.execute("VACUUM ANALYZE partition_change")
            connection.execute("VACUUM ANALYZE consumer_work")
    return History(catalog, Fileset.of(lines), consumer.consumer_id)
