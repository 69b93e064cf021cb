"""Guard: one check for each route, before its body is read, and no route without one.

Each endpoint is marked with the right that it needs, or as open. The marks are the table of rights; `check_all_guarded`
refuses an application with a route that has none.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.routing import Mount

from tidemill.errors import Internal
from tidemill.mill.operation import Right

if TYPE_CHECKING:
    from tidemill.server.access import Door

OPEN: Final = "open"
"""The mark of a route without a right: its answer holds nothing of the project."""
_MARK: Final = "__needs__"
_OWN: Final = "__own__"

Endpoint = Callable[..., Any]


class Unguarded(Internal):
    """A route without a declared right. The server does not start with one."""

    code = "unguarded_route"

    def __init__(self, path: str) -> None:
        self.path = path
        super().__init__(f"the route {path} declares no right", "use `guarded` or `open_to_all`", before=": ")


def guarded(right: Right, *, whole: bool = False, own: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Declare that an endpoint needs `right`; `request.state.mill` is then the `Mill` of the caller.

    A `whole` endpoint needs the right in all namespaces. An `own` one is for a run's own token too, if its path names
    things of the run.
    """

    def decorate(endpoint: Endpoint) -> Endpoint:
        vars(endpoint)[_MARK], vars(endpoint)[_OWN] = (right, whole), own
        return endpoint

    return decorate


def open_to_all(endpoint: Endpoint) -> Endpoint:
    """Declare that an endpoint needs no right."""
    vars(endpoint)[_MARK] = (OPEN, False)
    return endpoint


def needs_of(endpoint: Endpoint) -> tuple[Right | str | None, bool]:
    """Return the declared right of an endpoint (`OPEN`, or None without one), and whether it is of all namespaces."""
    mark: tuple[Right | str, bool] | None = getattr(endpoint, _MARK, None)
    return (None, False) if mark is None else mark


def is_for_runs(endpoint: Endpoint) -> bool:
    """Return whether a run's own token may ask an endpoint for the things of the run."""
    return getattr(endpoint, _OWN, False)


class GuardedRoute(APIRoute):
    """A route that lets its caller in first: a body of a stranger is not parsed."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        mark: tuple[Right, bool] | None = getattr(self.endpoint, _MARK, None)
        if mark is None:
            raise Unguarded(self.path)
        (right, whole), own = mark, is_for_runs(self.endpoint)
        if right == OPEN:
            return answer

        async def enter(request: Request) -> Response:
            door: Door = request.app.state.door
            request.state.mill = await run_in_threadpool(door.enter, request, right, whole=whole, own=own)
            response = await answer(request)
            if seed := getattr(request.state, "new_seed", ""):
                door.keep_seed(response, seed)
            return response

        return enter


def check_all_guarded(app: FastAPI) -> None:
    """Raise `Unguarded` for an application with a route that declares no right. Files of pages are open."""
    for route in app.routes:
        if not isinstance(route, GuardedRoute | Mount):
            raise Unguarded(getattr(route, "path", str(route)))
