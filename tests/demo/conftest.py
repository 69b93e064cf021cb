"""The demo's project, deployed in a folder of the test's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

import tidemill.demo
from tidemill import Mill
from tidemill.mill.mill import open_project
from tidemill.processes import LocalSpawner
from tidemill.world import World


@dataclass
class NoKilling(LocalSpawner):
    """Records the processes that should be killed, and kills none."""

    killed: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def pid(self) -> int:
        """A process that is not there."""
        return 4711

    def kill_alone(self, pid: int) -> bool:
        """Take it down in the list."""
        self.killed.append(pid)
        return True


@pytest.fixture
def spawner() -> NoKilling:
    """A spawner that only records its kills."""
    return NoKilling()


@pytest.fixture
def mill(memory_folder: Path, spawner: NoKilling) -> Iterator[Mill]:
    """The project as `tidemill demo` sets it up; SQLite, since the demo has no other catalog."""
    source = Path(tidemill.demo.__file__).parent / "project"
    for name in ("app.py", "tidemill.toml"):
        shutil.copy(source / name, memory_folder)
    with open_project(memory_folder, create=True, world=replace(World(), spawner=spawner)) as opened:
        opened.deploy()
        yield opened
