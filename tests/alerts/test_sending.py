"""Sending, to real receivers: a web hook, a mail server, a command. No secret is in what is sent or stored."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import tidemill as tm
from tests.errors import raises_code
from tidemill.alerts.connecting import NotDelivered, Reach
from tidemill.alerts.sending import EVENT, SIGNATURE, Post
from tidemill.world import World

BODY = json.dumps(
    {
        "specversion": "1.0",
        "id": "delivery_1",
        "type": "tidemill.alert.opened",
        "subject": "default.shop.load",
        "data": {"event": "opened", "why": "run 7 failed", "description": "see the runbook"},
    }
)
CANARY = "canary-4f1c"
WORLD = World(environ={"HOOK": CANARY, "PATH": "/usr/bin:/bin"})


class Receiver(BaseHTTPRequestHandler):
    """Notes each request; its paths answer with a status."""

    got: list[tuple[str, dict[str, str], str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"])).decode()
        self.got.append((self.path, {name.lower(): value for name, value in self.headers.items()}, body))
        status = int(self.path.rpartition("/")[2])
        self.send_response(status)
        if status == 302:
            self.send_header("location", "/204")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def receiver() -> Iterator[type[Receiver]]:
    """A server of this machine that takes web hooks."""
    kind = type("Noting", (Receiver,), {"got": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        kind.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield kind
        server.shutdown()


def test_a_web_hook_gets_a_signed_cloud_event(receiver):
    """A receiver makes the signature again, and knows the sender and the time."""
    Post(WORLD).send(tm.WebHook(f"{receiver.url}/204", secret="env:HOOK"), BODY)

    ((_, headers, body),) = receiver.got
    at, signature = (part.partition("=")[2] for part in headers[SIGNATURE].split(","))
    assert headers["content-type"] == "application/cloudevents+json"
    assert json.loads(body) == json.loads(BODY)
    assert signature == hmac.new(CANARY.encode(), f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
    assert CANARY not in f"{headers}{body}"


@pytest.mark.parametrize("status", [302, 404, 500])
def test_a_receiver_that_refuses_gets_the_delivery_again(receiver, status):
    """A redirect is not followed: it may lead to a machine that the address must not reach."""
    with raises_code("not_delivered", match=f"status {status}"):
        Post(WORLD).send(tm.WebHook(f"{receiver.url}/{status}"), BODY)
    assert len(receiver.got) == 1


def test_a_hook_of_slack_gets_one_line(receiver):
    """Its address is a secret, and is read when it is needed."""
    world = World(environ={"URL": f"{receiver.url}/200"})
    Post(world).send(tm.Slack("env:URL"), BODY)

    ((_, _, body),) = receiver.got
    assert json.loads(body) == {"text": "opened: default.shop.load — run 7 failed — see the runbook"}
    with raises_code("no_secret", match="env:NONE"):
        Post(world).send(tm.Slack("env:NONE"), BODY)
    with raises_code("bad_target") as refused:
        Post(World(environ={"URL": f"ftp://{CANARY}"})).send(tm.Slack("env:URL"), BODY)
    assert CANARY not in str(refused.value)


class MailServer(socketserver.StreamRequestHandler):
    """Takes one mail, as SMTP asks for."""

    mails: list[str]

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line.split()[0].upper()
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                mail = b""
                while not mail.endswith(b"\r\n.\r\n"):
                    mail += self.rfile.readline()
                self.mails.append(mail.decode())
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return


def test_a_mail_names_the_subject_and_the_reason():
    """The id of the delivery is that of the mail, so that a mail program shows a repetition once."""
    kind = type("Taking", (MailServer,), {"mails": []})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = tm.Email(("ops@example.com",), f"127.0.0.1:{server.server_address[1]}", "tidemill@example.com")
        Post(WORLD).send(target, BODY)
        server.shutdown()

    (mail,) = kind.mails
    assert "Subject: opened: default.shop.load" in mail
    assert "why: run 7 failed" in mail
    assert "<delivery_1@tidemill>" in mail


def test_a_command_finds_the_event_in_its_environment(tmp_path):
    """Its exit code says whether the sending worked."""
    code = f"import os, pathlib; pathlib.Path({str(tmp_path / 'notices')!r}).write_text(os.environ[{EVENT!r}])"
    Post(WORLD).send(tm.Command((sys.executable, "-c", code)), BODY)

    assert json.loads((tmp_path / "notices").read_text()) == json.loads(BODY)
    with raises_code("not_delivered", match="ended with 3: no pager"):
        Post(WORLD).send(tm.Command((sys.executable, "-c", "print('no pager'); raise SystemExit(3)")), BODY)


def test_a_receiver_that_is_away_is_named_by_its_error():
    """The error stands in the list of deliveries."""
    with raises_code("not_delivered"):
        Post(WORLD).send(tm.WebHook("http://127.0.0.1:9/x"), BODY)


def resolving(monkeypatch, address: str) -> None:
    """Have each name resolve to one address, as the name server of a stranger can have it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET

    def resolve(_: str, port: int, *__: object, **___: object) -> list[tuple[object, ...]]:
        return [(family, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.7",
        "127.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "::1",
        "fd00::1",
        "::ffff:192.168.0.1",
        "64:ff9b::a00:1",
    ],
)
def test_a_name_of_a_private_address_is_not_reached(monkeypatch, address):
    """The name server of a stranger could lead a delivery to a machine behind the firewall."""
    resolving(monkeypatch, address)
    connected = []
    monkeypatch.setattr(socket, "create_connection", lambda *given, **_: connected.append(given))

    with raises_code("not_delivered", match=r"private address .*alerts\.private_hosts"):
        Post(WORLD).send(tm.WebHook("https://hooks.example.org/x"), BODY)
    assert connected == []


