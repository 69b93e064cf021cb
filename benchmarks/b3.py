"""B3: 10,000 schedules with arguments and a limit of one run each, all due in one instant → the last run's record.

Measured from the instant at which the schedules are due until the commit of the last run record has returned. One
scheduler works in this process, as the loop of `tidemill up` does; nothing starts the runs. Each schedule has a program
of its own, since `Concurrency` limits the runs of a program.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from functools import partial

from benchmarks.peers.apscheduler import due_jobs
from benchmarks.peers.environments import PeerRounds
from benchmarks.table import Figure
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Dialect
from tidemill.names import DEFAULT_NAMESPACE, ProgramId
from tidemill.roles.collecting import collecting_seldom
from tidemill.run.records.programs import Argument, ArgumentType, Program, ProgramKind, put_program
from tidemill.schedule.argument_sources import From
from tidemill.schedule.changes import Add, change_schedules
from tidemill.schedule.checker import Launch
from tidemill.schedule.constraints import Concurrency
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.specs import ScheduleSpec
from tidemill.schedule.time_triggers import Cron
from tidemill.world import World

SIZES = (1_000, 10_000)
"""Numbers of schedules that are due at once; the later ones stand beside the earlier ones, which are not due."""
ROUNDS = 3
_AT_ONCE = 500
_LEAST_LEAD = timedelta(seconds=4)
_LEAD_OF_ONE = timedelta(milliseconds=8)
"""Time to add one schedule, on a slow machine: all must be there before they are due."""
_LEAD = 3
"""Later rounds wait so many times as long as the round before took to add its schedules."""
_APP = "bench"
_ARGUMENTS = (Argument("number", ArgumentType.INT), Argument("at", ArgumentType.STRING))


def run(url: str) -> Iterator[Figure]:
    """Runs a second on the database at `url`."""
    catalog = open_catalog(url, World())
    database, target = ("SQLite", "≥ 10,000") if catalog.dialect is Dialect.SQLITE else ("PostgreSQL", "≥ 5,000")
    of_one = _LEAD_OF_ONE
    with due_jobs(url) as jobs:
        for size in SIZES:
            rates, theirs = [], PeerRounds("APScheduler")
            for number in range(ROUNDS + 1):
                started = catalog.world.clock.now()
                due_at = add_schedules(catalog, f"s{size}_{number}", size, of_one)
                of_one = _LEAD * (catalog.world.clock.now() - started) / size
                rates.append(size / launch_all(catalog, due_at, size))
                # Its larger rounds take a minute, so that its warm-up is a small one.
                theirs.add(partial(jobs.rate, size=size if number else SIZES[0]))
            what = f"{size:,} schedules due at once → run records"
            yield Figure("B3", what, database, rates[1:], "runs/s", target)
            yield theirs.figure("B3", what, database, "runs/s")
    catalog.close()


def add_schedules(catalog: Catalog, name: str, size: int, of_one: timedelta) -> datetime:
    """Add `size` schedules that are due at one instant, each with a program of its own. Return the instant.

    `of_one` is the longest time to add one schedule.
    """
    due_at = (catalog.world.clock.now() + _LEAST_LEAD + size * of_one).replace(microsecond=0)
    add_daily(catalog, name, size, due_at)
    assert catalog.world.clock.now() < due_at, "the schedules were added too slowly"
    return due_at


def add_daily(catalog: Catalog, name: str, size: int, due_at: datetime) -> None:
    """Add `size` schedules that are due each day at the time of `due_at`, each with a program of its own."""
    trigger = Cron(f"{due_at.second} {due_at.minute} {due_at.hour} * * *")
    for start in range(0, size, _AT_ONCE):
        numbers = range(start, min(start + _AT_ONCE, size))
        catalog.write(lambda db, numbers=numbers: _add(db, catalog.world, f"{name}_", numbers, trigger))  # type: ignore[misc]  # mypy infers no default


def launch_all(catalog: Catalog, due_at: datetime, size: int) -> float:
    """Let a scheduler make the runs of all schedules that are due; the seconds from `due_at` to the last record."""
    launched: list[Launch] = []
    scheduler = Scheduler(catalog, catalog.world, launched.append)
    time.sleep(max(0.0, (due_at - catalog.world.clock.now()).total_seconds()))
    with collecting_seldom():  # as `tidemill up` has it
        while len(launched) < size:
            scheduler.step()
    return (catalog.world.clock.now() - due_at).total_seconds()


def _add(db: Db, world: World, begin: str, numbers: range, trigger: Cron) -> None:
    seq = db.tick()
    adds = []
    for number in numbers:
        name = f"{begin}{number}"
        program_id = put_program(
            db,
            Program(
                program_id=ProgramId(world.new_id("prog")),
                namespace=DEFAULT_NAMESPACE,
                app=_APP,
                name=name,
                kind=ProgramKind.PYTHON,
                app_file="app.py",
                arguments=_ARGUMENTS,
            ),
        )
        arguments = {"number": number, "at": From("logical_time")}
        spec = ScheduleSpec(trigger, constraints=(Concurrency(1),), arguments=arguments)
        adds.append(Add(DEFAULT_NAMESPACE, _APP, name, program_id, spec))
    change_schedules(db, world, seq, adds)
