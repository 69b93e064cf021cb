"""Connections: those that wait for nothing in the end are closed, and cannot take all files of the process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from tests.yardstick import patience
from tidemill.server import connections

Connect = Callable[[], socket.socket]


@pytest.fixture
def connected(client: httpx.Client) -> Iterator[Connect]:
    """Return new connections to the server of the client, which are closed after the test."""
    with ExitStack() as opened:
        yield lambda: opened.enter_context(connect_to(str(client.base_url)))


def connect_to(url: str) -> socket.socket:
    """Open a connection that is read for a while at most."""
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname or "", parts.port or 0), timeout=patience(20))


def closed(one: socket.socket) -> bool:
    """Wait until the other side closes a connection; what it sent before is dropped."""
    try:
        while one.recv(65536):
            pass
    except ConnectionError:
        return True
    except TimeoutError:
        return False
    return True


def test_a_connection_without_the_head_of_a_request_is_closed(sign, connected, monkeypatch):
    """A caller that trickles its head for ever takes a file of the process for ever."""
    monkeypatch.setattr(connections, "HEAD_WITHIN", 0.5)
    token = sign("viewer").headers["authorization"]
    silent, half, answered, following = (connected() for _ in range(4))
    half.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n")
    answered.sendall(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
    following.sendall(f"GET /v1/stream HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {token}\r\n\r\n".encode())
    time.sleep(0.2)
    half.sendall(b"x-more: of the head\r\n")

    assert [closed(one) for one in (silent, half, answered)] == [True] * 3
    following.settimeout(0.2)
    assert following.recv(65536).startswith(b"HTTP/1.1 200")
    assert not closed(following), "it is quiet, and open"


def test_a_caller_that_does_not_read_its_answers_is_left(client, connected, monkeypatch):
    """Its answers wait in memory."""
    monkeypatch.setattr(connections, "READ_WITHIN", 0.3)
    lost, lose = threading.Event(), connections.Connection.connection_lost

    def note(connection: connections.Connection, error: Exception | None) -> None:
        lose(connection, error)
        lost.set()

    monkeypatch.setattr(connections.Connection, "connection_lost", note)
    one = connected()
    one.sendall(b"GET /static/vendor/uPlot.iife.min.js HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" * 1000)

    assert lost.wait(patience(20)), "the server has ended the connection"
    assert client.get("/health").status_code == 200


@pytest.mark.skipif(sys.platform != "linux", reason="the shell of others may have no ulimit")
def test_silent_connections_cannot_take_all_files(tmp_path):
    """SQLite opens files too, and a process may often open 1,024 at once."""
    (tmp_path / "app.py").write_text('import tidemill as tm\n\napp = tm.App("shop")\n', encoding="utf-8")
    tidemill = f"{sys.executable} -c 'from tidemill.cli.main import main; main()' --project {tmp_path}"
    environ = {**os.environ, "TIDEMILL_SERVER_PORT": "0", "PYTHONUNBUFFERED": "1"}
    subprocess.run(["sh", "-c", f"{tidemill} deploy"], env=environ, check=True, capture_output=True)
    command = ["sh", "-c", f"ulimit -n 256; exec {tidemill} server"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) as server, ExitStack() as opened:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().split()[1]
            secret = (Path(tmp_path) / ".tidemill" / "token").read_text().strip()
            headers = {"authorization": f"Bearer {secret}"}
            following = opened.enter_context(connect_to(url))
            head = f"GET /v1/stream HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {secret}\r\n\r\n"
            following.sendall(head.encode())
            assert following.recv(65536)
            silent = [opened.enter_context(connect_to(url)) for _ in range(400)]
            statuses = [httpx.get(f"{url}/v1/runs", headers=headers, timeout=patience(20)).status_code for _ in "123"]
            published = httpx.post(
                timeout=patience(10), url=f"{url}/v1/topics/own/messages", headers=headers, json={"event_key": "own"}
            )
            told = following.recv(65536)
            first, last = closed(silent[0]), silent[-1]
            last.settimeout(0.2)
            with pytest.raises(TimeoutError):
                last.recv(1)
        finally:
            server.terminate()

    assert statuses == [200] * 3
    assert published.status_code < 500, published.text
    assert told, "a connection with a request goes on"
    assert first, "the one that waited longest was closed"
