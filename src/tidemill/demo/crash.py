"""The crash of the demo: the driver is killed with -9 in the middle of a Spark write, as when memory runs out."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from tidemill.catalog.transactions import Snapshot, TxState, find_transaction
from tidemill.mill.mill import Mill
from tidemill.names import RunId, WritePointer
from tidemill.narration import Narrator
from tidemill.run.records.runs import find_run, list_live
from tidemill.shapes.manifest import tx_directory
from tidemill.world import Disk

_LOOK_EVERY: Final = timedelta(milliseconds=5)
"""A write of so little data takes some hundred milliseconds."""


@dataclass(frozen=True, slots=True)
class _Kill:
    run_id: RunId
    epoch: int
    write_pointer: WritePointer


class DriverKiller:
    """Kills one driver while it writes. If the kill comes too late, kills the next driver."""

    def __init__(self, mill: Mill, narrator: Narrator) -> None:
        self._mill = mill
        self._narrator = narrator
        self._kill: _Kill | None = None
        self.done = False
        """True if a write was cut off, and its run has ended all the same."""

    def watch(self, duration: timedelta) -> None:
        """Wait for a write and kill its driver, or see what becomes of the run whose driver was killed."""
        clock = self._mill.project.world.clock
        until = clock.monotonic() + duration
        while clock.monotonic() < until and not self.done:
            if self._kill is None:
                self._strike()
            else:
                self._follow(self._kill)
            clock.sleep(_LOOK_EVERY)

    def _strike(self) -> None:
        disk, spawner = self._mill.project.world.disk, self._mill.project.world.spawner
        for run in self._mill.project.catalog.read(list_live):
            if run.write_pointer is None or run.pid is None:
                continue
            directory = tx_directory(Snapshot(run.write_pointer, self._mill.project.catalog.incarnation))
            for location in self._locations():
                if _is_written(disk, location / directory) and spawner.kill_alone(run.pid):
                    self._kill = _Kill(run.run_id, run.epoch, run.write_pointer)
                    what = f"wrote {location.name}/{directory} in attempt {run.epoch} of {run.run_id}"
                    self._narrator.tell("crash", f"pid {run.pid}", f"killed with -9 while it {what}")
                    return

    def _follow(self, kill: _Kill) -> None:
        transaction = self._mill.project.catalog.read(lambda db: find_transaction(db, kill.write_pointer))
        run = self._mill.project.catalog.read(lambda db: find_run(db, kill.run_id))
        if transaction.state is TxState.COMMITTED:
            self._narrator.tell("crash", f"tx {kill.write_pointer}", "had committed already: the next write, then")
            self._kill = None
        elif run.state.ended:
            text = f"is {transaction.state}, no reader ever saw it; attempt {run.epoch} of {run.run_id} is {run.state}"
            self._narrator.tell("crash", f"tx {kill.write_pointer}", f"{text} with tx {run.write_pointer}")
            self.done = True

    def _locations(self) -> list[Path]:
        found = (each.location for each in self._mill.datasets.list() if each.kind == "fileset")
        return [Path(location.removeprefix("file://")) for location in found]


def _is_written(disk: Disk, directory: Path) -> bool:
    """Return whether a Spark task has a file open below the directory of a transaction."""
    with suppress(FileNotFoundError):
        for call in disk.list_folder(directory):
            return _has_file(disk, call / "_temporary")
    return False


def _has_file(disk: Disk, folder: Path) -> bool:
    return any(path.suffix == ".parquet" or _has_file(disk, path) for path in disk.list_folder(folder))
