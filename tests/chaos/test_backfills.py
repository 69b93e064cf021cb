"""A backfill whose scheduler and runner are killed again and again: each partition is processed once."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from contextlib import contextmanager

import pytest

import tidemill as tm
from tests.command import TIDEMILL
from tests.yardstick import patience
from tidemill.run.processes.external import open_transaction
from tidemill.testing.plain import write_plain

APP = """
import tidemill as tm

app = tm.App("shop")
days = app.fileset("days", keys={"day": "int"}, format="text")


@app.python(reads=[days], retries=3)
def daily(run):
    run.publish("processed", {"days": [partition["day"] for partition in run.input(days).partitions]})
"""
DAYS = 500
KILLS = 2


@contextmanager
def up(folder):
    """Have `tidemill up` at work, and kill it (-9) at the end."""
    command = [TIDEMILL, "--project", str(folder), "up", "--no-server", "--no-deploy"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait(patience(10))


def wait_for(mill, backfill_id, ended):
    """Wait until so many items have ended, or the backfill has; return the backfill."""
    give_up_at = time.monotonic() + patience(60)
    while (found := mill.backfills.show(backfill_id)).done < ended and found.ended_at is None:
        assert time.monotonic() < give_up_at, found
        time.sleep(0.05)
    return found


@pytest.mark.long
def test_each_partition_of_a_backfill_is_processed_once_though_its_processes_are_killed(sqlite_catalog_url, tmp_path):
    """Between any two transactions of the scheduler and the runner."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n[runner]\nslots = 4\nlease = "5s"\n')
    with tm.open(tmp_path) as mill:
        mill.deploy()
        with open_transaction(mill.project.catalog, mill.project.world, ["default.days"], writer=write_plain) as tx:
            tx.fileset("default.days").append({f"day={day}": "line\n" for day in range(DAYS)})
        backfill_id = mill.backfills.start("shop.daily", select="all", concurrency=8).backfill_id
        for kill in range(KILLS):
            with up(tmp_path):
                wait_for(mill, backfill_id, (kill + 1) * DAYS // (KILLS + 1))
        with up(tmp_path):
            ended = wait_for(mill, backfill_id, DAYS + 1)
        processed = Counter(
            day for message in tm.iterate(mill.topics.read, "processed", after="0") for day in message.payload["days"]
        )

        assert (ended.state, ended.done, ended.failed) == ("COMPLETED", DAYS, 0)
        assert processed == Counter(range(DAYS))
        assert mill.catalog.audit().findings == ()
