"""Formats of raw files: the declaration of an inbox's files, and the file that an error of Spark names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeVar
from urllib.parse import quote

from tidemill.errors import UserError
from tidemill.names import advise
from tidemill.storage.locations import SPARK_PATHS

CHUNK_BYTES: Final = 1 << 20
RESCUED: Final = "_rescued"
"""The column with the fields that a schema does not name, as JSON; null where a row has none."""
USUAL_MAX_REJECTS: Final = 0.01
"""The share of rejected rows above which a file is bad, unless an inbox says another."""
READING: Final = "Encountered error while reading file "
"""Spark's words before the path of a file that it could not read."""
_CAUSE: Final = re.compile(r"^(?:Caused by: )?[\w.$]*(?:Exception|Error): (?P<why>.+)$", re.MULTILINE)

_F = TypeVar("_F")


class FileFormat(StrEnum):
    """Formats of files, raw ones of inboxes and those of file sets."""

    CSV = "csv"
    JSON = "json"
    """A JSON object on each line."""
    TEXT = "text"
    """A single string column, `value`."""
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


class Unknown(StrEnum):
    """The treatment of fields that a schema does not name."""

    FAIL = "fail"
    """The file is bad."""
    IGNORE = "ignore"
    RESCUE = "rescue"
    """Such fields are kept as JSON, in a column of their own."""
    EVOLVE = "evolve"
    """Such fields are columns of the run that reads them."""


class BadRows(StrEnum):
    """The treatment of rows that do not fit the columns."""

    FILE = "file"
    """A bad row makes its file bad."""
    REJECT = "reject"
    """Bad rows go to the file set of rejects, and the rest of the file is read."""


class BadFormat(UserError):
    """A description of raw files that cannot be read strictly."""

    code = "bad_format"
    hint = "correct the format of the data set, and deploy again"

    def __init__(self, file_format: str, why: str) -> None:
        self.file_format = file_format
        self.why = why
        super().__init__(f"files of format {file_format}: {why}")


