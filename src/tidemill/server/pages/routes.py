"""The routes of pages, each with the right that its operations need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from tidemill.mill.operation import Right
from tidemill.server.guard import guarded
from tidemill.server.pages import things
from tidemill.server.pages.lists import LISTS, ListPage
from tidemill.server.pages.overview import show_overview

_THINGS: Final[tuple[tuple[str, Callable[..., HTMLResponse], bool], ...]] = (
    ("/runs/{run_id}", things.show_run, False),
    ("/jobs/{job_id}", things.show_job, False),
    ("/schedules/{name}", things.show_schedule, False),
    ("/datasets/{name}", things.show_dataset, False),
    ("/inboxes/{name}", things.show_inbox, False),
    ("/consumers/{dataset}/{name}", things.show_consumer, False),
    ("/watermarks/{name}", things.show_watermark, False),
    ("/apps/{name}", things.show_app, False),
    ("/topics/{topic}", things.show_topic, True),
    ("/transactions/{write_pointer}", things.show_transaction, True),
    ("/why/{thing:path}", things.show_why, False),
)
"""Pages of one thing; the last field says that a page is about all namespaces."""


def add_pages(app: FastAPI) -> None:
    """Add all pages to the application."""
    _add(app, "/", show_overview)
    for page in LISTS:
        _add(app, page.path, _list_endpoint(page), right=page.right, whole=page.whole)
    for path, endpoint, whole in _THINGS:
        _add(app, path, endpoint, whole=whole)
    _add(app, "/search", _search)
    app.mount("/static", StaticFiles(packages=[("tidemill.server.pages", "static")]), name="static")


def _add(
    app: FastAPI, path: str, endpoint: Callable[..., Any], *, right: Right = Right.READ, whole: bool = False
) -> None:
    guard = guarded(right, whole=whole)(endpoint)
    app.add_api_route(path, guard, methods=["GET"], response_class=HTMLResponse, include_in_schema=False)


def _list_endpoint(page: ListPage) -> Callable[..., HTMLResponse]:
    def endpoint(request: Request) -> HTMLResponse:
        return page.show(request)

    return endpoint


def _search(request: Request, text: str = "") -> HTMLResponse:
    return things.find_page(request, text)
