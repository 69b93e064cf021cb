"""A line to PostgreSQL that a test can cut at the moments that matter."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from enum import StrEnum
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class Fate(StrEnum):
    """Fate of a message that ends a transaction."""

    PASS = "pass"
    REPLY_LOST = "reply lost"
    """The server commits, the client never hears of it."""
    LAST_REPLY_LOST = "last reply lost"
    """The same, and then new connections are refused, so that no caller can ask."""
    REQUEST_LOST = "request lost"
    """The server never hears of it."""
    REQUEST_LATE = "request late"
    """The client's connection breaks; the server gets the message at `deliver_late()`."""


class Proxy:
    """Forwards connections to a server; `fates` are used up by messages with a COMMIT, then all pass."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (str(parts.hostname), parts.port or 5432)
        self._port = 0
        self.fates: list[Fate] = []
        self._late: list[tuple[socket.socket, bytes]] = []
        self._open: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._answers: dict[socket.socket, threading.Thread] = {}
        self.start()
        self.url = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{self._port}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()
        for thread in self._threads:
            thread.join(10)

    def start(self) -> None:
        """Take connections, after `stop` at the same address."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        self._port = self._listener.getsockname()[1]
        self._start(self._accept, self._listener)

    def stop(self) -> None:
        """Break all connections and refuse new ones, as a server that is down."""
        _close(self._listener)  # its shutdown wakes the thread in accept()
        self.cut()

    def cut(self) -> None:
        """Break all connections; new ones work."""
        for connection in list(self._open):
            _close(connection)

    def deliver_late(self) -> None:
        """Give the server what was held back, and wait until it has worked on it."""
        for server, message in self._late:
            server.sendall(message)
            server.shutdown(socket.SHUT_WR)
            self._answers[server].join(10)
        self._late.clear()

    def _note(self, client: socket.socket, message: bytes) -> None:
        """See what a client sends, before the server gets it."""

    def _start(self, target: Callable[..., None], *args: socket.socket) -> threading.Thread:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                server = socket.create_connection(self._server)
                self._open |= {client, server}
                self._answers[server] = self._start(self._answer, server, client)
                self._start(self._forward, client, server)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while message := client.recv(1 << 20):
                self._note(client, message)
                fate = self.fates.pop(0) if self.fates and b"COMMIT" in message else Fate.PASS
                match fate:
                    case Fate.PASS:
                        server.sendall(message)
                    case Fate.REPLY_LOST | Fate.LAST_REPLY_LOST:
                        if fate is Fate.LAST_REPLY_LOST:
                            _close(self._listener)
                        _close(client)
                        server.sendall(message)
                        server.shutdown(socket.SHUT_WR)
                        return
                    case Fate.REQUEST_LOST:
                        break
                    case Fate.REQUEST_LATE:
                        self._open.discard(server)
                        self._late.append((server, message))
                        _close(client)
                        return
        _close(client)
        _close(server)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while message := server.recv(1 << 20):
                with contextlib.suppress(OSError):
                    client.sendall(message)
        _close(client)
        _close(server)


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
