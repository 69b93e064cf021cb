"""Suspending and resuming schedules, one, many, or those of a period, by `Mill` and on the command line."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.errors import raises_code
from tests.stage import staged
from tidemill.cli.main import main

APP = """
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")
users = app.fileset("users", keys={"hour": "int"}, format="text")


@app.python(reads=[lines, users])
def load(run):
    pass


app.schedule("on_lines", load, trigger=tm.NewPartitions(lines, 2))
app.schedule("on_orders", load, trigger=tm.MessageOn("orders"))
"""


@pytest.fixture
def stage(tmp_path, catalog_url):
    """The project, deployed, on a clock of the test's."""
    with staged(tmp_path, catalog_url, APP) as stage:
        yield stage


def test_messages_that_a_suspended_schedule_passes_are_counted(stage):
    """A message is always in a job, behind a position, or recorded as dropped."""
    stage.mill.schedules.suspend("shop.on_lines")
    for hour in range(3):
        stage.publish("lines", f"hour={hour}")
        stage.schedule()

    shown = stage.mill.schedules.show("shop.on_lines")

    assert (shown.status, shown.suspended_mode) == ("SUSPENDED", "drop")
    (passed,) = shown.passed_messages
    assert (passed.topic, passed.messages) == ("data", 3)
    assert float(passed.first) < float(passed.last)
    assert stage.mill.schedules.show("shop.on_orders").passed_messages == ()


def test_messages_that_are_handled_after_the_resumption_are_counted(stage):
    """Published while the schedule was suspended: the schedule listens to what comes from the resumption on."""
    stage.mill.schedules.suspend("on_orders")
    stage.mill.topics.publish("orders")
    stage.mill.schedules.resume("on_orders")
    stage.mill.topics.publish("orders")
    stage.schedule()

    (passed,) = stage.mill.schedules.show("on_orders").passed_messages
    before, after = stage.mill.topics.read("orders")

    assert (passed.topic, passed.messages, passed.first, passed.last) == ("orders", 1, before.position, before.position)
    (reason,) = stage.mill.why(f"orders:{before.position}").because
    assert (reason.code, reason.unblock) == ("message_passed", "")
    (reason,) = stage.mill.why(f"orders:{after.position}").because
    assert reason.code == "message_in_run"


def test_why_a_message_started_nothing_names_the_suspended_schedule(stage):
    """With the cure, and the record of what the schedule has passed."""
    stage.mill.schedules.suspend("shop.on_lines")
    stage.publish("lines", "hour=1")
    stage.schedule()
    (message,) = (one for one in stage.mill.topics.read("data") if one.event_key == "partition:default.lines")

    (reason,) = stage.mill.why(f"data:{message.position}").because

    assert reason.code == "message_passed"
    assert reason.why.endswith("fed no job of default.shop.on_lines, which was suspended, or changed after the message")
    assert (reason.evidence["schedule"], reason.evidence["messages"]) == ("default.shop.on_lines", 1)
    assert reason.unblock == "`tidemill schedule resume default.shop.on_lines`"

    stage.mill.schedules.suspend("on_orders")
    stage.mill.topics.publish("orders")
    stage.schedule()
    (published,) = stage.mill.topics.read("orders")
    (reason,) = stage.mill.why(f"orders:{published.position}").because
    assert (reason.code, reason.unblock) == ("message_passed", "")


@pytest.mark.parametrize(("mode", "runs"), [("drop", 0), ("hold", 1), ("backlog", 1)])
def test_a_message_without_data_that_came_meanwhile(stage, mode, runs):
    """Nothing is left in an input of the program, from which a resumption could know of it."""
    stage.mill.schedules.suspend("on_orders", mode=mode)
    stage.mill.topics.publish("orders")
    stage.schedule()
    assert len(stage.mill.runs.list()) == 0

    stage.mill.schedules.resume("on_orders")
    stage.schedule()

    assert len(stage.mill.runs.list()) == runs


def test_why_a_held_job_waits(stage):
    """The suspension, whatever the trigger has."""
    stage.mill.schedules.suspend("on_orders", mode="hold")
    stage.mill.topics.publish("orders")
    stage.schedule()
    (job,) = stage.mill.jobs.list()

    (reason,) = stage.mill.why(job.job_id).because

    assert reason.code == "schedule_suspended"
    assert reason.evidence["mode"] == "hold"
    assert job.why == "the schedule is suspended"


def test_all_are_suspended_and_those_of_a_period_resumed(stage):
    """In one transaction each. What was suspended before stays so."""
    stage.mill.schedules.suspend("on_orders")
    between = stage.mill.schedules.show("on_orders").suspended_at + timedelta(milliseconds=1)
    stage.mill.project.world.clock.sleep(timedelta(milliseconds=2))
    suspended = stage.mill.schedules.suspend_all(app="shop", mode="backlog")
    resumed = stage.mill.schedules.resume_suspended(since=between, until=between + timedelta(days=1))

    assert [(one.schedule, one.status, one.changed) for one in suspended] == [
        ("default.shop.on_lines", "SUSPENDED", True)
    ]
    assert [(one.schedule, one.status) for one in resumed] == [("default.shop.on_lines", "SCHEDULED")]
    assert stage.mill.schedules.show("on_orders").status == "SUSPENDED"
    with raises_code("not_found"):
        stage.mill.schedules.suspend_all(app="none")
    with raises_code("bad_mode"):
        stage.mill.schedules.suspend("on_orders", mode="keep")
    with raises_code("bad_period"):
        stage.mill.schedules.resume_suspended(since="2026-01-02", until="2026-01-01")
    with raises_code("bad_period"):
        stage.mill.schedules.resume_suspended(since="soon", until="2026-01-01")


@pytest.mark.parametrize(
    "arguments",
    [["suspend"], ["suspend", "shop.on_lines", "--all"], ["suspend", "x", "--app", "shop"], ["resume"]],
)
def test_a_command_names_one_schedule_or_says_which(stage, capsys, arguments):
    """Neither, or both, is refused, and nothing is changed."""
    folder = str(stage.mill.project.config.folder)
    with pytest.raises(SystemExit) as ended:
        main(["--project", folder, "schedule", *arguments])

    assert ended.value.code == 2
    assert {one.status for one in stage.mill.schedules.list()} == {"SCHEDULED"}
    with pytest.raises(SystemExit):
        main(["--project", folder, "schedule", "suspend", "--all", "--json"])
    assert {one["status"] for one in json.loads(capsys.readouterr().out)} == {"SUSPENDED"}
