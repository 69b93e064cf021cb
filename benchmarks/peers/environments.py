"""Environments of the peers: each peer has its own, with the versions that `requirements/` locks.

An environment is made at its first use, below the user's cache, and used again until its lock changes. A peer that
cannot be installed, or does not work, is a gap in the table.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import traceback
import venv
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.table import Figure

ROOT: Final = Path(__file__).resolve().parent.parent.parent
INSIDE: Final = Path(__file__).resolve().parent / "inside"
"""Programs that run in the environments of peers."""
PACKAGES: Final = {"Airflow": "apache-airflow", "APScheduler": "apscheduler", "Dagster": "dagster"}
_PATIENCE: Final = 900.0


class PeerMissing(Exception):
    """A peer that could not be measured. The text is the reason, in one line."""


class PeerRounds:
    """The rounds of one peer, between rounds of ours. The first round is the warm-up. A failed round makes a gap."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._values: list[float] = []
        self._gap = ""

    def add(self, work: Callable[[Path], float]) -> None:
        """Keep the result of a round. `work` gets the Python of the peer's environment, and may raise `PeerMissing`."""
        if not self._gap:
            try:
                self._values.append(work(python_of(self._peer)))
            except PeerMissing as missing:
                traceback.print_exc()
                self._gap = str(missing)

    def figure(self, benchmark: str, what: str, database: str, unit: str) -> Figure:
        """Return the figure of the peer, or its gap."""
        values = () if self._gap else self._values[1:]
        return Figure(benchmark, what, database, values, unit, system=_named(self._peer), gap=self._gap)


def measure_peer(peer: str, measure: Callable[[Path], Sequence[Figure]], missing: Sequence[Figure]) -> list[Figure]:
    """Return the figures of a peer, or `missing` as gaps. `measure` gets the Python of the peer's environment."""
    try:
        figures, gap = measure(python_of(peer)), ""
    except PeerMissing as error:
        traceback.print_exc()
        figures, gap = missing, str(error)
    return [replace(one, system=_named(peer), gap=gap) for one in figures]


def gap_of(peer: str, figure: Figure, why: str) -> Figure:
    """Return the gap of a peer that does not do what `figure` measures."""
    return replace(figure, values=(), target="", system=_named(peer), gap=why)


def _named(peer: str) -> str:
    return f"{peer} {version_of(peer)}"


def version_of(peer: str) -> str:
    """Return the version that is locked."""
    package = PACKAGES[peer]
    found = re.search(rf"^{package}==([^ ]+)", _lock_of(peer).read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None, f"{_lock_of(peer).name} does not lock {package}: run `make lock`"
    return found[1]


def python_of(peer: str) -> Path:
    """Return the Python of the peer's environment, which is made if it is not there. Raises `PeerMissing`."""
    return made(peer.lower(), _lock_of(peer), _install_by_uv)


def _lock_of(peer: str) -> Path:
    return ROOT / "requirements" / f"{peer.lower()}.txt"


def made(name: str, lock: Path, install: Callable[[Path, Path], None]) -> Path:
    """Return the Python of the environment `name`. `install` fills its folder once for each content of `lock`.

    An environment whose installation was interrupted is made again. Raises `PeerMissing`.
    """
    state = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tidemill-bench"
    folder, whole = cache / f"{name}-{state}", cache / f"{name}-{state}.whole"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        # Two runs at once must not fill one folder; the lock goes with the file.
        with (cache / f"{name}.lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            if not whole.exists():
                print(f"installing {lock.name} into {folder} …", file=sys.stderr, flush=True)
                shutil.rmtree(folder, ignore_errors=True)
                install(folder, lock)
                whole.touch()
    except OSError as error:
        raise PeerMissing(f"not installed: {error}") from None
    return folder / "bin" / "python"


def _install_by_uv(folder: Path, lock: Path) -> None:
    uv = made("uv", ROOT / "requirements" / "lock.txt", _install_by_pip).with_name("uv")
    _call(uv, "venv", "--quiet", "--python", sys.executable, folder)
    target = ("--python", folder / "bin" / "python")
    _call(uv, "pip", "install", "--quiet", "--require-hashes", "--no-deps", "--compile-bytecode", *target, "-r", lock)


def _install_by_pip(folder: Path, lock: Path) -> None:
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")
    _call(*pip, "install", "--require-hashes", "--no-deps", "--requirement", lock)


def _call(*command: object) -> None:
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        raise PeerMissing(f"not installed within {_PATIENCE:.0f} s") from None
    if done.returncode:
        last = ([line for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"])[-1]
        raise PeerMissing(f"not installed: {last.strip()}")
