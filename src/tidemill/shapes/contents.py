"""Contents of raw files, checked without Spark: each file is good or bad by itself.

Spark ignores many faults of a file, even with the option to fail fast (tried, 4.3): a last column cut short,
a cut between two lines, bytes that are no UTF-8, a quote that is never closed, columns of Parquet and ORC under other
names. The checks here run before a program starts, so that a bad file never fails the good ones. Rows that do not fit
their columns are found by reading (`frames.raw_rows`).
"""

from __future__ import annotations

import codecs
import json
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from tidemill.shapes.column_types import Types, find_differences, name_columns, types_in, types_of
from tidemill.shapes.csv_scan import CsvScan, split_row
from tidemill.shapes.formats import CHUNK_BYTES, FileFormat, RawFormat, Unknown, column_names
from tidemill.storage.files import Files, FileStatus
from tidemill.storage.seekable import SeekableFile

_HEADER_BYTES: Final = 1 << 16
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
# The first bytes, and where in the last ones the same stand: ORC ends with the length of what they end.
_MAGIC: Final = {
    FileFormat.PARQUET: ("Parquet", b"PAR1", slice(-4, None)),
    FileFormat.ORC: ("ORC", b"ORC", slice(-4, -1)),
}


def check_file(files: Files, file: FileStatus, raw: RawFormat) -> str | None:
    """Find what is wrong with a file, as far as it shows without Spark; None for a good one. An empty file is good.

    Text is read once, in parts (about 1 GB/s, CSV with quotes a fifth of it); `.gz` is unpacked. Of Parquet and ORC
    the footer is read, and the columns are compared by name with a declared schema. Raises `FileNotFoundError` when
    the file is deleted, `FileChanged` when it has another etag than `file`, and `StorageUnavailable`.
    """
    if file.bytes == 0:
        return None
    if not raw.is_text:
        return _check_columnar(files, file, raw)
    return _check_text(_unpacked_chunks(files, file.name, file.bytes, file.etag), raw)


@dataclass(frozen=True, slots=True)
class BadText:
    """A row of a file: its first line, the text or the cells by which it was looked for, and its text."""

    line: int
    given: str
    text: str


class _Damaged(Exception):
    """A fault of a file; it never leaves this module."""


def _check_text(chunks: Iterable[bytes], raw: RawFormat) -> str | None:
    try:
        head, last = _read_text(chunks, CsvScan(raw) if raw.format is FileFormat.CSV and raw.quote else None)
    except UnicodeDecodeError:
        return "it is not UTF-8"
    except (zlib.error, EOFError) as error:
        return f"it cannot be unpacked: {error}"
    except _Damaged as damage:
        return str(damage)
    if last and raw.line_end and last != b"\n":
        return "its last line has no end: it is cut, or still being written"
    return _check_header(head, raw) if last and raw.has_header else None


def _read_text(chunks: Iterable[bytes], scan: CsvScan | None) -> tuple[str, bytes]:
    """Read all of a text; return its beginning and its last byte."""
    decode = codecs.getincrementaldecoder("utf-8-sig")().decode
    head, last = "", b""
    for chunk in chunks:
        if not last and chunk.startswith(_UTF_16):
            raise _Damaged("it is UTF-16: convert it to UTF-8")
        text = decode(chunk)
        if b"\0" in chunk:
            raise _Damaged("it holds NUL characters: it is damaged, or not UTF-8")
        if len(head) < _HEADER_BYTES:
            head += text[:_HEADER_BYTES]
        last = chunk[-1:] or last
        if scan and (why := scan.feed(chunk)):
            raise _Damaged(why)
    decode(b"", final=True)
    if scan and (why := scan.close()):
        raise _Damaged(why)
    return head, last


def read_header(files: Files, name: str, size: int, raw: RawFormat) -> list[str]:
    """Return the names in the header of a CSV file; none in a file without rows."""
    decode = codecs.getincrementaldecoder("utf-8-sig")(errors="replace").decode
    head = ""
    for chunk in _unpacked_chunks(files, name, size):
        head += decode(chunk)
        if len(head) >= _HEADER_BYTES:
            break
    return _parse_header(head, raw)


def loses_returns(files: Files, name: str, size: int, raw: RawFormat) -> bool:
    """Return whether Spark would read CR LF within quotes as LF. Cost: a file of CR LF lines is read once more."""
    if raw.format is not FileFormat.CSV or not raw.quote:
        return False
    scan = CsvScan(raw)
    for chunk in _unpacked_chunks(files, name, size):
        scan.feed(chunk)
        if scan.keeps_returns:
            return False
    scan.close()
    return scan.loses_returns


