"""A run's own token: it reaches the run's own things and nothing else, and ends with the attempt in all servers."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute

from tests.command import TIDEMILL
from tests.server.test_ended_callers import streaming
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.mill.mill import open_project
from tidemill.mill.operations import OPERATIONS
from tidemill.mill.routes import route_of
from tidemill.run.records.runs import RunRecord
from tidemill.run.step.attempts import Registration, register
from tidemill.server.access import Door
from tidemill.server.application import make_application
from tidemill.server.guard import OPEN, is_for_runs, needs_of
from tidemill.server.listen import Listener
from tidemill.token_text import digest_of, make_run_token

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", schema="id int", settle="0s")
orders = app.fileset("orders", keys={"day": "date"})
totals = app.fileset("totals", keys={"day": "date"})
other = app.fileset("other", keys={"day": "date"})

@app.python(reads=[raw, orders], writes=[totals])
def load(run):
    pass

@app.python(reads=[orders], writes=[other])
def sift(run):
    pass
"""
LOGS = "/v1/runs/{run_id}/logs"


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A deployed project."""
    with staged(tmp_path, catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        yield opened


@pytest.fixture
def servers(stage: Stage) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of two servers of one catalog, which have not signed in."""
    listeners = [Listener(stage.mill, with_link=False) for _ in range(2)]
    for one in listeners:
        one.start()
        httpx.get(f"{one.url}/health", timeout=patience(20))  # one after the other: both import the same modules
    with ExitStack() as opened:
        first, second = (
            opened.enter_context(httpx.Client(base_url=one.url, timeout=patience(20))) for one in listeners
        )
        yield first, second
    for one in listeners:
        one.stop()


def begin(stage: Stage, program: str = "shop.load") -> tuple[RunRecord, str]:
    """Start a run whose process is under way, and return it with its token."""
    run_id = stage.mill.runs.start(program).run_id
    return register_again(stage, run_id)


def register_again(stage: Stage, run_id: str) -> tuple[RunRecord, str]:
    """Have the attempt of a waiting run taken and registered, as a runner and its driver do."""
    run = next(one for one in stage.take() if one.run_id == run_id)
    token = make_run_token(stage.world, run.run_id)
    logs = stage.mill.project.config.folder / run.run_id
    logs.mkdir(exist_ok=True)
    (logs / "stdout").write_text("said\n", encoding="utf-8")
    stage.mill.project.catalog.write(
        lambda db: register(db, Registration(run.run_id, run.epoch, 1, {}, str(logs), digest_of(token)))
    )
    return run, token


def bearer(token: str) -> dict[str, str]:
    """Return the header of a caller with this token."""
    return {"authorization": f"Bearer {token}"}


def routes_of(stage: Stage) -> list[APIRoute]:
    """Return the routes that need a right."""
    app = make_application(Door(stage.mill, hosts=frozenset(), secure=False))
    return [route for route in app.routes if isinstance(route, APIRoute) and needs_of(route.endpoint)[0] != OPEN]


def test_a_run_reads_its_own_things(stage, servers):
    """A program that looks at its input through the server needs no token of a person."""
    run, token = begin(stage)
    client = servers[0]
    own = [f"/v1/runs/{run.run_id}", f"/v1/runs/{run.run_id}/logs"]
    own += [f"/v1/datasets/{name}" for name in ("raw", "orders", "default.orders", "totals")]
    own += ["/v1/datasets/orders/partitions", "/v1/inboxes/raw", "/v1/inboxes/raw/files"]
    own += ["/v1/consumers/orders/default.shop.load"]

    answers = {path: client.get(path, headers=bearer(token)) for path in own}

    assert {path: answer.status_code for path, answer in answers.items()} == dict.fromkeys(own, 200)
    assert answers[own[0]].json()["run_id"] == run.run_id
    assert answers[own[1]].text == "said\n"


