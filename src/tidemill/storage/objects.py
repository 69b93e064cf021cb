"""Objects of a store as files, by obstore: a bucket of S3, or of a store that speaks like S3.

A store does in one step what takes several steps in a folder: it puts a file only where there is none, and deletes a
file only if the file has a certain content. Nothing is a folder there, and a file may have a name below that of another
one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from enum import Enum
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, Self
from urllib.parse import quote

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    InvalidPathError,
    PermissionDeniedError,
    PreconditionError,
)

from tidemill.storage.file_names import check_file_name, refusal_of, shown_name
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
    for_each,
    read_exactly,
    reason_of,
    second_of,
    try_to_delete,
)

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ObjectStore

    from tidemill.world import World

_WRITE_TEST: Final = ".tidemill-write-test"
_AT_ONCE: Final = 16
_PAGE: Final = 1000
"""The most names in a page of S3."""
_MOST_IN_MEMORY: Final = 64 << 20
"""Bytes of one put. A longer content is sent in parts, which no store makes conditional on the name being free."""

NO_S3: Final = "no answer of S3; set `endpoint` in the table [stores.NAME] to the address of the store's S3 API"


class Refused(Enum):
    """Reasons for which a store has not done what it was asked to."""

    CONDITION = "condition"
    """The file is another one, or has gone; or the name that was to be free is not."""
    UNABLE = "unable"
    """The store does not compare, or cannot do this. It was not asked, or has done nothing."""


class Entry(NamedTuple):
    """An object in a page of a listing, with its name as it stands in the store."""

    name: str
    bytes: int
    modified_at: datetime
    etag: str


class ObjectPage(NamedTuple):
    """A page of a listing; `token` asks for the next page, and is empty on the last one."""

    entries: tuple[Entry, ...]
    folders: tuple[str, ...] = ()
    """With a delimiter, the beginnings of the names that go on behind one."""
    token: str = ""


class StoreRequests(Protocol):
    """Requests about a location that obstore does not send. Each raises OSError when the store does not answer."""

    def list_page(self, prefix: str, after: str, token: str, delimiter: str, most: int) -> ObjectPage:
        """Return a page of the names that begin with `prefix`, behind `after` or from a page's `token` on."""

    def delete(self, name: str) -> None:
        """Delete an object by its name as it stands in the store."""

    def delete_if(self, name: str, etag: str) -> Refused | None:
        """Delete that content of a file in one step."""

    def delete_those(self, contents: Sequence[tuple[str, str]]) -> list[Refused | None] | Refused:
        """Delete those contents of files, named with their etags, each in one step; a result each."""

    def copy_if(self, source: Self, name: str, etag: str, target: str) -> Refused | None:
        """Copy that content of a file of `source` to `target`, where there is none, in one step."""


