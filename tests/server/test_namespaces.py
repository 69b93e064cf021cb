"""Two namespaces that use each other's data: every read route and page of the one names nothing of the other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import httpx
import pytest
from fastapi.routing import APIRoute
from httpx import Client

from tests.server.test_rights import PAGE_FILTERS
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.server.access import Door
from tidemill.server.application import make_application
from tidemill.server.guard import OPEN, needs_of
from tidemill.server.listen import Listener

OWN = """
import datetime
import tidemill as tm

app = tm.App("own")
raw = app.inbox("own_raw", "own_landing", schema="id int", settle="0s")
days = tm.Watermark("ts", pattern="$day", interval="1d")
orders = app.fileset("own_orders", keys={"day": "date"}, watermark=days)
shared = app.fileset("own_shared", keys={"day": "date"})
ticks = app.fileset("own_ticks", keys={"day": "date"}, watermark=days)
follows = tm.Watermark("window_time", interval="1d")
app.fileset("own_hours", keys={"day": "date"}, watermark=follows)
users = app.snapshot("own_users", key=["id"])

@app.python(reads=[raw], writes=[orders])
def own_load(run):
    run.output(orders).append([{"id": n, "day": datetime.date(2026, 1, n)} for n in (1, 2)])

@app.python(reads=[orders, shared])
def own_read(run):
    pass

app.schedule("own_clock", own_load, trigger=tm.Every("1h"))
app.schedule("own_watch", own_read, trigger=tm.NewPartitions(orders) | tm.Hook("default.own_bell"))
"""
GIVES = """
@app.python(writes=["quagga.zebra_gift"], run_on_empty=True)
def own_give(run):
    run.output("quagga.zebra_gift").append([{"id": 1, "day": datetime.date(2026, 1, 1)}])
"""
OTHER = '''
import datetime
import tidemill as tm

app = tm.App("zebra", namespace="quagga")
gift = app.fileset("zebra_gift", keys={"day": "date"})
out = app.fileset("zebra_out", keys={"day": "date"})

@app.python(reads=["default.own_raw", "default.own_orders"], writes=[out, "default.own_shared"])
def zebra_spy(run):
    run.output(out).append([{"id": 1, "day": datetime.date(2026, 1, 1)}])
    run.output("default.own_shared").append([{"id": 1, "day": datetime.date(2026, 1, 1)}])

@app.python(reads=["default.own_orders", "default.own_shared", gift])
def zebra_fail(run):
    raise ValueError("zebra")

@app.python(reads=["default.own_orders", "default.own_shared", "default.own_raw"], writes=[out])
def zebra_late(run):
    pass

app.window_sql("zebra_count", """
    INSERT INTO default.own_hours
    SELECT window_start, window_end, window_time, count(*) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE default.own_ticks, DESCRIPTOR(ts), INTERVAL '1' HOUR))
     GROUP BY window_start, window_end, window_time""")

watched = tm.NewPartitions("default.own_orders") | tm.Hook("default.own_bell")
app.schedule("zebra_watch", zebra_spy, trigger=watched | tm.RunEnded("default.own.own_load"))
app.alert("zebra_alarm", tm.RunFailed(zebra_fail), to=[])
'''
CANARIES = ("zebra", "quagga")


@dataclass(frozen=True)
class Site:
    """The project, and names and ids of each namespace."""

    stage: Stage
    own: Sequence[str]
    hidden: Sequence[str]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two apps in two namespaces, each of which reads and writes data of the other."""
    folder = tmp_path_factory.mktemp("own")
    url = f"sqlite:///{folder / 'catalog.db'}"
    with staged(folder, url, OWN, environ={"TIDEMILL_SERVER_PORT": "0"}) as stage:
        other = tmp_path_factory.mktemp("other")
        with staged(other, url, OTHER, environ={"TIDEMILL_NAMESPACE": "quagga"}) as hidden:
            stage.mill.project.config.app.write_text(OWN + GIVES, encoding="utf-8")
            stage.mill.deploy()
            _fill(stage, hidden)
            yield Site(stage, *_names(stage))


