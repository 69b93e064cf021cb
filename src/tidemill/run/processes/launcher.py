"""The launcher: where the processes of attempts run, as the runner sees them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from tidemill.errors import Unavailable
from tidemill.names import RunId
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.programs import Program


@dataclass(frozen=True, slots=True)
class Running:
    """The process of an attempt works, or waits: the runner renews the lease."""


@dataclass(frozen=True, slots=True)
class Uncertain:
    """The launcher cannot say that the process works. The runner neither renews the lease nor ends the attempt.

    The process may go on: the attempt then keeps its lease, unless the lease has run out meanwhile.
    """

    why: str
    """The cause, for people: `is stopped`."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The process of an attempt has ended."""

    how: str
    """The end, for people: `with exit code 1`."""


Life: TypeAlias = Running | Uncertain | Ended


class Launcher(Protocol):
    """Starts processes that work on attempts, and ends them. Conformance suite: tests/contract/test_launchers.py.

    A run and an epoch name an attempt. Every method may be called again for the same attempt, with the same effect. One
    runner uses a launcher, in one thread. Processes end with their runner, wherever they are: no later runner adopts a
    process (docs/decisions/0008-a-driver-ends-with-its-node.md).
    """

    @property
    def folder(self) -> Path:
        """The state folder, below which the processes find the code of bundles."""

    @property
    def profiles(self) -> Collection[str]:
        """The Spark profiles with which processes can be started, by name; the empty name stands for `[spark]`."""

    def start(self, run_id: RunId, epoch: int, program: Program, code: AppCode) -> str | None:
        """Have a process work on the attempt, and return None; or return why the attempt waits, to be started again.

        Raises `OSError` and `DriverNotStarted` for trouble that passes, and any other `TidemillError` for trouble that
        a retry does not mend.
        """

    def poll(self, run_id: RunId, epoch: int) -> Life:
        """Return the state of the process of a started attempt. Cheap: the runner calls it five times a second."""

    def kill(self, run_id: RunId, epoch: int) -> bool:
        """End the process of the attempt with all that it started, and return True when nothing of it still writes.

        Return False while its end goes on elsewhere: the runner calls again. Never waits for another machine.
        """

    def release(self, run_id: RunId, epoch: int, *, committed: bool) -> None:
        """Note that the attempt is over in the catalog; its process may still tidy up, and then serve another attempt.

        A process whose attempt has `committed` may be given the next attempt at once.
        """

    def tend(self) -> None:
        """Do what the launcher has to do by itself: replace, cap, clean up. The runner calls it often. Never waits."""

    def close(self) -> None:
        """End all processes, and return when nothing of them still writes."""


class NoSparkProfile(Unavailable):
    """The configuration of a node lacks the Spark profile of a program."""

    code = "no_spark_profile"

    def __init__(self, profile: str, node: str) -> None:
        self.profile = profile
        self.node = node
        super().__init__(
            f"the configuration of {node} has no Spark profile {profile!r}",
            f"add [spark.profiles.{profile}] to tidemill.toml there, and start `tidemill up` again",
        )


class DriverNotStarted(Unavailable):
    """A driver ended, or was given up, before it was ready for a run."""

    code = "driver_not_started"

    def __init__(self, why: str, logs: Path) -> None:
        self.why = why
        self.logs = str(logs)
        super().__init__(f"a driver with Spark {why} before it was ready", f"read {logs / 'stderr'} for the cause")
