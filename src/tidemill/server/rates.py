"""Rates: the requests of a caller in a second, and its open streams. Counted in memory, by each server for itself."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import StreamingResponse

from tidemill.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Iterable

    from starlette.types import Receive, Scope, Send

    from tidemill.world import World

_MOST_CALLERS: Final = 10_000
"""Callers whose rate is kept. The caller that was longest silent begins afresh."""
_MOST_STREAMS: Final = 1000
"""Streams of all callers."""


class TooManyRequests(Unavailable):
    """A caller that asks too often."""

    code = "too_many_requests"

    def __init__(self, most: int) -> None:
        self.most = most
        super().__init__(
            f"this caller sends more than {most} requests a second",
            "wait a second, or raise the setting server.max_requests_per_second",
            before=": ",
        )


class TooManyStreams(Unavailable):
    """A caller, or the server, has as many streams as the settings allow."""

    code = "too_many_streams"

    def __init__(self, holder: str, most: int) -> None:
        self.holder = holder
        self.most = most
        cure = "raise the setting server.max_streams" if holder == "caller" else "use another server"
        super().__init__(f"this {holder} has {most} streams already", f"close a stream, or {cure}", before=": ")


class Rates:
    """A bucket of requests for each caller: it holds as many as the caller may send in a second, and fills again."""

    def __init__(self, world: World, most: int) -> None:
        self._clock = world.clock
        self._most = most
        self._buckets: OrderedDict[str, tuple[float, timedelta]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, caller: str) -> None:
        """Count a request of a caller. `TooManyRequests`."""
        if self._most == 0:
            return
        now = self._clock.monotonic()
        with self._lock:
            left, at = self._buckets.pop(caller, (float(self._most), now))
            left = min(left + (now - at).total_seconds() * self._most, self._most)
            self._buckets[caller] = (left - 1 if left >= 1 else left, now)
            while len(self._buckets) > _MOST_CALLERS:
                self._buckets.popitem(last=False)
        if left < 1:
            raise TooManyRequests(self._most)


class Streams:
    """Counts the open streams of each caller, and of all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open: Counter[str] = Counter()
        self._lock = threading.Lock()

    def open(self, caller: str) -> None:
        """Count a stream of a caller. `TooManyStreams`. Each must be closed."""
        with self._lock:
            if self._open.total() >= _MOST_STREAMS:
                raise TooManyStreams("server", _MOST_STREAMS)
            if self._open[caller] >= self._most:
                raise TooManyStreams("caller", self._most)
            self._open[caller] += 1

    def close(self, caller: str) -> None:
        """Count a stream of a caller no more."""
        with self._lock:
            self._open[caller] -= 1
            if not self._open[caller]:
                del self._open[caller]


class CountedStream(StreamingResponse):
    """An answer that counts as a stream of its caller until it has ended, however it ends."""

    def __init__(
        self,
        content: AsyncIterable[str] | Iterable[str],
        *,
        streams: Streams,
        caller: str,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(content, media_type=media_type, headers=headers)
        streams.open(caller)
        self._end = (streams, caller)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> Any:  # noqa: ANN401  # as the base
        streams, caller = self._end
        try:
            await super().__call__(scope, receive, send)
        finally:
            streams.close(caller)
