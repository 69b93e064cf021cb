"""The page of a watermark."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.server.pages.lists import Column, section
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import show_thing


def show_watermark(request: Request, name: str) -> HTMLResponse:
    """Return the page of a watermark: where it stands, what holds it, and the windows computed by it."""
    mill: Mill = request.state.mill
    watermark = mill.watermarks.show(name)
    slots = (Column("slot", "Slot", "name"), Column("have", "Has", "number"), Column("of", "Of", "number"))
    moves = (
        Column("moved_at", "Moved", "time"),
        Column("before", "From"),
        Column("after", "To", "name"),
        Column("cause", "By", "long"),
    )
    holders = (
        Column("write_pointer", "Transaction", "name", "/transactions/{write_pointer}"),
        Column("began_at", "Began", "time"),
    )
    programs = [plain(one) for one in watermark.programs]
    fields = [name for name in (programs[0] if programs else ()) if not isinstance(programs[0][name], list | dict)]
    return show_thing(
        request,
        title=watermark.dataset,
        sub=f"watermark of {watermark.column} · zone {watermark.zone}",
        links=[("File set", link("/datasets", watermark.dataset))],
        facts=[
            ("complete up to", watermark.watermark),
            ("would reach", watermark.reaches),
            ("holes", list(watermark.holes)),
        ],
        sections=[
            section("Held by", list(watermark.held_by), holders, "no open transaction holds it"),
            section("Incomplete slots", list(watermark.incomplete), slots, "no slot waits for partitions"),
            {
                **section("Window programs", [], tuple(Column(one, one.replace("_", " ")) for one in fields), "none"),
                "rows": programs,
            },
            section("Moves", list(watermark.moves), moves, "it has not moved yet"),
        ],
        record=plain(watermark),
        left_out=("moves", "held_by", "incomplete", "programs", "dataset"),
        command=f"watermark show {watermark.dataset}",
    )
