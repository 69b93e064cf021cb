"""What a raw file has to look like, checked without Spark, and which file an error of Spark is about.

Spark alone passes over much of what is wrong with a file, even when told to fail fast (tried, 4.3): a last column cut
short, a cut between two lines, bytes that are no UTF-8 (CSV and text). What can be seen here is seen before a program
starts, for each file by itself, so that one bad file never fails the others; the rest is found by reading
(`lake.spark.read_files`), and `blame` says which file it was.
"""

from __future__ import annotations

import codecs
import csv
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import quote

from tidemill.errors import UserError
from tidemill.names import advise
from tidemill.storage.files import Files, FileStatus

CHUNK_BYTES: Final = 1 << 20
_HEADER_BYTES: Final = 1 << 16
_READING: Final = "Encountered error while reading file "
_CAUSE: Final = re.compile(r"^(?:Caused by: )?[\w.$]*(?:Exception|Error): (?P<why>.+)$", re.MULTILINE)

_F = TypeVar("_F")


class FileFormat(StrEnum):
    """Formats of files, raw ones of inboxes and those of file sets."""

    CSV = "csv"
    JSON = "json"
    """One JSON object a line."""
    TEXT = "text"
    """One string column, `value`."""
    PARQUET = "parquet"
    ORC = "orc"


