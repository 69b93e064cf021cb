"""The page of a search: what was found, and the pages of these things."""

from __future__ import annotations

from shlex import quote
from typing import Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.mill.search_result import Hit, HitKind
from tidemill.server.pages.columns import Column
from tidemill.server.pages.render import link, plain, render

_COLUMNS: Final = (
    Column("name", "Found", "name", "{page}"),
    Column("kind", "Kind"),
    Column("command", "Command", "code"),
)
_PAGES: Final = {
    HitKind.DATASET: "/datasets",
    HitKind.APP: "/apps",
    HitKind.SCHEDULE: "/schedules",
    HitKind.TOPIC: "/topics",
    HitKind.TRANSACTION: "/transactions",
    HitKind.RUN: "/runs",
    HitKind.JOB: "/jobs",
    HitKind.FILE: "/why",
    HitKind.PARTITION: "/why",
}


def show_search(request: Request, text: str = "") -> HTMLResponse:
    """Return the page."""
    mill: Mill = request.state.mill
    found = mill.search(text) if text.strip() else None
    hits = [] if found is None else [{**plain(one), "page": _page_of(one)} for one in found.hits]
    return render(
        request,
        "list.html",
        title=f"Search: {text}",
        sub="more was found than is shown; give more letters" if found and found.more else "",
        links=(),
        rows=hits,
        columns=_COLUMNS,
        acts=False,
        filters=[],
        filtered=False,
        empty="nothing begins so; give the first letters of a name, an id, a file or a partition",
        next=None,
        searched=text,
        command=f"search {quote(text)}",
    )


def _page_of(hit: Hit) -> str:
    match hit.kind:
        case HitKind.PROGRAM:
            return f"/runs?program={hit.name}"
        case HitKind.CONSUMER:
            dataset, _, name = hit.name.partition("/")
            return link("/consumers", dataset, name)
        case HitKind.ALERT_RULE:
            return f"/alerts?{urlencode({'rule': hit.name})}"
        case HitKind.SUBSCRIBER:
            return "/subscribers"
        case HitKind.HOOK:
            return "/topics/hook"
        case _:
            return link(_PAGES[hit.kind], hit.name)
