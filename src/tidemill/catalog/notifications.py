"""Notifications: how the processes on one PostgreSQL learn of each other's commits.

After a commit its process sends a NOTIFY with the kinds of the changes, to all nodes or to the processes of its own. A
NOTIFY inside of the commit held one lock of the whole server until the disk had the commit, so that no two commits
shared a write to the disk. A process that dies between the commit and the NOTIFY delays others until their next look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import psycopg

from tidemill.catalog.named import ALL_CHANGES, LATER_ELSEWHERE, OF_ONE_NODE, WakeKind
from tidemill.catalog.wakeups import Bell, Heard

if TYPE_CHECKING:
    from tidemill.world import Clock

EVERY: Final = timedelta(milliseconds=5)
"""A process sends at most one notification in this time."""
_LATER_WITHIN: Final = timedelta(seconds=1)
"""News that may come later are sent with the next notification, or after this time."""
_PROGRESS: Final = frozenset({WakeKind.PROGRESS})
_RECONNECT_AFTER: Final = timedelta(milliseconds=200)
_LONG: Final = timedelta(hours=1)

_Connection: TypeAlias = "psycopg.Connection[Any]"


class Scope(Enum):
    """The processes that a notification is for."""

    ALL = "all"
    NODE = "node"
    """Other processes of the node that sends it."""


class Notifier:
    """Tells other processes which kinds of changes have committed. Threads may share a notifier.

    The thread that commits sends the notification itself. What commits within 5 ms is sent together by one more thread.
    The end of a run mostly concerns its own node alone. Its driver then notifies no other node. The process that has
    started the driver passes the news on within a second: with eight nodes, each run woke eight processes. The driver
    cannot do that, since it may be ended at any time after the run.
    """

    def __init__(
        self, send: Callable[[frozenset[WakeKind], Scope], None], clock: Clock, *, is_driver: bool = False
    ) -> None:
        """`send` must not raise. With `is_driver`, another process of the node listens, and passes on what it hears."""
        self._send = send
        self._clock = clock
        self._is_driver = is_driver
        self._changed = threading.Condition()
        self._pending: frozenset[WakeKind] = frozenset()
        self._later: frozenset[WakeKind] = frozenset()
        """The kinds that wait for the next notification, or for a second."""
        self._sent_at: timedelta | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def note(self, changes: frozenset[WakeKind]) -> None:
        """Notify other processes of a commit with these kinds of changes."""
        if changes:
            self._note(changes - _PROGRESS, changes & _PROGRESS)

    def pass_on(self, changes: frozenset[WakeKind]) -> None:
        """Notify other nodes, within a second, of changes by a driver that has notified this node alone."""
        self._note(frozenset(), changes & LATER_ELSEWHERE)

    def close(self) -> None:
        """Send what waits, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()
        self._send_all()

    def _note(self, soon: frozenset[WakeKind], later: frozenset[WakeKind]) -> None:
        with self._changed:
            known, self._pending, self._later = self._later, self._pending | soon, self._later | later
            now = self._clock.monotonic()
            just_sent = self._sent_at is not None and now - self._sent_at < EVERY
            # The listener, which passes news on, sends nothing itself: a slow server would keep it from waking loops.
            if not self._closed and (just_sent or not soon):
                if self._thread is None:
                    self._thread = threading.Thread(target=self._send_later, name="notifier", daemon=True)
                    self._thread.start()
                if soon or self._later != known:
                    self._changed.notify()
                return
        self._send_all()

    def _send_all(self) -> None:
        """Send all that waits."""
        with self._changed:
            taken, self._pending, self._later = self._pending | self._later, frozenset(), frozenset()
            if taken:
                self._sent_at = self._clock.monotonic()
        if taken:
            near = self._is_driver and taken <= LATER_ELSEWHERE | OF_ONE_NODE
            self._send(taken, Scope.NODE if near else Scope.ALL)

    def _send_later(self) -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._later or self._closed)
                self._changed.wait_for(lambda: self._pending or self._closed, _LATER_WITHIN.total_seconds())
                self._changed.wait_for(lambda: self._closed, EVERY.total_seconds())
            self._send_all()


class Origin(NamedTuple):
    """The process that sent a notification."""

    node: str
    """The name that a process and its drivers share."""
    process: str


class NotificationEar:
    """Hears the notifications of other processes on a connection, and connects again when the connection is lost."""

    def __init__(
        self, connect: Callable[[], _Connection], sender: Origin, pass_on: Callable[[frozenset[WakeKind]], None]
    ) -> None:
        """`connect` gives a connection that listens. Notifications of `sender`, this process, are passed over.

        `pass_on` gets the changes of which the drivers of this process have notified this node alone.
        """
        self._connect = connect
        self._sender = sender
        self._channel = channel_of(sender.node).encode()
        self._pass_on = pass_on
        self._passes_on = sender.process == sender.node
        self._connection: _Connection | None = connect()
        self._bell = Bell()

    def listen(self) -> Heard:
        """Wait for notifications, and return the kinds of changes. All kinds when some may have been lost."""
        try:
            if self._connection is None:
                self._bell.select(None, _RECONNECT_AFTER)
                self._connection = self._connect()
                if self._passes_on:
                    self._pass_on(LATER_ELSEWHERE)
                return Heard(near=ALL_CHANGES)  # notifications before LISTEN are lost: assume that there was one
            if any(heard := self._take_all(self._connection)):
                return heard
            self._bell.select(self._connection.fileno(), _LONG)
            return self._take_all(self._connection)  # before the end too: the last run of a node is among them
        except psycopg.Error:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return Heard(near=ALL_CHANGES)

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
                if self._passes_on and one.relname == self._channel:
                    self._pass_on(kinds)
        return heard


def channel_of(node: str) -> str:
    """Return the channel of the processes of a node."""
    return f"tidemill_node_{node}"


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
