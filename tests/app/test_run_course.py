"""The course of a run: its attempts, and the messages of its commit."""

from __future__ import annotations

import pytest

from tests.errors import raises_code
from tests.stage import staged

APP = """
import datetime
import tidemill as tm

app = tm.App("shop")
days = app.fileset("days", keys={"day": "date"})

@app.python(writes=[days], retries=1, backoff="1s")
def load(run):
    if run.attempt == 1:
        raise ValueError("the first attempt fails")
    run.output(days).append([{"n": 1, "day": datetime.date(2026, 1, day)} for day in (1, 2)])
"""

REPORT = """
@app.python()
def report(run):
    run.publish("told", {"at": str(run.logical_time), "times": len(run.logical_times)})
"""


@pytest.fixture
def stage(catalog_url, tmp_path):
    """A deployed project."""
    with staged(tmp_path, catalog_url, APP) as opened:
        yield opened


BURN = """
import subprocess, sys, time

@app.python(retries=1, backoff="1s")
def burn(run):
    if run.attempt == 1:
        subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.1: pass"], check=True)
        raise ValueError("after much work")
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
"""


def test_a_run_shows_each_attempt_with_its_end(stage):
    """A retry hides its reason: the page of a run has to show what went wrong before."""
    run_id = stage.mill.runs.start("shop.load").run_id
    _play(stage)
    run = stage.mill.runs.show(run_id)

    assert run.state == "COMPLETED"
    assert [(one.epoch, one.state) for one in run.attempts] == [(1, "aborted"), (2, "committed")]
    assert "the first attempt fails" in run.attempts[0].reason
    assert run.attempts[1].write_pointer == run.write_pointer
    assert run.attempts[0].ended_at <= run.attempts[1].began_at


def test_a_run_shows_its_core_seconds(catalog_url, tmp_path):
    """Cost is compared by them. The time of a child counts too, and that of a failed attempt."""
    with staged(tmp_path, catalog_url, APP + BURN) as stage:
        run_id = stage.mill.runs.start("shop.burn").run_id
        stage.play()
        failed = stage.mill.runs.show(run_id)
        _play(stage)
        run = stage.mill.runs.show(run_id)

    assert (failed.state, run.state) == ("PENDING", "COMPLETED")
    assert failed.core_seconds >= 0.1
    # Both are rounded to hundredths.
    assert run.core_seconds >= failed.core_seconds + 0.08


def test_a_run_shows_what_its_commit_published(stage):
    """The next runs follow from the messages of a run."""
    run_id = stage.mill.runs.start("shop.load").run_id
    stage.mill.topics.publish("own", {"n": 1})
    assert stage.mill.runs.show(run_id).published == ()
    _play(stage)
    run = stage.mill.runs.show(run_id)

    assert {one.topic for one in run.published} == {"data", "program"}
    assert [one.event_key for one in run.published if one.topic == "data"] == ["partition:default.days"]
    commit = run.attempts[-1].commit_seq
    assert all(one.position.startswith(f"{commit}.") for one in run.published)


def test_a_run_by_hand_works_for_a_time_of_the_past(stage):
    """A night that went wrong is repeated the next morning, for its own day."""
    stage.declare(REPORT)
    first = stage.mill.runs.start("report", logical_time="2026-01-02T03:30:00+01:00").run_id
    stage.play()
    second = stage.mill.runs.start("report", logical_time="2026-01-03T02:30").run_id
    stage.play()
    told = [message.payload for message in stage.mill.topics.read("told")]

    assert told == [
        {"at": "2026-01-02 02:30:00+00:00", "times": 1},
        {"at": "2026-01-03 02:30:00+00:00", "times": 1},
    ]
    assert [stage.mill.runs.show(one).state for one in (first, second)] == ["COMPLETED", "COMPLETED"]
    with raises_code("bad_logical_time", "in ISO 8601"):
        stage.mill.runs.start("report", logical_time="yesterday")


def _play(stage):
    """Let both attempts happen, without the wait between them."""
    stage.play()
    stage.pass_time("UPDATE run SET not_before = 1 WHERE not_before > 0")
    stage.play()
