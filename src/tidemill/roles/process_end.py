"""The end of a process in order: asked for by a signal or an error, and waited for."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""A closed terminal sends the last signal."""


class ProcessEnd:
    """Tells whether the end of the process was asked for. A signal handler may ask."""

    def __init__(self) -> None:
        # Not an Event: its lock is held for moments while one waits, and a handler that came then waited for ever.
        self._asked: SimpleQueue[None] = SimpleQueue()

    def ask(self) -> None:
        """Ask for the end."""
        self._asked.put(None)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the end is asked for, and return whether it was; without `timeout` as long as it takes."""
        try:
            self._asked.get(timeout=None if timeout is None else timeout.total_seconds())
        except Empty:
            return False
        self._asked.put(None)
        return True


@contextmanager
def asked_by_signals(ending: ProcessEnd) -> Iterator[None]:
    """Have the signals that end a process ask for the end, in a block."""
    # `nohup` has SIGHUP ignored, so that a closed terminal ends nothing.
    asking = [one for one in _SIGNALS if one != signal.SIGHUP or signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, lambda *_: ending.ask()) for number in asking}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
