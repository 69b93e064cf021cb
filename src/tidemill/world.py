"""The outside world, behind one object: clock, random numbers and ids, files, processes, environment, and marks.

An entry point builds one `World` and passes it on. No other module asks for the time, sleeps, draws a random number,
opens a file or starts a process; a lint rule checks that. The simulation passes in another World, and so runs the code
of production.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol, TypeAlias

from tidemill.epoch import to_ms
from tidemill.processes import LocalSpawner, Spawner
from tidemill.stores import StoreSettings

_CHUNK_BYTES: Final = 1 << 20
_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
# An id is made for each run and each job: with pairs in half of the time.
_CROCKFORD_PAIRS: Final = tuple(first + second for first in _CROCKFORD for second in _CROCKFORD)
_ID_BITS: Final = 130
_DRAWN_BITS: Final = 80
_DRAWN_BYTES: Final = _DRAWN_BITS // 8
_NOTHING_DRAWN: Final = _DRAWN_BITS // 5 * "0"
"""Bits and characters of an id: its time, then what is drawn."""


class Clock(Protocol):
    """Time as this process sees it. What several processes compare is the catalog's `tidemill_now()`, never this."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC. It may jump."""

    def monotonic(self) -> timedelta:
        """Time since some fixed moment of this process's life; never goes back."""

    def sleep(self, duration: timedelta) -> None:
        """Wait for `duration`; nothing for zero and less."""


