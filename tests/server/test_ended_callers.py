"""Callers whose token or session has ended: their open streams end too, in all servers, before a later commit shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from tests.server.test_rates import connect, request
from tests.server.test_sign_in import hidden
from tests.stage import Stage
from tests.yardstick import patience
from tidemill.mill.access import ALL_NAMESPACES, Role
from tidemill.mill.tokens import Principal, TokenKind, find_live, sign_in
from tidemill.server import watcher as watching
from tidemill.server.access import SESSION
from tidemill.server.listen import Listener
from tidemill.server.watcher import Watcher

PATHS = ["/v1/stream", "/v1/stream?topics=own", "/v1/runs/{run_id}/logs?follow=true"]


@pytest.fixture
def servers(stage: Stage) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of two servers of one catalog; the first has signed in as an admin."""
    listeners = [Listener(stage.mill, with_link=False) for _ in range(2)]
    for one in listeners:
        one.start()
        httpx.get(f"{one.url}/health", timeout=patience(20))  # one after the other: both import the same modules
    headers = {"authorization": f"Bearer {stage.mill.tokens.create('ops', role='admin').secret}"}
    with ExitStack() as opened:
        yield (
            opened.enter_context(httpx.Client(base_url=listeners[0].url, headers=headers, timeout=patience(20))),
            opened.enter_context(httpx.Client(base_url=listeners[1].url, timeout=patience(20))),
        )
    for one in listeners:
        one.stop()


class Stream:
    """An open stream on a socket, and what has come of it."""

    def __init__(self, client: httpx.Client, path: str, headers: dict[str, str]) -> None:
        self.socket = connect(client)
        self.socket.sendall(request(path, headers))
        self.came = b""

    def until(self, wanted: bytes) -> None:
        """Read until these bytes have come; fail at the end of the stream."""
        while wanted not in self.came:
            part = self.socket.recv(10_000)
            assert part, f"the stream ended before {wanted!r}: {self.came!r}"
            self.came += part

    def to_the_end(self) -> bytes:
        """Read until the answer has ended, and return all of it. Heartbeats keep no test waiting."""
        give_up_at = time.monotonic() + patience(14)
        while not self.came.endswith(b"0\r\n\r\n"):
            part = self.socket.recv(10_000)
            assert part, f"the answer is torn: {self.came!r}"
            self.came += part
            assert time.monotonic() < give_up_at, f"the stream goes on: {self.came!r}"
        return self.came


@contextmanager
def streaming(client: httpx.Client, path: str, headers: dict[str, str]) -> Iterator[Stream]:
    """Open a stream, and close its socket afterwards."""
    stream = Stream(client, path, headers)
    with stream.socket:
        yield stream


def bearer(stage: Stage, name: str, **options: object) -> dict[str, str]:
    """Return the header of a new token."""
    return {"authorization": f"Bearer {stage.mill.tokens.create(name, role='viewer', **options).secret}"}


def path_of(stage: Stage, path: str) -> tuple[str, bytes]:
    """Return the path of a stream, and what its answer begins with."""
    if "{run_id}" in path:
        return path.format(run_id=stage.mill.runs.start("shop.load").run_id), b"200 OK"
    return path, b": connected"


@pytest.mark.parametrize("path", PATHS)
def test_a_token_that_is_revoked_at_one_server_ends_its_streams_at_the_other(stage, servers, path):
    """A laptop was lost: what it has open must not go on showing what is committed."""
    ours, theirs = servers
    stage.mill.topics.publish("own", {})
    path, begin = path_of(stage, path)
    lost, other = bearer(stage, "lost"), bearer(stage, "other")
    with streaming(theirs, path, lost) as stream, streaming(theirs, "/v1/stream", other) as beside:
        stream.until(begin)
        beside.until(b": connected")

        assert ours.post("/v1/tokens/lost:revoke").json()["changed"] is True

        stream.to_the_end()
        beside.until(b"event: commit")
        beside.came = b""
        stage.mill.topics.publish("own", {})
        beside.until(b"event: commit")
    assert theirs.get(path, headers=lost).status_code == 401


def test_a_caller_that_was_revoked_gets_no_message_of_a_later_commit(stage, servers):
    """Whichever way the watcher is woken: all these commits may be one wake for it."""
    _, theirs = servers
    stage.mill.topics.publish("own", {"n": "before"})
    for round_ in range(5):
        name = f"lost{round_}"
        with streaming(theirs, "/v1/stream?topics=own", bearer(stage, name)) as stream:
            stream.until(b": connected")
            stage.mill.topics.publish("own", {"n": f"seen{round_}"})
            stream.until(f"seen{round_}".encode())
            stage.mill.tokens.revoke(name)
            for _ in range(5):
                stage.mill.topics.publish("own", {"n": f"secret{round_}"})

            assert b"secret" not in stream.to_the_end()


