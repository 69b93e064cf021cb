"""Discarded partitions are reported to one committed run of their program."""

from __future__ import annotations

import pytest

from tests.run.conftest import rows_of
from tests.stage import staged

APP = """
from pathlib import Path
import tidemill as tm

HERE = Path(__file__).parent
app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"})


@app.python(reads=[tm.Reads(lines, on_change="error")], retries=1, backoff="0s")
def look(run):
    new = run.input(lines)
    told = [(one.key["hour"], one.error) for one in new.discarded]
    with (HERE / "said.txt").open("a") as said:
        said.write(f"{[partition['hour'] for partition in new.partitions]} {told}\\n")
    if (HERE / "fails").exists():
        (HERE / "fails").unlink()
        raise ValueError("it fails once")


app.schedule("look", look, trigger=tm.NewPartitions(lines))
"""
CHANGED = "(1, 'changed after it was delivered')"


@pytest.fixture
def stage(tmp_path, catalog_url):
    """A program for which a change is an error, and hour 1, which has changed after it was delivered."""
    with staged(tmp_path, catalog_url, APP) as stage:
        stage.publish("lines", "hour=1")
        stage.play()
        stage.publish("lines", "hour=1")
        stage.play()
        yield stage


def test_a_discard_is_reported_to_the_next_run_that_commits_and_to_no_other(stage):
    """The report of a failed run is lost, so its next attempt gets the report again."""
    (stage.mill.project.config.folder / "fails").touch()
    stage.publish("lines", "hour=2")
    stage.play()
    stage.publish("lines", "hour=3")
    stage.play()

    assert stage.lines_of() == ["[1] []", f"[2] [{CHANGED}]", f"[2] [{CHANGED}]", "[3] []"]
    reported_by = rows_of(stage.mill.project.catalog, "SELECT reported_by FROM consumer_work WHERE state = 'discarded'")
    assert reported_by == [(stage.runs()[-2].run_id,)]
    assert stage.mill.catalog.audit().clean


def test_what_is_discarded_again_is_reported_again(stage):
    """After a requeue it is delivered like any other; then all begins again."""
    stage.publish("lines", "hour=2")
    stage.play()
    stage.mill.consumers.requeue("lines", "default.shop.look")
    stage.play()
    stage.publish("lines", "hour=1")
    stage.play()
    stage.publish("lines", "hour=3")
    stage.play()

    assert stage.lines_of() == ["[1] []", f"[2] [{CHANGED}]", "[1] []", f"[3] [{CHANGED}]"]


def test_of_two_runs_with_the_same_report_one_commits(stage):
    """The other run is retried with the same input and without the report. This counts as no failure."""

    def tell_another() -> None:
        sql = "UPDATE consumer_work SET reported_by = 'run_other' WHERE state = 'discarded' RETURNING partition_key"
        assert len(stage.sql(sql)) == 1

    stage.publish("lines", "hour=2")
    stage.schedule()
    stage.at["driver.before_commit"] = tell_another
    stage.work()
    stage.play()

    assert stage.lines_of() == ["[1] []", f"[2] [{CHANGED}]", "[2] []"]
    assert [(run.state, run.failures) for run in stage.runs()][-1] == ("COMPLETED", 0)


def test_what_is_requeued_while_a_run_works_costs_it_nothing(stage):
    """The partition was reported, and the next run gets the partition."""
    stage.publish("lines", "hour=2")
    stage.schedule()
    stage.at["driver.before_commit"] = lambda: stage.mill.consumers.requeue("lines", "default.shop.look")
    stage.work()
    stage.play()

    assert stage.lines_of() == ["[1] []", f"[2] [{CHANGED}]", "[1] []"]
