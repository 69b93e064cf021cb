"""Storing of a file set's rows: the declaration of its app, and for each format the options of writing and reading.

Spark's own defaults lose something in text: CSV turns the empty text into null, strips blanks and cuts microseconds.
The options here bring back every value that was written (tests/frames/test_stored_formats.py). A value for which a
format has no text is refused (`frames.schema`).
"""

from __future__ import annotations

import csv
import json
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, assert_never

from tidemill.durations import format_duration
from tidemill.json_specs import sparse
from tidemill.shapes.expectation import Arrivals
from tidemill.shapes.formats import CHUNK_BYTES, BadFormat, FileFormat
from tidemill.shapes.keys import KeySchema, KeyType
from tidemill.shapes.manifest import FileTimes
from tidemill.shapes.watermark_spec import ZONE, StoredWatermark
from tidemill.storage.files import Files, read_chunks
from tidemill.storage.hive_lines import HiveLines
from tidemill.storage.seekable import open_seekable

FILE_BYTES: Final = 128 << 20
"""The size of file that a write aims at."""

_TIMES: Final = {
    "timeZone": "UTC",
    "dateFormat": "yyyy-MM-dd",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_USUAL_TIME: Final = "yyyy-MM-dd['T'HH:mm[:ss[.SSSSSS]]][ HH:mm[:ss[.SSSSSS]]]"
_USUAL_TIMES: Final = {**_TIMES, "timestampFormat": f"{_USUAL_TIME}XXX", "timestampNTZFormat": _USUAL_TIME}
"""Forms of times that other programs write too, with and without a zone. Without a form Spark reads `10:30` as a time
of today, and `2021` as the first of January (tried, 4.3)."""
_LONGEST_HEADER: Final = 1 << 20
_BLANK: Final = (b"", b"\r")
"""Lines of CSV that are no records."""
_LOOSE_QUOTE: Final = re.compile(rb'"(?:(?<=[^",\n]")|(?=[^",\r\n]))')
_JSON_BLANKS: Final = b" \t\r"
_SHOWN: Final = 60
_LINES: Final = {"encoding": "UTF-8", "lineSep": "\n"}
_CSV: Final = {
    "encoding": "UTF-8",
    "header": "true",
    "sep": ",",
    "quote": '"',
    "escape": '"',
    "ignoreLeadingWhiteSpace": "false",
    "ignoreTrailingWhiteSpace": "false",
}
_WRITTEN: Final[Mapping[FileFormat, Mapping[str, str]]] = {
    FileFormat.PARQUET: {},
    FileFormat.ORC: {},
    FileFormat.CSV: {**_TIMES, **_LINES, **_CSV, "nullValue": "", "emptyValue": '""'},
    FileFormat.JSON: {**_TIMES, **_LINES},
    FileFormat.TEXT: {"lineSep": "\n"},
}
_READ: Final[Mapping[FileFormat, Mapping[str, str]]] = {
    # A flipped byte in uncompressed or zstd Parquet reads silently wrong without it (no measurable cost: tried).
    FileFormat.PARQUET: {"parquet.page.verify-checksum.enabled": "true", "mergeSchema": "false"},
    FileFormat.ORC: {"mergeSchema": "false"},
    # Nothing between two commas is null, and `""` is the empty text. The null value is a text that no value has. Lines
    # end as the first line of their file does, by LF or by CR LF.
    FileFormat.CSV: {
        **_USUAL_TIMES,
        **_CSV,
        "nullValue": "\ue000no value\ue000",
        "emptyValue": "",
        "multiLine": "true",
        "mode": "FAILFAST",
        "enforceSchema": "false",
        "columnPruning": "false",
    },
    FileFormat.JSON: {**_USUAL_TIMES, **_LINES, "mode": "FAILFAST"},
    FileFormat.TEXT: {"lineSep": "\n"},
}


class SchemaPolicy(StrEnum):
    """Rule for rows with other columns than the file set has."""

    FAIL = "fail"
    """Such rows are refused."""
    EVOLVE = "evolve"
    """New columns are added, and types made wider where that loses nothing."""


@sparse
@dataclass(frozen=True, slots=True)
class HiveName:
    """Table of a Hive metastore: the address of the metastore, and the table's database and name there.

    `lines` has the delimiters of a table in text. `earlier` are the properties of the table there, of those that
    Tidemill may write, as they were before the declaration.
    """

    metastore: str
    database: str
    table: str
    lines: HiveLines | None = None
    earlier: Mapping[str, str] | None = None


@sparse
@dataclass(frozen=True, slots=True)
class Storing:
    """Storing of a file set's partitions, as declared.

    With `checksum`, each read compares the whole content of the files with the written content. (Parquet's pages have
    checksums of their own.) `keep_superseded` is the time for which replaced files stay readable, by default the
    site's. `retention` is the age, by partition time, at which whole partitions are dropped, by default never.
    `columns`, `options` and `watermark_column` are those of a table that a statement has declared. `monitor_every` is
    the interval of the listings of a monitored table, whose files other programs write. The partitions of a table with
    a name in `hive` are those of the Hive metastore.
    """

    keys: KeySchema
    format: FileFormat = FileFormat.PARQUET
    checksum: bool = False
    policy: SchemaPolicy = SchemaPolicy.FAIL
    keep_superseded: timedelta | None = None
    retention: timedelta | None = None
    expect: Arrivals | None = None
    watermark: StoredWatermark | None = None
    columns: Mapping[str, str] | None = None
    options: Mapping[str, str] | None = None
    watermark_column: str | None = None
    monitor_every: timedelta | None = None
    hive: HiveName | None = None

    def __post_init__(self) -> None:
        """Refuse to evolve what has no room for it, and times in which nothing could be read."""
        if self.policy is SchemaPolicy.EVOLVE and self.format in {FileFormat.CSV, FileFormat.TEXT}:
            raise BadFormat(self.format, "its columns have no names of their own, so they cannot evolve: use parquet")
        times = {KeyType.DATE, KeyType.TIMESTAMP}
        if self.retention is not None and not any(field.type in times for field in self.keys.fields):
            raise BadFormat(
                self.format, "retention goes by a field of the key that is a date or timestamp: there is none"
            )
        for duration in (self.keep_superseded, self.retention):
            if duration is not None and duration <= timedelta(0):
                raise BadFormat(self.format, f"{format_duration(duration)} is no time for which anything could be kept")
        if self.monitor_every is not None and self.monitor_every <= timedelta(0):
            raise BadFormat(self.format, f"{format_duration(self.monitor_every)} is no interval between two listings")
        if self.monitor_every is not None and self.retention is not None:
            raise BadFormat(self.format, "other programs write and delete the files of a monitored table: no retention")


def writing_options(file_format: FileFormat) -> Mapping[str, str]:
    """Options of Spark's writer."""
    return _WRITTEN[file_format]


def reading_options(storing: Storing) -> Mapping[str, str]:
    """Options of Spark's reader for what was written with `writing_options`, by other programs, or by Hive."""
    if storing.hive is None or storing.format not in {FileFormat.JSON, FileFormat.TEXT}:
        return _READ[storing.format]
    if storing.format is FileFormat.TEXT:
        return {}  # Hive ends lines as Spark does without options: by \n, \r or both
    # Without formats Spark takes all usual ones, those of Hive too. A time without a zone is of the table's zone.
    return {"timeZone": zone_of_texts(storing), **_LINES, "mode": "FAILFAST"}


def zone_of_texts(storing: Storing) -> str:
    """Return the time zone of times in the text of a Hive table, which have none of their own."""
    return (storing.options or {}).get(ZONE, "UTC")


def measure_file(files: Files, name: str, file_format: FileFormat, column: str | None) -> tuple[int, FileTimes | None]:
    """The rows in one file, and their times by `column` if the footer says them. Cost: that of `count_rows`."""
    if file_format is not FileFormat.PARQUET or column is None:
        return count_rows(files, name, file_format), None
    footer = _read_footer(files, name)
    return int(footer.num_rows), _find_times(footer, column)


def _read_footer(files: Files, name: str) -> Any:  # noqa: ANN401  # pyarrow has no types
    from pyarrow import parquet  # type: ignore[import-untyped]

    return parquet.read_metadata(open_seekable(files, name))


def _find_times(footer: Any, column: str) -> FileTimes | None:  # noqa: ANN401  # as above
    """Return the times of all rows by a column of instants; None where a row has none, or the footer leaves it open."""
    for place in range(footer.num_columns):
        if footer.schema.column(place).path.lower() == column.lower():
            kind = json.loads(footer.schema.column(place).logical_type.to_json())
            if not (kind["Type"] == "Timestamp" and kind["isAdjustedToUTC"] and kind["timeUnit"] == "microseconds"):
                return None
            found = [footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups)]
            if found and all(one is not None and one.has_min_max and one.null_count == 0 for one in found):
                return FileTimes(column, min(one.min_raw for one in found), max(one.max_raw for one in found))
    return None