def _fill(stage: Stage, hidden: Stage) -> None:
    """Have both namespaces work on each other's data: runs that ended well, badly, that wait, and that hold claims."""
    landing = stage.mill.project.config.folder / "own_landing"
    landing.mkdir(exist_ok=True)
    (landing / "own.csv").write_text("id\n1\n", encoding="utf-8")
    stage.mill.inboxes.scan("own_raw")
    (landing / "own2.csv").write_text("id\n2\n", encoding="utf-8")
    stage.mill.inboxes.scan("own_raw")
    for one, program in ((stage, "own.own_load"), (stage, "own.own_give")):
        ended = one.outcome(program)
        assert ended == ("COMPLETED", ""), (one.mill.inboxes.files("own_raw"), one.runs()[-1].facts)
    stage.schedule()
    (landing / "own3.csv").write_text("id\n3\n", encoding="utf-8")
    stage.mill.inboxes.scan("own_raw")
    hidden.mill.runs.start("zebra.zebra_fail")
    hidden.play()
    (landing / "own4.csv").write_text("id\n4\n", encoding="utf-8")
    stage.mill.inboxes.scan("own_raw")
    stage.mill.hooks.fire("own_bell")
    stage.schedule()
    hidden.mill.runs.start("zebra.zebra_late")
    stage.mill.runs.start("own.own_load")
    stage.take()
    stage.mill.runs.start("own.own_load")
    hidden.mill.runs.start("zebra.zebra_spy")


def _names(stage: Stage) -> tuple[list[str], list[str]]:
    runs, jobs = stage.mill.runs.list(), stage.mill.jobs.list()
    ids = [(str(one.run_id), one.program) for one in runs] + [(str(one.job_id), one.schedule) for one in jobs]
    own = [one for one, of in ids if (of or "").startswith("default")]
    hidden = [one for one, of in ids if (of or "").startswith("quagga")]
    assert min(sum(one.startswith(kind) for one in ids) for ids in (own, hidden) for kind in ("run_",)) >= 3
    named = [
        "own_raw",
        "own_orders",
        "own_shared",
        "own_users",
        "own_ticks",
        "own_hours",
        "own",
        "own.own_clock",
        "own.own_watch",
        "own_bell",
    ]
    named += ["own.own_load", "own.own_give", "own.own_read"]
    return [*named, *own], hidden


@pytest.fixture(scope="module")
def clients(site: Site) -> Iterator[tuple[Client, Client]]:
    """An admin of the namespace `default`, and one of all namespaces."""
    listener = Listener(site.stage.mill)
    listener.start()
    httpx.get(f"{listener.url}/health", timeout=patience(30))  # before this test makes an application too
    tokens = [
        site.stage.mill.tokens.create(f"n-{name or 'all'}", role="admin", namespace=name).secret
        for name in ("default", None)
    ]
    made = [
        Client(base_url=listener.url, headers={"authorization": f"Bearer {one}"}, timeout=patience(30))
        for one in tokens
    ]
    yield made[0], made[1]
    for one in made:
        one.close()
    listener.stop()


def _paths(site: Site) -> Iterator[str]:
    """Yield the address of each read route and page, with each name of the own namespace in its path and query."""
    app = make_application(Door(site.stage.mill, hosts=frozenset(), secure=False))
    pointers = [str(row[0]) for row in site.stage.sql("SELECT write_pointer FROM tx")]
    consumers = ["default.own.own_load", "default.own.own_read"]
    for route in app.routes:
        if not isinstance(route, APIRoute) or "GET" not in (route.methods or ()):
            continue
        right, whole = needs_of(route.endpoint)
        if right == OPEN or whole or "/stream" in route.path:
            continue
        for name in [*site.own, *(pointers if "pointer" in route.path else ())]:
            if "{dataset}" in route.path and "{name}" in route.path:
                path = [route.path.format(dataset=name, name=one) for one in consumers]
            elif "{key:path}" in route.path:
                path = [route.path.replace("{name}", name).replace("{key:path}", "day=2026-01-01")]
            else:
                path = [re.sub(r"\{[^}]+\}", quote(name), route.path)]
            yield from (f"{one}{query}" for one in path for query in _queries(route, name))


