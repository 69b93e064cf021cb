"""The description of all routes in OpenAPI 3.1, from the list of operations: their summaries, types and rights."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, get_args, get_origin

from fastapi import FastAPI
from pydantic import BaseModel

from tidemill.mill.operations import Operation
from tidemill.mill.page import Page
from tidemill.server.problems import MEDIA_TYPE

OPENAPI: Final = "/v1/openapi.json"


class Problem(BaseModel):
    """A request that was not carried out (RFC 9457). Further fields are those of the error, by its code."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str


_WORDS: Final = {
    "400": "The body cannot be read.",
    "401": "The request names no caller.",
    "403": "The caller has not the right.",
    "404": "There is no such thing, or the caller may not see it.",
    "409": "The state does not allow it, or another transaction committed first.",
    "413": "The body is larger than 8 MiB.",
    "415": "The body is no JSON.",
    "422": "A rule refuses the request.",
    "429": "The caller asks too often.",
    "503": "The catalog is away. Ask again after `Retry-After` seconds.",
}
PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"description": words, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for status, words in _WORDS.items()
}
"""The answers of each route for what goes wrong."""


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
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"token": []}]
    for path in document["paths"].values():
        for route in path.values():
            _mend(route)
    return json.dumps(document, indent=1)


def _mend(route: dict[str, Any]) -> None:
    """Leave out what FastAPI adds by itself: its form of a refusal, of which we have our own."""
    refused: Mapping[str, Any] = route["responses"].get("422", {})
    if MEDIA_TYPE in refused.get("content", {}):
        route["responses"]["422"] = PROBLEMS["422"]
