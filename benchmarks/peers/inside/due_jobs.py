"""Jobs of APScheduler that are due in one instant; runs in its environment: `due_jobs.py URL`.

For each line of the input, a number, adds so many jobs to the SQLAlchemy job store, all due, while the scheduler is
paused. Then resumes the scheduler, and prints the seconds until each job has run and its next time is stored.
"""

from __future__ import annotations

import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy import Engine, create_engine, event

ran: list[int] = []


def work(number: int, at: str) -> None:
    """Do nothing: the scheduler is measured."""
    ran.append(number)


class CountingStore(SQLAlchemyJobStore):
    """The job store, which counts the jobs whose next time is stored."""

    stored = 0

    def update_job(self, job: object) -> None:
        super().update_job(job)
        self.stored += 1


def engine_of(url: str, *, durable: bool) -> Engine:
    """Return an engine whose commits are durable, or one that adds jobs quickly."""
    engine = create_engine(url)

    @event.listens_for(engine, "connect")
    def set_up(connection: Any, _: object) -> None:
        cursor = connection.cursor()
        if url.startswith("sqlite"):
            # As the catalog of Tidemill; without a log ahead, each commit of SQLite syncs more often.
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute(f"PRAGMA synchronous = {'FULL' if durable else 'OFF'}")
        else:
            cursor.execute(f"SET synchronous_commit = {'on' if durable else 'off'}")
            connection.commit()
        cursor.close()

    return engine


def run_all(url: str, size: int) -> float:
    """Return the seconds from the resumption to the last stored job."""
    quick, durable = engine_of(url, durable=False), engine_of(url, durable=True)
    store = CountingStore(engine=quick)
    scheduler = BackgroundScheduler(
        jobstores={"default": store}, job_defaults={"misfire_grace_time": None}, timezone="UTC"
    )
    due_at = datetime.now(UTC).replace(microsecond=0)
    daily = {"hour": due_at.hour, "minute": due_at.minute, "second": due_at.second}
    ended = 0
    all_ended = threading.Event()

    def count(_: object) -> None:
        nonlocal ended
        ended += 1
        if ended == size:
            all_ended.set()

    scheduler.add_listener(count, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    scheduler.start(paused=True)
    for number in range(size):
        scheduler.add_job(work, "cron", args=(number, "now"), id=f"s{number}", next_run_time=due_at, **daily)
    ran.clear()
    store.engine = durable
    started = time.perf_counter()
    scheduler.resume()
    all_ended.wait(timeout=600)
    while store.stored < size:
        time.sleep(0.001)
    seconds = time.perf_counter() - started
    assert len(set(ran)) == size, "not each job has run"
    assert datetime.now(UTC) < due_at + timedelta(days=1)
    scheduler.shutdown()
    store.engine = quick
    store.remove_all_jobs()
    quick.dispose()
    durable.dispose()
    return seconds


if __name__ == "__main__":
    for line in sys.stdin:
        print(run_all(sys.argv[1], int(line)), flush=True)
