"""The link between the two ends of a driver on a cluster: the node of `tidemill up`, and the worker of the driver.

Each end proves to the other end that it knows the key of the link (HMAC), before it sends anything else. A message is a
name and bytes. Nothing is encrypted. A link to a machine that no longer answers breaks within half a minute.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from multiprocessing import AuthenticationError  # noqa: TID251  # an error, no process
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge  # noqa: TID251  # no processes
from threading import Lock
from typing import Final

KEY_VARIABLE: Final = "SPARK_TIDEMILL_KEY"
"""The variable with the key of the link. Spark passes on the variables of a submission that begin with `SPARK_`."""
_PROVE_WITHIN: Final = timedelta(seconds=10)
_CONNECT_WITHIN: Final = timedelta(seconds=30)
_ALIVE: Final = {
    # A break is seen after 10 s + 4 × 5 s of silence, and after 30 s if bytes wait for their receipt.
    socket.TCP_KEEPIDLE: 10,
    socket.TCP_KEEPINTVL: 5,
    socket.TCP_KEEPCNT: 4,
    socket.TCP_USER_TIMEOUT: 30_000,
}


class MessageKind(StrEnum):
    """Kinds of messages, by the names of the messages."""

    SETUP = "setup"
    CODE = "code"
    """The bundle of the app, as a zip."""
    ASSIGNMENT = "assignment"
    SUBMITTED = "submitted"
    """The id of the driver on the cluster."""
    STATUS = "status"
    LOG = "log"
    """New bytes of a log: `log/NUMBER/FILE`. The driver's own logs have number 0, those of its first attempt 1."""
    STATE = "state"
    """The state of the driver, `works` or `stopped`. Comes every second, so that silence is seen."""
    ENDED = "ended"
    """The exit code of the driver."""


@dataclass(frozen=True, slots=True)
class DriverLink:
    """End of a link. Several threads may send."""

    connection: Connection[bytes, bytes]
    _lock: Lock = field(default_factory=Lock)

    def send(self, name: str, content: bytes = b"") -> None:
        """Send a message. `OSError` for a link that is broken."""
        with self._lock:
            self.connection.send_bytes(f"{name}\n".encode() + content)

    def is_silent(self, duration: timedelta) -> bool:
        """Wait for the next message, and return whether none has come within `duration`."""
        return not self.connection.poll(duration.total_seconds())

    def receive(self) -> tuple[str, bytes]:
        """Wait for the next message, and return its name and its bytes. `EOFError`, `OSError` for a broken link."""
        name, _, content = self.connection.recv_bytes().partition(b"\n")
        return name.decode(), content


def listen(address: str) -> socket.socket:
    """Listen on a free port of an address of this machine."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, 0), family=family)


def accept(listener: socket.socket, key: str, within: timedelta) -> DriverLink | None:
    """Wait for the other end, and return the link to it; None after `within`, or if a stranger came."""
    listener.settimeout(within.total_seconds())
    try:
        link = _prepare(listener.accept()[0])
    except TimeoutError:
        return None
    with suppress(AuthenticationError, OSError, EOFError):
        deliver_challenge(link.connection, key.encode())
        answer_challenge(link.connection, key.encode())
        return _proven(link)
    link.connection.close()
    return None


def connect(address: str, port: int, key: str) -> DriverLink:
    """Connect to the end that listens. `OSError`, `EOFError`, `AuthenticationError`."""
    link = _prepare(socket.create_connection((address, port), timeout=_CONNECT_WITHIN.total_seconds()))
    answer_challenge(link.connection, key.encode())
    deliver_challenge(link.connection, key.encode())
    return _proven(link)


def _prepare(connected: socket.socket) -> DriverLink:
    connected.settimeout(None)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in _ALIVE.items():
        connected.setsockopt(socket.IPPROTO_TCP, option, value)
    _read_within(connected, _PROVE_WITHIN)
    return DriverLink(Connection(connected.detach()))


def _proven(link: DriverLink) -> DriverLink:
    with socket.socket(fileno=os.dup(link.connection.fileno())) as connected:
        _read_within(connected, timedelta(0))
    return link


def _read_within(connected: socket.socket, duration: timedelta) -> None:
    """Limit the time of each read; zero means no limit."""
    # A time-out of Python's own would make reads fail that come before the bytes.
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(duration.total_seconds()), 0))
