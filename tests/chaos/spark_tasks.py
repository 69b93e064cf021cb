"""Jobs whose tasks fail, and are started twice when they are slow: what they publish is what an undisturbed job does.

`python -m tests.chaos.spark_tasks [--jobs 20] [--seed S]`: on a small cluster whose two workers have addresses of their
own, since Spark copies no slow task on the host where it runs. 5 % of the attempts fail: before they write, in the
middle, or when all their rows are written. Its short form, without copies, is tests/chaos/test_spark_tasks.py.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tests.lake.conftest import make_lake
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import begin, commit
from tidemill.frames import spark as lake_spark
from tidemill.frames.spark import PINNED
from tidemill.frames.spark import read_partitions as read_frame
from tidemill.lake.fileset.fileset import WriteOp, find_schema, read_partitions
from tidemill.names import RunId
from tidemill.run.step.outputs import Outputs
from tidemill.world import World

TASKS = 40
ROWS = 4000
HOURS = 2
FAILING = 0.05
"""Share of failures among a task's first three attempts."""
SLOW = 0.4
"""Seconds of the last tasks' first attempts, on a cluster: only then has another executor time to copy them."""
LAST = 5
HOSTS = ("127.0.0.2", "127.0.0.3")
"""Addresses of the cluster's workers, all on this machine."""

Disturb = Callable[[Any], Any]


