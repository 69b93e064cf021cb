"""The log of a run as text, in parts: it may be longer than memory."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

from fastapi import Request
from starlette.responses import StreamingResponse

from tidemill.errors import Unavailable
from tidemill.mill.operation import Right
from tidemill.server.guard import guarded

if TYPE_CHECKING:
    from tidemill.mill.mill import Mill
    from tidemill.run.records.logs import LogLine


class LogElsewhere(Unavailable):
    """A log that lies on another machine."""

    code = "log_elsewhere"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(f"the log of {run_id} is on the machine of its runner: ask a server on that machine")


@guarded(Right.READ)
def logs(request: Request, run_id: str, attempt: int | None = None, *, whole: bool = False) -> StreamingResponse:
    """Return what the program wrote in an attempt of a run (the newest), as text; with `whole` Spark's log after it."""
    mill: Mill = request.state.mill
    lines = mill.runs.logs(run_id, attempt=attempt, whole=whole)
    try:
        first = list(islice(lines, 1))  # what is wrong is known before the head of the answer is sent
    except OSError:
        raise LogElsewhere(run_id) from None
    return StreamingResponse(_texts(chain(first, lines)), media_type="text/plain")


def _texts(lines: Iterator[LogLine]) -> Iterator[str]:
    for line in lines:
        yield f"{line.text}\n"
