"""Schedulers that are killed while schedules fire each second: another one takes over, late by less than a lease.

`python -m tests.postgres_server -- python -m tests.chaos.takeover --kills 200` is the campaign. A kill comes within
30 ms of a fire, when the scheduler that was faster is at work. The judge compares the logical times of all runs with
the seconds that have passed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tests.chaos.launches import own_schema, start_scheduler
from tests.manual_clock import backdoor_of
from tests.postgres_server import ADDRESS
from tests.yardstick import patience
from tidemill.catalog.db import Db
from tidemill.catalog.engine import open_catalog
from tidemill.epoch import from_ms
from tidemill.names import DEFAULT_NAMESPACE, ProgramId
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.schedule.changes import Add, change_schedules
from tidemill.schedule.specs import ScheduleSpec
from tidemill.schedule.time_triggers import Cron
from tidemill.world import World

SCHEDULERS = 2
SCHEDULES = 10
LEASE = timedelta(seconds=15)
_SECOND = timedelta(seconds=1)
_AFTER_A_FIRE = 0.03


@dataclass
class Figures:
    """Result of a campaign."""

    kills: int = 0
    fires: int = 0
    late: list[timedelta] = field(default_factory=list)
    """For each run, the time from its first fire to the run."""
    breaches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        late = sorted(self.late)
        told = f"{self.fires} fires, {self.kills} kills; late by {late[len(late) // 2]} (median), {late[-1]} (most)"
        return f"{told}; {len(self.breaches)} breaches {self.breaches[:5]}"


def _set_up(db: Db, world: World) -> datetime:
    """Make schedules that fire each second; return the time of their creation."""
    seq = db.tick()
    program = Program(ProgramId("prog"), DEFAULT_NAMESPACE, "shop", "report", ProgramKind.PYTHON, app_file="app.py")
    program_id = put_program(db, program)
    spec = ScheduleSpec(Cron("* * * * * *"))
    adds = [Add(DEFAULT_NAMESPACE, "shop", f"s{number}", program_id, spec) for number in range(SCHEDULES)]
    change_schedules(db, world, seq, adds)
    return db.now()


def campaign(catalog_url: str, kills: int, seed: int) -> Figures:
    """Kill one scheduler of two after each second, and judge."""
    dice = random.Random(seed)
    figures = Figures()
    catalog = open_catalog(catalog_url, World())
    schedulers: list[subprocess.Popen[bytes]] = []
    try:
        begin = catalog.write(lambda db: _set_up(db, catalog.world))
        schedulers += [start_scheduler(catalog_url) for _ in range(SCHEDULERS)]
        while figures.kills < kills:
            now = time.time()
            time.sleep(1 - now % 1 + dice.uniform(0, _AFTER_A_FIRE))
            number = dice.randrange(SCHEDULERS)
            schedulers[number].kill()
            schedulers[number].wait()
            schedulers[number] = start_scheduler(catalog_url)
            figures.kills += 1
        end = catalog.read(lambda db: db.now())
        _wait_for_all(catalog_url, begin, end)
    finally:
        for process in schedulers:
            process.kill()
            process.wait()
        catalog.close()
    _judge(catalog_url, figures, begin, end)
    return figures


def _fires(backdoor: Callable[[str], list[tuple[Any, ...]]]) -> list[tuple[list[tuple[str, datetime]], datetime]]:
    """Return the fires of each run, and the time at which the run was made."""
    found = []
    for cause, created_at in backdoor("SELECT triggered_by, created_at FROM run"):
        facts = cause if isinstance(cause, dict) else json.loads(str(cause))
        times = [from_ms(one) for one in facts["logical_times"]]
        found.append(([(facts["schedule"], at) for at in times], from_ms(int(str(created_at)))))
    return found


def _skipped(heard: Collection[tuple[str, datetime]], begin: datetime, end: datetime) -> list[tuple[str, datetime]]:
    seconds = int((end - begin.replace(microsecond=0)) / _SECOND)
    times = [begin.replace(microsecond=0) + number * _SECOND for number in range(1, seconds + 1)]
    names = [f"default.shop.s{number}" for number in range(SCHEDULES)]
    return [(name, at) for at in times for name in names if (name, at) not in heard]


def _wait_for_all(catalog_url: str, begin: datetime, end: datetime) -> None:
    """Wait for the runs of all fires; give up in silence, since the judge says what is missing."""
    give_up_at = time.monotonic() + patience(30)
    with backdoor_of(catalog_url) as backdoor:
        while time.monotonic() < give_up_at:
            if not _skipped({fire for fires, _ in _fires(backdoor) for fire in fires}, begin, end):
                return
            time.sleep(0.2)


def _judge(catalog_url: str, figures: Figures, begin: datetime, end: datetime) -> None:
    with backdoor_of(catalog_url) as backdoor:
        runs = _fires(backdoor)
    heard = Counter(fire for fires, _ in runs for fire in fires)
    figures.late += [made_at - min(at for _, at in fires) for fires, made_at in runs]
    figures.fires = len(heard)
    figures.breaches += [f"{one} was heard {times} times" for one, times in heard.items() if times > 1]
    figures.breaches += [f"a run was early by {-one}" for one in figures.late if one < timedelta(0)]
    figures.breaches += [f"a run was late by {one}" for one in figures.late if one > LEASE]
    figures.breaches += [f"{name} skipped {at}" for name, at in _skipped(heard, begin, end)]


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with own_schema(os.environ[ADDRESS]) as url:
        figures = campaign(url, options.kills, options.seed)
    sys.stdout.write(f"{figures}\n")
    return 1 if figures.breaches else 0


if __name__ == "__main__":
    sys.exit(_main())