def test_every_cell_of_a_run_is_refused_but_for_its_own_things(stage, servers):
    """Deny by default: each route, with the names of the run and with those of others, and each page."""
    run, token = begin(stage)
    others = [stage.mill.runs.start("shop.sift").run_id, "default.other", "other", "shop.load", "default.shop.sift"]
    mine = {"run_id": run.run_id, "name": "orders", "dataset": "orders"}
    client, wrong, allowed = servers[0], [], set()
    for route in routes_of(stage):
        for given in (mine, *others):
            known = given if isinstance(given, dict) else {}
            path = re.sub(r"\{([^}]+)\}", lambda m: known.get(m[1], str(given)), route.path)  # noqa: B023
            if route.path.startswith("/v1/consumers/") and known:
                path = path.replace("orders/orders", "orders/default.shop.load")
            method = next(iter(route.methods))
            body = None if method == "GET" else {"nonsense": 1}
            answer = client.request(method, path, headers=bearer(token), json=body)
            may = is_for_runs(route.endpoint) and known and "write_pointer" not in route.path
            if may:
                allowed.add(route.path)
            if (answer.status_code == 403) == bool(may) or answer.status_code >= 500:
                wrong.append((method, path, answer.status_code, answer.text[:100]))

    assert wrong == []
    assert allowed >= {"/v1/runs/{run_id}", LOGS, "/v1/datasets/{name}", "/v1/consumers/{dataset}/{name}"}


def test_a_refusal_tells_nothing_of_the_thing(stage, servers):
    """A program must not learn by trying which runs and data sets there are."""
    _, token = begin(stage)
    run_id = stage.mill.runs.start("shop.sift").run_id
    asked = ["/v1/datasets/other", "/v1/datasets/nothing", f"/v1/runs/{run_id}", "/v1/runs/run_x", "/v1/datasets/%20"]
    asked += ["/v1/consumers/orders/default.shop.sift", "/v1/transactions/None"]

    answers = [servers[0].get(path, headers=bearer(token)).json() for path in asked]

    assert {(one["code"], one["status"]) for one in answers} == {("out_of_reach", 403)}
    assert len({one["detail"] for one in answers}) == 1


def test_routes_for_runs_read_and_name_what_they_read():
    """A route that names nothing would be about things of others."""
    own = [one for one in OPERATIONS if one.mark.own]

    assert {one.right for one in own} == {"read"}
    assert [one.action for one in own if one.mark.whole or not route_of(one).in_path] == []
    assert {one.action for one in own} == {
        *("run.show", "tx.show", "inbox.show", "inbox.files", "consumer.show", "consumer.peek"),
        *(f"dataset.{verb}" for verb in ("show", "partitions", "files", "head", "schemas")),
        *("snapshot.versions", "snapshot.compare"),
    }


def test_a_run_sees_its_transaction_and_no_other(stage, servers):
    """Its write pointer is the key of what it does elsewhere."""
    tx = stage.mill.transactions.begin(["other"])
    run, token = begin(stage)
    stage.sql(f"UPDATE run SET write_pointer = {tx.write_pointer + 1000} WHERE run_id = '{run.run_id}' RETURNING 1")

    own = servers[0].get(f"/v1/transactions/{tx.write_pointer + 1000}", headers=bearer(token))
    other = servers[0].get(f"/v1/transactions/{tx.write_pointer}", headers=bearer(token))
    abort = servers[0].post(f"/v1/transactions/{tx.write_pointer + 1000}:abort", headers=bearer(token))

    assert own.status_code == 404, "let in, though there is no such transaction"
    assert (other.status_code, abort.status_code) == (403, 403)


@pytest.mark.parametrize("end", ["kill", "fence", "again"])
def test_the_token_and_its_streams_end_with_the_attempt_at_all_servers(stage, servers, end):
    """A zombie of a fenced attempt may live for long: what it has open, and what it asks, must end."""
    ours, theirs = servers
    run, token = begin(stage)
    path = f"/v1/runs/{run.run_id}/logs?follow=true"
    with streaming(theirs, path, bearer(token)) as stream:
        stream.until(b"said")
        match end:
            case "kill":
                stage.mill.runs.kill(run.run_id)
            case "fence":
                stage.end_attempt(run, "lost", "its runner is gone", zombie=True)
            case "again":
                stage.end_attempt(run, "lost", "its driver died")
                _, later = register_again(stage, run.run_id)
        stream.to_the_end()

    asked = [client.get(f"/v1/runs/{run.run_id}", headers=bearer(token)).status_code for client in servers]

    assert asked == [401, 401]
    if end == "again":
        assert ours.get(f"/v1/runs/{run.run_id}", headers=bearer(later)).status_code == 200


def test_a_token_that_was_made_up_is_refused(stage, servers):
    """The id of a run is no secret."""
    run, token = begin(stage)
    waiting = stage.mill.runs.start("shop.sift").run_id
    other_end = f"{token[:-1]}{'y' if token.endswith('x') else 'x'}"
    made_up = [make_run_token(stage.world, run.run_id), other_end, token.upper(), f"tm_{waiting}_{token[-52:]}"]

    statuses = [servers[0].get(f"/v1/runs/{run.run_id}", headers=bearer(one)).status_code for one in made_up]

    assert statuses == [401] * 4
    assert stage.sql("SELECT count(*) FROM run WHERE token_digest IS NOT NULL") == [(1,)]
    assert token not in json.dumps(stage.sql("SELECT token_digest FROM run"))


