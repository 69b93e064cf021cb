"""Lines of a server process: changes with their actor, failures with their request and traceback, as JSON or text."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.command import TIDEMILL
from tests.stage import Stage
from tests.yardstick import patience
from tidemill.mill.mill import open_project
from tidemill.narration import Narrator, log_to
from tidemill.roles.up import UntilIdle, run_node

HTML = {"accept": "text/html"}


@contextmanager
def narrated(stage: Stage, *, as_json: bool) -> Iterator[list[str]]:
    """Yield the lines that a server process would print."""
    lines: list[str] = []
    with log_to(Narrator(stage.world, lines.append, as_json=as_json), as_json=as_json):
        yield lines


def read(lines: list[str]) -> list[Mapping[str, Any]]:
    """Return the JSON of each line."""
    return [json.loads(line) for line in lines]


def test_a_change_is_a_line_with_its_actor_and_its_request(sign, stage):
    """The log of a site answers by itself which person did what."""
    client = sign("operator", name="ann")
    with narrated(stage, as_json=True) as lines:
        answer = client.post("/v1/schedules/shop.nightly:suspend", json={}, headers={"idempotency-key": "k-1"})
        client.get("/v1/schedules")
        client.post("/v1/schedules/shop.none:suspend", json={})

    (line,) = read(lines)
    assert line["event"] == "change"
    assert line["subject"] == "shop.nightly"
    assert line["action"] == "schedule.suspend"
    assert line["actor"] == "ann@127.0.0.1"
    assert line["request_id"] == answer.headers["x-request-id"]
    assert line["idempotency_key"] == "k-1"


def test_a_person_reads_the_same_as_text(sign, stage):
    """On a terminal, a line is a line."""
    client = sign("operator", name="ann")
    with narrated(stage, as_json=False) as lines:
        client.post("/v1/schedules/shop.nightly:suspend", json={})

    (line,) = lines
    assert "change  shop.nightly   schedule.suspend by ann@127.0.0.1   req_" in line


@pytest.mark.parametrize("path", ["/v1/runs", "/runs"])
def test_a_failure_is_logged_with_its_request_and_traceback_which_no_answer_has(sign, stage, monkeypatch, path):
    """The person at the browser has the id, and the log has the reason."""
    client = sign("viewer", name="ann")

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("tidemill.mill.runs.Runs.list", broken)
    with narrated(stage, as_json=True) as lines:
        answer = client.get(path)

    (line,) = read(lines)
    assert answer.status_code == 500
    assert "of ours" not in answer.text
    assert (line["event"], line["route"], line["caller"]) == ("error", f"GET {path}", "ann")
    assert line["request_id"] == answer.headers["x-request-id"]
    assert line["request_id"] in answer.text
    assert "ZeroDivisionError: of ours" in line["traceback"]


def test_warnings_of_other_rooms_are_json_too_and_go_to_standard_error_as_text(stage, capsys):
    """A program that reads the log must not stumble over a line of another form."""
    log = logging.getLogger("tidemill.roles.loops")
    with narrated(stage, as_json=True) as lines:
        log.warning("%s waits: %s", "runner", "the catalog is away")
        log.info("of no interest")
    with narrated(stage, as_json=False) as texts:
        log.warning("%s waits", "janitor")

    (line,) = read(lines)
    assert (line["event"], line["subject"]) == ("warning", "tidemill.roles.loops")
    assert line["message"] == "runner waits: the catalog is away"
    assert texts == []
    assert capsys.readouterr().err == "janitor waits\n"
    assert not log.isEnabledFor(logging.INFO)


def test_a_process_logs_json_as_its_settings_say(stage):
    """A setting in the file is enough: no option in each unit file."""
    folder = stage.mill.project.config.folder
    (folder / "tidemill.toml").write_text('log_format = "json"\n', encoding="utf-8")
    environ = {**os.environ, "TIDEMILL_SERVER_PORT": "0", "TIDEMILL_CATALOG": stage.mill.project.catalog.url}
    command = [TIDEMILL, "--project", str(folder), "server"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        secret = stage.mill.tokens.create("ann", role="operator").secret
        headers = {"authorization": f"Bearer {secret}"}
        path = f"{url}/v1/schedules/shop.nightly:suspend"
        answer = httpx.post(path, json={}, headers=headers, timeout=patience(60))
        line = json.loads(server.stdout.readline())
        server.send_signal(signal.SIGTERM)
        rest = server.stdout.read()

    assert answer.status_code == 200
    assert (line["action"], line["actor"]) == ("schedule.suspend", "ann@127.0.0.1")
    assert rest == ""


def test_lines_of_a_run_have_its_run_job_and_schedule(stage):
    """A search for one id finds the launch, the attempts and the end of a run."""
    lines: list[str] = []
    stage.publish("orders", "day=2026-01-01")
    with open_project(stage.mill.project.config.folder, world=stage.world) as mill:
        run_node(mill, echo=lines.append, deploy=False, until_idle=UntilIdle.DATA, as_json=True)

    found = [line for line in read(lines) if line["event"] in {"job", "start", "done"}]
    (run,) = stage.mill.runs.list(program="shop.sift")
    (job,) = stage.mill.jobs.history("shop.on_orders")
    assert [line["event"] for line in found] == ["job", "start", "done"]
    assert {(line["run_id"], line["job_id"], line["schedule"]) for line in found} == {
        (run.run_id, job.job_id, "default.shop.on_orders")
    }
