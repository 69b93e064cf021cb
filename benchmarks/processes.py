"""Ends what benchmarks started: databases, nodes and peers, when a block ends or a signal ends the program."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

import psutil

from tidemill.processes import adopt_orphans

_SIGNALS: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def exit_at_signals() -> None:
    """Raise `SystemExit` at the first signal that asks to end, so that blocks end what they started."""
    for number in _SIGNALS:
        signal.signal(number, _exit)


def _exit(number: int, _: FrameType | None) -> None:
    for one in _SIGNALS:
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


@contextmanager
def ending_processes() -> Iterator[None]:
    """Kill all processes that the block started, with their children, also those in sessions of their own.

    The caller's process becomes the parent of children whose parent has ended, so that they are found.
    """
    adopt_orphans()
    kept = set(psutil.Process().children())
    try:
        yield
    finally:
        # Children are started while others are killed.
        while left := _started_since(kept):
            for one in left:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            psutil.wait_procs(left, timeout=1)


def _started_since(kept: set[psutil.Process]) -> list[psutil.Process]:
    left = []
    for child in psutil.Process().children():
        if child not in kept:
            with suppress(psutil.NoSuchProcess):
                left += [child, *child.children(recursive=True)]
    return left
