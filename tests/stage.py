"""A deployed project whose scheduler and drivers work in the test's process, attempt by attempt."""

from __future__ import annotations

import contextlib
import copy
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from tests.manual_clock import ManualClock, backdoor_of
from tests.run.conftest import rows_of
from tests.spawners import InProcess
from tests.taking import take_runs
from tests.wakes import wakes_of
from tidemill import Mill
from tidemill.alerts.alerts import Watch
from tidemill.app.deploy import Deployed
from tidemill.catalog.meter import Meter
from tidemill.mill.mill import open_project
from tidemill.names import RunId
from tidemill.roles.janitor import Janitor
from tidemill.roles.up import UntilIdle, run_node
from tidemill.run.processes.assignments import Assignment, DriverSetup
from tidemill.run.processes.driver import DriverProcess
from tidemill.run.processes.external import ExternalTransaction, open_transaction, outputs_of
from tidemill.run.records.bundles import find_code
from tidemill.run.records.programs import find_program_by_id
from tidemill.run.records.runs import Cause, RunRecord, find_run, list_runs
from tidemill.run.records.workers import balance
from tidemill.run.step.attempts import AttemptEnd, FinishRun, end_attempt
from tidemill.run.step.inputs import announce_due
from tidemill.run.step.outputs import Writer
from tidemill.run.step.resumption import end_holds
from tidemill.schedule.loop import Scheduler
from tidemill.testing.plain import write_plain
from tidemill.testing.session import SharedSpark
from tidemill.world import SystemClock, World

EMPTY = "import tidemill as tm\napp = tm.App('shop')\n"
AnyStage = TypeVar("AnyStage", bound="Stage")


