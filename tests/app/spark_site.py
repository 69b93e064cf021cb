"""A project whose runs a driver carries out in the test's process, on the Spark session of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tidemill.mill.mill import Mill, open_project
from tidemill.run.attempts import take_runs
from tidemill.run.bundles import AppCode
from tidemill.run.driver import DriverProcess
from tidemill.run.launchers import Assignment, Start
from tidemill.testing.session import SharedSpark
from tidemill.world import World


@dataclass
class Site:
    """A project whose runs are carried out here."""

    mill: Mill
    driver: DriverProcess
    spark: object

    def declare(self, text: str) -> None:
        """Deploy an app file."""
        self.mill.project.config.app.write_text(
            f"import tidemill as tm\napp = tm.App('shop')\n{text}", encoding="utf-8"
        )
        self.mill.deploy()

    def run(self, program: str, **arguments: object) -> tuple[str, str]:
        """Start a program and carry it out: its state, and why it ended so."""
        run_id = self.mill.runs.start(program, arguments)
        (run,) = self.mill.project.catalog.write(
            lambda db: take_runs(db, most=1, owner="test", host="here", lease=timedelta(minutes=1))
        )
        logs = self.mill.project.config.folder / "logs" / run_id
        logs.mkdir(parents=True)
        self.driver.work(Assignment(run.run_id, run.epoch, str(logs)))
        shown = self.mill.runs.show(run_id)
        return str(shown.state), str(shown.exit_reason or "")

    def rows(self, name: str, *columns: str) -> list[tuple[object, ...]]:
        """What is current, sorted."""
        files = [file.path for file in self.mill.datasets.files(name)]
        return sorted(tuple(row) for row in self.spark.read.parquet(*files).select(*(columns or ["*"])).collect())


@contextmanager
def open_site(folder: Path, catalog_url: str, spark: object, **environ: str) -> Iterator[Site]:
    """Open a project in `folder` with a driver that has `environ`."""
    (folder / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    world = World(environ={"TIDEMILL_PROCESS": "run/driver", **environ})
    with open_project(folder, create=True, world=world) as mill:
        code = AppCode(str(mill.project.config.app), "")
        place = str(folder)
        start = Start(mill.project.catalog.url, code, place, place, spark=True, warm=True, spark_settings={})
        driver = DriverProcess(world, mill.project.catalog, start, "driver")
        driver.spark = SharedSpark(spark)
        yield Site(mill, driver, spark)
