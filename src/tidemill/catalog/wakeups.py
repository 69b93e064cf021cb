"""Wait for the next commit of any process, without polling the database.

PostgreSQL sends NOTIFY (0.7 ms, worst 2.8; tried). SQLite has no such message. On Linux the kernel reports each write
to a file in the catalog's folder, and the waiter then asks for `PRAGMA data_version` (median 1.0 ms, worst 1.7, idle
0.015 % of a core; tried). The report comes before the commit is visible: the disk's sync lies between them, which took
longer than 50 ms for 1 of 200 commits (measured). On other systems the waiter asks every 10 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import sys
import threading
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import apsw

from tidemill.catalog.named import ALL_CHANGES, WakeKind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidemill.catalog.meter import Meter
    from tidemill.world import Clock

_INOTIFY_WRITTEN: Final = 0x00000002 | 0x00000100 | 0x00000200 | 0x00000080  # modify, create, delete, moved to
_ASKED_EVERY: Final = timedelta(milliseconds=1)
_VISIBLE_WITHIN: Final = timedelta(seconds=5)
_LATER_BY: Final = 20
"""A commit that became visible after some time is noticed at most a twentieth of that time later."""
_WITHOUT_EVENTS: Final = timedelta(milliseconds=10)
_READ_BYTES: Final = 65536
_LONG: Final = timedelta(hours=1)
_AGAIN_AFTER: Final = timedelta(seconds=1)
_MILLISECOND: Final = timedelta(milliseconds=1)
_NO_REST: Final = timedelta(0)
_FIRST_PAUSE: Final = timedelta(milliseconds=4)
_LONGEST_PAUSE: Final = timedelta(milliseconds=64)
"""A waiter that commits of other nodes have woken in vain waits for the next one at most this long after its look.

