"""APScheduler beside B3: jobs of its SQLAlchemy store that are due in one instant."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.peers.environments import INSIDE, PeerMissing
from benchmarks.processes import ending_processes

NO_SCALE_OUT: Final = "schedulers must not share a job store (its user guide)"


class DueJobs:
    """A process in the environment of APScheduler, started at the first round."""

    def __init__(self, url: str) -> None:
        self._url = _address_of(url)
        self._process: subprocess.Popen[str] | None = None

    def rate(self, python: Path, size: int) -> float:
        """Run `size` jobs that are due at once. Return the jobs in a second. Raises `PeerMissing`."""
        if self._process is None:
            # -P: this folder has a module with the peer's name.
            command = [str(python), "-P", str(INSIDE / "due_jobs.py"), self._url]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(f"{size}\n")
            self._process.stdin.flush()
            return size / float(self._process.stdout.readline())
        except (OSError, ValueError):
            raise PeerMissing(f"failed with exit code {self._process.wait()}") from None


@contextmanager
def due_jobs(url: str) -> Iterator[DueJobs]:
    """Yield jobs in a store beside the catalog at `url`: another file, or other tables of the same server."""
    with ending_processes():
        yield DueJobs(url)


def _address_of(url: str) -> str:
    if url.startswith("sqlite"):
        return url.replace(".db", "-apscheduler.db")
    return url.replace("postgresql://", "postgresql+psycopg://")
