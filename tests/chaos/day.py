"""A day of thousands of schedules, with two schedulers that crash: no time is skipped, and none comes twice.

`python -m tests.postgres_server -- python -m tests.chaos.day --schedules 5000` plays 24 hours on a virtual clock, on
each database. The judge finds the times by a walk over all minutes of the day, and not with the product's crontab.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from tests.chaos.launches import own_schema
from tests.manual_clock import ManualClock, backdoor_of
from tests.postgres_server import ADDRESS
from tests.taking import take_runs
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.engine import open_catalog
from tidemill.epoch import from_ms
from tidemill.names import DEFAULT_NAMESPACE, ProgramId, RunId
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.run.step.attempts import FinishRun, Registration, register
from tidemill.schedule.changes import Add, Change, change_schedules
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.specs import Misfire, ScheduleSpec
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.triggers import Trigger
from tidemill.testing.clock import Backdoor
from tidemill.world import World

ZONES = ("UTC", "Asia/Kolkata", "America/New_York", "Australia/Adelaide", "Asia/Kathmandu")
START = datetime(2026, 6, 3, 12, tzinfo=UTC)
"""No zone of `ZONES` changes its clock on the day after: the days of such changes have a campaign of their own."""
DAY = timedelta(hours=24)
LONGEST_NAP = timedelta(seconds=90)
LONGEST_OUTAGE = timedelta(minutes=20)
_MINUTE = timedelta(minutes=1)
_KINDS = 20


class Crash(BaseException):
    """The end of a scheduler, as far as the database can tell."""


@dataclass(frozen=True)
class Timed:
    """A schedule of the day. It fires at `minutes` of `hours` on the clocks of `zone`, or every so often."""

    trigger: Trigger
    zone: str = "UTC"
    minutes: frozenset[int] = frozenset()
    hours: frozenset[int] = frozenset(range(24))


@dataclass
class Figures:
    """Result of a day."""

    schedules: int
    fires: int = 0
    runs: int = 0
    crashes: int = 0
    outages: int = 0
    latest: timedelta = timedelta(0)
    """The longest time from a fire to its run."""
    seconds: float = 0.0
    breaches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.schedules} schedules, {self.fires} fires in {self.runs} runs, {self.crashes} crashes, "
        told += f"{self.outages} outages, latest run {self.latest} after its fire, in {self.seconds:.0f} s"
        return f"{told}; {len(self.breaches)} breaches {self.breaches[:5]}"


def timed(number: int) -> Timed:
    """Return the schedule of that number: of 20 two are hourly, one fires four times an hour, two by duration."""
    zone, minute, hour = ZONES[number % len(ZONES)], number * 7 % 60, number * 11 % 24
    match number % _KINDS:
        case 0 | 1:
            return Timed(Cron(f"{minute} * * * *", zone), zone, frozenset({minute}))
        case 2:
            return Timed(Cron("*/15 * * * *", zone), zone, frozenset({0, 15, 30, 45}))
        case 3 | 4:
            return Timed(Every(timedelta(hours=2, minutes=minute)))
        case _:
            return Timed(Cron(f"{minute} {hour} * * *", zone), zone, frozenset({minute}), frozenset({hour}))


class Day:
    """Two schedulers on one catalog, and the hands that let time pass and end runs."""

    def __init__(self, catalog_url: str, backdoor: Backdoor, schedules: int, seed: int) -> None:
        self.clock = ManualClock(START)
        self.dice = random.Random(seed)
        self.figures = Figures(schedules)
        self._crashing = True
        world = World(clock=self.clock, random=random.Random(seed), marked=self._mark)
        self.catalog: Catalog = open_catalog(catalog_url, world)
        self.clock.rule(backdoor, self.catalog.dialect)
        self.declared = {f"s{number}": timed(number) for number in range(schedules)}
        self.catalog.write(self._set_up)

    def _set_up(self, db: Db) -> None:
        seq = db.tick()
        program = Program(
            ProgramId("prog_day"), DEFAULT_NAMESPACE, "shop", "report", ProgramKind.PYTHON, app_file="app.py"
        )
        program_id = put_program(db, program)
        adds: list[Change] = []
        for number, (name, one) in enumerate(self.declared.items()):
            misfire = Misfire.ALL if number % 5 == 0 and one.minutes else Misfire.ONCE
            adds.append(Add(DEFAULT_NAMESPACE, "shop", name, program_id, ScheduleSpec(one.trigger, misfire=misfire)))
        change_schedules(db, self.catalog.world, seq, adds)

    def _mark(self, name: str) -> None:
        if self._crashing and threading.current_thread() is not threading.main_thread() and self.dice.random() < 0.1:
            self.figures.crashes += 1
            raise Crash(name)

    def play(self) -> None:
        """Let the day pass, and then all that is due come to its end."""
        begin = time.monotonic()
        while self.clock.at < START + DAY:
            if self.dice.random() < 0.01:
                self.figures.outages += 1
                nap = LONGEST_OUTAGE * self.dice.random()
            else:
                nap = LONGEST_NAP * self.dice.random()
            self.clock.jump(min(nap, START + DAY - self.clock.at))
            self._work()
        self._crashing = False
        self._work()
        self.figures.seconds = time.monotonic() - begin

    def _work(self) -> None:
        """Let both schedulers do all that is due, and all runs end."""
        while True:
            with ThreadPoolExecutor(2) as pool:
                for scheduler in [pool.submit(self._schedule) for _ in range(2)]:
                    scheduler.result()
            if not self._end_runs():
                return

    def _schedule(self) -> None:
        """Be a scheduler, and after a crash the next one."""
        while True:
            try:
                scheduler = Scheduler(self.catalog, self.catalog.world, lambda _: None)
                while not scheduler.step():
                    pass
            except Crash:
                continue
            return

    def _end_runs(self) -> int:
        def start(db: Db) -> list[RunId]:
            taken = take_runs(db, most=1000, owner="r", host="h", lease=timedelta(hours=1))
            for run in taken:
                register(db, Registration(run.run_id, run.epoch, 1, {}, "logs"))
            return [run.run_id for run in taken]

        run_ids = self.catalog.write(start)
        for run_id in run_ids:
            self.catalog.apply([FinishRun(run_id, 1, "done", {})])
        self.figures.runs += len(run_ids)
        return len(run_ids)


def judge(day: Day, backdoor: Backdoor) -> None:
    """Compare the logical times of all runs with the times that a walk over the minutes of the day finds."""
    figures = day.figures
    heard: dict[str, list[datetime]] = defaultdict(list)
    made: dict[str, list[datetime]] = defaultdict(list)
    for cause, at in backdoor("SELECT triggered_by, created_at FROM run ORDER BY created_at"):
        facts: Mapping[str, object] = cause if isinstance(cause, dict) else json.loads(str(cause))
        name, created_at = str(facts["schedule"]).rpartition(".")[2], from_ms(int(str(at)))
        times = [from_ms(one) for one in facts["logical_times"]]
        heard[name] += times
        made[name].append(created_at)
        figures.breaches += [f"{name} was early for {one}" for one in times if one > created_at]
        figures.latest = max(figures.latest, *(created_at - one for one in times))
    figures.fires = sum(map(len, heard.values()))
    shown = {zone: list(_minutes_of(zone)) for zone in ZONES}
    for name, one in day.declared.items():
        if one.minutes:
            wanted = [at for at, wall in shown[one.zone] if wall.minute in one.minutes and wall.hour in one.hours]
            times = Counter(heard[name])
            figures.breaches += [f"{name} skipped {at}" for at in wanted if not times[at]]
            figures.breaches += [f"{name} had {at} {number} times" for at, number in times.items() if number > 1]
            figures.breaches += [f"{name} had {at}, which is no time of it" for at in times.keys() - set(wanted)]
        elif isinstance(one.trigger, Every):
            figures.breaches += _breaches_of_every(name, one.trigger.duration, made[name])


def _breaches_of_every(name: str, duration: timedelta, made: list[datetime]) -> Iterator[str]:
    """Each run comes `duration` after the one before it, and late at most by an outage."""
    for before, after in zip([START, *made], [*made, None], strict=True):
        gap = (after or START + DAY) - before
        if gap > duration + LONGEST_OUTAGE:
            yield f"{name} skipped the time after {before}"
        if after is not None and gap < duration:
            yield f"{name} came {gap} after {before}"


def _minutes_of(zone: str) -> Iterator[tuple[datetime, datetime]]:
    clock, at = ZoneInfo(zone), START + _MINUTE
    while at <= START + DAY:
        yield at, at.astimezone(clock)
        at += _MINUTE


def campaign(catalog_url: str, schedules: int, seed: int) -> Figures:
    """Play a day on an empty catalog, and judge."""
    with backdoor_of(catalog_url) as backdoor:
        day = Day(catalog_url, backdoor, schedules, seed)
        try:
            day.play()
            judge(day, backdoor)
        finally:
            day.catalog.close()
    return day.figures


@contextmanager
def _catalog_of(database: str) -> Iterator[str]:
    if database == "postgres":
        with own_schema(os.environ[ADDRESS]) as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="tidemill-day-") as folder:
        yield f"sqlite:///{folder}/catalog.db"


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--database", choices=["sqlite", "postgres"], action="append")
    options = parser.parse_args()
    breaches = 0
    for database in options.database or ["sqlite", "postgres"]:
        with _catalog_of(database) as url:
            figures = campaign(url, options.schedules, options.seed)
        sys.stdout.write(f"{database}: {figures}\n")
        sys.stdout.flush()
        breaches += len(figures.breaches)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(_main())
