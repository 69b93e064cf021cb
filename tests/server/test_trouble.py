"""Looks in times of trouble: the catalog cannot be written to, the disk is full, Spark starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.acceptance.test_full_disk import FullDisk, way_to_mount
from tests.command import TIDEMILL
from tests.served import serving
from tests.server.busy import APP, make_busy
from tests.stage import staged
from tests.yardstick import patience
from tidemill.mill.routes import list_routes
from tidemill.server.pages.lists import LISTS

__all__ = ["way_to_mount"]

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.read()
"""
AUDIT = "catalog.audit"
"""The check of the history takes a tick of the clock, as a commit does: it waits for the lock."""
LOOKS = [one for one in list_routes() if one.method == "GET" and not one.in_path and one.operation.action != AUDIT]
PAGES = ["/", "/flow", "/search?text=own", *(page.path for page in LISTS)]
SPARK = """
import tidemill as tm

app = tm.App("shop")


@app.spark()
def load(run, spark):
    spark.range(3).count()
"""
SETTINGS = """
[spark]
master = "local[1]"
warm = 0
conf = {"spark.driver.memory" = "512m", "spark.ui.enabled" = "false"}
"""


@contextmanager
def held(path: str) -> Iterator[None]:
    """Hold the write lock of a SQLite database, in another process."""
    command = [sys.executable, "-c", HOLD, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        yield
        holder.communicate()


def test_looks_go_on_while_another_process_holds_the_lock(tmp_path, sqlite_catalog_url):
    """A backup, or a hand at the database, must not close the eyes of the engineer on duty.

    A write waits for the lock for a minute. The client waits for less: no look may wait for a write.
    """
    wants_input = {one.path for one in LOOKS if any(value.default is value.empty for value in one.inputs.values())}
    paths = [*PAGES, *(one.path for one in LOOKS if one.path not in wants_input), "/metrics", "/ready"]
    with staged(tmp_path, sqlite_catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as stage:
        make_busy(stage)
        with serving(stage.mill) as (url, secret):
            client = httpx.Client(base_url=url, headers={"authorization": f"Bearer {secret}"}, timeout=50)
            with client, held(sqlite_catalog_url.removeprefix("sqlite://")):
                statuses = {path: client.get(path).status_code for path in paths}

            until = time.monotonic() + patience(20)
            while next(one for one in stage.mill.tokens.list() if one.name == "client").last_used_at is None:
                assert time.monotonic() < until, "the use of the token is noted after all"
                time.sleep(0.05)

    assert {path: status for path, status in statuses.items() if status != 200} == {}
    assert len(statuses) > 30


def test_looks_go_on_while_the_disk_is_full_and_changes_say_so(tmp_path, way_to_mount):
    """The pages are where a person learns that the disk is full."""
    seen = FullDisk(tmp_path, way_to_mount).play("server")

    assert seen["looks"] == [200] * len(seen["looks"])
    assert seen["refused"] == [503, "catalog_unavailable", "1"]
    assert seen["runs"] == 1, "what was refused was not made"
    assert seen["again"] == 200


@pytest.mark.long
@pytest.mark.spark
def test_looks_go_on_while_spark_starts(tmp_path):
    """A start of Spark takes both cores for seconds."""
    (tmp_path / "app.py").write_text(SPARK, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(SETTINGS, encoding="utf-8")
    command = [TIDEMILL, "--project", str(tmp_path), "up", "--json"]
    environ = {**os.environ, "TIDEMILL_SERVER_PORT": "0"}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as up:
        assert up.stdout is not None
        url = json.loads(up.stdout.readline())["subject"]
        secret = tmp_path / ".tidemill" / "token"
        until = time.monotonic() + patience(60)
        while not secret.exists():
            assert time.monotonic() < until
            time.sleep(0.05)
        headers = {"authorization": f"Bearer {secret.read_text().strip()}", "accept": "text/html"}
        with httpx.Client(base_url=url, headers=headers, timeout=patience(10)) as client:
            run_id = client.post("/v1/runs", json={"program": "shop.load"}).json()["run_id"]
            states, statuses = set(), []
            while "COMPLETED" not in states:
                assert time.monotonic() < until + patience(120)
                states.add(client.get(f"/v1/runs/{run_id}").json()["state"])
                statuses += [client.get(path).status_code for path in ("/", "/runs", f"/runs/{run_id}", "/v1/datasets")]
        up.send_signal(signal.SIGTERM)
        up.communicate()

    assert set(statuses) == {200}
    assert len(states) > 1, "looks came before Spark had started"
