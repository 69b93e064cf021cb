"""Routes of operations, and answers for what goes wrong."""

from __future__ import annotations

import re
from inspect import Parameter

import pytest
from fastapi import FastAPI

from tidemill.mill.routes import list_routes
from tidemill.server.examples import example_inputs
from tidemill.server.guard import GuardedRoute, Unguarded, check_all_guarded


def test_a_schedule_is_listed_shown_suspended_and_resumed(sign):
    """A route is its operation: the record that Python returns is the answer."""
    client = sign("operator")

    listed = client.get("/v1/schedules").json()
    shown = client.get("/v1/schedules/default.shop.nightly").json()
    suspended = client.post("/v1/schedules/shop.nightly:suspend", json={"mode": "hold"}).json()
    resumed = client.post("/v1/schedules/shop.nightly:resume").json()

    assert [one["name"] for one in listed["items"]] == ["default.shop.nightly", "default.shop.on_orders"]
    assert shown["name"] == "default.shop.nightly"
    assert suspended == {
        "schedule": "default.shop.nightly",
        "status": "SUSPENDED",
        "dropped_jobs": 0,
        "changed": True,
    }
    assert resumed["status"] == "SCHEDULED"


def test_a_caller_without_a_token_gets_nothing(client):
    """Deny by default."""
    answer = client.get("/v1/schedules")

    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "unauthorized"


def test_the_log_of_a_run_is_text(sign, stage, tmp_path):
    """A log may be longer than memory, and lie on another machine."""
    run_id = stage.mill.runs.start("shop.load").run_id
    client = sign("viewer")
    assert (client.get(f"/v1/runs/{run_id}/logs").status_code, client.get(f"/v1/runs/{run_id}/logs").text) == (200, "")
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "stdout").write_text("one\ntwo\n", encoding="utf-8")
    (folder / "spark.log").write_text("spark\n", encoding="utf-8")
    stage.sql(f"UPDATE run SET log_location = '{folder}' WHERE run_id = '{run_id}' RETURNING 1")

    assert client.get(f"/v1/runs/{run_id}/logs").text == "one\ntwo\n"
    assert client.get(f"/v1/runs/{run_id}/logs?whole=true").text == "one\ntwo\nspark\n"
    assert client.get(f"/v1/runs/{run_id}/logs?attempt=9").status_code == 404
    assert client.get("/v1/runs/run_none/logs").status_code == 404
    assert client.get(f"/v1/runs/{run_id}/logs").headers["accept-ranges"] == "bytes"


@pytest.mark.parametrize(
    ("wanted", "status", "text", "place"),
    [
        ("bytes=4-", 206, "two\n", "bytes 4-7/8"),
        ("bytes=0-2", 206, "one", "bytes 0-2/8"),
        ("bytes=-3", 206, "wo\n", "bytes 5-7/8"),
        ("bytes=-30", 206, "one\ntwo\n", "bytes 0-7/8"),
        ("bytes=6-99", 206, "o\n", "bytes 6-7/8"),
        ("bytes=8-", 416, "", "bytes */8"),
        ("bytes=5-4", 416, "", "bytes */8"),
        ("bytes=-0", 416, "", "bytes */8"),
        ("bytes=0-1,3-4", 200, "one\ntwo\n", None),
        ("bytes=-", 200, "one\ntwo\n", None),
        ("lines=1-2", 200, "one\ntwo\n", None),
    ],
)
def test_a_part_of_a_log_is_named_by_its_bytes(sign, stage, tmp_path, wanted, status, text, place):
    """A caller reads on where it stopped, or reads the end of a long log."""
    run_id = stage.mill.runs.start("shop.load").run_id
    (tmp_path / "1").mkdir()
    (tmp_path / "1" / "stdout").write_text("one\ntwo\n", encoding="utf-8")
    stage.sql(f"UPDATE run SET log_location = '{tmp_path / '1'}' WHERE run_id = '{run_id}' RETURNING 1")

    answer = sign("viewer").get(f"/v1/runs/{run_id}/logs", headers={"range": wanted})

    assert (answer.status_code, answer.text, answer.headers.get("content-range")) == (status, text, place)


def test_a_page_of_a_list_is_bounded(sign):
    """A caller could have the server build records of all runs in memory."""
    client = sign("viewer")

    assert client.get("/v1/runs?limit=1000").status_code == 200
    refused = client.get("/v1/runs?limit=1001")
    assert (refused.status_code, refused.json()["code"]) == (422, "bad_page")
    assert "from 1 to 1,000" in refused.json()["detail"]


@pytest.mark.parametrize(("version", "code"), [(99, "newer_catalog"), (-1, "older_catalog")])
def test_a_server_is_not_ready_for_the_catalog_of_another_version(client, stage, version, code):
    """A load balancer sends requests to the servers that were upgraded."""
    stage.sql(f"UPDATE migration SET version = {version} RETURNING 1")

    answer = client.get("/ready")

    assert (answer.status_code, answer.json()["code"]) == (503, code)
    assert answer.headers["retry-after"]


JSON = {"content-type": "application/json"}
TEXT = {"content-type": "text/plain"}
APP_JSON: dict[str, object] = {"json": {"declaration": {}, "bundle": ""}}


