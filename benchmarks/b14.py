"""B14: operations and loops on a catalog with 200,000 runs, 1,000,000 messages, 10,000 schedules, or a hundredth.

On SQLite, each catalog in a file of its own. The plan tests (tests/plans) count the rows that PostgreSQL reads. At the
end retention deletes the large history, part by part.

Not measured: operations that change the catalog, such as `run start`; the audit, `run lineage`, `dataset calendar` and
`why` of a file. `inbox show` counts all files of the inbox, which takes 50 ms for 100,000.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import partial
from typing import Final

from benchmarks.aged import BIG, READER, age, app_of
from benchmarks.project import running_project
from benchmarks.table import Figure
from tidemill.mill.mill import Mill
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.janitor import Janitor
from tidemill.roles.keeper import Keeper
from tidemill.schedule.loop import Scheduler
from tidemill.upkeep.retention import Historian

SHARE: Final = 100
SAMPLES: Final = 30
_RUN: Final = "run_00000000000000000000100010"


def run(url: str) -> Iterator[Figure]:
    """Measure on SQLite, each operation on the small catalog and on the large one."""
    if not url.startswith("sqlite"):
        return
    small_url = url.replace(".db", "-small.db")
    with running_project(small_url, app_of(SHARE), partial(age, share=SHARE), ("server",)) as mill:
        small = {name: _measure(act) for name, act in _acts(mill).items()}
    with running_project(url, app_of(), age, ("server",)) as mill:
        for name, act in _acts(mill).items():
            ratio = _measure(act) / small[name]
            yield Figure("B14", f"{name}, of a hundredth of the past", "SQLite", [ratio], "times", "≤ 1.5")
        yield from _retention(mill)


def _acts(mill: Mill) -> Mapping[str, Callable[[], object]]:
    catalog, world = mill.project.catalog, mill.project.world
    scheduler = Scheduler(catalog, world, lambda _: None)
    keeper = Keeper(catalog, Discoverer(catalog, Narrator(world, lambda _: None, as_json=False)))
    janitor = Janitor(catalog, state=mill.project.config.state)
    return {
        "run list": mill.runs.list,
        "run show": lambda: mill.runs.show(_RUN),
        "topic list": mill.topics.list,
        "topic read": lambda: mill.topics.read("data"),
        "topic read since": lambda: mill.topics.read("data", since="2026-01-01T00:00"),
        "tx list": mill.transactions.list,
        "dataset list": mill.datasets.list,
        "dataset partitions": lambda: mill.datasets.partitions(BIG),
        "consumer show": lambda: mill.consumers.show(BIG, READER),
        "schedule list": mill.schedules.list,
        "job list": mill.jobs.list,
        "audit log": mill.audit.log,
        "overview": mill.overview,
        "metrics": mill.metrics,
        "why run": lambda: mill.why(_RUN),
        "why schedule": lambda: mill.why("bench.s0001_0"),
        "schedule show": lambda: mill.schedules.show("s0001_0"),
        "search": lambda: mill.search("p0001"),
        "inbox files": lambda: mill.inboxes.files("raw"),
        "backfill list": mill.backfills.list,
        "alert list": mill.alerts.list,
        "scheduler, nothing due": scheduler.step,
        "keeper, nothing due": keeper.step,
        "janitor, nothing due": janitor.step,
    }


def _measure(act: Callable[[], object]) -> float:
    """Return the median of the seconds of an act, after a first call."""
    act()
    taken = []
    for _ in range(SAMPLES):
        start = time.perf_counter()
        act()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def _retention(mill: Mill) -> Iterator[Figure]:
    """Delete the past: all of it is older than a second. The horizon moves twice, a second apart."""
    historian = Historian(mill.project.catalog, timedelta(seconds=1), timedelta(seconds=1))
    historian.step()
    time.sleep(1.1)
    start = time.perf_counter()
    deleted = historian.step()
    seconds = time.perf_counter() - start
    yield Figure("B14", "retention: rows deleted", "SQLite", [sum(deleted) / seconds], "/s")