def _queries(route: APIRoute, name: str) -> Iterator[str]:
    yield ""
    known = PAGE_FILTERS
    if route.path.startswith("/v1/"):
        asked = route.dependant.query_params
        known = tuple(
            one for param in asked for one in getattr(param.field_info.annotation, "model_fields", {param.name: 0})
        )
    if named := [one for one in known if one in {*PAGE_FILTERS, "thing"}]:
        yield "?" + urlencode(dict.fromkeys(named, name))
    for wanted in ("key", "day"):
        if wanted in known or (not route.path.startswith("/v1/") and "{" in route.path):
            yield "?" + urlencode({wanted: "day=2026-01-01"})
    if "thing" in known:
        for thing in (f"{name}/day=2026-01-01", f"{name}/day=2026-01-02", f"{name}/own.csv", f"{name}/own2.csv"):
            yield "?" + urlencode({"thing": thing})
    if "file" in known:
        yield "?" + urlencode({"file": "own.csv"})


@pytest.mark.long
def test_no_read_of_one_namespace_names_anything_of_another(site, clients):
    """A team may learn nothing of another team: no name on any page and in any answer.

    A data set of this team shows the ids of runs of the other team that have written to it, or read from it. Such an id
    is a fact about the data set, and leads nowhere.
    """
    ours, _ = clients
    leaks: dict[str, str] = {}
    answered, pages = 0, set()
    for path in dict.fromkeys(_paths(site)):
        answer = ours.get(path)
        answered += answer.status_code == 200
        if answer.headers["content-type"].startswith("text/html"):
            pages.add("/".join(path.partition("?")[0].split("/")[:2]))
        # The log of a run whose process was never started lies nowhere.
        assert answer.status_code < 500 or path.endswith("/logs"), (path, answer.text)
        hidden = CANARIES if "own_shared" in path or "own_raw" in path else (*CANARIES, *site.hidden)
        for canary in hidden:
            if canary in answer.text:
                at = answer.text.index(canary)
                leaks[path] = answer.text[max(0, at - 90) : at + 60]

    assert leaks == {}
    assert answered > 300
    assert pages >= {"/runs", "/schedules", "/transactions", "/consumers", "/datasets", "/inboxes", "/why", "/flow"}
    assert {ours.get(f"/v1/runs/{one}").status_code for one in site.hidden if one.startswith("run_")} == {404}


