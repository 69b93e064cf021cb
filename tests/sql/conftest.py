"""A project with windows, whose programs run in this process: with the shared Spark, or with rows as plain text."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tidemill.app.deploy import Deployed
from tidemill.config import load_config
from tidemill.mill.mill import Mill, open_project
from tidemill.processes import LocalSpawner
from tidemill.run.attempts import take_runs
from tidemill.run.bundles import AppCode
from tidemill.run.driver import DriverProcess
from tidemill.run.launchers import Assignment, Start
from tidemill.run.outputs import Writer, write_frames
from tidemill.testing.session import SharedSpark
from tidemill.world import World

APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h"))
hourly = app.fileset("hourly", keys={"day": "date"})
app.window_sql("count_hours", '''
    INSERT INTO hourly SELECT window_start, window_end, count(*) AS n, sum(amount) AS amount, max(window_time) AS at,
           to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end''')
"""


class QuietSpawner(LocalSpawner):
    """Runs in this process, and keeps what is complained of."""

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []

    @contextlib.contextmanager
    def surrounded(self, *_: Path) -> Iterator[None]:
        """No logs."""
        yield

    def complain(self, text: str) -> None:
        """Keep it."""
        self.complaints.append(text)


@dataclass
class Windows:
    """A project, and its runs in this process."""

    mill: Mill
    spark: Any = None
    writer: Writer = write_frames
    spawner: QuietSpawner = field(default_factory=QuietSpawner)

    def deploy(self, text: str) -> Deployed:
        """Write the app file and deploy it."""
        self.mill.project.config.app.write_text(text, encoding="utf-8")
        (deployed,) = self.mill.deploy()
        return deployed

    def run(self, program: str = "shop.count_hours", world: World | None = None) -> Any:
        """Run the program once; its record."""
        run_id = self.mill.runs.start(program)
        self.drive(world)
        return next(run for run in self.mill.runs.list(limit=1000) if run.run_id == run_id)

    def drive(self, world: World | None = None) -> int:
        """Carry out what waits; how many runs."""
        runs = self.mill.project.catalog.write(
            lambda db: take_runs(db, most=9, owner="runner", host="here", lease=timedelta(seconds=60))
        )
        for run in runs:
            folder = str(self.mill.project.config.folder)
            code = AppCode(str(self.mill.project.config.app), "")
            start = Start(
                self.mill.project.catalog.url, code, folder, folder, spark=True, warm=False, spark_settings={}
            )
            world = world or World(spawner=self.spawner)
            catalog = copy.copy(self.mill.project.catalog)
            catalog.world = world
            driver = DriverProcess(world, catalog, start, "driver", writer=self.writer)
            driver.spark = SharedSpark(self.spark)  # type: ignore[assignment]
            driver.work(Assignment(run.run_id, run.epoch, folder))
        return len(runs)

    def publish(self, name: str, frame: Any, how: str = "append") -> None:
        """One commit to a file set."""
        with self.mill.transaction([name]) as tx:
            getattr(tx.fileset(name), how)(frame)

    def read(self, name: str) -> Any:
        """What is published, as a frame."""
        from tidemill.catalog.transactions import Snapshot
        from tidemill.lake.fileset.fileset import Fileset, find_schema, read_partitions
        from tidemill.lake.spark import read_partitions as read_frame
        from tidemill.names import WritePointer

        def block(db):
            fileset = Fileset.of(self.mill.project.dataset(db, name))
            everything = Snapshot(WritePointer(2**60), self.mill.project.catalog.incarnation)
            return fileset, read_partitions(db, fileset.dataset_id, everything), find_schema(db, fileset.dataset_id)

        fileset, partitions, columns = self.mill.project.catalog.read(block)
        return read_frame(World(), self.spark, fileset, partitions, columns)

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Ask the catalog's database."""
        from tests.run.conftest import rows_of

        return rows_of(self.mill.project.catalog, text)


def open_windows(folder: Path, catalog_url: str, text: str = APP, **more: Any) -> Windows:
    """A project in `folder`, deployed."""
    folder.mkdir(exist_ok=True)
    (folder / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    (folder / "app.py").write_text(text, encoding="utf-8")
    windows = Windows(open_project(folder, create=True), **more)
    assert load_config(World(), folder).app == windows.mill.project.config.app
    windows.deploy(text)
    return windows


@pytest.fixture
def windows(sqlite_catalog_url, tmp_path, spark):
    """A project with hourly windows over Spark."""
    opened = open_windows(tmp_path / "project", sqlite_catalog_url, spark=spark)
    yield opened
    opened.mill.close()
