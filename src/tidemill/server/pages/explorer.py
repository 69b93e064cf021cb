"""The page of all routes: for each its parameters, examples, right, errors, and its lines for curl and the shell.

It is made from the list of routes, as the routes are. It says nothing of a project, and so is open to all.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from inspect import Parameter
from typing import Any, Final
from urllib.parse import quote, urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.routes import PREFIX, Route, list_routes
from tidemill.server.examples import example_answer, example_inputs, example_of
from tidemill.server.guard import GuardedRoute, needs_of, open_to_all
from tidemill.server.openapi import describe, headers_of, problems_of
from tidemill.server.pages.columns import Column
from tidemill.server.pages.render import render

DOCS: Final = f"{PREFIX}/docs"
_COLUMNS: Final = (
    Column("name", "Name", "code"),
    Column("place", "Stands in"),
    Column("type", "Type", "code"),
    Column("needed", "Needed"),
    Column("example", "Example", "code"),
)
_PROJECT: Final = "project"
_OTHERS: Final = "others"


@open_to_all
def show_explorer(request: Request) -> HTMLResponse:
    """Return the page."""
    groups = _groups()
    known = {(route.method, route.path) for route in list_routes()}
    others = [
        {"method": method, "path": one.path, "right": needs_of(one.endpoint)[0], "summary": _first_line(one.endpoint)}
        for one in request.app.routes
        if isinstance(one, GuardedRoute)
        for method in sorted(one.methods or ())
        if (method, one.path) not in known and (one.include_in_schema or one.path.startswith(PREFIX))
    ]
    return render(
        request,
        "explorer.html",
        title="REST",
        groups=groups,
        others=others,
        others_name=_OTHERS,
        columns=_COLUMNS,
        command="--server URL --token env:TIDEMILL_TOKEN run list",
    )


@cache
def _groups() -> Mapping[str, list[dict[str, Any]]]:
    """Return the routes as the page shows them, by noun."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for route in list_routes():
        groups.setdefault(route.operation.noun or _PROJECT, []).append(_shown(route))
    return groups


def _shown(route: Route) -> dict[str, Any]:
    operation = route.operation
    inputs = example_inputs(route)
    return {
        "anchor": operation.action,
        "method": route.method,
        "path": route.path,
        "summary": operation.summary,
        "text": [part.replace("\n", " ") for part in describe(operation).split("\n\n")],
        "right": operation.right,
        "whole": operation.mark.whole,
        "parameters": list(_parameters(route)),
        "body": json.dumps(inputs, indent=2) if route.has_body else "",
        "answer": json.dumps(example_answer(route), indent=2),
        "errors": [{"status": status, "meaning": words} for status, words in problems_of(route).items()],
        "curl": _curl(route, inputs),
        "command": f"tidemill {operation.command}" if operation.command else "",
        "no_command": operation.mark.no_command,
    }


def _parameters(route: Route) -> Iterator[dict[str, object]]:
    hints = route.operation.parameters
    for name in route.in_path:
        yield _row(route, name, "path", hints[name], needed=True)
    for name, one in route.inputs.items():
        yield _row(route, name, "body" if route.has_body else "query", one, needed=one.default is Parameter.empty)
    for name, (words, example) in headers_of(route).items():
        yield {"name": name, "place": "header", "type": "str", "needed": words, "example": example}


def _row(route: Route, name: str, place: str, one: Parameter, *, needed: bool) -> dict[str, object]:
    free = one.kind is Parameter.VAR_KEYWORD
    shown = inspect.formatannotation(one.annotation).replace("collections.abc.", "").replace("datetime.", "")
    return {
        "name": f"{name} …" if free else name,
        "place": place,
        "type": shown,
        "needed": "yes" if needed and not free else "",
        "example": json.dumps(example_of(route, name)),
    }


def _curl(route: Route, inputs: Mapping[str, object]) -> str:
    path = route.path
    for name in route.in_path:
        path = path.replace(f"{{{name}}}", quote(str(example_of(route, name)), safe=""))
    words = [
        "curl",
        *([] if route.method == "GET" else ["-X", route.method]),
        "-H",
        '"Authorization: Bearer $TIDEMILL_TOKEN"',
    ]
    query = ""
    if route.has_body:
        words += ["-H", "'Content-Type: application/json'", "-d", shlex.quote(json.dumps(inputs))]
    elif inputs:
        query = f"?{urlencode(inputs, doseq=True)}"
    return " ".join([*words, shlex.quote(f"$TIDEMILL_SERVER{path}{query}").replace("'", '"')])


def _first_line(endpoint: object) -> str:
    return (inspect.getdoc(endpoint) or "").partition("\n")[0]