def test_a_backlog_is_not_read_out_to_a_caller_that_was_revoked_meanwhile(stage, servers, monkeypatch):
    """The first messages of a stream come by a read of its own, which the watcher does not see."""
    stage.mill.topics.publish("own", {"n": 0})
    monkeypatch.setattr(Watcher, "_end_refused", lambda _: None)  # the watcher is late
    monkeypatch.setattr(watching, "PART", 1)
    monkeypatch.setattr("tidemill.server.stream.PART", 1)
    read = type(stage.mill.topics).read
    reads = []

    def and_revoke(topics: object, topic: str, **given: object) -> object:
        reads.append(given)
        if len(reads) == 2:
            stage.mill.tokens.revoke("lost")
            stage.mill.topics.publish("own", {"n": "secret"})
        return read(topics, topic, **given)

    headers = bearer(stage, "lost") | {"last-event-id": "own=0.0"}
    stage.mill.topics.publish("own", {"n": 1})
    monkeypatch.setattr(type(stage.mill.topics), "read", and_revoke)
    with streaming(servers[1], "/v1/stream?topics=own", headers) as stream:
        assert b"secret" not in stream.to_the_end()


@pytest.mark.parametrize("path", PATHS)
def test_a_caller_that_is_revoked_before_the_watcher_knows_its_stream_gets_nothing(stage, servers, path, monkeypatch):
    """Its secret was looked at before; no commit will wake the watcher for it."""
    stage.mill.topics.publish("own", {})
    path, _ = path_of(stage, path)
    headers = bearer(stage, "lost")
    add = Watcher.add

    def late(watcher: Watcher, client: watching.Client) -> None:
        stage.mill.tokens.revoke("lost")
        add(watcher, client)

    monkeypatch.setattr(Watcher, "add", late)
    with streaming(servers[1], path, headers) as stream:
        head, _, body = stream.to_the_end().partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 200")
    assert body == b"0\r\n\r\n"


def test_signing_out_at_one_server_ends_the_streams_of_the_session_at_the_other(stage, servers):
    """A page stays open in another window of the same browser."""
    ours, theirs = servers
    secret = stage.mill.tokens.create("laptop", role="viewer").secret
    cookie = {"cookie": f"{SESSION}={sign_in(stage.mill.project.catalog, stage.world, secret, '127.0.0.1')}"}
    second = {"cookie": f"{SESSION}={sign_in(stage.mill.project.catalog, stage.world, secret, '127.0.0.1')}"}
    with streaming(theirs, "/v1/stream", cookie) as stream, streaming(theirs, "/v1/stream", second) as beside:
        stream.until(b": connected")
        beside.until(b": connected")
        page = httpx.get(timeout=patience(10), url=f"{ours.base_url}/", headers=cookie | {"accept": "text/html"})
        left = httpx.post(timeout=patience(10), url=f"{ours.base_url}/logout", headers=cookie, data=hidden(page.text))

        stream.to_the_end()
        stage.mill.tokens.revoke("laptop")
        beside.to_the_end()

    assert left.status_code == 303


def test_a_stream_ends_when_its_token_expires_though_nothing_is_committed(stage, servers):
    """A contractor's token that lives for an afternoon. The watcher waits for the time, and asks nothing before."""
    with streaming(servers[1], "/v1/stream", bearer(stage, "ever")) as other:
        other.until(b": connected")
        with streaming(servers[1], "/v1/stream", bearer(stage, "short", expires="2s")) as stream:
            stream.until(b": connected")
            assert stream.to_the_end()
        stage.mill.topics.publish("own", {})
        other.until(b"event: commit")


def test_one_statement_a_commit_asks_for_all_streams_and_none_while_nothing_happens(stage, servers, monkeypatch):
    """500 pages are open at the site for the whole day."""
    asked: list[int] = []

    def counted(db: object, callers: object) -> object:
        callers = list(callers)
        asked.append(len(callers))
        return find_live(db, callers)

    names = [bearer(stage, f"v{number}") for number in range(4)]
    with ExitStack() as opened:
        streams = [opened.enter_context(streaming(servers[1], "/v1/stream", one)) for one in names * 5]
        for one in streams:
            one.until(b": connected")
        settled = threading.Event()
        settled.wait(0.5)  # uses of the tokens are noted meanwhile
        monkeypatch.setattr(watching, "find_live", counted)
        settled.wait(1)
        idle = list(asked)
        stage.mill.topics.publish("own", {})
        for one in streams:
            one.until(b"event: commit")

    assert idle == []
    assert set(asked) == {4}
    assert len(asked) <= 3, "SQLite may wake the watcher more than once for one commit"


def test_the_user_of_a_proxy_has_no_row_that_could_end(stage):
    """The site signs its people in; a look for their row would end their streams."""
    user = Principal("user:ann", TokenKind.USER, "ann", "", Role.VIEWER, ALL_NAMESPACES, None)
    gone = Principal("tok_gone", TokenKind.TOKEN, "gone", "", Role.VIEWER, ALL_NAMESPACES, None)

    live = stage.mill.project.catalog.read(lambda db: find_live(db, [user, gone]))

    assert live == {"user:ann": None}
