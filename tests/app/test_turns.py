"""Seed 001, story 6: a program of low priority waits for a slot of the runners, but not beyond its deadline."""

from __future__ import annotations

import pytest

from tests.manual_clock import ManualClock
from tests.stage import staged

APP = """
import tidemill as tm

app = tm.App("shop")
fast = app.fileset("fast", keys={"hour": "int"}, format="text")
slow = app.fileset("slow", keys={"hour": "int"}, format="text")


@app.python(reads=[fast])
def urgent(run):
    pass


@app.python(reads=[slow])
def patient(run):
    pass


app.schedule("urgent", urgent, trigger=tm.NewPartitions(fast), priority=9, constraints=[])
app.schedule("patient", patient, trigger=tm.NewPartitions(slow), deadline="2h", constraints=[])
"""


@pytest.fixture
def clock():
    """The clock of the catalog."""
    return ManualClock()


@pytest.fixture
def stage(catalog_url, tmp_path, clock):
    """A project whose schedules have no limits: each job is a pending run at once."""
    with staged(tmp_path, catalog_url, APP, clock) as entered:
        yield entered


def take_one(stage):
    """Take a run as a runner with one free slot does; the name of its schedule."""
    (run,) = stage.take(most=1)
    return stage.mill.runs.show(run.run_id).triggered_by["schedule"].removeprefix("default.shop.")


def test_pending_runs_start_by_priority_until_a_deadline_has_passed(stage, clock):
    """There is always an urgent run, so the patient one never had a slot."""
    stage.publish("slow", "hour=0")
    stage.schedule()
    started = []
    for hour in range(1, 6):
        stage.publish("fast", f"hour={hour}")
        stage.schedule()
        started.append(take_one(stage))
        clock.move("30m")
        stage.publish("fast", f"hour={hour + 10}")
        stage.schedule()

    assert started == ["urgent", "urgent", "urgent", "urgent", "patient"]


def test_a_deadline_counts_from_the_trigger_and_not_from_the_start_of_the_run(stage, clock):
    """A job that waited for two hours as a job has no other two hours as a run."""
    stage.mill.schedules.update("shop.patient", constraints=[{"type": "delay", "duration": "90m"}])
    stage.publish("slow", "hour=0")
    stage.schedule()
    clock.move("91m")
    stage.publish("fast", "hour=1", "hour=2")
    stage.schedule()
    first = take_one(stage)
    stage.publish("fast", "hour=3")
    stage.schedule()
    clock.move("30m")

    assert (first, take_one(stage)) == ("urgent", "patient")
