"""Scenarios of a full disk, each in a process of its own that has a small disk: see test_full_disk.py.

`python -m tests.acceptance.full_disk KIND SCENARIO FOLDER CATALOG` prints what the scenario saw as one line of JSON.
"""

from __future__ import annotations

import contextlib
import io
import json
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import httpx
import psutil

import tidemill as tm
from tests.drivers import cold_drivers
from tests.manual_clock import backdoor_of
from tests.served import serving
from tests.yardstick import patience
from tidemill import Mill, TidemillError
from tidemill.cli.main import main as tidemill
from tidemill.config import ServerSettings
from tidemill.frames import spark
from tidemill.lake import janitor
from tidemill.run.processes.local_launcher import LocalLauncher
from tidemill.run.processes.runner import RunEvent, Runner
from tidemill.run.processes.session import settings_of
from tidemill.testing.plain import write_texts

MEGABYTE = 1_000_000
APP = """
from tidemill import App

app = App("shop")
lines = app.fileset("lines", keys={"source": "string"})


@app.spark(writes=[lines], retries=3, backoff="1s")
def load(run, spark):
    print("attempt", run.attempt, flush=True)
    run.output(lines).append(
        spark.range(0, 400_000, 1, 2).selectExpr("sha2(string(id), 256) AS text", "concat('part', id % 2) AS source")
    )
"""
TABLES = ("dataset", "partition_change", "message", "consumer_work", "schedule", "program")


class MountedDisk:
    """A tmpfs of its own, which ends with this process's mount namespace."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        command = ["mount", "-t", "tmpfs", "-o", f"size={100 * MEGABYTE}", "tidemill-test", str(folder)]
        subprocess.run(command, check=True)

    def fill(self, leave: int = 0) -> None:
        """Let there be no more than `leave` bytes."""
        with (self.folder / "filler").open("wb", buffering=0) as filler:
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(MEGABYTE))
            filler.truncate(max(filler.tell() - leave, 0))

    def free(self) -> None:
        """Let there be plenty."""
        (self.folder / "filler").unlink()


class LimitedDisk:
    """A limit for the size of each file: not of one folder only, and each write beyond it fails all the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self, leave: int = 0) -> None:
        """Let no file grow beyond `leave` bytes."""
        self._limit(max(leave, 1))

    def free(self) -> None:
        """Let files grow again, also those of processes started meanwhile."""
        self._limit(resource.RLIM_INFINITY)

    def _limit(self, size: int) -> None:
        own = psutil.Process()
        for process in (own, *own.children(recursive=True)):
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def main(kind: str, scenario: str, folder: str, catalog: str) -> None:
    """Do the scenario and tell what was seen."""
    disk = {"mounted": MountedDisk, "limited": LimitedDisk}[kind](Path(folder) / "disk")
    scenarios = {
        "catalog": fill_under_catalog,
        "data": fill_under_data,
        "spark": fill_under_spark,
        "server": fill_under_server,
    }
    print(json.dumps(scenarios[scenario](disk, Path(folder), catalog)))


@contextlib.contextmanager
def project(folder: Path, catalog: str, data: Path) -> Iterator[Mill]:
    """A deployed project."""
    folder.mkdir(exist_ok=True)
    (folder / "app.py").write_text(APP)
    settings = f'catalog = "{catalog}"\ndata = "{data}"\n[runner]\nlease = "5s"\n[spark]\nmaster = "local[2]"\n'
    (folder / "tidemill.toml").write_text(settings + 'conf = {"spark.driver.memory" = "512m"}\n')
    with tm.open(folder) as mill:
        mill.deploy()
        yield mill


def publish(mill: Mill, source: str, text: str) -> str | None:
    """Publish one partition; the error, if it could not be."""
    try:
        with mill.transaction(["default.lines"]) as tx:
            tx.fileset("default.lines").append({source: text})
    except TidemillError as error:
        return f"{error.code}: {error}"
    return None


def sources(mill: Mill) -> list[str]:
    """The published partitions whose files are all there."""
    files = mill.datasets.files("lines")
    return sorted(str(file.key["source"]) for file in files if Path(file.path).stat().st_size == file.bytes)


def contents(mill: Mill) -> dict[str, list[str]]:
    """All rows of what a publication changes."""
    with backdoor_of(mill.project.catalog.url) as sql:
        return {table: sorted(map(repr, sql(f"SELECT * FROM {table}"))) for table in TABLES}


def run_cli(*arguments: str) -> tuple[int, str]:
    """A command's exit code and its errors."""
    errors = io.StringIO()
    try:
        with contextlib.redirect_stderr(errors):
            tidemill(arguments)
    except SystemExit as ended:
        return int(ended.code or 0), errors.getvalue()
    raise AssertionError("a command ends by SystemExit")


