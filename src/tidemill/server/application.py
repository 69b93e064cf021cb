"""The application: a route for each operation, and those that are no operation: health, version, logs."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping
from contextlib import asynccontextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from inspect import Parameter, Signature
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import anyio.to_thread
from fastapi import Body, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, create_model
from starlette.exceptions import HTTPException

from tidemill.catalog.migrate import NewerCatalog, OlderCatalog, check_version
from tidemill.errors import TidemillError
from tidemill.mill.keeping import KeyedRequest
from tidemill.mill.mill import Mill
from tidemill.mill.once import carry_out
from tidemill.mill.page import MOST, BadPage
from tidemill.mill.plain import to_answer
from tidemill.mill.routes import CONDITION, PREFIX, Route, list_routes, wire_type
from tidemill.server.access import Door
from tidemill.server.conditions import read_condition, refuse_conditions, tag_of
from tidemill.server.guard import GuardedRoute, check_all_guarded, guarded, open_to_all
from tidemill.server.limits import RequestLimits
from tidemill.server.logs import logs
from tidemill.server.metrics import Counts, metrics
from tidemill.server.openapi import ANY_REQUEST, PROBLEMS, answer_type, describe, write_document
from tidemill.server.pages.routes import add_pages
from tidemill.server.prefix import AddPrefix, StripPrefix
from tidemill.server.problems import OPENAPI, RequestProblem, answer_error
from tidemill.server.sign_in import LOGIN, LOGOUT, login, logout, show_login
from tidemill.server.stream import stream
from tidemill.server.watcher import Watcher

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tidemill.mill.operations import Operation

_log = logging.getLogger(__name__)

_THREADS: Final = 16
"""Requests that use the catalog at once. More wait, as sockets."""


def make_application(door: Door, *, documented: bool = False) -> FastAPI:
    """Return the application whose callers come in by `door`. Raises `Unguarded` for a route without a right.

    A `documented` one knows the types of its answers too, which takes long: it is made for `/v1/openapi.json` alone.
    """

    @asynccontextmanager
    async def live(_: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = _THREADS
        yield

    app = _new_application(lifespan=live)
    app.state.door = door
    app.state.watcher = Watcher(door.mill)
    app.state.counts = Counts(door.mill)
    for kind in (TidemillError, RequestValidationError, HTTPException):  # defects: see RequestLimits
        app.add_exception_handler(kind, answer_error)
    routed = _make_routes(documented=documented)
    app.router.routes.extend(routed.routes)
    app.state.page_needs = routed.state.page_needs
    check_all_guarded(app)
    prefix = door.mill.project.config.server.prefix
    if prefix:
        app.add_middleware(AddPrefix, prefix=prefix)
    app.add_middleware(RequestLimits, world=door.world, hosts=door.hosts, prefix=prefix)
    if prefix:
        app.add_middleware(StripPrefix, prefix=prefix)
    return app


def _new_application(**options: Any) -> FastAPI:  # noqa: ANN401  # of FastAPI
    app = FastAPI(
        title="Tidemill",
        description=ANY_REQUEST,
        version=version("tidemill"),
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        **options,
    )
    app.router.route_class = GuardedRoute
    return app


@cache
def _make_routes(*, documented: bool) -> FastAPI:
    """Return the routes of all applications of this process: an endpoint finds its application by the request."""
    app = _new_application()
    for route in list_routes():
        _add(app, route, documented=documented)
    app.add_api_route(OPENAPI, _openapi, methods=["GET"], include_in_schema=False)
    for path, endpoint in (("/health", _health), ("/ready", _ready), ("/version", _version)):
        app.add_api_route(path, endpoint, methods=["GET"], tags=["server"])
    for method, path, asked in (("GET", LOGIN, show_login), ("POST", LOGIN, login), ("POST", LOGOUT, logout)):
        app.add_api_route(path, asked, methods=[method], include_in_schema=False)
    app.add_api_route("/metrics", metrics, methods=["GET"], tags=["server"])
    app.add_api_route(f"{PREFIX}/runs/{{run_id}}/logs", logs, methods=["GET"], tags=["run"])
    app.add_api_route(f"{PREFIX}/stream", stream, methods=["GET"], tags=["server"])
    add_pages(app)
    return app


def _answer(operation: Operation, plain: Mapping[str, object]) -> Response:
    """Return the answer for the result of an operation, which may be one that was kept."""
    try:
        text = json.dumps(plain, allow_nan=False)
    except ValueError:  # rows of users may hold numbers that JSON has not
        text = json.dumps(_without_nan(plain))
    tag = tag_of(operation.returns, plain)
    return Response(text, media_type="application/json", headers={} if tag is None else {"etag": tag})


def _without_nan(value: Any) -> Any:  # noqa: ANN401  # JSON
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {name: _without_nan(inner) for name, inner in value.items()}
    return [_without_nan(inner) for inner in value] if isinstance(value, list) else value


def _add(app: FastAPI, route: Route, *, documented: bool) -> None:
    operation = route.operation

    @guarded(operation.right, whole=operation.mark.whole, own=operation.mark.own)
    def endpoint(*, request: Request, **given: Any) -> Response:  # noqa: ANN401  # of any operation
        if (refused := _refuse_query(request, route)) is not None:
            return refused
        inputs: BaseModel | None = given.pop("inputs", None)
        arguments = given | ({} if inputs is None else _read_inputs(route, inputs))
        if _is_paged(route) and (limit := arguments.get("limit")) is not None and limit > MOST:
            raise BadPage("limit", str(limit), MOST)
        arguments |= _read_condition(request, route)
        mill: Mill = request.state.mill
        if route.method == "GET":
            return _answer(operation, to_answer(operation.bind(mill)(**arguments)))
        key = request.headers.get("idempotency-key")
        if key is None or operation.mark.no_key:
            made = to_answer(operation.bind(mill)(**arguments))
        else:
            plain = json.dumps([operation.action, arguments], sort_keys=True, default=str)
            asked = KeyedRequest(request.state.principal.token_id, key, sha256(plain.encode()).hexdigest())
            in_block = operation.mark.in_block
            made = carry_out(mill, asked, lambda one: operation.bind(one)(**arguments), in_block=in_block)
        _note_change(request, operation, " ".join(str(arguments[name]) for name in route.in_path), key or "")
        return _answer(operation, made)

    parameters = [Parameter("request", Parameter.KEYWORD_ONLY, annotation=Request)]
    parameters += [
        Parameter(name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, Path()])
        for name, kind in route.in_path.items()
    ]
    if route.document is not None:
        kind = wire_type(route.document.annotation)
        parameters.append(Parameter(route.document.name, Parameter.KEYWORD_ONLY, annotation=Annotated[kind, Body()]))
    if route.inputs:
        model = model_of(route)
        place = Body() if route.has_body else Query()
        optional = not any(field.is_required() for field in model.model_fields.values())
        default = model() if optional and route.has_body else Parameter.empty
        parameters.append(
            Parameter("inputs", Parameter.KEYWORD_ONLY, annotation=Annotated[model, place], default=default)
        )
    vars(endpoint)["__signature__"] = Signature(parameters, return_annotation=Response)
    app.add_api_route(
        route.path,
        endpoint,
        methods=[route.method],
        name=operation.action,
        summary=operation.summary,
        description=describe(operation),
        response_model=answer_type(operation) if documented else None,
        responses=PROBLEMS,
        tags=[operation.noun or "project"],
    )


def _read_condition(request: Request, route: Route) -> Mapping[str, Any]:
    """Return the generation that the thing must have, if the caller names one."""
    if route.conditional:
        wanted = read_condition(request.headers)
        return {} if wanted is None else {CONDITION: wanted}
    if route.method != "GET":
        refuse_conditions(request.headers, route.operation.action)
    return {}


def _refuse_query(request: Request, route: Route) -> Response | None:
    """Return the refusal of a query that the route does not read; None without one.

    Models of inputs refuse unknown names. A route without a model of its query passes over any name, in silence.
    """
    if not request.query_params or not (route.has_body or not route.inputs) or route.document is not None:
        return None
    name = next(iter(request.query_params))
    hint = "send it in the body" if name in route.inputs else f"{OPENAPI} says what the route takes"
    wrong = f"{name} is not known in the query; nothing was changed"
    return RequestProblem(422, "bad_request", wrong, hint, fields={"field": name}).answer(request.state.request_id)


def _is_paged(route: Route) -> bool:
    return "after" in route.inputs


def _read_inputs(route: Route, inputs: BaseModel) -> dict[str, Any]:
    """Return the inputs that a caller gave. A null where an operation takes none stands for the default."""
    given = {name: getattr(inputs, name) for name in inputs.model_fields_set}
    return {name: value for name, value in given.items() if value is not None or _takes_none(route.inputs.get(name))}


def _takes_none(one: Parameter | None) -> bool:
    return one is None or one.default in (None, Parameter.empty) or NoneType in get_args(one.annotation)


def _note_change(request: Request, operation: Operation, subject: str, key: str) -> None:
    """Log a change that a caller asked for. Inputs are left out: they may hold secrets."""
    mill: Mill = request.state.mill
    request_id: str = request.state.request_id
    fields = {"action": operation.action, "actor": mill.project.actor, "request_id": request_id}
    if key:
        fields["idempotency_key"] = key
    extra = {"event": "change", "subject": subject or operation.noun or "project", "fields": fields}
    _log.info("%s by %s   %s", operation.action, mill.project.actor, request_id, extra=extra)


def model_of(route: Route) -> type[BaseModel]:
    """Return the model of the inputs of a route: their names, types and defaults, and no other names."""
    fields: dict[str, Any] = {}
    free = False
    for name, one in route.inputs.items():
        if one.kind is Parameter.VAR_KEYWORD:
            free = True
            continue
        kind = wire_type(one.annotation)
        if name == "limit" and _is_paged(route):
            kind = Annotated[kind, Field(json_schema_extra={"minimum": 1, "maximum": MOST})]
        fields[name] = (kind, ...) if one.default is Parameter.empty else (kind | None, None)
    config = ConfigDict(extra="allow" if free else "forbid", strict=route.has_body, protected_namespaces=())
    title = "".join(word.capitalize() for word in route.operation.action.replace(".", "_").split("_"))
    return create_model(f"{title}Input", __config__=config, **fields)


@open_to_all
def _openapi(request: Request) -> Response:
    """Return the description of all routes, in OpenAPI 3.1."""
    door: Door = request.app.state.door
    return Response(_write_openapi(door), media_type="application/json")


@cache
def _write_openapi(door: Door) -> str:
    return write_document(make_application(door, documented=True))


@open_to_all
def _health() -> dict[str, str]:
    """Say that the process lives."""
    return {"status": "alive"}


@open_to_all
def _ready(request: Request) -> Response:
    """Say that the catalog is reached, and of the version of this server."""
    door: Door = request.app.state.door
    try:
        check_version(door.catalog, create=False)
    except (OlderCatalog, NewerCatalog) as error:
        # The request has no fault: a proxy should send it to another server.
        return RequestProblem.of(error, 503).answer(request.state.request_id)
    return Response(json.dumps({"status": "ready"}), media_type="application/json")


@open_to_all
def _version() -> dict[str, str]:
    """Return the version of Tidemill."""
    return {"version": version("tidemill")}
