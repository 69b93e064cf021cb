"""Users that a proxy has signed in: its header counts from its address alone, and browsers behind it stay browsers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from ipaddress import ip_network

import httpx
import pytest

from tests.server.test_listen import with_settings
from tests.yardstick import patience
from tidemill.config import BadConfig
from tidemill.server.listen import Listener

HEADER = "X-Forwarded-User"
USERS = {"ann@example.com": "operator", "bob": "viewer in elsewhere"}
SETTINGS = {"behind_proxy": True, "trust_header": HEADER, "users": USERS}
Serve = Callable[..., httpx.Client]


@pytest.fixture
def serve(stage) -> Iterator[Serve]:
    """Start a server with settings, and return a client of it."""
    with ExitStack() as opened:

        def start(**settings) -> httpx.Client:
            listener = Listener(with_settings(stage, **{**SETTINGS, **settings}), with_link=False)
            listener.start()
            opened.callback(listener.stop)
            return opened.enter_context(httpx.Client(base_url=listener.url, timeout=patience(30)))

        yield start


def user(name: str, **more: str) -> dict[str, str]:
    """Return the headers of a request for a user."""
    return {HEADER: name, **more}


def test_a_user_of_the_proxy_has_the_role_of_the_table(serve):
    """The login of the site is enough."""
    client = serve()

    assert client.get("/v1/runs", headers=user("ann@example.com")).status_code == 200
    assert len(client.get("/v1/schedules", headers=user("ann@example.com")).json()["items"]) == 2
    assert client.get("/v1/schedules", headers=user("bob")).json()["items"] == []
    assert client.get("/v1/tokens", headers=user("ann@example.com")).status_code == 403
    assert client.get("/v1/runs").status_code == 401


def test_a_user_without_a_role_gets_nothing_unless_all_have_one(serve):
    """A login of the site is no right."""
    answer = serve().get("/v1/runs", headers=user("eve"))
    assert (answer.status_code, answer.json()["code"]) == (403, "unknown_user")
    any_user = serve(users={"*": "viewer"})

    assert any_user.get("/v1/runs", headers=user("eve")).status_code == 200
    assert any_user.get("/v1/tokens", headers=user("eve")).status_code == 403


def test_without_a_proxy_the_header_is_air(stage, client):
    """A server without the setting must not listen to it."""
    assert client.get("/v1/runs", headers=user("ann@example.com")).status_code == 401


@pytest.fixture
def far(monkeypatch) -> None:
    """Have the connections of this machine come from elsewhere: no address counts but the declared ones."""
    monkeypatch.setattr("tidemill.server.proxies._LOOPBACK", (ip_network("192.0.2.0/24"),))


@pytest.mark.usefixtures("far")
def test_the_header_counts_from_declared_addresses_alone(serve):
    """Any program that reaches the port may send any header."""
    stranger, proxy = serve(), serve(proxies=frozenset({ip_network("127.0.0.0/8")}))

    assert stranger.get("/v1/runs", headers=user("ann@example.com")).status_code == 401
    assert proxy.get("/v1/runs", headers=user("ann@example.com")).status_code == 200


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("name", ["X-Forwarded-For", "X-Real-IP", "Forwarded"])
def test_an_address_in_a_header_is_no_address_of_a_connection(serve, name):
    """A stranger that claims to be the proxy stays a stranger."""
    headers = user("ann@example.com", **{name: "192.0.2.1"})

    assert serve().get("/v1/runs", headers=headers).status_code == 401


def test_two_headers_are_refused(serve):
    """A proxy that adds its header lets the caller choose."""
    answer = serve().get("/v1/runs", headers=[(HEADER, "ann@example.com"), (HEADER, "bob")])

    assert answer.status_code == 401
    assert "must replace it" in answer.json()["detail"]


def test_a_browser_behind_a_proxy_needs_the_word_of_its_pages(serve, stage):
    """Another site makes the browser send requests, and the proxy signs them in."""
    client, path = serve(), "/v1/schedules/shop.nightly:suspend"
    headers = user("ann@example.com", accept="text/html")
    page = client.get("/runs", headers=headers)
    cookie = page.headers["set-cookie"].partition(";")[0]
    word = re.search(r'name="csrf" content="(\w+)"', page.text).group(1)
    known = {"cookie": cookie, "x-csrf-token": word}

    def change(more: Mapping[str, str]) -> int:
        return client.post(path, json={}, headers={**headers, **more}).status_code

    assert [change({}), change({"cookie": cookie}), change({"x-csrf-token": word})] == [403, 403, 403]
    assert change({**known, "origin": "https://evil.example"}) == 403
    assert change(known) == 200
    (entry,) = stage.mill.audit.log(subject="default.shop.nightly")
    assert entry.actor == "ann@example.com@127.0.0.1"
    assert "Sign out" not in page.text


def test_the_address_of_a_caller_is_the_one_that_the_proxy_names(serve, stage):
    """The row of a change says from where it came; what the caller itself adds in front does not count."""
    client = serve()
    token = stage.mill.tokens.create("ci", role="operator").secret
    headers = {"authorization": f"Bearer {token}", "x-forwarded-for": "10.1.1.1, 198.51.100.7"}

    client.post("/v1/schedules/shop.nightly:suspend", json={}, headers=headers)

    (entry,) = stage.mill.audit.log(subject="default.shop.nightly")
    assert entry.actor == "ci@198.51.100.7"


@pytest.mark.parametrize(
    "settings",
    [
        {"behind_proxy": False},
        {"users": {}},
        {"users": {"ann": "king"}},
        {"users": {"ann": "viewer in "}},
        {"users": {"ann": ""}},
    ],
)
def test_settings_that_would_not_hold_are_refused(stage, settings):
    """A slip in the table must not make an administrator, or a header that counts from everywhere."""
    with pytest.raises(BadConfig, match="server"):
        Listener(with_settings(stage, **{**SETTINGS, **settings}))