class ObjectFiles:
    """The objects of a store below a prefix. The `world` is asked before each call of the store, as in a folder.

    Without `requests` the store is known by obstore alone: in tests, a store in memory.
    """

    def __init__(self, url: str, store: ObjectStore, world: World, requests: StoreRequests | None = None) -> None:
        self._url = url
        self._store = store
        self._world = world
        self._requests = requests

    @property
    def url(self) -> str:
        """See `Files.url`."""
        return self._url

    @property
    def capabilities(self) -> Capabilities:
        """See `Files.capabilities`. An etag of S3 is of the content; that of a store in memory is a number."""
        return Capabilities(lists_from_name=True, etag_is_of_content=self._requests is not None, at_once=_AT_ONCE)

    def prepare(self, *, again: bool = False) -> None:
        """See `Files.prepare`. A bucket is never made."""
        del again
        try:
            self.put(_WRITE_TEST, b"")
            self.delete(_WRITE_TEST)
        except StorageUnavailable as error:
            raise BadLocation(self._url, f"cannot be written: {error.why}") from error

    def check_location(self) -> str | None:
        """See `Files.check_location`. A missing bucket answers as a missing file does: only a listing tells them."""
        next(self._pages("", most=1), None)
        return None

    def list_after(
        self, prefix: str, after: str | None, seen: Seen | None = None, unusable: list[Unusable] | None = None
    ) -> Iterator[FileStatus]:
        """See `Files.list_after`."""
        for page in self._pages(prefix, after or ""):
            for one in page.entries:
                if why := refusal_of(one.name):
                    # What stands for a folder in the store's own pages is no file, and nothing is missed with it.
                    if unusable is not None and (one.bytes or not one.name.endswith("/")) and one.name:
                        unusable.append(Unusable(shown_name(one.name), why))
                elif seen is None or not seen.meets(one.name, one.etag, second_of(one.modified_at)):
                    yield _status(one)

    def _pages(self, prefix: str, after: str = "", delimiter: str = "", most: int = _PAGE) -> Iterator[ObjectPage]:
        """The objects whose name begins with `prefix`, behind `after`, by pages of at most `most`."""
        with self._translated(""):
            if self._requests is None:
                yield from self._pages_of_obstore(prefix, after, delimiter, most)
                return
            page = self._requests.list_page(prefix, after, "", delimiter, most)
            yield page
            while page.token:
                page = self._requests.list_page(prefix, "", page.token, delimiter, most)
                yield page

    def _pages_of_obstore(self, prefix: str, after: str, delimiter: str, most: int) -> Iterator[ObjectPage]:
        # A prefix of obstore is a folder, ours is text.
        folder = prefix.rpartition("/")[0] or None
        if delimiter:
            found = obstore.list_with_delimiter(self._store, folder)
            yield ObjectPage((), tuple(f"{one}{delimiter}" for one in found["common_prefixes"]))
            return
        for page in obstore.list(self._store, folder, offset=after or None, chunk_size=most):
            yield ObjectPage(tuple(_entry(one) for one in page if one["path"].startswith(prefix)))

    def stat(self, name: str) -> FileStatus | None:
        """See `Files.stat`."""
        check_file_name(name)
        with self._reading(name):
            try:
                return _status(_entry(obstore.head(self._store, name)))
            except FileNotFoundError:
                return None

    def _stat_or_error(self, name: str) -> FileStatus | FileUnreadable | None:
        try:
            return self.stat(name)
        except FileUnreadable as error:
            return error

    def stat_many(self, names: Sequence[str]) -> list[FileStatus | FileUnreadable | None]:
        """See `Files.stat_many`.

        A page of a listing is asked for as long as one answers for more names than are looked at in one time.
        """
        left = sorted(set(map(check_file_name, names)))
        found: dict[str, FileStatus | FileUnreadable | None] = {}
        while len(left) > _AT_ONCE:
            page = next(self._pages("", _before(left[0])), ObjectPage(()))
            listed = {one.name: _status(one) for one in page.entries}
            end = bisect_right(left, page.entries[-1].name) if page.entries else 0
            found |= {name: listed[name] for name in left[:end] if name in listed}
            left = left[end:]
            if end <= _AT_ONCE:
                break
        missing = [name for name in names if name not in found]
        found |= zip(missing, for_each(self, self._stat_or_error, missing), strict=True)
        return [found[name] for name in names]

    def read(self, name: str, *, offset: int = 0, length: int | None = None, etag: str | None = None) -> bytes:
        """See `Files.read`."""
        check_file_name(name)
        options: GetOptions = {} if etag is None else {"if_match": f'"{etag}"'}
        if length is not None:
            options["range"] = (offset, offset + length)
        elif offset:
            options["range"] = {"offset": offset}
        failure = None
        with self._reading(name):
            self._world.mark("storage.before_read")
            try:
                if length != 0:  # no store gives an empty part
                    found = obstore.get(self._store, name, options=options)
                    _entry(found.meta)
                    return bytes(found.bytes())
            except PreconditionError:
                pass
            except (GenericError, ValueError) as error:
                failure = error  # a part that begins behind the end is an error of the store, and empty here
        status = self.stat(name)
        if status is None:
            raise FileNotFoundError(name)
        if etag not in {None, status.etag}:
            raise FileChanged(self._url, name, str(etag), status.etag)
        if offset < status.bytes and length != 0:
            why = "it changes all the time" if failure is None else reason_of(failure)
            raise StorageUnavailable(self._url, name, why)
        return b""

    def put(self, name: str, content: bytes, *, if_absent: bool = False) -> None:
        """See `Files.put`."""
        check_file_name(name)
        with self._translated(name):
            self._world.mark("storage.before_put")
            try:
                obstore.put(self._store, name, content, mode="create" if if_absent else "overwrite")
            except AlreadyExistsError:
                raise FileExists(self._url, name) from None
            except FileNotFoundError:
                raise self._away() from None

    def put_new(self, name: str, chunks: Iterable[bytes]) -> str:
        """See `Files.put_new`. A content of more than 64 MiB is sent in parts, after a look whether there is a file."""
        check_file_name(name)
        crc = Crc()
        rest = iter(map(crc.add, chunks))
        first, size = [], 0
        for chunk in rest:
            first.append(chunk)
            size += len(chunk)
            if size > _MOST_IN_MEMORY:
                break
        else:
            self.put(name, b"".join(first), if_absent=True)
            return str(crc)
        if self.stat(name) is not None:
            raise FileExists(self._url, name)
        with self._translated(name):
            self._world.mark("storage.before_put")
            obstore.put(self._store, name, chain(first, rest), use_multipart=True)
        return str(crc)

    def copy_from(self, other: Files, name: str, etag: str, target: str) -> None:
        """See `Files.copy_from`."""
        check_file_name(target)
        refused: Refused | None = Refused.UNABLE
        source = other._requests if isinstance(other, ObjectFiles) else None  # noqa: SLF001  # of the same class
        if self._requests is not None and source is not None:
            with self._translated(target):
                self._world.mark("storage.before_put")
                refused = self._requests.copy_if(source, check_file_name(name), etag, target)
        if refused is Refused.UNABLE:
            self.put_new(target, read_exactly(other, name, etag))
        elif refused is Refused.CONDITION:
            if self.stat(target) is not None:
                raise FileExists(self._url, target)
            status = other.stat(name)
            raise FileChanged(other.url, name, etag, "none" if status is None else status.etag)

    def delete(self, name: str, *, etag: str | None = None) -> None:
        """See `Files.delete`."""
        check_file_name(name)
        with self._translated(name):
            self._world.mark("storage.before_delete")
            if etag is None:
                obstore.delete(self._store, name)
            else:
                self._delete_exactly(name, etag)

    def _delete_exactly(self, name: str, etag: str) -> None:
        refused = Refused.UNABLE if self._requests is None else self._requests.delete_if(name, etag)
        if refused is None:
            return
        status = self.stat(name)
        if status is None and refused is Refused.UNABLE:
            return
        if refused is Refused.CONDITION or (status is not None and status.etag != etag):
            raise FileChanged(self._url, name, etag, "none" if status is None else status.etag)
        obstore.delete(self._store, name)

    def delete_contents(self, contents: Sequence[tuple[str, str]]) -> list[bool]:
        """See `Files.delete_contents`."""
        known = [(check_file_name(name), etag) for name, etag in contents]
        refused: list[Refused | None] | Refused = Refused.UNABLE
        if self._requests is not None and len(known) > 1:
            with self._translated(""):
                self._world.mark("storage.before_delete")
                refused = self._requests.delete_those(known)
        if isinstance(refused, Refused):
            return for_each(self, partial(try_to_delete, self), known)
        return [one is None for one in refused]

    def delete_many(self, names: Sequence[str]) -> None:
        """See `Files.delete_many`."""
        known = list(map(check_file_name, names))
        with self._translated(""):
            self._world.mark("storage.before_delete")
            if known:
                obstore.delete(self._store, known)

    def settle(self, name: str) -> FileStatus | None:
        """See `Files.settle`. A deletion is one step here: none has ever begun and not ended."""
        return self.stat(name)

    def delete_below(self, folder: str, most: int = MOST_DELETED) -> DeletedBelow:
        """See `Files.delete_below`."""
        names = (one.name for page in self._pages(f"{check_file_name(folder)}/") for one in page.entries)
        below = list(islice(names, max(most, 0) + 1))
        deleted = below[:most]
        self.delete_many([name for name in deleted if refusal_of(name) is None])
        with self._translated(folder):
            for name in deleted:
                if refusal_of(name) is not None and self._requests is not None:
                    self._requests.delete(name)
        return DeletedBelow(len(deleted), is_whole=len(below) <= most)

    def delete_empty_folder(self, name: str) -> None:
        """See `Files.delete_empty_folder`."""

    def list_folders(self, above: str = "") -> list[str]:
        """See `Files.list_folders`."""
        prefix = f"{check_file_name(above)}/" if above else ""
        found = [one.removeprefix(prefix).rstrip("/") for page in self._pages(prefix, "", "/") for one in page.folders]
        return sorted(name for name in found if refusal_of(name) is None)

    def url_of(self, name: str) -> str:
        """See `Files.url_of`."""
        return f"{self._url}/{quote(check_file_name(name))}"

    def _away(self) -> StorageUnavailable:
        return StorageUnavailable(self._url, "", "there is no such bucket")

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        """Say errors of the store as errors of `Files`."""
        try:
            yield
        except InvalidPathError as error:
            raise FileUnreadable(self._url, name, reason_of(error)) from error
        except FileNotFoundError:
            if name:
                raise
            raise self._away() from None
        except (OSError, BaseError) as error:
            raise StorageUnavailable(self._url, name, reason_of(error)) from error

    @contextmanager
    def _reading(self, name: str) -> Iterator[None]:
        """Say errors as `_translated` does, and tell an object that the store refuses from a store that is away.

        Archived storage classes, keys of encryption and access lists refuse one object. Wrong credentials refuse a
        listing too, so one is asked for: its error is that of the location.
        """
        with self._translated(name):
            try:
                yield
            except PermissionDeniedError as error:
                self.check_location()
                raise FileUnreadable(self._url, name, reason_of(error)) from error


def _entry(meta: obstore.ObjectMeta) -> Entry:
    """Return an object as the store describes it. An OSError without an ETag: a page of HTML is no object."""
    if not meta["e_tag"]:
        raise OSError(f"the answer has no ETag and is {NO_S3}")
    return Entry(meta["path"], meta["size"], meta["last_modified"], meta["e_tag"].strip('"'))


def _status(entry: Entry) -> FileStatus:
    # Some stores list milliseconds and head seconds: each file would look rewritten.
    return FileStatus(entry.name, entry.bytes, entry.modified_at.replace(microsecond=0), entry.etag)


def _before(name: str) -> str:
    """Return a text that sorts before a name, with few names between the two."""
    return name[:-1]
