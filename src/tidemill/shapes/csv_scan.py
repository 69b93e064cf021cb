"""`CsvScan`: quotes and ends of lines of a CSV file, compared with RFC 4180 or with the inbox's options.

Spark passes over what is wrong with quotes and ends of lines (tried, 4.3): a quote that is never closed takes the rest
of the file into one field, text behind a closing quote comes out with the quotes, and the first end of line decides how
all other lines end.
"""

from __future__ import annotations

import codecs
import csv
import re
from typing import TYPE_CHECKING, Final

from tidemill.shapes.formats import RawFormat

if TYPE_CHECKING:
    from re import Pattern

_LONGEST_FIELD: Final = 64 << 20
"""In bytes, of fields that hold ends of lines: a quote that is never closed would have all of the file in memory."""
_BLANKS: Final = " \t"
_NAMES: Final = {b"\r\n": "CR LF", b"\n": "LF", b"\r": "CR"}


class CsvScan:
    """Quotes and ends of lines of one CSV file, as RFC 4180 wants them: Spark passes over what is wrong with them."""

    def __init__(self, raw: RawFormat) -> None:
        self._mark = raw.quote.encode()
        comment = raw.options.get("comment", "").encode()
        hidden = _field_pattern(raw)
        if comment:
            hidden = rb"(?<![^\r\n])%b[^\r\n]*|%b" % (re.escape(comment), hidden)
        self._hidden: Pattern[bytes] = re.compile(hidden, re.DOTALL)
        self._counts = not comment and raw.doubles_quotes
        """If true, each row has an even number of quotes."""
        self._escape = b"" if raw.doubles_quotes else raw.escape.encode()
        self._skips_blanks = raw.is_on("ignoreLeadingWhiteSpace")
        self._between = raw.separator.encode()
        self._separator = raw.separator.encode().replace(b"\\", rb"\\")
        self._rest = b""
        self._lines = 0
        self._end: bytes | None = None
        self._inside: set[bytes] = set()

    def feed(self, chunk: bytes) -> str | None:
        """Check the rows that end in `chunk`."""
        looked, rows = len(self._rest), self._rest + chunk
        if self._end is None:
            rows = rows.removeprefix(codecs.BOM_UTF8)
        # A row ends at an end of line that no quotes enclose; a CR at the end of a chunk may be half of one.
        last = b"\n" if b"\n" in rows else b"\r"
        end = self._end_by_count(rows, last, looked) if self._counts else self._end_by_fields(rows, last)
        self._rest = rows[end:]
        why = self._check(rows[:end])
        return why or (self._name_row(self._rest) if len(self._rest) > _LONGEST_FIELD else None)

    def _end_by_count(self, rows: bytes, last: bytes, looked: int) -> int:
        end = rows.rfind(last, 0, len(rows) - (last == b"\r")) + 1
        odd = rows.count(self._mark, 0, end) % 2
        while odd and end > looked:
            start = rows.rfind(last, 0, end - 1) + 1
            odd ^= rows.count(self._mark, start, end) % 2
            end = start
        return 0 if odd else end

    def _end_by_fields(self, rows: bytes, last: bytes) -> int:
        """The end of the rows in front of the first quote that no field in quotes explains."""
        hidden = self._hide(rows)
        found = hidden.find(self._mark)
        return hidden.rfind(last, 0, found if found >= 0 else len(rows) - (last == b"\r")) + 1

    def _hide(self, rows: bytes) -> bytes:
        """The rows with fields in quotes, and comments, overwritten."""
        return self._hidden.sub(lambda found: b"_" * len(found[0]), rows)

    def is_open(self, row: bytes) -> bool:
        """Say if the first lines of a row end within a field in quotes: the row has more lines."""
        if self._counts:
            return row.count(self._mark) % 2 == 1
        hidden = self._hide(row)
        place = hidden.find(self._mark)
        return place >= 0 and self._opens(hidden, place)

    def _opens(self, hidden: bytes, place: int) -> bool:
        """Say if the quote at `place` begins a field that no other quote ends."""
        after = hidden[place + 1 :]
        if self._escape:
            after = re.sub(re.escape(self._escape) + rb".", b"", after, flags=re.DOTALL)
        if self._mark in after:
            return False
        before = hidden[:place].rstrip(b" \t") if self._skips_blanks else hidden[:place]
        return not before or before.endswith((self._between, b"\n", b"\r"))

    def close(self) -> str | None:
        """Check the rows that are left."""
        rest, self._rest = self._rest, b""
        return self._check(rest)

    def _check(self, rows: bytes) -> str | None:
        # A separator stands for a field in quotes: without it, CR before and LF behind the field would be one end.
        plain = self._hidden.sub(self._separator, rows) if self._mark in rows else rows
        if self._mark in plain:
            return self._name_row(rows)
        why = self._check_ends(rows, plain)
        self._lines += rows.count(b"\n")
        return why

    @property
    def keeps_returns(self) -> bool:
        """Return whether the rows so far show that the parser keeps each CR LF within quotes."""
        return self._end in {b"\n", b"\r"}

    @property
    def loses_returns(self) -> bool:
        """Return whether fields hold CR LF that the parser reads as LF, because it takes them for ends of lines."""
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
        hidden = self._hide(rows)
        place = hidden.find(self._mark)
        start = max(hidden.rfind(b"\n", 0, place), hidden.rfind(b"\r", 0, place)) + 1
        begun = self._lines + len(rows[:start].splitlines()) + 1
        shown = rows[start:].decode(errors="replace").strip().split("\n", 1)[0][:200]
        if self._opens(hidden, place):
            return f"line {begun}: a quote is opened and never closed: {shown}"
        return (
            f"line {begun}: a quote stands within a field: {shown}; enclose the field in quotes and double the quotes"
            " in it (RFC 4180), or say options={'quote': ''} where quotes mean nothing"
        )


