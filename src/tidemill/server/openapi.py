"""The description of all routes in OpenAPI 3.1, from the list of operations: their summaries, types and rights."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args, get_origin

from fastapi import FastAPI
from pydantic import BaseModel

from tidemill.mill.operation import Right
from tidemill.mill.operations import Operation
from tidemill.mill.page import Page
from tidemill.mill.routes import Route, list_routes
from tidemill.server.examples import example_answer, example_inputs, example_of
from tidemill.server.problems import MEDIA_TYPE

ANY_REQUEST: Final = (
    "Besides what stands at its route, any request may be refused with 405 (the path has another method), 408 (the "
    "body did not come within 20 seconds) or 421 (the server does not answer for this host)."
)
"""Answers that no route causes by itself."""


class Problem(BaseModel):
    """A request that was not carried out (RFC 9457). Further fields are those of the error, by its code."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    wrong: str
    """The detail without the next step."""
    hint: str
    """The next step."""
    request_id: str


_WORDS: Final = {
    "400": "The body or a condition cannot be read, or the route checks no condition.",
    "401": "The request names no caller.",
    "403": "The caller has not the right.",
    "404": "There is no such thing, or the caller may not see it.",
    "409": "The state does not allow it, or another transaction committed first.",
    "412": "Another caller has changed the thing. The answer has its generation.",
    "413": "The body is larger than 8 MiB.",
    "415": "The body is no JSON.",
    "422": "A rule refuses the request.",
    "429": "The caller asks too often.",
    "503": "The catalog is away. Ask again after `Retry-After` seconds.",
}
_OF_CHANGES: Final = frozenset({"409", "413", "415"})
_OF_CONDITIONS: Final = frozenset({"412"})
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": words, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for status, words in _WORDS.items()
    if status not in _OF_CONDITIONS
}
"""The answers of each route for what goes wrong."""
_HEADERS: Final = {
    "Idempotency-Key": "A key of the caller for this change. A repetition within 24 hours gets the same answer.",
    "If-Match": "The ETag of the thing as the caller has seen it. 412 if another caller has changed it since.",
    "If-None-Match": "`*` for a thing that must not exist yet.",
}
_HEADER_EXAMPLES: Final = {"Idempotency-Key": "4f1c-7", "If-Match": '"7"', "If-None-Match": "*"}


@dataclass(frozen=True, slots=True)
class _Other:
    """Description of a route that is no operation: its right, its answers by media type, its refusals."""

    right: Right | None
    answers: Mapping[str, object]
    refusals: Sequence[str] = ()
    header: tuple[str, str, str] | None = None
    """A header that it takes: its name, its meaning, an example."""
    further: Mapping[str, str] = field(default_factory=dict)
    """Further answers without a problem: the meaning of each status."""


_CALLERS: Final = ("401", "403", "422", "429", "503")
_OTHERS: Final[Mapping[str, _Other]] = {
    "/health": _Other(None, {"application/json": {"status": "alive"}}),
    "/ready": _Other(None, {"application/json": {"status": "ready"}}, ["503"]),
    "/version": _Other(None, {"application/json": {"version": "0.1.0"}}),
    "/metrics": _Other(Right.READ, {"text/plain": "tidemill_runs_ended_total 3\n"}, _CALLERS),
    "/v1/stream": _Other(
        Right.READ,
        {"text/event-stream": "event: commit\ndata: {}\n\n"},
        _CALLERS,
        ("Last-Event-ID", "The `id` of the last event that the caller has seen.", "orders=41"),
    ),
    "/v1/runs/{run_id}/logs": _Other(
        Right.READ,
        {"text/plain": "3 rows\n", "application/x-ndjson": '{"file": "stdout", "line": "3 rows"}\n'},
        ["404", *_CALLERS],
        ("Range", "The part of the text that is wanted, by its bytes.", "bytes=1000-"),
        {"206": "The part that `Range` asks for.", "416": "The text ends before the part that `Range` asks for."},
    ),
}


def problems_of(route: Route) -> dict[str, str]:
    """Return the statuses with which a route refuses a request, each with its meaning."""
    left_out = set() if route.conditional else set(_OF_CONDITIONS)
    left_out |= set() if route.has_body else set(_OF_CHANGES)
    return {status: words for status, words in _WORDS.items() if status not in left_out}