def test_a_run_signs_no_browser_in(stage, servers):
    """A session would outlive the run."""
    _, token = begin(stage)
    page = servers[0].get("/login")
    word = re.search(r'name="word" value="([^"]*)"', page.text)
    assert word is not None

    answer = servers[0].post("/login", data={"word": word[1], "token": token})

    assert answer.status_code == 401
    assert "tidemill_session" not in answer.cookies


REAL = """
import json
import os
import pathlib
import subprocess

import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})
other = app.fileset("other", keys={"day": "date"})

def refused(call, *names):
    try:
        call(*names)
    except tm.TidemillError as error:
        return error.code
    return "allowed"

@app.python(writes=[orders])
def load(run):
    token = os.environ["TIDEMILL_TOKEN"]
    child = subprocess.run(["printenv", "TIDEMILL_TOKEN"], capture_output=True, text=True, check=True)
    with tm.connect(os.environ["TIDEMILL_URL"], token=token) as mill:
        found = {
            "run": mill.runs.show(run.id).state,
            "tx": mill.transactions.show(run.write_pointer).state,
            "output": mill.datasets.show("orders").name,
            "other": refused(mill.datasets.show, "other"),
            "list": refused(mill.runs.list),
            "publish": refused(mill.topics.publish, "own"),
            "kill": refused(mill.runs.kill, run.id),
            "create": refused(lambda: mill.tokens.create("more", role="admin")),
            "token": token,
            "child": child.stdout.strip(),
        }
    path = pathlib.Path(os.environ["FOUND"])
    with path.open("a") as file:
        file.write(json.dumps(found) + "\\n")
"""


def test_a_real_run_uses_its_token_from_inside(catalog_url, tmp_path):
    """A driver serves one run after the other: each has a token of its own, which no place of the server shows."""
    (tmp_path / "app.py").write_text(REAL, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n[spark]\nwarm = 0\n', encoding="utf-8")
    told = tmp_path.parent / f"{tmp_path.name}-found"
    command = [TIDEMILL, "--project", str(tmp_path), "up", "--json"]
    environ = {**os.environ, "TIDEMILL_SERVER_PORT": "0", "FOUND": str(told)}
    said, arguments = tmp_path.parent / f"{tmp_path.name}-said", set()
    with said.open("wb") as out, subprocess.Popen(command, env=environ, stdout=out, stderr=out) as up:
        try:
            until = time.monotonic() + patience(90)
            while '"ready"' not in said.read_text():
                assert time.monotonic() < until
                assert up.poll() is None, said.read_text()
                time.sleep(0.05)
            url = json.loads(said.read_text().splitlines()[0])["subject"]
            with open_project(tmp_path) as mill:
                runs = [mill.runs.start("shop.load").run_id for _ in range(2)]
                ended = []
                while len(ended) < len(runs):
                    assert time.monotonic() < until, said.read_text()
                    done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
                    arguments.update(done.stdout.splitlines())
                    ended = [one for one in map(mill.runs.show, runs) if one.ended_at]
                rows = repr([list(table.rows) for table in mill.project.catalog.dump()])
            found = [json.loads(line) for line in told.read_text().splitlines()]
            dead = [
                httpx.get(timeout=patience(10), url=f"{url}/v1/runs/{run_id}", headers=bearer(one["token"])).status_code
                for run_id in runs
                for one in found
            ]
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait()

    assert [one.state for one in ended] == ["COMPLETED", "COMPLETED"], [one.exit_reason for one in ended]
    tokens = [one.pop("token") for one in found]
    assert [one.pop("child") for one in found] == tokens
    assert len(set(tokens)) == 2
    assert (
        found
        == [
            {"run": "RUNNING", "tx": "in_progress", "output": "default.orders"}
            | dict.fromkeys(("other", "list", "publish", "kill", "create"), "out_of_reach")
        ]
        * 2
    )
    assert dead == [401] * 4
    texts = {str(path): path.read_bytes().decode("latin-1") for path in tmp_path.rglob("*") if path.is_file()}
    texts |= {"said": said.read_text(), "arguments": "\n".join(arguments), "rows": rows}
    secrets = [one.rpartition("_")[2] for one in tokens]
    assert [place for place, text in texts.items() for one in secrets if one in text] == []
