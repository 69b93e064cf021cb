"""Child processes that die with their parent, and their whole tree with them (Linux).

Two dangers are dealt with here (both tried): a driver that outlives its runner would go on writing, and a JVM outlives
its killed Python when user code forked a child that holds the pipe. So a child starts in a session of its own, calls
`live_with_parent()` first of all (a death signal from the kernel, and a watchdog on its standard input), and carries a
tag in its environment, which everything it starts inherits; a kill ends the group and every process with the tag, and
waits until none is left. What survives all the same (a process that wiped its environment and left the session) is
fenced by the catalog.
"""

from __future__ import annotations

import ctypes
import logging
import os
import queue
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import IO, Final, Protocol, TextIO, cast

TAG: Final = "TIDEMILL_PROCESS"
"""The environment variable that marks a child and all that it starts."""
PARENT: Final = "TIDEMILL_PARENT"
"""The identity of the parent, by which a late child and an orphan are recognised."""

_PROC: Final = Path("/proc")
_WALL: Final = 0x40000000
"""Has `waitid` see children of all kinds (`__WALL` of Linux)."""
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_END_WITHIN: Final = timedelta(seconds=30)
_EMPTY_LOOKS: Final = 8
_GONE: Final = "gone"


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that has run to its end; its two outputs together, as text."""

    exit_code: int
    output: str


class Child(Protocol):
    """A process started by a `Spawner`."""

    @property
    def pid(self) -> int:
        """Process id, also the id of the process's group and session."""

    @property
    def tag(self) -> str:
        """The tag in the environment of the process and of all processes that it started."""

    def poll(self) -> int | None:
        """Exit code, negative for a signal; None while the process lives."""

    def stopped(self) -> bool:
        """Return whether it stands still by SIGSTOP or a debugger: alive, but not necessarily working."""

    def send_line(self, line: str) -> bool:
        """Write one line to its standard input; False when it no longer reads."""

    def kill(self) -> None:
        """End it and all that it started, and wait until nothing of it is left. Idempotent."""


class Mask(Protocol):
    """Hides parts of texts."""

    def hide(self, text: str) -> str:
        """Return `text` with other text for what is hidden."""

    def find_begun(self, text: str) -> int:
        """Return the position from which more text may show that the end of `text` is hidden; else its length."""


class Spawner(Protocol):
    """Starts and ends processes."""

    def start(
        self, argv: Sequence[str], *, tag: str, env: Mapping[str, str], cwd: Path, stdout: Path, stderr: Path
    ) -> Child:
        """Start `argv` with `env` and `tag`, its output appended to the two files; it ends when this process does.

        The child must call `live_with_parent()` first. Its standard input stays open until it is killed.
        """

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], timeout: timedelta) -> Finished:
        """Run a short program to its end; exit code 127 when there is none, -9 when it took longer than `timeout`."""

    def end_tagged(self, tag: str) -> int:
        """End every process on this machine that carries `tag`, wait until none is left; how many there were."""

    def end_orphans(self) -> int:
        """End every tagged process whose parent is gone, and what it started; how many there were."""

    def kill_alone(self, pid: int) -> bool:
        """Kill one process, as the kernel does that runs out of memory; False when it is gone."""

    def host(self) -> str:
        """The name of this machine."""

    def pid(self) -> int:
        """The id of this process."""

    def cpu_time(self) -> timedelta:
        """Return the CPU time of this process so far, with that of its children that have ended."""

    def identity(self) -> str:
        """Name this process once and for all: its boot, its container, its id, its start."""

    def has_ended(self, identity: str) -> bool:
        """Tell whether a process has certainly ended; False for one of another machine, boot or container."""

    def listens_on(self, address: str, port: int = 0) -> str:
        """Return why the port of `address` cannot be listened on; empty if it can. Port 0 is any free one."""

    def passed_on(self, environ: Mapping[str, str]) -> AbstractContextManager[None]:
        """For a block: what this process's children inherit has these variables, for libraries that start some."""

    def surrounded(self, stdout: Path, stderr: Path) -> AbstractContextManager[None]:
        """For user code: appends what this process, and what it starts, prints to these files, from now on.

        At the end of the block the environment, the working folder and the log handlers are as they were.
        """

    def printed_through(self, mask: Mask) -> AbstractContextManager[None]:
        """For a block: hide by `mask` what Python code of this process prints, logs and warns of.

        Binary writes, other processes and code that is not Python print as before.
        """

    def left_running(self, *, children: bool) -> str:
        """Name the first thread that user code has started and that still runs; or (`children`) process. Else empty."""

    def complain(self, text: str) -> None:
        """Write `text` to the standard error of this process."""


