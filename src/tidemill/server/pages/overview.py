"""The first page: what needs you, the feeds, what runs and what waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.mill.overview import MOST_COUNTED, FeedView, Need
from tidemill.server.pages.render import link, plain, render

_NUMBERS: Final = ("Nothing needs", "One thing needs", "Two things need", "Three things need")
_BUTTONS: Final = {"alert": "Open the alert", "failed": "Open the run", "late": "See why", "quarantine": "Look at it"}
_TALLEST: Final = 24


def show_overview(request: Request) -> HTMLResponse:
    """Return the page."""
    mill: Mill = request.state.mill
    found = mill.overview(after=request.query_params.get("after", ""))
    number = len(found.needs)
    heading = _NUMBERS[number] if number < len(_NUMBERS) else f"{number} things need"
    feeds = [_feed(one) for one in found.feeds]
    good = sum(one.state in {"fresh", "filling", "quiet"} for one in found.feeds)
    running, waiting = len(found.running), len(found.waiting)
    return render(
        request,
        "overview.html",
        title="Overview",
        heading=f"{heading} you",
        sub=f"{good} of {len(feeds)} feeds are well · {running} running · {waiting} waiting",
        needs=[_need(one) for one in found.needs],
        feeds=feeds,
        next=f"?{urlencode({'after': found.next})}" if found.next else None,
        running=[plain(one) for one in found.running],
        waiting=[plain(one) for one in found.waiting],
        command="overview",
    )


def _need(need: Need) -> Mapping[str, Any]:
    words = need.look.split()
    if need.kind == "failed":
        target = link("/runs", words[-1])
    elif need.kind == "alert":
        target = link("/alerts", words[-1])
    elif need.kind == "quarantine":
        target = link("/inboxes", need.thing) + "?state=QUARANTINED"
    else:
        target = link("/why", need.thing)
    return {**plain(need), "link": target, "button": _BUTTONS[need.kind]}


def _feed(feed: FeedView) -> Mapping[str, Any]:
    most = max(feed.arrivals) or 1
    shown = f"over {MOST_COUNTED:,}" if feed.waiting > MOST_COUNTED else f"{feed.waiting:,}"
    return {
        **plain(feed),
        "bars": [round(_TALLEST * one / most) if one else 0 for one in feed.arrivals],
        "total": sum(feed.arrivals),
        "waiting_shown": shown,
        "link": link("/inboxes" if feed.kind == "inbox" else "/datasets", feed.name),
    }
