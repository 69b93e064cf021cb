"""The pages of what has happened: an app's deployments, a topic's messages, a transaction."""

from __future__ import annotations

from shlex import quote

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.server.pages.lists import (
    MESSAGE_COLUMNS,
    Column,
    section,
)
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, show_thing


def show_app(request: Request, name: str) -> HTMLResponse:
    """Return the page of an app: what belongs to it, and its deployments."""
    mill: Mill = request.state.mill
    app = mill.apps.show(name)
    columns = (
        Column("version", "Version", "number"),
        Column("deployed_at", "Deployed", "time"),
        Column("actor", "By"),
        Column("changes", "Changes", "long"),
    )
    history = mill.apps.history(name, limit=20)
    return show_thing(
        request,
        title=app.name,
        sub=f"app · version {app.version} · {app.file}",
        sections=[section("Deployments", history, columns, "none")],
        record=plain(app),
        left_out=("name", "version"),
        command=f"app show {app.name}",
    )


def show_topic(request: Request, topic: str) -> HTMLResponse:
    """Return the page of a topic: its messages, and the positions of its subscribers."""
    mill: Mill = request.state.mill
    page = mill.topics.read(topic, limit=50, after=request.query_params.get("after", ""))
    shown = dict(section("Messages", page, MESSAGE_COLUMNS, "no message behind this position"))
    shown["next"] = f"?after={page.next}" if page.next else None
    return show_thing(request, title=topic, sub="topic", sections=[shown], command=f"topic read {quote(topic)}")


def show_transaction(request: Request, write_pointer: int) -> HTMLResponse:
    """Return the page of a transaction: its state, and the changes that it published."""
    mill: Mill = request.state.mill
    found = mill.transactions.show(write_pointer)
    columns = (
        Column("dataset", "Data set", "name", "/datasets/{dataset}"),
        Column("partition", "Partition"),
        Column("op", "Change"),
        Column("rows", "Rows", "number"),
        Column("bytes", "Bytes", "bytes"),
    )
    ask = f"This aborts transaction {write_pointer}, and ends its run."
    abort = Action(
        "Abort", link("/v1/transactions", write_pointer) + ":abort", ask, "the transaction is aborted", danger=True
    )
    return show_thing(
        request,
        title=f"Transaction {write_pointer:,}",
        state=found.state,
        actions=[abort] if found.state == "in_progress" else (),
        links=[("Run", link("/runs", found.run_id))],
        sections=[section("Published", list(found.published), columns, "it published nothing")],
        record=plain(found),
        left_out=("published",),
        command=f"tx show {write_pointer}",
    )