@pytest.mark.parametrize(
    "path",
    [
        "/v1/consumers",
        "/v1/consumers?dataset=own_orders",
        "/v1/consumers:lag",
        "/v1/datasets/own_orders/partition?key=day=2026-01-01",
        "/v1/inboxes/own_raw/explain",
        "/v1/why?thing=own_orders",
        "/v1/why?thing=own_orders/day=2026-01-01",
        "/v1/why?thing=own_raw",
        "/v1/watermarks",
        "/v1/watermarks/own_ticks",
        "/v1/watermarks/own_hours",
        "/v1/runs?program=own.own_give",
        "/v1/runs/{give}",
        "/v1/transactions/{wrote}",
        "/v1/datasets/own_orders/lineage",
        "/consumers",
        "/runs/{give}",
        "/datasets/own_orders",
        "/why/own_orders",
    ],
)
def test_what_is_hidden_is_there_for_a_caller_of_all_namespaces(site, clients, path):
    """Else the test above would find nothing in answers that have nothing to hide."""
    ours, everyone = clients
    give = site.stage.mill.runs.list(program="own.own_give")[0]
    path = path.format(give=give.run_id, wrote=give.write_pointer)

    said, whole = ours.get(path), everyone.get(path)

    assert (said.status_code, whole.status_code) == (200, 200)
    assert "quagga.zebra" in whole.text
    assert "zebra" not in said.text


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("/v1/datasets/own_order", "default.own_orders"),
        ("/v1/datasets/zebra_gif", None),
        ("/v1/schedules/own.own_cloc", "default.own.own_clock"),
        ("/v1/schedules/zebra.zebra_watc", None),
        ("/v1/schedules/zebra_watc", None),
        ("/v1/apps/ow", "default.own"),
        ("/v1/apps/zebr", None),
        ("/v1/consumers/own_orders/own_rea", "default.own.own_read"),
        ("/v1/consumers/own_orders/zebra_spi", None),
        ("/v1/consumers/own_shared/default.own.own_rea", "default.own.own_read"),
        ("/v1/consumers/own_shared/default.zebra.zebra_fai", None),
    ],
)
def test_the_nearest_name_is_one_of_the_own_namespace(clients, path, nearest):
    """A slip is mended by the answer, and a slip that is near a name of the other team teaches nothing of it."""
    ours, _ = clients

    answer = ours.get(path)

    assert answer.status_code == 404, answer.text
    found = answer.json()["nearest"]
    assert found == nearest if nearest else (found or "default.own").startswith("default.own")
    assert answer.json()["hint"]
    assert not [one for one in CANARIES if one in answer.text.replace(path.rpartition("/")[2], "")]


def test_a_refused_declaration_names_the_nearest_of_the_own_namespace(clients):
    """Rules, triggers and programs name things below the facade, which knows the caller."""
    ours, everyone = clients
    rule = {
        "name": "slip",
        "rule": {"type": "consumer_lag", "dataset": "default.own_shared", "partitions": 1},
        "to": [],
    }
    hidden = {**rule, "rule": {**rule["rule"], "consumer": "default.zebra.zebra_fail"}}
    own = {**rule, "rule": {**rule["rule"], "consumer": "default.own.own_rea"}}

    answers = [client.post("/v1/alerts", json=one).json() for client in (ours, everyone) for one in (hidden, own)]

    assert [one.get("nearest") for one in answers] == [None, "default.own.own_read"] * 2, answers


def test_a_run_names_no_message_about_another_namespace(site, clients):
    """A run of this team has written to a data set of the other team: by messages, facts and page."""
    give = site.stage.mill.runs.list(program="own.own_give")[0].run_id
    keys = [[one["event_key"] for one in client.get(f"/v1/runs/{give}").json()["published"]] for client in clients]

    assert "partition:quagga.zebra_gift" in keys[1]
    assert keys[0] == [one for one in keys[1] if "quagga" not in one]
    assert keys[0] != []


def test_the_balance_of_an_inbox_has_the_runs_of_the_own_namespace(clients):
    """Rows that a team of another namespace made of these files are its own affair."""
    ours, everyone = (client.get("/v1/inboxes/own_raw/arrivals").json() for client in clients)

    assert ours["hours"] == everyone["hours"]
    assert ours["balance"] != everyone["balance"]


def test_a_file_that_is_delivered_again_names_the_readers_of_the_own_namespace(clients):
    """The answer warns of programs that append the rows of the file twice."""
    answers = [
        client.post("/v1/inboxes/own_raw:reprocess", json={"files": [name]}).json()
        for client, name in zip(clients, ("own.csv", "own2.csv"), strict=True)
    ]

    assert [[one for one in answer["may_double"] if "quagga" in one] for answer in answers] == [
        [],
        ["quagga.zebra.zebra_late", "quagga.zebra.zebra_spy"],
    ]
    assert "default.own.own_load" in answers[0]["may_double"]
