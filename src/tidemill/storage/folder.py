"""A folder as a location of files.

`put` goes through obstore, so that it is one step for every reader and a conditional `put` is decided by the store.
Names, listings and reads of a folder are ours: obstore lists a folder in no order, follows links out of it and round in
circles, fails the whole listing for one name that is not UTF-8, and reads no name that ends in `#1` (tried, 0.12).
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final
from urllib.parse import quote

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import LocalStore

from tidemill.epoch import from_micros
from tidemill.storage.file_names import TOO_LONG, BadFileName, check_file_name, is_too_long, refusal_of, shown_name
from tidemill.storage.files import (
    MOST_DELETED,
    BadLocation,
    Capabilities,
    Crc,
    DeletedBelow,
    FileChanged,
    FileExists,
    Files,
    FileStatus,
    FileUnreadable,
    Seen,
    StorageUnavailable,
    Unusable,
    read_exactly,
    reason_of,
    try_to_delete,
)
from tidemill.world import World

_WRITE_TEST: Final = ".tidemill-write-test"
_UNFINISHED_PUT: Final = re.compile(r"#\d+$")
_NOT_THERE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
_MOST_TRIES: Final = 100
_CONTENDED: Final = "others are deleting it all the time"
_EMPTY: Final = (
    "the folder is empty, and another folder than before: not mounted? Mount the disk; or accept the empty folder by "
    "`tidemill inbox reconcile NAME --accept-empty`"
)
_GONE: Final = (
    "there is no such folder: not mounted? Mount the disk; or, if the folder was deleted, make it again by "
    "`mkdir -p {folder}`"
)


class LocalFiles:
    """A folder of this machine, or one mounted into it.

    Only `prepare` makes the folder. Another write would put files into the empty place of a mount that is away, where
    no reader finds them once the disk is mounted.

    Each listing scans all folders that can hold a matching name, since a folder has no ordered listing: its cost
    grows with all files below its prefix, not with the new ones (300,000 files about 1 s).

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
    def capabilities(self) -> Capabilities:
        """See `Files.capabilities`."""
        return Capabilities()

    def prepare(self, *, again: bool = False) -> None:
        """See `Files.prepare`."""
        if again:
            self.check_location()
        try:
            if not again:
                self._folder.mkdir(parents=True, exist_ok=True)
            self.put(_WRITE_TEST, b"")
            self.delete(_WRITE_TEST)
        except (OSError, StorageUnavailable) as error:
            raise BadLocation(str(self._folder), f"cannot be written: {reason_of(error)}") from error

    def check_location(self) -> str | None:
        """See `Files.check_location`."""
        try:
            # One descriptor: another disk may be mounted between two looks at the path.
            with _opened_folder(self._folder) as folder:
                status = os.fstat(folder)
                is_empty = _is_empty(folder)
        except OSError as error:
            gone = _GONE.format(folder=shlex.quote(str(self._folder)))
            why = gone if error.errno in _NOT_THERE else reason_of(error)
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
        above = prefix[: prefix.rfind("/") + 1]
        if (folder := self._find_folder(above)) is not None:
            yield from self._scan(folder, above, prefix, after or "", seen, refused)

    def _find_folder(self, name: str) -> Path | None:
        """Return the path of a folder, whose name is empty or ends with a slash; None if a scan would not come to it.

        A listing of one transaction must not look at the folders of all others.
        """
        if name and refusal_of(name.removesuffix("/")):
            return None
        folder = self._folder
        for part in name.split("/")[:-1]:
            folder /= part
            try:
                if not stat.S_ISDIR(os.lstat(folder).st_mode):
                    return None
            except OSError as error:
                if error.errno in _NOT_THERE:
                    return None
                raise StorageUnavailable(self.url, name, reason_of(error)) from error
        return folder

    def _scan(
        self, folder: Path, above: str, prefix: str, after: str, seen: Seen | None, unusable: list[Unusable]
    ) -> Iterator[FileStatus]:
        for part, entry in self._entries(folder, above, unusable):
            name = above + part
            why = TOO_LONG if is_too_long(name) else refusal_of(part.removesuffix("/"))
            if why is not None:
                unusable.append(Unusable(shown_name(name), why))
            elif part.endswith("/"):
                may_match = name.startswith(prefix) or prefix.startswith(name)
                if may_match and (name > after or after.startswith(name)):
                    yield from self._scan(folder / entry.name, name, prefix, after, seen, unusable)
            elif name.startswith(prefix) and name > after:
                status = _status_of(entry, name, unusable)
                if status is not None and not (seen and seen.meets(name, _etag(status), int(status.st_mtime))):
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
            unusable.append(Unusable(shown_name(above), reason_of(error)))
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

    def stat_many(self, names: Sequence[str]) -> list[FileStatus | FileUnreadable | None]:
        """See `Files.stat_many`."""
        return list(map(self._stat_or_error, names))

    def _stat_or_error(self, name: str) -> FileStatus | FileUnreadable | None:
        try:
            return self.stat(name)
        except FileUnreadable as error:
            return error

    def read(self, name: str, *, offset: int = 0, length: int | None = None, etag: str | None = None) -> bytes:
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
                content = _read_range(descriptor, offset, end)
                found = _etag(os.fstat(descriptor))
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno in _NOT_THERE or isinstance(error, FileNotFoundError):
                raise FileNotFoundError(path) from None
            raise self._failure(name, error) from error
        if etag is not None and {found, _etag(status)} != {etag}:
            raise FileChanged(self.url, name, etag, found)
        return content

    def _failure(self, name: str, error: OSError) -> StorageUnavailable:
        """Tell a file that cannot be read from a location that is away."""
        try:
            self.check_location()
        except StorageUnavailable as away:
            return away
        return FileUnreadable(self.url, name, reason_of(error))

    def put(self, name: str, content: bytes, *, if_absent: bool = False) -> None:
        """See `Files.put`."""
        self._path(name)
        if _UNFINISHED_PUT.search(name):
            raise BadFileName(name, "'#' and a number at the end marks an unfinished upload")
        try:
            self._world.mark("storage.before_put")
            self.check_location()
            obstore.put(self._store(), name, content, mode="create" if if_absent else "overwrite")
        except AlreadyExistsError:
            raise FileExists(self.url, name) from None
        except (OSError, obstore.exceptions.BaseError) as error:
            raise StorageUnavailable(self.url, name, reason_of(error)) from error

    def put_new(self, name: str, chunks: Iterable[bytes]) -> str:
        """See `Files.put_new`."""
        path = self._path(name)
        crc = Crc()
        try:
            self._world.mark("storage.before_put")
            self.check_location()
            is_new = self._world.disk.write_new(path, map(crc.add, chunks))
        except OSError as error:
            raise StorageUnavailable(self.url, name, reason_of(error)) from error
        if not is_new:
            raise FileExists(self.url, name)
        return str(crc)

    def copy_from(self, other: Files, name: str, etag: str, target: str) -> None:
        """See `Files.copy_from`."""
        self.put_new(target, read_exactly(other, name, etag))

    def delete(self, name: str, *, etag: str | None = None) -> None:
        """See `Files.delete`."""
        if etag is not None:
            self._delete_exactly(name, etag)
        elif self.stat(name) is not None:
            self._delete(name)

    def delete_contents(self, contents: Sequence[tuple[str, str]]) -> list[bool]:
        """See `Files.delete_contents`."""
        return [try_to_delete(self, one) for one in contents]

    def delete_many(self, names: Sequence[str]) -> None:
        """See `Files.delete_many`."""
        for name in names:
            self.delete(name)

    def _delete(self, name: str) -> None:
        try:
            self._world.mark("storage.before_delete")
            self._path(name).unlink(missing_ok=True)
        except OSError as error:
            raise StorageUnavailable(self.url, name, reason_of(error)) from error

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
            raise StorageUnavailable(self.url, name, reason_of(error)) from error

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
                raise StorageUnavailable(self.url, name, reason_of(error)) from error
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
            raise StorageUnavailable(self.url, folder, reason_of(error)) from error

    def list_folders(self, above: str = "") -> list[str]:
        """See `Files.list_folders`."""
        path = self._path(above) if above else self._folder
        try:
            with os.scandir(path) as found:  # noqa: TID251  # files are this room's business
                names = [entry.name for entry in found if os.path.isdir(entry.path)]  # noqa: PTH112  # a link in a circle is none
        except OSError as error:
            if error.errno in _NOT_THERE:
                return []
            raise StorageUnavailable(self.url, above, reason_of(error)) from error
        return sorted(name for name in names if refusal_of(name) is None)

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


def _status_of(entry: os.DirEntry[str], name: str, unusable: list[Unusable]) -> os.stat_result | None:
    """Give the status of a regular file; None for what is none, which `unusable` then names."""
    try:
        status = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None  # it went while we listed
    except OSError as error:
        unusable.append(Unusable(shown_name(name), reason_of(error)))
        return None
    if stat.S_ISREG(status.st_mode):
        return status
    unusable.append(Unusable(shown_name(name), _kind(status)))
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