class SystemClock:
    """The clock of this machine."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> timedelta:
        """Time since an arbitrary start."""
        return timedelta(seconds=time.monotonic())

    def sleep(self, duration: timedelta) -> None:
        """Block this thread for `duration`."""
        if duration > timedelta(0):
            time.sleep(duration.total_seconds())


class Disk:
    """Files of this process itself: configuration, logs, working folders. Data sets live behind `storage`."""

    def read_bytes(self, path: Path) -> bytes:
        """The whole content; `FileNotFoundError` when there is none."""
        return path.read_bytes()

    def read_from(self, path: Path, offset: int) -> bytes:
        """Return the content of the file from `offset` on: empty at its end, so that a log can be followed."""
        with path.open("rb") as file:
            file.seek(offset)
            return file.read()

    def read_chunks(self, path: Path) -> Iterator[bytes]:
        """The whole content, a piece after the other; `FileNotFoundError` when there is none."""
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def write_bytes(self, path: Path, content: bytes) -> None:
        """Replace the file with `content` in one step: a reader sees the old or the new, never a part."""
        self.write_chunks(path, (content,))

    def write_chunks(self, path: Path, chunks: Iterable[bytes]) -> None:
        """`write_bytes` of what is too long for memory; an error of `chunks` leaves the file as it was."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def write_new(self, path: Path, chunks: Iterable[bytes]) -> bool:
        """Write a file in one step where there is none; whether there was none. An error of `chunks` leaves nothing.

        Nor does a kill, where the file system has files without names; else (NFS) a hidden one beside it. When it
        returns, file and name are on the disk.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = _open_unnamed(path.parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                for chunk in chunks:
                    file.write(chunk)
                file.flush()
                os.fsync(descriptor)
                # A rename would replace. The descriptor has Python follow the link, as a file without a name needs it.
                source = f"/proc/self/fd/{descriptor}" if name is None else name
                try:
                    os.link(source, path, src_dir_fd=descriptor)
                except FileExistsError:
                    return False
        finally:
            if name is not None:
                Path(name).unlink(missing_ok=True)
        _sync_folder(path.parent)
        return True

    def append(self, path: Path, text: str) -> None:
        """Add `text` at the end of the file."""
        self.append_bytes(path, text.encode())

    def append_bytes(self, path: Path, content: bytes) -> None:
        """Add `content` at the end of the file."""
        with path.open("ab") as file:
            file.write(content)

    def cut(self, path: Path, length: int) -> None:
        """Keep only the first `length` bytes of the file; later appends go on behind them."""
        os.truncate(path, length)

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or folder."""
        return path.exists()

    def size(self, path: Path) -> int:
        """Bytes in the file; 0 when there is none."""
        return path.stat().st_size if path.exists() else 0

    def identity(self, path: Path) -> str:
        """Names the file itself, whatever its content; empty when there is none. Another one of its name differs."""
        try:
            found = path.stat()
        except FileNotFoundError:
            return ""
        return f"{found.st_dev}:{found.st_ino}"

    def stamp(self, path: Path) -> str:
        """Differs when the file, or the list of names in the folder, has changed; empty when there is none."""
        try:
            found = path.stat()
        except OSError:
            return ""
        return f"{found.st_ino}:{found.st_size}:{found.st_mtime_ns}"

    def free_bytes(self, path: Path) -> int:
        """Bytes that may still be written below `path`."""
        return shutil.disk_usage(path).free

    def make_folder(self, path: Path) -> None:
        """Make the folder and those above it; nothing when it is there."""
        path.mkdir(parents=True, exist_ok=True)

    def list_folder(self, path: Path) -> Iterator[Path]:
        """Return the entries of the folder in order of name; none if there is no folder."""
        yield from sorted(path.iterdir()) if path.is_dir() else ()

    def move(self, source: Path, target: Path) -> None:
        """Rename within one file system, replacing `target`, in one step."""
        source.replace(target)

    def lock(self, path: Path) -> bool:
        """Take a lock that the file `path` stands for, until this process ends; False while another one has it."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        return True

    def remove(self, path: Path) -> None:
        """Delete the file, or the folder with all in it; nothing when there is none. Others may do so at once."""
        while path.is_dir() and not path.is_symlink():
            # Of a folder that others empty too, an entry goes between the listing and its deletion.
            with suppress(FileNotFoundError):
                shutil.rmtree(path)
        path.unlink(missing_ok=True)

    def temporary_folder(self, prefix: str) -> Path:
        """Make a new folder for the caller alone; the caller removes it."""
        return Path(tempfile.mkdtemp(prefix=prefix))


def _open_unnamed(folder: Path) -> tuple[int, str | None]:
    """A file that is open for writing, and its name if it has to have one; others may read it as the umask says."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666), None
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EISDIR}:
            raise
    name = f"{folder}/.{secrets.token_hex(8)}"
    return os.open(name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), name


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _in_a_thread(name: str, every: timedelta, step: Callable[[], bool]) -> Iterator[None]:
    """Repeat `step` in a thread of this process."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(every.total_seconds()) and step():
            pass

    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


Beside: TypeAlias = Callable[[str, timedelta, Callable[[], bool]], AbstractContextManager[None]]
"""Given a name, a duration and a step: a block beside which the step is repeated (`World.beside`)."""


def _nothing(_name: str) -> None:
    """Do nothing at a mark: what production does."""


@dataclass(frozen=True, slots=True)
class World:
    """All that lies outside of Tidemill's decisions, to be handed down from the entry point.

    `marked` is called with the name of each step that a service marks: nothing in production; tests wait there,
    crash tests die there. `repeated` is how `beside` works.
    """

    clock: Clock = field(default_factory=SystemClock)
    random: random.Random = field(default_factory=random.SystemRandom)
    disk: Disk = field(default_factory=Disk)
    spawner: Spawner = field(default_factory=LocalSpawner)
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    marked: Callable[[str], None] = _nothing
    repeated: Beside = _in_a_thread
    stores: tuple[StoreSettings, ...] = ()
    """The object stores that the project's settings name."""

    def mark(self, name: str) -> None:
        """Say that the step `name` (`commit.before_reply`) is reached."""
        self.marked(name)

    def beside(self, name: str, every: timedelta, step: Callable[[], bool]) -> AbstractContextManager[None]:
        """A block beside which `step` is done after each `every`, in a thread called `name`, until it gives False."""
        return self.repeated(name, every, step)

    def new_id(self, prefix: str) -> str:
        """A new id `<prefix>_<26 characters>` whose order is about that of time (the form of a ULID); unique."""
        return self.new_ids(prefix, 1)[0]

    def new_ids(self, prefix: str, count: int) -> list[str]:
        """Return `count` new ids of one time, in their order."""
        # Drawn at once, and the part that they share is written once: a batch has two new ids for each run.
        drawn = self.random.getrandbits(_DRAWN_BITS * count).to_bytes(_DRAWN_BYTES * count)
        begin = self.first_id(prefix, self.clock.now()).removesuffix(_NOTHING_DRAWN)
        values = (int.from_bytes(drawn[at : at + _DRAWN_BYTES]) for at in range(0, len(drawn), _DRAWN_BYTES))
        return [begin + _write_crockford(value, _DRAWN_BITS) for value in sorted(values)]

    def first_id(self, prefix: str, at: datetime) -> str:
        """Return an id that comes before all ids that are made at a time or later."""
        return f"{prefix}_{_write_crockford(to_ms(at) << _DRAWN_BITS, _ID_BITS)}"

    def token(self, characters: int) -> str:
        """Return random lower-case letters and digits that cannot be guessed (with the system's random source)."""
        value = self.random.getrandbits(5 * characters)
        return "".join(_CROCKFORD[(value >> 5 * place) & 31] for place in range(characters)).lower()

    def between(self, low: timedelta, high: timedelta) -> timedelta:
        """Return a random duration from `low` to `high`, so that waiting processes do not wake together."""
        return low + (high - low) * self.random.random()


def _write_crockford(value: int, bits: int) -> str:
    return "".join([_CROCKFORD_PAIRS[value >> shift & 1023] for shift in range(bits - 10, -1, -10)])
