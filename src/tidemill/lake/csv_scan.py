"""`CsvScan`: quotes and ends of lines of a CSV file, compared with RFC 4180.

Spark passes over what is wrong with quotes and ends of lines (tried, 4.3): a quote that is never closed takes the rest
of the file into one field, text behind a closing quote comes out with the quotes, and the first end of line decides how
all other lines end.
"""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING, Final

from tidemill.lake.formats import RawFormat

if TYPE_CHECKING:
    from re import Pattern

_LONGEST_FIELD: Final = 64 << 20
"""In bytes, of fields that hold ends of lines: a quote that is never closed would have all of the file in memory."""
_NAMES: Final = {b"\r\n": "CR LF", b"\n": "LF", b"\r": "CR"}


class CsvScan:
    """Quotes and ends of lines of one CSV file, as RFC 4180 wants them: Spark passes over what is wrong with them."""

    def __init__(self, raw: RawFormat) -> None:
        self._mark = raw.quote.encode()
        mark, sep = re.escape(self._mark), re.escape(raw.separator.encode())
        inside = b"[^%b]" % mark if raw.is_on("multiLine", default=True) else rb"[^%b\r\n]" % mark
        lead = b"[ \t]*" if raw.is_on("ignoreLeadingWhiteSpace") else b""
        trail = b"[ \t]*" if raw.is_on("ignoreTrailingWhiteSpace") else b""
        field = rb"(?<![^%b\r\n])%b%b%b*(?:%b%b%b*)*%b%b(?![^%b\r\n])"
        parts = (sep, lead, mark, inside, mark, mark, inside, mark, trail, sep)
        self._quoted: Pattern[bytes] = re.compile(field % parts)
        self._separator = raw.separator.encode().replace(b"\\", rb"\\")
        self._rest = b""
        self._lines = 0
        self._end: bytes | None = None
        self._inside: set[bytes] = set()

    def feed(self, chunk: bytes) -> str | None:
        """Check the rows that end in `chunk`."""
        looked, rows = len(self._rest), self._rest + chunk
        # A row ends at an end of line that no quotes enclose; a CR at the end of a chunk may be half of one.
        last = b"\n" if b"\n" in rows else b"\r"
        end = rows.rfind(last, 0, len(rows) - (last == b"\r")) + 1
        odd = rows.count(self._mark, 0, end) % 2
        while odd and end > looked:
            start = rows.rfind(last, 0, end - 1) + 1
            odd ^= rows.count(self._mark, start, end) % 2
            end = start
        end = 0 if odd else end
        self._rest = rows[end:]
        why = self._check(rows[:end])
        return why or (self._name_row(self._rest) if len(self._rest) > _LONGEST_FIELD else None)

    def close(self) -> str | None:
        """Check the rows that are left."""
        rest, self._rest = self._rest, b""
        return self._check(rest)

    def _check(self, rows: bytes) -> str | None:
        if self._end is None:
            rows = rows.removeprefix(codecs.BOM_UTF8)
        # A separator stands for a field in quotes: without it, CR before and LF behind the field would be one end.
        plain = self._quoted.sub(self._separator, rows) if self._mark in rows else rows
        if self._mark in plain:
            return self._name_row(rows)
        why = self._check_ends(rows, plain)
        self._lines += rows.count(b"\n")
        return why

    @property
    def keeps_returns(self) -> bool:
        """Whether the rows so far show that the parser keeps each CR LF within quotes."""
        return self._end in {b"\n", b"\r"}

    @property
    def loses_returns(self) -> bool:
        """Whether fields hold CR LF that the parser reads as LF: it takes them for the ends of lines of the file."""
        return self._end == b"\r\n" and self._inside == {b"\r\n"}

    def _check_ends(self, rows: bytes, plain: bytes) -> str | None:
        found = re.search(rb"\r\n|\n|\r", rows) if self._end is None else None
        if found:
            # The parser takes the first end of line of a file for that of all its rows.
            self._end = found[0]
        outside, everywhere = _count_ends(plain), _count_ends(rows)
        if other := [end for end, count in outside.items() if count and end != self._end]:
            return f"its lines end in {_NAMES[self._end or b'']} and in {_NAMES[other[0]]}: use one of them"
        self._inside |= {end for end, count in everywhere.items() if count > outside[end]}
        if self._end == b"\r\n" and b"\r\n" in self._inside and len(self._inside) > 1:
            return "its quoted fields end lines in CR LF and in others, as its rows do: use LF within the fields"
        return None

    def _name_row(self, rows: bytes) -> str:
        """Name the first row whose quotes are neither around a field nor doubled within one."""
        line, begun, row = self._lines, 0, b""
        for each in rows.splitlines(keepends=True):
            line += 1
            begun, row = (begun, row + each) if row else (line, each)
            if row.count(self._mark) % 2 == 0:
                if self._mark in self._quoted.sub(b"", row):
                    break
                row = b""
        shown = row.decode(errors="replace").strip().split("\n", 1)[0][:200]
        if row.count(self._mark) % 2:
            return f"line {begun}: a quote is opened and never closed: {shown}"
        return (
            f"line {begun}: a quote stands within a field: {shown}; enclose the field in quotes and double the quotes"
            " in it (RFC 4180), or say options={'quote': ''} where quotes mean nothing"
        )


def _count_ends(rows: bytes) -> dict[bytes, int]:
    pairs = rows.count(b"\r\n")
    return {b"\r\n": pairs, b"\n": rows.count(b"\n") - pairs, b"\r": rows.count(b"\r") - pairs}
