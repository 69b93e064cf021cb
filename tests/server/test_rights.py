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
        session = sign_in(stage.mill.project.catalog, stage.world, secret)
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
    hidden += [one.run_id for one in everything.runs.list() if one.program.startswith("secret")]
    hidden += [one.job_id for one in everything.jobs.list() if one.schedule.startswith("secret")]
    mine = ["own_raw", "own_orders", "own_users", "own", "own.own_clock", "own.own_load", "own_bell"]
    mine += [one.run_id for one in everything.runs.list() if one.program.startswith("default")]
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
    # Each other page was looked at with something on it. These six need other names: see test_namespaces.py.
    assert pages - shown == {
        *("/runs", "/schedules", "/alerts/{alert_id}", "/transactions/{write_pointer}"),
        *("/consumers/{dataset}/{name}", "/datasets/{name}/{key:path}"),
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
    assert {"/datasets", "/runs", "/flow"} <= set(places)
    assert not {"/tokens", "/audit", "/transactions", "/topics"} & set(places)


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
    hidden = next(one for one in stage.mill.runs.list() if one.program.startswith("secret"))
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
