"""Files of a location (a folder now; object stores later, behind the same interface), by relative name.

`put` goes through obstore, so that it is one step for every reader and a conditional `put` is decided by the store.
Names, listings and reads of a folder are ours: obstore lists a folder in no order, follows links out of it and round in
circles, fails the whole listing for one name that is not UTF-8, and reads no name that ends in `#1` (tried, 0.12).
"""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote, unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore

from tidemill.epoch import from_micros
from tidemill.errors import Conflict, Unavailable, UserError
from tidemill.world import World

LONGEST_NAME: Final = 255
"""Bytes in the last part of a name, in folders."""
MOST_DELETED: Final = 10_000
"""Files that one call of `Files.delete_below` deletes, about a second's work."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_WRITE_TEST: Final = ".tidemill-write-test"
_CHUNK_BYTES: Final = 1 << 23
_UNFINISHED_PUT: Final = re.compile(r"#\d+$")
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_MOST_TRIES: Final = 100
_CONTENDED: Final = "others are deleting it all the time"
_EMPTY: Final = (
    "the folder is empty, and another folder than before: not mounted? Mount the disk; or accept the empty folder by "
    "`tidemill inbox reconcile NAME --accept-empty`"
)


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The facts of a store about one file; `etag` differs after each write of the content."""

    name: str
    bytes: int
    modified_at: datetime
    etag: str


MOST_NAME_BYTES: Final = 1024
"""The most bytes of a file's name below its location, as of a key of S3. Names are entries of indexes."""
_TOO_LONG: Final = f"it is longer than {MOST_NAME_BYTES} bytes, the most for a key of S3; use a shorter name"
_SHOWN: Final = 200


class BadFileName(UserError):
    """A name that could lead out of its location, or that no store can keep."""

    code = "bad_file_name"
    hint = "give the file another name, below its folder"

    def __init__(self, name: str, why: str) -> None:
        self.name = name if len(name) <= _SHOWN else f"{name[:_SHOWN]}…"
        self.why = why
        super().__init__(f"file name {self.name!r} is refused: {why}")


class BadLocation(UserError):
    """A location that is no folder or URL that can be opened, or that is of no use as it stands."""

    code = "bad_location"
    hint = "name a folder that this user can read and write"

    def __init__(self, location: str, why: str) -> None:
        self.location = location
        self.why = why
        super().__init__(f"location {location!r} {why}")


class StorageUnavailable(Unavailable):
    """The store does not answer as it should: not there, no right to read, disk full.

    `name` is empty when the location itself is away.
    """

    code = "storage_unavailable"
    hint = "bring the storage back, with space and the right to read and write, and try again"

    def __init__(self, location: str, name: str, why: str) -> None:
        self.location = location
        self.name = name
        self.why = why
        super().__init__(f"storage {location} fails at {name or 'the location itself'!r}: {why}")


class FileUnreadable(StorageUnavailable):
    """A file or folder cannot be read though its location answers: no right to read, or damage on the disk."""

    code = "file_unreadable"
    hint = "give this user the right to read the file, or bring it back"


class FileExists(Conflict):
    """`put(…, if_absent=True)` found a file of that name; it was left as it is."""

    code = "file_exists"
    hint = "give the file another name, or read the file that is there"

    def __init__(self, location: str, name: str) -> None:
        self.location = location
        self.name = name
        super().__init__(f"{location} has a file {name!r} already")


class FileChanged(Conflict):
    """The file is another one than the caller knew (its etag differs); it was left as it is."""

    code = "file_changed"
    hint = "read the file again, and repeat the change"

    def __init__(self, location: str, name: str, expected: str, found: str) -> None:
        self.location = location
        self.name = name
        self.expected = expected
        self.found = found
        super().__init__(f"{name!r} in {location} was written again: expected etag {expected}, found {found}")


