"""Files of a location, a folder or a part of an object store, by relative name."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Protocol, TypeVar

from tidemill.errors import Conflict, Unavailable, UserError

MOST_DELETED: Final = 10_000
"""Files that one call of `Files.delete_below` deletes, about a second's work."""
_MESSAGE: Final = re.compile(r"<Message>([^<]+?)\.?</Message>")
"""The sentence in an answer of S3."""
_CHUNK_BYTES: Final = 1 << 23
_MD5: Final = re.compile("[0-9a-f]{32}")
_OF_ETAG: Final = "md5:"
"""The kind of checksum that a store gives as etag."""

_T = TypeVar("_T")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The facts of a store about one file; `etag` differs after each write of the content."""

    name: str
    bytes: int
    modified_at: datetime
    etag: str


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Facts about the store of a location that change how its callers work."""

    lists_from_name: bool = False
    """The cost of a listing does not grow with the files before `after`."""
    etag_is_of_content: bool = False
    """Two contents never have one etag. So the etag serves as checksum, and nothing is read again for one."""
    at_once: int = 1
    """The number of requests to have under way at one time."""


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

    A content that was written again counts as changed: in a bucket it has the etag of before, and a later second.

    With a million files, two are confused once in ten million listings. A memory does not learn what other processes
    do. So a caller that must miss no file lists without a memory from time to time.
    """

    def __init__(self) -> None:
        self._before: set[int] = set()
        self._now: set[int] = set()

    def meets(self, name: str, etag: str, second: int) -> bool:
        """Return whether this very content was remembered; if so it stays. `second` is that of its time."""
        if (sign := hash((name, etag, second))) not in self._before:
            return False
        self._now.add(sign)
        return True

    def remember(self, file: FileStatus) -> None:
        """Do not give this content again."""
        self._now.add(_sign(file))

    def forget(self, file: FileStatus) -> None:
        """Give this content again after all."""
        self._now.discard(_sign(file))

    def turn(self) -> None:
        """A listing of all has ended: what it did not meet has gone, and is new when it comes back."""
        self._before, self._now = self._now, set()

    def drop(self) -> None:
        """A listing did not come to its end: what it met counts for nothing."""
        self._now = set()


def _sign(file: FileStatus) -> int:
    return hash((file.name, file.etag, second_of(file.modified_at)))


def second_of(at: datetime) -> int:
    """Return the whole second of a time, as each listing of the file shows it."""
    return int(at.timestamp())


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
    def capabilities(self) -> Capabilities:
        """The facts about the store. Nothing is asked of the store for them."""

    def prepare(self, *, again: bool = False) -> None:
        """Make the location if it is missing and prove that it can be written; `BadLocation` when it cannot.

        A location that was made before is prepared `again`: a missing folder is away then (`StorageUnavailable`).
        """

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

    def stat_many(self, names: Sequence[str]) -> list[FileStatus | FileUnreadable | None]:
        """Return the result of `stat` for each name, in order; a file that cannot be read has its error there.

        Cost: a remote store is asked at several names at once. Many names that stand close together cost a page of a
        listing for each thousand.
        """

    def read(self, name: str, *, offset: int = 0, length: int | None = None, etag: str | None = None) -> bytes:
        """The content, or the part of it from `offset` on, shorter where the file ends; `FileNotFoundError`.

        With `etag`, read only that content, else raise `FileChanged`. Cost: one request, two behind the end.
        """

    def put(self, name: str, content: bytes, *, if_absent: bool = False) -> None:
        """Write the file in one step: a reader sees the old or the new. `FileExists` when asked for `if_absent`.

        No write makes the location, only folders in it.
        """

    def put_new(self, name: str, chunks: Iterable[bytes]) -> str:
        """Write a file in one step where there is none, and return the checksum of its content; else `FileExists`.

        The content may be too long for memory. An error of `chunks` leaves nothing of the file.
        """

    def copy_from(self, other: Files, name: str, etag: str, target: str) -> None:
        """Copy a file of `other` to `target` as `put_new` does. The copy has the content of that `etag`.

        `FileChanged` when `other` has another content or none. The store copies by itself where both locations are in
        one store that compares etags. Else the content is read and written.
        """

    def delete(self, name: str, *, etag: str | None = None) -> None:
        """Delete the file, if there is one. With `etag`, delete only that content, else raise `FileChanged`.

        If a process is killed while it deletes by etag, `settle` ends the deletion.
        """

    def delete_contents(self, contents: Sequence[tuple[str, str]]) -> list[bool]:
        """Delete the files of these names and etags, each as `delete` does; return for each whether nothing refused.

        Cost: in a bucket whose store compares the etags of many files, a request a thousand; else a request each.
        """

    def delete_many(self, names: Sequence[str]) -> None:
        """Delete these files, those that are there, whatever their content. Cost: in a bucket a request a thousand."""

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


def find_file(files: Files, name: str) -> FileStatus | None:
    """Give what `Files.stat` says of a file that should be there; None only if the location answers without it.

    Raises `StorageUnavailable` when the location is away: an unmounted folder says of each file that there is none.
    """
    status = files.stat(name)
    if status is None:
        files.check_location()
        status = files.stat(name)  # it may have come back between the two
    return status


def find_files(files: Files, names: Sequence[str]) -> list[FileStatus | FileUnreadable | None]:
    """Give what `find_file` says of each name, in order; a file that cannot be read has its error there."""
    found = files.stat_many(names)
    missing = [place for place, status in enumerate(found) if status is None]
    if missing:
        files.check_location()
        for place, status in zip(missing, files.stat_many([names[place] for place in missing]), strict=True):
            found[place] = status
    return found


def try_to_delete(files: Files, content: tuple[str, str]) -> bool:
    """Delete the content of a name and an etag; return False where it is another one."""
    name, etag = content
    try:
        files.delete(name, etag=etag)
    except FileChanged:
        return False
    return True


def for_each(files: Files, act: Callable[[_T], _R], items: Sequence[_T]) -> list[_R]:
    """Call `act` with each item, at as many at once as the store of `files` bears; the results in order.

    Raises the first error, after the calls that have begun.
    """
    if files.capabilities.at_once == 1 or len(items) < 2:
        return [act(item) for item in items]
    with ThreadPoolExecutor(min(files.capabilities.at_once, len(items)), "storage") as pool:
        return list(pool.map(act, items))


def read_chunks(files: Files, name: str, etag: str | None = None) -> Iterator[bytes]:
    """The content of a file, a piece after the other; `FileNotFoundError`. See `Files.read` for `etag`."""
    offset = 0
    while chunk := files.read(name, offset=offset, length=_CHUNK_BYTES, etag=etag):
        yield chunk
        offset += len(chunk)
        if len(chunk) < _CHUNK_BYTES:
            break


def read_exactly(files: Files, name: str, etag: str) -> Iterator[bytes]:
    """The content of that `etag`, a piece after the other; `FileChanged` where it is another or missing."""
    try:
        yield from read_chunks(files, name, etag)
    except FileNotFoundError:
        raise FileChanged(files.url, name, etag, "none") from None


def digest_of(files: Files, file: FileStatus) -> str:
    """Return a text that differs for each content of a file: the etag where that is one, else the checksum.

    Cost: none, or reads the file. Raises `FileNotFoundError`.
    """
    return f"etag:{file.etag}" if files.capabilities.etag_is_of_content else checksum(files, file.name)


def checksum(files: Files, name: str, known: str = "") -> str:
    """The checksum of the whole content, of the same kind as a `known` one; without one, the CRC.

    A CRC finds damage, not malice, as in Parquet and Hadoop (3 GB/s: a hash is slower). Cost: reads the file, which its
    writer finds in memory. Raises `FileNotFoundError`.
    """
    if known.startswith(_OF_ETAG):
        digest = hashlib.md5(usedforsecurity=False)
        for chunk in read_chunks(files, name):
            digest.update(chunk)
        return _OF_ETAG + digest.hexdigest()
    crc = Crc()
    for chunk in read_chunks(files, name):
        crc.add(chunk)
    return str(crc)


def checksums_of_job(files: Files, written: Sequence[FileStatus]) -> dict[str, str]:
    """Return the checksums of the files that one job of one writer has written, by name.

    In most stores the etag is the MD5 of the content, unless the file came in parts. Stores that encrypt with a key of
    their own have other etags. So the smallest file with content is read: if its etag is its MD5, so are the others.
    Cost: reads this file, and those that are empty or whose etags are no MD5; else all. Raises `FileNotFoundError`.
    """
    of_content = files.capabilities.etag_is_of_content
    hashed = [one for one in written if of_content and one.bytes and _MD5.fullmatch(one.etag)]
    if hashed:
        smallest = min(hashed, key=lambda one: one.bytes)
        if checksum(files, smallest.name, _OF_ETAG) != _OF_ETAG + smallest.etag:
            hashed = []
    found = {one.name: _OF_ETAG + one.etag for one in hashed}
    others = [one.name for one in written if one.name not in found]
    return found | dict(zip(others, for_each(files, partial(checksum, files), others), strict=True))


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


def reason_of(error: Exception) -> str:
    """Return the words of the system or the store for an error, in one line."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, StorageUnavailable):
        return error.why
    if said := _MESSAGE.search(str(error)):
        return said[1]
    # obstore appends its Rust structures below an empty line; of its first line the last part is the system's word.
    return str(error).split("\n", 1)[0].rstrip(": ").rsplit(": ", 1)[-1]