@dataclass
class Stage:
    """A project on a catalog; programs with Spark share the session `spark`."""

    mill: Mill
    spark: Any = None
    at: dict[str, Callable[[], None]] = field(default_factory=dict)
    """Acts that happen once, each at the mark of its name."""
    _warm: dict[str, DriverProcess] = field(default_factory=dict)
    """The driver that worked last on each program."""

    @property
    def world(self) -> World:
        """The world of the project, in which drivers work too."""
        return self.mill.project.world

    @property
    def spawner(self) -> InProcess:
        """The spawner, which keeps complaints."""
        assert isinstance(self.world.spawner, InProcess), "the project of a stage is opened by open_stage"
        return self.world.spawner

    def declare(self, text: str, *, update_schedules: bool = True) -> Deployed:
        """Deploy the app `shop` with these declarations."""
        self.mill.project.config.app.write_text(f"{EMPTY}{text}", encoding="utf-8")
        return self.mill.deploy(update_schedules=update_schedules)[0]

    def publish(self, dataset: str, *paths: str, op: str = "append") -> None:
        """Commit partitions of a file set, in one transaction."""
        self.commit(dataset, {path: f"{path}\n" for path in paths}, op)

    def commit(self, dataset: str, rows: Any, op: str = "append", *, quiet: bool = False) -> None:
        """Commit rows of any kind (`write_plain`) to a file set, in one transaction, or as a quiet run does."""
        with self.transaction(dataset) as tx:
            outputs_of(tx)._quiet = quiet
            getattr(tx.fileset(f"default.{dataset}"), op)(rows)

    def transaction(
        self, dataset: str, writer: Writer = write_plain
    ) -> contextlib.AbstractContextManager[ExternalTransaction]:
        """Open a transaction that publishes to a data set, as `mill.transaction` does, with rows of any kind."""
        return open_transaction(self.mill.project.catalog, self.world, [f"default.{dataset}"], writer=writer)

    def schedule(self, most_launches: int = 0) -> list[str]:
        """Bring messages and times to runs until there is nothing more; return the schedules that launched one."""
        launched: list[str] = []
        scheduler = self.scheduler(launched.append, most_launches)
        while scheduler.step() == timedelta(0):
            pass
        return launched

    def scheduler(self, launched: Callable[[str], None] = lambda _: None, most_launches: int = 0) -> Scheduler:
        """Make a scheduler that was just started, and that tells the name of each schedule that launches a run."""
        catalog = self.mill.project.catalog
        return Scheduler(catalog, self.world, lambda launch: launched(launch.schedule), most_launches=most_launches)

    def work(self) -> list[RunRecord]:
        """Work on all pending runs, one attempt each; return the runs as they stand afterwards."""
        return [self.attempt(run) for run in self.take()]

    def take(self, most: int = 10) -> list[RunRecord]:
        """Take pending runs, as a runner does that has `most` free slots."""
        return self.mill.project.catalog.write(
            lambda db: take_runs(db, most=most, owner="stage", host="here", lease=timedelta(seconds=60))
        )

    def attempt(self, run: RunRecord, world: World | None = None) -> RunRecord:
        """Work on a run that was taken; return the run as it stands afterwards.

        A driver in the world of the project stays warm, and serves the next runs of its program.
        """
        driver = self.driver(run, world)
        if world is None:
            warm = self._warm.get(str(run.program_id))
            if warm is not None and warm.usable and warm.start == driver.start:
                driver = warm
            self._warm[str(run.program_id)] = driver
        driver.work(self.assignment(run))
        return self.find(run.run_id)

    def end_attempt(self, run: RunRecord, cause: str, why: str, *, zombie: bool = False) -> None:
        """End the attempt of a run that was taken, as a runner does that has seen why its driver is gone."""
        end = AttemptEnd(Cause(cause), why, zombie=zombie)
        end_attempt(self.mill.project.catalog, run.run_id, run.epoch, end)

    def complete(self, run: RunRecord) -> set[str]:
        """End a run that was taken as if it had committed; return the kinds of changes for which processes wake."""
        return {str(kind) for kind in wakes_of(self.mill.project.catalog, FinishRun(run.run_id, run.epoch, "", {}))}

    def balance_workers(self) -> list[RunId]:
        """Make the missing runs of workers, as a runner does, and return those that are too many."""
        return balance(self.mill.project.catalog)

    def assignment(self, run: RunRecord) -> Assignment:
        """Return the order to work on a run that was taken."""
        return Assignment(run.run_id, run.epoch, str(self.mill.project.config.folder))

    def driver(self, run: RunRecord, world: World | None = None) -> DriverProcess:
        """Make a driver with the code of this attempt, in `world` or in that of the project."""
        config, catalog, program_id = self.mill.project.config, self.mill.project.catalog, run.program_id
        assert program_id is not None, "drivers work on runs of programs"
        program = catalog.read(lambda db: find_program_by_id(db, program_id))
        code = find_code(catalog, config.state, program, run.bundle)
        spark, folder = program.kind.needs_spark, str(config.folder)
        start = DriverSetup(config.catalog, code, folder, folder, spark=spark, warm=True, spark_settings={})
        if world is not None:
            catalog = copy.copy(catalog)
            catalog.world = world
        driver = DriverProcess(world or self.world, catalog, start, "driver", writer=write_plain)
        if spark:
            driver.spark = SharedSpark(self.spark)  # type: ignore[assignment]  # it does what a SparkHome does
        return driver

    def outcome(self, program: str, **arguments: object) -> tuple[str, str]:
        """Start a program and work on the run; return its state, and why it ended so."""
        run_id = self.mill.runs.start(program, arguments).run_id
        (run,) = self.take()
        assert run.run_id == run_id, "another run was waiting"
        ended = self.attempt(run)
        return str(ended.state), ended.exit_reason or ""

    def play(self, most: int = 20) -> list[RunRecord]:
        """Schedule and work until nothing is left to do; return the runs in their order. Fails when it does not end."""
        ran = []
        for _ in range(most):
            self.schedule()
            runs = self.work()
            if not runs:
                return ran
            ran += runs
        raise AssertionError(f"there is no end of it: {[(run.state, run.exit_reason) for run in ran[-5:]]}")

    def pass_time(self, sql: str = "UPDATE consumer_work SET not_before = 1 WHERE not_before > 0") -> None:
        """Let all that waits for a time come due, and have it announced as the keeper does."""
        self.sql(f"{sql} RETURNING 1")
        announce_due(self.mill.project.catalog)

    def end_holds(self) -> None:
        """Let the time come at which failed workflows return their claims, as the keeper does."""
        self.sql("UPDATE workflow_run SET holds_until = 1 WHERE holds_until IS NOT NULL RETURNING 1")
        end_holds(self.mill.project.catalog)

    def look_at_alerts(self) -> None:
        """Look at the alert rules, as `tidemill up` does."""
        Watch(self.mill.project.catalog, self.world).look()

    def sweep(self) -> None:
        """Let what is old expire and what is unused go, as the janitor does."""
        Janitor(self.mill.project.catalog, state=self.mill.project.config.state).step()

    def up(self) -> list[str]:
        """Run `tidemill up` in this process until nothing is left to do, and return its lines."""
        lines: list[str] = []
        with open_project(self.mill.project.config.folder, options={"spark_warm": "0"}) as mill:
            run_node(mill, echo=lines.append, deploy=False, until_idle=UntilIdle.ALL)
        return lines

    def empty_inboxes(self) -> None:
        """Archive or delete processed files, as the janitor does."""
        Janitor(self.mill.project.catalog).empty_inboxes()

    def find(self, run_id: RunId) -> RunRecord:
        """Return how a run stands."""
        return self.mill.project.catalog.read(lambda db: find_run(db, run_id))

    def runs(self) -> list[RunRecord]:
        """Return all runs of programs, oldest first."""
        found = self.mill.project.catalog.read(lambda db: list_runs(db, most=1000))
        return sorted((run for run in found if run.program_id), key=lambda run: run.created_at)

    def lines_of(self, name: str = "said.txt") -> list[str]:
        """Return the lines that programs have written into a file of the project."""
        path = self.mill.project.config.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def rows(self, name: str, *columns: str) -> list[tuple[object, ...]]:
        """Return the current rows of a data set with Parquet files, sorted."""
        files = [file.path for file in self.mill.datasets.files(name)]
        return sorted(tuple(row) for row in self.spark.read.parquet(*files).select(*(columns or ["*"])).collect())

    def sql(self, text: str) -> list[tuple[Any, ...]]:
        """Ask the catalog's database."""
        return rows_of(self.mill.project.catalog, text)


