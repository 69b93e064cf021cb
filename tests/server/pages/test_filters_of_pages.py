"""Filters of tables: each is in the URL, so that a link says what was seen, and in the command beside the table."""

from __future__ import annotations

import re
from html import unescape

import pytest


@pytest.fixture(scope="module")
def alerts(stage):
    """Alerts of two rules: one that is open and 60 that have ended, of which one is of the other rule."""
    for number, name in enumerate(("broken", "away")):
        stage.sql(
            "INSERT INTO alert_rule (rule_id, namespace, app, name, spec, looks_after) VALUES "
            f"""('rule_{number}', 'default', '', '{name}', '{{"rule": {{"type": "run_failed"}}}}', '') RETURNING 1"""
        )
    for number in range(61):
        rule, state, ended = (
            (1, "RESOLVED", "1") if number == 60 else (0, "RESOLVED", "1") if number else (0, "OPEN", "NULL")
        )
        stage.sql(
            "INSERT INTO alert "
            "(alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, resolved_at) "
            f"VALUES ('alert_{number:03}', 'rule_{rule}', 'default', 'default.{('broken', 'away')[rule]}', "
            f"'s{number}', '{state}', 'why', 1, 1, {ended}) RETURNING 1"
        )
    return stage


def test_alerts_are_filtered_by_rule_and_by_what_is_open(alerts, browser, read):
    """A person sends the link of one rule."""
    of_rule = browser.get("/alerts?rule=away").text
    still_open = read("/alerts?resolved=no")
    first = browser.get("/alerts?rule=broken").text

    assert "/alerts/alert_060" in of_rule
    assert "/alerts/alert_059" not in of_rule
    assert "alert list --rule away --resolved" in of_rule
    assert 'name="rule" value="away"' in of_rule
    assert "1 alert is open" in still_open
    assert "Resolved the last 90 days" not in still_open
    assert "?rule=broken&amp;after=alert_010" in first
    assert "/alerts/alert_009" in browser.get("/alerts?rule=broken&after=alert_010").text
    assert browser.get("/alerts?rule=none").status_code == 404
    assert browser.get("/alerts?resolved=perhaps").status_code == 422


@pytest.fixture
def crowd(alerts):
    """120 more alerts that are open, newer than the others."""
    alerts.sql(
        "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) "
        "WITH RECURSIVE series(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM series WHERE i < 219) "
        "SELECT 'alert_9' || i, 'rule_0', 'default', 'default.broken', 's' || i, 'OPEN', 'why', 1, 1 FROM series "
        "RETURNING 1"
    )
    yield alerts
    alerts.sql("DELETE FROM alert WHERE alert_id LIKE 'alert_9%' RETURNING 1")


@pytest.mark.parametrize("chosen", ["", "?rule=broken"])
def test_every_open_alert_is_reached_from_the_page_of_alerts(crowd, browser, read, chosen):
    """An open alert behind the 50th was on no page that a link leads to."""
    path, seen, pages = f"/alerts{chosen}", [], 0
    heading = read(path)
    while path:
        text = browser.get(path).text
        seen += re.findall(r'<a href="/alerts/(\w+)"><b>', text)
        following = re.search(r'href="(\?[^"]*)" rel="next">(?:More open alerts|Next page)', text)
        path, pages = f"/alerts{unescape(following[1])}" if following else "", pages + 1

    assert heading.startswith("More than 50 alerts are open")
    assert seen == [one.alert_id for one in crowd.mill.alerts.list(limit=1000)]
    assert len(seen) == 121
    assert pages == 3


def test_alerts_of_a_rule_by_the_facade(alerts):
    """The page, REST and the command ask for the same."""
    of_rule = alerts.mill.alerts.list(rule="broken")
    first = alerts.mill.alerts.list(rule="broken", resolved=True, limit=2)

    assert [one.alert_id for one in of_rule] == ["alert_000"]
    assert [one.alert_id for one in first] == ["alert_059", "alert_058"]
    assert [one.alert_id for one in alerts.mill.alerts.list(rule="away", resolved=True)] == ["alert_060"]
    after = alerts.mill.alerts.list(rule="broken", resolved=True, limit=2, after=first.next)
    assert [one.alert_id for one in after] == ["alert_057", "alert_056"]


def test_transactions_are_filtered_by_state(stage, browser, read):
    """Aborted transactions stand between thousands of others."""
    committed, aborted = browser.get("/transactions?state=committed").text, read("/transactions?state=aborted")

    assert '<option value="committed" selected>' in committed
    assert "tx list --state committed" in committed
    assert "✓ committed" in read("/transactions?state=committed")
    assert "✓ committed" not in aborted
    assert browser.get("/transactions?state=none").status_code == 422


