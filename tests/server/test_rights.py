"""Roles, routes and namespaces: each cell of the table is asked once, and one namespace tells nothing of another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from urllib.parse import urlencode

import httpx
import pytest
from fastapi.routing import APIRoute
from httpx import Client

from tests.run.conftest import rows_of
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.mill.access import ALL_NAMESPACES, Role
from tidemill.mill.operation import Right
from tidemill.mill.operations import OPERATIONS
from tidemill.mill.routes import list_routes
from tidemill.mill.tokens import csrf_of, sign_in
from tidemill.server.access import SESSION, Door
from tidemill.server.application import make_application
from tidemill.server.guard import OPEN, needs_of
from tidemill.server.listen import Listener
from tidemill.server.pages.lists import LISTS
from tools import reference

APP = """
import tidemill as tm
app = tm.App("{app}"{namespace})
raw = app.inbox("{app}_raw", "{app}_landing", schema="id int", settle="0s")
days = tm.Watermark("ts", pattern="$day", interval="1d")
orders = app.fileset("{app}_orders", keys={{"day": "date"}}, watermark=days)
users = app.snapshot("{app}_users", key=["id"])

@app.python(reads=[raw, orders, users], writes=[])
def {app}_load(run):
    pass

app.schedule("{app}_clock", {app}_load, trigger=tm.Every("1h") | tm.NewPartitions(orders))
app.schedule("{app}_hook", {app}_load, trigger=tm.Hook("{space}.{app}_bell"))
"""
OWN, OTHER = "own", "zebra"
"""Apps, and the beginnings of all their names. Nothing with `zebra` may be in an answer to a caller of `default`."""
ROLES = {Role.VIEWER: 0, Role.OPERATOR: 1, Role.DEVELOPER: 2, Role.ADMIN: 3}
NEEDS = {right: place for place, right in enumerate(Right)}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Two apps in two namespaces of one catalog, each with jobs, runs, files and consumers."""
    folder = tmp_path_factory.mktemp("two")
    url = f"sqlite:///{folder / 'catalog.db'}"
    own = APP.format(app=OWN, space="default", namespace="")
    with staged(folder, url, own, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        _fill(opened, OWN)
        other = tmp_path_factory.mktemp("other")
        environ = {"TIDEMILL_NAMESPACE": "secret"}
        text = APP.format(app=OTHER, space="secret", namespace=', namespace="secret"')
        with staged(other, url, text, environ=environ) as hidden:
            _fill(hidden, OTHER)
        yield opened


def _fill(stage: Stage, app: str) -> None:
    landing = stage.mill.project.config.folder / f"{app}_landing"
    landing.mkdir(exist_ok=True)
    (landing / f"{app}.csv").write_text("1\n", encoding="utf-8")
    stage.mill.inboxes.scan(f"{app}_raw")
    stage.mill.runs.start(f"{app}.{app}_load")
    stage.mill.hooks.fire(f"{app}_bell")
    stage.schedule()


@pytest.fixture(scope="module")
def server(stage: Stage) -> Iterator[str]:
    """The address of a server."""
    listener = Listener(stage.mill)
    listener.start()
    httpx.get(f"{listener.url}/health", timeout=patience(20))  # pydantic fails when two threads make models at once
    yield listener.url
    listener.stop()


@pytest.fixture(scope="module")
def clients(stage: Stage, server: str) -> Iterator[dict[tuple[Role, str], Client]]:
    """A client for each role, in all namespaces, in `default`, and in another one."""
    made = {}
    for role in Role:
        for namespace in (ALL_NAMESPACES, "default", "elsewhere"):
            name = f"{role}-{namespace.replace('*', 'all')}"
            token = stage.mill.tokens.create(name, role=role, namespace=None if namespace == "*" else namespace)
            headers = {"authorization": f"Bearer {token.secret}"}
            made[role, namespace] = Client(base_url=server, headers=headers, timeout=patience(20))
    yield made
    for client in made.values():
        client.close()


def _routes(stage: Stage) -> list[APIRoute]:
    app = make_application(Door(stage.mill, hosts=frozenset(), secure=False))
    return [route for route in app.routes if isinstance(route, APIRoute) and needs_of(route.endpoint)[0] != OPEN]


WHOLE = {one.action for one in OPERATIONS if one.mark.whole}
HARMLESS = re.compile(r"/v1/(catalog:adopt|catalog:audit|catalog:fsck|stream)")
"""Routes that are not called where they are allowed: they publish, look through all data, or never end."""


def _call(client: Client, route: APIRoute, *, name: str) -> tuple[int, str]:
    path = re.sub(r"\{[^}]+\}", name, route.path)
    method = next(iter(route.methods))
    answer = client.request(method, path, json=None if method == "GET" else {"nonsense": 1})
    return answer.status_code, answer.text


def test_the_table_has_pages_streams_logs_metrics_and_what_is_open(stage):
    """A route that is left out of the table would be asked by no test."""
    app = make_application(Door(stage.mill, hosts=frozenset(), secure=False))
    every = {(method, route.path) for route in app.routes if isinstance(route, APIRoute) for method in route.methods}
    asked = {(method, route.path) for route in _routes(stage) for method in route.methods}
    from_table = {(one.method, one.path) for one in list_routes()}
    pages = {("GET", page.path) for page in LISTS} | {("GET", "/"), ("GET", "/flow"), ("GET", "/runs/{run_id}")}
    others = {("GET", "/metrics"), ("GET", "/v1/stream"), ("GET", "/v1/runs/{run_id}/logs")}

    assert asked >= from_table | pages | others
    assert every - asked == {
        *(("GET", path) for path in ("/health", "/ready", "/version", "/login", "/v1/openapi.json", "/v1/docs")),
        ("POST", "/login"),
        ("POST", "/logout"),
    }


def test_the_page_of_rights_is_current():
    """An administrator reads the page before giving a role."""
    assert reference.RIGHTS.read_text(encoding="utf-8") == reference.write_rights(), "run `make reference`"


def test_a_session_has_the_cells_of_its_token(stage, server):
    """Each cell of a role is asked with the cookie of a session of its token too, and its word."""
    wrong = []
    for role in Role:
        name = f"session-{role}"
        secret = stage.mill.tokens.create(name, role=role, namespace="default").secret
        session = sign_in(stage.mill.project.catalog, stage.world, secret, "127.0.0.1")
        headers = {"cookie": f"{SESSION}={session}", "x-csrf-token": csrf_of(session)}
        with Client(base_url=server, headers=headers, timeout=patience(60)) as client:
            for route in _routes(stage):
                right, whole = needs_of(route.endpoint)
                allowed = ROLES[role] >= NEEDS[right] and not whole
                if not (allowed and HARMLESS.search(route.path)):
                    status, text = _call(client, route, name="nothing-of-that-name")
                    if (status == 403) == allowed or status >= 500:
                        wrong.append((role, route.path, status, text[:120]))

    assert wrong == []


def test_each_role_reaches_its_routes_in_each_namespace_and_no_others(stage, clients):
    """A cell that is wrong opens a change to a viewer, or closes a page to an engineer on duty."""
    wrong = []
    routes = _routes(stage)
    for (role, namespace), client in clients.items():
        for route in routes:
            right, whole = route.endpoint.__needs__
            allowed = ROLES[role] >= NEEDS[right] and (not whole or namespace == ALL_NAMESPACES)
            if allowed and HARMLESS.search(route.path):
                continue
            status, text = _call(client, route, name="nothing-of-that-name")
            if (status == 403) == allowed or status >= 500 or (not allowed and status != 403):
                wrong.append((role, namespace, route.path, status, text[:120]))

    assert wrong == []
    assert len(routes) * len(clients) > 900


def test_without_a_token_or_with_a_revoked_one_no_route_answers(stage, server, clients):
    """Deny by default, at once after the revocation; a caller with a token does not suffer for strangers."""
    secret = stage.mill.tokens.create("short", role="admin").secret
    routes = _routes(stage)
    with Client(base_url=server, headers={"authorization": f"Bearer {secret}"}, timeout=patience(20)) as client:
        assert client.get("/v1/runs").status_code == 200
        stage.mill.tokens.revoke("short")
        assert client.get("/v1/runs").status_code == 401
    with Client(base_url=server, timeout=patience(20)) as client:
        # A request without a secret is no guess. Browsers send such requests before each sign-in.
        silent = {_call(client, route, name="x")[0] for route in routes}
        client.headers["authorization"] = f"Bearer {secret}"
        guessing = {_call(client, route, name="x")[0] for route in routes}

    assert len(routes) > 60
    assert silent == {401}
    # After 30 failures the address has to wait.
    assert guessing == {401, 429}
    assert clients[Role.VIEWER, "*"].get("/v1/runs").status_code == 200


def test_one_namespace_tells_nothing_of_another(stage, clients):
    """A token for `default` asks each route, by its own names and by names of the other namespace."""
    client = clients[Role.ADMIN, "default"]
    everything = stage.mill
    hidden = [f"secret.zebra_{one}" for one in ("raw", "orders", "users")]
    hidden += ["secret.zebra", "secret.zebra.zebra_clock", "secret.zebra.zebra_load", "zebra_clock", "zebra_load"]
    hidden += [one.run_id for one in everything.runs.list() if (one.program or "").startswith("secret")]
    hidden += [one.job_id for one in everything.jobs.list() if one.schedule.startswith("secret")]
    mine = ["own_raw", "own_orders", "own_users", "own", "own.own_clock", "own.own_load", "own_bell"]
    mine += [one.run_id for one in everything.runs.list() if (one.program or "").startswith("default")]
    mine += [one.job_id for one in everything.jobs.list() if one.schedule.startswith("default")]
    assert any(one.startswith("run_") for one in hidden)
    assert any(one.startswith("job_") for one in hidden)
    asked = answered = 0
    pages, shown = set(), set()
    for route in _routes(stage):
        if route.endpoint.__needs__[1] or "/stream" in route.path or "GET" not in route.methods:
            continue
        for name in (*mine, *hidden):
            path = re.sub(r"\{[^}]+\}", name, route.path)
            if path.endswith("/why") or "{" not in route.path:
                path += "?" + urlencode(dict.fromkeys(_names_in_query(route), name))
            answer = client.get(path)
            if not route.path.startswith(("/v1/", "/metrics")):
                pages.add(route.path)
            if answer.headers["content-type"].startswith("text/html") and name in mine:
                shown.add(route.path)
            said = answer.text.replace(name, "").replace(name.partition(".")[2] or name, "")
            assert OTHER not in said, (path, said)
            assert "secret" not in said, (path, said)
            asked += 1
            answered += answer.status_code == 200
            if name in hidden and "{" in route.path:
                assert answer.status_code in {404, 422}, (path, answer.status_code, said)
    assert asked > 600
    assert answered > 200
    # Each other page was looked at with something on it. These eight need other names: see test_namespaces.py.
    assert pages - shown == {
        *("/runs", "/schedules", "/consumers", "/alerts/{alert_id}", "/transactions/{write_pointer}"),
        *("/consumers/{dataset}/{name}", "/datasets/{name}/{key:path}", "/backfills/{backfill_id}"),
    }
    assert len(pages) > 20


PAGE_FILTERS = ("text", "around", "program", "schedule", "dataset", "app", "subject", "trigger")


def _names_in_query(route: APIRoute) -> tuple[str, ...]:
    """Return the parameters of a route in which a name may stand; a page takes what it knows, and leaves the rest."""
    if not route.path.startswith("/v1/"):
        return PAGE_FILTERS
    asked = route.dependant.query_params
    named = {one for param in asked for one in getattr(param.field_info.annotation, "model_fields", {param.name: 0})}
    return tuple(one for one in named if one in {*PAGE_FILTERS, "thing"})


def test_a_caller_of_one_namespace_uses_the_pages_of_its_own(clients):
    """A team with a token for its namespace looks at its work, and has no link that leads to a refusal."""
    client = clients[Role.VIEWER, "default"]
    page = client.get("/", headers={"accept": "text/html"})
    places = re.findall(r'href="(/[^"]*)"', page.text.partition('<nav class="side"')[2].partition("</nav>")[0])

    assert page.status_code == 200
    assert "own_orders" in page.text
    assert OTHER not in page.text
    assert {client.get(place).status_code for place in places} == {200}
    assert {"/datasets", "/runs", "/flow", "/transactions"} <= set(places)
    assert not {"/tokens", "/audit", "/topics"} & set(places)


@pytest.mark.parametrize("namespace", ["default", "*"])
def test_lists_are_cut_to_what_a_caller_may_read(clients, namespace):
    """A page of one namespace is whole, whatever stands between its rows."""
    client = clients[Role.VIEWER, namespace]
    for path in ("apps", "datasets", "schedules", "jobs", "runs", "consumers", "watermarks"):
        rows, after = [], ""
        while after is not None:
            page = client.get(f"/v1/{path}?limit=1&after={after}").json()
            rows += page["items"]
            after = page["next"]
        text = json.dumps(rows)
        assert OWN in text, path
        assert (OTHER in text) == (namespace == "*"), path


def test_changes_of_things_of_another_namespace_are_refused(clients, stage):
    """A thing that cannot be read cannot be changed either."""
    client = clients[Role.ADMIN, "default"]
    hidden = next(one for one in stage.mill.runs.list() if (one.program or "").startswith("secret"))
    job = next((one for one in stage.mill.jobs.list() if one.schedule.startswith("secret")), None)
    assert job is not None

    assert client.post(f"/v1/runs/{hidden.run_id}:kill").status_code == 404
    assert client.post(f"/v1/runs/{hidden.run_id}:retry").status_code == 404
    assert client.post("/v1/runs", json={"program": "secret.zebra.zebra_load"}).status_code == 404
    assert client.post(f"/v1/jobs/{job.job_id}:drop").status_code == 404
    assert client.post(f"/v1/jobs/{job.job_id}:force").status_code == 404
    assert client.post("/v1/schedules/secret.zebra.zebra_clock:suspend").status_code == 404
    assert client.delete("/v1/apps/secret.zebra").status_code == 404
    assert client.post("/v1/schedules:suspend-all", json={"mode": "hold"}).json()["items"] != []
    assert stage.mill.schedules.show("secret.zebra.zebra_clock").status == "SCHEDULED"
    for name in ("own.own_clock", "own.own_hook"):
        stage.mill.schedules.resume(name)


EVERY = {"type": "every", "duration": "1h"}
HEARD = {
    "schedule": {"name": "zebra.mine", "program": "own.own_load", "trigger": EVERY},
    "program": {"program": "secret.zebra.zebra_load", "trigger": EVERY},
    "data set": {"trigger": {"type": "new_partitions", "fileset": "secret.zebra_orders"}},
    "part": {
        "trigger": {
            "type": "any_of",
            "triggers": [EVERY, {"type": "watermark_passed", "fileset": "secret.zebra_orders", "every": "1d"}],
        }
    },
    "run": {"trigger": {"type": "run_ended", "program": "secret.zebra.zebra_load"}},
    "hook": {"trigger": {"type": "hook", "name": "secret.zebra_bell"}},
}
OF_NO_NAMESPACE = {
    "topic": {"trigger": {"type": "message_on", "topic": "paid"}},
    "group": {"trigger": EVERY, "constraints": [{"type": "group_concurrency", "group": "spark", "n": 1}]},
}
WATCHED = {*HEARD, *OF_NO_NAMESPACE} - {"schedule", "program"}
RULES = {
    "program": {"type": "run_failed", "program": "secret.zebra.zebra_load"},
    "schedule": {"type": "job_waits", "schedule": "secret.zebra.zebra_clock", "longer_than": "1h"},
    "data set": {"type": "late", "dataset": "secret.zebra_orders"},
    "consumer": {
        "type": "consumer_lag",
        "dataset": "default.own_orders",
        "consumer": "secret.zebra.zebra_load",
        "partitions": 1,
    },
}
TARGETS = {
    "command": {"type": "command", "argv": ["/bin/true"]},
    "secret": {"type": "web_hook", "url": "https://a.example/x", "secret": "env:TIDEMILL_TOKEN"},
    "machine": {"type": "web_hook", "url": "http://127.0.0.1:9/x"},
    "mail": {"type": "email", "to": ["a@b.example"], "server": "mail.example:587", "sender": "t@b.example"},
}


@pytest.fixture
def developer(clients: dict[tuple[Role, str], Client], stage: Stage) -> Iterator[Client]:
    """A developer of `default`; schedules and rules of the test are gone behind it."""
    yield clients[Role.DEVELOPER, "default"]
    for name in ("default.own.mine", "default.own.second"):
        if name in {one.name for one in stage.mill.schedules.list()}:
            stage.mill.schedules.delete(name)
    for one in stage.mill.alerts.rules():
        stage.mill.alerts.delete(one.name)


def test_a_developer_of_one_namespace_makes_and_changes_its_schedules(developer, stage):
    """A team that has its own namespace needs no administrator for a schedule."""
    trigger = {
        "type": "any_of",
        "triggers": [EVERY, {"type": "new_partitions", "fileset": "own_orders"}, {"type": "hook", "name": "own_bell"}],
    }
    made = {
        "name": "own.mine",
        "program": "own.own_load",
        "trigger": trigger,
        "constraints": [{"type": "concurrency", "n": 1}],
    }
    second = {"name": "own.second", "program": "own.own_load", "trigger": EVERY}

    created = developer.post("/v1/schedules", json=made)
    many = developer.post("/v1/schedules:create-many", json={"entries": [second]})
    changed = developer.patch("/v1/schedules/own.mine", json={"priority": 3})

    assert [one.status_code for one in (created, many, changed)] == [200, 200, 200], (created.text, many.text)
    assert stage.mill.schedules.show("own.mine").priority == 3
    assert {one.actor for one in stage.mill.audit.log(subject="default.own.mine")} == {"developer-default@127.0.0.1"}


@pytest.mark.parametrize("named", [*HEARD, *OF_NO_NAMESPACE])
def test_a_schedule_of_one_namespace_names_nothing_of_another(developer, stage, named):
    """A schedule that listens to a thing tells of its moves: names and sizes of partitions, ends of runs."""
    given = {"name": "own.mine", "program": "own.own_load", **HEARD.get(named, {}), **OF_NO_NAMESPACE.get(named, {})}
    if named == "schedule":
        given["name"] = "secret.zebra.mine"
    options = {name: value for name, value in given.items() if name not in ("name", "program")}
    wanted = 403 if named in OF_NO_NAMESPACE else 404

    alone = developer.post("/v1/schedules", json=given)
    many = developer.post("/v1/schedules:create-many", json={"entries": [given]})
    changed = developer.patch("/v1/schedules/own.own_hook", json=options if named in WATCHED else {})

    assert alone.status_code == wanted, alone.text
    assert many.status_code == 422, many.text
    assert many.json()["because"] == ("forbidden" if wanted == 403 else "not_found")
    assert changed.status_code == (wanted if named in WATCHED else 200), changed.text
    for answer in (alone, many, changed):
        assert OTHER not in hide(answer.text, given), answer.text
    assert "default.own.mine" not in {one.name for one in stage.mill.schedules.list()}
    assert stage.mill.schedules.show("own.own_hook").trigger == "Hook(default.own_bell)"


def test_an_answer_about_a_hidden_thing_is_that_about_no_thing(developer):
    """Else a caller learns which names there are, by trying."""
    answers = []
    for name in ("secret.zebra_orders", "secret.zebra_nothin", "own_order"):
        trigger = {"type": "new_partitions", "fileset": name}
        given = {"name": "own.mine", "program": "own.own_load", "trigger": trigger}
        for path, body in (("", given), (":create-many", {"entries": [given]})):
            answer = developer.post(f"/v1/schedules{path}", json=body)
            answers.append((answer.status_code, answer.json()["detail"].replace(name, "X").replace("default.", "")))

    assert [status for status, _ in answers] == [404, 422] * 3
    assert answers[:2] == answers[2:4]
    assert ["did you mean 'Xs'?" in detail for _, detail in answers] == [False] * 4 + [True] * 2


@pytest.mark.parametrize("named", RULES)
def test_a_rule_of_one_namespace_is_about_its_things(developer, stage, named):
    """An alert says how long a program runs, and how much waits."""
    answer = developer.post("/v1/alerts", json={"name": "mine", "rule": RULES[named]})
    own = json.loads(json.dumps(RULES[named]).replace("secret.zebra", "default.own").replace("zebra_", "own_"))
    made = developer.post("/v1/alerts", json={"name": "mine", "rule": own})

    assert answer.status_code == 404, answer.text
    assert made.status_code == 200, made.text
    assert [one.name for one in stage.mill.alerts.rules()] == ["default.mine"]


@pytest.mark.parametrize("kind", TARGETS)
def test_a_rule_of_one_namespace_starts_no_program_and_sends_no_secret(developer, stage, kind):
    """A command runs as the user of `tidemill up`, and a mail server gets the password: both are beyond a namespace."""
    rule = {"type": "run_failed", "program": "own.own_load"}
    refused = developer.post("/v1/alerts", json={"name": "mine", "rule": rule, "to": [TARGETS[kind]]})
    machine = developer.post("/v1/alerts", json={"name": "mine", "rule": {"type": "disk_low", "free": "1 GB"}})
    hook = {"type": "web_hook", "url": "https://hooks.example/x"}
    made = developer.post("/v1/alerts", json={"name": "mine", "rule": rule, "to": [hook]})

    assert (refused.status_code, machine.status_code, made.status_code) == (403, 403, 200), refused.text
    assert [one.to for one in stage.mill.alerts.rules()] == [("WebHook hooks.example",)]


def test_a_rule_of_one_namespace_is_changed_within_it(developer, stage):
    """A team that makes a rule changes its limit without an administrator."""
    hook = {"type": "web_hook", "url": "https://hooks.example/x"}
    developer.post(
        "/v1/alerts", json={"name": "mine", "rule": {"type": "run_failed", "program": "default.own.own_load"}}
    )
    rule = {"type": "late", "dataset": "default.own_orders", "by": "2h"}

    changed = developer.patch("/v1/alerts/mine", json={"rule": rule, "to": [hook]})

    assert changed.status_code == 200, changed.text
    assert [(one.rule["type"], one.to) for one in stage.mill.alerts.rules()] == [("late", ("WebHook hooks.example",))]
    assert stage.mill.audit.log(subject="default.mine")[0].actor == "developer-default@127.0.0.1"


@pytest.mark.parametrize(
    ("stored", "change", "status"),
    [
        *(({}, {"rule": rule}, 404) for rule in RULES.values()),
        *(({}, {"to": [target]}, 403) for target in TARGETS.values()),
        ({}, {"rule": {"type": "disk_low", "free": "1 GB"}}, 403),
        *(({"rule": RULES[kind]}, {"description": "x"}, 403) for kind in sorted(RULES.keys() - {"consumer"})),
        ({"rule": RULES["consumer"] | {"dataset": "secret.zebra_orders"}}, {"description": "x"}, 403),
        *(({"to": [target]}, {"description": "x"}, 403) for target in TARGETS.values()),
        ({"rule": {"type": "disk_low", "free": "1 GB"}}, {"rule": {"type": "run_failed"}}, 403),
        ({"to": [TARGETS["command"]]}, {"to": []}, 403),
    ],
)
def test_a_change_of_a_rule_stays_within_the_namespace(developer, stage, stored, change, status):
    """A rule that an administrator made starts a program, or watches another team: neither for another purpose."""
    made = {"rule": {"type": "run_failed", "program": "default.own.own_load"}, **stored}
    before = stage.mill.alerts.create("mine", **made)

    answer = developer.patch("/v1/alerts/mine", json=change)

    assert answer.status_code == status, answer.text
    assert "zebra" not in hide(answer.text, change)
    assert stage.mill.alerts.rules()[0] == before


def test_deliveries_of_one_namespace_are_listed_and_retried_alone(clients, stage):
    """A delivery names the alert and its target."""
    catalog = stage.mill.project.catalog
    for app, namespace in ((OWN, "default"), (OTHER, "secret")):
        rows_of(
            catalog,
            "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) VALUES "
            f"('alert_{app}', 'rule_{app}', '{namespace}', '{namespace}.{app}', 'x', 'OPEN', 'y', 1, 1) RETURNING 1",
        )
        target = json.dumps(TARGETS["command"])
        rows_of(
            catalog,
            "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, ended_at) VALUES "
            f"('delivery_{app}', '{target}', 1, 0, 'alert_{app}', 'opened', '{{}}', 'DEAD', 1, 1) RETURNING 1",
        )
    viewer, operator = clients[Role.VIEWER, "default"], clients[Role.OPERATOR, "default"]

    listed = [viewer.get(f"/v1/alerts:deliveries{query}").json()["items"] for query in ("", f"?alert=alert_{OTHER}")]
    retried = [operator.post(f"/v1/alerts/delivery_{app}:retry") for app in (OWN, OTHER)]

    assert [[one["delivery_id"] for one in rows] for rows in listed] == [["delivery_own"], []]
    assert [one.status_code for one in retried] == [200, 404]
    states = rows_of(catalog, "SELECT delivery_id, state FROM delivery ORDER BY delivery_id")
    assert states == [("delivery_own", "WAITING"), ("delivery_zebra", "DEAD")]
    assert len(clients[Role.VIEWER, "*"].get("/v1/alerts:deliveries").json()["items"]) == 2
    rows_of(catalog, "DELETE FROM delivery RETURNING 1")
    rows_of(catalog, "DELETE FROM alert RETURNING 1")


def test_transactions_of_one_namespace_are_listed_alone(clients, stage):
    """A transaction says when a team writes, and why its work was refused."""
    begun = {
        name: stage.mill.transactions.begin([f"{name}_orders"]).write_pointer
        for name in ("default.own", "secret.zebra")
    }
    both = stage.mill.transactions.begin(["default.own_orders", "secret.zebra_orders"]).write_pointer

    found, after = [], ""
    while after is not None:
        page = clients[Role.VIEWER, "default"].get(f"/v1/transactions?limit=1&after={after}").json()
        found += [one["write_pointer"] for one in page["items"]]
        after = page["next"]
    every = {one["write_pointer"] for one in clients[Role.VIEWER, "*"].get("/v1/transactions").json()["items"]}
    is_open = clients[Role.VIEWER, "default"].get("/v1/transactions?open_only=true").json()["items"]

    assert begun["default.own"] in found
    assert not {begun["secret.zebra"], both} & set(found)
    assert [one["write_pointer"] for one in is_open] == [begun["default.own"]]
    assert every >= {*begun.values(), both}
    for pointer in (*begun.values(), both):
        stage.mill.transactions.abort(pointer)


def hide(text: str, given: object) -> str:
    """Return a text without the names that its asker has sent."""
    for name in re.findall(r"[\w.]*zebra[\w.]*", json.dumps(given)):
        text = text.replace(name, "")
    return text
