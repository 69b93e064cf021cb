"""Listening: ports, the user's token, TLS, and callers that are slow, silent, torn or hostile."""

from __future__ import annotations

import queue
import socket
import ssl
import stat
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest

from tests.yardstick import patience
from tidemill.config import ServerSettings
from tidemill.mill.mill import Mill
from tidemill.server import application, limits
from tidemill.server.listen import BadCertificate, Listener, NoServer, Unprotected, find_server, make_link


def with_settings(stage, **settings) -> Mill:
    """Return the project with other settings of its server."""
    project = stage.mill.project
    server = replace(ServerSettings(port=0), **settings)
    return Mill(replace(project, config=replace(project.config, server=server)))


@pytest.fixture
def connected(client: httpx.Client) -> Iterator[Callable[[], socket.socket]]:
    """Return new connections to the server of the client, which are closed after the test."""
    url = urlsplit(str(client.base_url))
    assert url.hostname
    with ExitStack() as opened:

        def connect() -> socket.socket:
            return opened.enter_context(socket.create_connection((url.hostname or "", url.port or 0), timeout=20))

        yield connect


def test_a_port_that_is_taken_is_passed_over(stage):
    """A second project on the machine is served as well."""
    first = Listener(with_settings(stage))
    port = urlsplit(first.url).port
    second = Listener(with_settings(stage, port=port))

    assert urlsplit(second.url).port != port
    for one in (first, second):
        one.stop()


def test_a_network_gets_nothing_without_tls(stage):
    """A token in clear text is everybody's."""
    with pytest.raises(Unprotected, match="tls_cert"):
        Listener(with_settings(stage, host="0.0.0.0"))
    Listener(with_settings(stage, host="0.0.0.0", behind_proxy=True)).stop()


def test_the_token_and_the_address_are_the_users_alone(stage):
    """Other users of the machine can reach the port, and must not get in."""
    with pytest.raises(NoServer):
        find_server(stage.mill)
    listener = Listener(with_settings(stage))
    listener.start()
    state = stage.mill.project.config.state
    secret = (state / "token").read_text().strip()

    assert stat.S_IMODE((state / "token").stat().st_mode) == 0o600
    assert (
        httpx.get(
            timeout=patience(10), url=f"{listener.url}/v1/runs", headers={"authorization": f"Bearer {secret}"}
        ).status_code
        == 200
    )
    assert httpx.get(timeout=patience(10), url=f"{listener.url}/v1/runs").status_code == 401
    assert find_server(stage.mill) == listener.url
    listener.stop()
    again = Listener(with_settings(stage))
    again.start()
    assert (state / "token").read_text().strip() == secret
    again.stop()


