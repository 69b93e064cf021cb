"""Errors as answers: `application/problem+json` (RFC 9457) with our stable code, our fields and the next step."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
OPENAPI: Final = "/v1/openapi.json"

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


@dataclass(frozen=True, slots=True)
class RequestProblem:
    """Why a request is not carried out, and the next step of its caller."""

    status: int
    code: str
    wrong: str
    hint: str
    before: str = "; "
    """The text between `wrong` and `hint`."""
    detail: str = ""
    """The whole sentence, if it is another one than that of `wrong` and `hint`."""
    fields: Mapping[str, object] = field(default_factory=dict)
    retry_after: int = 1
    """Seconds after which the caller may ask again, after 429 and 503."""
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, error: TidemillError, status: int | None = None) -> RequestProblem:
        """Return the problem that an error is, with another status than that of its kind if one is given."""
        return cls(
            status_of(error) if status is None else status,
            error.code,
            error.wrong,
            error.hint,
            detail=str(error),
            fields=error.fields(),
            retry_after=error.retry_after or 1,
        )

    def answer(self, request_id: str) -> Response:
        """Return the answer as JSON."""
        document = {
            **{name: _cut(value) for name, value in to_plain(self.fields).items()},
            "type": f"urn:tidemill:error:{self.code}",
            "title": self.title,
            "status": self.status,
            "detail": _cut(self.detail or f"{self.wrong}{self.before}{self.hint}"),
            "code": self.code,
            "wrong": _cut(self.wrong),
            "hint": _cut(self.hint),
            "request_id": request_id,
        }
        return Response(json.dumps(document), self.status, headers=self._headers(), media_type=MEDIA_TYPE)

    def show(self, request: Request) -> Response:
        """Return the answer as a page."""
        hint = self.hint
        if self.status == 401:
            hint = f"open {request.scope.get('root_path', '')}{LOGIN} to sign in"
        page = render(request, "message.html", self.status, title=self.title, detail=self.wrong, hint=hint)
        page.headers.update({name: text for name, text in self._headers().items() if name == "Retry-After"})
        return page

    @property
    def title(self) -> str:
        """The words for the status."""
        return _TITLES.get(self.status, "The request failed")

    def _headers(self) -> dict[str, str]:
        headers = dict(self.headers)
        if self.status in (429, 503):
            headers["Retry-After"] = str(self.retry_after)
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return headers


def _cut(value: Any) -> Any:  # noqa: ANN401  # JSON
    """Return a text that is no echo of a huge body; any other value as it is."""
    return f"{value[:_MOST_ECHOED]}…" if isinstance(value, str) and len(value) > _MOST_ECHOED else value


def answer_error(request: Request, error: Exception) -> Response:
    """Return the answer for an error of ours, a request that does not fit its route, or a defect.

    A browser that asked for a page gets a page.
    """
    request_id = getattr(request.state, "request_id", "")
    found = _find_problem(request, request_id, error)
    path = request.url.path.removeprefix(request.scope.get("root_path", ""))
    wants_page = "text/html" in request.headers.get("accept", "") and not path.startswith("/v1/")
    if not wants_page:
        return found.answer(request_id)
    if found.status == 401 and request.method == "GET" and path != LOGIN:
        return redirect_to_login(request)
    return found.show(request)


def _find_problem(request: Request, request_id: str, error: Exception) -> RequestProblem:
    match error:
        case TidemillError():
            found = RequestProblem.of(error)
            if found.status >= 500:
                _note(request, request_id, error)
            return found
        case RequestValidationError():
            return _refuse(error.errors())
        case HTTPException():
            return _advise(error, request)
        case _:
            _note(request, request_id, error)
            hint = f"its log has the reason under request {request_id}"
            return RequestProblem(500, "internal", "Tidemill failed", hint)


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


def _advise(error: HTTPException, request: Request) -> RequestProblem:
    status, path, headers = error.status_code, request.url.path, error.headers or {}
    if status == 404:
        return RequestProblem(
            404, "no_route", f"there is no route {path}", f"{OPENAPI} lists the routes", headers=headers
        )
    if status == 405:
        wrong = f"{path} has no method {request.method}"
        return RequestProblem(405, "no_method", wrong, f"{OPENAPI} lists the methods", headers=headers)
    hint = f"send it as {OPENAPI} describes the route"
    return RequestProblem(status, "bad_request", "the request cannot be read", hint, headers=headers)


def _refuse(errors: Sequence[Any]) -> RequestProblem:
    first = errors[0]
    if first["type"] == "json_invalid":
        return RequestProblem(400, "bad_json", f"the body is no JSON: {first['ctx']['error']}", "send JSON in UTF-8")
    where = ".".join(str(part) for part in first["loc"][1:]) or str(first["loc"][0])
    why = "is not known" if first["type"] == "extra_forbidden" else f"is refused: {first['msg']}"
    wrong, hint = f"{where} {why}; nothing was changed", f"{OPENAPI} says what the route takes"
    return RequestProblem(422, "bad_request", wrong, hint, fields={"field": where})