def count_rows(files: Files, name: str, file_format: FileFormat) -> int:
    """The rows in one file of a file set, as Spark reads them. Cost: its footer; of text the whole file.

    Raises `BadFormat` for CSV or JSON in which Spark would not read what is written.
    """
    match file_format:
        case FileFormat.PARQUET:
            return int(_read_footer(files, name).num_rows)
        case FileFormat.ORC:
            from pyarrow import orc

            return int(orc.ORCFile(open_seekable(files, name)).nrows)
        case FileFormat.CSV:
            return count_records(read_chunks(files, name)) - 1
        case FileFormat.JSON:
            return count_objects(read_chunks(files, name))
        case FileFormat.TEXT:
            return sum(chunk.count(b"\n") for chunk in _whole_lines(files, name))
        case _:
            assert_never(file_format)


def count_others(files: Files, name: str, file_format: FileFormat, columns: Sequence[str]) -> int:
    """Return the rows in a file of text that another program wrote, for a file set with these columns.

    Raises `BadFormat` as `count_rows` does, and for CSV whose first line is not the names of the columns: else the
    first row would be lost. Cost: that of `count_rows`.
    """
    if file_format is FileFormat.CSV:
        line = files.read(name, length=_LONGEST_HEADER).split(b"\n", 1)[0]
        head = line.decode("utf-8-sig", "replace").removesuffix("\r")
        try:
            names = next(csv.reader([head]), [])
        except csv.Error:
            names = []  # a carriage return that ends no line, or a field that is too long
        if names != columns:
            raise BadFormat(file_format, f"the first line has to be {','.join(columns)}, not {head[:200]!r}")
    return count_rows(files, name, file_format)


