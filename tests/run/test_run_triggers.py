"""Triggers of a run, as its program, `run show` and `job show` see them."""

from __future__ import annotations

import json

import pytest

import tidemill as tm
from tests.stage import staged
from tidemill.catalog.messages import Publish, Topic
from tidemill.cli.main import main
from tidemill.names import EventKey
from tidemill.reasons import Reason
from tidemill.roles.up import UntilIdle, run_node
from tidemill.run.records.triggers import MOST_MESSAGES, MOST_PAYLOAD_CHARACTERS

APP = """
import json
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")
users = app.fileset("users", keys={"hour": "int"}, format="text")


@app.python(reads=[lines, users])
def report(run):
    with open("said.txt", "a") as said:
        for feed in run.triggers:
            keys = [one["key"] for message in feed.messages for one in message.payload["partitions"]]
            print(feed.trigger, feed.count, [message.position for message in feed.messages] != [], keys, file=said)


app.schedule("report", report, trigger=tm.NewPartitions(lines, 2) & tm.NewPartitions(users))
"""
KEY = EventKey("partition:default.lines")


@pytest.fixture
def stage(catalog_url, tmp_path, monkeypatch):
    """The project, deployed."""
    monkeypatch.chdir(tmp_path)
    with staged(tmp_path, catalog_url, APP) as entered:
        yield entered


def announce(stage, count=1, **payload):
    """Commit a message about new partitions, without the partitions."""
    stage.mill.project.catalog.apply([Publish(Topic.DATA, "partitions", KEY, {"count": count, **payload})])


def test_a_program_gets_the_messages_of_each_leaf(stage):
    """Two feeds with one program: the program sees which partitions came from which."""
    stage.publish("lines", "hour=1")
    stage.publish("lines", "hour=2")
    stage.publish("users", "hour=7")

    stage.play()

    assert stage.lines_of() == [
        "NewPartitions(default.lines, 2) 2 True ['hour=1', 'hour=2']",
        "NewPartitions(default.users) 1 True ['hour=7']",
    ]


def test_a_driver_process_gets_the_messages_too(catalog_url, tmp_path, monkeypatch):
    """The driver reads them in its own process, from the run's record and the topic."""
    monkeypatch.chdir(tmp_path)
    with staged(tmp_path, catalog_url, APP) as stage:
        stage.publish("lines", "hour=1", "hour=2")
        stage.publish("users", "hour=7")
    with tm.open(tmp_path) as mill:
        run_node(mill, echo=lambda _: None, deploy=False, until_idle=UntilIdle.ALL)

    assert (tmp_path / "said.txt").read_text(encoding="utf-8").splitlines() == [
        "NewPartitions(default.lines, 2) 2 True ['hour=1', 'hour=2']",
        "NewPartitions(default.users) 1 True ['hour=7']",
    ]


def test_a_run_that_no_schedule_started_has_no_triggers(stage):
    """`run start` gives arguments, and no messages."""
    run_id = stage.mill.runs.start("shop.report").run_id

    assert stage.mill.runs.show(run_id).triggers == ()


def test_a_retry_gets_the_triggers_of_its_run(stage):
    """The program does the same work, and asks for its cause as the first run did."""
    stage.publish("lines", "hour=1", "hour=2")
    stage.publish("users", "hour=7")
    stage.schedule()
    (run,) = stage.mill.runs.list(program="shop.report")
    stage.mill.runs.kill(run.run_id)

    retry_id = stage.mill.runs.retry(run.run_id).run_id
    stage.work()

    assert stage.mill.runs.show(retry_id).triggers == stage.mill.runs.show(run.run_id).triggers
    assert stage.lines_of() == [
        "NewPartitions(default.lines, 2) 2 True ['hour=1', 'hour=2']",
        "NewPartitions(default.users) 1 True ['hour=7']",
    ]


