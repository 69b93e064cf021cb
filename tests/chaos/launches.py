"""Schedulers that are killed while they launch runs under limits: none is lost, doubled, or past a limit.

`python -m tests.postgres_server -- python -m tests.chaos.launches --launches 10000` is the campaign. Four schedulers
are processes of their own. The judge looks at the rows of the runs alone, never at the slots.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import psycopg

from tests.postgres_server import ADDRESS
from tests.taking import take_runs
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.messages import Publish, Topic
from tidemill.errors import Unavailable
from tidemill.names import DEFAULT_NAMESPACE, EventKey, ProgramId, RunId
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.run.records.runs import RunRecord, list_runs
from tidemill.run.step.attempts import FinishRun, Registration, register
from tidemill.schedule.changes import Add, change_schedules
from tidemill.schedule.constraints import Concurrency, Constraint, GroupConcurrency, Rate
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.jobs import list_jobs
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.specs import ScheduleSpec
from tidemill.world import World

SCHEDULERS = 4
PROGRAMS = 10
SCHEDULES = 3 * PROGRAMS
GROUPS = 3
WINDOW = timedelta(seconds=1)
_FOR_EVER = datetime.max.replace(tzinfo=UTC)


@dataclass
class Figures:
    """Result of a campaign."""

    launches: int = 0
    kills: int = 0
    messages: int = 0
    seconds: float = 0.0
    breaches: list[str] = field(default_factory=list)
    most: dict[str, int] = field(default_factory=dict)
    """The most runs at one time of any program and of any group, and the most launches in any window."""

    def __str__(self) -> str:
        most = ", ".join(f"{name} {number}" for name, number in self.most.items())
        told = f"{self.launches} launches, {self.kills} kills, {self.messages} messages in {self.seconds:.0f} s"
        return f"{told}; at most: {most}; {len(self.breaches)} breaches {self.breaches[:5]}"


def limits_of(number: int) -> tuple[Constraint, ...]:
    """The constraints of a schedule: its program's, those of one of the groups, and a rate."""
    return (Concurrency(2), GroupConcurrency(f"g{number % GROUPS}", 4), Rate(5, per=WINDOW))


def set_up(db: Db, world: World) -> None:
    """Make programs, each with three schedules, all with the same limits for a program."""
    seq = db.tick()
    adds = []
    for number in range(PROGRAMS):
        name = f"p{number}"
        program_id = put_program(
            db,
            Program(
                ProgramId(world.new_id("prog")),
                DEFAULT_NAMESPACE,
                "shop",
                name,
                ProgramKind.PYTHON,
                "app.py",
                reads=tuple(f"default.d{number + PROGRAMS * times}" for times in range(3)),
            ),
        )
        for times in range(3):
            one = number + PROGRAMS * times
            spec = ScheduleSpec(NewPartitions(f"d{one}"), limits_of(number))
            adds.append(Add(DEFAULT_NAMESPACE, "shop", f"s{one}", program_id, spec))
    change_schedules(db, world, seq, adds)


class Storm:
    """Schedulers on one catalog, and the hands that feed them, kill them, and end their runs."""

    def __init__(self, catalog: Catalog, seed: int) -> None:
        self.catalog = catalog
        self.dice = random.Random(seed)
        self.figures = Figures()
        self._left: list[RunId] = []
        self.schedulers = [start_scheduler(catalog.url) for _ in range(SCHEDULERS)]

    def play(self, launches: int, kill_every: float) -> None:
        """Play until so many runs are launched, then until nothing is left."""
        begin = kill_at = time.monotonic()
        while self.figures.launches < launches:
            self._publish()
            self._end_runs(self.dice.uniform(0.3, 1))
            if time.monotonic() > kill_at:
                self._kill()
                kill_at = time.monotonic() + self.dice.uniform(0, 2 * kill_every)
        give_up_at = time.monotonic() + 120
        while time.monotonic() < give_up_at and (self._end_runs(1) or self._is_work_left()):
            time.sleep(0.05)
        self.figures.seconds = time.monotonic() - begin
        self.figures.breaches += [f"open: {job}" for job in self.catalog.read(list_jobs)]

    def stop(self) -> None:
        """End all schedulers."""
        for process in self.schedulers:
            process.kill()
            process.wait()

    def _publish(self) -> None:
        for number in self.dice.sample(range(SCHEDULES), 3):
            key = EventKey(f"partition:default.d{number}")
            self.catalog.apply([Publish(Topic.DATA, "partition", key, {"count": 1})])
            self.figures.messages += 1

    def _kill(self) -> None:
        number = self.dice.randrange(SCHEDULERS)
        self.schedulers[number].send_signal(signal.SIGKILL)
        self.schedulers[number].wait()
        self.schedulers[number] = start_scheduler(self.catalog.url)
        self.figures.kills += 1

    def _is_work_left(self) -> bool:
        """Tell whether schedulers hold jobs, or have not heard all messages: those may have no job yet."""
        return bool(self.catalog.read(list_jobs)) or len(heard_by_runs(self.catalog)) < self.figures.messages

    def _end_runs(self, share: float) -> int:
        def start(db: Db) -> list[RunId]:
            taken = take_runs(db, most=1000, owner="r", host="h", lease=timedelta(hours=1))
            for run in taken:
                register(db, Registration(run.run_id, run.epoch, 1, {}, "logs"))
            return [run.run_id for run in taken]

        active = [*self._left, *self.catalog.write(start)]
        self.figures.launches += len(active) - len(self._left)
        self.dice.shuffle(active)
        ended = active[: max(1, round(len(active) * share))] if active else []
        for run_id in ended:
            self.catalog.apply([FinishRun(run_id, 1, "done", {})])
        self._left = active[len(ended) :]
        return len(active)


