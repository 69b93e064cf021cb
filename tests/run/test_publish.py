"""Messages that programs publish to topics of the users: with the commit of their transaction, and only with it."""

from __future__ import annotations

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.stage import staged

APP = """
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")


@app.python(reads=[lines], arguments={"fail": False})
def load(run):
    run.publish("orders", {"attempt": run.attempt, "hours": [one["hour"] for one in run.input(lines).partitions]})
    run.publish("orders", key="second")
    if run.arguments["fail"]:
        raise ValueError("no")


@app.python(retries=1, backoff="1s")
def flaky(run):
    run.publish("orders", {"attempt": run.attempt})
    if run.attempt == 1:
        raise ValueError("not yet")


@app.python()
def greedy(run):
    for number in range(1001):
        run.publish("orders", {"number": number})


@app.python()
def follow(run):
    pass


app.schedule("on_lines", load, trigger=tm.NewPartitions(lines))
app.schedule("on_orders", follow, trigger=tm.MessageOn("orders", key="second"))
"""


@pytest.fixture
def stage(tmp_path, catalog_url):
    """The project, deployed."""
    with staged(tmp_path, catalog_url, APP) as stage:
        yield stage


def payloads(stage):
    """The payloads on the topic, in order."""
    return [message.payload for message in stage.mill.topics.read("orders")]


def test_messages_come_with_the_commit_of_the_run_and_start_the_next(stage):
    """In their order, at one position of the catalog's clock, beside the end of the run."""
    stage.publish("lines", "hour=1", "hour=2")
    stage.schedule()
    stage.work()
    stage.schedule()

    first, second = stage.mill.topics.read("orders")
    assert (first.payload, first.event_key) == ({"attempt": 1, "hours": [1, 2]}, "")
    assert (second.payload, second.event_key) == ({}, "second")
    assert first.position.partition(".")[0] == second.position.partition(".")[0]
    (run,) = stage.mill.runs.list(program="shop.follow")
    assert [feed.why for feed in stage.mill.runs.show(run.run_id).triggers] == [
        "1/1 messages of key second on topic orders"
    ]


def test_a_run_that_fails_publishes_nothing(stage):
    """All or nothing."""
    stage.mill.runs.start("shop.load", arguments={"fail": True})
    stage.work()

    assert "orders" not in {one.topic for one in stage.mill.topics.list()}


def test_a_run_that_is_retried_publishes_once(stage):
    """Messages of the failed attempt are forgotten."""
    run = stage.mill.runs.start("shop.flaky").run_id
    stage.work()
    stage.sql("UPDATE run SET not_before = 0 WHERE ended_at IS NULL RETURNING 1")
    stage.work()

    assert stage.mill.runs.show(run).state == "COMPLETED"
    assert payloads(stage) == [{"attempt": 2}]


class Struck(BaseException):
    """The death of a driver; no code of the product handles it."""


@pytest.mark.parametrize("mark", ["driver.begun", "driver.called", "driver.before_commit", "driver.committed"])
def test_a_run_whose_driver_dies_at_a_mark_publishes_once(stage, mark):
    """Its messages, and the message of its start, which a schedule waits for."""

    def strike():
        raise Struck

    stage.mill.schedules.create("shop.begun", "shop.follow", trigger=tm.RunEnded("shop.load", "STARTED"))
    stage.publish("lines", "hour=1")
    run_id = stage.mill.runs.start("shop.load").run_id
    (run,) = stage.take()
    stage.at[mark] = strike
    with pytest.raises(Struck):
        stage.attempt(run)
    stage.end_attempt(run, "lost", "its driver died")
    stage.work()

    shown = stage.mill.runs.show(run_id)
    started = [one for one in stage.mill.topics.read("program") if one.event_type == "run_started"]
    assert (shown.state, [one.payload["run_id"] for one in started]) == ("COMPLETED", [run_id])
    assert [(one["attempt"] if one else None) for one in payloads(stage)] == [shown.epoch, None]


def test_a_commit_carries_a_bounded_number_of_messages(stage):
    """Each commit of the catalog waits for the one before it."""
    run = stage.mill.runs.start("shop.greedy").run_id
    stage.work()

    shown = stage.mill.runs.show(run)
    assert shown.state == "FAILED"
    assert "more than 1000 messages" in str(shown)


def test_a_transaction_of_a_caller_publishes_too(stage):
    """With its commit, and not if its block raises."""
    with stage.mill.transaction() as tx:
        tx.publish("orders", {"n": 1})
        with raises_code("reserved_topic"):
            tx.publish("program", {})
    with raises_code("bad_payload"), stage.mill.transaction() as tx:
        tx.publish("orders", {"n": 2})
        tx.publish("orders", {"n": object()})

    assert payloads(stage) == [{"n": 1}]