@dataclass(frozen=True, slots=True)
class RawFormat:
    """The format of the files of an inbox: format, columns, and options of Spark's reader.

    `schema` is a DDL text (`id INT, name STRING`). CSV needs one; JSON and Parquet files have their columns inferred
    without it, all files of a run together. `line_end`: text without an end of line at its end counts as cut.

    `unknown` is for fields that the schema does not name, `bad_rows` for rows that do not fit it. A file is bad after
    all when more than the share `max_rejects` of its rows is bad.
    """

    format: FileFormat
    schema: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    line_end: bool = True
    unknown: Unknown = Unknown.FAIL
    bad_rows: BadRows = BadRows.FILE
    max_rejects: float = USUAL_MAX_REJECTS

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
        if self.unknown is not Unknown.FAIL and (self.schema is None or not (self.has_names)):
            raise BadFormat(
                self.format, f"unknown={self.unknown.value!r} needs a schema, and files that name their fields"
            )
        if self.unknown is Unknown.RESCUE and RESCUED in column_names(self.schema or ""):
            raise BadFormat(self.format, f"the column {RESCUED} is for rescued fields: give yours another name")
        if self.bad_rows is BadRows.REJECT and self.format not in {FileFormat.CSV, FileFormat.JSON}:
            raise BadFormat(self.format, "its files have no bad rows that could be rejected: leave bad_rows out")
        if not 0 <= self.max_rejects <= 1:
            raise BadFormat(
                self.format, f"max_rejects is a share of the rows, from '0%' to '100%', not {self.max_rejects}"
            )

    def check_values(self) -> None:
        """Refuse options that do nothing, or leave values without one reading.

        Only declarations are checked, so that a catalog can hold earlier ones.
        """
        if self.max_rejects != USUAL_MAX_REJECTS and self.bad_rows is not BadRows.REJECT:
            raise BadFormat(
                self.format, "max_rejects does nothing without bad_rows='reject': leave it out, or say both"
            )
        if not self.line_end and not self.is_text:
            raise BadFormat(self.format, "its files have no lines, so that line_end does nothing: leave it out")
        for name in ("quote", "escape", "comment"):
            if len(self.options.get(name, "")) > 1:
                raise BadFormat(self.format, f"{name} is one character, not {self.options[name]!r}")
        if self.format is FileFormat.CSV and (not self.separator or set(self.separator) & {*self.quote, *"\\\r\n"}):
            raise BadFormat(
                self.format, f"sep {self.separator!r} holds a quote, a backslash or an end of line: fields have no end"
            )
        for name in ("timestampFormat", "timestampNTZFormat"):
            if "SSSSSSS" in self.options.get(name, ""):
                raise BadFormat(self.format, f"{name} has more than six S: a timestamp has no parts of microseconds")
        if any(re.match(r"(?:var)?char\s*\(", text, re.IGNORECASE) for _, text in columns_of(self.schema or "")):
            raise BadFormat(self.format, "its columns cannot be CHAR or VARCHAR: use STRING, and a check of the length")

    @property
    def has_header(self) -> bool:
        """Return whether each file must begin with the names of the columns."""
        return self.format is FileFormat.CSV and self.is_on("header", default=True)

    @property
    def has_names(self) -> bool:
        """Return whether files name their fields."""
        return self.has_header if self.format is FileFormat.CSV else self.format is not FileFormat.TEXT

    @property
    def is_text(self) -> bool:
        """Return whether files are lines of UTF-8."""
        return self.format not in {FileFormat.PARQUET, FileFormat.ORC}

    @property
    def separator(self) -> str:
        """The text between two fields of CSV."""
        given = self.options.get("sep", ",")
        return "\t" if given == r"\t" else given

    @property
    def quote(self) -> str:
        """The character around fields of CSV; empty where there is none."""
        return self.options.get("quote", '"')

    @property
    def escape(self) -> str:
        """The character before a quote that belongs to a field of CSV: another quote, as in RFC 4180, or an option."""
        return self.options.get("escape", self.quote)

    @property
    def doubles_quotes(self) -> bool:
        """Say if two quotes stand for one quote within a field of CSV, as in RFC 4180."""
        return self.escape == self.quote

    def is_on(self, option: str, *, default: bool = False) -> bool:
        """Return whether a boolean option is true."""
        return self.options.get(option, str(default)).lower() == "true"


def column_names(schema: str) -> list[str]:
    """The names in a DDL schema, in order; an empty one where there is none."""
    return [name for name, _ in columns_of(schema)]


def columns_of(schema: str) -> list[tuple[str, str]]:
    """Names and types in a DDL schema, in order; an empty name where a column has none or has no type."""
    found = [re.match(r"\s*(?:`((?:[^`]|``)+)`|([\w$]+))[\s:]+(?=\S)", part) for part in split_types(schema)]
    types = [part[name.end() :] if name else "" for part, name in zip(split_types(schema), found, strict=True)]
    names = [(name[1] or name[2]).replace("``", "`") if name else "" for name in found]
    return list(zip(names, types, strict=True))


def split_types(schema: str) -> list[str]:
    """Return the parts between those commas that no bracket and no quote encloses."""
    parts, depth, quoted = [""], 0, False
    for sign in schema:
        quoted ^= sign == "`"
        depth += (sign in "<(") - (sign in ">)")
        if sign == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


def blame(error: str, files: Iterable[_F], path: Callable[[_F], str]) -> _F | None:
    """Find the file in `files` that an error of Spark names as unreadable; None if it names none of them.

    `error` is the whole text of the exception with its causes; `path(file)` is the absolute path. An error in the
    program's own code names no file.
    """
    start = error.find(READING)
    if start < 0:
        return None
    place = error[start + len(READING) :][:8192]
    for pattern, taken in SPARK_PATHS:
        place = re.sub(pattern, taken, place)
    # Spark escapes what a URL may not hold (a blank) and leaves the rest (é): compare with all of it escaped.
    named = quote(place, safe="/%")
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
