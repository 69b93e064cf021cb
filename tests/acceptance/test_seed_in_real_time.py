"""Scenarios of seed 001 in real time: `tidemill up` as a process, programs with Spark, and files that are dropped."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import tidemill as tm
from tests.acceptance.test_up import SETTINGS, Up, land
from tests.chaos.spark import wait
from tidemill import Mill

pytestmark = [pytest.mark.spark, pytest.mark.long]

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", schema="day date, amount int", list_every="500ms")
sales = app.fileset("sales", keys={"day": "date"})
users = app.fileset("users", keys={"day": "date"})


@app.spark(reads=[raw], writes=[sales])
def a(run, spark):
    run.output(sales).append(run.input(raw).read())


@app.python(reads=[sales])
def b(run):
    assert [str(part["day"]) for part in run.input(sales).partitions] == ["2026-01-01"]


@app.spark(reads=[sales, users])
def join(run, spark):
    assert run.input(sales).read().count() == 2
    assert run.input(users).read().count() == 0


app.schedule("a", a, trigger=tm.NewFiles(raw, 2))
app.schedule("b", b, trigger=tm.RunEnded(a))
app.schedule(
    "join",
    join,
    trigger=tm.AllOf(tm.NewPartitions(sales), tm.NewPartitions(users), patience="6s"),
    constraints=[tm.Concurrency(1), tm.Delay("4s")],
)
"""


def why(project: Path, thing: str) -> str:
    """Ask `tidemill why` on the command line; return the first reason."""
    command = [sys.executable, "-c", "from tidemill.cli.main import main; main()", "--project", str(project)]
    done = subprocess.run([*command, "why", thing, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["because"][0]["why"]


def tells(mill: Mill, schedule: str, words: str) -> bool:
    """Return whether the schedule has a job, and the first reason for which the job waits has these words."""
    return bool(mill.jobs.list(schedule=schedule).items) and words in mill.why(schedule).because[0].why


def ended(mill: Mill) -> dict[str, str]:
    """The state of each run that has ended, by its program."""
    runs = mill.runs.list().items
    return {str(run.program).rpartition(".")[2]: run.state for run in runs if run.ended_at is not None}


def test_stories_4_8_and_9_in_real_time(tmp_path, postgres_catalog_url):
    """A feed in two parts starts A, the end of A starts B, and a join waits for an input that brings nothing."""
    (tmp_path / "landing").mkdir()
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "tidemill.toml").write_text(SETTINGS.format(catalog=postgres_catalog_url))
    with tm.open(tmp_path) as mill:
        mill.deploy()
        up = Up(tmp_path)
        try:
            next(event for event in up.events() if event["event"] == "ready")
            land(tmp_path, "1.csv", ("2026-01-01", 1))
            wait(lambda: tells(mill, "shop.a", "1/2 new files"), seconds=120)
            half = why(tmp_path, "shop.a")
            land(tmp_path, "2.csv", ("2026-01-01", 2))
            wait(lambda: "a" in ended(mill), seconds=120)
            # The scheduler hears of the partition a moment later, and its job waits for no more than ten seconds.
            wait(lambda: tells(mill, "shop.join", "0/1 new partitions of default.users"), seconds=120)
            wait(lambda: {"b", "join"} <= ended(mill).keys(), seconds=120)
            up.process.send_signal(signal.SIGTERM)
            exit_code = up.process.wait()
        finally:
            up.close()
        states = ended(mill)
        (job,) = mill.jobs.history("shop.join").items
        (first,), (joined,) = (mill.runs.list(program=name).items for name in ("shop.a", "shop.join"))

    assert half.endswith("waits: 1/2 new files of default.raw")
    assert exit_code == 0
    assert states == {"a": "COMPLETED", "b": "COMPLETED", "join": "COMPLETED"}
    assert "6s have passed since the first; concurrency 0/1; delay 4s since " in job.detail["why"]
    # Patience counts from the commit of A, which is a little before the end of A is recorded.
    assert joined.created_at - first.ended_at >= timedelta(seconds=9)
