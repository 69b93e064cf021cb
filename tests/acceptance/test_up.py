"""`tidemill up` as a user has it: a process that is started, makes of files what the app says, and is ended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

import tidemill as tm
from tests.processes import command_of, find_processes
from tests.yardstick import patience
from tidemill import Mill
from tidemill.catalog.transactions import Snapshot
from tidemill.names import WritePointer
from tidemill.shapes.manifest import tx_directory

pytestmark = pytest.mark.spark

MARK = "TIDEMILL_TEST_UP"
APP = """
from pyspark.sql import functions as F

from tidemill import App, Concurrency, NewFiles, NewPartitions

app = App("shop")
raw = app.inbox("raw", "landing", schema="day date, amount int", list_every="500ms", attempts=1)
sales = app.fileset("sales", keys={"day": "date"})
days = app.fileset("days", keys={"day": "date"})


@app.spark(reads=[raw], writes=[sales], retries=2, backoff="1s")
def load(run, spark):
    run.output(sales).append(run.input(raw).read())


@app.spark(reads=[sales], writes=[days])
def report(run, spark):
    changed = [partition["day"] for partition in run.input(sales).partitions]
    of_day = run.read(sales).where(F.col("day").isin(changed)).groupBy("day")
    run.output(days).overwrite(of_day.agg(F.sum("amount").alias("total")))


app.schedule("load", load, trigger=NewFiles(raw), constraints=[Concurrency(1)])
app.schedule("report", report, trigger=NewPartitions(sales), constraints=[Concurrency(1)])
"""
SETTINGS = """
catalog = "{catalog}"
[runner]
slots = 1
[spark]
master = "local[2]"
conf = {{"spark.driver.memory" = "512m", "spark.sql.shuffle.partitions" = "2", "spark.ui.enabled" = "false"}}
"""


class Up:
    """The process, and what it says."""

    def __init__(self, project: Path) -> None:
        self.mark = uuid.uuid4().hex
        program = "from tidemill.cli.main import main; main()"
        with (project / "stderr").open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-c", program, "--project", str(project), "up", "--json"],
                env={**os.environ, MARK: self.mark},
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        # Whatever hangs is ended, and the test fails where it reads.
        self.timer = threading.Timer(patience(280), self.process.kill)
        self.timer.start()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield each event that the process prints, as it comes."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            yield json.loads(line)

    def left(self) -> list[str]:
        """The processes that it has started and that live still."""
        return [command_of(pid) for pid in find_processes(re.escape(self.mark))]

    def close(self) -> None:
        """End it, however the test ended."""
        self.timer.cancel()
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def project(tmp_path: Path, postgres_catalog_url: str) -> Path:
    """A project before its first deployment; on PostgreSQL, since the demo is on SQLite."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "tidemill.toml").write_text(SETTINGS.format(catalog=postgres_catalog_url))
    return tmp_path


def land(project: Path, name: str, *rows: tuple[str, int]) -> None:
    """Let a file arrive in one step."""
    (project / name).write_text("".join(f"{day},{amount}\n" for day, amount in [("day", "amount"), *rows]))
    (project / name).rename(project / "landing" / name)


def leave_behind(mill: Mill) -> Path:
    """A transaction that was given up, with a file that it had written."""
    given_up = ExitStack()
    tx = given_up.enter_context(mill.transaction(["default.sales"]))
    with pytest.raises(InterruptedError), given_up:
        raise InterruptedError
    location = mill.datasets.show("default.sales").location.removeprefix("file://")
    folder = Path(location) / tx_directory(Snapshot(WritePointer(tx.write_pointer), mill.project.catalog.incarnation))
    (folder / "1/day=2026-01-01").mkdir(parents=True)
    (folder / "1/day=2026-01-01/part-0.parquet").write_bytes(b"half")
    return folder


def totals(mill: Mill) -> dict[str, int]:
    """Return the published total of each day."""
    return {
        str(file.key["day"]): row["total"]
        for file in mill.datasets.files("default.days")
        for row in parquet.ParquetFile(file.path).read().to_pylist()
    }


def test_files_become_reports_and_nothing_is_left_behind(project):
    """The main job, from two commands and a folder: with a bad file, an old transaction's leavings, a second round."""
    with tm.open(project) as mill:
        mill.deploy()
        leavings = leave_behind(mill)
        land(project, "a.csv", ("2026-01-01", 1), ("2026-01-02", 2))
        land(project, "b.csv", ("2026-01-02", 20), ("2026-01-03", 30))
        land(project, "broken.csv", ("2026-01-01", 5), ("no day", 5))
        first = {"2026-01-01": 1, "2026-01-02": 22, "2026-01-03": 30}
        second = {**first, "2026-01-03": 330, "2026-01-04": 4}
        up = Up(project)
        try:
            told = []
            for event in up.events():
                told.append(event["event"])
                if event["event"] not in {"commit", "done", "file", "failed"}:
                    continue
                if totals(mill) == first and not (project / "landing/c.csv").exists():
                    land(project, "c.csv", ("2026-01-03", 300), ("2026-01-04", 4))
                states = {file.name: file.status for file in mill.inboxes.files("default.raw")}
                if totals(mill) == second and states["broken.csv"] == "QUARANTINED":
                    break
            drivers = up.left()
            up.process.send_signal(signal.SIGTERM)
            told += [event["event"] for event in up.events()]
            exit_code = up.process.wait()
            left = up.left()
        finally:
            up.close()

        waiting = {view.name: view.waiting for view in mill.consumers.list()}
        committed = {
            Path(file.path.partition("/day=")[0]).parent
            for name in ("default.sales", "default.days")
            for file in mill.datasets.files(name)
        }
        states = {file.name: file.status for file in mill.inboxes.files("default.raw")}
        open_transactions = mill.transactions.list(open_only=True)

    assert told[0] == "ready"
    assert told[-1] == "stopped"
    assert states == {"a.csv": "SUCCESS", "b.csv": "SUCCESS", "c.csv": "SUCCESS", "broken.csv": "QUARANTINED"}
    assert waiting == {"default.shop.report": 0}
    assert list(open_transactions) == []
    assert not leavings.exists()
    assert all((folder / "_committed").exists() for folder in committed)
    assert len(drivers) > 1
    assert (exit_code, left) == (0, [])
