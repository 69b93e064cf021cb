"""The pages of an alert, and of the rules that open alerts."""

from __future__ import annotations

import json
from datetime import datetime
from shlex import quote
from typing import Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.alerts.alerts import AlertState
from tidemill.mill.alerts import AlertRuleView, AlertView
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.server.pages.lists import Column, section
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, allowed, show_page, show_table, show_thing

_DELIVERIES: Final = (
    Column("target", "Target", "name"),
    Column("event", "Event"),
    Column("state", "State", "state"),
    Column("attempt", "Tries", "number"),
    Column("made_at", "Written", "time"),
    Column("ended_at", "Ended", "time"),
    Column("error", "Error", "long"),
)


_ENDED: Final = (
    Column("rule", "Rule", "name", "/alerts/{alert_id}"),
    Column("subject", "Subject", "text", "/why/{subject}"),
    Column("state", "State", "state"),
    Column("since", "Since", "time"),
    Column("resolved_at", "Resolved", "time"),
    Column("why", "Why", "long"),
)
_RULES: Final = (
    Column("name", "Rule", "name"),
    Column("app", "App", "text", "/apps/{app}"),
    Column("rule", "Opens an alert when", "code"),
    Column("to", "Targets", "long"),
    Column("silent_until", "Silent until", "time"),
    Column("next_look_at", "Next look", "time"),
)
_PAGE: Final = 50


def show_alerts(request: Request, after: str = "") -> HTMLResponse:
    """Return the page of alerts: those that are open, with their actions, then those of the last 90 days."""
    mill: Mill = request.state.mill
    opened = () if after else mill.alerts.list(limit=_PAGE)
    every = mill.alerts.list(resolved=True, limit=_PAGE, after=after)
    ended = [one for one in every if one.state == AlertState.RESOLVED]
    number = len(opened)
    heading = "No alert is open" if not number else "1 alert is open" if number == 1 else f"{number} alerts are open"
    return show_page(
        request,
        "alerts.html",
        title="Alerts",
        heading="Alerts" if after else heading,
        opened=[{**plain(one), "actions": allowed(request, _alert_actions(one))} for one in opened],
        ended=[plain(one) for one in ended],
        columns=_ENDED,
        next=f"?{urlencode({'after': every.next})}" if every.next else None,
        command="alert list --resolved" + (f" --after {quote(after)}" if after else ""),
    )


def _alert_actions(alert: AlertView) -> list[Action]:
    path, rule = link("/v1/alerts", alert.alert_id), link("/v1/alerts", alert.rule)
    actions = []
    if alert.state == AlertState.OPEN:
        ask = "This says that you work on it. Targets are notified of that, and not again before the end."
        actions.append(Action("Acknowledge", f"{path}:acknowledge", ask, "the alert is acknowledged"))
    if alert.state != AlertState.RESOLVED:
        ask = f"This sends nothing about {alert.rule} for an hour. Its alerts open and end as before."
        body = json.dumps({"duration": "1h"})
        actions.append(Action("Silence for 1 h", f"{rule}:silence", ask, "the rule is silent", body=body))
    return actions


def show_rules(request: Request, after: str = "") -> HTMLResponse:
    """Return the page of alert rules: their state, their targets, and their silence."""
    mill: Mill = request.state.mill
    page = mill.alerts.rules(limit=_PAGE, after=after)
    now = mill.project.world.clock.now()
    table = {
        **section("Rules", page, _RULES, "no rules yet; declare one in the app: app.alert(…)"),
        "rows": [{**plain(one), "actions": allowed(request, _rule_actions(one, now))} for one in page],
        "next": f"?{urlencode({'after': page.next})}" if page.next else None,
        "acts": True,
    }
    command = f"alert rules --after {quote(after)}" if after else "alert rules"
    sub = "a rule opens an alert when its state lasts; apps declare rules, and `tidemill alert create` makes one"
    return show_table(
        request, title="Alert rules", sub=sub, links=[("Alerts", "/alerts")], sections=[table], command=command
    )


def _rule_actions(rule: AlertRuleView, now: datetime) -> list[Action]:
    path = link("/v1/alerts", rule.name)
    if rule.silent_until is not None and rule.silent_until > now:
        ask = f"This ends the silence of {rule.name}. What is open is sent now."
        found = [Action("End the silence", f"{path}:silence", ask, "the silence has ended")]
    else:
        ask = f"This sends nothing about {rule.name} for an hour. Its alerts open and end as before."
        body = json.dumps({"duration": "1h"})
        found = [Action("Silence for 1 h", f"{path}:silence", ask, "the rule is silent", body=body)]
    if not rule.app:
        ask = f"This deletes {rule.name}, and resolves its alerts."
        found.append(Action("Delete", path, ask, "the rule is deleted", Right.DEPLOY, "DELETE", danger=True))
    return found


def show_alert(request: Request, alert_id: str) -> HTMLResponse:
    """Return the page of an alert: what is wrong, since when, and the notices about it."""
    mill: Mill = request.state.mill
    alert = mill.alerts.show(alert_id)
    return show_thing(
        request,
        title=alert.rule,
        state=alert.state,
        sub=f"{alert.subject} · {alert.why}",
        actions=_alert_actions(alert),
        links=[("Why", link("/why", alert.subject)), ("Rules", "/alert-rules")],
        sections=[section("Notices", mill.alerts.deliveries(alert=alert_id), _DELIVERIES, "nothing was sent")],
        record=plain(alert),
        left_out=("why",),
        command=f"alert show {alert_id}",
    )
