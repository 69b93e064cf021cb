"""The page of an alert."""

from __future__ import annotations

import json
from typing import Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.server.pages.lists import Column, section
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, show_thing

_DELIVERIES: Final = (
    Column("target", "Target", "name"),
    Column("event", "Event"),
    Column("state", "State", "state"),
    Column("attempt", "Tries", "number"),
    Column("made_at", "Written", "time"),
    Column("ended_at", "Ended", "time"),
    Column("error", "Error", "long"),
)


def show_alert(request: Request, alert_id: str) -> HTMLResponse:
    """Return the page of an alert: what is wrong, since when, and the notices about it."""
    mill: Mill = request.state.mill
    alert = mill.alerts.show(alert_id)
    path, rule = link("/v1/alerts", alert_id), link("/v1/alerts", alert.rule)
    actions = []
    if alert.state == "OPEN":
        ask = "This says that you work on it. Targets are notified of that, and not again before the end."
        actions.append(Action("Acknowledge", f"{path}:acknowledge", ask, "the alert is acknowledged"))
    if alert.state != "RESOLVED":
        ask = f"This sends nothing about {alert.rule} for an hour. Its alerts open and end as before."
        body = json.dumps({"duration": "1h"})
        actions.append(Action("Silence for 1 h", f"{rule}:silence", ask, "the rule is silent", body=body))
    return show_thing(
        request,
        title=alert.rule,
        state=alert.state,
        sub=f"{alert.subject} · {alert.why}",
        actions=actions,
        links=[("Why", link("/why", alert.subject)), ("Rules", "/alert-rules")],
        sections=[section("Notices", mill.alerts.deliveries(alert=alert_id), _DELIVERIES, "nothing was sent")],
        record=plain(alert),
        left_out=("why",),
        command=f"alert show {alert_id}",
    )