def find_rows(  # a file, how it is read, and the two ways to name a row of it
    files: Files,
    name: str,
    size: int,
    raw: RawFormat,
    texts: Collection[str],
    cells: Collection[str] = (),
    most: int | None = None,
) -> list[BadText]:
    """Return the rows of a CSV or JSON file that are among `texts`, or that have one of `cells`; the first `most`.

    Cells are values of some columns of a CSV row, as a JSON object.
    """
    wanted = {text.replace("\r\n", "\n"): text for text in texts}
    by_place = _cells_by_place(cells, read_header(files, name, size, raw) if raw.has_header else None, raw)
    found: list[BadText] = []
    for line, row in _rows(_unpacked_chunks(files, name, size), raw):
        text = row.decode(errors="replace").rstrip("\r\n")
        given = wanted.get(text.replace("\r\n", "\n"))
        if given is None and by_place:
            fields = dict(enumerate(split_row(text.replace("\r\n", "\n"), raw)))
            asked = (known.get(tuple(map(fields.get, places))) for places, known in by_place.items())
            given = next((one for one in asked if one is not None), None)
        if given is not None:
            found.append(BadText(line, given, text))
            if len(found) == most:
                break
    return found


def _cells_by_place(
    cells: Collection[str], header: list[str] | None, raw: RawFormat
) -> dict[tuple[int, ...], dict[tuple[str | None, ...], str]]:
    """Cells by the places of their columns and by their values."""
    place = {name: at for at, name in enumerate(header or column_names(raw.schema or ""))}
    found: dict[tuple[int, ...], dict[tuple[str | None, ...], str]] = defaultdict(dict)
    for cell in cells:
        values: dict[str, str] = json.loads(cell)
        found[tuple(place[name] for name in values)][tuple(values.values())] = cell
    return found


def _rows(chunks: Iterable[bytes], raw: RawFormat) -> Iterator[tuple[int, bytes]]:
    """The rows of a text, each with the number of its first line; without the header."""
    scan = CsvScan(raw) if raw.format is FileFormat.CSV and raw.quote else None
    comment = raw.options.get("comment", "").encode()
    before_header = raw.has_header
    begun, row = 0, b""
    for line, part in enumerate(_lines(chunks), 1):
        begun, row = (begun, row + part) if row else (line, part.removeprefix(codecs.BOM_UTF8) if line == 1 else part)
        if scan and scan.is_open(row):
            continue
        if before_header:
            # The text of the header may be there once more, as a bad row.
            before_header = not row.strip() or bool(comment and row.startswith(comment))
        else:
            yield begun, row
        row = b""
    if row:
        yield begun, row


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        # The last part may go on: without its end, or with half of CR LF.
        *parts, rest = (rest + chunk).splitlines(keepends=True) or [b""]
        yield from parts
    yield rest


def _parse_header(head: str, raw: RawFormat) -> list[str]:
    lines = iter(head.splitlines(keepends=True))
    comment = raw.options.get("comment")
    content = (line for line in lines if line.strip() and not (comment and line.startswith(comment)))
    scan = CsvScan(raw) if raw.quote else None
    row = ""
    for line in content:
        row += line
        if not scan or not scan.is_open(row.encode()):
            break
    return split_row(row.rstrip("\r\n"), raw)


def _check_header(head: str, raw: RawFormat) -> str | None:
    expected = column_names(raw.schema or "")
    found = _parse_header(head, raw)
    if found == expected:
        return None
    shown = f"{raw.separator.join(found)[:200]}, expected {raw.separator.join(expected)[:200]}"
    if not set(found) & set(expected):
        return f"its first line is not the header: {shown}"
    if not all(found) or len({name.lower() for name in found}) < len(found):
        fault = "names a column twice" if all(found) else "has a column without a name"
        return f"its header {fault}: {shown}"
    unknown = [name for name in found if name not in expected]
    missing = [name for name in expected if name not in found]
    if raw.unknown is not Unknown.FAIL:
        return name_columns(missing, [])
    return name_columns(missing, unknown) or f"its columns are in another order: {shown}"


def _check_columnar(files: Files, file: FileStatus, raw: RawFormat) -> str | None:
    name, magic, place = _MAGIC[raw.format]
    content = SeekableFile(files, file)
    content.seek(max(file.bytes - 4, 0))
    tail = content.read()
    content.seek(0)
    head = content.read(len(magic))
    if head != magic or tail[place] != magic or file.bytes < 12:
        return f"it is no whole {name} file: {magic.decode()} is missing at its beginning or end"
    return None if raw.schema is None else _check_columns(files, content, raw, types_in(raw.schema))


def _check_columns(files: Files, content: SeekableFile, raw: RawFormat, declared: Types) -> str | None:
    """Compare the columns in the footer by name, as Spark does, without regard to case and order; and their types.

    A column that a file lacks is NULL to Spark. A type that differs fails in most of Parquet; in ORC a number that is
    too large becomes NULL, and one with a fraction loses it (tried).
    """
    try:
        from pyarrow import ArrowException, orc, parquet  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        return None  # a machine without Spark, whose programs read the file by themselves
    try:
        schema = orc.ORCFile(content).schema if raw.format is FileFormat.ORC else parquet.read_schema(content)
    except FileNotFoundError:
        raise
    except (ArrowException, OSError) as error:
        files.check_location()
        return f"its footer cannot be read: {str(error)[:200]}"
    return find_differences(declared, types_of(schema), raw.unknown)


def _unpacked_chunks(files: Files, name: str, size: int, etag: str | None = None) -> Iterator[bytes]:
    offsets = range(0, size, CHUNK_BYTES)
    chunks = (files.read(name, offset=offset, length=CHUNK_BYTES, etag=etag) for offset in offsets)
    return _unpacked(chunks) if name.endswith(".gz") else chunks


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
