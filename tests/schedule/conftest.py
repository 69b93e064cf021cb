"""A catalog on each database with a clock of the test's own, and what a schedule is made of in one call."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from tests.manual_clock import ManualClock, backdoor_of
from tests.taking import take_runs
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.messages import Publish, Topic
from tidemill.names import DEFAULT_NAMESPACE, EventKey, ProgramId, RunId
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.run.records.runs import NewRun, RunRecord, create_pending, find_run
from tidemill.run.step.attempts import FinishRun, Registration, register
from tidemill.schedule.boundaries import feed_boundaries
from tidemill.schedule.changes import Add, Change, Changed, change_schedules
from tidemill.schedule.checker import Launch, check_due
from tidemill.schedule.jobs import EndedJob, Job, list_ended_jobs, list_jobs
from tidemill.schedule.probes import Probes
from tidemill.schedule.schedules import find_schedule
from tidemill.schedule.specs import Schedule, ScheduleSpec
from tidemill.schedule.subscriber import subscribe
from tidemill.schedule.timekeeper import fire_due
from tidemill.schedule.triggers import Trigger
from tidemill.testing.clock import Backdoor
from tidemill.world import World


@dataclass
class Shop:
    """A catalog with programs and schedules, driven step by step."""

    catalog: Catalog
    clock: ManualClock
    backdoor: Backdoor
    at_mark: Callable[[str], None] | None = None
    """Called at each mark of a step: a test acts there, or raises, which is a crash before the commit."""
    probes: Probes = field(default_factory=lambda: Probes(timeout=timedelta(minutes=5)))
    """As the loop has them, but no pause of the machine is taken for a probe that hangs."""

    @property
    def world(self) -> World:
        """The world of the catalog."""
        return self.catalog.world

    def program(self, name: str = "ingest", reads: Sequence[str] = ("raw", "clicks")) -> ProgramId:
        """Register a program that reads data sets of the default namespace."""
        program = Program(
            program_id=ProgramId(self.world.new_id("prog")),
            namespace=DEFAULT_NAMESPACE,
            app="shop",
            name=name,
            kind=ProgramKind.PYTHON,
            app_file="app.py",
            reads=tuple(f"default.{read}" for read in reads),
        )
        return self.catalog.write(lambda db: put_program(db, program))

    def schedule(
        self,
        trigger: Trigger,
        *,
        name: str = "s",
        program: ProgramId | None = None,
        suspended: bool = False,
        **spec: object,
    ) -> Schedule:
        """Make a schedule that listens."""
        add = Add(
            namespace=DEFAULT_NAMESPACE,
            app="shop",
            name=name,
            program_id=program or self.program(),
            spec=ScheduleSpec(trigger=trigger, **spec),
            suspended=suspended,
        )
        self.change(add)
        return self.catalog.read(lambda db: find_schedule(db, DEFAULT_NAMESPACE, "shop", name))

    def start(self, program: ProgramId) -> RunId:
        """Make a run as `run start` does."""
        run_id = RunId(self.world.new_id("run"))
        self.catalog.write(lambda db: create_pending(db, [NewRun(run_id, program)]))
        return run_id

    def change(self, *changes: Change) -> list[Changed]:
        """Change schedules in one transaction."""

        def block(db: Db) -> list[Changed]:
            return change_schedules(db, self.world, db.tick(), changes)

        return self.catalog.write(block)

    def publish(self, key: str, count: int = 1, **payload: object) -> int:
        """Commit a message as new data makes it, and give its sequence number."""
        event_type = key.partition(":")[0]
        message = Publish(Topic.DATA, event_type, EventKey(key), {"count": count, **payload})
        return self.catalog.apply([message])

    def add(self, dataset: str = "clicks", partitions: int = 1) -> int:
        """Commit new partitions of a file set."""
        return self.publish(f"partition:default.{dataset}", partitions)

    def pass_to(
        self,
        hour: float,
        previous: float | None,
        dataset: str = "clicks",
        since: float | None = None,
        zone: str | None = None,
    ) -> int:
        """Commit a move of a watermark, in hours since 1970; a first move says where the first slot begins."""
        before = None if previous is None else round(previous * 3_600_000_000)
        more: dict[str, object] = {} if since is None else {"since": round(since * 3_600_000_000)}
        more |= {} if zone is None else {"zone": zone}
        move = {"from": before, "to": round(hour * 3_600_000_000)}
        return self.publish(f"watermark:default.{dataset}", **move, **more)

    def step(self) -> list[Launch]:
        """Let the scheduler do all it can, as its loop does, and give the launches."""
        launches: list[Launch] = []
        done = True
        while done:
            fed = [feed(self.catalog, self.world) for feed in (subscribe, feed_boundaries)]
            fired = fire_due(self.catalog, self.world)
            checked = check_due(self.catalog, self.world, probes=self.probes)
            launches += fired.launches + checked.launches
            done = any(fed) or fired.timers > 0 or checked.jobs > 0
        return launches

    def feed_at_once(self, feed: Callable[[], int]) -> Counter[tuple[str, int]]:
        """Have two schedulers `feed` jobs until there is nothing left. Count the feeds of each schedule and time."""
        barrier = threading.Barrier(2)

        def work() -> None:
            barrier.wait()
            while feed() + check_due(self.catalog, self.world).jobs:
                pass

        while True:
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.step()
            pending = self.sql("SELECT run_id FROM run WHERE state = 'PENDING'")
            if not pending:
                break
            for (run_id,) in pending:
                self.end(RunId(str(run_id)))
        causes = [json.loads(str(text)) for (text,) in self.sql("SELECT triggered_by FROM run")]
        return Counter((cause["schedule"], at) for cause in causes for at in cause["logical_times"])

    def step_through(self) -> list[list[Launch]]:
        """Let the scheduler and all runs come to their end; the launches of each time that it had to do."""
        launches = []
        while launched := self.step():
            launches.append(launched)
            for launch in launched:
                self.end(launch.run_id)
        return launches

    def jobs(self) -> list[Job]:
        """The open jobs."""
        return self.catalog.read(list_jobs)

    def end(self, run_id: RunId) -> None:
        """Let a run that was just made complete, as its driver's commit does."""
        self.begin()
        self.catalog.apply([FinishRun(run_id, 1, "done", {})])

    def begin(self) -> None:
        """Have processes register for all runs that were just made."""

        def start(db: Db) -> None:
            lease = timedelta(seconds=60)
            for run in take_runs(db, most=1000, owner="r", host="h", lease=lease):
                register(db, Registration(run.run_id, run.epoch, 1, {}, "logs"))

        self.catalog.write(start)

    def sql(self, statement: str) -> list[tuple[object, ...]]:
        """Run a statement behind the product's back."""
        return self.backdoor(statement)

    def run(self, launch: Launch) -> RunRecord:
        """The run that a launch made."""
        return self.catalog.read(lambda db: find_run(db, launch.run_id))

    def history(self, schedule: Schedule) -> list[EndedJob]:
        """The ended jobs of a schedule, newest first."""
        return self.catalog.read(lambda db: list_ended_jobs(db, schedule.schedule_id, most=1000))


@pytest.fixture
def shop(catalog_url: str) -> Iterator[Shop]:
    """An empty shop on each database."""
    clock = ManualClock()
    made: list[Shop] = []

    def marked(name: str) -> None:
        if made and made[0].at_mark is not None:
            made[0].at_mark(name)

    # Ids of a known sequence: a failing history can be repeated.
    catalog = open_catalog(catalog_url, World(clock=clock, random=random.Random(7), marked=marked))
    with backdoor_of(catalog_url) as backdoor:
        clock.rule(backdoor, catalog.dialect)
        made.append(Shop(catalog, clock, backdoor))
        yield made[0]
    catalog.close()
