"""Keys of requests: a change is made once, each repetition gets the same answer, whatever dies in between."""

from __future__ import annotations

import threading

import pytest

from tidemill.errors import Fenced
from tidemill.mill import once
from tidemill.mill.keeping import KeyedRequest
from tidemill.mill.mill import Mill
from tidemill.mill.once import KeyReused, carry_out

REQUEST = KeyedRequest("ann", "key-1", "d")


class Died(Exception):
    """The process ended here."""


def start(mill: Mill):
    """Start a run."""
    return mill.runs.start("shop.load")


def runs_of(stage) -> int:
    """Count the runs."""
    return len(stage.mill.runs.list())


def test_a_repeated_request_starts_one_run_and_gets_the_same_answer(sign, stage):
    """A client whose connection broke sends again."""
    client = sign("operator")
    headers = {"idempotency-key": "one"}

    first, again = (client.post("/v1/runs", json={"program": "shop.load"}, headers=headers) for _ in range(2))
    other = client.post("/v1/runs", json={"program": "shop.load"}, headers={"idempotency-key": "two"})

    assert first.status_code == again.status_code == 200
    assert first.json() == again.json() != other.json()
    assert runs_of(stage) == 2


def test_a_repeated_answer_has_its_etag(sign):
    """A client that takes the tag of its own change for the next one must not lose the tag with a connection."""
    client = sign("developer")
    body = {"name": "shop.own", "program": "shop.load", "trigger": {"type": "every", "duration": "1h"}}
    first, again = (client.post("/v1/schedules", json=body, headers={"idempotency-key": "one"}) for _ in range(2))

    assert (first.status_code, first.headers["etag"]) == (200, '"1"')
    assert (again.json(), again.headers["etag"]) == (first.json(), '"1"')


def test_a_key_of_another_request_is_refused(sign):
    """A key that is made of the body, or of the day, would swallow a change."""
    client = sign("operator")
    headers = {"idempotency-key": "one"}
    client.post("/v1/runs", json={"program": "shop.load"}, headers=headers)

    answer = client.post("/v1/runs", json={"program": "shop.sift"}, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (422, "key_reused")


def test_keys_of_two_callers_are_apart(sign, stage):
    """Both begin to count at 1."""
    for name in ("ann", "bob"):
        client = sign("operator", name=name)
        client.post("/v1/runs", json={"program": "shop.load"}, headers={"idempotency-key": "1"})

    assert runs_of(stage) == 2


def test_a_refused_request_may_be_sent_again(sign, stage):
    """Its cause may be mended by then."""
    client = sign("developer")
    headers = {"idempotency-key": "one"}

    assert client.post("/v1/runs", json={"program": "shop.none"}, headers=headers).status_code == 404
    assert client.post("/v1/runs", json={"program": "shop.load"}, headers=headers).status_code == 200
    assert client.post("/v1/runs", json={"program": "shop.load"}, headers={"idempotency-key": ""}).status_code == 422


@pytest.mark.parametrize("mark", ["once.begun", "once.changed"])
def test_a_crash_leaves_the_change_with_its_answer_or_neither(stage, mark):
    """The repetition makes the change that is missing, and no second one."""

    def die(name: str) -> None:
        if name == mark:
            raise Died

    world = stage.world
    dying = Mill(stage.mill.project)
    object.__setattr__(world, "marked", die)
    with pytest.raises(Died):
        carry_out(dying, REQUEST, start, in_block=True)
    object.__setattr__(world, "marked", lambda _: None)
    made = runs_of(stage)
    answer = carry_out(stage.mill, REQUEST, start, in_block=True)

    assert made == (1 if mark == "once.changed" else 0)
    assert runs_of(stage) == 1
    assert answer["run_id"] == stage.mill.runs.list()[0].run_id


@pytest.mark.parametrize("mark", ["", "kill.asked_of_workflow"])
def test_a_repeated_kill_of_a_workflow_says_how_it_ended(stage, mark):
    """The workflow ends with its nodes, in transactions after the one that asks."""

    def die(name: str) -> None:
        if name == mark:
            raise Died

    stage.declare("@app.python()\ndef one(run): pass\n\napp.workflow('flow', [tm.Node(one)])")
    run_id = stage.mill.runs.start("shop.flow").run_id
    if mark:
        object.__setattr__(stage.world, "marked", die)
        with pytest.raises(Died):
            carry_out(stage.mill, REQUEST, lambda mill: mill.runs.kill(run_id), in_block=False)
        object.__setattr__(stage.world, "marked", lambda _: None)
        stage.take()  # a runner kills the nodes meanwhile
    answers = [carry_out(stage.mill, REQUEST, lambda mill: mill.runs.kill(run_id), in_block=False) for _ in range(2)]

    assert answers[0] == answers[1]
    assert answers[0]["changed"] is True
    assert answers[0]["state"] == ("STOPPING" if mark else "KILLED")


def test_a_try_that_was_taken_over_changes_nothing(stage):
    """Two servers have the same request: the slow one finds itself fenced, within its transaction."""

    def slow(mill: Mill):
        carry_out(stage.mill, REQUEST, start, in_block=True)
        return start(mill)

    with pytest.raises(Fenced):
        carry_out(stage.mill, REQUEST, slow, in_block=True)
    assert runs_of(stage) == 1


def test_no_try_takes_over_while_another_keeps_its_answer(stage):
    """Between the look at the row and its answer a second change could be made, rarely: then both would stand."""
    catalog = stage.mill.project.catalog
    begun = catalog.write(lambda db: once._begin(db, REQUEST))
    answers = []
    later = threading.Thread(target=lambda: answers.append(carry_out(stage.mill, REQUEST, start, in_block=True)))

    def keep(db) -> None:
        effect = begun.keep_answer({"run_id": "the first"})
        for call in effect.guards():
            db.call(call)
        later.start()
        later.join(timeout=1)
        for call in effect.writes():
            db.call(call)

    catalog.write(keep)
    later.join()

    assert answers == [{"run_id": "the first"}]
    assert runs_of(stage) == 0


def test_many_at_once_make_one_change(stage):
    """A client that is impatient sends before the first answer has come."""
    answers, errors = [], []

    def send() -> None:
        try:
            answers.append(carry_out(stage.mill, REQUEST, start, in_block=True)["run_id"])
        except Fenced as error:
            errors.append(error)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert runs_of(stage) == 1
    assert len(set(answers)) == 1
    assert len(answers) + len(errors) == 8


def test_a_key_is_known_for_a_day(stage):
    """Rows of requests do not pile up."""
    carry_out(stage.mill, REQUEST, start, in_block=True)
    with pytest.raises(KeyReused):
        carry_out(stage.mill, KeyedRequest("ann", "key-1", "other"), start, in_block=True)
    stage.sql("UPDATE request_key SET at = at - 86500000 RETURNING 1")

    carry_out(stage.mill, KeyedRequest("ann", "key-1", "other"), start, in_block=True)

    assert runs_of(stage) == 2
