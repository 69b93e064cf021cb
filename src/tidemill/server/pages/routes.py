"""The routes of pages, each with the right that its operations need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from tidemill.mill.operations import OPERATIONS, Operation
from tidemill.server.guard import guarded
from tidemill.server.pages.alert_page import show_alert, show_alerts
from tidemill.server.pages.alert_rule_page import show_rules
from tidemill.server.pages.backfill_page import show_backfill
from tidemill.server.pages.consumer_page import show_consumer
from tidemill.server.pages.dataset_page import show_dataset
from tidemill.server.pages.explorer import DOCS, show_explorer
from tidemill.server.pages.flow import show_flow
from tidemill.server.pages.inbox_page import show_inbox
from tidemill.server.pages.lineage_page import show_lineage
from tidemill.server.pages.lists import LISTS, ListPage
from tidemill.server.pages.log_pages import show_app, show_topic, show_transaction, show_transactions
from tidemill.server.pages.overview import show_overview
from tidemill.server.pages.partition_page import show_partition
from tidemill.server.pages.run_page import show_run
from tidemill.server.pages.schedule_page import show_job, show_schedule
from tidemill.server.pages.search import show_search
from tidemill.server.pages.start_page import PLAN, START, show_plan, show_start
from tidemill.server.pages.token_page import show_tokens
from tidemill.server.pages.watermark_page import show_watermark
from tidemill.server.pages.why_page import show_why

PAGES_OF_THINGS: Final[tuple[tuple[str, str, Callable[..., HTMLResponse]], ...]] = (
    ("/", "overview", show_overview),
    ("/runs/{run_id}", "run.show", show_run),
    (START, "run.start", show_start),
    ("/backfills/{backfill_id}", "backfill.show", show_backfill),
    (PLAN, "backfill.plan", show_plan),
    ("/alerts/{alert_id}", "alert.show", show_alert),
    ("/jobs/{job_id}", "job.show", show_job),
    ("/schedules/{name}", "schedule.show", show_schedule),
    ("/datasets/{name}", "dataset.show", show_dataset),
    ("/datasets/{name}/{key:path}", "dataset.partition", show_partition),
    ("/inboxes/{name}", "inbox.show", show_inbox),
    ("/consumers/{dataset}/{name}", "consumer.show", show_consumer),
    ("/watermarks/{name}", "watermark.show", show_watermark),
    ("/apps/{name}", "app.show", show_app),
    ("/topics/{topic}", "topic.read", show_topic),
    ("/transactions/{write_pointer}", "tx.show", show_transaction),
    ("/why/{thing:path}", "why", show_why),
    ("/search", "search", show_search),
    ("/alerts", "alert.list", show_alerts),
    ("/alert-rules", "alert.rules", show_rules),
    ("/transactions", "tx.list", show_transactions),
    ("/tokens", "token.list", show_tokens),
    ("/flow", "flow", show_flow),
    ("/lineage", "dataset.lineage", show_lineage),
)
"""Pages that are no lists, each with its operation."""


def add_pages(app: FastAPI) -> None:
    """Add all pages to the application. A page needs the right of its operation, in all namespaces or in one."""
    needs = {one.action: one for one in OPERATIONS}
    app.state.page_needs = {}
    for page in LISTS:
        _add(app, page.path, needs[page.operation], _list_endpoint(page))
    for path, action, endpoint in PAGES_OF_THINGS:
        _add(app, path, needs[action], endpoint)
    app.add_api_route(DOCS, show_explorer, methods=["GET"], response_class=HTMLResponse, include_in_schema=False)
    app.mount("/static", StaticFiles(packages=[("tidemill.server.pages", "static")]), name="static")


def _add(app: FastAPI, path: str, operation: Operation, endpoint: Callable[..., Any]) -> None:
    app.state.page_needs[path] = (operation.right, operation.mark.whole)
    guard = guarded(operation.right, whole=operation.mark.whole)(endpoint)
    app.add_api_route(path, guard, methods=["GET"], response_class=HTMLResponse, include_in_schema=False)


def _list_endpoint(page: ListPage) -> Callable[..., HTMLResponse]:
    def endpoint(request: Request) -> HTMLResponse:
        return page.show(request)

    return endpoint
