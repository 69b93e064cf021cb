"""Child processes that die with their parent, and their whole tree with them.

Two dangers are dealt with here (both tried): a driver that outlives its runner would go on writing, and a JVM outlives
its killed Python when user code forked a child that holds the pipe. So a child starts in a session of its own, with a
death signal from the kernel, and a kill ends the group, then every process that carries the tag in its environment,
and waits until they are gone. What survives all the same is fenced by the catalog.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol


class Child(Protocol):
    """A process started by a `Spawner`."""

    @property
    def pid(self) -> int:
        """Its process id, also the id of its group and session."""

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it lives."""


class Spawner(Protocol):
    """Starts and ends processes."""

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdout: Path, stderr: Path) -> Child:
        """Start `argv` with exactly `env`, its output appended to the two files; it ends when this process does."""


class LocalSpawner:
    """Processes on this machine."""

    def start(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, stdout: Path, stderr: Path) -> Child:
        """Start a process; see `Spawner.start`."""
        raise NotImplementedError