def test_the_name_of_this_machine_is_no_public_name(receiver):
    """By the real look-up of names: the hosts file leads to this machine."""
    name, port = socket.gethostname(), receiver.url.rpartition(":")[2]
    with raises_code("not_delivered", match="private address|has no address"):
        Post(WORLD).send(tm.WebHook(f"https://{name}:{port}/200"), BODY)
    assert receiver.got == []


@pytest.mark.parametrize("allowed", ["hooks.example.org", "127.0.0.0/8"])
def test_a_private_host_is_reached_where_the_setting_allows_it(monkeypatch, receiver, allowed):
    """The receiver of a company is in its own network. Its address is looked up once, and that one is used."""
    port = int(receiver.url.rpartition(":")[2])
    resolving(monkeypatch, "127.0.0.1")

    with Reach({allowed}).connect("hooks.example.org", port) as connection:
        assert connection.getpeername() == ("127.0.0.1", port)


@pytest.fixture
def certificate(tmp_path) -> tuple[str, str]:
    """A certificate of this machine that its own key has signed."""
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", *names]
    subprocess.run([*command, "-keyout", tmp_path / "key", "-out", tmp_path / "cert"], check=True, capture_output=True)
    return str(tmp_path / "cert"), str(tmp_path / "key")


def test_a_delivery_goes_by_tls_to_the_host_of_the_certificate_only(monkeypatch, receiver, certificate):
    """A stranger on the way must not read alerts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with ThreadingHTTPServer(("127.0.0.1", 0), receiver) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        with raises_code("not_delivered", match="(?i)certificate"):
            Post(WORLD).send(tm.WebHook(f"https://localhost:{port}/200"), BODY)
        assert receiver.got == []
        monkeypatch.setenv("SSL_CERT_FILE", certificate[0])
        Post(WORLD).send(tm.WebHook(f"https://localhost:{port}/200"), BODY)
        with raises_code("not_delivered", match="(?i)certificate"):
            Post(WORLD).send(tm.WebHook(f"https://127.0.0.1:{port}/200"), BODY)
        server.shutdown()

    assert [(path, headers["host"]) for path, headers, _ in receiver.got] == [("/200", f"localhost:{port}")]


class Dribbling(socketserver.BaseRequestHandler):
    """Answers a byte at a time, without end."""

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            self.request.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            while True:
                self.request.sendall(b"x")
                time.sleep(0.02)  # slower than the try, and livelier than its time-out


@pytest.mark.parametrize("kind", ["hook", "mail"])
def test_a_receiver_that_dribbles_is_cut_off(kind):
    """Each byte comes in time, so that no time-out of a socket ends the try."""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dribbling) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        target = (
            tm.WebHook(f"http://127.0.0.1:{port}/x")
            if kind == "hook"
            else tm.Email(("ops@example.com",), f"127.0.0.1:{port}", "tidemill@example.com")
        )
        with raises_code("not_delivered", match="longer than 0.3 seconds"):
            Post(WORLD, longest=timedelta(milliseconds=300)).send(target, BODY)
        server.shutdown()


def test_a_command_that_hangs_is_ended():
    """A pager that waits for a network would hold its lane for ever."""
    with raises_code("not_delivered", match="took longer"):
        Post(WORLD, longest=timedelta(milliseconds=300)).send(
            tm.Command((sys.executable, "-c", "import signal; signal.pause()")), BODY
        )


@pytest.mark.parametrize("status", [200, 503])
def test_only_a_receiver_that_is_there_has_answered(receiver, status):
    """A subscriber waits for one that is away, and gives up what one refuses."""
    with pytest.raises(NotDelivered) as refused:
        Post(WORLD).send(tm.WebHook(f"{receiver.url}/503" if status == 503 else "http://127.0.0.1:9/x"), BODY)
    assert refused.value.answered is (status == 503)
