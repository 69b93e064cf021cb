"""Spawners of tests: drivers that work in the test's process, and drivers that another program plays."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tidemill.processes import LocalChild, LocalSpawner


class InProcess(LocalSpawner):
    """Lets user code print where the test prints, and keeps the complaints of drivers."""

    def __init__(self) -> None:
        super().__init__()
        self.complaints: list[str] = []

    @contextlib.contextmanager
    def surrounded(self, *_: Path) -> Iterator[None]:
        """Leave environment, folder and outputs as they are."""
        yield

    def left_running(self, *, children: bool) -> str:  # noqa: ARG002  # threads and processes are those of the test
        """Nothing."""
        return ""

    def complain(self, text: str) -> None:
        """Keep the text."""
        self.complaints.append(text)


class PlayedDrivers(LocalSpawner):
    """Starts `python *arguments` in place of each driver, or without arguments the driver, on a machine named `host`.

    `environ` gives variables for each start, from the variables that the driver gets.
    """

    def __init__(
        self,
        *arguments: str,
        host: str = "",
        environ: Callable[[Mapping[str, str]], Mapping[str, str]] = lambda _: {},
    ) -> None:
        super().__init__()
        self._arguments = arguments
        self._host = host
        self._environ = environ

    def host(self) -> str:
        """Return the name that the test gave this machine."""
        return self._host or super().host()

    def start(self, argv, *, env, **how) -> LocalChild:
        """Start the other program."""
        played = [sys.executable, *self._arguments] if self._arguments else argv
        return super().start(played, env={**env, **self._environ(env)}, **how)
