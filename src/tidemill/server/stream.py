"""Live events: one watcher for all clients of a server, woken by commits. Nothing is asked while nothing happens.

A client hears that something was committed, or reads topics: then each message is one event, whose id holds the
positions of all its topics, so that `Last-Event-ID` goes on where the stream broke. A client that cannot keep up is
asked to reload: nothing is kept for it without bound.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from tidemill.errors import TidemillError
from tidemill.mill.access import Access
from tidemill.mill.operation import Right
from tidemill.mill.plain import to_plain
from tidemill.server.guard import guarded
from tidemill.server.rates import CountedStream

if TYPE_CHECKING:
    from tidemill.catalog.wakeups import Waiter
    from tidemill.mill.mill import Mill
    from tidemill.mill.topics import MessageView

_log = logging.getLogger(__name__)

_MOST_KEPT: Final = 1000
"""Events that wait for one client. Then it is asked to reload."""
_HEARTBEAT: Final = 15.0
_AT_MOST_EVERY: Final = 0.2
_LONG: Final = timedelta(hours=1)
_AWAY: Final = timedelta(seconds=1)
_PART: Final = 500


class Client:
    """A stream, as its watcher sees it: what waits to be sent. Used in the server's event loop alone."""

    def __init__(self, topics: Mapping[str, str]) -> None:
        self.positions = dict(topics)
        """The position of the last event of each topic."""
        self._woken = asyncio.Event()
        self._events: list[tuple[str, object]] = []

    def offer(self, kind: str, data: object) -> None:
        """Add an event. Of commits, one is as good as many."""
        if kind == "commit" and any(one == "commit" for one, _ in self._events):
            return
        if len(self._events) >= _MOST_KEPT:
            self._events = [("reload", {"why": "this client does not keep up"})]
        else:
            self._events.append((kind, data))
        self._woken.set()

    async def take(self) -> Sequence[tuple[str, object]]:
        """Return what waits, as soon as something does; nothing after the time of a heartbeat."""
        try:
            await asyncio.wait_for(self._woken.wait(), _HEARTBEAT)
        except TimeoutError:
            return ()
        self._woken.clear()
        taken, self._events = self._events, []
        return taken


class Watcher:
    """Waits for commits in a thread of its own, from the first client on, and wakes all clients."""

    def __init__(self, mill: Mill) -> None:
        self._mill = mill
        self._clients: set[Client] = set()
        self._positions: dict[str, str] = {}
        self._waiter: Waiter | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self.stopped = False

    def add(self, client: Client) -> None:
        """Wake this client too, from now on. Called in the event loop."""
        self._clients.add(client)
        for topic, position in client.positions.items():
            self._positions.setdefault(topic, position)
        if self._waiter is None:
            self._loop = asyncio.get_running_loop()
            self._waiter = self._mill.project.catalog.waiter()
            self._thread.start()
        elif client.positions and not self.stopped:
            self._waiter.wake()

    def remove(self, client: Client) -> None:
        """Forget a client that has gone."""
        self._clients.discard(client)
        followed = {topic for one in self._clients for topic in one.positions}
        for topic in self._positions.keys() - followed:
            del self._positions[topic]

    def stop(self) -> None:
        """End the thread and all streams."""
        was_stopped, self.stopped = self.stopped, True
        if self._waiter is not None and not was_stopped:
            self._tell("end", {})
            self._waiter.wake()
            self._thread.join()
            self._waiter.close()

    def _watch(self) -> None:
        assert self._waiter is not None  # noqa: S101  # made before the thread
        away = False
        while not self.stopped:
            try:
                if away:
                    self._mill.project.catalog.read(lambda db: db.now())
                    away = False
                    self._tell("reload", {"why": "the catalog is back"})
                self._waiter.wait(_LONG)
                self._pass_on(self._read_new())
            except TidemillError as error:
                if not away:
                    _log.warning("live events wait: %s", error)
                    self._tell("away", {"why": str(error)})
                away = True
                self._mill.project.world.clock.sleep(_AWAY)

    def _read_new(self) -> Mapping[str, Sequence[MessageView]]:
        """Return the new messages of each topic that a client reads: one read for all clients."""
        found: dict[str, list[MessageView]] = {}
        if not self._positions:
            # A wake may mean that the catalog is away: clients without topics hear of that as well.
            self._mill.project.catalog.read(lambda db: db.now())
        for topic, position in list(self._positions.items()):
            page = self._mill.topics.read(topic, after=position, limit=_PART)
            found[topic] = list(page)
            if page.next is not None and self._waiter is not None:
                self._waiter.wake()  # the rest comes at once, after this part was passed on
        return found

    def _pass_on(self, found: Mapping[str, Sequence[MessageView]]) -> None:
        for topic, messages in found.items():
            if messages and topic in self._positions:
                self._positions[topic] = messages[-1].position

        def offer() -> None:
            for client in self._clients:
                client.offer("commit", {})
                for topic in client.positions:
                    for message in found.get(topic, ()):
                        client.offer("message", to_plain(message))

        self._call(offer)

    def _tell(self, kind: str, data: object) -> None:
        def offer() -> None:
            for client in self._clients:
                client.offer(kind, data)

        self._call(offer)

    def _call(self, act: Any) -> None:  # noqa: ANN401  # a function
        assert self._loop is not None  # noqa: S101  # set before the thread
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)


