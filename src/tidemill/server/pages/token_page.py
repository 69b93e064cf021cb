"""The page of tokens: the callers of the server, for administrators."""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.access import Role
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.server.pages.columns import STATE, Column
from tidemill.server.pages.data_view import command_of, query
from tidemill.server.pages.lists import NOTHING_FITS, Filter
from tidemill.server.pages.render import ago, link, plain
from tidemill.server.pages.thing import Action, Field, Form, allowed, show_table

_PAGE: Final = 50
_COLUMNS: Final = (
    Column("name", "Token", "name"),
    STATE,
    Column("role", "Role"),
    Column("namespace", "Namespace"),
    Column("created_at", "Created", "time"),
    Column("created_by", "By"),
    Column("expires_at", "Expires", "time"),
    Column("last_used_at", "Last used", "time"),
    Column("prefix", "Begins", "code"),
)
_FILTERS: Final = (Filter("namespace", "Only namespace"), Filter("role", "Only role", tuple(Role)))
_CREATE: Final = Form(
    "Create a token",
    (
        Field("name", "Name", "nightly-import", required=True),
        Field("role", "Role", choices=tuple(Role)),
        Field("namespace", "Namespace", "all"),
        Field("expires", "Expires after", "90d"),
    ),
    path="/v1/tokens",
    done="the token is made",
)


def show_tokens(request: Request, after: str = "", namespace: str = "", role: str = "") -> HTMLResponse:
    """Return the page: tokens with their last use, a form for a new one, and their revocation."""
    mill: Mill = request.state.mill
    page = mill.tokens.list(namespace=namespace or None, role=role or None, limit=_PAGE, after=after)
    asked = {name: value for name, value in (("namespace", namespace), ("role", role)) if value}
    now = mill.project.world.clock.now()
    rows: list[dict[str, Any]] = []
    for one in page:
        ended = one.ended_at or (one.expires_at if one.expires_at and one.expires_at <= now else None)
        used = "unused" if one.last_used_at is None else "active"
        last = "It was never used." if one.last_used_at is None else f"It was last used {ago(one.last_used_at, now)}."
        ask = f"This revokes {one.name}: all servers refuse it at once. {last} It cannot be taken back."
        path = link("/v1/tokens", one.name) + ":revoke"
        revoke = Action("Revoke", path, ask, f"{one.name} is revoked", Right.ADMIN, danger=True)
        state = "revoked" if one.ended_at else "expired" if ended else used
        actions = allowed(request, () if ended else (revoke,))
        rows.append(
            {
                **plain(one),
                "namespace": "all" if one.namespace == "*" else one.namespace,
                "state": state,
                "actions": actions,
            }
        )
    sub = "viewers read; operators also start, stop and resume; developers also deploy and publish; admins do all"
    table = {
        "title": "Tokens",
        "sub": "",
        "rows": rows,
        "columns": _COLUMNS,
        "empty": NOTHING_FITS if asked else "no tokens yet; `tidemill token create NAME --role viewer` creates one",
        "next": query(**asked, after=page.next) if page.next else None,
        "acts": True,
    }
    options = {**asked, "after": after} if after else asked
    return show_table(
        request,
        title="Tokens",
        sub=sub,
        form=_CREATE,
        filters=[(one, asked.get(one.name, "")) for one in _FILTERS],
        filtered=bool(options),
        sections=[table],
        command=command_of("token", "list", **options),
    )
