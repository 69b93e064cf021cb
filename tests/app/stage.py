"""A deployed project whose scheduler, runner and drivers work in this process, without Spark, step by step."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from tests.manual_clock import ManualClock, backdoor_of
from tidemill.lake.consumer import backlog
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset
from tidemill.lake.manifest import group_by_partition, list_written
from tidemill.lake.spark import PartitionWrites
from tidemill.mill.mill import Mill, open_project
from tidemill.names import RunId
from tidemill.processes import LocalSpawner
from tidemill.run.attempts import take_runs
from tidemill.run.bundles import find_code
from tidemill.run.driver import DriverProcess
from tidemill.run.external import open_transaction
from tidemill.run.launchers import Assignment, Start
from tidemill.run.programs import find_program_by_id
from tidemill.run.runs import RunRecord, find_run, list_runs
from tidemill.schedule.loop import Scheduler
from tidemill.storage.files import open_files
from tidemill.world import SystemClock, World

SCHEMA = ColumnSchema('{"type":"struct","fields":[{"name":"line","type":"string"}]}')


class InProcess(LocalSpawner):
    """Lets drivers run here, and keeps what they complain of."""

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []

    @contextlib.contextmanager
    def surrounded(self, *_paths: Path) -> Iterator[None]:
        yield

    def complain(self, text: str) -> None:
        self.complaints.append(text)


def write_lines(
    world: World, rows: Mapping[str, str], fileset: Fileset, directory: str, columns: ColumnSchema | None = None
) -> PartitionWrites:
    """Write a text file for each partition, named as in a path (`hour=1`), where Spark would write Parquet."""
    files = open_files(fileset.dataset.location, world)
    for path, text in rows.items():
        files.put("/".join(filter(None, (directory, path, "part-0.txt"))), text.encode())
    found = list_written(files, directory)
    counts = {status.name: files.read(status.name).count(b"\n") for status in found}
    return PartitionWrites(group_by_partition(fileset.keys, directory, found, counts), SCHEMA)


@dataclass
class Stage:
    """One project on a catalog."""

    mill: Mill
    world: World
    spawner: InProcess
    at: dict[str, Callable[[], None]]
    """What to do once at the marks of these names."""

    def publish(self, dataset: str, *paths: str, op: str = "append") -> None:
        """Commit partitions of a file set, in one transaction."""
        with open_transaction(self.mill.project.catalog, self.world, [f"default.{dataset}"], writer=write_lines) as tx:
            getattr(tx.fileset(f"default.{dataset}"), op)({path: f"{path}\n" for path in paths})

    def schedule(self) -> None:
        """Bring messages and times to runs until there is nothing more."""
        scheduler = Scheduler(self.mill.project.catalog, self.world, lambda _: None)
        while scheduler.step() == timedelta(0):
            pass

    def work(self) -> list[RunRecord]:
        """Work on what is pending, one attempt each; how those runs stand afterwards."""
        return [self.attempt(run) for run in self.take()]

    def take(self) -> list[RunRecord]:
        """Take what is pending, as a runner does."""
        return self.mill.project.catalog.write(
            lambda db: take_runs(db, most=10, owner="stage", host="here", lease=timedelta(seconds=60))
        )

    def attempt(self, run: RunRecord) -> RunRecord:
        """Work on a run that was taken; how it stands afterwards."""
        self.driver(run).work(Assignment(run.run_id, run.epoch, str(self.mill.project.config.folder)))
        return self.run(run.run_id)

    def driver(self, run: RunRecord) -> DriverProcess:
        """A driver with the code of this attempt."""
        config, catalog, program_id = self.mill.project.config, self.mill.project.catalog, run.program_id
        assert program_id is not None, "drivers work on runs of programs"
        program = catalog.read(lambda db: find_program_by_id(db, program_id))
        code = find_code(catalog, config.state, program, run.bundle)
        start = Start(
            config.catalog, code, str(config.folder), str(config.folder), spark=False, warm=False, spark_settings={}
        )
        return DriverProcess(self.world, self.mill.project.catalog, start, "driver", writer=write_lines)

    def play(self, most: int = 20) -> list[RunRecord]:
        """Schedule and work until nothing is left to do; the runs, in their order. Fails when it does not end."""
        ran = []
        for _ in range(most):
            self.schedule()
            runs = self.work()
            if not runs:
                return ran
            ran += runs
        raise AssertionError(f"there is no end of it: {[(run.state, run.exit_reason) for run in ran[-5:]]}")

    def pass_time(self, sql: str = "UPDATE consumer_work SET not_before = 1 WHERE not_before > 0") -> None:
        """Let what waits for a time come due, and have it announced as the keeper does."""
        from tests.run.conftest import rows_of

        rows_of(self.mill.project.catalog, f"{sql} RETURNING 1")
        backlog.publish_due(self.mill.project.catalog)

    def run(self, run_id: RunId) -> RunRecord:
        """How a run stands."""
        return self.mill.project.catalog.read(lambda db: find_run(db, run_id))

    def runs(self) -> list[RunRecord]:
        """All runs of programs, oldest first."""
        found = self.mill.project.catalog.read(lambda db: list_runs(db, most=1000))
        return sorted((run for run in found if run.program_id), key=lambda run: run.created_at)

    def said(self, name: str = "said.txt") -> list[str]:
        """What programs have written into a file of the project."""
        path = self.mill.project.config.folder / name
        return path.read_text().splitlines() if path.exists() else []


@contextlib.contextmanager
def staged(folder: Path, catalog_url: str, app: str | Path, clock: ManualClock | None = None) -> Iterator[Stage]:
    """A project with this app file (its text, or the file to copy), deployed; at the time of `clock`, if given."""
    if isinstance(app, Path):
        shutil.copy(app, folder / "app.py")
    else:
        (folder / "app.py").write_text(app, encoding="utf-8")
    (folder / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    spawner = InProcess()
    at: dict[str, Callable[[], None]] = {}
    world = World(clock=clock or SystemClock(), spawner=spawner, marked=lambda mark: at.pop(mark, lambda: None)())
    with open_project(folder, create=True, world=world) as mill, backdoor_of(catalog_url) as backdoor:
        if clock is not None:
            clock.rule(backdoor, mill.project.catalog.dialect)
        mill.deploy()
        yield Stage(mill, world, spawner, at)