@pytest.mark.parametrize(
    ("method", "path", "sent", "code", "hint"),
    [
        ("GET", "/v1/nothing", {}, "no_route", "lists the routes"),
        ("DELETE", "/v1/runs", {}, "no_method", "lists the methods"),
        ("GET", "/v1/runs", {"headers": {"authorization": ""}}, "unauthorized", "Authorization: Bearer TOKEN"),
        ("GET", "/v1/runs", {"headers": {"host": "else.where"}}, "wrong_host", "server.names"),
        ("GET", "/v1/runs", {"headers": {"origin": "https://else.where"}}, "wrong_origin", "server.names"),
        ("GET", "/v1/runs?unknown=1", {}, "bad_request", "/v1/openapi.json"),
        ("GET", "/v1/schedules/shop.nightly?unknown=1", {}, "bad_request", "/v1/openapi.json"),
        ("POST", "/v1/schedules/shop.nightly:suspend?unknown=1", {}, "bad_request", "/v1/openapi.json"),
        ("POST", "/v1/schedules/shop.nightly:suspend?mode=hold", {}, "bad_request", "send it in the body"),
        ("PUT", "/v1/apps/shop?update_schedules=true", APP_JSON, "bad_request", "send it in the body"),
        ("POST", "/v1/schedules", {"content": b"{", "headers": JSON}, "bad_json", "JSON"),
        ("POST", "/v1/schedules", {"content": b"\xff", "headers": JSON}, "bad_encoding", "JSON"),
        ("POST", "/v1/schedules", {"content": b"a", "headers": TEXT}, "wrong_media_type", "json"),
        ("POST", "/v1/schedules", {"content": b" " * 2**23 + b" "}, "body_too_large", "send less"),
    ],
)
def test_each_problem_names_the_next_step(sign, method, path, sent, code, hint):
    """A client shows the step beside the sentence, and reads no text to find it."""
    problem = sign("admin").request(method, path, **sent).json()

    assert problem["code"] == code
    assert hint in problem["hint"]
    assert problem["detail"].endswith(problem["hint"])


def test_a_page_shows_the_next_step_apart(sign):
    """A reader finds the step at one place, and reads nothing twice."""
    page = sign("viewer").get("/runs/run_1", headers={"accept": "text/html"})

    assert page.status_code == 404
    assert page.text.count("`tidemill run list` shows the newest") == 1
    assert "no run named" in page.text


def test_health_ready_and_version_are_open(client):
    """A load balancer has no token."""
    assert client.get("/health").json() == {"status": "alive"}
    assert client.get("/ready").json()["status"] == "ready"
    assert client.get("/version").json()["version"]


def test_the_answer_names_the_right_that_is_missing(sign):
    """The right to look is no right to change."""
    answer = sign("viewer").post("/v1/schedules/shop.nightly:suspend")

    assert answer.status_code == 403
    assert answer.json()["right"] == "operate"


def test_an_unknown_name_is_404_with_the_nearest_one(sign):
    """A slip in a name is found by the answer."""
    answer = sign("viewer").get("/v1/schedules/shop.nightl")

    assert answer.status_code == 404
    problem = answer.json()
    assert (problem["nearest"], problem["hint"]) == ("default.shop.nightly", "did you mean 'default.shop.nightly'?")
    assert problem["detail"] == f"no schedule named 'default.shop.nightl'; {problem['hint']}"


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"{", 400), (b'{"mod": "hold"}', 422), (b'{"mode": 3}', 422), (b"[]", 422), (b'{"mode": "sideways"}', 422)],
)
def test_an_input_that_cannot_be_read_is_refused(sign, body, status):
    """Bad input gives a problem, never a traceback."""
    answer = sign("operator").post(
        "/v1/schedules/shop.nightly:suspend", content=body, headers={"content-type": "application/json"}
    )

    assert answer.status_code == status
    assert answer.json()["request_id"].startswith("req_")


def test_a_body_of_another_type_and_a_huge_one_are_refused(sign):
    """An early refusal costs no thread."""
    client = sign("operator")
    path = "/v1/schedules/shop.nightly:suspend"

    assert client.post(path, content=b"mode=hold", headers={"content-type": "text/plain"}).status_code == 415
    huge = client.post(path, content=b" " * (8 * 2**20 + 1), headers={"content-type": "application/json"})
    assert huge.status_code == 413


def test_a_null_stands_for_the_default(sign):
    """The description allows it: an answer of 500 for `"to": null` was found by requests made from it."""
    client = sign("admin")
    rule = {"type": "run_failed", "program": "shop.load"}
    made = client.post("/v1/alerts", json={"name": "quiet", "rule": rule, "to": None, "description": None})

    assert made.status_code == 200, made.text
    assert (made.json()["to"], made.json()["description"]) == ([], "")


def test_no_null_is_a_defect(sign):
    """Each optional input of each change, null: the change is made, or refused for something else."""
    client = sign("admin")
    defects = []
    for route in list_routes():
        if not route.has_body or route.operation.noun == "catalog":
            continue
        optional = {name: None for name, one in route.inputs.items() if one.default is not Parameter.empty}
        path = re.sub(r"\{\w+\}", "nothing", route.path)
        answer = client.request(route.method, path, json=example_inputs(route) | optional)
        if answer.status_code >= 500:
            defects.append((route.operation.action, answer.text))

    assert defects == []


def test_another_host_or_origin_is_refused(sign):
    """A page of another site cannot use the browser of our user (DNS rebinding)."""
    client = sign("viewer")

    assert client.get("/v1/schedules", headers={"host": "evil.example"}).status_code == 421
    assert client.get("/v1/schedules", headers={"origin": "http://evil.example"}).status_code == 403


def test_a_route_without_a_right_is_no_application():
    """A forgotten declaration must not open a route."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.router.route_class = GuardedRoute
    with pytest.raises(Unguarded, match="/v1/secret"):
        app.add_api_route("/v1/secret", lambda: {"secret": 1})
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    app.add_api_route("/v1/secret", lambda: {"secret": 1})

    with pytest.raises(Unguarded, match="/v1/secret"):
        check_all_guarded(app)