def heard_by_runs(catalog: Catalog) -> Counter[tuple[object, ...]]:
    """Count for each message of each schedule the runs that it started."""
    return Counter(
        (run.schedule_id, tuple(ref))
        for run in _all_runs(catalog)
        for leaf in run.triggered_by["triggers"]
        for ref in leaf["messages"]
    )


def judge(catalog: Catalog, figures: Figures) -> None:
    """Count by the rows of the runs: each message is in one run, and no limit was passed at any time."""
    runs = _all_runs(catalog)
    heard = heard_by_runs(catalog)
    figures.breaches += [f"{ref} was heard {times} times" for ref, times in heard.items() if times > 1]
    if len(heard) != figures.messages:
        figures.breaches.append(f"{len(heard)} of {figures.messages} messages are in runs")
    numbers = {run.run_id: int(str(run.triggered_by["schedule"]).removeprefix("default.shop.s")) for run in runs}
    spans: dict[str, list[tuple[datetime, int]]] = defaultdict(list)
    starts: dict[str, list[datetime]] = defaultdict(list)
    for run in runs:
        program = numbers[run.run_id] % PROGRAMS
        starts[f"p{program}"].append(run.created_at)
        for name in (f"program {program}", f"group {program % GROUPS}"):
            spans[name] += [
                (run.created_at, 1),
                (run.ended_at or _FOR_EVER, -1),
            ]
    for name, allowed in (("program", 2), ("group", 4)):
        figures.most[name] = max(_most_at_once(moves) for one, moves in spans.items() if one.startswith(name))
        if figures.most[name] > allowed:
            figures.breaches.append(f"{figures.most[name]} runs of a {name} at one time")
    figures.most["window"] = max(_most_in_window(sorted(times)) for times in starts.values())
    if figures.most["window"] > 5:
        figures.breaches.append(f"{figures.most['window']} launches in {WINDOW}")


def _all_runs(catalog: Catalog) -> list[RunRecord]:
    return catalog.read(lambda db: list_runs(db, most=10_000_000))


def _most_at_once(moves: list[tuple[datetime, int]]) -> int:
    """Count runs that overlap; of one millisecond, ends come before launches."""
    held = most = 0
    for _, move in sorted(moves):
        held += move
        most = max(most, held)
    return most


def _most_in_window(times: list[datetime]) -> int:
    first = most = 0
    for number, at in enumerate(times):
        while times[first] <= at - WINDOW:
            first += 1
        most = max(most, number - first + 1)
    return most


def campaign(catalog_url: str, launches: int, seed: int, kill_every: float) -> Figures:
    """Play a storm on an empty catalog, and judge."""
    catalog = open_catalog(catalog_url, World())
    try:
        catalog.write(lambda db: set_up(db, catalog.world))
        storm = Storm(catalog, seed)
        try:
            storm.play(launches, kill_every)
        finally:
            storm.stop()
        judge(catalog, storm.figures)
        return storm.figures
    finally:
        catalog.close()


def start_scheduler(catalog_url: str) -> subprocess.Popen[bytes]:
    """Start a process that is a scheduler, and nothing else."""
    return subprocess.Popen([sys.executable, "-m", "tests.chaos.launches", "--scheduler", catalog_url])


@contextmanager
def own_schema(url: str) -> Iterator[str]:
    """Give the address of a schema of its own on the server at `url`, until the block ends."""
    schema = f"campaign_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            yield f"{url}?options=-csearch_path%3D{schema}"
        finally:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


def _schedule(catalog_url: str) -> None:
    world = World()
    while True:
        with suppress(Unavailable):
            catalog = open_catalog(catalog_url, world, create=False)
            Scheduler(catalog, world, lambda _: None).run(catalog.waiter(Scheduler.AWAITED), lambda: False)


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scheduler", metavar="URL")
    parser.add_argument("--launches", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kill-every", type=float, default=2.0)
    options = parser.parse_args()
    if options.scheduler:
        _schedule(options.scheduler)
        return 0
    with own_schema(os.environ[ADDRESS]) as url:
        figures = campaign(url, options.launches, options.seed, options.kill_every)
    sys.stdout.write(f"{figures}\n")
    return 1 if figures.breaches else 0


if __name__ == "__main__":
    sys.exit(_main())
