"""A file of any store for libraries that seek in files."""

from __future__ import annotations

import errno
import io
import os
from typing import Final

from tidemill.storage.files import Files, FileStatus, find_file

_END_BYTES: Final = 1 << 16
"""Bytes at the end of a file that are read together; most footers are shorter."""


def open_seekable(files: Files, name: str) -> SeekableFile:
    """Open a file for a library that seeks in it, as pyarrow does for a footer; `FileNotFoundError`."""
    status = find_file(files, name)
    if status is None:
        raise FileNotFoundError(f"{files.url}: {name}")
    return SeekableFile(files, status)


class SeekableFile(io.RawIOBase):
    """A file of a store, as an object that can be read and sought in.

    A reader of a footer costs the footer, in a folder and in an object store alike. The end of the file is read once,
    with what stands before it, since libraries read a footer in several steps. Errors are those of `Files`;
    `FileChanged` when the file is another one than it was.
    """

    def __init__(self, files: Files, status: FileStatus) -> None:
        super().__init__()
        self._files = files
        self._status = status
        self._position = 0
        self._end: bytes | None = None

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
        part = self._read_part(length) if length else b""
        self._position += len(part)
        return part

    def _read_part(self, length: int) -> bytes:
        name, etag = self._status.name, self._status.etag
        begin = max(self._status.bytes - _END_BYTES, 0)
        if self._position < begin:
            return self._files.read(name, offset=self._position, length=length, etag=etag)
        if self._end is None:
            self._end = self._files.read(name, offset=begin, etag=etag)
        start = self._position - begin
        return self._end[start : start + length]

    def readall(self) -> bytes:
        """All bytes that are left."""
        return self.read()
