"""The pages of what has happened: an app's deployments, topics and their messages, transactions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from datetime import datetime, timedelta
from shlex import quote
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.app.deployments import Deployment
from tidemill.catalog.transactions import TxState
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.mill.page import Page
from tidemill.mill.project import MOST_SHOWN
from tidemill.mill.transactions import TransactionDetail
from tidemill.server.pages.columns import BYTES, DATASET, ROWS, RUN, STATE, Column
from tidemill.server.pages.data_view import number_of
from tidemill.server.pages.lists import MESSAGE_COLUMNS, Filter, section
from tidemill.server.pages.render import link, plain, span
from tidemill.server.pages.thing import Action, allowed, show_page, show_table

_DEPLOYMENTS: Final = 10
_UNDONE: Final = 5
"""The most changes that the question before a rollback names."""
_OWNED: Final = 50
_MESSAGES: Final = 50
_TRANSACTIONS: Final = 50
_OPEN: Final = 20
_STATE: Final = Filter("state", "State", tuple(one.value for one in TxState))
_HELD: Final = "an open transaction holds back cleaning, and watermarks of what it writes"
_TRANSACTION: Final = (
    Column("write_pointer", "Write pointer", "name", "/transactions/{write_pointer}"),
    STATE,
    Column("began_at", "Began", "time"),
    Column("ended_at", "Ended", "time"),
    RUN,
    Column("reason", "Reason", "long"),
)
_OPENED: Final = (
    *_TRANSACTION[:1],
    Column("who", "Who"),
    Column("began_at", "Open since", "time"),
    Column("leased_until", "Lease ends", "time"),
    Column("writes", "May write", "long"),
    RUN,
)
_PUBLISHED: Final = (
    DATASET,
    Column("partition", "Partition"),
    Column("op", "Change"),
    ROWS,
    BYTES,
)
_SUBSCRIBERS: Final = (
    Column("name", "Subscriber", "name"),
    Column("belongs", "Belongs to"),
    Column("position", "Has read up to"),
    Column("is_at", "Is"),
)
_QUARANTINED: Final = (
    Column("position", "Position", "name"),
    Column("event_key", "Key", "long"),
    Column("subscriber", "Subscriber"),
    Column("reason", "Reason", "long"),
    Column("quarantined_at", "Quarantined", "time"),
)


def show_app(request: Request, name: str, after: str = "") -> HTMLResponse:
    """Return the page of an app: its deployments with what each changed, and what belongs to it."""
    mill: Mill = request.state.mill
    app = mill.apps.show(name)
    history = mill.apps.history(app.name, limit=_DEPLOYMENTS, after=after)
    path = link("/v1/apps", app.name)
    numbers = f"{len(app.schedules)} schedules with their pending jobs; {len(app.datasets)} data sets stay"
    ask = f"This undoes the deployment of {app.name}: it deletes {numbers}."
    delete = Action("Delete", path, ask, "the app is deleted", Right.DEPLOY, "DELETE", danger=True, then="/apps")
    return show_page(
        request,
        "app.html",
        actions=[delete],
        title=app.name,
        app=app,
        history=[
            _deployment(request, path, app.version, one, _say_undone(history, one, app.version)) for one in history
        ],
        owned=[
            (title, page, names[:_OWNED], len(names))
            for title, page, names in (
                ("Data sets", "/datasets/", app.datasets),
                ("Programs", "/runs?program=", app.programs),
                ("Schedules", "/schedules/", app.schedules),
            )
        ],
        next=_following(history),
        command=f"app history {quote(app.name)}",
    )


def _say_undone(history: Page[Deployment], to: Deployment, current: int) -> str:
    """Return a sentence about the changes that a rollback undoes, as far as a page of deployments has them."""
    later = [one for one in history if one.version > to.version]
    versions = f"version {current}" if current == to.version + 1 else f"versions {to.version + 1} to {current}"
    if not later or later[0].version != current:
        return f"It undoes {versions}."
    lines = [line for one in later for line in one.changes]
    if not lines:
        return f"It undoes {versions}, which changed code alone."
    more = f"; and {len(lines) - _UNDONE:,} more" if len(lines) > _UNDONE else ""
    return f"It undoes {number_of(len(lines), 'change')} of {versions}: {'; '.join(lines[:_UNDONE])}{more}."


def _deployment(request: Request, path: str, current: int, one: Deployment, undone: str) -> Mapping[str, Any]:
    actions = []
    if one.kept and one.version != current:
        ask = (
            f"This deploys version {one.version} again, as a new version. {undone} Attempts under way keep their code."
        )
        body = json.dumps({"to": one.version})
        label, done = f"Roll back to version {one.version}", f"version {one.version} is deployed again"
        actions = allowed(request, [Action(label, f"{path}:rollback", ask, done, Right.DEPLOY, body=body, danger=True)])
    return {**plain(one), "action": actions[0] if actions else None}


def show_topic(request: Request, topic: str, after: str = "", bad_after: str = "") -> HTMLResponse:
    """Return the page of a topic: the positions of its subscribers, its messages, and those that none could read."""
    mill: Mill = request.state.mill
    page = mill.topics.read(topic, limit=_MESSAGES, after=after)
    found = mill.topics.show(topic)
    quarantined = mill.topics.quarantined(topic, limit=_MESSAGES, after=bad_after)
    newest = found.newest
    readers = [
        {
            "name": name,
            "belongs": belongs,
            "position": position,
            "is_at": "at the newest message" if position == newest else "behind",
        }
        for belongs, positions in (("Tidemill", found.subscribers), ("another system", found.outside))
        for name, position in positions.items()
    ]
    messages = dict(section("Messages", page, MESSAGE_COLUMNS, "no message behind this position", _place(after)))
    messages["next"] = _following(page)
    bad = dict(section("Quarantined", quarantined, _QUARANTINED, "every message could be read"))
    bad["next"] = _following(quarantined, "bad_after")
    return show_table(
        request,
        title=topic,
        sub=f"topic · newest message {newest}" if newest else "topic without messages",
        links=[("From the first message", "?after=0"), ("Newest messages", "?")] if newest else (),
        sections=[section("Subscribers", readers, _SUBSCRIBERS, "no subscriber has read it yet"), messages, bad],
        command=f"topic read {quote(topic)}" + (f" --after {quote(after)}" if after else ""),
    )


def _place(after: str) -> str:
    return f"behind {after}" if after else "the newest"


def show_transactions(request: Request, after: str = "", state: str = "") -> HTMLResponse:
    """Return the page of transactions: those that are open, the oldest first, then all, the newest first.

    With a state, the page has the transactions in that state alone.
    """
    mill: Mill = request.state.mill
    if state:
        return _show_in_state(request, state, after)
    at = mill.project.world.clock.now()
    newest = mill.transactions.list(limit=_TRANSACTIONS, after=after)
    opened = mill.transactions.list(open_only=True, limit=_OPEN)
    more = ", and more" if opened.next else ""
    every = dict(section("All", newest, _TRANSACTION, "no transactions yet", "newest first"))
    every["next"] = _following(newest)
    details = [mill.transactions.show(one.write_pointer) for one in opened]
    found = {
        **section(f"Open ({len(opened)}{more})", (), _OPENED, "no transaction is open", "oldest first"),
        "rows": [
            {**plain(one), "who": _name_owner(one), "actions": allowed(request, [_abort(one, at)])} for one in details
        ],
        "acts": True,
    }
    sections = [every] if after else [found, every]
    command = f"tx list --after {quote(after)}" if after else "tx list --open"
    return show_table(
        request,
        title="Transactions",
        sub=_HELD,
        filters=[(_STATE, "")],
        filtered=bool(after),
        sections=sections,
        command=command,
    )


def _show_in_state(request: Request, state: str, after: str) -> HTMLResponse:
    mill: Mill = request.state.mill
    found = mill.transactions.list(state=state, limit=_TRANSACTIONS, after=after)
    order = "oldest first" if state == TxState.IN_PROGRESS else "newest first"
    table = dict(section("Transactions in this state", found, _TRANSACTION, "nothing fits", order))
    table["next"] = f"?{urlencode({'state': state, 'after': found.next})}" if found.next else None
    words = ["tx", "list", "--state", state, *(["--after", after] if after else [])]
    return show_table(
        request,
        title="Transactions",
        sub=_HELD,
        filters=[(_STATE, state)],
        filtered=True,
        sections=[table],
        command=shlex.join(words),
    )


def show_transaction(request: Request, write_pointer: int) -> HTMLResponse:
    """Return the page of a transaction: its state, and the changes that it published."""
    mill: Mill = request.state.mill
    found, at = mill.transactions.show(write_pointer), mill.project.world.clock.now()
    rows = sum(one.rows for one in found.published)
    empty = "nothing is published before the commit" if found.state == "in_progress" else "it published nothing"
    changes = number_of(len(found.published), "change", most=MOST_SHOWN)
    said = f"{changes}, {number_of(rows, 'row')}" if found.published else ""
    return show_table(
        request,
        title=f"Transaction {write_pointer:,}",
        state=found.state,
        sub=found.reason or (f"committed as {found.commit_seq:,}" if found.commit_seq else _say_open(found, at)),
        actions=[_abort(found, at)] if found.state == "in_progress" else (),
        links=[("Run", link("/runs", found.run_id))],
        sections=[section("Published", list(found.published), _PUBLISHED, empty, said)],
        record=plain(found),
        left_out=("published", "outside"),
        command=f"tx show {write_pointer}",
    )


def _name_owner(one: TransactionDetail) -> str:
    """Return the owner of a transaction: the name that an outside writer gave, or the runner of its run."""
    return f"{one.owner or 'a caller'}, outside" if one.outside else one.owner or "–"


def _say_open(one: TransactionDetail, at: datetime) -> str:
    since = f"open for {span(at - one.began_at)}, by {_name_owner(one)}"
    if one.leased_until is None:
        return since
    left = one.leased_until - at
    lease = f"its lease ends in {span(left)}" if left > timedelta(0) else f"its lease ended {span(-left)} ago"
    return f"{since}; {lease} unless it is renewed"


def _abort(one: TransactionDetail, at: datetime) -> Action:
    number = len(one.writes)
    may = f" It may write {number_of(number, 'file set')}: {', '.join(one.writes)}." if number else ""
    ask = (
        f"This aborts transaction {one.write_pointer} of {_name_owner(one)}, which has been open for "
        f"{span(at - one.began_at)}, and ends run {one.run_id}.{may} What it has written stays invisible, its input is "
        "offered again, and its commit is refused."
    )
    path = link("/v1/transactions", one.write_pointer) + ":abort"
    return Action("Abort", path, ask, "the transaction is aborted", danger=True)


def _following(page: Page[Any], name: str = "after") -> str | None:
    return f"?{urlencode({name: page.next})}" if page.next else None
