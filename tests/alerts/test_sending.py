"""Sending, to real receivers: a web hook, a mail server, a command. No secret is in what is sent or stored."""

from __future__ import annotations

import hashlib
import hmac
import json
import socketserver
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import tidemill as tm
from tests.errors import raises_code
from tidemill.alerts.sending import EVENT, SIGNATURE, send
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
    send(tm.WebHook(f"{receiver.url}/204", secret="env:HOOK"), WORLD, BODY)

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
        send(tm.WebHook(f"{receiver.url}/{status}"), WORLD, BODY)
    assert len(receiver.got) == 1


def test_a_hook_of_slack_gets_one_line(receiver):
    """Its address is a secret, and is read when it is needed."""
    world = World(environ={"URL": f"{receiver.url}/200"})
    send(tm.Slack("env:URL"), world, BODY)

    ((_, _, body),) = receiver.got
    assert json.loads(body) == {"text": "opened: default.shop.load — run 7 failed — see the runbook"}
    with raises_code("no_secret", match="env:NONE"):
        send(tm.Slack("env:NONE"), world, BODY)
    with raises_code("bad_target") as refused:
        send(tm.Slack("env:URL"), World(environ={"URL": f"ftp://{CANARY}"}), BODY)
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
        send(target, WORLD, BODY)
        server.shutdown()

    (mail,) = kind.mails
    assert "Subject: opened: default.shop.load" in mail
    assert "why: run 7 failed" in mail
    assert "<delivery_1@tidemill>" in mail


def test_a_command_finds_the_event_in_its_environment(tmp_path):
    """Its exit code says whether the sending worked."""
    code = f"import os, pathlib; pathlib.Path({str(tmp_path / 'notices')!r}).write_text(os.environ[{EVENT!r}])"
    send(tm.Command((sys.executable, "-c", code)), WORLD, BODY)

    assert json.loads((tmp_path / "notices").read_text()) == json.loads(BODY)
    with raises_code("not_delivered", match="ended with 3: no pager"):
        send(tm.Command((sys.executable, "-c", "print('no pager'); raise SystemExit(3)")), WORLD, BODY)


def test_a_receiver_that_is_away_is_named_by_its_error():
    """The error stands in the list of deliveries."""
    with raises_code("not_delivered"):
        send(tm.WebHook("http://127.0.0.1:9/x"), WORLD, BODY)
