"""Sending: an event goes out to a web hook, Slack, mail or a command; what fails says why, without secrets."""

from __future__ import annotations

import hashlib
import hmac
import json
import smtplib
import socket
import ssl
from dataclasses import dataclass, field
from datetime import timedelta
from email.message import EmailMessage
from functools import singledispatchmethod
from http.client import HTTPConnection, HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from tidemill.alerts.connecting import LONGEST_SILENCE, LONGEST_TRY, NotDelivered, Reach, cut_off
from tidemill.alerts.targets import Command, Email, Slack, Target, WebHook, check_url, is_loopback
from tidemill.secret_places import read_secret
from tidemill.world import World

SIGNATURE: Final = "tidemill-signature"
"""The header of a signed delivery: `t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`."""
EVENT: Final = "TIDEMILL_EVENT"
"""The variable in which a command finds the event."""
_HTTPS: Final = 443
_HTTP: Final = 80
_SUCCESS: Final = range(200, 300)


@dataclass(frozen=True, slots=True)
class Post:
    """The way out: sends events to targets that are in `reach`."""

    world: World
    reach: Reach = field(default_factory=Reach)
    longest: timedelta = LONGEST_TRY
    """The time after which a try is cut off. Only the look-up of a name can add to it."""

    @singledispatchmethod
    def send(self, target: Target, body: str) -> None:
        """Send an event, which is JSON, to a target. Raises for a try that failed."""
        del body
        raise TypeError(f"{type(target).__name__} is no target")

    @send.register
    def _(self, target: WebHook, body: str) -> None:
        headers = {"content-type": "application/cloudevents+json"}
        if target.secret:
            secret = read_secret(self.world, "the secret of a WebHook", target.secret)
            headers[SIGNATURE] = sign(secret, int(self.world.clock.now().timestamp()), body)
        self._post(target.url, body, headers)

    @send.register
    def _(self, target: Slack, body: str) -> None:
        url = check_url("Slack", read_secret(self.world, "the url of a Slack target", target.url))
        self._post(url, json.dumps({"text": write_line(body)}), {"content-type": "application/json"})

    @send.register
    def _(self, target: Email, body: str) -> None:
        event = json.loads(body)
        mail = EmailMessage()
        mail["From"], mail["To"] = target.sender, ", ".join(target.to)
        mail["Subject"] = " ".join(f"{event['data'].get('event', event['type'])}: {event['subject']}".split())
        mail["Message-ID"] = f"<{event['id']}@tidemill>"
        mail.set_content("\n".join(f"{name}: {value}" for name, value in event["data"].items() if value))
        host, _, port = target.server.rpartition(":")
        server = _MailServer(host, int(port))
        try:
            with cut_off(lambda: server.sock, self.longest), server:
                server.connect(host, int(port))
                if not is_loopback(host):
                    server.starttls(context=ssl.create_default_context())
                if target.user:
                    place = target.password
                    password = read_secret(self.world, "the password of an Email target", place) if place else ""
                    server.login(target.user, password)
                server.send_message(mail)
        except smtplib.SMTPException as error:
            raise NotDelivered(str(error) or type(error).__name__, answered=True) from None

    @send.register
    def _(self, target: Command, body: str) -> None:
        done = self.world.spawner.run(target.argv, env={**self.world.environ, EVENT: body}, timeout=self.longest)
        if done.exit_code != 0:
            why = f"{target.argv[0]} ended with {done.exit_code}: {done.output.strip()[-200:]}"
            raise NotDelivered(why, answered=True)

    def _post(self, url: str, body: str, headers: dict[str, str]) -> None:
        parts = urlsplit(url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        # No redirect is followed, because the other address was not checked. The proxy of the environment is not used.
        connection = HTTPConnection(host, parts.port or (_HTTPS if secure else _HTTP))
        try:
            connection.sock = self.reach.connect(host, connection.port)
            with cut_off(lambda: connection.sock, self.longest):
                if secure:
                    connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
                named = {"host": parts.netloc.rpartition("@")[2], "connection": "close", "user-agent": "tidemill"}
                connection.request("POST", path, body.encode(), {**named, **headers})
                status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            raise NotDelivered(str(error) or type(error).__name__) from None
        finally:
            connection.close()
        if status not in _SUCCESS:
            raise NotDelivered(f"the receiver answered with status {status}", answered=True)


class _MailServer(smtplib.SMTP):
    """A mail server, over a connection that is there before the time of a try begins. Private ones are usual."""

    def __init__(self, host: str, port: int) -> None:
        try:
            self._made = socket.create_connection((host, port), LONGEST_SILENCE.total_seconds())
        except OSError as error:
            raise NotDelivered(f"mail server {host} does not answer: {error}") from None
        super().__init__(timeout=LONGEST_SILENCE.total_seconds())

    def _get_socket(self, host: str, port: int, timeout: float) -> socket.socket:
        del host, port, timeout
        return self._made


def sign(secret: str, at: int, body: str) -> str:
    """Return the signature of a body: a receiver makes it again with the same secret, and compares."""
    digest = hmac.new(secret.encode(), f"{at}.{body}".encode(), hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def write_line(body: str) -> str:
    """Return an event as a line for people."""
    event: dict[str, Any] = json.loads(body)
    data = event["data"]
    parts = [f"{data.get('event', event['type'])}: {event['subject']}", data.get("why"), data.get("description")]
    return " — ".join(str(part) for part in parts if part)
