"""Targets: where people are notified of alerts. A target is a value; a secret is named by its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from tidemill.errors import UserError
from tidemill.json_specs import sparse, union, write_text
from tidemill.secret_places import check_place

_LOCAL: Final = "localhost"
_MOST_CHARACTERS: Final = 2000


class BadTarget(UserError):
    """A target that cannot be notified."""

    code = "bad_target"
    hint = "correct the target as the reason says"

    def __init__(self, target: str, why: str) -> None:
        self.target = target
        self.why = why
        super().__init__(f"target {target} is refused: {why}")


class Target:
    """A receiver of deliveries. Its deliveries come one after the other, in order."""

    __slots__ = ()


@sparse
@dataclass(frozen=True, slots=True)
class WebHook(Target):
    """An address to which each delivery is posted as a CloudEvent (JSON, version 1.0).

    `secret` is the place of a secret (`env:NAME`, `file:PATH`), by which deliveries are signed.
    """

    url: str
    secret: str = ""

    def __post_init__(self) -> None:
        """Refuse an address without TLS, and a secret that stands in the code."""
        check_url("WebHook", self.url)
        if self.secret:
            check_place("the secret of a WebHook", self.secret)

    def __str__(self) -> str:
        return f"WebHook {_host(self.url)}"


@dataclass(frozen=True, slots=True)
class Slack(Target):
    """A channel of Slack, or of another service that takes the same JSON: `url` is the place of the address.

    The address of such a hook is a secret: with it, anyone may write to the channel.
    """

    url: str

    def __post_init__(self) -> None:
        """Refuse an address that stands in the code."""
        check_place("the url of a Slack target", self.url)

    def __str__(self) -> str:
        return f"Slack {self.url}"


@sparse
@dataclass(frozen=True, slots=True)
class Email(Target):
    """Addresses of people, and the mail server `host:port` that takes the mail, by TLS unless it is this machine.

    `user` and `password` sign in at the server; `password` is the place of the secret.
    """

    to: tuple[str, ...]
    server: str
    sender: str
    user: str = ""
    password: str = ""

    def __post_init__(self) -> None:
        """Refuse what is no address."""
        for address in (*self.to, self.sender):
            if address.count("@") != 1 or any(one.isspace() or ord(one) < 32 for one in address):
                raise BadTarget("Email", f"{address!r} is no address; write it like ops@example.com")
        if not self.to:
            raise BadTarget("Email", "`to` names no address")
        host, _, port = self.server.rpartition(":")
        if not host or not port.isdecimal():
            raise BadTarget("Email", f"{self.server!r} is no mail server; write it like mail.example.com:587")
        if self.password:
            check_place("the password of an Email target", self.password)

    def __str__(self) -> str:
        return f"Email {', '.join(self.to)}"


@dataclass(frozen=True, slots=True)
class Command(Target):
    """A program of the machine of `tidemill up`, which finds the event as JSON in the variable `TIDEMILL_EVENT`."""

    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        """Refuse an empty command."""
        if not self.argv or not all(self.argv):
            raise BadTarget("Command", "name the program and its arguments, such as ('/usr/local/bin/page', '--team')")

    def __str__(self) -> str:
        return f"Command {self.argv[0]}"


TARGETS: Final[Mapping[str, type[Target]]] = {
    "web_hook": WebHook,
    "slack": Slack,
    "email": Email,
    "command": Command,
}
"""Targets by their `type` in JSON."""
union(Target, TARGETS)


def check_target(target: Target) -> Target:
    """Return a target that the catalog can keep in an index; `BadTarget`."""
    if len(write_text(target)) > _MOST_CHARACTERS:
        raise BadTarget(type(target).__name__, f"its JSON has more than {_MOST_CHARACTERS} characters")
    return target


def is_harmless(target: Target) -> bool:
    """Return whether a target starts no program here, reads no secret of this machine, and is no part of it."""
    if not isinstance(target, WebHook) or target.secret:
        return False
    return not is_loopback(urlsplit(target.url).hostname or "")


def check_url(target: str, url: str) -> str:
    """Return an address of https, or of http on this machine; `BadTarget`."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        raise BadTarget(target, "its address cannot be read") from None  # it may be a secret
    if not url.isascii() or not url.isprintable() or " " in url:
        raise BadTarget(target, "its address has a character that no address has")
    if parts.username is not None:
        raise BadTarget(target, "its address has a user or password in it; use `secret` of a WebHook")
    if parts.scheme == "https" and host:
        return url
    if parts.scheme == "http" and is_loopback(host):
        return url
    raise BadTarget(target, "its address must begin with https://, or be on this machine")


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or number."""
    try:
        return host == _LOCAL or ip_address(host).is_loopback
    except ValueError:
        return False


def _host(url: str) -> str:
    # A path may have a secret in it.
    return urlsplit(url).netloc.rpartition("@")[2]
