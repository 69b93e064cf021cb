"""The description of all routes: current, and kept by each answer."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck

from tests.server.busy import APP, make_busy
from tests.stage import staged
from tidemill.alerts.rules import Rule
from tidemill.app.declaration import read_declaration
from tidemill.client.forms import read_answer
from tidemill.json_specs import read_plain
from tidemill.mill.new_schedules import read_entries
from tidemill.mill.operations import OPERATIONS
from tidemill.mill.routes import Route, list_routes
from tidemill.schedule.triggers import Trigger
from tidemill.server.application import model_of
from tidemill.server.examples import example_answer, example_inputs, example_of, example_path
from tidemill.server.listen import Listener
from tools import reference

PAGE = reference.OPENAPI
EXAMPLES = int(os.environ.get("TIDEMILL_FUZZ", "3"))
"""Requests for each route and kind of data (`make fuzz-rest` has more)."""

LEFT_OUT = {"/v1/stream", "/v1/runs/{run_id}/logs", "/v1/catalog:adopt", "/login", "/v1/tokens/{name}:revoke"}
"""Routes that would end the requests after them, or whose answers, which may be followed, have no end."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of a server of a busy project, and a token with all rights."""
    folder = tmp_path_factory.mktemp("busy")
    with staged(folder, f"sqlite:///{folder / 'catalog.db'}", APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as stage:
        make_busy(stage)
        listener = Listener(stage.mill)
        listener.start()
        yield listener.url, stage.mill.tokens.create("fuzz", role="admin").secret
        listener.stop()


def test_the_description_is_current():
    """A client that was made from an old description asks for what is no more."""
    assert PAGE.read_text(encoding="utf-8") == reference.write_openapi(), "run `make reference`"


def lacks_of(described: dict[str, Any], route: Route) -> Iterator[str]:
    """Yield what the description of a route lacks."""
    if not described["summary"]:
        yield "a summary"
    if described.get("x-right") != route.operation.right or "Needs the right" not in described["description"]:
        yield "its right"
    if not {"200", "400", "401", "403", "404", "422", "429", "503"} <= described["responses"].keys():
        yield "its errors"
    if ("412" in described["responses"]) != route.conditional:
        yield "the refusal of a lost update"
    for parameter in described.get("parameters", []):
        if "example" not in parameter:
            yield f"an example of {parameter['name']}"
    if route.has_body and route.inputs and "example" not in described["requestBody"]["content"]["application/json"]:
        yield "an example of its body"
    if "example" not in described["responses"]["200"]["content"]["application/json"]:
        yield "an example of its answer"


def test_each_route_has_a_summary_an_example_its_errors_and_its_right():
    """A reader of the description needs no look into the code."""
    document = json.loads(PAGE.read_text(encoding="utf-8"))
    routes = list(list_routes())
    described = {one.operation.action: document["paths"][one.path][one.method.lower()] for one in routes}
    lacks = {one.operation.action: list(lacks_of(described[one.operation.action], one)) for one in routes}

    assert {action: lacking for action, lacking in lacks.items() if lacking} == {}
    assert len(described) == len([one for one in OPERATIONS if not one.mark.no_route])


def test_each_path_is_described_whole():
    """A route that is no operation is a route to its callers too."""
    document = json.loads(PAGE.read_text(encoding="utf-8"))
    text = json.dumps(document)
    found = {
        f"{method} {path}": lacking
        for path, methods in document["paths"].items()
        for method, one in methods.items()
        for lacking in ("summary", "description", "x-right")
        if lacking not in one or (lacking != "x-right" and not one[lacking].strip())
    }
    opened = {path for path, methods in document["paths"].items() for one in methods.values() if one["x-right"] is None}

    assert found == {}
    assert opened == {"/health", "/ready", "/version"}
    assert {"/metrics", "/v1/stream", "/v1/runs/{run_id}/logs"} < document["paths"].keys()
    for name in re.findall(r'"#/components/schemas/([^"]+)"', text):
        assert name in document["components"]["schemas"], "an answer names a schema that is not there"
    assert document["paths"]["/v1/runs"]["get"]["parameters"][0]["schema"]


@pytest.mark.parametrize("route", list(list_routes()), ids=lambda route: route.operation.action)
def test_an_example_is_what_the_route_takes_and_gives(route):
    """A reader copies it: it fits the model of the inputs, and the record of the answer."""
    inputs = example_inputs(route)
    if route.inputs:
        model_of(route).model_validate_json(json.dumps(inputs))

    assert read_answer(route.operation.returns, example_answer(route)) is not None
    assert "{" not in example_path(route)


def test_the_examples_of_specs_are_specs():
    """Their form is not described by OpenAPI: the example is all that a reader has."""
    routes = {one.operation.action: one for one in list_routes()}

    assert read_plain(Trigger, example_of(routes["schedule.create"], "trigger"))
    assert read_plain(Rule, example_of(routes["alert.create"], "rule"))
    assert read_entries(example_of(routes["schedule.create_many"], "entries"))
    assert read_declaration(example_of(routes["app.deploy"], "declaration")).programs


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_each_answer_is_as_described_and_none_is_a_defect(server, method):
    """Requests that are made from the description, right and wrong ones: no 5xx, and no other form than promised."""
    url, secret = server
    schema = schemathesis.openapi.from_path(PAGE)
    schema.config.update(base_url=url)
    asked = 0
    for found in schema.get_all_operations():
        operation = found.ok()
        leave_out = operation.path in LEFT_OUT
        if operation.method.upper() != method or leave_out:
            continue

        @hypothesis.given(case=operation.as_strategy())
        @hypothesis.settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        def ask(case):
            nonlocal asked
            asked += 1
            answer = case.call(headers={"Authorization": f"Bearer {secret}"})
            assert answer.status_code < 500, (case.path, answer.text)
            case.validate_response(
                answer,
                checks=[
                    schemathesis.checks.not_a_server_error,
                    schemathesis.checks.response_schema_conformance,
                    schemathesis.checks.content_type_conformance,
                ],
            )

        ask()

    print(f"{method}: {asked} requests")
    assert asked > 0
