"""The log of a run, in parts: it may be longer than memory, and go on for as long as the run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from anyio.to_thread import run_sync
from fastapi import Request, Response
from starlette.responses import StreamingResponse

from tidemill.mill.operation import Right
from tidemill.mill.runs import read_log
from tidemill.server.guard import guarded
from tidemill.server.ranges import cut_out
from tidemill.server.rates import CountedStream
from tidemill.server.watcher import Client

if TYPE_CHECKING:
    from tidemill.mill.mill import Mill
    from tidemill.run.records.logs import LogLine, LogReader
    from tidemill.server.watcher import Watcher

JSON_LINES: Final = "application/x-ndjson"
_EVERY: Final = 1.0
"""Seconds between two looks for new lines."""


@guarded(Right.READ, own=True)
def logs(
    request: Request, run_id: str, attempt: int | None = None, *, whole: bool = False, follow: bool = False
) -> Response:
    """Return what the program wrote in an attempt of a run (the newest), as text; with `whole` Spark's log after it.

    With `follow` new lines come until the run has ended. `Accept: application/x-ndjson` asks for JSON lines, each with
    `file` and `line`. `Range: bytes=1000-` asks for a part of the text, which is not followed.
    """
    mill: Mill = request.state.mill
    reader = read_log(mill.project, run_id, attempt=attempt, whole=whole)
    lines = reader.read_on(last=not follow)
    first = list(islice(lines, 1))  # what is wrong is known before the head of the answer is sent
    as_json = JSON_LINES in request.headers.get("accept", "")
    write = _as_json if as_json else _as_text
    begun = map(write, chain(first, lines))
    media_type = JSON_LINES if as_json else "text/plain"
    if not follow:
        wanted = request.headers.get("range")
        if wanted is not None and not as_json:
            return cut_out("".join(begun).encode(), wanted, media_type)
        return StreamingResponse(begun, media_type=media_type, headers={} if as_json else {"accept-ranges": "bytes"})
    return CountedStream(
        _followed(request.app.state.watcher, Client(request.state.principal), begun, reader, write),
        streams=request.app.state.door.streams,
        caller=request.state.principal.token_id,
        media_type=media_type,
    )


async def _followed(
    watcher: Watcher, client: Client, begun: Iterator[str], reader: LogReader, write: Callable[[LogLine], str]
) -> AsyncIterator[str]:
    """Yield the lines until the run has ended, or the caller is let in no more.

    Only a read needs a thread, not the wait for the next one.
    """
    watcher.add(client)
    try:
        if not await run_sync(watcher.check, client):
            return
        part = await run_sync(lambda: list(begun))
        while not client.ended:
            for text in part:
                yield text
            if reader.ended or await client.ends_within(_EVERY):
                return
            part = await run_sync(lambda: list(map(write, reader.read_on())))
    finally:
        watcher.remove(client)


def _as_text(line: LogLine) -> str:
    return f"{line.text}\n"


def _as_json(line: LogLine) -> str:
    return json.dumps({"file": line.file, "line": line.text}) + "\n"
