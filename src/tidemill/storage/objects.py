"""Objects of a store as files, by obstore: a bucket of S3, or of a store that speaks like S3.

What a folder needs several steps for, a store decides by itself: a put where there is no file, and a deletion of one
content. Nothing is a folder there, and a file may have a name below that of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, InvalidPathError

from tidemill.storage.file_names import check_file_name
from tidemill.storage.files import (
    MOST_DELETED,
    BadLocation,
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
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

    from tidemill.world import World

_WRITE_TEST: Final = ".tidemill-write-test"
_DELETE_TEST: Final = ".tidemill-delete-test"
_MOST_IN_MEMORY: Final = 64 << 20
"""Bytes of one put. A longer content is sent in parts, which no store makes conditional on the name being free."""


class Deletion(Enum):
    """Ends of a deletion of one content by the store."""

    DONE = "done"
    """There is no such file any more, or there was none."""
    CHANGED = "changed"
    NOT_COMPARED = "not compared"
    """The store would delete any content; it was not asked to."""


DeleteIf: TypeAlias = Callable[[str, str, str], Deletion]
"""Delete a file of that name if it has that etag, in one step. The third text is the name of a file on which the store
may be tried."""


class ObjectFiles:
    """The objects of a store below a location.

    `delete_if` deletes one content in one step. Where the store cannot do that, a content that is written between a
    look and the deletion is deleted too.
    """

    def __init__(self, url: str, store: ObjectStore, world: World, delete_if: DeleteIf | None = None) -> None:
        self._url = url
        self._store = store
        self._world = world
        self._delete_if = delete_if

    @property
    def url(self) -> str:
        """See `Files.url`."""
        return self._url

    @property
    def lists_from_name(self) -> bool:
        """See `Files.lists_from_name`."""
        return True

    def prepare(self) -> None:
        """See `Files.prepare`."""
        try:
            self.put(_WRITE_TEST, b"")
            self.delete(_WRITE_TEST)
        except StorageUnavailable as error:
            raise BadLocation(self._url, f"cannot be written: {error.why}") from error

    def check_location(self) -> str | None:
        """See `Files.check_location`. A missing bucket answers as a missing file does: only a listing tells them."""
        with self._translated(""):
            next(iter(obstore.list(self._store, chunk_size=1)), None)
        return None

    def list_after(
        self, prefix: str, after: str | None, seen: Seen | None = None, unusable: list[Unusable] | None = None
    ) -> Iterator[FileStatus]:
        """See `Files.list_after`."""
        del unusable  # one name that obstore refuses fails its whole listing, which names it
        for status in self._list(prefix, after):
            if status.name.startswith(prefix) and (seen is None or not seen.meets(status.name, status.etag)):
                yield status

    def _list(self, prefix: str, after: str | None = None) -> Iterator[FileStatus]:
        # A prefix of obstore is a folder, ours is text.
        folder = prefix.rpartition("/")[0] or None
        with self._translated(""):
            for page in obstore.list(self._store, folder, offset=after or None, chunk_size=1000):
                yield from map(_status, page)

    def stat(self, name: str) -> FileStatus | None:
        """See `Files.stat`."""
        check_file_name(name)
        with self._translated(name):
            try:
                return _status(obstore.head(self._store, name))
            except FileNotFoundError:
                return None

    def read(self, name: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """See `Files.read`."""
        check_file_name(name)
        with self._translated(name):
            self._world.mark("storage.before_read")
            if offset == 0 and length is None:
                return bytes(obstore.get(self._store, name).bytes())
        # A part that begins behind the end is an error of the store, and empty here.
        status = self.stat(name)
        if status is None:
            raise FileNotFoundError(name)
        end = status.bytes if length is None else min(offset + length, status.bytes)
        if offset >= end:
            return b""
        with self._translated(name):
            return bytes(obstore.get_range(self._store, name, start=offset, end=end))

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

    def copy_from(self, other: Files, name: str, etag: str, target: str) -> str:
        """See `Files.copy_from`."""
        return self.put_new(target, read_exactly(other, name, etag))

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
        test = f"{_DELETE_TEST}-{self._world.new_id('try')}"  # other processes try the store too
        deletion = Deletion.NOT_COMPARED if self._delete_if is None else self._delete_if(name, etag, test)
        if deletion is Deletion.DONE:
            return
        status = self.stat(name)
        if deletion is Deletion.CHANGED or (status is not None and status.etag != etag):
            raise FileChanged(self._url, name, etag, "none" if status is None else status.etag)
        if status is not None:
            obstore.delete(self._store, name)

    def settle(self, name: str) -> FileStatus | None:
        """See `Files.settle`. A deletion is one step here: none has ever begun and not ended."""
        return self.stat(name)

    def delete_below(self, folder: str, most: int = MOST_DELETED) -> DeletedBelow:
        """See `Files.delete_below`."""
        below = [one.name for one in islice(self._list(f"{check_file_name(folder)}/"), max(most, 0) + 1)]
        deleted = below[:most]
        with self._translated(folder):
            self._world.mark("storage.before_delete")
            if deleted:
                obstore.delete(self._store, deleted)
        return DeletedBelow(len(deleted), is_whole=len(below) <= most)

    def delete_empty_folder(self, name: str) -> None:
        """See `Files.delete_empty_folder`."""

    def list_folders(self, above: str = "") -> list[str]:
        """See `Files.list_folders`."""
        with self._translated(above):
            found = obstore.list_with_delimiter(self._store, check_file_name(above) if above else None)
        return sorted(prefix.rpartition("/")[2] for prefix in found["common_prefixes"])

    def url_of(self, name: str) -> str:
        """See `Files.url_of`."""
        return f"{self._url}/{quote(check_file_name(name))}"

    def _away(self) -> StorageUnavailable:
        return StorageUnavailable(self._url, "", "the bucket does not exist")

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


def _status(meta: obstore.ObjectMeta) -> FileStatus:
    # Some stores list milliseconds and head seconds: each file would look rewritten.
    modified_at = meta["last_modified"].replace(microsecond=0)
    return FileStatus(meta["path"], meta["size"], modified_at, (meta["e_tag"] or "").strip('"'))
