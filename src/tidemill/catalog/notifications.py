"""Notifications: how the processes on one PostgreSQL learn of each other's commits.

After a commit its process sends a NOTIFY with the kinds of the changes. A NOTIFY inside of the commit held one lock of
the whole server until the disk had the commit, so that no two commits shared a write to the disk. A process that dies
between the commit and the NOTIFY delays other processes until their next look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg

from tidemill.catalog.named import ALL_CHANGES, WakeKind
from tidemill.catalog.wakeups import Bell, Waiter

if TYPE_CHECKING:
    from tidemill.world import Clock

EVERY: Final = timedelta(milliseconds=5)
"""A process sends at most one notification in this time."""
_PROGRESS_WITHIN: Final = timedelta(seconds=1)
"""News that only people wait for are sent with the next notification, or after this time."""
_PROGRESS: Final = frozenset({WakeKind.PROGRESS})
_RECONNECT_AFTER: Final = timedelta(milliseconds=200)
_LONG: Final = timedelta(hours=1)

_Connection: TypeAlias = "psycopg.Connection[Any]"


class Notifier:
    """Tells other processes which kinds of changes have committed. Threads may share a notifier.

    The thread that commits sends the notification itself. What commits within 5 ms is sent together by one more thread.
    """

    def __init__(self, send: Callable[[frozenset[WakeKind]], None], clock: Clock) -> None:
        self._send = send
        self._clock = clock
        self._changed = threading.Condition()
        self._pending: frozenset[WakeKind] = frozenset()
        self._sent_at: timedelta | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def note(self, changes: frozenset[WakeKind]) -> None:
        """Notify other processes of a commit with these kinds of changes. `send` must not raise."""
        if not changes:
            return
        with self._changed:
            self._pending |= changes
            now = self._clock.monotonic()
            if changes <= _PROGRESS or (self._sent_at is not None and now - self._sent_at < EVERY):
                if self._thread is None:
                    self._thread = threading.Thread(target=self._send_later, name="notifier", daemon=True)
                    self._thread.start()
                self._changed.notify()
                return
            taken = self._take()
        self._send(taken)

    def close(self) -> None:
        """Send what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _take(self) -> frozenset[WakeKind]:
        self._sent_at = self._clock.monotonic()
        taken, self._pending = self._pending, frozenset()
        return taken

    def _send_later(self) -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closed)
                self._changed.wait_for(
                    lambda: self._closed or not self._pending <= _PROGRESS, _PROGRESS_WITHIN.total_seconds()
                )
                self._changed.wait_for(lambda: self._closed, EVERY.total_seconds())
                taken = self._take() if self._pending else frozenset()
            if taken:
                self._send(taken)


class CommitListener:
    """Listens on one connection for all waiters of a process, and connects again when the connection is lost."""

    def __init__(self, connect: Callable[[], _Connection], sender: str) -> None:
        """`connect` gives a connection that listens. Notifications of `sender`, this process, are passed over."""
        self._connect = connect
        self._sender = sender
        self._lock = threading.Lock()
        self._waiters: dict[PostgresWaiter, frozenset[WakeKind]] = {}
        self._thread: threading.Thread | None = None
        self._bell: Bell | None = None

    def waiter(self, changes: frozenset[WakeKind]) -> Waiter:
        """Return a waiter for these kinds of changes. The first waiter opens the connection; `psycopg.Error`."""
        made = PostgresWaiter(self)
        with self._lock:
            if self._bell is None:
                try:
                    connection = self._connect()
                except psycopg.Error:
                    Waiter.close(made)
                    raise
                self._bell = Bell()
                self._thread = threading.Thread(
                    target=self._listen, args=(connection, self._bell), name="listener", daemon=True
                )
                self._thread.start()
            self._waiters[made] = changes
        return made

    def wake(self, changes: frozenset[WakeKind]) -> None:
        """Wake the waiters of this process that wait for one of these kinds of changes."""
        with self._lock:
            for waiter, awaited in self._waiters.items():
                if not awaited.isdisjoint(changes):
                    waiter.wake()

    def forget(self, waiter: PostgresWaiter) -> None:
        """Wake a waiter no more. The last waiter closes the connection."""
        with self._lock:
            self._waiters.pop(waiter, None)
            if self._waiters or self._bell is None:
                return
            bell, self._bell = self._bell, None
            thread, self._thread = self._thread, None
        bell.ring()
        if thread is not None:
            thread.join()
        bell.close()

    def _listen(self, connection: _Connection | None, bell: Bell) -> None:
        while self._bell is bell:
            try:
                if connection is None:
                    connection = self._connect()
                    self.wake(ALL_CHANGES)  # notifications before LISTEN are lost: assume that there was one
                if heard := self._take_all(connection):
                    self.wake(heard)
                else:
                    bell.select(connection.fileno(), _LONG)
            except psycopg.Error:
                if connection is not None:
                    connection.close()
                    connection = None
                self.wake(ALL_CHANGES)
                bell.select(None, _RECONNECT_AFTER)
        if connection is not None:
            connection.close()

    def _take_all(self, connection: _Connection) -> frozenset[WakeKind]:
        """Take all notifications of other processes, and return the kinds of changes."""
        heard: frozenset[WakeKind] = frozenset()
        while notifications := list(connection.notifies(timeout=0)):
            for one in notifications:
                sender, _, kinds = one.payload.partition(" ")
                if sender != self._sender:
                    heard |= _read_kinds(kinds)
        return heard


class PostgresWaiter(Waiter):
    """Waiter that the listener of its process wakes."""

    def __init__(self, listener: CommitListener) -> None:
        super().__init__()
        self._listener = listener

    def _wait(self, timeout: timedelta) -> bool:
        return self._select(None, timeout)[0]

    def close(self) -> None:
        self._listener.forget(self)
        super().close()


def payload_of(sender: str, changes: frozenset[WakeKind]) -> str:
    """Return the text of a notification."""
    return f"{sender} {','.join(sorted(changes))}"


def _read_kinds(text: str) -> frozenset[WakeKind]:
    """Return the kinds that a notification names; all of them, if another version of Tidemill sent the notification."""
    try:
        return frozenset(map(WakeKind, text.split(",")))
    except ValueError:
        return ALL_CHANGES
