"""Sending: an event goes out to a web hook, Slack, mail or a command; what fails says why, without secrets."""

from __future__ import annotations

import hashlib
import hmac
import json
import smtplib
import ssl
from datetime import timedelta
from email.message import EmailMessage
from functools import singledispatch
from typing import Any, Final

from tidemill.alerts.outbox import NotDelivered
from tidemill.alerts.targets import Command, Email, Slack, Target, WebHook, check_url, is_loopback
from tidemill.secret_places import read_secret
from tidemill.world import World

SIGNATURE: Final = "tidemill-signature"
"""The header of a signed delivery: `t=<seconds since 1970>,v1=<HMAC-SHA256 of "<t>.<body>" in hex>`."""
EVENT: Final = "TIDEMILL_EVENT"
"""The variable in which a command finds the event."""
_WAIT: Final = 10.0
"""Seconds for a receiver to answer."""


@singledispatch
def send(target: Target, world: World, body: str) -> None:
    """Send an event, which is JSON, to a target. Raises for a try that failed."""
    del world, body
    raise TypeError(f"{type(target).__name__} is no target")


@send.register
def _(target: WebHook, world: World, body: str) -> None:
    headers = {"content-type": "application/cloudevents+json"}
    if target.secret:
        secret = read_secret(world, "the secret of a WebHook", target.secret)
        headers[SIGNATURE] = sign(secret, int(world.clock.now().timestamp()), body)
    _post(target.url, body, headers)


@send.register
def _(target: Slack, world: World, body: str) -> None:
    url = check_url("Slack", read_secret(world, "the url of a Slack target", target.url))
    _post(url, json.dumps({"text": write_line(body)}), {"content-type": "application/json"})


@send.register
def _(target: Email, world: World, body: str) -> None:
    event = json.loads(body)
    mail = EmailMessage()
    mail["From"], mail["To"] = target.sender, ", ".join(target.to)
    mail["Subject"] = " ".join(f"{event['data'].get('event', event['type'])}: {event['subject']}".split())
    mail["Message-ID"] = f"<{event['id']}@tidemill>"
    mail.set_content("\n".join(f"{name}: {value}" for name, value in event["data"].items() if value))
    host, _, port = target.server.rpartition(":")
    with smtplib.SMTP(host, int(port), timeout=_WAIT) as server:
        if not is_loopback(host):
            server.starttls(context=ssl.create_default_context())
        if target.user:
            password = read_secret(world, "the password of an Email target", target.password) if target.password else ""
            server.login(target.user, password)
        server.send_message(mail)


@send.register
def _(target: Command, world: World, body: str) -> None:
    done = world.spawner.run(target.argv, env={**world.environ, EVENT: body}, timeout=timedelta(seconds=60))
    if done.exit_code != 0:
        raise NotDelivered(f"{target.argv[0]} ended with {done.exit_code}: {done.output.strip()[-200:]}")


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


def _post(url: str, body: str, headers: dict[str, str]) -> None:
    from httpx import Client, HTTPError

    try:
        # No redirect, because the other address was not checked. No proxy of the environment.
        with Client(timeout=_WAIT, trust_env=False, follow_redirects=False) as client:
            answer = client.post(url, content=body.encode(), headers=headers)
    except HTTPError as error:
        raise NotDelivered(str(error) or type(error).__name__) from None
    if not answer.is_success:
        raise NotDelivered(f"the receiver answered with status {answer.status_code}")