@dataclass(slots=True)
class LocalChild:
    """A child on this machine."""

    process: subprocess.Popen[bytes]
    stdin: IO[bytes]
    tag: str
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def pid(self) -> int:
        """Process id."""
        return self.process.pid

    def poll(self) -> int | None:
        """Exit code; None while the process lives."""
        return self.process.poll()

    def stopped(self) -> bool:
        """Return whether it is stopped."""
        return self.poll() is None and _state(self.pid) in {"T", "t"}

    def send_line(self, line: str) -> bool:
        """Write one line to its standard input."""
        try:
            with self._lock:
                self.stdin.write(line.encode() + b"\n")
                self.stdin.flush()
        except (BrokenPipeError, ValueError):
            return False
        return True

    def kill(self) -> None:
        """End it and its tree."""
        # The id belongs to the child until poll() has collected it. Afterwards the group may be another process's.
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        _end(lambda child: self.tag in child.tags)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(_END_WITHIN.total_seconds())
        with suppress(BrokenPipeError), self._lock:
            self.stdin.close()


class LocalSpawner:
    """Processes on this machine."""

    def __init__(self) -> None:
        self._requests: queue.SimpleQueue[tuple[Future[LocalChild], Callable[[], LocalChild]]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        """The processes that existed before user code ran."""

    def start(
        self, argv: Sequence[str], *, tag: str, env: Mapping[str, str], cwd: Path, stdout: Path, stderr: Path
    ) -> LocalChild:
        """Start a process; see `Spawner.start`."""
        # A process that is itself a child passes on its own tag too: its whole tree carries the tag.
        tags = f"{env[TAG]}/{tag}" if TAG in env else tag
        whole = {**env, TAG: tags, PARENT: _identity(os.getpid())}

        def spawn() -> LocalChild:
            reading, writing = os.pipe()  # neither is inherited by what else this process starts
            with stdout.open("ab") as out, stderr.open("ab") as err, os.fdopen(reading, "rb") as stdin:
                process = subprocess.Popen(
                    argv, env=whole, cwd=cwd, stdin=stdin, stdout=out, stderr=err, start_new_session=True
                )
            return LocalChild(process, os.fdopen(writing, "wb"), tag)

        # One thread for all: the kernel's death signal comes when the thread that started the child ends (tried).
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name="spawner", daemon=True)
                self._thread.start()
        child: Future[LocalChild] = Future()
        self._requests.put((child, spawn))
        return child.result()

    def run(self, argv: Sequence[str], *, env: Mapping[str, str], timeout: timedelta) -> Finished:
        """Run a short program to its end; see `Spawner.run`."""
        try:
            done = subprocess.run(
                argv,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=timeout.total_seconds(),
                check=False,
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            return Finished(127, str(error))
        except subprocess.TimeoutExpired:
            return Finished(-signal.SIGKILL, f"took longer than {timeout.total_seconds():g} s")
        return Finished(done.returncode, done.stdout.decode(errors="replace"))

    def end_tagged(self, tag: str) -> int:
        """End every process that carries `tag`."""
        return _end(lambda child: tag in child.tags)

    def end_orphans(self) -> int:
        """End every tagged process whose parent is gone."""
        return _end(_is_orphan)

    def kill_alone(self, pid: int) -> bool:
        """Kill one process and nothing that it started."""
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def host(self) -> str:
        """The name of this machine."""
        return socket.gethostname()

    def pid(self) -> int:
        """The id of this process."""
        return os.getpid()

    def cpu_time(self) -> timedelta:
        """Ask the kernel, which counts a child when this process has collected it."""
        # `os.times` counts in hundredths of a second, which are more than most short runs use.
        used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return timedelta(seconds=sum(one.ru_utime + one.ru_stime for one in used))

    def identity(self) -> str:
        """Name this process."""
        return f"{_boot()} {_identity(os.getpid())}"

    def has_ended(self, identity: str) -> bool:
        """Ask the kernel of this boot and this container."""
        boot, _, process = identity.partition(" ")
        pid, _, rest = process.partition(":")
        ours = boot == _boot() and rest.endswith(f":{_pid_space()}") and pid.isdigit()
        return ours and _identity(int(pid)) != process and not _is_hidden(int(pid))

    def listens_on(self, address: str, port: int = 0) -> str:
        """Listen on the port, and close it."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.create_server((address, port), family=family):
                return ""
        except OSError as error:
            return error.strerror or str(error)

    @contextmanager
    def passed_on(self, environ: Mapping[str, str]) -> Iterator[None]:
        """Change the environment of this process, and change it back."""
        before = {name: os.environ.get(name) for name in environ}
        os.environ.update(environ)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)  # user code may have deleted it
                else:
                    os.environ[name] = value

    @contextmanager
    def surrounded(self, stdout: Path, stderr: Path) -> Iterator[None]:
        """Redirect the output, and bring environment and folder back; see `Spawner.surrounded`."""
        _redirect_output(stdout, stderr)
        environ, folder, path, streams = dict(os.environ), Path.cwd(), list(sys.path), (sys.stdout, sys.stderr)
        handlers = {logger: list(logger.handlers) for logger in _loggers()}
        self._threads = set(threading.enumerate())
        try:
            yield
        finally:
            os.chdir(folder)
            for name in os.environ.keys() - environ.keys():
                del os.environ[name]
            os.environ.update(environ)
            sys.path[:] = path
            sys.stdout, sys.stderr = streams
            for logger in _loggers():
                logger.handlers[:] = handlers.get(logger, [])

    @contextmanager
    def printed_through(self, mask: Mask) -> Iterator[None]:
        """Replace the two streams, also in handlers of logs."""
        before = sys.stdout, sys.stderr
        masked = {stream: _MaskedStream(stream, mask) for stream in before}
        handlers = [one for logger in _loggers() for one in logger.handlers if isinstance(one, logging.StreamHandler)]
        moved = {one: one.stream for one in handlers if one.stream in masked}
        for handler, stream in moved.items():
            handler.setStream(masked[stream])
        # To Python a stream is what has the methods of one.
        sys.stdout, sys.stderr = (cast("TextIO", masked[stream]) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
            for handler, stream in moved.items():
                handler.setStream(stream)
            for one in masked.values():
                one.unmask()

    def left_running(self, *, children: bool) -> str:
        """Look at threads that were not there at the begin of `surrounded`, and at processes that live."""
        for thread in set(threading.enumerate()) - self._threads:
            # Spark's own, for user code that the JVM calls, and the catalog's, which tells others of commits.
            if not _home_of(thread).startswith(("py4j.", "pyspark.", "tidemill.catalog.")):
                return f"the thread {thread.name!r}"
        if children:
            for pid in _children():
                if _state(pid) not in {"Z", "X", _GONE}:
                    return f"the process {pid}"
        return ""

    def complain(self, text: str) -> None:
        """Write to standard error, where it is at this moment."""
        sys.stderr.write(text)
        sys.stderr.flush()

    def _serve(self) -> None:
        while True:
            child, spawn = self._requests.get()
            try:
                child.set_result(spawn())
            except OSError as error:
                child.set_exception(error)


def die_with_parent() -> int:
    """Have the kernel kill this process when the process ends that started it, and return the id of that process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) was refused")
    return os.getppid()


