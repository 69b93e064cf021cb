"""Notifications: how the processes on one PostgreSQL learn of each other's commits.

After a commit its process sends a NOTIFY with the kinds of the changes. A NOTIFY inside of the commit held one lock of
the whole server until the disk had the commit, so that no two commits shared a write to the disk. A process that dies
between the commit and the NOTIFY delays other processes until their next look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import psycopg

from tidemill.catalog.named import ALL_CHANGES, OF_ONE_NODE, WakeKind
from tidemill.catalog.wakeups import Bell, Heard

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


class Origin(NamedTuple):
    """The process that sent a notification."""

    node: str
    """The name that a process and its drivers share."""
    process: str


class NotificationEar:
    """Hears the notifications of other processes on a connection, and connects again when the connection is lost."""

    def __init__(self, connect: Callable[[], _Connection], sender: Origin) -> None:
        """`connect` gives a connection that listens. Notifications of `sender`, this process, are passed over."""
        self._connect = connect
        self._sender = sender
        self._connection: _Connection | None = connect()
        self._bell = Bell()

    def listen(self) -> Heard:
        """Wait for notifications, and return the kinds of changes. All kinds when some may have been lost."""
        try:
            if self._connection is None:
                self._bell.select(None, _RECONNECT_AFTER)
                self._connection = self._connect()
                return Heard(near=ALL_CHANGES)  # notifications before LISTEN are lost: assume that there was one
            if any(heard := self._take_all(self._connection)):
                return heard
            self._bell.select(self._connection.fileno(), _LONG)
        except psycopg.Error:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return Heard(near=ALL_CHANGES)
        return Heard()

    def wake(self) -> None:
        """End the wait of `listen`."""
        self._bell.ring()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._bell.close()

    def _take_all(self, connection: _Connection) -> Heard:
        """Take all notifications of other processes, and return the kinds of changes."""
        heard = Heard()
        # By libpq's own calls: `Connection.notifies` takes four times as long, on each node for each run of any node.
        connection.pgconn.consume_input()
        while (one := connection.pgconn.notifies()) is not None:
            sender, kinds = _read_payload(one.extra.decode(errors="replace"))
            if sender.node != self._sender.node:
                heard = heard._replace(far=heard.far | (kinds - OF_ONE_NODE))
            elif sender.process != self._sender.process:
                heard = heard._replace(near=heard.near | kinds)
        return heard


def payload_of(sender: Origin, changes: frozenset[WakeKind]) -> str:
    """Return the text of a notification."""
    return f"{sender.node} {sender.process} {','.join(sorted(changes))}"


def _read_payload(text: str) -> tuple[Origin, frozenset[WakeKind]]:
    """Return the sender, and the kinds of changes: all of them, if another version of Tidemill sent the text."""
    try:
        node, process, kinds = text.split(" ")
        return Origin(node, process), frozenset(map(WakeKind, kinds.split(",")))
    except ValueError:
        return Origin("", ""), ALL_CHANGES