def _count_ends(rows: bytes) -> dict[bytes, int]:
    pairs = rows.count(b"\r\n")
    return {b"\r\n": pairs, b"\n": rows.count(b"\n") - pairs, b"\r": rows.count(b"\r") - pairs}


def _field_pattern(raw: RawFormat) -> bytes:
    """The regular expression of a field in quotes, with the blanks around it that the options allow."""
    mark, sep = re.escape(raw.quote.encode()), re.escape(raw.separator.encode())
    ends = b"" if raw.is_on("multiLine", default=True) else rb"\r\n"
    escape = re.escape(raw.escape.encode())
    pair = {mark: mark + mark, b"": None}.get(escape, escape + (b"[^%b]" % ends if ends else b"."))
    inside = b"[^%b%b%b]*" % (mark, b"" if escape == mark else escape, ends)
    lead = b"[ \t]*" if raw.is_on("ignoreLeadingWhiteSpace") else b""
    trail = b"[ \t]*" if raw.is_on("ignoreTrailingWhiteSpace") else b""
    content = inside if pair is None else b"%b(?:%b%b)*" % (inside, pair, inside)
    return rb"(?:(?<=%b)|(?<![^\r\n]))%b%b%b%b%b(?=%b|[\r\n]|\Z)" % (sep, lead, mark, content, mark, trail, sep)


def split_row(row: str, raw: RawFormat) -> list[str]:
    """The fields of a row of CSV, as Spark's parser reads them; a row is without the end of its line."""
    quote = raw.quote
    lead, trail = raw.is_on("ignoreLeadingWhiteSpace"), raw.is_on("ignoreTrailingWhiteSpace")
    if not row:
        return []
    if not quote or quote not in row:
        fields = row.split(raw.separator)
    elif len(raw.separator) == 1 and raw.doubles_quotes and not lead and not trail:
        return next(csv.reader([row], delimiter=raw.separator, quotechar=quote, strict=False))
    else:
        return _split_quoted(row, raw)
    fields = [field.lstrip(_BLANKS) for field in fields] if lead else fields
    return [field.rstrip(_BLANKS) for field in fields] if trail else fields


def _split_quoted(row: str, raw: RawFormat) -> list[str]:
    quote, escape = raw.quote, raw.escape
    fields, at = [], 0
    quoted = re.compile(_field_pattern(raw).decode(), re.DOTALL)
    while True:
        if found := quoted.match(row, at):
            field, at = found[0].strip(_BLANKS)[1:-1], found.end()
            fields.append(
                re.sub(f"{re.escape(escape)}([{re.escape(quote + escape)}])", r"\1", field) if escape else field
            )
        else:
            end = row.find(raw.separator, at)
            field, at = row[at : end if end >= 0 else len(row)], end if end >= 0 else len(row)
            field = field.lstrip(_BLANKS) if raw.is_on("ignoreLeadingWhiteSpace") else field
            fields.append(field.rstrip(_BLANKS) if raw.is_on("ignoreTrailingWhiteSpace") else field)
        if at >= len(row):
            return fields
        at += len(raw.separator)
