"""Stands of processes, in memory that all processes share: a stand survives its process."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Final

_BYTES: Final = 48
_MOST: Final = 256


class Stands:
    """The places of at most 256 processes, by number, in a file that all of them map."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_BYTES * _MOST)
            self._memory = mmap.mmap(file.fileno(), _BYTES * _MOST)

    def write(self, slot: int, name: str) -> None:
        """Say where the process stands now; no more than a copy in memory."""
        self._memory[slot * _BYTES : (slot + 1) * _BYTES] = name.encode()[:_BYTES].ljust(_BYTES)

    def read(self, slot: int) -> str:
        """Read the stand of a process, or its last stand."""
        return self._memory[slot * _BYTES : (slot + 1) * _BYTES].decode().strip(" \0")