def headers_of(route: Route) -> dict[str, tuple[str, str]]:
    """Return the headers that a route takes, each with its meaning and an example."""
    names = ["Idempotency-Key"] if route.has_body and not route.operation.mark.no_key else []
    if route.conditional:
        names += ["If-Match", *(["If-None-Match"] if route.method == "PUT" else [])]
    return {name: (_HEADERS[name], _HEADER_EXAMPLES[name]) for name in names}


def describe(operation: Operation) -> str:
    """Return the text on an operation: the rest of its docstring, and its right."""
    rest = (inspect.getdoc(operation.method) or "").partition("\n")[2].strip()
    where = " in all namespaces" if operation.mark.whole else ""
    return f"{rest}\n\nNeeds the right `{operation.right}`{where}.".strip()


def answer_type(operation: Operation) -> Any:  # noqa: ANN401  # a type
    """Return the type of the answer of an operation: its record, or a page of records."""
    kind = operation.returns
    if get_origin(kind) in (list, Sequence):
        return Page[get_args(kind)[0]]  # type: ignore[misc]  # known at run time only
    return kind


def write_document(app: FastAPI) -> str:
    """Return the description of an application, as JSON."""
    document = app.openapi()
    schemas: dict[str, Any] = document["components"]["schemas"]
    problem = Problem.model_json_schema()
    schemas["Problem"] = problem
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    _widen_pairs(schemas)
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path in document["paths"].values():
        for described in path.values():
            _mend(described)
    for route in list_routes():
        _complete(document["paths"][route.path][route.method.lower()], route)
    for place, other in _OTHERS.items():
        _complete_other(document["paths"][place]["get"], other)
    return json.dumps(document, indent=1)


def _widen_pairs(schema: Any) -> None:  # noqa: ANN401  # JSON
    """Describe the items of pairs by one schema: several readers of OpenAPI refuse `prefixItems`."""
    if isinstance(schema, dict):
        if "prefixItems" in schema:
            schema["items"] = {"anyOf": schema.pop("prefixItems")}
        for inner in schema.values():
            _widen_pairs(inner)
    elif isinstance(schema, list):
        for inner in schema:
            _widen_pairs(inner)


def _complete(described: dict[str, Any], route: Route) -> None:
    """Add the right, the command, the headers, and the examples of a route."""
    operation = route.operation
    described["x-right"] = str(operation.right)
    described["x-all-namespaces"] = operation.mark.whole
    described["x-command"] = f"tidemill {operation.command}" if operation.command else None
    if route.conditional:
        words = _WORDS["412"]
        described["responses"]["412"] = {**PROBLEMS["422"], "description": words}
    for parameter in described.get("parameters", []):
        parameter["example"] = example_of(route, parameter["name"])
    for name, (words, example) in headers_of(route).items():
        described.setdefault("parameters", []).append(_header(name, words, example))
    if "requestBody" in described:
        described["requestBody"]["content"]["application/json"]["example"] = example_inputs(route)
    described["responses"]["200"]["content"]["application/json"]["example"] = example_answer(route)


def _complete_other(described: dict[str, Any], other: _Other) -> None:
    """Describe a route that is no operation, as `_complete` does one that is."""
    summary, _, rest = described["description"].partition("\n")
    right = "Open to all callers." if other.right is None else f"Needs the right `{other.right}`."
    described |= {"summary": summary.strip(), "description": f"{rest.strip()}\n\n{right}".strip()}
    described["x-right"] = None if other.right is None else str(other.right)
    content = {
        media: {"schema": {"type": "string" if isinstance(example, str) else "object"}, "example": example}
        for media, example in other.answers.items()
    }
    described["responses"] = {
        "200": {"description": "The answer.", "content": content},
        **{status: {"description": words} for status, words in other.further.items()},
        **{status: PROBLEMS[status] for status in other.refusals},
    }
    if other.header is not None:
        described.setdefault("parameters", []).append(_header(*other.header))


def _header(name: str, words: str, example: str) -> dict[str, object]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": words,
        "schema": {"type": "string"},
        "example": example,
    }


def _mend(route: dict[str, Any]) -> None:
    """Leave out what FastAPI adds by itself: its form of a refusal, of which we have our own."""
    refused: Mapping[str, Any] = route["responses"].get("422", {})
    if MEDIA_TYPE in refused.get("content", {}):
        route["responses"]["422"] = PROBLEMS["422"]
