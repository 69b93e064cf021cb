"""Connections: how many there may be, and how long one may wait for the head of a request or for its reader.

A connection that waits costs a file descriptor. Without bounds, silent callers take all of them, and the catalog of the
same process cannot be opened any more.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_WITHIN: Final = 30.0
"""The most seconds from the begin of a connection, or from its last answer, until the head of a request is there."""
READ_WITHIN: Final = 60.0
"""The most seconds in which a caller reads nothing of an answer that waits for it."""
_MOST: Final = 10_000


def most_connections() -> int:
    """Return the most connections of a server: half of what the process may open, since all else needs files too."""
    return min(_MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)


class Connection(H11Protocol):
    """A connection with bounds of its server: `most` may be open, and one more closes the first of `waiting`.

    The connection that has waited longest for a request comes first. A new one is closed itself if no other waits.
    """

    most: int
    waiting: dict[Connection, None]
    _head: asyncio.TimerHandle | None = None
    _reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()
        if len(self.connections) > self.most:
            oldest = next(iter(self.waiting))
            del self.waiting[oldest]  # it is lost only later, and the next one is another
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await_no_head()
        self._await_no_reader()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self.cycle is not None and not self.cycle.response_complete:
            self._await_no_head()

    def on_response_complete(self) -> None:
        self._await_head()
        super().on_response_complete()  # begins with the next request if it is there

    def pause_writing(self) -> None:
        super().pause_writing()
        self._reader = self.loop.call_later(READ_WITHIN, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._await_no_reader()

    def _await_head(self) -> None:
        self._await_no_head()
        self.waiting[self] = None
        self._head = self.loop.call_later(HEAD_WITHIN, self.transport.close)

    def _await_no_head(self) -> None:
        self.waiting.pop(self, None)
        if self._head is not None:
            self._head.cancel()

    def _await_no_reader(self) -> None:
        if self._reader is not None:
            self._reader.cancel()


def make_protocol(most: int) -> type[Connection]:
    """Return the class of the connections of one server, of which `most` may be open."""
    return type("Bounded", (Connection,), {"most": most, "waiting": {}})
