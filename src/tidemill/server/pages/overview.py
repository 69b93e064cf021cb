"""The first page: what needs you, the feeds, what runs and what waits."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.mill.overview import MOST_AN_HOUR, MOST_COUNTED, FeedView, Need, OverviewTotals, RunningView
from tidemill.server.pages.render import link, plain, render

_NUMBERS: Final = ("All is well", "One thing needs", "Two things need", "Three things need")
_BUTTONS: Final = {
    "alert": "Open the alert",
    "failed": "Open the run",
    "late": "See why",
    "misdated": "See the watermark",
    "quarantine": "Look at it",
    "waits": "See why",
}
_KINDS: Final = {"inbox": "inbox", "fileset": "file set", "snapshot": "snapshot"}
_UNITS: Final = {"inbox": "file", "fileset": "partition", "snapshot": "version"}
_TALLEST: Final = 24
_NEARLY: Final = 97
"""A run that takes longer than usual stays at so many per cent."""


def show_overview(request: Request) -> HTMLResponse:
    """Return the page."""
    mill: Mill = request.state.mill
    found = mill.overview(after=request.query_params.get("after", ""))
    number, totals = len(found.needs), found.totals
    over = "over " if found.more_needs else ""
    heading = _NUMBERS[number] if number < len(_NUMBERS) else f"{over}{number} things need".capitalize()
    feeds = [_feed(one) for one in found.feeds]
    running, waiting = len(found.running), _number(totals.waiting)
    calm = "" if number else "nothing needs you · "
    return render(
        request,
        "overview.html",
        title="Overview",
        heading=f"{heading} you" if number else heading,
        sub=f"{calm}{_well(totals)} · {running} running · {waiting} waiting",
        needs=[_need(one) for one in found.needs],
        feeds=feeds,
        busiest=MOST_AN_HOUR if any(one["cut"] for one in feeds) else None,
        next=f"?{urlencode({'after': found.next})}" if found.next else None,
        running=[_running(one, found.at) for one in found.running],
        waiting=[plain(one) for one in found.waiting],
        more_waiting=totals.waiting > len(found.waiting),
        command="overview",
    )


def _number(counted: int) -> str:
    return f"{MOST_COUNTED:,}+" if counted > MOST_COUNTED else f"{counted:,}"


def _well(totals: OverviewTotals) -> str:
    if totals.feeds > MOST_COUNTED:
        return f"{_number(totals.unwell)} of {_number(totals.feeds)} feeds are late or failing"
    return f"{max(totals.feeds - totals.unwell, 0):,} of {totals.feeds:,} feeds are well"


def _need(need: Need) -> Mapping[str, Any]:
    words = need.look.split()
    if need.kind == "failed":
        target = link("/runs", words[-1])
    elif need.kind == "alert":
        target = link("/alerts", words[-1])
    elif need.kind == "misdated":
        target = link("/watermarks", need.thing)
    elif need.kind == "quarantine":
        target = link("/inboxes", need.thing) + "?state=QUARANTINED"
    else:
        target = link("/why", words[-1] if need.kind == "waits" else need.thing)
    rest = need.said.removeprefix(need.thing)
    return {**plain(need), "link": target, "button": _BUTTONS[need.kind], "rest": rest}


def _running(run: RunningView, at: datetime) -> Mapping[str, Any]:
    elapsed = at - (run.started_at or run.created_at)
    percent = min(int(100 * (elapsed / run.usual)), _NEARLY) if run.usual else None
    return {**plain(run), "elapsed": elapsed, "usual": run.usual, "percent": percent}


def _feed(feed: FeedView) -> Mapping[str, Any]:
    most = max(feed.arrivals) or 1
    cut = most > MOST_AN_HOUR
    number = f"over {MOST_COUNTED:,}" if feed.waiting > MOST_COUNTED else f"{feed.waiting:,}"
    unit = _UNITS.get(feed.kind, "item") + ("" if feed.waiting == 1 else "s")
    return {
        **plain(feed),
        "bars": [max(round(_TALLEST * one / most), 2) if one else 0 for one in feed.arrivals],
        "total": f"{'over ' if cut else ''}{sum(min(one, MOST_AN_HOUR) for one in feed.arrivals):,}",
        "cut": cut,
        "kind_words": _KINDS.get(feed.kind, feed.kind),
        "waiting_shown": f"{number} {unit}" if feed.waiting else "0",
        "link": link("/inboxes" if feed.kind == "inbox" else "/datasets", feed.name),
    }