def count_lines(files: Files, name: str) -> int:
    """Return the number of lines in a file of Hive, which end by a line feed, a carriage return, or both."""
    lines, last = 0, b""
    for chunk in _whole_lines(files, name):
        lines += chunk.count(b"\n") + chunk.count(b"\r") - (last + chunk).count(b"\r\n")
        last = chunk[-1:]
    return lines


def count_records(chunks: Iterable[bytes]) -> int:
    """Return the number of records of CSV, the header included. A blank line is none.

    Lines end where no quotes enclose the end; a quote within quotes is doubled, so each turns the sense round. Spark
    takes the first end of a line for that of all lines, and reads such an end within quotes as LF.
    """
    records, quoted, line, last = 0, False, b"", b""
    ends, returns, all_returns = 0, 0, 0
    for chunk in chunks:
        parts = (chunk if last else chunk.removeprefix(BOM_UTF8)).split(b'"')
        # One quote for each part in quotes.
        text = line + b'"' * quoted + b'"'.join(parts[quoted::2])
        if _LOOSE_QUOTE.search(text):
            why = "a quote stands within a field: enclose the field in quotes, and double each quote in it"
            raise BadFormat(FileFormat.CSV, why)
        *lines, line = text.split(b"\n")
        records += len(lines) - sum(map(lines.count, _BLANK))
        ends, returns = ends + len(lines), returns + text.count(b"\r\n")
        all_returns += (last + chunk).count(b"\r\n")
        quoted ^= len(parts) % 2 == 0
        # Of an open line these bytes say enough.
        line, last = b',"' if line.endswith(b'"') else line[:1] + line[1:][-1:], chunk[-1:]
    if quoted:
        raise BadFormat(FileFormat.CSV, "a quote is opened and never closed")
    if returns not in {0, ends}:
        raise BadFormat(FileFormat.CSV, "its lines end in CR LF and in LF: use one of them")
    if returns and returns != all_returns:
        raise BadFormat(FileFormat.CSV, "its lines end in CR LF, and so does a line within a field: end all in LF")
    return records + (line not in _BLANK)


def count_objects(chunks: Iterable[bytes]) -> int:
    """Return the number of lines with an object of JSON. A blank line is none.

    Of several objects on a line Spark reads all of an array.
    """
    objects, line = 0, b""
    for chunk in chunks:
        *lines, line = (line + chunk).split(b"\n")
        objects += sum(map(_is_object, lines))
        line = line.lstrip(_JSON_BLANKS)[:_SHOWN]
    return objects + _is_object(line)


def _is_object(line: bytes) -> bool:
    """Return whether a line has an object of JSON, false for a blank line. Refuse all other lines."""
    if line.startswith(b"{"):
        return True
    text = line.removeprefix(BOM_UTF8).strip(_JSON_BLANKS)
    if text and not text.startswith(b"{"):
        shown = text[:_SHOWN].decode(errors="replace")
        raise BadFormat(FileFormat.JSON, f"each line has to be an object in braces, not {shown!r}")
    return bool(text)


def _whole_lines(files: Files, name: str) -> Iterator[bytes]:
    """Yield the content of a file, with the end of the last line, which other programs may leave out."""
    offset, last = 0, b"\n"
    while chunk := files.read(name, offset=offset, length=CHUNK_BYTES):
        yield chunk
        offset, last = offset + len(chunk), chunk[-1:]
    if last != b"\n":
        yield b"\n"