def fill_under_catalog(disk: MountedDisk | LimitedDisk, folder: Path, catalog: str) -> dict[str, object]:
    """The catalog (SQLite) is on the full disk, the data on another one."""
    spark.write_partitions = write_texts
    with project(folder, catalog, folder / "data") as mill:
        published, error = [], None
        disk.fill(leave=MEGABYTE)
        # SQLite still has room in its log: it is full when it has to grow.
        while error is None:
            published.append(f"s{len(published)}")
            before = contents(mill)
            error = publish(mill, published[-1], "text\n" * 10)
        failed = published.pop()
        after = contents(mill)
        code, errors = 0, ""
        while code == 0:  # smaller than a publication: it may fit in still
            code, errors = run_cli("--project", str(folder), "run", "start", "shop.load")
        disk.free()
        again = publish(mill, failed, "text\n" * 10)
        with backdoor_of(catalog) as sql:
            check = sql("PRAGMA integrity_check")
        return {
            "error": error,
            "same": before == after,
            "command": [code, errors],
            "again": again,
            "complete": sources(mill) == sorted([*published, failed]),
            "check": check,
        }


def fill_under_server(disk: MountedDisk | LimitedDisk, folder: Path, catalog: str) -> dict[str, object]:
    """The catalog (SQLite) is on the full disk, and a server shows it."""
    paths = ["/", "/runs", "/flow", "/v1/runs", "/v1/datasets", "/metrics", "/ready"]
    with project(folder, catalog, folder / "data") as mill:
        settings = replace(mill.project.config, server=ServerSettings(port=0))
        shown = Mill(replace(mill.project, config=settings))
        with serving(shown) as (url, secret), httpx.Client(base_url=url, timeout=patience(60)) as client:
            client.headers["authorization"] = f"Bearer {secret}"
            made = [client.post("/v1/runs", json={"program": "shop.load"})]
            disk.fill()
            while made[-1].status_code == 200:  # SQLite still has room in its log
                made.append(client.post("/v1/runs", json={"program": "shop.load"}))
            refused, runs = made.pop(), len(mill.runs.list(limit=1000))
            looks = [client.get(path).status_code for path in paths]
            disk.free()
            again = client.post("/v1/runs", json={"program": "shop.load"}).status_code
    return {
        "looks": looks,
        "refused": [refused.status_code, refused.json()["code"], refused.headers["retry-after"]],
        "runs": runs - len(made) + 1,
        "again": again,
    }


def fill_under_data(disk: MountedDisk | LimitedDisk, folder: Path, catalog: str) -> dict[str, object]:
    """The data are on the full disk, the catalog is on another one."""
    spark.write_partitions = write_texts
    with project(folder, catalog, disk.folder / "data") as mill:
        publish(mill, "s1", "text\n" * 10)
        before = contents(mill)
        disk.fill(leave=3 * MEGABYTE)
        # PostgreSQL's server, and SQLite's small file, have what they need either way.
        error = publish(mill, "s2", "text\n" * MEGABYTE)
        after = contents(mill)
        still = sources(mill)
        disk.free()
        again = publish(mill, "s2", "text\n" * MEGABYTE)
        janitor.sweep(mill.project.catalog)
        left = sorted(path.name for path in (disk.folder / "data/default/lines").iterdir())
        ended = [(row.state, row.write_pointer) for row in mill.transactions.list()]
        return {
            "error": error,
            "same": before == after,
            "still": still,
            "again": again,
            "sources": sources(mill),
            "transactions": sorted(state for state, _ in ended),
            "folders": [int(name.removeprefix("tx-").partition("-")[0]) for name in left],
            "committed": sorted(pointer for state, pointer in ended if state == "committed"),
        }


def fill_under_spark(disk: MountedDisk | LimitedDisk, folder: Path, catalog: str) -> dict[str, object]:
    """All of a project is on one disk, which a Spark job fills up."""
    del folder
    with project(disk.folder / "project", catalog, disk.folder / "data") as mill:
        events: list[RunEvent] = []
        options = cold_drivers(
            catalog,
            disk.folder / "project/state",
            mill.project.config.cache,
            settings_of(mill.project.config),
            plain=1,
        )
        runner = Runner(
            mill.project.world,
            mill.project.catalog,
            LocalLauncher(mill.project.world, options),
            lease=mill.project.config.lease,
            on_event=events.append,
        )
        run_id = mill.runs.start("shop.load").run_id

        def step_until(done: Callable[[], bool]) -> None:
            give_up_at = mill.project.world.clock.monotonic() + timedelta(seconds=patience(90))
            while not done():
                assert mill.project.world.clock.monotonic() < give_up_at, f"waited in vain: {events}"
                with contextlib.suppress(TidemillError):  # the catalog's disk is full as well: the runner waits
                    runner.step()
                mill.project.world.clock.sleep(timedelta(milliseconds=20))

        before = contents(mill)
        disk.fill(leave=5 * MEGABYTE)
        step_until(lambda: any(event.run.state == "PENDING" for event in events))
        failed = mill.runs.show(run_id)
        after = contents(mill)
        still = sources(mill)
        disk.free()
        step_until(lambda: mill.runs.show(run_id).state == "COMPLETED")
        runner.close()
        janitor.sweep(mill.project.catalog)
        return {
            "error": failed.exit_reason,
            "same": before == after,
            "still": still,
            "rows": [partition.rows for partition in mill.datasets.partitions("lines")],
            "folders": len(list((disk.folder / "data/default/lines").glob("tx-*"))),
        }


if __name__ == "__main__":
    main(*sys.argv[1:])
