"""Guard: one check for each route, and no route without one.

Each endpoint is marked with the right that it needs, or as open. The mark is the table of rights; `check_all_guarded`
refuses an application with a route that has none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from starlette.routing import Mount

from tidemill.errors import Internal
from tidemill.mill.operation import Right

if TYPE_CHECKING:
    from tidemill.server.access import Door

OPEN: Final = "open"
"""The mark of a route without a right: its answer holds nothing of the project."""
_MARK: Final = "__needs__"

Endpoint = Callable[..., Any]


class Unguarded(Internal):
    """A route without a declared right. The server does not start with one."""

    code = "unguarded_route"

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"the route {path} declares no right: use `guarded` or `open_to_all`")


def guarded(right: Right, *, whole: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Declare that an endpoint needs `right`; `request.state.mill` is then the `Mill` of the caller.

    A `whole` endpoint needs the right in all namespaces.
    """

    def decorate(endpoint: Endpoint) -> Endpoint:
        @wraps(endpoint)
        def enter(*arguments: Any, request: Request, **inputs: Any) -> Any:  # noqa: ANN401  # of any endpoint
            door: Door = request.app.state.door
            request.state.mill = door.enter(request, right, whole=whole)
            return endpoint(*arguments, request=request, **inputs)

        vars(enter)["__signature__"] = inspect.signature(endpoint)
        vars(enter)[_MARK] = (right, whole)
        return enter

    return decorate


def open_to_all(endpoint: Endpoint) -> Endpoint:
    """Declare that an endpoint needs no right."""
    vars(endpoint)[_MARK] = (OPEN, False)
    return endpoint


def right_of(endpoint: Endpoint) -> Right | str | None:
    """Return the declared right of an endpoint; `OPEN`, or None without a declaration."""
    mark: tuple[Right | str, bool] | None = getattr(endpoint, _MARK, None)
    return None if mark is None else mark[0]


def check_all_guarded(app: FastAPI) -> None:
    """Raise `Unguarded` for an application with a route that declares no right. Files of pages are open."""
    for route in app.routes:
        if isinstance(route, APIRoute) and right_of(route.endpoint) is None:
            raise Unguarded(route.path)
        if not isinstance(route, APIRoute | Mount):
            raise Unguarded(getattr(route, "path", str(route)))