def test_run_and_job_show_the_same_triggers(stage):
    """Before its launch the job shows what the run shows later."""
    stage.publish("lines", "hour=1")
    stage.schedule()
    (job,) = stage.mill.jobs.list()
    waiting = stage.mill.jobs.show(job.job_id)
    assert waiting.because == stage.mill.why(job.job_id).because
    stage.publish("lines", "hour=2")
    stage.publish("users", "hour=7")
    stage.schedule()
    (run,) = stage.mill.runs.list(program="shop.report")

    triggers = stage.mill.runs.show(run.run_id).triggers

    assert [(feed.trigger, feed.why) for feed in waiting.triggers] == [
        ("NewPartitions(default.lines, 2)", "1/2 new partitions of default.lines")
    ]
    assert (ended := stage.mill.jobs.show(job.job_id)).triggers == triggers
    assert [one.code for one in ended.because][:1] == [Reason.JOB_LAUNCHED]
    assert triggers[0].messages[:1] == waiting.triggers[0].messages
    (first, second), (third,) = (feed.messages for feed in triggers)
    assert [message.event_type for message in (first, second, third)] == ["partitions"] * 3
    read = {message.position: message for message in stage.mill.topics.read("data", after="0")}
    assert (first.payload, first.published_at) == (read[first.position].payload, read[first.position].published_at)


def test_a_dropped_job_shows_its_triggers(stage):
    """After an update the leaves have other numbers: the old job names them by number."""
    announce(stage)
    stage.schedule()
    (job,) = stage.mill.jobs.list()
    stage.mill.jobs.drop(job.job_id)
    dropped = stage.mill.jobs.show(job.job_id)
    stage.mill.schedules.update("shop.report", trigger=tm.Every("1h"))

    changed = stage.mill.jobs.show(job.job_id)

    assert [(feed.trigger, feed.count, len(feed.messages)) for feed in dropped.triggers] == [
        ("NewPartitions(default.lines, 2)", 1, 1)
    ]
    assert [(feed.trigger, feed.count, len(feed.messages)) for feed in changed.triggers] == [
        ("trigger 0 of generation 1", 1, 1)
    ]


def test_many_messages_are_bounded_and_the_others_counted(stage):
    """A job that waited for a week must not fill the driver's memory. The topic has the others."""
    for _ in range(MOST_MESSAGES + 3):
        announce(stage)
    stage.schedule()
    (job,) = stage.mill.jobs.list()

    (feed,) = stage.mill.jobs.show(job.job_id).triggers

    assert (feed.count, len(feed.messages), feed.more) == (MOST_MESSAGES + 3, MOST_MESSAGES, 3)
    assert len(stage.mill.topics.read("data", after=feed.messages[-1].position)) == 3


def test_large_payloads_are_left_out_with_a_reason(stage):
    """The oldest come first; of one that is too large alone, the text is not even read."""
    announce(stage, text="x" * (MOST_PAYLOAD_CHARACTERS // 2))
    announce(stage, text="x" * (MOST_PAYLOAD_CHARACTERS // 2))
    announce(stage, text="x" * MOST_PAYLOAD_CHARACTERS)
    stage.schedule()
    (job,) = stage.mill.jobs.list()

    (feed,) = stage.mill.jobs.show(job.job_id).triggers

    assert [message.payload != {} for message in feed.messages] == [True, False, False]
    assert [message.flaw != "" for message in feed.messages] == [False, True, True]


def test_a_deleted_message_is_shown_as_deleted(stage):
    """The run's record outlives the topic."""
    announce(stage)
    stage.schedule()
    stage.sql("DELETE FROM message WHERE topic = 'data' RETURNING 1")
    (job,) = stage.mill.jobs.list()

    (feed,) = stage.mill.jobs.show(job.job_id).triggers

    assert [(message.published_at, message.flaw) for message in feed.messages] == [(None, "the message is deleted")]


def test_the_commands_show_a_line_for_each_message(stage, tmp_path, capsys):
    """A person sees at a glance which data started the run."""
    stage.publish("lines", "hour=1", "hour=2")
    stage.publish("users", "hour=7")
    stage.schedule()
    (run,) = stage.mill.runs.list(program="shop.report")

    with pytest.raises(SystemExit):
        main(["--project", str(tmp_path), "run", "show", run.run_id])
    table = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--project", str(tmp_path), "run", "show", run.run_id, "--json"])
    document = json.loads(capsys.readouterr().out)

    (shown,) = [line for line in table.splitlines() if "NewPartitions(default.users)" in line]
    assert "1/1 new partitions of default.users" in shown
    assert " data " in shown
    assert [feed["messages"][0]["payload"]["count"] for feed in document["triggers"]] == [2, 1]
