"""The page of a data set."""

from __future__ import annotations

from typing import Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.server.pages.inbox_page import show_inbox
from tidemill.server.pages.lists import (
    CONSUMER_COLUMNS,
    PARTITION_COLUMNS,
    VERSION_COLUMNS,
    Column,
    section,
)
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import show_thing
from tidemill.sizes import format_bytes


def show_dataset(request: Request, name: str) -> HTMLResponse:
    """Return the page of a data set: partitions or versions, consumers, columns."""
    mill: Mill = request.state.mill
    dataset = mill.datasets.show(name)
    if dataset.kind == "inbox":
        return show_inbox(request, name)
    sections, cells = [], []
    if dataset.kind == "snapshot":
        versions = mill.snapshots.versions(name, limit=50)
        sections.append(section("Versions", versions, VERSION_COLUMNS, "no version yet"))
    else:
        page = mill.datasets.partitions(name, limit=200, after=request.query_params.get("after", ""))
        most = max((one.rows for one in page), default=1) or 1
        cells = [
            {
                "shape": f"s{min(4 * one.rows // most + 1, 4)}",
                "link": link("/runs", one.run_id),
                "title": f"{one.partition}: {one.rows:,} rows, {format_bytes(one.bytes)}",
            }
            for one in page
        ]
        shown = dict(section("Partitions", page[:50], PARTITION_COLUMNS, "no partition yet"))
        shown["next"] = f"?after={page.next}" if page.next else None
        sections.append(shown)
        consumers = mill.consumers.list(dataset=name, limit=50)
        sections.append(section("Consumers", consumers, CONSUMER_COLUMNS, "no program consumes it"))
    sections.append(
        section("Schedules that listen", mill.schedules.triggered_by(name, limit=50), _LISTENERS, "no schedule listens")
    )
    links = [("Why", link("/why", dataset.name)), ("Lineage", f"/flow?around={dataset.name}")]
    if dataset.spec.get("watermark"):
        links.append(("Watermark", link("/watermarks", dataset.name)))
    return show_thing(
        request,
        title=dataset.name,
        state=dataset.expectation.state if dataset.expectation else "",
        sub=f"{dataset.kind} · {dataset.location}",
        links=links,
        facts=[
            ("partitions", dataset.partitions if dataset.partitions is not None else "–"),
            ("files", dataset.files),
            ("rows", dataset.rows),
            ("bytes", format_bytes(dataset.bytes)),
            ("expected", dataset.expectation.expect if dataset.expectation else "–"),
        ],
        cells=cells,
        cells_title="Partitions by key",
        cells_sub="darker means more rows",
        sections=sections,
        record=plain(dataset),
        left_out=("name", "partitions", "files", "rows", "bytes", "expectation"),
        command=f"dataset show {dataset.name}",
    )


_LISTENERS: Final = (
    Column("name", "Schedule", "name", "/schedules/{name}"),
    Column("status", "State", "state"),
    Column("trigger", "Trigger", "long"),
)