class Seen:
    """The files that listings of a location have returned, in 64 bits a file. Later listings leave out unchanged ones.

    With a million files, two are confused once in ten million listings. A memory does not learn what other processes
    do. So a caller that must miss no file lists without a memory from time to time.
    """

    def __init__(self) -> None:
        self._before: set[int] = set()
        self._now: set[int] = set()

    def meets(self, name: str, etag: str) -> bool:
        """Return whether this very content was remembered; if so it stays."""
        if (sign := hash((name, etag))) not in self._before:
            return False
        self._now.add(sign)
        return True

    def remember(self, file: FileStatus) -> None:
        """Do not give this content again."""
        self._now.add(hash((file.name, file.etag)))

    def forget(self, file: FileStatus) -> None:
        """Give this content again after all."""
        self._now.discard(hash((file.name, file.etag)))

    def turn(self) -> None:
        """A listing of all has ended: what it did not meet has gone, and is new when it comes back."""
        self._before, self._now = self._now, set()

    def drop(self) -> None:
        """A listing did not come to its end: what it met counts for nothing."""
        self._now = set()


class Files(Protocol):
    """The files of one location. Conformance suite: tests/contract/test_files.py.

    Names are relative, separated by `/`. Every method raises `BadFileName` for a name with `..`, `.` or empty parts,
    control characters or a leading `/`. A name that leads out of the location by a link is not there for `stat` and
    `settle`, and refused by the others. `StorageUnavailable` means that the store cannot be reached, read or written.
    """

    @property
    def url(self) -> str:
        """The location as an absolute URL without a trailing slash, percent-encoded."""

    @property
    def lists_from_name(self) -> bool:
        """Return whether the cost of a listing does not grow with the files before `after`, as in object stores."""

    def prepare(self) -> None:
        """Make the location if it is missing and prove that it can be written; `BadLocation` when it cannot."""

    def check_location(self) -> str | None:
        """Return the identity of the folder that is there now; None while the folder is empty, or without folders.

        Raise `StorageUnavailable` when the location is away: ask before a missing file counts as deleted. A folder of
        another identity than `open_files` was given is away while it is empty: a disk that is not mounted looks so.
        """

    def list_after(
        self, prefix: str, after: str | None, seen: Seen | None = None, unusable: list[Unusable] | None = None
    ) -> Iterator[FileStatus]:
        """Files whose name begins with `prefix` and is greater than `after`, in bytewise order of the name.

        `prefix` is text, not a folder (`a` finds `ab/c`). Links, names that this interface refuses, and what `seen`
        remembers are left out. Files that come or go meanwhile may or may not be in it. `unusable` receives the names
        that stand there and can never be listed, with the reason: a bad one hides no other.
        """

    def stat(self, name: str) -> FileStatus | None:
        """Return the facts about this file; None if there is no file (a folder or a link is no file)."""

    def read(self, name: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The content, or the part of it from `offset` on, shorter where the file ends; `FileNotFoundError`."""

    def put(self, name: str, content: bytes, *, if_absent: bool = False) -> None:
        """Write the file in one step: a reader sees the old or the new. `FileExists` when asked for `if_absent`."""

    def put_new(self, name: str, chunks: Iterable[bytes]) -> str:
        """Write a file in one step where there is none, and return the checksum of its content; else `FileExists`.

        The content may be too long for memory. An error of `chunks` leaves nothing of the file.
        """

    def copy_from(self, other: Files, name: str, etag: str, target: str) -> str:
        """Copy a file of `other` to `target` as `put_new` does, and return the checksum of the copy.

        The copy has the content of that `etag`. `FileChanged` when `other` has another content or none.
        """

    def delete(self, name: str, *, etag: str | None = None) -> None:
        """Delete the file, if there is one. With `etag`, delete only that content, else raise `FileChanged`.

        If a process is killed while it deletes by etag, `settle` ends the deletion.
        """

    def settle(self, name: str) -> FileStatus | None:
        """End all deletions of this file by etag that have begun, and return the result of `stat` then.

        A deletion that began earlier does not touch the present content, even if its process goes on. Settle before you
        record what happened to a file: a deletion may have moved an unknown content from the name to look at it.
        """

    def delete_below(self, folder: str, most: int = MOST_DELETED) -> DeletedBelow:
        """Delete the files below `folder`, links and hidden names too, and the folder itself; at most `most` files.

        Any number of processes may call it at once, and a process may write there meanwhile. A call that was killed is
        repeated. Call it again until the result is whole.
        """

    def delete_empty_folder(self, name: str) -> None:
        """Delete a folder in which nothing is; nothing where a store has no folders, or when it is not empty."""

    def list_folders(self, above: str = "") -> list[str]:
        """Return the names of the folders directly below `above`, sorted; none if there is nothing.

        A link to a folder counts: a folder that was moved to another disk is found. `open_files` reads behind it.
        In a store without folders, these are the first parts of the names below `above/`. Cost: the names directly
        below, never the files in the folders.
        """

    def url_of(self, name: str) -> str:
        """The absolute URL of a file, percent-encoded as `url` is."""


@dataclass(frozen=True, slots=True)
class Unusable:
    """A name in a location that no listing gives, with the reason; a folder ends with a slash."""

    name: str
    """The name as people can read it: bytes that are no text appear as `\\xff`."""
    why: str


@dataclass(frozen=True, slots=True)
class DeletedBelow:
    """The result of one `Files.delete_below`."""

    names: int
    """Files and folders that this call deleted."""
    is_whole: bool
    """Nothing was left. If not, more than one call could delete was there, or a process writes there."""


def open_files(location: str | Path, world: World, root: str | None = None) -> Files:
    """Give the files of a folder, named by its path or a `file:` URL. Touches nothing yet.

    `root` is the identity (`Files.check_location`) that the folder had when files were in it; None if not known.
    """
    return LocalFiles(_folder(str(location)).absolute(), world, root)


def resolved(url: str) -> str:
    """The URL of the same location with all links in it resolved: what lies in one place begins with one URL."""
    return _folder(url).resolve().as_uri()


def find_file(files: Files, name: str) -> FileStatus | None:
    """Give what `Files.stat` says of a file that should be there; None only if the location answers without it.

    Raises `StorageUnavailable` when the location is away: an unmounted folder says of each file that there is none.
    """
    status = files.stat(name)
    if status is None:
        files.check_location()
        status = files.stat(name)  # it may have come back between the two
    return status


def path_for_readers(location: str, name: str = "") -> str:
    """The path or URL by which other readers find a file of a location: in a folder the plain path, nothing encoded."""
    return str(_folder(location) / name)


def path_for_spark(location: str, name: str = "") -> str:
    """The path of a location, or of a file in it, as Spark takes it."""
    # Hadoop takes a path as it stands: in a URL it would look for a folder with `%20` in its name.
    return f"file://{path_for_readers(location, name)}"


def local_folder(files: Files) -> Path | None:
    """Return the folder in which these files lie on this machine; None for a store that is no folder.

    Only for a caller that can do nothing with another store: a watcher of events, a test that lands files.
    """
    return files.folder if isinstance(files, LocalFiles) else None


def check_file_name(name: str) -> str:
    """Return `name` if a store may keep a file under it; raise `BadFileName` otherwise."""
    why = _refusal(name)
    if why:
        raise BadFileName(name, why)
    return name


def check_file_names(names: Iterable[str]) -> None:
    """Raise `BadFileName` for the first of `names` that is too long for a file. Nothing else of a name is looked at."""
    for name in names:
        if is_too_long(name):
            raise BadFileName(name, _TOO_LONG)


def read_chunks(files: Files, name: str) -> Iterator[bytes]:
    """The content of a file, a piece after the other; `FileNotFoundError`."""
    offset = 0
    while chunk := files.read(name, offset=offset, length=_CHUNK_BYTES):
        yield chunk
        offset += len(chunk)


def read_exactly(files: Files, name: str, etag: str) -> Iterator[bytes]:
    """The content of that `etag`, a piece after the other; `FileChanged` at the end when it was written again."""
    with suppress(FileNotFoundError):
        yield from read_chunks(files, name)
    status = files.stat(name)
    if status is None or status.etag != etag:
        raise FileChanged(files.url, name, etag, "none" if status is None else status.etag)


def checksum(files: Files, name: str) -> str:
    """The CRC of the whole content. It finds damage, not malice, as in Parquet and Hadoop (3 GB/s: a hash is slower).

    Cost: reads the file, which its writer finds in memory. Raises `FileNotFoundError`.
    """
    crc = Crc()
    for chunk in read_chunks(files, name):
        crc.add(chunk)
    return str(crc)


class Crc:
    """A checksum that grows with the content; its text is the form in which checksums are stored."""

    def __init__(self) -> None:
        self._crc = 0

    def add(self, chunk: bytes) -> bytes:
        """Count the next part of the content, and return the part."""
        self._crc = zlib.crc32(chunk, self._crc)
        return chunk

    def __str__(self) -> str:
        return f"crc32:{self._crc:08x}"


def open_seekable(files: Files, name: str) -> SeekableFile:
    """Open a file for a library that seeks in it, as pyarrow does for a footer; `FileNotFoundError`."""
    status = find_file(files, name)
    if status is None:
        raise FileNotFoundError(f"{files.url}: {name}")
    return SeekableFile(files, status)


class SeekableFile(io.RawIOBase):
    """A file of a store, as an object that can be read and sought in. Each read is a `Files.read`.

    So a reader of a footer costs the footer, in a folder and in an object store alike. Errors are those of `Files`.
    """

    def __init__(self, files: Files, status: FileStatus) -> None:
        super().__init__()
        self._files = files
        self._status = status
        self._position = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position, in bytes from the beginning."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to a position; an OSError before the beginning, where a damaged footer may point."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._status.bytes}[whence]
        if start + offset < 0:
            raise OSError(errno.EINVAL, "a position before the beginning of the file")
        self._position = start + offset
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes, fewer at the end of the file; all that are left without a size."""
        left = max(self._status.bytes - self._position, 0)
        length = left if size is None or size < 0 else min(size, left)
        part = self._files.read(self._status.name, offset=self._position, length=length) if length else b""
        self._position += len(part)
        return part

    def readall(self) -> bytes:
        """All bytes that are left."""
        return self.read()


class LocalFiles:
    """A folder of this machine, or one mounted into it.

    Each listing scans all folders that can hold a matching name, since a folder has no ordered listing: its cost
    grows with all files in it, not with the new ones (300,000 files about 1 s).

    A folder deletes nothing by etag in one step, so a deletion moves the file into a hidden folder before it looks at
    it: `.<hash of its name>.leaving/`, opened before the etag is compared for the last time. `settle` finds the folder
    by its name, deletes the file in it, or restores another content to its name, and removes the folder. A process that
    still has the removed folder open can move no file into it, and begins again. So neither a kill nor a stop between
    a look and a move removes a file from its name for good.

    The `world` is asked before each call of the store; an OSError raised at its mark is one of the store's.
    """

    def __init__(self, folder: Path, world: World, root: str | None = None) -> None:
        self._folder = folder
        self._world = world
        self._root = root

    @property
    def folder(self) -> Path:
        """The folder, by its absolute path. Above this room: `local_folder`."""
        return self._folder

    @property
    def url(self) -> str:
        """See `Files.url`."""
        return self._folder.as_uri()

    @property
    def lists_from_name(self) -> bool:
        """See `Files.lists_from_name`."""
        return False

    def prepare(self) -> None:
        """See `Files.prepare`."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.put(_WRITE_TEST, b"")
            self.delete(_WRITE_TEST)
        except (OSError, StorageUnavailable) as error:
            raise BadLocation(str(self._folder), f"cannot be written: {_reason(error)}") from error

    def check_location(self) -> str | None:
        """See `Files.check_location`."""
        try:
            # One descriptor: another disk may be mounted between two looks at the path.
            with _opened_folder(self._folder) as folder:
                status = os.fstat(folder)
                is_empty = _is_empty(folder)
        except OSError as error:
            why = "there is no such folder" if error.errno in _NOT_THERE else _reason(error)
            raise StorageUnavailable(self.url, "", why) from error
        root = f"{status.st_dev}:{status.st_ino}"
        if is_empty and self._root is not None and root != self._root:
            raise StorageUnavailable(self.url, "", _EMPTY)
        return None if is_empty else root

    def list_after(
        self, prefix: str, after: str | None, seen: Seen | None = None, unusable: list[Unusable] | None = None
    ) -> Iterator[FileStatus]:
        """See `Files.list_after`."""
        self.check_location()
        refused: list[Unusable] = [] if unusable is None else unusable
        yield from self._scan(self._folder, "", prefix, after or "", seen, refused)

    def _scan(
        self, folder: Path, above: str, prefix: str, after: str, seen: Seen | None, unusable: list[Unusable]
    ) -> Iterator[FileStatus]:
        for part, entry in self._entries(folder, above, unusable):
            name = above + part
            why = _TOO_LONG if is_too_long(name) else _refusal(part.removesuffix("/"))
            if why is not None:
                unusable.append(Unusable(_shown(name), why))
            elif part.endswith("/"):
                may_match = name.startswith(prefix) or prefix.startswith(name)
                if may_match and (name > after or after.startswith(name)):
                    yield from self._scan(folder / entry.name, name, prefix, after, seen, unusable)
            elif name.startswith(prefix) and name > after:
                status = _status_of(entry, name, unusable)
                if status is not None and (seen is None or not seen.meets(name, _etag(status))):
                    yield _status(name, status)

    def _entries(self, folder: Path, above: str, unusable: list[Unusable]) -> list[tuple[str, os.DirEntry[str]]]:
        """List a folder by name; none when it cannot be read, or went while we listed."""
        try:
            with os.scandir(folder) as found:  # noqa: TID251  # files are this room's business
                # A folder sorts as its name with the slash: so the whole walk is in the order of the full names.
                entries = [(entry.name + "/" * entry.is_dir(follow_symlinks=False), entry) for entry in found]
        except FileNotFoundError:
            return []
        except OSError as error:
            self.check_location()  # else each folder below a disk that has gone would be named
            unusable.append(Unusable(_shown(above), _reason(error)))
            return []
        return sorted(entries, key=lambda entry: entry[0])

    def stat(self, name: str) -> FileStatus | None:
        """See `Files.stat`."""
        path = f"{self._folder}/{check_file_name(name)}"
        try:
            if "/" in name and self._leads_out(name.rpartition("/")[0]):
                return None
            status = os.lstat(path)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            raise self._failure(name, error) from error
        return _status(name, status) if stat.S_ISREG(status.st_mode) else None

    def read(self, name: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """See `Files.read`."""
        path = self._path(name)
        try:
            self._world.mark("storage.before_read")
            # A pipe would wait for its writer, and a link may lead out by now.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # noqa: TID251  # files are this room's business
            try:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    raise FileNotFoundError(path)
                end = status.st_size if length is None else min(offset + length, status.st_size)
                return _read_range(descriptor, offset, end)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in _NOT_THERE or isinstance(error, FileNotFoundError):
                raise FileNotFoundError(path) from None
            raise self._failure(name, error) from error

    def _failure(self, name: str, error: OSError) -> StorageUnavailable:
        """Tell a file that cannot be read from a location that is away."""
        try:
            self.check_location()
        except StorageUnavailable as away:
            return away
        return FileUnreadable(self.url, name, _reason(error))

    def put(self, name: str, content: bytes, *, if_absent: bool = False) -> None:
        """See `Files.put`."""
        self._path(name)
        if _UNFINISHED_PUT.search(name):
            raise BadFileName(name, "'#' and a number at the end marks an unfinished upload")
        try:
            self._world.mark("storage.before_put")
            self._folder.mkdir(parents=True, exist_ok=True)
            obstore.put(self._store(), name, content, mode="create" if if_absent else "overwrite")
        except AlreadyExistsError:
            raise FileExists(self.url, name) from None
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StorageUnavailable(self.url, name, _reason(error)) from error

    def put_new(self, name: str, chunks: Iterable[bytes]) -> str:
        """See `Files.put_new`."""
        path = self._path(name)
        crc = Crc()
        try:
            self._world.mark("storage.before_put")
            is_new = self._world.disk.write_new(path, map(crc.add, chunks))
        except OSError as error:
            raise StorageUnavailable(self.url, name, _reason(error)) from error
        if not is_new:
            raise FileExists(self.url, name)
        return str(crc)

    def copy_from(self, other: Files, name: str, etag: str, target: str) -> str:
        """See `Files.copy_from`."""
        return self.put_new(target, read_exactly(other, name, etag))

    def delete(self, name: str, *, etag: str | None = None) -> None:
        """See `Files.delete`."""
        if etag is not None:
            self._delete_exactly(name, etag)
        elif self.stat(name) is not None:
            self._delete(name)

    def _delete(self, name: str) -> None:
        try:
            self._world.mark("storage.before_delete")
            self._path(name).unlink(missing_ok=True)
        except OSError as error:
            raise StorageUnavailable(self.url, name, _reason(error)) from error

    def _delete_exactly(self, name: str, etag: str) -> None:
        for _ in range(_MOST_TRIES):
            status = self.settle(name)
            if status is None:
                return
            if status.etag != etag:
                raise FileChanged(self.url, name, etag, status.etag)
            if self._move_to_delete(name, etag):
                self.settle(name)
                return
        raise StorageUnavailable(self.url, name, _CONTENDED)

    def _move_to_delete(self, name: str, etag: str) -> bool:
        """Return whether the file is now where `settle` deletes it: not if deleted, replaced or settled meanwhile."""
        path = self._path(name)
        taken = f"{etag}.{self._world.new_id('leaving')}"
        try:
            _aside(path).mkdir(exist_ok=True)
            with _opened_folder(_aside(path)) as folder:
                if _etag(path.stat()) != etag:
                    return False
                self._world.mark("storage.before_delete")
                os.rename(path, taken, dst_dir_fd=folder)
                self._world.mark("storage.moved_to_delete")
                return _etag(os.stat(taken, dir_fd=folder)) == etag
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageUnavailable(self.url, name, _reason(error)) from error

    def settle(self, name: str) -> FileStatus | None:
        """See `Files.settle`."""
        path = self._folder / check_file_name(name)
        if self._leads_out(name):
            return None
        for _ in range(_MOST_TRIES):
            status = self.stat(name)  # first, so that an earlier deletion is found below
            try:
                if not _end_deletions(path):
                    return status
            except OSError as error:
                raise StorageUnavailable(self.url, name, _reason(error)) from error
        raise StorageUnavailable(self.url, name, _CONTENDED)

    def delete_below(self, folder: str, most: int = MOST_DELETED) -> DeletedBelow:
        """See `Files.delete_below`."""
        path = self._folder / check_file_name(folder)
        if "/" in folder:
            self._path(folder.rpartition("/")[0])  # a link above it may lead out; itself is no link, see below
        try:
            self._world.mark("storage.before_delete")
            return _delete_tree(str(path), most)
        except OSError as error:
            if error.errno in _NOT_THERE:
                return DeletedBelow(0, is_whole=True)
            raise StorageUnavailable(self.url, folder, _reason(error)) from error

    def list_folders(self, above: str = "") -> list[str]:
        """See `Files.list_folders`."""
        path = self._path(above) if above else self._folder
        try:
            with os.scandir(path) as found:  # noqa: TID251  # files are this room's business
                names = [entry.name for entry in found if os.path.isdir(entry.path)]  # noqa: PTH112  # a link in a circle is none
        except OSError as error:
            if error.errno in _NOT_THERE:
                return []
            raise StorageUnavailable(self.url, above, _reason(error)) from error
        return sorted(name for name in names if _refusal(name) is None)

    def delete_empty_folder(self, name: str) -> None:
        """See `Files.delete_empty_folder`."""
        with suppress(OSError):  # there is something in it, or it is gone
            self._path(name).rmdir()

    def url_of(self, name: str) -> str:
        """See `Files.url_of`."""
        return f"{self.url}/{quote(check_file_name(name))}"

    def _store(self) -> LocalStore:
        # Made for each call (some µs): the folder must exist, and may be made later than this object.
        return LocalStore(self._folder)

    def _path(self, name: str) -> Path:
        path = self._folder / check_file_name(name)
        if self._leads_out(name):
            raise BadFileName(name, f"a link leads out of {self._folder}")
        return path

    def _leads_out(self, name: str) -> bool:
        """Tell whether a link in `name` leads out of the location. Cost: a look at each part, some µs."""
        place = str(self._folder)
        for part in name.split("/"):
            place = f"{place}/{part}"
            try:
                is_link = stat.S_ISLNK(os.lstat(place).st_mode)
            except OSError:
                return False  # nothing is there, so nothing leads anywhere
            if is_link:
                whole = os.path.realpath(f"{self._folder}/{name}")
                return not Path(whole).is_relative_to(os.path.realpath(self._folder))
        return False


def _folder(location: str) -> Path:
    scheme = urlsplit(location).scheme if "://" in location else ""
    if scheme not in {"", "file"}:
        raise BadLocation(location, f"has the scheme {scheme!r}: only folders ('file') can be opened")
    folder = unquote(urlsplit(location).path) if scheme else location
    if not folder or _CONTROL.search(folder):
        raise BadLocation(location, "is empty or has control characters")
    return Path(folder)


def is_too_long(name: str) -> bool:
    """Return whether a name has more than `MOST_NAME_BYTES`."""
    # A character has four bytes at most: names of listings are seldom encoded.
    return len(name) * 4 > MOST_NAME_BYTES and len(name.encode(errors="surrogatepass")) > MOST_NAME_BYTES


def _refusal(name: str) -> str | None:
    if is_too_long(name):
        return _TOO_LONG
    if not name or name.startswith("/"):
        return "it is empty or absolute; names are relative to their location"
    if any(part in {"", ".", ".."} for part in name.split("/")):
        return "it has an empty, '.' or '..' part"
    if _CONTROL.search(name):
        return "it has control characters"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "it is not UTF-8"
    return None


def _shown(name: str) -> str:
    """The name as a line of text that any terminal and database can keep."""
    text = name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def _status_of(entry: os.DirEntry[str], name: str, unusable: list[Unusable]) -> os.stat_result | None:
    """Give the status of a regular file; None for what is none, which `unusable` then names."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # it went while we listed
    except OSError as error:
        unusable.append(Unusable(_shown(name), _reason(error)))
        return None
    if stat.S_ISREG(status.st_mode):
        return status
    unusable.append(Unusable(_shown(name), _kind(status)))
    return None


def _kind(status: os.stat_result) -> str:
    if stat.S_ISLNK(status.st_mode):
        return "it is a link"
    return "it is a pipe" if stat.S_ISFIFO(status.st_mode) else "it is no file, but a device or a socket"


def _read_range(descriptor: int, offset: int, end: int) -> bytes:
    parts = []
    while offset < end and (part := os.pread(descriptor, end - offset, offset)):
        parts.append(part)
        offset += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _etag(status: os.stat_result) -> str:
    # Inode, time and size together: a rename into place gives another inode; a rewrite in place another time, in
    # nanoseconds. Unseen stays only one of equal size within the kernel's clock step (4 ms or less) of the last write.
    return f"{status.st_ino:x}-{status.st_mtime_ns:x}-{status.st_size:x}"


def _aside(path: Path) -> Path:
    # Not made of the name itself: that may be as long as names can be.
    return path.with_name(f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:32]}.leaving")


