"""A year of a project in a virtual clock: its catalog stays as large as after 100 days.

History stays for 90 days. The partitions, which are dropped after 7 days, are history from then on.

`python -m tests.upkeep.year` prints how many rows and bytes the catalog has after each ten days, and what its audit
finds. All settings of retention have their defaults. Schedules, runs and the janitor are real, in one process.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import Final

from tests.manual_clock import ManualClock
from tests.stage import Stage, staged
from tidemill.roles.janitor import Janitor
from tidemill.upkeep.audit import audit

APP: Final = """
import tidemill as tm

app = tm.App("shop")
days = app.fileset("days", keys={{"day": "date"}}, format="text", retention="7d")

@app.python(writes=[days], arguments={{"number": int}})
def load(run):
    run.output(days).append({{f"day={{run.logical_time:%Y-%m-%d}}": "row\\n"}})

for number in range({loaders}):
    app.schedule(f"hourly_{{number}}", load, trigger=tm.Cron("0 * * * *"), arguments={{"number": number}})

@app.python(reads=[days])
def report(run):
    pass

app.schedule("on_days", report, trigger=tm.NewPartitions(days))
"""
_TABLES: Final = (
    *("run", "run_input", "tx", "message", "job_history", "fire", "partition_change", "consumer_work", "garbage"),
    *("audit", "reader_pin", "slot", "timer"),
)
_FULL: Final = 100
"""The day by which all of the first day has been deleted."""
_ALLOWED: Final = 1.05
"""The greatest growth of the catalog between that day and the end: pages of a database are not all full."""


def live(stage: Stage, clock: ManualClock, janitor: Janitor) -> int:
    """Let a day pass, hour by hour; return the number of its runs."""
    runs = 0
    for _ in range(24):
        clock.pass_by(timedelta(hours=1))
        while True:
            stage.schedule()
            worked = stage.work()
            if not worked:
                break
            runs += len(worked)
        janitor.step()
    return runs


def measure(stage: Stage) -> tuple[dict[str, int], int]:
    """Return the rows of each table, and the bytes of the catalog that are in use."""
    rows = {table: stage.sql(f"SELECT count(*) FROM {table}")[0][0] for table in _TABLES}
    ((used,),) = stage.sql(
        "SELECT (pages.page_count - free.freelist_count) * size.page_size FROM pragma_page_count AS pages,"
        " pragma_freelist_count AS free, pragma_page_size AS size"
    )
    return rows, used


def main() -> int:
    """Live through the days, and say whether the catalog has grown."""
    parser = argparse.ArgumentParser(prog="python -m tests.upkeep.year", description=__doc__)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--runs", type=int, default=1000, help="runs a day, about")
    asked = parser.parse_args()
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    clock, began = ManualClock(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidemill-year-", dir=memory) as name:
        app = APP.format(loaders=max(1, asked.runs // 48))
        url = f"sqlite:///{name}/catalog.db"
        with staged(Path(name) / "project", url, app, clock) as stage:
            janitor = Janitor.of(stage.mill.project.catalog, stage.mill.project.config)
            worked, found, full = 0, 0, 0
            for day in range(1, asked.days + 1):
                worked += live(stage, clock, janitor)
                if day % 10 and day not in {_FULL, asked.days}:
                    continue
                rows, used = measure(stage)
                findings = audit(stage.mill.project.catalog).findings
                found += len(findings)
                full = used if day == _FULL else full
                counts = ", ".join(f"{table} {count:,}" for table, count in rows.items() if count)
                print(
                    f"day {day}: {worked:,} runs, {used / 1e6:.1f} MB, {len(findings)} findings; {counts}", flush=True
                )
    grown = full and used > full * _ALLOWED
    print(f"{'larger' if grown else 'no larger'} than after {_FULL} days; {time.monotonic() - began:.0f} s")
    return int(bool(grown) or found > 0)


if __name__ == "__main__":
    sys.exit(main())