def test_tls_is_spoken_and_cookies_are_for_tls(stage, tmp_path):
    """A session must not travel in clear text, not even once."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run([*command, *names, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    mill = with_settings(stage, tls_cert=str(certificate), tls_key=str(key))
    listener = Listener(mill)
    link = listener.start()
    context = ssl.create_default_context(cafile=str(certificate))

    answer = httpx.get(timeout=patience(10), url=link, verify=context)

    assert link.startswith("https://")
    assert "Secure" in answer.headers["set-cookie"]
    listener.stop()


def test_a_certificate_that_cannot_be_shown_is_refused_at_once(stage, tmp_path):
    """The address was printed, and no caller ever got an answer."""
    broken = tmp_path / "cert.pem"
    broken.write_text("no certificate")

    with pytest.raises(BadCertificate, match=r"server.tls_cert.*No such file"):
        Listener(with_settings(stage, tls_cert=str(tmp_path / "none.pem")))
    with pytest.raises(BadCertificate, match=r"PEM"):
        Listener(with_settings(stage, tls_cert=str(broken)))


def test_a_server_that_fails_tells_its_process(stage, monkeypatch):
    """Its socket still takes connections: a process that lives on would look like a server that hangs."""

    def fail(_door):
        raise RuntimeError("a defect")

    monkeypatch.setattr(application, "make_application", fail)
    told: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
    listener = Listener(with_settings(stage))

    listener.start(told.put)

    assert str(told.get(timeout=20)) == "a defect"
    listener.stop()


def test_a_thousand_silent_connections_hold_up_no_request(client, connected):
    """A connection that says nothing costs a socket, no thread and no transaction."""
    for _ in range(1000):
        connected()

    assert client.get("/ready").status_code == 200


def test_a_body_that_does_not_come_is_given_up(sign, connected, monkeypatch):
    """Sixteen slow callers would hold all threads, if bodies were read by threads."""
    monkeypatch.setattr(limits, "BODY_WITHIN", 0.3)
    client = sign("operator")
    head = (
        f"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {client.headers['authorization']}\r\n"
        "content-type: application/json\r\ncontent-length: 100\r\n\r\n{"
    )
    slow = [connected() for _ in range(32)]
    for one in slow:
        one.sendall(head.encode())

    assert client.get("/v1/runs").status_code == 200
    assert slow[0].recv(100).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"".join(b"x-%d: y\r\n" % n for n in range(10_000)) + b"\r\n",
        b"GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
    ids=["tls", "version", "path", "headers", "header", "negative", "huge", "chunk"],
)
def test_a_torn_or_hostile_request_gets_one_clear_answer(client, connected, request_bytes):
    """The others go on, and no answer is a defect of ours."""
    with connected() as torn:
        try:
            torn.sendall(request_bytes)
            answer = torn.recv(1000)
        except ConnectionError:  # closed while it was still sending
            answer = b""

    assert answer == b"" or answer.split()[1].startswith(b"4"), answer
    assert client.get("/health").status_code == 200


def test_a_caller_that_goes_in_the_middle_of_a_body_harms_nothing(client, connected):
    """Networks break."""
    with connected() as torn:
        torn.sendall(b"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 100\r\n\r\n{")

    assert client.get("/health").status_code == 200


def test_500_streams_wake_together_and_ask_the_catalog_nothing(sign, stage, connected):
    """Each person at the site has a page open."""
    tokens = [sign("viewer", name=f"v{number}").headers["authorization"] for number in range(5)]
    url = urlsplit(str(sign("viewer").base_url))
    before = threading.active_count()
    streams = [connected() for _ in range(500)]
    for one, token in zip(streams, tokens * 100, strict=True):
        one.sendall(f"GET /v1/stream HTTP/1.1\r\nhost: {url.hostname}\r\nauthorization: {token}\r\n\r\n".encode())
    with ThreadPoolExecutor(50) as readers:
        heads = list(readers.map(lambda one: _read_until(one, b": connected"), streams))
        waiting = threading.active_count()
        stage.mill.topics.publish("own", {})
        events = list(readers.map(lambda one: _read_until(one, b"event: commit"), streams))

    assert all(head.startswith(b"HTTP/1.1 200") for head in heads)
    assert all(events)
    assert waiting - before < 100  # the readers of this test, and those of the server: no thread a stream


def _read_until(stream: socket.socket, wanted: bytes) -> bytes:
    found = b""
    until = time.monotonic() + 20
    while wanted not in found and time.monotonic() < until:
        found += stream.recv(1000)
    return found if wanted in found else b""


def test_each_link_leads_to_a_session_of_its_own(stage):
    """Two browsers of one user have two sessions."""
    listener = Listener(with_settings(stage))
    listener.start()
    cookies = []
    for _ in range(2):
        answer = httpx.get(timeout=patience(10), url=make_link(stage.mill, listener.url))
        cookies.append(answer.headers["set-cookie"].partition(";")[0])

    answers = [
        httpx.get(timeout=patience(10), url=f"{listener.url}/v1/runs", headers={"cookie": cookie}) for cookie in cookies
    ]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert cookies[0] != cookies[1]
    listener.stop()
