"""A standalone Spark cluster for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.processes import find_processes
from tidemill.demo.cluster import LocalCluster, local_cluster
from tidemill.world import World


@contextmanager
def running_cluster(folder: Path) -> Iterator[LocalCluster]:
    """Have a master and two workers for a block."""
    with local_cluster(World(), folder, folder / "cache") as made:
        yield made


def processes_of(driver: str) -> list[int]:
    """Return the processes of a driver, by the variable that they all have; first the driver itself."""
    return find_processes(rf"\0TIDEMILL_PROCESS=[^\0]*{driver}\0")


def parents_of(pid: int) -> list[int]:
    """Return the process, its parent, the parent of that, and so on."""
    found = []
    while pid > 1:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return found