def adopt_orphans() -> None:
    """Become the parent of what children of this process leave behind."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def live_with_parent() -> Iterator[str]:
    """Tie this process to the one that started it, and give the lines that it sends, as they come.

    To be called first of all in a child of `Spawner.start`, from its main thread. When the parent dies, the kernel
    kills this process; when only its pipe is closed, the watchdog here ends whatever carries this process's tag, and
    then its group. Standard input reads as empty afterwards, so that user code and what it starts cannot take a line.
    """
    parent = die_with_parent()
    # `left_running` finds them then.
    adopt_orphans()
    if os.environ[PARENT] != _identity(parent):
        os.killpg(0, signal.SIGKILL)  # the parent died before the signal was asked for: it never comes
    lifeline = os.dup(0)  # not inheritable
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def watch() -> None:
        with os.fdopen(lifeline, encoding="utf-8") as stdin:
            for line in stdin:
                lines.put(line.rstrip("\n"))
        own = os.environ[TAG].rpartition("/")[2]
        _end(lambda child: own in child.tags and child.pid != os.getpid())
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="watchdog", daemon=True).start()
    return iter(lines.get, None)


def main(command: Sequence[str]) -> None:
    """Become another program, which dies with the process that started this one as a child of `Spawner.start`."""
    live_with_parent()
    # The program keeps the signal of the kernel. Its group has no watchdog, since its standard input is not read.
    os.execv(command[0], list(command))  # noqa: S606  # no shell is wanted


def _loggers() -> list[logging.Logger]:
    named = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    return [logging.root, *named]


def _home_of(thread: threading.Thread) -> str:
    """The module of what a thread does."""
    target = getattr(thread, "_target", None)
    return f"{getattr(target, '__module__', None) or type(thread).__module__}."


class _MaskedStream:
    """Stream whose texts go through a mask into `stream`, which does all else.

    The end of a text that may be the begin of something hidden is kept until the next text shows more. User code may
    keep this stream: after `unmask` all goes to `stream` as it is.
    """

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self._stream = stream
        self._mask: Mask | None = mask
        self._kept = ""
        self._lock = threading.RLock()

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text as far as it is known that nothing of it is hidden."""
        with self._lock:
            if self._mask is None:
                return self._stream.write(text)
            whole = self._kept + text
            known = self._mask.find_begun(whole)
            self._kept = whole[known:]
            self._stream.write(self._mask.hide(whole[:known]))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write the texts one after the other."""
        for line in lines:
            self.write(line)

    def unmask(self) -> None:
        """Write what is kept. From now on write all texts as they are."""
        with self._lock:
            if self._mask is not None:
                self._stream.write(self._mask.hide(self._kept))
            self._mask, self._kept = None, ""


def _children() -> Iterator[int]:
    """The processes whose parent is this one, by whichever of its threads."""
    try:
        # Most drivers have no child: one call says so, in place of a file for each thread. Reaps no process.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT | _WALL)
    except ChildProcessError:
        return
    for thread in (_PROC / "self/task").iterdir():
        with suppress(OSError):
            yield from map(int, (thread / "children").read_text().split())


def _redirect_output(stdout: Path, stderr: Path) -> None:
    for stream, number, path in ((sys.stdout, 1, stdout), (sys.stderr, 2, stderr)):
        stream.flush()
        target = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(target, number)
        os.close(target)


@dataclass(frozen=True, slots=True)
class _Found:
    """A process that a `Spawner` started, or that came from one."""

    pid: int
    tags: tuple[str, ...]
    parent: str


def _end(wanted: Callable[[_Found], bool]) -> int:
    """Kill what is `wanted` until all has ended and none is found many times over; how many there were.

    A process that forks and ends all the time is missed by most looks: it is gone when its turn comes, and its child
    is not in the list. So what is not wanted is looked at only once, which makes a look short, the newest process
    comes first, and one empty look does not count (tried).
    """
    killed: dict[int, str] = {}
    others: set[int] = set()
    empty = 0
    deadline = time.monotonic() + _END_WITHIN.total_seconds()
    while empty < _EMPTY_LOOKS and time.monotonic() < deadline:
        empty += 1
        for pid in sorted((int(path.name) for path in _PROC.iterdir() if path.name.isdigit()), reverse=True):
            if pid in others:
                continue
            found = _look_at(pid)
            if found is not None and wanted(found):
                killed[pid] = _started(pid)
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
                empty = 0
            elif found is not None:
                others.add(pid)
        if any(started != _GONE and _started(pid) == started for pid, started in killed.items()):
            empty = 0  # it has lost its memory, and so its tags, and its files may still be open
        time.sleep(0.002)
    return len(killed)


def _look_at(pid: int) -> _Found | None:
    """Return the tag that a process started with; None if it has ended, is just starting, or is not ours."""
    try:
        environ = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    if not environ:
        return None
    settings = dict(
        setting.split("=", 1)
        for setting in environ.decode(errors="replace").split("\0")
        if setting.startswith((f"{TAG}=", f"{PARENT}="))
    )
    return _Found(pid, tuple(settings.get(TAG, "").split("/")), settings.get(PARENT, ""))


def _is_orphan(child: _Found) -> bool:
    """Return whether the parent (the process that `Spawner.start` ran in) no longer lives."""
    pid, _, rest = child.parent.partition(":")
    # In another container the number belongs to another process, so nothing is known there.
    return rest.endswith(f":{_pid_space()}") and pid.isdigit() and _identity(int(pid)) != child.parent


def _stat(pid: int) -> list[str]:
    """Return the kernel's fields of a process after its name, state first; empty if there is no process."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()


def _state(pid: int) -> str:
    stat = _stat(pid)
    return stat[0] if stat else _GONE


def _started(pid: int) -> str:
    """Return the start of a process in ticks since boot; `_GONE` when it has ended."""
    stat = _stat(pid)
    return stat[19] if stat and stat[0] not in {"Z", "X"} else _GONE


def _identity(pid: int) -> str:
    """Names a process of this machine once and for all: its id, its start, its container."""
    return f"{pid}:{_started(pid)}:{_pid_space()}"


def _is_hidden(pid: int) -> bool:
    """Return whether a process exists of which `/proc` shows nothing to this user (mounted with `hidepid`)."""
    if _stat(pid):
        return False
    with suppress(PermissionError):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
    return True


def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _pid_space() -> str:
    return str((_PROC / "self/ns/pid").readlink())


if __name__ == "__main__":
    main(sys.argv[1:])
