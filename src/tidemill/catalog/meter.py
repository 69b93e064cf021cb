"""Meter: how long the blocks of a catalog take in one process, and how often its waiters wake.

A catalog has a meter only if a process gives it one when it opens the catalog: servers do, for their metrics.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from tidemill.histograms import Histogram, Shown

_SECOND: Final = timedelta(seconds=1)
_BOUNDS: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 5.0)


class BlockKind(StrEnum):
    """The kinds of blocks: `COMMIT` is a list of effects that commits as one transaction (`Catalog.apply`)."""

    READ = "read"
    WRITE = "write"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class Connections:
    """The connections of an open catalog in this process, as one moment shows them.

    `waits` counts the blocks that had to wait since the catalog was opened: for a connection of the pool on PostgreSQL,
    for the lock of the database on SQLite.
    """

    used: int
    idle: int
    waits: int


class Meter:
    """Counts blocks by duration, and wake-ups. Threads may share a meter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._blocks = {kind: Histogram(_BOUNDS) for kind in BlockKind}
        self._wakeups = 0

    def note_block(self, kind: BlockKind, took: timedelta) -> None:
        """Count a block that has ended, well or not. `took` includes its waits for connections and locks."""
        with self._lock:
            self._blocks[kind].note(took / _SECOND)

    def note_wakeup(self) -> None:
        """Count a wait that ended by a commit, or by a wake of this process."""
        with self._lock:
            self._wakeups += 1

    def blocks(self) -> list[Shown]:
        """Return the histogram of each kind of block."""
        with self._lock:
            return [Shown((kind,), one.buckets(), one.sum) for kind, one in self._blocks.items()]

    def wakeups(self) -> int:
        """Return the number of wake-ups."""
        with self._lock:
            return self._wakeups