def open_stage(
    kind: type[AnyStage],
    folder: Path,
    catalog_url: str,
    app: str | Path,
    *,
    spark: Any = None,
    clock: ManualClock | None = None,
    environ: Mapping[str, str] | None = None,
) -> AnyStage:
    """Make a project with this app file (its text, or the file to copy), and open it; close the mill afterwards."""
    folder.mkdir(exist_ok=True)
    if isinstance(app, Path):
        shutil.copy(app, folder / "app.py")
    else:
        (folder / "app.py").write_text(app, encoding="utf-8")
    (folder / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    at: dict[str, Callable[[], None]] = {}
    more = {} if environ is None else {"environ": environ}
    world = World(
        clock=clock or SystemClock(), spawner=InProcess(), marked=lambda mark: at.pop(mark, lambda: None)(), **more
    )
    return kind(open_project(folder, create=True, world=world, meter=Meter()), spark, at)


@contextlib.contextmanager
def staged(
    folder: Path,
    catalog_url: str,
    app: str | Path = EMPTY,
    clock: ManualClock | None = None,
    *,
    spark: Any = None,
    environ: Mapping[str, str] | None = None,
) -> Iterator[Stage]:
    """Open a project with this app file, deployed; at the time of `clock`, if given."""
    stage = open_stage(Stage, folder, catalog_url, app, spark=spark, clock=clock, environ=environ)
    with contextlib.closing(stage.mill), backdoor_of(catalog_url) as backdoor:
        if clock is not None:
            clock.rule(backdoor, stage.mill.project.catalog.dialect)
        stage.mill.deploy()
        yield stage
