"""Files of an object store in memory: a second implementation of `storage.files.Files`, which proves the seam.

It has what object stores have and folders have not: a file may lie below another one, nothing is a folder, a deletion
is one step. What it does not have either is a deletion by etag that the store itself decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from threading import Lock
from urllib.parse import quote

import obstore
from obstore.exceptions import AlreadyExistsError
from obstore.store import MemoryStore

from tidemill.storage.file_names import check_file_name
from tidemill.storage.files import (
    MOST_DELETED,
    Crc,
    DeletedBelow,
    FileChanged,
    FileExists,
    Files,
    FileStatus,
    Seen,
    Unusable,
    read_exactly,
)


class MemoryFiles:
    """All files of one store in memory."""

    url = "memory:///a%20location"
    lists_from_name = True

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._lock = Lock()

    def prepare(self) -> None:
        """See `Files.prepare`."""

    def check_location(self) -> str | None:
        """See `Files.check_location`."""
        return None

    def list_after(
        self, prefix: str, after: str | None, seen: Seen | None = None, unusable: list[Unusable] | None = None
    ) -> Iterator[FileStatus]:
        """See `Files.list_after`."""
        del unusable  # a put has refused what would be
        # A prefix of obstore is a folder, ours is text.
        found = [_status(meta) for page in obstore.list(self._store, prefix.rpartition("/")[0]) for meta in page]
        for status in sorted(found, key=lambda status: status.name):
            wanted = status.name.startswith(prefix) and status.name > (after or "")
            if wanted and (seen is None or not seen.meets(status.name, status.etag)):
                yield status

    def stat(self, name: str) -> FileStatus | None:
        """See `Files.stat`."""
        try:
            return _status(obstore.head(self._store, check_file_name(name)))
        except FileNotFoundError:
            return None

    def read(self, name: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """See `Files.read`."""
        status = self.stat(name)
        if status is None:
            raise FileNotFoundError(name)
        end = status.bytes if length is None else min(offset + length, status.bytes)
        return bytes(obstore.get_range(self._store, name, start=offset, end=end)) if offset < end else b""

    def put(self, name: str, content: bytes, *, if_absent: bool = False) -> None:
        """See `Files.put`."""
        try:
            obstore.put(self._store, check_file_name(name), content, mode="create" if if_absent else "overwrite")
        except AlreadyExistsError:
            raise FileExists(self.url, name) from None

    def put_new(self, name: str, chunks: Iterable[bytes]) -> str:
        """See `Files.put_new`."""
        crc = Crc()
        self.put(name, b"".join(map(crc.add, chunks)), if_absent=True)
        return str(crc)

    def copy_from(self, other: Files, name: str, etag: str, target: str) -> str:
        """See `Files.copy_from`."""
        return self.put_new(target, read_exactly(other, name, etag))

    def delete(self, name: str, *, etag: str | None = None) -> None:
        """See `Files.delete`."""
        with self._lock:
            status = self.stat(name)
            if status is not None and etag is not None and status.etag != etag:
                raise FileChanged(self.url, name, etag, status.etag)
            if status is not None:
                obstore.delete(self._store, name)

    def settle(self, name: str) -> FileStatus | None:
        """See `Files.settle`."""
        return self.stat(name)

    def delete_below(self, folder: str, most: int = MOST_DELETED) -> DeletedBelow:
        """See `Files.delete_below`."""
        below = list(self.list_after(f"{check_file_name(folder)}/", None))
        for status in below[:most]:
            self.delete(status.name)
        return DeletedBelow(len(below[:most]), is_whole=len(below) <= most)

    def delete_empty_folder(self, name: str) -> None:
        """See `Files.delete_empty_folder`."""

    def list_folders(self, above: str = "") -> list[str]:
        """See `Files.list_folders`."""
        found = obstore.list_with_delimiter(self._store, check_file_name(above) if above else None)
        return sorted(prefix.rpartition("/")[2] for prefix in found["common_prefixes"])

    def url_of(self, name: str) -> str:
        """See `Files.url_of`."""
        return f"{self.url}/{quote(check_file_name(name))}"


def _status(meta: obstore.ObjectMeta) -> FileStatus:
    return FileStatus(meta["path"], meta["size"], meta["last_modified"], meta["e_tag"] or "")
