"""The routes of pages, each with the right that its operations need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from tidemill.mill.operation import Right
from tidemill.server.guard import guarded
from tidemill.server.pages.alert_page import show_alert
from tidemill.server.pages.consumer_page import show_consumer
from tidemill.server.pages.dataset_page import show_dataset
from tidemill.server.pages.explorer import DOCS, show_explorer
from tidemill.server.pages.flow import show_flow
from tidemill.server.pages.inbox_page import show_inbox
from tidemill.server.pages.lists import LISTS, ListPage
from tidemill.server.pages.log_pages import show_app, show_topic, show_transaction
from tidemill.server.pages.overview import show_overview
from tidemill.server.pages.run_page import show_run
from tidemill.server.pages.schedule_page import show_job, show_schedule
from tidemill.server.pages.search import show_search
from tidemill.server.pages.watermark_page import show_watermark
from tidemill.server.pages.why_page import show_why

_THINGS: Final[tuple[tuple[str, Callable[..., HTMLResponse]], ...]] = (
    ("/runs/{run_id}", show_run),
    ("/alerts/{alert_id}", show_alert),
    ("/jobs/{job_id}", show_job),
    ("/schedules/{name}", show_schedule),
    ("/datasets/{name}", show_dataset),
    ("/inboxes/{name}", show_inbox),
    ("/consumers/{dataset}/{name}", show_consumer),
    ("/watermarks/{name}", show_watermark),
    ("/apps/{name}", show_app),
    ("/topics/{topic}", show_topic),
    ("/transactions/{write_pointer}", show_transaction),
    ("/why/{thing:path}", show_why),
)
"""Pages of one thing."""


def add_pages(app: FastAPI) -> None:
    """Add all pages to the application."""
    _add(app, "/", show_overview)
    for page in LISTS:
        _add(app, page.path, _list_endpoint(page), right=page.right)
    for path, endpoint in _THINGS:
        _add(app, path, endpoint)
    _add(app, "/search", show_search)
    _add(app, "/flow", show_flow)
    app.add_api_route(DOCS, show_explorer, methods=["GET"], response_class=HTMLResponse, include_in_schema=False)
    app.mount("/static", StaticFiles(packages=[("tidemill.server.pages", "static")]), name="static")


def _add(app: FastAPI, path: str, endpoint: Callable[..., Any], *, right: Right = Right.READ) -> None:
    # A page shows what is around a thing, in whatever namespace: pages need the right in all of them.
    guard = guarded(right, whole=True)(endpoint)
    app.add_api_route(path, guard, methods=["GET"], response_class=HTMLResponse, include_in_schema=False)


def _list_endpoint(page: ListPage) -> Callable[..., HTMLResponse]:
    def endpoint(request: Request) -> HTMLResponse:
        return page.show(request)

    return endpoint
