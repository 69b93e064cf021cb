"""A bucket of the simulation: the promises of a store for objects, kept on a folder, with the faults of such a store.

A process comes to a point before each request and before its answer. There `Chance` has the request fail, be done and
its answer lost, be sent again after it was done, come late, or find the location away: for all nodes or for one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from unittest.mock import patch
from urllib.parse import quote

from tidemill.storage import locations
from tidemill.storage.file_names import check_file_name, refusal_of, shown_name
from tidemill.storage.files import (
    MOST_DELETED,
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
    second_of,
    try_to_delete,
)
from tidemill.testing.machine import PlayedSpawner, PointKind

if TYPE_CHECKING:
    from tidemill.world import World

URL: Final = "s3://lake"
_PAGE: Final = 2
"""Names in a page of a listing: what comes and goes between two pages is part of the play."""

_R = TypeVar("_R")


class StoreFails(Exception):
    """The store does not do the request, or its answer does not come."""


class RequestRepeated(Exception):
    """The request was done, and is sent again: the client has not seen the answer."""


class PlayedBucket:
    """The objects below a location. A file has the etag of its content, and a time in whole seconds."""

    def __init__(self, location: str, folder: Path, world: World) -> None:
        self.url = location.rstrip("/")
        self.capabilities = Capabilities(lists_from_name=True, etag_is_of_content=True)
        self._folder = folder
        self._world = world

    def prepare(self, *, again: bool = False) -> None:
        """See `Files.prepare`."""
        del again
        self._send("test", "", lambda: None)

    def check_location(self) -> str | None:
        """See `Files.check_location`."""
        self._send("look at", "", lambda: None)
        return None

    def list_after(
        self, prefix: str, after: str | None, seen: Seen | None = None, unusable: list[Unusable] | None = None
    ) -> Iterator[FileStatus]:
        """See `Files.list_after`."""
        while page := self._list_page(prefix, after or ""):
            after = page[-1]
            for name in page:
                file = None if refusal_of(name) else self._status(name)
                if (why := refusal_of(name)) and unusable is not None:
                    unusable.append(Unusable(shown_name(name), why))
                if file is not None and not (seen and seen.meets(name, file.etag, second_of(file.modified_at))):
                    yield file

    def _list_page(self, prefix: str, after: str) -> list[str]:
        return self._send("list", "", lambda: self._names(prefix, after)[:_PAGE])

    def _names(self, prefix: str, after: str = "") -> list[str]:
        found = (str(path.relative_to(self._folder)) for path in self._folder.rglob("*") if path.is_file())
        return sorted(name for name in found if name.startswith(prefix) and name > after)

    def stat(self, name: str) -> FileStatus | None:
        """See `Files.stat`."""
        return self._send("head", name, lambda: self._status(name))

    def _status(self, name: str) -> FileStatus | None:
        path = self._folder / check_file_name(name) if refusal_of(name) is None else self._folder / name
        if not path.is_file():
            return None
        content, at = path.read_bytes(), datetime.fromtimestamp(int(path.stat().st_mtime), UTC)
        return FileStatus(name, len(content), at, etag_of(content))

    def stat_many(self, names: Sequence[str]) -> list[FileStatus | FileUnreadable | None]:
        """See `Files.stat_many`."""
        return [self.stat(name) for name in names]

    def read(self, name: str, *, offset: int = 0, length: int | None = None, etag: str | None = None) -> bytes:
        """See `Files.read`."""

        def act() -> bytes:
            status = self._status(name)
            if status is None:
                raise FileNotFoundError(name)
            if etag not in {None, status.etag}:
                raise FileChanged(self.url, name, str(etag), status.etag)
            content = (self._folder / name).read_bytes()[offset:]
            return content if length is None else content[:length]

        return self._send("get", name, act)

    def put(self, name: str, content: bytes, *, if_absent: bool = False) -> None:
        """See `Files.put`."""

        def act() -> None:
            path = self._folder / check_file_name(name)
            if if_absent and path.is_file():
                raise FileExists(self.url, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

        self._send("put", name, act)

    def put_new(self, name: str, chunks: Iterable[bytes]) -> str:
        """See `Files.put_new`."""
        crc = Crc()
        self.put(name, b"".join(map(crc.add, chunks)), if_absent=True)
        return str(crc)

    def copy_from(self, other: Files, name: str, etag: str, target: str) -> None:
        """See `Files.copy_from`."""
        if not isinstance(other, PlayedBucket):
            self.put_new(target, read_exactly(other, name, etag))
            return

        def act() -> None:
            source, path = other._status(name), self._folder / check_file_name(target)
            if path.is_file():
                raise FileExists(self.url, target)
            if source is None or source.etag != etag:
                raise FileChanged(other.url, name, etag, "none" if source is None else source.etag)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes((other._folder / name).read_bytes())

        self._send("copy", target, act)

    def delete(self, name: str, *, etag: str | None = None) -> None:
        """See `Files.delete`."""

        def act() -> None:
            status = self._status(name)
            if status is not None and etag not in {None, status.etag}:
                raise FileChanged(self.url, name, str(etag), status.etag)
            self._remove(name)

        self._send("delete", name, act)

    def _remove(self, name: str) -> None:
        path = self._folder / name
        path.unlink(missing_ok=True)
        for above in path.parents:
            if above == self._folder or not above.exists() or any(above.iterdir()):
                break
            above.rmdir()  # a bucket has no folders

    def delete_contents(self, contents: Sequence[tuple[str, str]]) -> list[bool]:
        """See `Files.delete_contents`."""
        return [try_to_delete(self, one) for one in contents]

    def delete_many(self, names: Sequence[str]) -> None:
        """See `Files.delete_many`."""
        self._send("delete many", "", lambda: [self._remove(check_file_name(name)) for name in names])

    def settle(self, name: str) -> FileStatus | None:
        """See `Files.settle`."""
        return self.stat(name)

    def delete_below(self, folder: str, most: int = MOST_DELETED) -> DeletedBelow:
        """See `Files.delete_below`."""
        names = self._send("list", "", lambda: self._names(f"{check_file_name(folder)}/"))
        self._send("delete many", folder, lambda: [self._remove(name) for name in names[:most]])
        return DeletedBelow(len(names[:most]), is_whole=len(names) <= most)

    def delete_empty_folder(self, name: str) -> None:
        """See `Files.delete_empty_folder`."""

    def list_folders(self, above: str = "") -> list[str]:
        """See `Files.list_folders`."""
        prefix = f"{check_file_name(above)}/" if above else ""
        names = self._send("list", "", lambda: self._names(prefix))
        return sorted({one.removeprefix(prefix).split("/")[0] for one in names if "/" in one.removeprefix(prefix)})

    def url_of(self, name: str) -> str:
        """See `Files.url_of`."""
        return f"{self.url}/{quote(check_file_name(name))}"

    def _send(self, what: str, name: str, act: Callable[[], _R]) -> _R:
        """Send a request; the simulation itself sends its own without a fault."""
        spawner = self._world.spawner
        if not isinstance(spawner, PlayedSpawner):
            return act()
        request = f"{what} {self.url.removeprefix(URL)}/{name}"
        try:
            spawner.reach(PointKind.REQUEST, request)
            result = act()
            try:
                spawner.reach(PointKind.ANSWER, request)
            except RequestRepeated:
                result = act()
        except StoreFails as error:
            raise StorageUnavailable(self.url, name, str(error)) from error
        return result


def etag_of(content: bytes) -> str:
    """Return the etag of a content: that of S3, whatever the time."""
    return hashlib.md5(content).hexdigest()


def location_in(stored: bool, folder: Path, name: str) -> str:  # noqa: FBT001  # which of two places
    """Return the location of that name: in the bucket or in the folder."""
    return f"{URL}/{name}" if stored else str(folder / name)


def folder_of(location: str, folder: Path) -> Path:
    """Return the folder on this machine that has the files of a location of the simulation."""
    if location.startswith(URL):
        return folder / location.removeprefix(f"{URL}/")
    return Path(location.removeprefix("file://"))


@contextmanager
def bucket_below(folder: Path) -> Iterator[None]:
    """Have locations below `URL` be those of the simulation: its objects are files in `folder`."""

    def open_played(location: str, world: World) -> PlayedBucket:
        return PlayedBucket(location, folder_of(location, folder), world)

    with patch.object(locations, "open_bucket", open_played):
        yield