def test_partitions_are_filtered_by_key(browser, read):
    """REST and the command could; the page had all of them, or a period."""
    text = browser.get("/datasets/orders?where=day%3D2026-01-02").text
    words = read("/datasets/orders?where=day%3D2026-01-02")
    table = words[words.index("Chosen partitions") :]

    assert "day=2026-01-02" in table
    assert "day=2026-01-01" not in table.partition("Details")[0].partition("Look at another")[0]
    assert "dataset partitions default.orders --where day=2026-01-02" in text
    assert "hour=1 is refused" in read("/datasets/orders?where=hour%3D1")
    assert "is refused" in read("/datasets/orders?where=%22")
    assert "no partition fits" in read("/datasets/orders?where=day%3D2027-01-01")


@pytest.mark.parametrize(
    ("query", "command", "refused"),
    [
        ("/watermarks?app=shop&behind=2h", "watermark list --app shop --behind 2h", "/watermarks?behind=two"),
        ("/apps?namespace=default", "app list --namespace default", "/apps?namespace=a.b"),
        ("/tokens?namespace=default&role=viewer", "token list --namespace default --role viewer", "/tokens?role=vewer"),
        ("/topics?kind=own&prefix=d", "topic list --kind own --prefix d", "/topics?kind=won"),
        ("/subscribers?kind=push&state=failing", "subscriber list --kind push --state failing", "/subscribers?state=b"),
    ],
)
def test_lists_of_names_are_filtered_as_the_command_beside_them(browser, query, command, refused):
    """The link and the command say what was seen."""
    assert command in browser.get(query).text
    assert browser.get(refused).status_code == 422


def test_tokens_are_filtered_in_pages_that_keep_the_filter(browser, alerts):
    """An administrator asks which tokens reach all namespaces, among those of hundreds of programs."""
    for number in range(51):
        alerts.mill.tokens.create(f"of_default_{number:02}", role="viewer", namespace="default")
    alerts.mill.tokens.create("of_all", role="viewer")
    first = browser.get("/tokens?namespace=default&role=viewer").text
    of_all = browser.get("/tokens?namespace=*").text

    assert "?namespace=default&amp;role=viewer&amp;after=of_default_49" in first
    assert ">of_all<" not in first
    assert ">of_all<" in of_all
    assert "of_default_00" not in of_all
    assert "nothing fits" in browser.get("/tokens?namespace=none").text


def test_consumers_are_filtered_by_program(browser):
    """A person asks what waits for one program, which may read many data sets."""
    text = browser.get("/consumers?program=shop.sift").text

    assert "consumer list --program shop.sift" in text
    assert 'href="/consumers/default.orders/default.shop.sift"' in text
    assert browser.get("/consumers?program=shop.sfit").status_code == 404


def test_a_page_of_a_long_list_says_that_headings_sort_this_page(browser, alerts):
    """A reader takes the first row of a sorted page for the first of the list."""
    for number in range(51):
        alerts.mill.subscribers.create(f"reader_{number:02}", "paid")
    first = browser.get("/subscribers?topic=paid").text
    last = browser.get("/subscribers?topic=paid&after=reader_49").text

    assert "sorts this page alone" in first
    assert "sorts this page alone" not in last
    assert "?topic=paid&amp;after=reader_49" in first


def test_rules_are_filtered_by_app_and_a_change_stays_on_its_page(stage, browser):
    """The form of a rule is on the page where its link was."""
    for number in range(51):
        stage.sql(
            "INSERT INTO alert_rule (rule_id, namespace, app, name, spec, looks_after) VALUES ("
            f"'many_{number}', 'default', '', 'zz_{number:02}', "
            """'{"rule": {"type": "run_failed"}}', '') RETURNING 1"""
        )
    first = browser.get("/alert-rules")
    following = unescape(re.findall(r'href="(\?after=[^"]*)"', first.text)[-1])

    second = browser.get(f"/alert-rules{following}").text
    change = unescape(re.search(r'href="(\?[^"]*change=default.zz_50[^"]*)#form"', second)[1])
    of_app = browser.get("/alert-rules?app=shop").text
    stage.sql("DELETE FROM alert_rule WHERE rule_id LIKE 'many_%' RETURNING 1")

    assert "after=" in change
    assert "zz_" not in of_app
    assert 'name="app" value="shop"' in of_app
    assert "alert rules --app shop" in of_app
    assert browser.get("/alert-rules?app=none").status_code == 404


def test_the_notices_of_an_alert_have_pages(alerts, browser):
    """An alert that is repeated for a week has more notices than a page."""
    for number in range(51):
        alerts.sql(
            "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at) VALUES "
            f"""('delivery_{number:02}', '{{"type": "command", "argv": ["true"]}}', 1, {number}, 'alert_000', """
            f"'repeated', '', 'SENT', 1) RETURNING 1"
        )
    first = browser.get("/alerts/alert_000").text

    second = browser.get("/alerts/alert_000?after=delivery_01").text
    alerts.sql("DELETE FROM delivery WHERE about = 'alert_000' RETURNING 1")

    assert 'href="?after=delivery_01"' in first
    assert first.count("repeated") - second.count("repeated") == 49
    assert "repeated" in second