@guarded(Right.READ)
def stream(request: Request, topics: str = "") -> Response:
    """Follow the commits of the catalog, or the messages of topics, as server-sent events.

    `topics` are names with commas between them. The header `Last-Event-ID` goes on behind an event.
    """
    mill: Mill = request.state.mill
    named = [one for one in topics.split(",") if one]
    access: Access = mill.project.access
    if named:
        access.check_operation(whole=True)
    positions = _read_id(request.headers.get("last-event-id", ""))
    client = Client({topic: positions.get(topic) or _newest(mill, topic) for topic in named})
    return CountedStream(
        _events(request.app.state.watcher, client, mill),
        streams=request.app.state.door.streams,
        caller=request.state.principal.token_id,
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _events(watcher: Watcher, client: Client, mill: Mill) -> AsyncIterator[str]:
    watcher.add(client)
    try:
        yield ": connected\n\n"
        # Only now: a message that came before the watcher knew of this client is in a page, any later one is offered.
        for topic in list(client.positions):
            more = True
            while more:
                page = await run_in_threadpool(mill.topics.read, topic, after=client.positions[topic], limit=_PART)
                for message in page:
                    yield _write(client, "message", to_plain(message))
                more = page.next is not None
        while not watcher.stopped:
            taken = await client.take()
            if not taken:
                yield ": heartbeat\n\n"
            for kind, data in taken:
                if text := _write(client, kind, data):
                    yield text
            await asyncio.sleep(_AT_MOST_EVERY)
    finally:
        watcher.remove(client)


def _write(client: Client, kind: str, data: Any) -> str:  # noqa: ANN401  # JSON
    if kind == "message":
        topic, position = data["topic"], data["position"]
        if _order(position) <= _order(client.positions[topic]):
            return ""  # it was sent before
        client.positions[topic] = position
        place = ";".join(f"{name}={at}" for name, at in sorted(client.positions.items()))
        return f"id: {place}\nevent: message\ndata: {json.dumps(data)}\n\n"
    if kind == "end" or (kind == "commit" and client.positions):
        return ""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n"


def _order(position: str) -> tuple[int, int]:
    seq, _, n = position.partition(".")
    return int(seq), int(n or -1)


def _read_id(text: str) -> dict[str, str]:
    parts = (one.partition("=") for one in text.split(";") if one)
    return {topic: position for topic, _, position in parts if position}


def _newest(mill: Mill, topic: str) -> str:
    newest = mill.topics.read(topic, limit=1)
    return newest[0].position if newest else "0.0"
