"""Watcher: one thread of a server that waits for commits. It wakes all streams, and ends those of refused callers.

Nothing is asked while nothing happens. After a commit, one statement asks which of all open callers are still let in:
a stream whose token was revoked ends before a later commit is passed on. A token that expires ends its streams then.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tidemill.errors import TidemillError
from tidemill.mill.plain import to_plain
from tidemill.mill.tokens import Principal, find_live

if TYPE_CHECKING:
    from tidemill.catalog.wakeups import Waiter
    from tidemill.mill.mill import Mill
    from tidemill.mill.topics import MessageView

_log = logging.getLogger(__name__)

PART: Final = 500
"""Messages that are read at once."""
_MOST_KEPT: Final = 1000
"""Events that wait for one client. Then it is asked to reload."""
_HEARTBEAT: Final = 15.0
_LONG: Final = timedelta(hours=1)
_AWAY: Final = timedelta(seconds=1)
_NOW: Final = timedelta(0)
_SHORTEST: Final = timedelta(milliseconds=10)


class Client:
    """A stream of a caller, as its watcher sees it: what waits to be sent. Used in the server's event loop alone."""

    def __init__(self, principal: Principal, topics: Mapping[str, str] | None = None) -> None:
        self.principal = principal
        """The caller. The stream ends when the caller is let in no more."""
        self.positions = dict(topics or {})
        """The position of the last event of each topic."""
        self.expires_at: timedelta | None = None
        """The time at which the caller's token expires, by the monotonic clock; None if never, or not known yet."""
        self._woken = asyncio.Event()
        self._ended = asyncio.Event()
        self._events: list[tuple[str, object]] = []

    @property
    def ended(self) -> bool:
        """True after the end of the stream."""
        return self._ended.is_set()

    def offer(self, kind: str, data: object) -> None:
        """Add an event. Of commits, one is as good as many."""
        if self.ended or (kind == "commit" and any(one == "commit" for one, _ in self._events)):
            return
        if len(self._events) >= _MOST_KEPT:
            self._events = [("reload", {"why": "this client does not keep up"})]
        else:
            self._events.append((kind, data))
        self._woken.set()

    def end(self) -> None:
        """End the stream. What waits is not sent."""
        self._events = []
        self._ended.set()
        self._woken.set()

    async def take(self) -> Sequence[tuple[str, object]]:
        """Return what waits, as soon as something does; nothing after the time of a heartbeat, and at the end."""
        try:
            await asyncio.wait_for(self._woken.wait(), _HEARTBEAT)
        except TimeoutError:
            return ()
        self._woken.clear()
        taken, self._events = self._events, []
        return taken

    async def ends_within(self, seconds: float) -> bool:
        """Return whether the stream has ended, after a wait of so many seconds at most."""
        try:
            await asyncio.wait_for(self._ended.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Watcher:
    """Waits for commits in a thread of its own, from the first client on, and wakes all clients."""

    def __init__(self, mill: Mill) -> None:
        self._mill = mill
        self._catalog = mill.project.catalog
        self._clock = mill.project.world.clock
        self._clients: set[Client] = set()
        self._positions: dict[str, str] = {}
        self._waiter: Waiter | None = None
        self._waits_until = _NOW
        """The time at which the thread looks without having been woken, by the monotonic clock."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)
        self.stopped = False

    def add(self, client: Client) -> None:
        """Wake this client too, from now on. Called in the event loop. `check` the client before it is sent anything.

        Between the look at the secret of a request and this call, the caller may have lost its token.
        """
        self._clients.add(client)
        for topic, position in client.positions.items():
            self._positions.setdefault(topic, position)
        if self._waiter is None:
            self._loop = asyncio.get_running_loop()
            self._waiter = self._catalog.waiter()
            self._thread.start()
        elif client.positions and not self.stopped:
            self._waiter.wake()

    def check(self, client: Client) -> bool:
        """Return whether the caller of an added client is still let in. Cost: a look-up. Called by any thread."""
        if self._find_refused([client]):
            return False
        if client.expires_at is not None and client.expires_at < self._waits_until and self._waiter is not None:
            self._waiter.wake()
        return True

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
            for client in self._clients:
                client.end()
            self._waiter.wake()
            self._thread.join()
            self._waiter.close()

    def _watch(self) -> None:
        assert self._waiter is not None  # noqa: S101  # made before the thread
        away = False
        while not self.stopped:
            try:
                if away:
                    self._end_refused()
                    away = False
                    self._tell("reload", {"why": "the catalog is back"})
                woken = self._waiter.wait(self._nap())
                found = self._read_new() if woken else {}
                # After the messages: a caller that was refused before one of them was committed is found.
                self._end_refused()
                if woken:
                    self._pass_on(found)
            except TidemillError as error:
                if not away:
                    _log.warning("live events wait: %s", error)
                    self._tell("away", {"why": str(error)})
                away = True
                self._clock.sleep(_AWAY)

    def _nap(self) -> timedelta:
        """Return the time until the next look without a wake: an hour, or until the first token expires."""
        now = self._clock.monotonic()
        self._waits_until = now + _LONG  # a client that is checked meanwhile compares itself with this
        ends = [one.expires_at for one in list(self._clients) if one.expires_at is not None]
        self._waits_until = min([self._waits_until, *ends])
        return max(_SHORTEST, self._waits_until - now)

    def _read_new(self) -> Mapping[str, Sequence[MessageView]]:
        """Return the new messages of each topic that a client reads: one read for all clients."""
        found: dict[str, list[MessageView]] = {}
        for topic, position in list(self._positions.items()):
            page = self._mill.topics.read(topic, after=position, limit=PART)
            found[topic] = list(page)
            if page.next is not None and self._waiter is not None:
                self._waiter.wake()  # the rest comes at once, after this part was passed on
        return found

    def _end_refused(self) -> None:
        """End the clients whose callers are let in no more.

        The catalog is asked without clients too: a wake may mean that the catalog is away.
        """
        for client in self._find_refused(list(self._clients)):
            self._call(client.end)

    def _find_refused(self, clients: Sequence[Client]) -> list[Client]:
        """Return the clients whose callers are let in no more, and note when the others expire. One statement."""
        callers = {one.principal.token_id: one.principal for one in clients}
        now = self._clock.monotonic()
        live = self._catalog.read(lambda db: find_live(db, callers.values()))
        for client in clients:
            left = live.get(client.principal.token_id)
            client.expires_at = None if left is None else now + left
        return [one for one in clients if one.principal.token_id not in live]

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

    def _call(self, act: Callable[[], object]) -> None:
        assert self._loop is not None  # noqa: S101  # set before the thread
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(act)
