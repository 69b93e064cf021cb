"""A standalone Spark cluster for tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.demo.cluster import LocalCluster, local_cluster
from tidemill.world import World


@contextmanager
def running_cluster(folder: Path) -> Iterator[LocalCluster]:
    """Have a master and two workers for a block."""
    with local_cluster(World(), folder, folder / "cache") as made:
        yield made