With eight nodes, each commit woke a scheduler and a runner on each node, and seven of eight found nothing to do."""
_LONGEST: Final = 2**31 - 1
"""Milliseconds that the kernel takes as a time-out."""


class Bell:
    """Ends the wait of a thread. `ring` and `close` may come from another thread."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        """End the wait, or the next one."""
        with contextlib.suppress(BlockingIOError):  # a full pipe wakes as well
            os.write(self._write, b"!")

    def select(self, also: int | None, timeout: timedelta) -> tuple[bool, bool]:
        """Wait at most `timeout`. Return whether `ring` was called, and whether `also` is readable."""
        # Not `select`: it knows no file descriptors above 1023, which a server with many connections has.
        poll = select.poll()
        for watched in (self._read,) if also is None else (self._read, also):
            poll.register(watched, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(min(max(timeout / _MILLISECOND, 0), _LONGEST))}
        rung = self._read in ready
        if rung:
            os.read(self._read, _READ_BYTES)
        return rung, also in ready

    def close(self) -> None:
        """Close the files of the bell."""
        os.close(self._read)
        os.close(self._write)


class Waiter(ABC):
    """Waits on one thread for commits of any process; `wake` and `close` may come from another thread."""

    def __init__(self) -> None:
        self._bell = Bell()
        self.meter: Meter | None = None

    def wait(self, timeout: timedelta, *, found: bool = True, rest: timedelta = _NO_REST) -> bool:
        """Give True as soon as something committed since the last call, or at `wake`; False at the time-out.

        `found` tells whether the look before this call found something to do. After looks in vain that commits of other
        nodes caused, the next commit of another node ends the wait some milliseconds later. A commit within `rest` may
        end the wait only after it: a caller that would not look earlier need not be woken.
        """
        self._note_look(found=found)
        woken = self._wait(timeout, rest)
        if woken and self.meter is not None:
            self.meter.note_wakeup()
        return woken

    def wake(self) -> None:
        """Wake the waiting thread."""
        self._bell.ring()

    def close(self) -> None:
        """Close the files that waiting holds open."""
        self._bell.close()

    def _note_look(self, *, found: bool) -> None:  # noqa: B027  # most waiters do not know whose commit woke them
        """Take note of the look since the last wait."""

    @abstractmethod
    def _wait(self, timeout: timedelta, rest: timedelta) -> bool: ...

    def _select(self, also: int | None, timeout: timedelta) -> tuple[bool, bool]:
        """Wait at most `timeout`. Return whether `wake` was called, and whether `also` is readable."""
        return self._bell.select(also, timeout)


class Heard(NamedTuple):
    """The kinds of changes that have committed."""

    near: frozenset[WakeKind] = frozenset()
    """The changes by processes of this node, or by processes whose node is not known."""
    far: frozenset[WakeKind] = frozenset()
    """The changes by processes of other nodes."""


class Ear(Protocol):
    """Hears of commits on one catalog: at least of those of other processes."""

    def listen(self) -> Heard:
        """Wait for commits, and return the kinds of their changes; perhaps none. Never raises."""

    def wake(self) -> None:
        """End the wait of `listen`; from another thread."""

    def close(self) -> None:
        """Close what listening holds open."""


class CommitListener:
    """Listens for all waiters of a process, by one ear on one thread: ten loops ask no more often than one."""

    def __init__(self, open_ear: Callable[[], Ear], clock: Clock) -> None:
        self._open_ear = open_ear
        self._clock = clock
        self._lock = threading.Lock()
        self._waiters: dict[SharedWaiter, frozenset[WakeKind]] = {}
        self._thread: threading.Thread | None = None
        self._ear: Ear | None = None

    def waiter(self, changes: frozenset[WakeKind]) -> Waiter:
        """Return a waiter for these kinds of changes. The first waiter opens the ear, and raises what that raises."""
        made = SharedWaiter(self, self._clock)
        with self._lock:
            if self._ear is None:
                try:
                    ear = self._ear = self._open_ear()
                except BaseException:
                    Waiter.close(made)
                    raise
                self._thread = threading.Thread(target=self._listen, args=(ear,), name="listener", daemon=True)
                self._thread.start()
            self._waiters[made] = changes
        return made

    def wake(self, near: frozenset[WakeKind], far: frozenset[WakeKind] = frozenset()) -> None:
        """Wake the waiters of this process that wait for one of these kinds of changes.

        The waiters for changes of other nodes (`far`) are woken later after looks in vain.
        """
        with self._lock:
            for waiter, awaited in self._waiters.items():
                if not awaited.isdisjoint(near):
                    waiter.hear()
                elif not awaited.isdisjoint(far):
                    waiter.hear_from_afar()

    def forget(self, waiter: SharedWaiter) -> None:
        """Wake a waiter no more. The last waiter closes the ear."""
        with self._lock:
            self._waiters.pop(waiter, None)
            if self._waiters or self._ear is None:
                return
            ear, self._ear = self._ear, None
            thread, self._thread = self._thread, None
        ear.wake()
        if thread is not None:
            thread.join()
        ear.close()

    def _listen(self, ear: Ear) -> None:
        while self._ear is ear:
            self.wake(*ear.listen())


class SharedWaiter(Waiter):
    """Waiter that the listener of its process wakes.

    All nodes look for what one commit brings, and one of the nodes finds it. A node that finds nothing leaves the next
    looks to the others for a pause. Each further look in vain doubles the pause; a look that finds something ends it.
    """

    def __init__(self, listener: CommitListener, clock: Clock) -> None:
        super().__init__()
        self._listener = listener
        self._clock = clock
        self._pause = timedelta(0)
        self._asked = False
        """True after `wake`, until the wait has ended."""
        self._heard_near = False
        """True after a commit of this node, until the wait has ended."""
        self._heard_far = False
        self._rests_until = timedelta.min
        """The time, by our monotonic clock, before which no commit ends the wait."""
        self._pauses_until = timedelta.min
        """The time before which no commit of another node ends the wait."""
        self._only_far = False
        """True if only commits of other nodes ended the last wait."""

    def wake(self) -> None:
        """Wake the waiting thread at once."""
        self._asked = True
        super().wake()

    def hear(self) -> None:
        """End the wait for a commit of this node, or one whose node is not known."""
        self._heard_near = True
        # A thread that rests ends its rest by itself: to wake it before would cost it a turn for each commit.
        if self._clock.monotonic() >= self._rests_until:
            super().wake()

    def hear_from_afar(self) -> None:
        """End the wait for a commit of another node."""
        if not self._heard_far:
            self._heard_far = True
            if self._clock.monotonic() >= self._pauses_until:
                super().wake()

    def _note_look(self, *, found: bool) -> None:
        if found:
            self._pause = timedelta(0)
        elif self._only_far:
            self._pause = min(max(2 * self._pause, _FIRST_PAUSE), _LONGEST_PAUSE)

    def _wait(self, timeout: timedelta, rest: timedelta) -> bool:
        now = self._clock.monotonic()
        ends_at = now + timeout
        # Before the first look at what was heard: a commit that is heard after it rings if it is to end the wait.
        self._rests_until = now + min(rest, timeout)
        self._pauses_until = max(self._rests_until, now + min(self._pause, timeout))
        timed_out = False
        while not (woken := self._is_over(now)) and not timed_out:
            until = next((end for end in (self._rests_until, self._pauses_until) if now < end), ends_at)
            rung, _ = self._select(None, until - now)
            timed_out = until == ends_at and not rung
            now = self._clock.monotonic()
        self._only_far = self._heard_far and not (self._heard_near or self._asked)
        if woken:
            self._asked = self._heard_near = self._heard_far = False
        else:  # what is heard from now on ends the next wait
            self._pause = timedelta(0)  # no commit for so long: the next one is no part of a burst
        return woken

    def _is_over(self, now: timedelta) -> bool:
        """Return whether what was heard ends the wait."""
        near, far = now >= self._rests_until, now >= self._pauses_until
        return self._asked or (self._heard_near and near) or (self._heard_far and far)

    def close(self) -> None:
        self._listener.forget(self)
        super().close()


class SqliteWaiter(Waiter):
    """Watches a SQLite catalog by a connection of its own, and the folder of `path`; None for one in memory.

    It is the ear of all other waiters of its process: while others commit it asks each millisecond.
    """

    def __init__(self, connect: Callable[[], apsw.Connection], path: Path | None, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._connection = connect()
        self._events = None if path is None else _watch(path.parent)
        self._name = b"" if path is None else os.fsencode(path.name)
        self._version = 0
        self._written_at: timedelta | None = None
        """The time of the last report of a write. It outlives a wait, which another commit may have ended before."""
        self._moved()

    def _wait(self, timeout: timedelta, rest: timedelta = _NO_REST) -> bool:
        del rest  # the ear of other waiters, which rest by themselves
        until = self._clock.monotonic() + timeout
        while not self._moved():
            now = self._clock.monotonic()
            if now >= until:
                return False
            nap = self._nap(now)
            # One commit is reported many times. A process that looked at each report would keep the writer waiting.
            listens = nap > _ASKED_EVERY
            woken, _ = self._select(self._events if listens else None, min(nap, until - now))
            if woken:
                return True
            if self._is_reported():
                self._written_at = self._clock.monotonic()
        return True

    def listen(self) -> Heard:
        """Wait for a commit, of which the database only says that there was one: all kinds."""
        try:
            return Heard(near=ALL_CHANGES) if self._wait(_LONG) else Heard()
        except apsw.Error:
            self._bell.select(None, _AGAIN_AFTER)
            return Heard(near=ALL_CHANGES)  # all look, and say what is wrong

    def close(self) -> None:
        super().close()
        self._connection.close()
        if self._events is not None:
            os.close(self._events)

    def _nap(self, now: timedelta) -> timedelta:
        """Return the time until the next question, if no report comes before."""
        if self._events is None:
            return _WITHOUT_EVENTS
        if self._written_at is None or (ago := now - self._written_at) >= _VISIBLE_WITHIN:
            return timedelta.max
        # Ever more rarely: a rolled back transaction writes as well, and so does the end of an earlier commit.
        return max(_ASKED_EVERY, ago / _LATER_BY)

    def _is_reported(self) -> bool:
        """Return whether the kernel has reported a write to the catalog since the last look."""
        if self._events is None:
            return False
        try:
            reports = os.read(self._events, _READ_BYTES)
        except BlockingIOError:
            return False
        # Logs and the like may lie in the same folder: they are no reason to ask.
        return self._name in reports

    def _moved(self) -> bool:
        try:
            version = int(self._connection.execute("PRAGMA data_version").get)
        except apsw.BusyError:
            return False  # another process recovers the database: ask again
        moved, self._version = version != self._version, version
        return moved


def _watch(folder: Path) -> int | None:
    """An inotify descriptor for what is written in `folder`; None where there is no inotify."""
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(folder), _INOTIFY_WRITTEN) < 0:
        os.close(descriptor)
        return None
    return descriptor
