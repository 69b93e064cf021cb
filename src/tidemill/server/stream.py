"""Live events: what the watcher of a server passes on to a client. Nothing is asked while nothing happens.

A client hears that something was committed, or reads topics: then each message is one event, whose id holds the
positions of all its topics, so that `Last-Event-ID` goes on where the stream broke. A client that cannot keep up is
asked to reload: nothing is kept for it without bound.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Final

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from tidemill.mill.access import Access
from tidemill.mill.operation import Right
from tidemill.mill.plain import to_plain
from tidemill.server.guard import guarded
from tidemill.server.rates import CountedStream
from tidemill.server.watcher import PART, Client

if TYPE_CHECKING:
    from tidemill.mill.mill import Mill
    from tidemill.server.watcher import Watcher

_AT_MOST_EVERY: Final = 0.2


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
    client = Client(request.state.principal, {topic: positions.get(topic) or _newest(mill, topic) for topic in named})
    return CountedStream(
        _events(request.app.state.watcher, client, mill),
        streams=request.app.state.door.streams,
        caller=request.state.principal.token_id,
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


async def _events(watcher: Watcher, client: Client, mill: Mill) -> AsyncIterator[str]:
    """Yield events until the client goes, the server ends, or the caller is let in no more."""
    watcher.add(client)
    try:
        if not await run_in_threadpool(watcher.check, client):
            return
        yield ": connected\n\n"
        async for text in _catch_up(watcher, client, mill):
            yield text
        while not client.ended:
            taken = await client.take()
            if not taken and not client.ended:
                yield ": heartbeat\n\n"
            for kind, data in taken:
                if text := _write(client, kind, data):
                    yield text
            if not client.ended:
                await asyncio.sleep(_AT_MOST_EVERY)
    finally:
        watcher.remove(client)


async def _catch_up(watcher: Watcher, client: Client, mill: Mill) -> AsyncIterator[str]:
    """Yield the messages that came before the watcher knew of this client. It offers any later message."""
    for topic in list(client.positions):
        more = True
        while more and not client.ended:
            page = await run_in_threadpool(mill.topics.read, topic, after=client.positions[topic], limit=PART)
            # After the read: the watcher has perhaps not seen the latest commits of this page.
            if page and not await run_in_threadpool(watcher.check, client):
                client.end()
                return
            for message in page:
                yield _write(client, "message", to_plain(message))
            more = page.next is not None


def _write(client: Client, kind: str, data: Any) -> str:  # noqa: ANN401  # JSON
    if kind == "message":
        topic, position = data["topic"], data["position"]
        if _order(position) <= _order(client.positions[topic]):
            return ""  # it was sent before
        client.positions[topic] = position
        place = ";".join(f"{name}={at}" for name, at in sorted(client.positions.items()))
        return f"id: {place}\nevent: message\ndata: {json.dumps(data)}\n\n"
    if kind == "commit" and client.positions:
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
