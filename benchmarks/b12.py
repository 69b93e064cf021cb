"""B12: the due schedules of B3 made into runs by 1, 2 and 4 scheduler processes on one PostgreSQL.

The schedules are made once, in a database that is the template of each round. There they have been due since the same
time of the day before, so that all are due at once when the processes get their sign. The rounds of 1, 2 and 4
processes alternate, first beside the server, then with a longer way to it. A round ends when the last commit returned.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Final

import psycopg

from benchmarks.b3 import add_daily
from benchmarks.peers.apscheduler import NO_SCALE_OUT
from benchmarks.peers.environments import gap_of
from benchmarks.slow_network import slowed
from benchmarks.table import Figure
from tidemill.catalog.engine import open_catalog
from tidemill.epoch import to_ms
from tidemill.errors import Unavailable
from tidemill.schedule.checker import Launch
from tidemill.schedule.loop import Scheduler
from tidemill.world import World

SIZE = 10_000
PROCESSES = (1, 2, 4)
ROUNDS = 3
DELAY: Final = 2.0
"""Milliseconds that the longer way adds to each round trip."""
_PATIENCE: Final = 600.0
_NEAR: Final = {2: "≥ 0.9", 4: "≥ 0.9"}
_FAR: Final = {2: "≥ 1.6", 4: "≥ 3.2"}


def run(url: str) -> Iterator[Figure]:
    """Runs a second of all processes together, on PostgreSQL alone: SQLite is for one machine."""
    if url.startswith("sqlite"):
        return
    with ExitStack() as ending:
        template = ending.enter_context(_template(url))
        yield Figure("B12", "a round trip", "PostgreSQL", _round_trips(url), "ms")
        yield from _scale(url, template, url, "", _NEAR)
        slow = ending.enter_context(slowed(url, DELAY))
        yield Figure("B12", f"a round trip, with {DELAY:.0f} ms more", "PostgreSQL", _round_trips(slow), "ms")
        yield from _scale(url, template, slow, f", with {DELAY:.0f} ms more a round trip", _FAR)


def _scale(url: str, template: str, reached: str, way: str, targets: dict[int, str]) -> Iterator[Figure]:
    rates: dict[int, list[float]] = {processes: [] for processes in PROCESSES}
    for number in range(ROUNDS + 1):
        for processes, seen in rates.items():
            rate = _round(url, template, reached, processes)
            if number > 0:  # the first is the warm-up
                seen.append(rate)
    for processes, seen in rates.items():
        named = f"{processes} process{'es' if processes > 1 else ''}{way}"
        ours = Figure("B12", f"{SIZE:,} schedules due at once, {named}", "PostgreSQL", seen, "runs/s")
        yield ours
        if processes > 1:
            yield gap_of("APScheduler", ours, NO_SCALE_OUT)
            ratios = [many / one for many, one in zip(seen, rates[PROCESSES[0]], strict=True)]
            yield Figure("B12", f"{processes} : 1 process{way}", "PostgreSQL", ratios, "", targets[processes])


def _round(url: str, template: str, reached: str, processes: int) -> float:
    """Return the runs in a second of so many schedulers, on a copy of the template."""
    name = "b12_round"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    address = f"{reached.rpartition('/')[0]}/{name}"
    command = [sys.executable, "-m", "benchmarks.b12", address]
    workers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    try:
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n", "a scheduler did not start"
        return SIZE / _race(workers)
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


def _race(workers: Sequence[subprocess.Popen[str]]) -> float:
    """Give all the sign; the seconds until they have launched all together."""
    launched = 0
    ended_at = 0.0
    counting = threading.Condition()

    def count(worker: subprocess.Popen[str]) -> None:
        nonlocal launched, ended_at
        assert worker.stdout is not None
        for line in worker.stdout:
            number, moment = line.split()
            with counting:
                launched += int(number)
                ended_at = max(ended_at, float(moment))
                counting.notify()

    for worker in workers:
        threading.Thread(target=count, args=(worker,), daemon=True).start()
    started = time.monotonic()
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    with counting:
        assert counting.wait_for(lambda: launched >= SIZE, timeout=_PATIENCE), f"{launched} of {SIZE} were launched"
    assert launched == SIZE, f"{launched} runs of {SIZE} schedules"
    return ended_at - started


def _work(url: str) -> None:
    """Schedule in this process until it is killed; print the number of launches of each step, and the moment."""
    catalog = open_catalog(url, World(), create=False)
    launched: list[Launch] = []
    scheduler = Scheduler(catalog, catalog.world, launched.append)
    waiter = catalog.waiter(Scheduler.AWAITED)
    catalog.read(lambda db: db.now())
    print("ready", flush=True)
    sys.stdin.readline()
    while True:
        try:
            nap = scheduler.step()
        except Unavailable:  # a step that took too long on a busy machine is done again, as by `tidemill up`
            continue
        if launched:
            print(len(launched), time.monotonic(), flush=True)
            launched.clear()
        waiter.wait(nap)


@contextmanager
def _template(url: str) -> Iterator[str]:
    """Yield the name of a database with the schedules, due since yesterday."""
    name = "b12_template"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    address = f"{url.rpartition('/')[0]}/{name}"
    catalog = open_catalog(address, World())
    due_at = (catalog.world.clock.now() + timedelta(hours=12)).replace(microsecond=0)  # so that one time has passed
    add_daily(catalog, "s", SIZE, due_at)
    catalog.close()
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"UPDATE timer SET next_fire_at = {_days_before(due_at, 1)}")
        connection.execute(f"UPDATE schedule SET since_at = {_days_before(due_at, 2)}")
        connection.execute("VACUUM (ANALYZE)")
    yield name
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _days_before(moment: datetime, days: int) -> int:
    return to_ms(moment - timedelta(days=days))


def _round_trips(url: str) -> list[float]:
    """Milliseconds of a hundred smallest questions."""
    durations = []
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(100):
            started = time.perf_counter()
            connection.execute("SELECT 1")
            durations.append((time.perf_counter() - started) * 1000)
    return durations


if __name__ == "__main__":
    _work(sys.argv[1])