_COMMON: Final = frozenset({"dateFormat", "locale", "timestampFormat", "timestampNTZFormat", "timeZone"})
# What users may set; all else either has no meaning here or would let wrong rows pass.
_OPTIONS: Final[Mapping[FileFormat, frozenset[str]]] = {
    FileFormat.CSV: _COMMON
    | {"comment", "emptyValue", "escape", "header", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace"}
    | {"multiLine", "nanValue", "negativeInf", "nullValue", "positiveInf", "quote", "sep"},
    FileFormat.JSON: _COMMON | {"allowNonNumericNumbers", "multiLine", "primitivesAsString"},
    FileFormat.TEXT: frozenset(),
    FileFormat.PARQUET: frozenset(),
    FileFormat.ORC: frozenset(),
}
# The first bytes, and where in the last ones the same stand: ORC ends with the length of what they end.
_MAGIC: Final = {
    FileFormat.PARQUET: ("Parquet", b"PAR1", slice(-4, None)),
    FileFormat.ORC: ("ORC", b"ORC", slice(-4, -1)),
}


class BadFormat(UserError):
    """A description of raw files that cannot be read strictly."""

    code = "bad_format"

    def __init__(self, file_format: str, why: str) -> None:
        self.file_format = file_format
        self.why = why
        super().__init__(f"files of format {file_format}: {why}")


@dataclass(frozen=True, slots=True)
class RawFormat:
    """How the files of an inbox are read: format, columns, and options of Spark's reader for it.

    `schema` is a DDL text (`id INT, name STRING`). CSV needs one; JSON and Parquet files have their columns inferred
    without it, all files of a run together. `line_end`: text without an end of line at its end counts as cut.
    """

    format: FileFormat
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    line_end: bool = True

    def __post_init__(self) -> None:
        known = _OPTIONS[self.format]
        for name in self.options:
            if name not in known:
                raise BadFormat(self.format, f"option {name!r} is not known here{advise(name, known, before='; ')}")
        if self.format is FileFormat.CSV and self.schema is None:
            raise BadFormat(
                self.format, "it needs a schema (`id INT, name STRING`), to tell a good line from a cut one"
            )
        if self.format is FileFormat.TEXT and self.schema is not None:
            raise BadFormat(self.format, "text has one column, value STRING, and takes no schema")
        if self.schema is not None and not all(column_names(self.schema)):
            raise BadFormat(self.format, f"schema {self.schema!r} is not `name TYPE, name TYPE`")

    @property
    def has_header(self) -> bool:
        """Whether each file must begin with the names of the columns."""
        return self.format is FileFormat.CSV and self.options.get("header", "true").lower() == "true"

    @property
    def is_text(self) -> bool:
        """Whether files are lines of UTF-8."""
        return self.format not in _MAGIC


def column_names(schema: str) -> list[str]:
    """The names in a DDL schema, in order; an empty one where there is none."""
    parts, depth, quoted = [""], 0, False
    for sign in schema:
        quoted ^= sign == "`"
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    names = [re.match(r"\s*(?:`((?:[^`]|``)+)`|([\w$]+))[\s:]+\S", part) for part in parts]
    return [(name[1] or name[2]).replace("``", "`") if name else "" for name in names]


def check_file(files: Files, file: FileStatus, raw: RawFormat) -> str | None:
    """What is wrong with a file, as far as it shows without Spark; None when nothing is. An empty file is good.

    Text is read once, in parts (about 1 GB/s): UTF-8, the header, the last end of line; `.gz` is unpacked. Raises
    `FileNotFoundError` when it has gone, and `StorageUnavailable`.
    """
    if file.bytes == 0:
        return None
    chunks = _chunks(files, file)
    if not raw.is_text:
        name, magic, place = _MAGIC[raw.format]
        head, tail = files.read(file.name, length=len(magic)), files.read(file.name, offset=max(file.bytes - 4, 0))
        whole = head == magic and tail[place] == magic and file.bytes >= 12
        return None if whole else f"it is no whole {name} file: {magic.decode()} is missing at its beginning or end"
    if file.name.endswith(".gz"):
        chunks = _unpacked(chunks)
    return _check_text(chunks, raw)


def _check_text(chunks: Iterable[bytes], raw: RawFormat) -> str | None:
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    head, last = "", b""
    try:
        for chunk in chunks:
            text = decode(chunk)
            if len(head) < _HEADER_BYTES:
                head += text[:_HEADER_BYTES]
            last = chunk[-1:] or last
        decode(b"", final=True)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except (zlib.error, EOFError) as error:
        return f"it cannot be unpacked: {error}"
    if not last:
        return None
    if raw.line_end and last != b"\n":
        return "its last line has no end: it is cut, or still being written"
    return _check_header(head, raw) if raw.has_header else None


def _check_header(head: str, raw: RawFormat) -> str | None:
    expected = column_names(raw.schema or "")
    sep, mark = raw.options.get("sep", ","), raw.options.get("quote", '"')
    if len(sep) != 1 or len(mark) != 1:
        return None  # Spark's own comparison has to do
    lines = iter(head.splitlines(keepends=True))
    comment = raw.options.get("comment")
    content = (line for line in lines if line.strip() and not (comment and line.startswith(comment)))
    found = next(csv.reader(content, delimiter=sep, quotechar=mark), [])
    if raw.options.get("ignoreLeadingWhiteSpace", "false") == "true":
        found = [name.lstrip() for name in found]
    if raw.options.get("ignoreTrailingWhiteSpace", "false") == "true":
        found = [name.rstrip() for name in found]
    if found == expected:
        return None
    if sorted(found) == sorted(expected):
        return f"its columns are in another order: {sep.join(found)[:200]}, expected {sep.join(expected)[:200]}"
    return f"its first line is not the header {sep.join(expected)[:200]}, but {sep.join(found)[:200]}"


def _chunks(files: Files, file: FileStatus) -> Iterator[bytes]:
    for offset in range(0, file.bytes, CHUNK_BYTES):
        yield files.read(file.name, offset=offset, length=CHUNK_BYTES)


def _unpacked(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """A .gz may be several one after another; a last one that does not end is cut."""
    unpack = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        rest = chunk
        while rest:
            if unpack.eof:
                unpack = zlib.decompressobj(wbits=31)
            yield unpack.decompress(rest)
            rest = unpack.unused_data
    if not unpack.eof:
        raise EOFError("it ends in the middle")


def blame(error: str, files: Iterable[_F], path: Callable[[_F], str]) -> _F | None:
    """Which of `files` an error of Spark names as the one it could not read; None when it names none of them.

    `error` is the whole text of the exception with its causes; `path(file)` is the absolute path. An error in the
    program's own code names no file.
    """
    start = error.find(_READING)
    if start < 0:
        return None
    place = re.sub(r"^file:/+", "/", error[start + len(_READING) :])
    # Spark escapes what a URL may not hold (a blank) and leaves the rest (é): compare with all of it escaped.
    named = quote(place[:8192], safe="/%")
    best: tuple[int, _F] | None = None
    for file in files:
        escaped = quote(path(file), safe="/")
        # Then comes the end of the sentence; of `a` and `a. b` the longer one is meant.
        if named.startswith(f"{escaped}.%20") and (best is None or len(escaped) > best[0]):
            best = len(escaped), file
    return best[1] if best else None


def reason(error: str) -> str:
    """The innermost cause in an error of Spark, one line of at most 500 characters: what a person wants to read."""
    causes = _CAUSE.findall(error)
    return (causes[-1] if causes else error.strip().split("\n", 1)[0])[:500]
