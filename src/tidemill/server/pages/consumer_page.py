"""The page of a consumer."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.server.pages.lists import Column, section
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, show_thing
from tidemill.sizes import format_bytes


def show_consumer(request: Request, dataset: str, name: str) -> HTMLResponse:
    """Return the page of a consumer: its state, what is left, and what was given up."""
    mill: Mill = request.state.mill
    consumer = mill.consumers.show(dataset, name)
    path = link("/v1/consumers", dataset, name)
    actions = []
    if consumer.discarded:
        ask = f"This offers {consumer.discarded} discarded partitions again."
        actions.append(Action("Requeue", f"{path}:requeue", ask, "the partitions are offered again"))
    work = (
        Column("partition", "Partition", "name"),
        Column("state", "State", "state"),
        Column("failures", "Failures", "number"),
        Column("run_id", "Run", "text", "/runs/{run_id}"),
        Column("error", "Error", "long"),
    )
    return show_thing(
        request,
        title=consumer.name,
        sub=f"consumer of {consumer.dataset}",
        actions=actions,
        links=[("File set", link("/datasets", consumer.dataset))],
        facts=[
            ("waiting", consumer.waiting),
            ("bytes", format_bytes(consumer.bytes)),
            ("in progress", consumer.in_progress),
            ("discarded", consumer.discarded),
        ],
        sections=[section("Held and discarded", consumer.work[:100], work, "nothing is held or discarded")],
        record=plain(consumer),
        left_out=("work", "name", "dataset", "waiting", "bytes", "in_progress", "discarded"),
        command=f"consumer show {consumer.dataset} {consumer.name}",
    )
