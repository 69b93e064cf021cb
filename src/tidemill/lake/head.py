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
from itertools import islice
from typing import Final, assert_never

from tidemill.errors import Unavailable
from tidemill.lake.formats import FileFormat
from tidemill.storage.files import Files, read_chunks

_GZIP: Final = 31
"""The window bits by which zlib reads a gzip file."""


class NoPyArrow(Unavailable):
    """Files of a binary format are to be read where pyarrow is not installed."""

    code = "no_pyarrow"

    def __init__(self, file_format: str) -> None:
        self.file_format = file_format
        super().__init__(
            f"files of format {file_format} are read by pyarrow, which is not installed: "
            '`pip install "tidemill[spark]"` (or only `pip install pyarrow`)'
        )


def read_head(files: Files, name: str, file_format: FileFormat, limit: int) -> Iterator[dict[str, object]]:
    """Yield at most the first `limit` rows of a file, as JSON knows their values; a value of CSV is text.

    Cost: of Parquet and ORC the first batch or stripe, of text what holds the rows. Raises `NoPyArrow`.
    """
    match file_format:
        case FileFormat.PARQUET | FileFormat.ORC:
            rows = _binary_rows(files, name, file_format, limit)
        case FileFormat.CSV:
            rows = _csv_rows(_lines(files, name))
        case FileFormat.JSON:
            rows = (json.loads(line) for line in _lines(files, name) if line.strip())
        case FileFormat.TEXT:
            rows = ({"value": line.rstrip("\n")} for line in _lines(files, name))
        case _:
            assert_never(file_format)
    for row in islice(rows, limit):
        yield {str(column): to_json(value) for column, value in row.items()}


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

    path = files.local_path(name)
    if file_format is FileFormat.PARQUET:
        # One row group at a time, no file mapped whole.
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=limit):
            yield from batch.to_pylist()
        return
    stored = orc.ORCFile(path)
    for stripe in range(stored.nstripes):
        yield from stored.read_stripe(stripe).slice(0, limit).to_pylist()


def _csv_rows(lines: Iterator[str]) -> Iterator[Mapping[str, object]]:
    """Yield the records of a file of a file set, which begins with the names of the columns; no text is null."""
    for record in csv.DictReader(lines):
        yield {str(column): value or None for column, value in record.items()}


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
