"""The page of a backfill: its progress, its items, what has failed and why; pause, resume, cancel, retry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.backfills import BackfillView
from tidemill.mill.mill import Mill
from tidemill.schedule.backfill_records import BackfillState, ItemState
from tidemill.server.pages.columns import STATE, WHY, Column
from tidemill.server.pages.data_view import command_of, number_of, query
from tidemill.server.pages.lists import section
from tidemill.server.pages.render import link, may_visit, plain
from tidemill.server.pages.start_page import PLAN
from tidemill.server.pages.thing import Action, show_thing

_CELLS: Final = 500
_ITEMS: Final = 50
_SHAPES: Final = {
    ItemState.DONE: "ok",
    ItemState.RUNNING: "run",
    ItemState.WAITING: "wait",
    ItemState.FAILED: "fail",
    ItemState.DROPPED: "off",
}
_ITEM: Final = (
    Column("no", "No", "number"),
    Column("item", "Item", "name"),
    STATE,
    Column("run_id", "Run", "text", "/runs/{run_id}"),
    WHY,
)


def show_backfill(request: Request, backfill_id: str, after: str = "") -> HTMLResponse:
    """Return the page of a backfill, with its first 500 items as cells, and a page of items."""
    mill: Mill = request.state.mill
    one = mill.backfills.show(backfill_id)
    cells = mill.backfills.items(backfill_id, limit=_CELLS)
    items = mill.backfills.items(backfill_id, limit=_ITEMS, after=after)
    failed = mill.backfills.items(backfill_id, state=ItemState.FAILED, limit=_ITEMS)
    ended = one.done + one.failed + one.dropped
    tables = [section("Items", items, _ITEM, "no more items", "in their order")]
    tables[0] = {**tables[0], "next": query(after=items.next) if items.next else None}
    if one.failed:
        tables.insert(0, section("Failed", failed, _ITEM, "none", f"the first {_ITEMS}" if failed.next else ""))
    return show_thing(
        request,
        title=one.backfill_id,
        state=one.state,
        sub=one.reason or f"{ended} of {number_of(one.items, 'item')} have ended: {100 * ended // max(one.items, 1)} %",
        actions=list(_actions(one)),
        links=list(_links(request, one)),
        facts=[
            ("program", one.program or "–"),
            ("done", one.done),
            ("running", f"{one.running} of {one.concurrency} at a time"),
            ("waiting", one.waiting),
            ("failed", one.failed),
            ("dropped", one.dropped),
        ],
        cells=[
            {
                "shape": _SHAPES[item.state],
                "link": link("/runs", item.run_id) if item.run_id else link("/backfills", backfill_id),
                "title": f"{item.item}: {item.state.lower()}{f', {item.why}' if item.why else ''}",
            }
            for item in cells
        ],
        cells_title="Progress",
        cells_sub=f"the first {_CELLS} items" if cells.next else "",
        sections=tables,
        record=plain(one),
        left_out=("backfill_id", "state", "reason", "done", "running", "waiting", "failed", "dropped"),
        command=command_of("backfill", "show", one.backfill_id),
    )


def _links(request: Request, one: BackfillView) -> Iterator[tuple[str, str]]:
    if one.program:
        yield "Its program", f"/runs{query(program=one.program)}"
        if may_visit(request, PLAN):
            yield "Plan another", f"{PLAN}{query(by=one.choice['by'], program=one.program)}"


def _actions(one: BackfillView) -> Iterator[Action]:
    path = link("/v1/backfills", one.backfill_id)
    under_way = number_of(one.running, "run")
    if one.state is BackfillState.RUNNING:
        ask = f"This makes no more runs: {one.waiting} items wait until it is resumed, {under_way} under way go on."
        yield Action("Pause", f"{path}:pause", ask, "the backfill is paused")
    if one.state is BackfillState.PAUSED:
        yield Action("Resume", f"{path}:resume", f"This makes runs of {one.waiting} items.", "the backfill goes on")
    if one.failed and one.state is not BackfillState.CANCELLED:
        yield Action("Retry", f"{path}:retry", f"This tries {one.failed} failed items again.", "the items wait again")
    if not one.state.over:
        ask = f"This drops {one.waiting} items for good; {under_way} under way go on."
        yield Action("Cancel", f"{path}:cancel", ask, "the backfill is cancelled", danger=True)
    if one.running:
        ask = f"This drops {one.waiting} items for good, and kills {under_way}."
        body = '{"kill": true}'
        yield Action("Cancel and kill", f"{path}:cancel", ask, "the runs are killed", body=body, danger=True)
