"""Rates: a caller that asks too often, or holds too many streams, has to wait; others go on."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.test_listen import with_settings
from tests.yardstick import patience
from tidemill.server.listen import Listener


@pytest.fixture
def limited(stage) -> Iterator[httpx.Client]:
    """A client of a server with small limits."""
    listener = Listener(with_settings(stage, most_requests=20, most_streams=3), with_link=False)
    listener.start()
    with httpx.Client(base_url=listener.url, timeout=patience(30)) as client:
        yield client
    listener.stop()


def bearer(stage, name: str) -> dict[str, str]:
    """Return the header of a new token."""
    return {"authorization": f"Bearer {stage.mill.tokens.create(name, role='viewer').secret}"}


def test_a_caller_that_asks_too_often_waits_and_others_do_not(limited, stage):
    """A loop without a pause must not take the server from the engineer on duty."""
    loop, other = bearer(stage, "loop"), bearer(stage, "other")
    with ExitStack() as opened:
        # In parallel: one after the other, they might not come faster than the bucket fills.
        sockets = [opened.enter_context(connect(limited)) for _ in range(60)]
        for one in sockets:
            one.sendall(request("/v1/runs", loop))
        statuses = [status_of(one) for one in sockets]
    refused = limited.get("/v1/runs", headers=loop)
    while refused.status_code == 200:
        refused = limited.get("/v1/runs", headers=loop)

    assert set(statuses) == {200, 429}
    assert statuses.count(200) >= 20
    assert refused.json()["code"] == "too_many_requests"
    assert int(refused.headers["retry-after"]) == 1
    assert limited.get("/v1/runs", headers=other).status_code == 200


def test_a_caller_that_waits_may_ask_again(limited, stage):
    """The limit is a rate, and no ban."""
    loop = bearer(stage, "loop")
    while limited.get("/v1/runs", headers=loop).status_code == 200:
        pass
    until = time.monotonic() + patience(30)
    while limited.get("/v1/runs", headers=loop).status_code == 429:
        assert time.monotonic() < until


@pytest.mark.parametrize("path", ["/v1/stream", "/v1/runs/{run_id}/logs?follow=true"])
def test_a_caller_has_so_many_streams_and_a_closed_one_frees_its_place(limited, stage, path):
    """A page left open in a hundred tabs, or a client that connects again without closing."""
    path = path.format(run_id=stage.mill.runs.start("shop.load").run_id)
    many, other = bearer(stage, "many"), bearer(stage, "other")
    with ExitStack() as opened:
        streams = [opened.enter_context(connect(limited)) for _ in range(3)]
        for one in streams:
            one.sendall(request(path, many))
        assert [status_of(one) for one in streams] == [200, 200, 200]
        refused = limited.get(path, headers=many)
        with limited.stream("GET", path, headers=other) as allowed:
            assert allowed.status_code == 200
        streams[0].close()
        until = time.monotonic() + patience(30)
        again = 429
        while again == 429:
            assert time.monotonic() < until
            with limited.stream("GET", path, headers=many) as answer:
                again = answer.status_code

    assert (refused.status_code, refused.json()["code"], refused.headers["retry-after"]) == (
        429,
        "too_many_streams",
        "1",
    )
    assert again == 200


def connect(client: httpx.Client) -> socket.socket:
    """Return a connection to the server of a client."""
    url = urlsplit(str(client.base_url))
    return socket.create_connection((url.hostname or "", url.port or 0), timeout=patience(20))


def request(path: str, headers: dict[str, str]) -> bytes:
    """Return the bytes of a request."""
    lines = [f"GET {path} HTTP/1.1", "host: 127.0.0.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


def status_of(connection: socket.socket) -> int:
    """Return the status of the answer."""
    return int(connection.recv(100).split()[1])
