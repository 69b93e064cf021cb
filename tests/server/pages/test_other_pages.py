"""Flow, apps, topics, transactions, tokens, audit, lists: what each shows to which caller."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from httpx import Client

from tests.yardstick import patience
from tidemill.alerts.rules import RULES
from tidemill.mill.mill import Mill
from tidemill.names import NodeId
from tidemill.run.records.nodes import NodeRole, put_node
from tidemill.server.listen import Listener


def test_flow_shows_all_things_and_narrows_to_one(browser, read):
    """The graph is a picture and a table; a box leads to what is around it."""
    text = browser.get("/flow").text
    around = read("/flow?around=fileset:default.orders")

    assert text.count('<g class="box') == 9
    assert 'href="/flow?around=fileset%3Adefault.orders"' in text
    assert '<g class="box fail' in text
    assert around.startswith("Flow around orders all that leads to it, and away from it Open orders Show all")
    assert "shop.load" in around


def test_an_app_shows_what_each_deployment_changed(stage, browser, read):
    """A rollback is a button beside the version that it returns to."""
    stage.mill.project.config.app.write_text(
        stage.mill.project.config.app.read_text(encoding="utf-8").replace('"30 2 * * *"', '"40 2 * * *"'),
        encoding="utf-8",
    )
    stage.mill.deploy()
    words = read("/apps/default.shop")

    assert words.startswith("shop version 2")
    assert re.search(r"version 2 .* schedule nightly .* version 1", words)
    assert "Roll back to version 1" in words
    text = html.unescape(browser.get("/apps/default.shop").text)
    assert 'data-body="{"to": 1}"' in text
    undone = re.search(r"as a new version\. (It undoes .*?) Attempts under way", text)[1]
    assert undone == "It undoes 2 changes of version 2: ~ app shop; ~ schedule nightly."


def test_a_topic_shows_how_far_its_subscribers_are(stage, read):
    """A subscriber that stands still is a scheduler that does not work."""
    stage.mill.subscribers.create("erp", "data", start="beginning")
    words = read("/topics/data")
    own = read("/topics/own")

    assert re.search(r"Subscriber Belongs to Has read up to Is scheduler Tidemill \d+\.\d at the newest message", words)
    assert re.search(r"erp another system \d+\.\d+ behind", words)
    assert '{"text": "<i>hostile</i>"}' in own


def test_a_dead_notice_is_retried_on_the_page_of_its_alert(stage, browser):
    """A target that was away is there again: the person need not know the id of the delivery."""
    stage.mill.alerts.create("rings", {"type": "run_failed", "program": "shop.broken"})
    target = '{"type": "web_hook", "url": "https://example.org/a"}'
    stage.sql(
        "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) "
        "VALUES ('alert_1', 'rule_1', 'default', 'default.rings', 'shop.broken', 'OPEN', 'it fails', 1, 1) RETURNING 1"
    )
    stage.sql(
        "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, ended_at) "
        f"VALUES ('delivery_1', '{target}', 1, 0, 'alert_1', 'opened', '{{}}', 'DEAD', 1, 1) RETURNING 1"
    )

    page = browser.get("/alerts/alert_1").text

    assert 'data-path="/v1/alerts/delivery_1:retry"' in page
    assert 'data-path="/v1/alerts/alert_1:acknowledge"' in page
    assert 'data-path="/v1/alerts/default.rings:silence"' in page


def test_one_alert_is_silenced_and_speaks_again_on_its_page(stage, browser):
    """The silence of the whole rule would hide the next program that fails."""
    stage.mill.alerts.create("each", {"type": "run_failed"})
    stage.look_at_alerts()
    found = [one for one in stage.mill.alerts.list() if one.subject == "default.shop.broken"]
    (alert,) = [one for one in found if one.rule == "default.each"]  # other tests have rules of their own
    path = f'data-path="/v1/alerts/{alert.alert_id}:silence"'
    before = [browser.get(page).text for page in ("/alerts", f"/alerts/{alert.alert_id}")]
    stage.mill.alerts.silence(alert.alert_id, duration="1h")
    after = [browser.get(page).text for page in ("/alerts", f"/alerts/{alert.alert_id}")]
    rules = html.unescape(browser.get("/alert-rules").text)

    assert all(path in page and "Silence for 1 h" in page and "Silence the rule for 1 h" in page for page in before)
    assert all(f"alert silence {alert.alert_id} --for 1h" in page for page in before)
    assert all(path in page and "End the silence" in page for page in after)
    assert "End the silence about default.shop.broken" in rules
    assert "alert silence default.each --subject default.shop.broken" in rules


SUBJECTS = {
    "run_failed": ({}, "default.shop.load", "Its runs"),
    "run_too_long": ({"program": "default.shop.load", "longer_than": "1h"}, "default.shop.load", "Its runs"),
    "run_slow": ({"program": "default.shop.load", "factor": 3}, "default.shop.load", "Its runs"),
    "backfill_stopped": ({}, "default.shop.load", "Its runs"),
    "job_waits": ({"schedule": "default.shop.nightly", "longer_than": "1h"}, "default.shop.nightly", "Schedule Why"),
    "late": ({"dataset": "default.raw"}, "default.raw", "Data set Why"),
    "nothing_arrived": ({"dataset": "default.orders", "longer_than": "1h"}, "default.orders", "Data set Why"),
    "quarantined": ({"inbox": "default.raw"}, "default.raw", "Data set Why"),
    "watermark_held": ({"fileset": "default.orders", "longer_than": "1h"}, "default.orders", "Data set Why"),
    "partition_misdated": ({"fileset": "default.orders"}, "default.orders", "Data set Why"),
    "consumer_lag": (
        {"dataset": "default.orders", "consumer": "default.shop.sift", "partitions": 1},
        "default.orders default.shop.sift",
        "Consumer",
    ),
    "transaction_too_long": ({"longer_than": "1h"}, "transactions", "Transactions"),
    "scheduler_behind": ({"by": "1m"}, "scheduler", ""),
    "disk_low": ({"free": "1 GB"}, "db.example.com", ""),
}
"""A rule of each kind, the subject of its alert, and the links of the page of the alert before that to the rules."""


def test_the_question_before_the_end_of_a_rule_says_what_ends_with_it(stage, browser):
    """A rule without alerts is another decision than a rule with alerts on which people work."""
    stage.mill.alerts.create("leaves", {"type": "run_failed"}, to=[{"type": "web_hook", "url": "https://a.example/x"}])
    fresh = browser.get("/alert-rules").text
    for number, state in enumerate(("OPEN", "ACKNOWLEDGED", "RESOLVED")):
        stage.sql(
            "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, resolved_at)"
            f" SELECT 'alert_leaves_{number}', rule_id, namespace, 'default.leaves', 's{number}', '{state}', 'why', 1, "
            f"1, {1 if state == 'RESOLVED' else 'NULL'} FROM alert_rule WHERE name = 'leaves' RETURNING 1"
        )
    stage.mill.alerts.silence("leaves", duration="1h")
    stage.mill.alerts.silence("leaves", subject="shop.load", duration="1h")
    busy = browser.get("/alert-rules").text
    (rule,) = [one for one in stage.mill.alerts.rules() if one.name == "default.leaves"]
    stage.mill.alerts.delete("leaves")
    stage.sql("DELETE FROM alert WHERE rule = 'default.leaves' RETURNING 1")

    assert "This deletes default.leaves. It resolves 0 alerts and ends 0 silences." in fresh
    assert "This deletes default.leaves. It resolves 2 alerts and ends 2 silences. It notifies 1 target." in busy
    assert rule.open_alerts == 2


@pytest.mark.parametrize("state", ["OPEN", "RESOLVED"])
def test_each_subject_of_an_alert_leads_to_a_page_that_there_is(stage, browser, state):
    """The link of a program that failed was dead: `why` knows no programs."""
    try:
        for kind, (rule, subject, _) in SUBJECTS.items():
            made = stage.mill.alerts.create(f"of_{kind}", {"type": kind, **rule})
            stage.sql(
                "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, "
                f"resolved_at) SELECT 'alert_of_{kind}', rule_id, namespace, '{made.name}', '{subject}', '{state}', "
                f"'why', 1, 1, {1 if state == 'RESOLVED' else 'NULL'} "
                f"FROM alert_rule WHERE name = 'of_{kind}' RETURNING 1"
            )
        listed = browser.get("/alerts").text
        pages = {kind: browser.get(f"/alerts/alert_of_{kind}").text for kind in SUBJECTS}
    finally:
        for one in stage.mill.alerts.rules():
            if one.name.startswith("default.of_"):
                stage.mill.alerts.delete(one.name)
        stage.sql("DELETE FROM alert WHERE alert_id LIKE 'alert_of_%' RETURNING 1")
        stage.sql("DELETE FROM audit WHERE subject LIKE 'default.of_%' RETURNING 1")

    assert SUBJECTS.keys() == RULES.keys()
    for kind, (_, subject, links) in SUBJECTS.items():
        acts = pages[kind].partition('<div class="acts">')[2].partition("</div>")[0]
        labels = re.findall(r'<a class="button" href="([^"]*)">([^<]*)</a>', acts)
        row = listed.partition(f"/alerts/alert_of_{kind}")[2].partition("/alerts/alert_of_")[0]
        shown = re.search(rf'<a href="([^"]*)">[^<]*{subject.rpartition("default.")[2]}</a>', row)
        assert " ".join(label for _, label in labels) == f"{links} Rules".strip(), kind
        assert {browser.get(html.unescape(href)).status_code for href, _ in labels} == {200}, kind
        assert (html.unescape(shown[1]) if shown else None) == (html.unescape(labels[0][0]) if links else None), kind


@pytest.mark.parametrize(
    ("query", "of_all", "of_one"),
    [
        ("new=run_failed&name=mine&ask=create", True, True),
        ("new=run_failed&name=mine&ask=create&to=https://ops.example.com/hook", True, True),
        ("new=run_failed&name=mine&ask=create&to=env:SLACK", True, False),
        ("new=disk_low&free=1GB&name=mine&ask=create", True, False),
        ("change=default.stays&new=run_failed&ask=update", True, True),
        ("change=default.stays&new=run_failed&ask=update&to=env:SLACK", True, False),
    ],
)
def test_the_forms_of_rules_have_the_buttons_that_a_caller_may_press(stage, browser, query, of_all, of_one):
    """A button whose request is refused is a promise that does not hold. A missing button hides a right."""
    if "default.stays" not in {one.name for one in stage.mill.alerts.rules()}:
        stage.mill.alerts.create("stays", {"type": "run_failed"})

    def buttons(role: str, namespace: str | None) -> tuple[bool, bool]:
        name = f"{role}-{namespace or 'all'}-{len(stage.mill.tokens.list(limit=1000))}"
        secret = stage.mill.tokens.create(name, role=role, namespace=namespace).secret
        headers = {"cookie": "", "authorization": f"Bearer {secret}"}
        page = browser.get(f"/alert-rules?{query}", headers=headers).text
        return "Text for the people" in page, "Make the rule" in page or "Change the rule" in page

    assert buttons("developer", None) == (True, of_all)
    assert buttons("developer", "default") == (True, of_one)
    assert buttons("operator", None) == (False, False)


def test_a_dead_notice_is_retried_by_an_operator_of_its_namespace(stage, browser):
    """The route admits the operator; the page hid the button."""
    target = '{"type": "web_hook", "url": "https://example.org/b"}'
    stage.sql(
        "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) "
        "VALUES ('alert_2', 'rule_2', 'default', 'default.gone', 'shop.broken', 'OPEN', 'it fails', 1, 1) RETURNING 1"
    )
    stage.sql(
        "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, ended_at) "
        f"VALUES ('delivery_2', '{target}', 1, 0, 'alert_2', 'opened', '{{}}', 'DEAD', 1, 1) RETURNING 1"
    )
    headers = {"cookie": ""}
    pages = {}
    for role in ("operator", "viewer"):
        secret = stage.mill.tokens.create(f"{role}-of-default", role=role, namespace="default").secret
        headers["authorization"] = f"Bearer {secret}"
        pages[role] = browser.get("/alerts/alert_2", headers=headers).text

    assert 'data-path="/v1/alerts/delivery_2:retry"' in pages["operator"]
    assert "data-path=" not in pages["viewer"]


def test_open_transactions_come_first(stage, read):
    """An open transaction holds up others; it is among 200,000 that have ended."""
    with stage.transaction("orders"):
        opened = stage.mill.transactions.list(open_only=True)[0]
        words = read("/transactions")

    first = words.partition("All newest first")[0]
    assert re.search(rf"Open \(1\) oldest first .* {opened.write_pointer} \S+", first)
    assert "Open (1) oldest first" in words


def test_audit_is_found_by_subject_and_by_actor(browser, stage, read):
    """A person asks for the changes of a thing, then for the other changes of the actor."""
    actor = stage.mill.audit.log(subject="default.shop.nightly", limit=1)[0].actor

    assert "schedule.suspend" in read("/audit?subject=default.shop.nightly")
    assert "nothing fits" in read("/audit?actor=eve%40desk")
    assert "schedule.suspend" in read(f"/audit?actor={actor}")
    assert "audit log --actor" in read(f"/audit?actor={actor}")


def test_a_filter_of_few_values_is_a_choice(browser):
    """Few people know the words of a state by heart."""
    text = browser.get("/schedules?status=suspended").text

    assert '<option value="suspended" selected>suspended</option>' in text
    assert "shop.nightly" in text
    assert "shop.on_raw" not in text.partition("<tbody>")[2]


def test_the_page_of_tokens_shows_no_secret(stage, browser, read):
    """A secret is shown once, by the answer that makes the token."""
    made = stage.mill.tokens.create("robot", role="viewer")
    text = browser.get("/tokens").text

    assert made.secret not in text
    assert "robot – unused viewer all" in read("/tokens")
    assert "This revokes robot: all servers refuse it at once. It was never used. It cannot" in text
    stage.sql("UPDATE token SET last_used_at = created_at - 7200000 WHERE name = 'robot' RETURNING 1")
    assert "It was last used 2 h ago. It cannot" in browser.get("/tokens").text
    assert "robot cannot" not in text
    stage.mill.tokens.revoke("robot")
    assert "robot – revoked" in read("/tokens")


def test_a_viewer_sees_no_button_and_no_tokens(stage, browser):
    """A button that answers 403 is an insult."""
    secret = stage.mill.tokens.create("reader", role="viewer").secret
    with Client(
        timeout=patience(10),
        base_url=browser.base_url,
        headers={"accept": "text/html", "authorization": f"Bearer {secret}"},
    ) as one:
        pages = [
            one.get(path).text for path in ("/schedules/default.shop.on_raw", "/apps/default.shop", "/alert-rules")
        ]
        tokens = one.get("/tokens")

    assert all("data-path=" not in text for text in pages)
    assert tokens.status_code == 403


@pytest.mark.parametrize("stripped", [True, False])
def test_pages_know_the_prefix_of_a_proxy(stage, stripped):
    """Behind a path prefix every link, form and script begins with the prefix, and each leads somewhere."""
    secret = stage.mill.tokens.create(f"prefixed-{stripped}", role="admin").secret
    headers = {"accept": "text/html", "authorization": f"Bearer {secret}"}
    before = "" if stripped else "/mill"
    with (
        below_a_prefix(stage) as (listener, link),
        Client(timeout=patience(10), base_url=listener.url, headers=headers) as one,
    ):
        for path in ("/", "/flow", "/runs", "/schedules/default.shop.on_orders", "/apps/default.shop", "/tokens"):
            text = one.get(f"{before}{path}").text
            assert "<h1>" in text, path
            hrefs = re.findall(r'(?:href|src|action)="(/[^"]*)"', text)
            assert [href for href in hrefs if not href.startswith("/mill/")] == [], path
            assert 'aria-current="page"' in text
            for href in hrefs[:6]:
                assert one.get(href.removeprefix("/mill") if stripped else href).status_code == 200, href
        assert one.get(f"{before}/v1/runs", headers={"accept": "application/json"}).json()["items"]
        assert one.get(link).headers["location"] == "/mill/"


def test_a_browser_behind_a_prefix_sends_its_cookies_there_alone(stage):
    """Another server of the same host gets no session, and signing out deletes the cookie that signing in has set."""
    with below_a_prefix(stage) as (listener, link), Client(timeout=patience(10), base_url=listener.url) as one:
        opened = one.get(link)
        form = one.get("/mill/login")
        word = re.search(r'name="word" value="([^"]*)"', one.get("/mill/").text)[1]
        left = one.post("/mill/logout", data={"word": word})

    for answer in (opened, form, left):
        assert [one.partition(" Path=")[2].partition(";")[0] for one in answer.headers.get_list("set-cookie")] == [
            "/mill"
        ]
    assert left.headers["location"] == "/mill/login"
    assert 'tidemill_session=""' in left.headers["set-cookie"]


def test_the_page_of_a_defect_knows_the_prefix(stage, monkeypatch):
    """Without its style sheet and its links, the page of a defect looks like one more defect."""

    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("tidemill.server.pages.overview.render", fail)
    secret = stage.mill.tokens.create("defects", role="admin").secret
    headers = {"accept": "text/html", "authorization": f"Bearer {secret}"}
    with (
        below_a_prefix(stage) as (listener, _),
        Client(timeout=patience(10), base_url=listener.url, headers=headers) as one,
    ):
        answer = one.get("/mill/")
        hrefs = re.findall(r'(?:href|src|action)="(/[^"]*)"', answer.text)

        assert answer.status_code == 500
        assert hrefs
        assert [href for href in hrefs if not href.startswith("/mill/")] == []
        assert one.get(hrefs[0]).status_code == 200


@contextmanager
def below_a_prefix(stage) -> Iterator[tuple[Listener, str]]:
    """Run a server below the path /mill."""
    config = stage.mill.project.config
    server = replace(config.server, prefix="/mill")
    listener = Listener(Mill(replace(stage.mill.project, config=replace(config, server=server))))
    link = listener.start()
    try:
        yield listener, link
    finally:
        listener.stop()


@pytest.mark.parametrize("path", ["/runs", "/schedules"])
def test_a_program_in_a_list_leads_to_its_runs(browser, path):
    """Names link to their pages; a reader had to type the name of the program into the filter."""
    text = browser.get(path).text

    assert '<a href="/runs?program=default.shop.sift">shop.sift</a>' in text
    assert "<td>shop.sift</td>" not in text


def test_the_page_of_a_run_leads_to_the_other_runs_of_its_program(stage, browser):
    """A failure that comes every night shows in the runs before it."""
    run = stage.mill.runs.list(program="shop.load", limit=1)[0]

    assert '<h1><a href="/runs?program=default.shop.load">shop.load</a>' in browser.get(f"/runs/{run.run_id}").text


def test_a_node_that_works_has_a_button_to_drain(stage, browser, read):
    """Before work on a machine; the page Nodes had the state alone."""
    world, catalog = stage.world, stage.mill.project.catalog
    process = world.spawner.identity()
    catalog.write(lambda db: put_node(db, NodeId("node_1"), "here", process, [NodeRole.RUNNER], 2))
    works = browser.get("/nodes").text
    stage.mill.nodes.drain("node_1")
    drains = read("/nodes")

    assert 'data-path="/v1/nodes/node_1:drain"' in works
    assert 'data-command="drain node_1"' in works
    assert "Drain" not in drains
