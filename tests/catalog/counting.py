"""A line to PostgreSQL that counts the statements which all processes of a test send by it."""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter, defaultdict

from tests.catalog.proxy import Proxy

_LITERAL = re.compile(r"'(?:[^']|'')*'")
_EXECUTE = re.compile(r'EXECUTE "([^"]+)"')
_SIMPLE_QUERY = b"Q"
_PROTOCOL_3 = 196608
_CONTROL = ("BEGIN", "COMMIT", "ROLLBACK", "PREPARE", "DEALLOCATE", "NOTIFY", "LISTEN", "SET")
TICK = "tick"
"""The name under which a tick of the clock is counted."""


class Statements(Counter[str]):
    """Statements by name: that of named SQL, `TICK`, or the first word of what controls transactions."""

    @property
    def work(self) -> int:
        """The statements that are not about transactions, prepared statements, or notifications."""
        return sum(count for name, count in self.items() if not name.startswith(_CONTROL))


class CountingProxy(Proxy):
    """Forwards connections to a server, and counts."""

    def __init__(self, url: str) -> None:
        self._lock = threading.Lock()
        self._received: defaultdict[socket.socket, bytes] = defaultdict(bytes)
        """The begin of a message whose rest has not come yet."""
        self._begun: set[socket.socket] = set()
        """Connections that are open for queries."""
        self._messages: list[list[str]] = []
        super().__init__(url)

    @property
    def connections(self) -> int:
        """The number of connections that clients have open."""
        return sum(connection.fileno() >= 0 for connection in list(self._begun))

    def take(self) -> Statements:
        """Return the statements since the last call."""
        return Statements(name for message in self.take_messages() for name in message)

    def take_messages(self) -> list[list[str]]:
        """Return the statements since the last call, those of one message together."""
        with self._lock:
            taken, self._messages = self._messages, []
        return taken

    def _note(self, client: socket.socket, message: bytes) -> None:
        with self._lock:
            rest = self._received[client] + message
            while (length := self._length_of(client, rest)) is not None and length <= len(rest):
                one, rest = rest[:length], rest[length:]
                if client not in self._begun:
                    # A client asks for TLS first, which the server has not.
                    if int.from_bytes(one[4:8], "big") == _PROTOCOL_3:
                        self._begun.add(client)
                elif one[:1] == _SIMPLE_QUERY:
                    text = _LITERAL.sub("", one[5:-1].decode())
                    self._messages.append([_name(part.strip()) for part in text.split(";") if part.strip()])
            self._received[client] = rest

    def _length_of(self, client: socket.socket, message: bytes) -> int | None:
        """Return the length of the first message; None if too little of it has come."""
        kind = 1 if client in self._begun else 0
        head = message[kind : kind + 4]
        return None if len(head) < 4 else int.from_bytes(head, "big") + kind


def _name(statement: str) -> str:
    if named := _EXECUTE.match(statement):
        return named[1]
    if "tidemill_tick" in statement:
        return TICK
    return next((f"{word.strip()}" for word in _CONTROL if statement.startswith(word)), statement)
