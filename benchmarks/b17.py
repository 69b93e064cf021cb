"""B17: Spark publishes a file set and reads it, in a folder and in a bucket: by Hadoop's S3A, and by copies without it.

Rows are those of B5. The bucket is on a server for S3 on this machine, which is written in Python and keeps objects in
memory. So the ratios say what the ways cost, not how fast a bucket of a site is. Each way has a Spark of its own, since
a JVM has S3A or has not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Final

from benchmarks.b5 import ROWS, make_rows
from benchmarks.b6 import read_now
from benchmarks.spark_sessions import spark_session
from benchmarks.table import Figure
from tests.s3_server import KEYS, S3Server, running_s3_server
from tests.s3a_jars import OF_3_3_1, s3a_jars
from tidemill.catalog.engine import open_catalog
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import DatasetId, Namespace
from tidemill.run.processes.external import open_transaction

SHARE: Final = 20
"""The rows are a twentieth of those of B5."""
PARTITIONS: Final = 10
ROUNDS: Final = 3
FOLDER, S3A, COPIES = WAYS = ("a folder", "a bucket by S3A", "a bucket by copies")


def run(url: str) -> Iterator[Figure]:
    """Megabytes a second of each way; on SQLite only: the catalog has one commit to do."""
    if not url.startswith("sqlite"):
        return
    with running_s3_server() as server, tempfile.TemporaryDirectory(prefix="tidemill-b17-") as folder:
        places = {FOLDER: f"file://{folder}"} | {way: f"s3://{server.make_bucket()}/lines" for way in WAYS[1:]}
        measured = {way: _start(way, url.replace(".db", f"-{n}.db"), places[way], server) for n, way in enumerate(WAYS)}
    for act in ("publish", "read"):
        for way in WAYS:
            rates = [measured[way]["bytes"][0] / 1e6 / seconds for seconds in measured[way][act]]
            yield Figure("B17", f"{act}, {way}", "SQLite", rates, "MB/s")
        for way in WAYS[1:]:
            pairs = zip(sorted(measured[FOLDER][act]), sorted(measured[way][act]), strict=True)
            yield Figure("B17", f"{act}, {way} : a folder", "SQLite", [own / other for own, other in pairs], "")


def _start(way: str, url: str, place: str, server: S3Server) -> dict[str, list[float]]:
    """Measure one way in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.b17", way, url, place, server.url]
    done = subprocess.run(command, env={**os.environ, **KEYS}, stdout=subprocess.PIPE, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measure(way: str, url: str, place: str, server: S3Server) -> Mapping[str, list[float]]:
    """Return the seconds of each publication and of each read, after one of each, and the bytes of all files."""
    world = server.world
    settings = {**OF_3_3_1, "spark.jars": ",".join(map(str, s3a_jars()))} if way == S3A else {}
    catalog = open_catalog(url, world)
    spec = {"keys": {"part": "int"}}
    dataset = Dataset(DatasetId("lines"), Namespace("default"), "lines", DatasetKind.FILESET, place, spec)
    fileset = Fileset.of(catalog.write(lambda db: declare(db, dataset)))
    seconds: dict[str, list[float]] = {"publish": [], "read": []}
    with spark_session(settings) as spark:
        rows = make_rows(spark, ROWS // SHARE, PARTITIONS)
        for _ in range(ROUNDS + 1):
            started = time.perf_counter()
            with open_transaction(catalog, world, ["default.lines"]) as tx:
                tx.fileset("default.lines").overwrite(rows)
            published = time.perf_counter()
            frame, found = read_now(catalog, spark, fileset)
            frame.write.format("noop").mode("overwrite").save()
            seconds["publish"].append(published - started)
            seconds["read"].append(time.perf_counter() - published)
    size = sum(file.bytes for partition in found for _, file in partition.files)
    catalog.close()
    return {"bytes": [size], **{act: times[1:] for act, times in seconds.items()}}


if __name__ == "__main__":
    way, url, place, endpoint = sys.argv[1:]
    print(json.dumps(_measure(way, url, place, S3Server(endpoint))))
