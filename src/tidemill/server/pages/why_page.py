"""The page of an explanation."""

from __future__ import annotations

from shlex import quote

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.server.pages.thing import show_thing


def show_why(request: Request, thing: str) -> HTMLResponse:
    """Return the page of an explanation: one sentence, then the reasons with their evidence."""
    mill: Mill = request.state.mill
    found = mill.why(thing)
    first = found.because[0].why if found.because else ""
    return show_thing(
        request,
        title=found.thing,
        state=found.state,
        sub=f"{found.kind} · {first}",
        because=found.because,
        command=f"why {quote(thing)}",
    )
