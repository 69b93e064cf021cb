"""The page of an explanation."""

from __future__ import annotations

from shlex import quote
from typing import Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.mill.why import ThingKind
from tidemill.server.pages.render import link, render
from tidemill.server.pages.steps import view_reasons

_TRACED: Final = frozenset({ThingKind.RUN, ThingKind.PARTITION, ThingKind.FILE, ThingKind.DATASET})
_PAGES: Final = {
    ThingKind.JOB: "/jobs",
    ThingKind.RUN: "/runs",
    ThingKind.DATASET: "/datasets",
    ThingKind.SCHEDULE: "/schedules",
}


def show_why(request: Request, thing: str) -> HTMLResponse:
    """Return the page of an explanation: one sentence, then the reasons with their evidence."""
    mill: Mill = request.state.mill
    found = mill.why(thing)
    return render(
        request,
        "why.html",
        title=found.thing,
        kind=found.kind.value,
        state=found.state,
        sentence=found.because[0].why if found.because else "nothing is known about it",
        reasons=view_reasons(found.because),
        also=found.also,
        page=link(_PAGES[found.kind], found.thing) if found.kind in _PAGES else "",
        traced=f"/lineage?{urlencode({'thing': found.thing})}" if found.kind in _TRACED and found.state != "-" else "",
        command=f"why {quote(thing)}",
    )
