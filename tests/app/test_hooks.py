"""Hooks: a signal from outside starts the programs that wait for it, and each delivery counts once."""

from __future__ import annotations

import json
import threading

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import staged
from tidemill.cli.main import main

APP = """
import tidemill as tm

app = tm.App("shop")


@app.python(arguments={"ref": ""})
def build(run):
    pass


app.schedule("on_push", build, trigger=tm.Hook("push"), constraints=[], arguments={"ref": tm.From("message.ref")})
app.schedule("on_two", build, trigger=tm.Hook("push", n=2), constraints=[])
"""


@pytest.fixture
def stage(catalog_url, tmp_path):
    """The project, deployed, at the time of its clock."""
    clock = ManualClock()
    with staged(tmp_path, catalog_url, APP, clock) as stage:
        stage.clock = clock
        yield stage


def runs(stage, schedule="on_push"):
    """The arguments of the runs of a schedule, the oldest first."""
    stage.schedule()
    (name,) = [one.name for one in stage.mill.schedules.list() if one.name.endswith(schedule)]
    found = [stage.mill.runs.show(run.run_id) for run in stage.mill.runs.list()]
    return [run.arguments["ref"] for run in reversed(found) if run.triggered_by["schedule"] == name]


def test_a_hook_starts_those_that_wait_for_it(stage):
    """With its payload, which an argument may take."""
    fired = stage.mill.hooks.fire("push", {"ref": "main"})

    assert (fired.hook, fired.again) == ("default.push", False)
    assert fired.schedules == ("default.shop.on_push", "default.shop.on_two")
    assert runs(stage) == ["main"]
    assert runs(stage, "on_two") == []
    stage.mill.hooks.fire("push", {"ref": "next"})
    assert runs(stage, "on_two") == [""]
    (message, _) = stage.mill.topics.read("hook")
    assert (message.position, message.event_key, message.payload) == (
        fired.position,
        "hook:default.push",
        {"ref": "main"},
    )


def test_a_delivery_counts_once_in_24_hours(stage):
    """A sender that got no answer sends again."""
    first = stage.mill.hooks.fire("push", {"ref": "a"}, delivery="17")
    stage.clock.move("23h")
    again = stage.mill.hooks.fire("push", {"ref": "a"}, delivery="17")
    other = stage.mill.hooks.fire("pull", {"ref": "a"}, delivery="17")

    assert (again.again, again.position) == (True, first.position)
    assert (other.again, other.schedules) == (False, ())
    assert runs(stage) == ["a"]
    stage.clock.move("2h")
    assert not stage.mill.hooks.fire("push", {"ref": "b"}, delivery="17").again
    assert runs(stage) == ["a", "b"]


def test_two_senders_of_one_delivery_are_one(stage):
    """Both at once, through two processes or threads."""
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(stage.mill.hooks.fire("push", {"ref": "x"}, delivery="d")))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(one.again for one in answers) == [False, True, True, True]
    assert len({one.position for one in answers}) == 1
    assert runs(stage) == ["x"]


@pytest.mark.parametrize(
    ("name", "payload", "delivery", "code"),
    [
        ("my push", {}, None, "bad_name"),
        ("push", [1], None, "bad_payload"),
        ("push", {"x": object()}, None, "bad_payload"),
        ("push", {}, "", "bad_delivery"),
        ("push", {}, "x" * 201, "bad_delivery"),
        ("push", {}, "a\0b", "bad_delivery"),
        ("push", {"x": "x" * 500_001}, "d", "message_too_large"),
    ],
)
def test_a_wrong_delivery_is_refused_and_nothing_is_stored(stage, name, payload, delivery, code):
    """The sender may send it again."""
    with raises_code(code):
        stage.mill.hooks.fire(name, payload, delivery=delivery)

    assert list(stage.mill.topics.read("hook")) == []
    assert stage.sql("SELECT count(*) FROM hook_delivery") == [(0,)]


def test_hooks_on_the_command_line(stage, capsys):
    """The delivery is named, and its second time."""
    folder = str(stage.mill.project.config.folder)
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(
                ["--project", folder, "hook", "fire", "push", "--payload", '{"ref": "a"}', "--delivery", "9", "--json"]
            )
        assert ended.value.code == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())

    assert (first["again"], second["again"]) == (False, True)
    assert first["schedules"] == ["default.shop.on_push", "default.shop.on_two"]


def test_users_do_not_publish_to_the_topic_of_hooks(stage):
    """A message of it comes with its delivery."""
    with raises_code("reserved_topic"):
        stage.mill.topics.publish("hook")
    with raises_code("bad_trigger", match="Tidemill's own"):
        tm.MessageOn("hook")
    with raises_code("bad_trigger", match="at least 1"):
        tm.Hook("push", n=0)