def _end_deletions(path: Path) -> bool:
    """End what has begun to delete this file, and give whether anything had."""
    try:
        taken = list(_aside(path).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return False
    for one in taken:
        with suppress(FileNotFoundError):  # another process ends it too
            if _etag(one.stat()) != one.name.split(".", 1)[0]:
                with suppress(FileExistsError):  # written once more: that one replaces this one anyway
                    os.link(one, path)
            one.unlink()
    with suppress(OSError):  # it is gone, or a file has come into it just now: then the caller finds it again
        _aside(path).rmdir()
    return True


def _delete_tree(name: str, most: int, above: int | None = None) -> DeletedBelow:
    """Delete a folder, by its path or its name in the opened folder `above`, and at most `most` files below it."""
    deleted = 0
    with _opened_folder(name, above, os.O_NOFOLLOW) as folder:
        with os.scandir(folder) as found:  # noqa: TID251  # files are this room's business
            entries = list(islice(found, max(most, 0)))
        for entry in entries:
            if deleted >= most:
                break
            with suppress(FileNotFoundError, NotADirectoryError):  # another process deletes or replaces it
                if entry.is_dir(follow_symlinks=False):
                    deleted += _delete_tree(entry.name, most - deleted, folder).names
                else:
                    os.unlink(entry.name, dir_fd=folder)
                    deleted += 1
    try:
        os.rmdir(name, dir_fd=above)
    except OSError as error:
        if error.errno not in {errno.ENOTEMPTY, errno.ENOENT}:
            raise
        return DeletedBelow(deleted, is_whole=error.errno == errno.ENOENT)
    return DeletedBelow(deleted + 1, is_whole=True)


@contextmanager
def _opened_folder(path: Path | str, above: int | None = None, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | flags, dir_fd=above)  # noqa: TID251  # files are this room's business
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_empty(folder: int) -> bool:
    """Tell whether an opened folder holds nothing but hidden names, as a mount point may."""
    with os.scandir(folder) as entries:  # noqa: TID251  # files are this room's business
        return all(entry.name.startswith(".") for entry in entries)


def _status(name: str, status: os.stat_result) -> FileStatus:
    return FileStatus(name, status.st_size, from_micros(status.st_mtime_ns // 1000), _etag(status))


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, StorageUnavailable):
        return error.why
    # obstore appends its Rust structures below an empty line; of its first line the last part is the system's word.
    return str(error).split("\n", 1)[0].rsplit(": ", 1)[-1]
