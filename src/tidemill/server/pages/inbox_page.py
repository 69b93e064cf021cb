"""The page of an inbox."""

from __future__ import annotations

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.server.pages.lists import (
    FILE_COLUMNS,
    section,
)
from tidemill.server.pages.render import link, plain, state_of
from tidemill.server.pages.thing import Action, show_thing


def show_inbox(request: Request, name: str) -> HTMLResponse:
    """Return the page of an inbox: files by state, quarantine with its ways out."""
    mill: Mill = request.state.mill
    inbox = mill.inboxes.show(name)
    state = request.query_params.get("state", "")
    files = mill.inboxes.files(
        name, limit=50, after=request.query_params.get("after", ""), **({"state": state} if state else {})
    )
    bad = inbox.files.get("QUARANTINED", 0)
    path = link("/v1/inboxes", inbox.inbox)
    actions = [Action("Look now", f"{path}:scan", f"This lists the folder of {inbox.inbox}.", "the folder was listed")]
    if failing := inbox.files.get("ERROR", 0):
        ask = f"This tries {failing} files again at once, without their back-off."
        actions.append(Action("Retry", f"{path}:retry", ask, "the files are offered again"))
    shown = dict(section("Files", files, FILE_COLUMNS, "no file yet"))
    following = f"?after={files.next}" + (f"&state={state}" if state else "")
    shown["next"] = following if files.next else None
    links = [(f"Only {one.lower().replace('_', ' ')}", f"/inboxes/{inbox.inbox}?state={one}") for one in inbox.files]
    return show_thing(
        request,
        title=inbox.inbox,
        state=inbox.expectation.state if inbox.expectation else "",
        sub=f"inbox · {inbox.location}" + (f" · {bad} in quarantine" if bad else ""),
        actions=actions,
        links=links,
        facts=[(state_of(one)[2], number) for one, number in inbox.files.items()],
        sections=[shown],
        record=plain(inbox),
        left_out=("inbox", "files", "expectation"),
        command=f"inbox show {inbox.inbox}",
    )
