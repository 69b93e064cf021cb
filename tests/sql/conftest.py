"""A project with windows, whose programs run in this process: with the shared Spark, or with rows as plain text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.stage import Stage, open_stage
from tidemill.app.deploy import Deployed
from tidemill.config import load_config
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


class Windows(Stage):
    """A project with windows, on a stage."""

    def deploy(self, text: str) -> Deployed:
        """Write the app file and deploy it."""
        self.mill.project.config.app.write_text(text, encoding="utf-8")
        (deployed,) = self.mill.deploy()
        return deployed

    def run(self, program: str = "shop.count_hours", world: World | None = None) -> Any:
        """Run the program once; return its record."""
        run_id = self.mill.runs.start(program).run_id
        self.drive(world)
        return next(run for run in self.mill.runs.list(limit=1000) if run.run_id == run_id)

    def drive(self, world: World | None = None) -> int:
        """Work on all pending runs; return their number."""
        return len([self.attempt(run, world) for run in self.take()])

    def read(self, name: str) -> Any:
        """Return the published rows, as a frame."""
        from tidemill.catalog.transactions import Snapshot
        from tidemill.frames.spark import read_partitions as read_frame
        from tidemill.lake.fileset.fileset import Fileset, find_schema, read_partitions
        from tidemill.names import WritePointer

        def block(db):
            fileset = Fileset.of(self.mill.project.dataset(db, name))
            everything = Snapshot(WritePointer(2**60), self.mill.project.catalog.incarnation)
            return fileset, read_partitions(db, fileset.dataset_id, everything), find_schema(db, fileset.dataset_id)

        fileset, partitions, columns = self.mill.project.catalog.read(block)
        return read_frame(World(), self.spark, fileset, partitions, columns)


def open_windows(folder: Path, catalog_url: str, text: str = APP, *, spark: Any = None) -> Windows:
    """Make a project in `folder`, deploy it, and open it."""
    windows = open_stage(Windows, folder, catalog_url, text, spark=spark)
    assert load_config(World(), folder).app == windows.mill.project.config.app
    windows.deploy(text)
    return windows


@pytest.fixture
def windows(sqlite_catalog_url, tmp_path, spark):
    """A project with hourly windows over Spark."""
    opened = open_windows(tmp_path / "project", sqlite_catalog_url, spark=spark)
    yield opened
    opened.mill.close()