class Works:
    """A catalog with one file set, and what its jobs' tasks went through."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.notes = folder / "notes"
        self.notes.mkdir()
        self.catalog = open_catalog(f"sqlite:///{folder / 'catalog.db'}", World())
        (folder / "lines").mkdir(parents=True)
        self.lake = make_lake(self.catalog, folder / "lines")
        self.location = folder / "lines"

    def frame(self, disturb: Disturb | None = None) -> Any:
        """The rows of a job."""
        rows = self.spark.range(0, ROWS, 1, TASKS).selectExpr(
            "id", "sha2(string(id), 256) AS text", f"CAST(id % {HOURS} AS INT) AS hour"
        )
        return rows if disturb is None else rows.mapInPandas(disturb, rows.schema)

    def publish(self, *frames: Any) -> None:
        """Overwrite the file set by the write path of a run, which passes over a job that fails."""
        tx = begin(self.catalog, run_id=RunId("publisher"), epoch=1, writes=[self.lake.lines.dataset_id])
        outputs = Outputs(self.catalog, tx, {"default.lines": self.lake.lines})
        for frame in frames:
            with suppress(JobFailed):
                self._write(outputs, frame)
        commit(self.catalog, tx, outputs.prepare())

    def _write(self, outputs: Outputs, frame: Any) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            # Rows are not moved, so that the tasks that are disturbed are those that write.
            with patch.object(lake_spark, "MOST_MOVED_BYTES", -1):
                outputs.write("default.lines", WriteOp.OVERWRITE, frame)
        except (Py4JJavaError, PySparkException) as error:
            raise JobFailed from error

    def published(self) -> list[tuple[Any, ...]]:
        """Count and hash of the rows of each partition, as readers see them."""
        reader = self.lake.begin()
        dataset_id = self.lake.lines.dataset_id
        parts = self.catalog.read(lambda db: read_partitions(db, dataset_id, reader))
        frame = read_frame(
            self.catalog.world,
            self.spark,
            self.lake.lines,
            parts,
            self.catalog.read(lambda db: find_schema(db, dataset_id)),
        )
        hashed = frame.selectExpr("hour", "CAST(xxhash64(id, text, hour) AS DECIMAL(38, 0)) AS hash")
        return sorted(map(tuple, hashed.groupBy("hour").agg({"hash": "sum", "*": "count"}).collect()))

    def strays(self) -> list[str]:
        """Files of the newest transaction that its manifests do not name."""
        newest = max(self.location.glob("tx-*"), key=lambda path: int(path.name[3:].split("-")[0]))
        reader = self.lake.begin()
        parts = self.catalog.read(lambda db: read_partitions(db, self.lake.lines.dataset_id, reader))
        named = {str(self.location / name) for part in parts for name, _ in part.files}
        return sorted({str(path) for path in newest.rglob("*.parquet")} ^ named)

    def count(self) -> Counter[str]:
        """Attempts of tasks, and how many of them failed, since the last count."""
        seen = Counter(path.name.split(" ")[0] for path in self.notes.iterdir())
        for path in self.notes.iterdir():
            path.unlink()
        return seen

    def close(self) -> None:
        """Close the catalog."""
        self.catalog.close()


class JobFailed(Exception):
    """A task failed too often."""


def disturbed(seed: str, notes: Path, *, slow: float = 0, hopeless: bool = False) -> Disturb:
    """Disturb a task's rows: some tasks fail now and then, or the task of one partition always fails."""

    def work(batches):
        from pyspark import TaskContext

        task = TaskContext.get()
        attempt = f"{task.partitionId()}.{task.attemptNumber()}"
        chance = random.Random(f"{seed} {attempt}")
        (notes / f"attempts {attempt}").touch()
        fails = task.attemptNumber() < 3 and chance.random() < FAILING
        at = chance.choice(["start", "middle", "end"])
        if hopeless and task.partitionId() == TASKS // 2:
            fails, at = True, "end"
        if not task.attemptNumber() and task.partitionId() >= TASKS - LAST and chance.random() < slow:
            time.sleep(6)

        def fail(here: str) -> None:
            if fails and here == at:
                (notes / f"failed {attempt}").touch()
                raise RuntimeError(f"attempt {attempt} fails at its {here}")

        fail("start")
        for batch in batches:
            yield batch.head(len(batch) // 2)
            fail("middle")
            yield batch.tail(len(batch) - len(batch) // 2)
        fail("end")

    return work


def link_spark(folder: Path) -> Path:
    """A home of Spark for a cluster, which writes the folders of its executors there."""
    import pyspark

    home = folder / "spark"
    home.mkdir()
    for name in ("bin", "jars", "python"):
        source = Path(pyspark.__file__).parent / name
        if source.exists():
            (home / name).symlink_to(source)
    return home


@contextmanager
def open_cluster(folder: Path) -> Iterator[Any]:
    """A Spark with two workers, on hosts of their own, that copies slow tasks."""
    import pyspark

    os.environ |= {
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(link_spark(folder)),
        "SPARK_SCALA_VERSION": "2.13",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with socket.create_server(("127.0.0.1", 0)) as free:
        master = f"spark://127.0.0.1:{free.getsockname()[1]}"
    settings = {
        **PINNED,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "4",
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.quantile": "0.2",
        "spark.speculation.multiplier": "1.5",
    }
    with ExitStack() as stack:
        port = master.rpartition(":")[2]
        stack.enter_context(_daemon("master.Master", "127.0.0.1", folder, "--port", port))
        for host in HOSTS:
            work = str(folder / host)
            stack.enter_context(
                _daemon("worker.Worker", host, folder, "--cores", "1", "-m", "768m", "-d", work, master)
            )
        session = pyspark.sql.SparkSession.builder.master(master).config(map=settings).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        yield session
        session.stop()


@contextmanager
def _daemon(name: str, host: str, folder: Path, *arguments: str) -> Iterator[None]:
    """A process of the cluster, which is ended with the block."""
    command = [f"{os.environ['SPARK_HOME']}/bin/spark-class", f"org.apache.spark.deploy.{name}", "--host", host]
    with (folder / f"{host}.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--webui-port", "0", *arguments],
            env={**os.environ, "SPARK_LOCAL_IP": host},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def main() -> int:
    """Run that many disturbed jobs and compare them with one that was left alone; 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.spark_tasks", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--seed", default=date.today().isoformat(), help="default: today")  # noqa: DTZ011
    asked = parser.parse_args()
    import pyspark

    begun = time.monotonic()
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="tidemill-chaos-") as name, open_cluster(Path(name)) as session:
        works = Works(session, Path(name))
        works.publish(works.frame())
        expected = works.published()
        for job in range(asked.jobs):
            hopeless = job % 5 == 4
            work = disturbed(f"{asked.seed} {job}", works.notes, slow=SLOW, hopeless=hopeless)
            works.publish(works.frame(work))
            seen = works.count()
            total += seen + Counter({"jobs": 1, "hopeless jobs": int(hopeless)})
            total["copies of slow tasks"] += max(0, seen["attempts"] - seen["failed"] - TASKS) if not hopeless else 0
            total["partitions that differ"] += sum(a != b for a, b in zip(expected, works.published(), strict=True))
            total["files that nobody names"] += 0 if hopeless else len(works.strays())
            print(f"{job + 1:4}/{asked.jobs} {time.monotonic() - begun:5.0f} s  {dict(seen)}", flush=True)
        works.close()
    versions = f"Spark {pyspark.__version__}, Python {sys.version.split()[0]}"
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, seed {asked.seed}, {time.monotonic() - begun:.0f} s, {versions}")
    for name in ("jobs", "hopeless jobs", "attempts", "failed", "copies of slow tasks"):
        print(f"{name:28}{total[name]:>10}")
    wrong = ("partitions that differ", "files that nobody names")
    for name in wrong:
        print(f"{name:28}{total[name]:>10}")
    return 1 if any(total[name] for name in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
