"""Errors as answers: `application/problem+json` (RFC 9457) with our stable code, our fields and the next step."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from tidemill.errors import ChangedMeanwhile, Conflict, Fenced, NotFound, TidemillError, Unavailable, UserError
from tidemill.mill.access import Forbidden
from tidemill.mill.plain import to_plain
from tidemill.mill.run_tokens import OutOfReach
from tidemill.mill.tokens import Principal, Unauthorized
from tidemill.server.access import Forged, TooManyFailures
from tidemill.server.conditions import BadCondition
from tidemill.server.pages.render import render
from tidemill.server.proxies import UnknownUser
from tidemill.server.rates import TooManyRequests, TooManyStreams
from tidemill.server.sign_in import LOGIN, redirect_to_login

_log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER: Final = "1"
"""Seconds after which a caller may ask again, while the catalog is away."""

_MOST_ECHOED: Final = 5000
"""Characters of each text of a problem."""

_TITLES: Final = {
    400: "The request cannot be read",
    401: "Sign in",
    403: "A right is missing",
    404: "There is no such thing",
    405: "The route has another method",
    408: "The request took too long",
    409: "The state does not allow it",
    412: "The thing was changed by another caller",
    413: "The body is too large",
    415: "The body is of another type",
    421: "The request is for another host",
    422: "The request is refused",
    429: "Too many requests",
    500: "Tidemill failed",
    503: "Something outside is away",
}
_STATUSES: Final = (
    (Unauthorized, 401),
    (Forged, 403),
    (TooManyFailures, 429),
    (TooManyRequests, 429),
    (TooManyStreams, 429),
    (UnknownUser, 403),
    (Forbidden, 403),
    (OutOfReach, 403),
    (NotFound, 404),
    (BadCondition, 400),
    (UserError, 422),
    (ChangedMeanwhile, 412),
    (Conflict, 409),
    (Fenced, 409),
    (Unavailable, 503),
)


def status_of(error: TidemillError) -> int:
    """Return the status of the answer for an error: by what a caller can do about it."""
    return next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)


def problem(
    status: int, code: str, detail: str, request_id: str, fields: Mapping[str, object] | None = None
) -> Response:
    """Return the answer for an error."""
    document = {
        **{name: _cut(value) for name, value in to_plain(fields or {}).items()},
        "type": f"urn:tidemill:error:{code}",
        "title": _TITLES.get(status, "The request failed"),
        "status": status,
        "detail": _cut(detail),
        "code": code,
        "request_id": request_id,
    }
    headers = {}
    if status in (429, 503):
        headers["Retry-After"] = RETRY_AFTER
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(json.dumps(document), status, headers=headers, media_type=MEDIA_TYPE)


def _cut(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Return a text that is no echo of a huge body; any other value as it is."""
    return f"{value[:_MOST_ECHOED]}…" if isinstance(value, str) and len(value) > _MOST_ECHOED else value


def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer for an error of ours, a request that does not fit its route, or a defect.

    A browser that asked for a page gets a page.
    """
    found = _answer(request, error)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    wants_page = "text/html" in request.headers.get("accept", "") and not path.startswith("/v1/")
    if not wants_page:
        return found
    if found.status_code == 401 and request.method == "GET" and path != LOGIN:
        return redirect_to_login(request)
    document = json.loads(bytes(found.body))
    title, detail = document["title"], document["detail"]
    hint = (
        f"the next step: open {request.scope.get('root_path', '')}{LOGIN} to sign in"
        if found.status_code == 401
        else ""
    )
    page = render(request, "message.html", found.status_code, title=title, detail=detail, hint=hint)
    page.headers.update({name: found.headers[name] for name in ("retry-after",) if name in found.headers})
    return page


def _answer(request: Request, error: Exception) -> Response:
    request_id = getattr(request.state, "request_id", "")
    if isinstance(error, NotFound) and request.state.mill.project.access.only is not None:
        # The nearest name, and the hint, may be those of another namespace.
        error = NotFound(error.kind, error.name)
    match error:
        case TidemillError():
            status = status_of(error)
            if status >= 500:
                _note(request, request_id, error)
            found = problem(status, error.code, str(error), request_id, error.fields())
            if isinstance(error, TooManyFailures):
                found.headers["Retry-After"] = error.retry_after
            return found
        case RequestValidationError():
            return _refuse(error.errors(), request_id)
        case HTTPException():
            status = error.status_code
            code = {404: "no_route", 405: "no_method"}.get(status, "bad_request")
            found = problem(status, code, _advise(status, request), request_id)
            found.headers.update(error.headers or {})
            return found
        case _:
            _note(request, request_id, error)
            detail = f"Tidemill failed; its log has the reason under request {request_id}"
            return problem(500, "internal", detail, request_id)


def _note(request: Request, request_id: str, error: Exception) -> None:
    """Log a request that failed through no fault of its caller. The query is left out: a code may stand in it."""
    principal: Principal | None = getattr(request.state, "principal", None)
    fields = {
        "request_id": request_id,
        "route": f"{request.method} {request.url.path}",
        "caller": "" if principal is None else principal.name,
        "code": getattr(error, "code", "internal"),
    }
    _log.error("request %s failed: %s", request_id, error, exc_info=error, extra={"fields": fields})


def _advise(status: int, request: Request) -> str:
    if status == 404:
        return f"there is no route {request.url.path}; /v1/openapi.json lists the routes"
    if status == 405:
        return f"{request.url.path} has no method {request.method}; /v1/openapi.json lists the methods"
    return "the request cannot be read"


def _refuse(errors: Sequence[Any], request_id: str) -> Response:
    first = errors[0]
    if first["type"] == "json_invalid":
        return problem(400, "bad_json", f"the body is no JSON: {first['ctx']['error']}", request_id)
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    why = "is not known" if first["type"] == "extra_forbidden" else f"is refused: {first['msg']}"
    return problem(422, "bad_request", f"{where} {why}; nothing was changed", request_id, {"field": where})