@pytest.mark.parametrize(
    ("topic", "payload", "code"),
    [
        ("data", {}, "reserved_topic"),
        ("my topic", {}, "bad_name"),
        ("orders", {"day": object()}, "bad_payload"),
        ("orders", {"x": float("nan")}, "bad_payload"),
        ("orders", [1], "bad_payload"),
        ("orders", {"text": "x" * 500_001}, "message_too_large"),
    ],
)
def test_a_wrong_message_is_refused_at_the_call(stage, topic, payload, code):
    """Not at the commit, when the work is done."""
    with stage.mill.transaction() as tx, raises_code(code):
        tx.publish(topic, payload)
    with raises_code(code):
        stage.mill.topics.publish(topic, payload)

    assert "orders" not in {one.topic for one in stage.mill.topics.list()}


@pytest.mark.parametrize("key", ["a\0b", "\udcff", "x" * 201, 5])
def test_a_wrong_key_is_refused_at_the_call(stage, key):
    """PostgreSQL refused a NUL at the commit, when the work was done."""
    with stage.mill.transaction() as tx, raises_code("bad_name"):
        tx.publish("orders", {}, key=key)
    with raises_code("bad_name"):
        stage.mill.topics.publish("orders", {}, key=key)


STARTS = """
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")


@app.python(writes=[lines], retries=1, backoff="1s")
def load(run):
    if run.attempt == 1:
        raise ValueError("not yet")
    run.output(lines).append({"hour=1": "a\\n"})


@app.python()
def follow(run):
    pass
"""


def test_a_run_that_starts_is_announced_once_if_a_schedule_waits_for_it(catalog_url, tmp_path):
    """Without such a schedule, nothing is written; with one, a run that is retried has started once."""
    with staged(tmp_path, catalog_url, STARTS) as stage:
        stage.mill.runs.start("shop.load")
        stage.work()
        stage.sql("UPDATE run SET not_before = 0 WHERE ended_at IS NULL RETURNING 1")
        trigger = {"type": "run_ended", "program": "shop.load", "states": ["STARTED"]}
        stage.mill.schedules.create("shop.after", "shop.follow", trigger=trigger)
        stage.work()
        stage.schedule()
        assert len(stage.mill.runs.list(program="shop.follow")) == 0

        run = stage.mill.runs.start("shop.load").run_id
        stage.work()
        stage.sql("UPDATE run SET not_before = 0 WHERE ended_at IS NULL RETURNING 1")
        stage.work()
        stage.schedule()

        started = [one for one in stage.mill.topics.read("program") if one.event_type == "run_started"]
        assert [(one.event_key, one.payload["run_id"]) for one in started] == [
            ("program:default.shop.load:STARTED", run)
        ]
        assert len(stage.mill.runs.list(program="shop.follow")) == 1


def test_arguments_that_no_message_could_carry_are_refused_at_the_start(catalog_url, tmp_path):
    """Else the run could never end: the message of its end would be refused again and again."""
    text = STARTS.replace("retries=1", "arguments={'text': '', 'n': 1}, retries=1")
    with staged(tmp_path, catalog_url, text) as stage:
        with raises_code("bad_argument", match="argument 'text' .* more than 100000 characters; give the path"):
            stage.mill.runs.start("shop.load", {"text": "x" * 100_000})
        trigger = {"type": "every", "duration": "1h"}
        with raises_code("bad_argument", match="more than 100000 characters"):
            stage.mill.schedules.create("shop.often", "shop.load", trigger=trigger, arguments={"text": "x" * 100_000})
        run_id = stage.mill.runs.start("shop.load", {"text": "x" * 99_000}).run_id
        stage.mill.runs.kill(run_id)

        assert stage.mill.runs.show(run_id).state == "KILLED"
        assert len(stage.mill.runs.list()) == 1


LATE = """
from pathlib import Path
import tidemill as tm

HERE = Path(__file__).parent
app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")


@app.worker(reads=[tm.Reads(lines, max_partitions=1)])
def tend(run):
    with tm.open(HERE) as mill:
        mill.schedules.create("shop.after", "shop.follow", trigger=tm.RunEnded("shop.tend", "STARTED"))
    while run.take("0s"):
        run.commit()


@app.python()
def follow(run):
    pass
"""


def test_a_schedule_of_before_the_first_take_hears_the_start_of_a_worker(catalog_url, tmp_path):
    """A worker may wait for days. Its start is announced once, whatever the number of its transactions."""
    with staged(tmp_path, catalog_url, LATE) as stage:
        stage.publish("lines", "hour=1")
        stage.publish("lines", "hour=2")
        stage.balance_workers()
        (worker,) = stage.work()
        stage.schedule()

        started = [one for one in stage.mill.topics.read("program") if one.event_type == "run_started"]
        assert worker.exit_reason == "it returned after 2 commits"
        assert [one.payload["run_id"] for one in started] == [worker.run_id]
        assert len(stage.mill.runs.list(program="shop.follow")) == 1


def test_the_message_of_a_run_that_has_ended_names_its_publications(catalog_url, tmp_path):
    """With their numbers: a subscriber needs no second question."""
    with staged(tmp_path, catalog_url, STARTS) as stage:
        stage.mill.runs.start("shop.load")
        stage.work()
        stage.sql("UPDATE run SET not_before = 0 WHERE ended_at IS NULL RETURNING 1")
        stage.work()

        (message,) = stage.mill.topics.read("program")
        (publication,) = message.payload["publications"]
        assert (publication["dataset"], publication["count"]) == ("default.lines", 1)
