"""Filters of lists: each combination of them lists what fits, in pages of any size."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.stage import staged
from tidemill import WebHook, iterate
from tidemill.mill.access import Access, Role

NOW = datetime(2026, 1, 2, tzinfo=UTC)
APP = """
import tidemill as tm

hours = tm.Watermark("at", pattern="$day", interval="1d")


def build(namespace, name):
    app = tm.App(name, namespace=namespace)
    for part in ("fresh", "old", "none"):
        app.fileset(f"{name}_{part}", keys={"day": "date"}, watermark=hours)
    app.fileset(f"{name}_plain", keys={"day": "date"})
    return app


first, second = build("default", "crm"), build("default", "shop")
third, fourth = build("other", "crm"), build("other", "shop")
"""
READERS = """
import tidemill as tm

app = tm.App("crm")
paid = app.fileset("paid", keys={"day": "date"})
sold = app.fileset("sold", keys={"day": "date"})


@app.python(reads=[paid, sold])
def one(run):
    pass


@app.python(reads=[paid, sold])
def two(run):
    pass
"""
BEHIND = {"fresh": timedelta(hours=1), "old": timedelta(hours=5)}
TO = WebHook("https://example.org/hook")


@pytest.fixture
def stage(catalog_url, tmp_path):
    """Two apps in two namespaces with watermarks of all ages, own topics, and subscribers of all kinds and states."""
    with staged(tmp_path, catalog_url, APP, clock=ManualClock(NOW)) as made:
        for part, delay in BEHIND.items():
            value = int((NOW - delay).timestamp()) * 1_000_000
            made.sql(
                f"UPDATE watermark SET value = {value}, target = {value} WHERE dataset_id IN "
                f"(SELECT dataset_id FROM dataset WHERE name IN ('crm_{part}', 'shop_{part}')) RETURNING 1"
            )
        made.publish("crm_plain", "day=2026-01-01")
        for topic in ("paid", "paid_late", "sold"):
            made.mill.topics.publish(topic, {"number": 1})
        for topic, (kind, to), state in product(
            ("data", "paid", "empty"), (("pull", None), ("push", TO)), ("failing", "behind", "current")
        ):
            name = f"{state}_{topic}_{kind}"
            made.mill.subscribers.create(name, topic, start="now" if state == "current" else "beginning", to=to)
            if state == "failing":
                made.sql(f"UPDATE outside_subscriber SET failures = 2 WHERE name = '{name}' RETURNING 1")
        made.mill.topics.publish("sold", {"number": 2})
        yield made


def test_each_combination_of_filters_lists_the_watermarks_that_fit(stage):
    """On duty one asks which data is behind, of all apps or of one."""
    everything = list(iterate(stage.mill.watermarks.list))

    for app, behind, limit in product(
        (None, "shop", "crm", "other.shop"), (None, "0s", "1h", "2h", timedelta(hours=4), "1d"), (1, 2, 100)
    ):
        hours = {"0s": 0, "1h": 1, "2h": 2, "1d": 24}.get(behind, 4)
        found = list(iterate(stage.mill.watermarks.list, app=app, behind=behind, limit=limit))
        assert found == [
            one
            for one in everything
            if app is None or one.dataset.startswith(f"{app if '.' in app else f'default.{app}'}_")
            if behind is None or BEHIND.get(one.dataset.rpartition("_")[2], timedelta.max) > timedelta(hours=hours)
        ], (app, behind, limit)
    assert len(everything) == 12


def test_apps_are_listed_by_namespace(stage):
    """Each team has a namespace."""
    everything = [one.name for one in stage.mill.apps.list()]

    for namespace, limit in product((None, "default", "other", "none", "a", "z"), (1, 100)):
        found = [one.name for one in iterate(stage.mill.apps.list, namespace=namespace, limit=limit)]
        assert found == [one for one in everything if namespace in {None, one.partition(".")[0]}], (namespace, limit)
    assert everything == ["default.crm", "default.shop", "other.crm", "other.shop"]


def test_each_combination_of_filters_lists_the_topics_that_fit(stage):
    """Topics of users stand between those that commits fill."""
    everything = list(iterate(stage.mill.topics.list))

    for kind, prefix, limit in product((None, "own", "built_in"), ("", "pa", "paid", "paid_", "d", "z"), (1, 2, 100)):
        found = list(iterate(stage.mill.topics.list, kind=kind, prefix=prefix, limit=limit))
        assert found == [
            one
            for one in everything
            if kind in {None, "built_in" if one.topic in {"data", "program", "hook"} else "own"}
            and one.topic.startswith(prefix)
        ], (kind, prefix, limit)
    assert {"data", "paid", "paid_late", "sold"} <= {one.topic for one in everything}


def test_each_combination_of_filters_lists_the_subscribers_that_fit(stage):
    """The subscriber that fails stands between many that do not."""
    everything = list(iterate(stage.mill.subscribers.list))

    for topic, kind, state, limit in product(
        (None, "data", "paid", "empty"), (None, "pull", "PUSH"), (None, "failing", "behind", "current"), (1, 4, 100)
    ):
        found = list(iterate(stage.mill.subscribers.list, topic=topic, kind=kind, state=state, limit=limit))
        assert found == [
            one
            for one in everything
            if topic in {None, one.topic}
            and kind in {None, "PUSH" if one.to else "pull"}
            and state in {None, one.state}
        ], (topic, kind, state, limit)
    assert len(everything) == 18
    assert {one.state for one in everything if one.topic == "empty"} == {"failing", "current"}
    assert {one.state for one in everything if one.topic == "paid"} == {"failing", "behind", "current"}


def test_each_combination_of_filters_lists_the_tokens_that_fit(stage):
    """An administrator asks which tokens may deploy, in all namespaces or in one."""
    for namespace, role in product((None, "default", "other"), ("viewer", "developer", "admin")):
        stage.mill.tokens.create(f"{role}_{namespace}", role=role, namespace=namespace)
    everything = list(iterate(stage.mill.tokens.list))

    for namespace, role, limit in product((None, "*", "default", "none"), (None, "viewer", "operator"), (1, 100)):
        found = list(iterate(stage.mill.tokens.list, namespace=namespace, role=role, limit=limit))
        assert found == [
            one for one in everything if namespace in {None, one.namespace} and role in {None, one.role}
        ], (namespace, role, limit)
    assert len(everything) == 9


def test_consumers_are_listed_by_program_and_data_set(catalog_url, tmp_path):
    """A program reads several data sets, and several programs read one."""
    with staged(tmp_path, catalog_url, READERS) as stage:
        everything = list(iterate(stage.mill.consumers.list))

        for program, dataset, limit in product((None, "one", "default.crm.two"), (None, "sold"), (1, 100)):
            found = list(iterate(stage.mill.consumers.list, program=program, dataset=dataset, limit=limit))
            assert found == [
                one
                for one in everything
                if program is None or one.name.endswith(f".{program.rpartition('.')[2]}")
                if dataset is None or one.dataset == "default.sold"
            ], (program, dataset, limit)
        assert len(everything) == 4


def test_each_combination_of_filters_lists_the_deliveries_that_fit(stage):
    """A person on duty asks first for what was given up."""
    for number, (about, state) in enumerate(product(("alert_1", "alert_2"), ("WAITING", "SENT", "DEAD", "SENT"))):
        stage.sql(
            "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at) VALUES "
            f"""('delivery_{number}', '{{"type": "command", "argv": ["true"]}}', 1, {number}, """
            f"'{about}', 'opened', '', '{state}', 1) RETURNING 1"
        )
    everything = list(iterate(stage.mill.alerts.deliveries))

    for alert, state, limit in product((None, "alert_1", "alert_9"), (None, "waiting", "DEAD", "sent"), (1, 3, 100)):
        found = list(iterate(stage.mill.alerts.deliveries, alert=alert, state=state, limit=limit))
        assert found == [
            one for one in everything if alert in {None, one.about} and (state is None or state.upper() == one.state)
        ], (alert, state, limit)
    assert len(everything) == 8


def test_rules_of_alerts_are_listed_by_the_app_that_declares_them(stage):
    """Rules of a person have no app, and those of the same app in another namespace are others."""
    for number, (namespace, app, name) in enumerate(
        product(("default", "other"), ("", "crm", "shop"), ("a", "b", "c"))
    ):
        stage.sql(
            "INSERT INTO alert_rule (rule_id, namespace, app, name, spec, looks_after) VALUES ("
            f"'rule_{number}', '{namespace}', '{app}', '{app}{name}', "
            """'{"rule": {"type": "run_failed"}}', '') RETURNING 1"""
        )
    everything = list(iterate(stage.mill.alerts.rules))

    for app, limit in product((None, "crm", "other.crm", "other.shop"), (1, 2, 100)):
        found = list(iterate(stage.mill.alerts.rules, app=app, limit=limit))
        wanted = app if app is None or "." in app else f"default.{app}"
        assert found == [one for one in everything if wanted in {None, one.app}], (app, limit)
        assert len(found) == (18 if app is None else 3)


@pytest.mark.parametrize(
    ("noun", "filters", "code", "match"),
    [
        ("tokens", {"namespace": "a.b"}, "bad_name", "a.b"),
        ("tokens", {"role": "vewer"}, "bad_role", "did you mean 'viewer'"),
        ("consumers", {"program": "crm.no"}, "not_found", "crm.no"),
        ("watermarks", {"app": "shpo"}, "not_found", "shop"),
        ("watermarks", {"behind": "two"}, "bad_duration", "two"),
        ("apps", {"namespace": "a.b"}, "bad_name", "a.b"),
        ("topics", {"kind": "won"}, "bad_filter", "did you mean 'own'"),
        ("topics", {"prefix": "%"}, "bad_name", "%"),
        ("subscribers", {"topic": "piad"}, "not_found", "paid"),
        ("subscribers", {"kind": "pul"}, "bad_filter", "did you mean 'pull'"),
        ("subscribers", {"state": "behnd"}, "bad_filter", "did you mean 'behind'"),
    ],
)
def test_a_filter_that_fits_nothing_ever_is_refused(stage, noun, filters, code, match):
    """A slip would look like an empty list."""
    with raises_code(code, match=match):
        getattr(stage.mill, noun).list(**filters)


def test_a_filter_of_alerts_that_fits_nothing_ever_is_refused(stage):
    """The same for the lists of rules and of deliveries."""
    with raises_code("not_found", match="shop"):
        stage.mill.alerts.rules(app="shpo")
    with raises_code("bad_filter", match="did you mean 'DEAD'"):
        stage.mill.alerts.deliveries(state="ded")
    other = stage.mill.acting_as("ann", Access(Role.VIEWER, "other"))
    with raises_code("not_found"):
        other.alerts.rules(app="default.shop")


def test_a_caller_of_one_namespace_sees_its_own_whatever_it_filters_by(stage):
    """A filter is no way around the rights."""
    caller = stage.mill.acting_as("ann", Access(Role.VIEWER, "other"))

    assert [one.name for one in iterate(caller.apps.list, namespace="other", limit=1)] == ["other.crm", "other.shop"]
    assert list(caller.apps.list(namespace="default")) == list(caller.apps.list(namespace="z")) == []
    assert [one.dataset for one in iterate(caller.watermarks.list, behind="2h", limit=1)] == [
        "other.crm_none",
        "other.crm_old",
        "other.shop_none",
        "other.shop_old",
    ]
    with raises_code("not_found"):
        caller.watermarks.list(app="default.shop")
