"""A PostgreSQL of the tests' own, in a temporary folder; as a program it lends one to a command.

`python -m tests.postgres_server -- pytest …` starts a server, runs the command with its address in
`TIDEMILL_TEST_POSTGRES`, and stops it, whatever happens. So the workers of a parallel run share one server. `python -m
tests.postgres_server --find` prints where the server's programs are, or ends with 1.

The server writes no fsync: a test never loses power, and a killed server process loses nothing that the kernel has. It
takes a test run from disk speed to memory speed. All else that a commit promises is as in production.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.yardstick import patience

ADDRESS = "TIDEMILL_TEST_POSTGRES"
DEBIAN = Path("/usr/lib/postgresql")
SETTINGS = {
    "synchronous_commit": "on",
    # In the data folder, not in /dev/shm itself, where a killed server would leave it.
    "dynamic_shared_memory_type": "mmap",
    "max_connections": "200",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "log_min_messages": "warning",
    "timezone": "UTC",
}
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off"}
_PR_SET_PDEATHSIG = 1


def find_binaries() -> Path | None:
    """The folder with `initdb` and `postgres`: the newest of Debian's, else on the PATH, else of package pgserver."""
    debian = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(re.sub(r"\D", "", path.parts[-3]) or 0))
    if debian:
        return debian[-1].parent
    on_path = shutil.which("initdb")
    if on_path and shutil.which("postgres"):
        return Path(on_path).resolve().parent
    package = importlib.util.find_spec("pgserver")
    if package and package.submodule_search_locations:
        return Path(package.submodule_search_locations[0]) / "pginstall" / "bin"
    return None


@contextlib.contextmanager
def running_server(*, durable: bool = False) -> Iterator[str]:
    """Start a server and give its address (a URL, database `postgres`); stop it and remove its files at the end.

    A `durable` one keeps its files on a disk and syncs them, as in production: for benchmarks.
    """
    with mortal_server(durable=durable) as server:
        yield server.url


@contextlib.contextmanager
def mortal_server(*, durable: bool = False, connections: int = 200) -> Iterator[MortalServer]:
    """Start a server that can be crashed and started again; stop it and remove its files at the end."""
    binaries = find_binaries()
    if binaries is None:
        msg = "no PostgreSQL: install postgresql-15, or call `make test`, which gets one from PyPI"
        raise RuntimeError(msg)
    # Memory if there is any: a run writes some GB.
    shared_memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="tidemill-pg-",
        dir=shared_memory if os.access(shared_memory, os.W_OK) and not durable else None,
        ignore_cleanup_errors=True,
    ) as folder:
        root = Path(folder)
        account = _server_account()
        if account is not None:
            os.chown(root, account.pw_uid, account.pw_gid)
            if "pgserver" in binaries.parts:
                binaries = _copy_of_package(binaries, root)
        _call(binaries / "initdb", account, "-D", root / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8",
              "--no-locale", "--no-sync")  # fmt: skip
        settings = {**SETTINGS, "max_connections": str(connections), **({} if durable else NOT_DURABLE)}
        server = MortalServer(binaries, root, account, settings)
        try:
            server.start()
            yield server
        finally:
            server.crash()  # at once: the folder is deleted, so no checkpoint is needed


class MortalServer:
    """A server process over a folder of data; made by `mortal_server`."""

    def __init__(
        self, binaries: Path, root: Path, account: pwd.struct_passwd | None, settings: Mapping[str, str]
    ) -> None:
        self._binaries = binaries
        self._root = root
        self._account = account
        self._port = free_port()
        self._settings = {
            **settings,
            "port": self._port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": root,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address, the same after each start."""
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start it over what its folder holds, and wait until it answers; the crash before is mended by its log."""
        with (self._root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    self._binaries / "postgres",
                    "-D",
                    self._root / "data",
                    *(f"--{name}={value}" for name, value in self._settings.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **_as_account(self._account),
            )
        _wait_until_ready(self._binaries, self._port, self._process, self._root / "log")

    def crash(self) -> None:
        """End it without a checkpoint, all its sessions with it: what `pg_ctl stop -m immediate` does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait(timeout=patience(30))
            self._process = None


def _server_account() -> pwd.struct_passwd | None:
    """Return the account of the server when we are root, which PostgreSQL refuses: `postgres`, else `nobody`."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


def _copy_of_package(binaries: Path, folder: Path) -> Path:
    """Copy pgserver (40 MB) into `folder` and return its programs: a clone may lie where only root may read."""
    package = binaries.parent.parent
    shutil.copytree(package, folder / package.name)
    libraries = package.with_name("pgserver.libs")
    if libraries.exists():  # on Linux; the programs look for them beside the package
        shutil.copytree(libraries, folder / libraries.name)
    return folder / binaries.relative_to(package.parent)


def _as_account(account: pwd.struct_passwd | None) -> dict[str, object]:
    """Arguments for `subprocess`: the account, a home it may read, and an end when we end (even by kill -9)."""
    parent = os.getpid()
    libc = ctypes.CDLL(None)

    def end_with_parent() -> None:
        # After the change of account, which would clear it: subprocess calls this last.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGQUIT)

    who = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    return {**who, "cwd": "/", "preexec_fn": end_with_parent}


def _call(program: Path, account: pwd.struct_passwd | None, *arguments: object) -> None:
    """Run one of PostgreSQL's programs as `account`; its output is the error's text when it fails."""
    done = subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, check=False, **_as_account(account)
    )
    if done.returncode != 0:
        msg = f"{program.name} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        raise RuntimeError(msg)


def free_port() -> int:
    """Return a port of 127.0.0.1 that is free now. If a process takes it meanwhile, the start fails loudly."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _wait_until_ready(binaries: Path, port: int, server: subprocess.Popen[bytes], log: Path) -> None:
    """Return when the server answers; raise with its log when it ends before or takes more than a minute."""
    for _ in range(600):
        ask = [binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        if subprocess.run(ask, check=False).returncode == 0:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(timeout=0.1)
            break
    msg = f"PostgreSQL did not start:\n{log.read_text(encoding='utf-8')}"
    raise RuntimeError(msg)


def main(arguments: list[str]) -> int:
    """The program; its exit code is that of the command it runs."""
    match arguments:
        case ["--find"]:
            binaries = find_binaries()
            print(binaries or "no PostgreSQL found")
            return 0 if binaries else 1
        case ["--", *command] if command:
            # Ended from outside, the server still has to go.
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
            with running_server() as address:
                return subprocess.run(command, env={**os.environ, ADDRESS: address}, check=False).returncode
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
