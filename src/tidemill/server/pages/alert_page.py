"""The pages of alerts, and of one alert."""

from __future__ import annotations

import json
import shlex
from typing import Final, assert_never

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.alerts.alerts import AlertState
from tidemill.alerts.conditions import SubjectKind
from tidemill.alerts.outbox import DeliveryState
from tidemill.mill.alerts import AlertView, DeliveryView
from tidemill.mill.mill import Mill
from tidemill.mill.page import Page, check_filter
from tidemill.server.pages.alert_rule_page import silence
from tidemill.server.pages.columns import ERROR, STATE, WHY, Column
from tidemill.server.pages.data_view import query
from tidemill.server.pages.lists import Filter, section
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, allowed, show_page, show_thing

_DELIVERIES: Final = (
    Column("target", "Target", "name"),
    Column("event", "Event"),
    STATE,
    Column("attempt", "Tries", "number"),
    Column("made_at", "Written", "time"),
    Column("ended_at", "Ended", "time"),
    ERROR,
)


_ENDED: Final = (
    Column("rule", "Rule", "name", "/alerts/{alert_id}"),
    Column("subject", "Subject", "text", "{page}"),
    STATE,
    Column("since", "Since", "time"),
    Column("resolved_at", "Resolved", "time"),
    WHY,
)
_PAGES: Final = {
    SubjectKind.PROGRAM: "Its runs",
    SubjectKind.SCHEDULE: "Schedule",
    SubjectKind.DATASET: "Data set",
    SubjectKind.CONSUMER: "Consumer",
    SubjectKind.TRANSACTIONS: "Transactions",
}
"""Links to the pages of subjects."""
_PAGE: Final = 50


def show_alerts(request: Request, after: str = "", rule: str = "", resolved: str = "") -> HTMLResponse:
    """Return the page of alerts: those that are open, with their actions, then those of the last 90 days.

    `rule` is the name of a rule. With `resolved=no`, the page has open alerts alone. The first page leads there if
    more alerts are open than a page has.
    """
    mill: Mill = request.state.mill
    open_only = check_filter("resolved", resolved or "yes", ("yes", "no")) == "no"
    of = rule or None
    opened: Page[AlertView] = Page((), None)
    if open_only or not after:
        opened = mill.alerts.list(rule=of, limit=_PAGE, after=after)
    every = opened if open_only else mill.alerts.list(rule=of, resolved=True, limit=_PAGE, after=after)
    ended = [one for one in every if one.state == AlertState.RESOLVED]
    asked = {name: value for name, value in (("rule", rule), ("resolved", resolved)) if value}
    options = [*(["--rule", rule] if rule else []), *([] if open_only else ["--resolved"])]
    number = len(opened)
    heading = "No alert is open" if not number else "1 alert is open" if number == 1 else f"{number} alerts are open"
    if opened.next:
        heading = f"More than {number} alerts are open"
    return show_page(
        request,
        "alerts.html",
        title="Alerts",
        heading="Alerts" if after else heading,
        opened=[
            {**plain(one), "page": _subject_page(one), "actions": allowed(request, _alert_actions(one))}
            for one in opened
        ],
        ended=[{**plain(one), "page": _subject_page(one)} for one in ended],
        open_only=open_only,
        filters=[(Filter("rule", "Rule"), rule), (Filter("resolved", "Resolved alerts too", ("yes", "no")), resolved)],
        filtered=bool(asked or after),
        columns=_ENDED,
        more_open=query(rule=rule, resolved="no", after=opened.next) if opened.next and not open_only else None,
        next=query(**asked, after=every.next) if every.next else None,
        command=shlex.join(["alert", "list", *options, *(["--after", after] if after else [])]),
    )


def _subject_page(alert: AlertView) -> str:
    """Return the page that shows the subject of an alert; empty if no page does."""
    match alert.subject_kind:
        case SubjectKind.PROGRAM:
            return f"/runs{query(program=alert.subject)}"
        case SubjectKind.SCHEDULE:
            return link("/schedules", alert.subject)
        case SubjectKind.DATASET:
            return link("/datasets", alert.subject)
        case SubjectKind.CONSUMER:
            return link("/consumers", *alert.subject.split(" "))
        case SubjectKind.TRANSACTIONS:
            return "/transactions"
        case SubjectKind.SCHEDULER | SubjectKind.MACHINE | None:
            return ""
        case never:
            assert_never(never)


def _links(alert: AlertView) -> list[tuple[str, str]]:
    """Return the links of the page of an alert. Only schedules and data sets have an answer to why."""
    page = _subject_page(alert)
    explained = alert.subject_kind in {SubjectKind.SCHEDULE, SubjectKind.DATASET}
    why = [("Why", link("/why", alert.subject))] if explained else []
    return [
        *([(_PAGES[alert.subject_kind], page)] if alert.subject_kind and page else []),
        *why,
        ("Rules", "/alert-rules"),
    ]


def _alert_actions(alert: AlertView) -> list[Action]:
    path = link("/v1/alerts", alert.alert_id)
    actions = []
    if alert.state == AlertState.OPEN:
        ask = "This says that you work on it. Targets are notified of that, and not again before the end."
        actions.append(Action("Acknowledge", f"{path}:acknowledge", ask, "the alert is acknowledged"))
    if alert.state != AlertState.RESOLVED:
        actions.append(_silence_subject(alert))
        actions.append(silence(alert.rule, "Silence the rule for 1 h"))
    return actions


def _silence_subject(alert: AlertView) -> Action:
    path = f"{link('/v1/alerts', alert.alert_id)}:silence"
    about = f"about {alert.subject} by rule {alert.rule}"
    if alert.silent_until is not None:
        ask = f"This ends the silence {about}. If the alert is open, it is sent now."
        return Action("End the silence", path, ask, "the silence has ended")
    ask = f"This sends nothing {about} for an hour. Other subjects of the rule are sent as before."
    return Action("Silence for 1 h", path, ask, "the alert is silent", body=json.dumps({"duration": "1h"}))


def _delivery_actions(one: DeliveryView) -> list[Action]:
    if one.state is not DeliveryState.DEAD:
        return []
    ask = f"This sends the notice to {one.target} once more, as its next."
    path = f"{link('/v1/alerts', one.delivery_id)}:retry"
    return [Action("Retry", path, ask, "the notice is sent again")]


def show_alert(request: Request, alert_id: str, after: str = "") -> HTMLResponse:
    """Return the page of an alert: what is wrong, since when, and the notices about it."""
    mill: Mill = request.state.mill
    alert = mill.alerts.show(alert_id)
    notices = mill.alerts.deliveries(alert=alert_id, limit=_PAGE, after=after)
    table = {
        **section("Notices", notices, _DELIVERIES, "nothing was sent"),
        "rows": [{**plain(one), "actions": allowed(request, _delivery_actions(one))} for one in notices],
        "next": query(after=notices.next) if notices.next else None,
        "acts": True,
    }
    return show_thing(
        request,
        title=alert.rule,
        state=alert.state,
        sub=f"{alert.subject} · {alert.why}",
        actions=_alert_actions(alert),
        links=_links(alert),
        sections=[table],
        record=plain(alert),
        left_out=("why",),
        command=f"alert show {alert_id}",
    )
