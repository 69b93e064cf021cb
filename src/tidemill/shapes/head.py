"""The first rows of committed files, read without Spark, for people.

Text formats are read by the standard library, Parquet and ORC by pyarrow, which comes with the extra `spark`.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from itertools import chain, islice
from typing import Final, assert_never

from tidemill.errors import Unavailable
from tidemill.shapes.formats import FileFormat
from tidemill.storage.files import Files, read_chunks
from tidemill.storage.seekable import open_seekable

_SHOWN: Final = 60
_GZIP: Final = 31
"""The window bits by which zlib reads a gzip file."""


class NoPyArrow(Unavailable):
    """Files of a binary format are to be read where pyarrow is not installed."""

    code = "no_pyarrow"

    def __init__(self, file_format: str) -> None:
        self.file_format = file_format
        super().__init__(
            f"files of format {file_format} are read by pyarrow, which is not installed",
            '`pip install "tidemill[spark]"` (or only `pip install pyarrow`)',
            before=": ",
        )


class UnreadableRows(Unavailable):
    """A file of a file set has another content than its format."""

    code = "unreadable_rows"

    def __init__(self, location: str, file: str, file_format: str, why: str) -> None:
        self.location = location
        self.file = file
        self.file_format = file_format
        self.why = why
        super().__init__(
            f"{file} in {location} cannot be read as {file_format}: {why}",
            "Look for damage with `tidemill catalog fsck`; bring the file back, or overwrite its partition",
            before=". ",
        )


def read_head(files: Files, name: str, file_format: FileFormat, limit: int) -> Iterator[dict[str, object]]:
    """Yield at most the first `limit` rows of a file, as JSON knows their values; a value of CSV is text.

    Cost: of Parquet and ORC the first batch or stripe, of text what holds the rows. Raises `NoPyArrow`,
    `UnreadableRows`, `FileNotFoundError`.
    """
    rows = _rows(files, name, file_format, limit)
    try:
        for row in islice(rows, limit):
            yield {str(column): to_json(value) for column, value in row.items()}
    except RecursionError:
        raise UnreadableRows(files.url, name, file_format, "it is nested too deep") from None
    except (ValueError, csv.Error, zlib.error, OSError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise UnreadableRows(files.url, name, file_format, str(error).split("\n", 1)[0]) from error


def _rows(files: Files, name: str, file_format: FileFormat, limit: int) -> Iterator[Mapping[str, object]]:
    match file_format:
        case FileFormat.PARQUET | FileFormat.ORC:
            return _binary_rows(files, name, file_format, limit)
        case FileFormat.CSV:
            return _csv_rows(_unmarked(_lines(files, name)))
        case FileFormat.JSON:
            return (_json_row(line) for line in _unmarked(_lines(files, name)) if line.strip())
        case FileFormat.TEXT:
            return ({"value": line.rstrip("\n")} for line in _lines(files, name))
        case _:
            assert_never(file_format)


def _json_row(line: str) -> Mapping[str, object]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"a row is no JSON object: {line.strip()[:_SHOWN]}")  # noqa: TRY004  # the file's fault
    return row


def to_json(value: object) -> object:
    """Return a value of a row as JSON knows it: times in ISO 8601, bytes in hexadecimal digits."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
        case date() | bytes():
            return value.hex() if isinstance(value, bytes) else value.isoformat()
        case Mapping():
            return {str(name): to_json(inner) for name, inner in value.items()}
        case list() | tuple():
            return [to_json(inner) for inner in value]
        case _:
            return str(value)


def _binary_rows(files: Files, name: str, file_format: FileFormat, limit: int) -> Iterator[Mapping[str, object]]:
    if importlib.util.find_spec("pyarrow") is None:
        raise NoPyArrow(file_format)
    from pyarrow import orc, parquet  # type: ignore[import-untyped]

    content = open_seekable(files, name)
    if file_format is FileFormat.PARQUET:
        # One row group at a time, no file mapped whole.
        for batch in parquet.ParquetFile(content).iter_batches(batch_size=limit):
            yield from batch.to_pylist()
        return
    stored = orc.ORCFile(content)
    for stripe in range(stored.nstripes):
        yield from stored.read_stripe(stripe).slice(0, limit).to_pylist()


def _csv_rows(lines: Iterator[str]) -> Iterator[Mapping[str, object]]:
    """Yield the records of a file of a file set, which begins with the names of the columns; no text is null."""
    for record in csv.DictReader(lines):
        yield {str(column): value or None for column, value in record.items()}


def _unmarked(lines: Iterator[str]) -> Iterator[str]:
    """Yield lines without the byte order mark with which some programs begin a file."""
    return chain((line.removeprefix("\ufeff") for line in islice(lines, 1)), lines)


def _lines(files: Files, name: str) -> Iterator[str]:
    """Yield the lines of a text file with their ends, of a compressed file (`.gz`) too."""
    unpack = zlib.decompressobj(wbits=_GZIP).decompress if name.endswith(".gz") else bytes
    rest = b""
    for chunk in read_chunks(files, name):
        *whole, rest = (rest + unpack(chunk)).split(b"\n")
        for line in whole:
            yield f"{line.decode(errors='replace')}\n"
    if rest:
        yield rest.decode(errors="replace")
