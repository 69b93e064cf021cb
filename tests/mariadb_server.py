"""A MariaDB of the tests' own, in a temporary folder, where Debian's server is installed."""

from __future__ import annotations

import contextlib
import ctypes
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.yardstick import patience

SERVER = Path("/usr/sbin/mariadbd")
PASSWORD = "a-secret-of-the-tests"
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class MariaDb:
    """A running server with the database `crm`, whose user `reader` has a password."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        """The address for readers."""
        return f"mariadb://reader@127.0.0.1:{self.port}/crm"

    def execute(self, statements: str) -> None:
        """Run statements in `crm` as its owner."""
        command = ["mariadb", "--no-defaults", f"--socket={self.folder / 's'}", "-uroot", "crm", "-e", statements]
        subprocess.run(command, check=True, capture_output=True)


def why_not() -> str | None:
    """Why there can be none here; None when there can."""
    missing = [name for name in ("mariadb", "mariadb-install-db") if shutil.which(name) is None]
    missing += [] if SERVER.exists() else [str(SERVER)]
    return f"no MariaDB here ({', '.join(missing)} is missing): install mariadb-server" if missing else None


@contextlib.contextmanager
def running_mariadb() -> Iterator[MariaDb]:
    """Start a server (1.5 s) and give it; stop it and remove its files at the end."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="tidemill-mariadb-", dir=memory, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        common = ["--no-defaults", f"--datadir={folder / 'data'}", f"--user={getpass.getuser()}"]
        made = ["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"]
        subprocess.run(["mariadb-install-db", *common, *made], check=True, capture_output=True)
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        place = [f"--socket={folder / 's'}", f"--port={port}", f"--pid-file={folder / 'p'}"]
        # A test never loses power.
        small = [
            "--bind-address=127.0.0.1",
            "--innodb-flush-log-at-trx-commit=0",
            "--innodb-buffer-pool-size=32M",
            "--performance-schema=OFF",
        ]
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [SERVER, *common, *place, *small],
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_parent,  # noqa: PLW1509  # one call into libc
            )
        try:
            yield _set_up(MariaDb(folder, port), server)
        finally:
            server.kill()
            server.wait()


def _set_up(database: MariaDb, server: subprocess.Popen[bytes]) -> MariaDb:
    base = ["mariadb", "--no-defaults", f"--socket={database.folder / 's'}", "-uroot"]
    until = time.monotonic() + patience(60)
    while subprocess.run([*base, "-e", "SELECT 1"], capture_output=True, check=False).returncode:
        if server.poll() is not None or time.monotonic() > until:
            msg = f"MariaDB did not start:\n{(database.folder / 'log').read_text(errors='replace')}"
            raise RuntimeError(msg)
        time.sleep(0.05)
    made = f"CREATE DATABASE crm; CREATE USER reader IDENTIFIED BY '{PASSWORD}'; GRANT SELECT ON crm.* TO reader"
    subprocess.run([*base, "-e", made], check=True, capture_output=True)
    return database


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
