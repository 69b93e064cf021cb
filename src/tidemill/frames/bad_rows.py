"""Bad files and bad rows of a batch, all found in one pass; a bad row is named by file, line, text and reason."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill.frames.raw_rows import BAD, FILE, MISSHAPEN, WHY, RawFiles, classify, parsing_options, read_source
from tidemill.frames.schema import quoted
from tidemill.frames.spark import spark_errors
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.shapes.contents import BadText, find_rows
from tidemill.shapes.csv_scan import split_row
from tidemill.shapes.formats import FileFormat, RawFormat, blame, columns_of, reason

if TYPE_CHECKING:
    from pyspark.sql import Column

_SHOWN = 200


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that does not fit the columns; `line` is None where the place of the text is not found."""

    line: int | None
    text: str
    why: str

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{place}{self.why}: {self.text[:_SHOWN]}"


@dataclass(frozen=True, slots=True)
class BadFile:
    """A file with bad rows, or one that cannot be read at all: then `rows` is 0 and `first` says why."""

    rows: int
    bad: int
    first: BadRow

    @property
    def why(self) -> str:
        """The reason for which the file is bad, with its first bad row."""
        if not self.rows:
            return self.first.why
        return f"{self.bad} of its {self.rows} rows {'are' if self.bad > 1 else 'is'} bad; {self.first}"


def find_bad_files(source: RawFiles) -> dict[ClaimedFile, BadFile]:
    """Find the files that cannot be read strictly, each with its first bad row.

    Cost: one Spark job over all files, and one more for each file that cannot be read to its end.
    """
    left = list(source.claimed)
    damaged: dict[ClaimedFile, BadFile] = {}
    found: dict[ClaimedFile, BadFile] = {}
    while left:
        try:
            found = _count_bad_rows(replace(source, claimed=left))
            break
        except spark_errors() as error:
            culprit = blame(str(error), left, source.path_of)
            if culprit is None:
                raise
            damaged[culprit] = BadFile(0, 0, BadRow(None, "", reason(str(error))))
            left.remove(culprit)
    return damaged | _named(source, found)


def list_bad_rows(source: RawFiles) -> dict[ClaimedFile, list[BadRow]]:
    """List all bad rows of CSV or JSON files, in order of their lines. Cost: one pass, and memory for the bad rows."""
    from pyspark.sql import functions as sf

    bad = classify(source).where(sf.col(quoted(BAD)).isNotNull()).select(FILE, BAD, WHY, *_parsed(source))
    by_path = {source.path_of(file): file for file in source.claimed}
    texts: dict[ClaimedFile, list[tuple[str, str | None]]] = defaultdict(list)
    for path, text, why, *_ in bad.toLocalIterator():
        texts[by_path[path]].append((text, why))
    known = _explain(source, {pair for pairs in texts.values() for pair in pairs})
    rows: dict[ClaimedFile, list[BadRow]] = {}
    for file, pairs in texts.items():
        whys = {text: known[text, why] for text, why in pairs}
        found = _find(source, file, set(pairs))
        placed = [BadRow(row.line, row.text, whys[row.given]) for row in found]
        # A text whose place is not found, or is found less often than Spark has given it.
        rest = Counter(text for text, _ in pairs) - Counter(row.given for row in found)
        rows[file] = placed + [BadRow(None, text, whys[text]) for text in rest.elements()]
    return rows


def _find(
    source: RawFiles, file: ClaimedFile, bad: set[tuple[str, str | None]], most: int | None = None
) -> list[BadText]:
    """The places of bad rows; of a CSV row with a reason not the text is known, but the cells at fault."""
    cells = {text for text, why in bad if why is not None and source.raw.format is FileFormat.CSV}
    texts = {text for text, _ in bad} - cells
    return find_rows(source.files, file.name, file.bytes, source.raw, texts, cells, most)


def _count_bad_rows(source: RawFiles) -> dict[ClaimedFile, BadFile]:
    from pyspark.sql import functions as sf

    if source.raw.format not in {FileFormat.CSV, FileFormat.JSON}:
        read_source(source).write.format("noop").mode("overwrite").save()
        return {}
    bad_row = sf.when(sf.col(quoted(BAD)).isNotNull(), sf.struct(quoted(BAD), quoted(WHY)))
    first = sf.first(bad_row, ignorenulls=True)
    counts = [sf.count(sf.lit(1)), sf.count(quoted(BAD)), first, *map(sf.count, _parsed(source))]
    by_path = {source.path_of(file): file for file in source.claimed}
    return {
        by_path[path]: BadFile(rows, bad, BadRow(None, first[0], first[1] or ""))
        for path, rows, bad, first, *_ in classify(source).groupBy(FILE).agg(*counts).collect()
        if bad
    }


def _parsed(source: RawFiles) -> list[Column]:
    """Return all columns. Spark does not check the values of columns that a query leaves out."""
    from pyspark.sql import functions as sf

    return [sf.col(quoted(name)) for name, _ in columns_of(source.raw.schema or "")]


def _named(source: RawFiles, found: Mapping[ClaimedFile, BadFile]) -> dict[ClaimedFile, BadFile]:
    """`found` with line and reason of each first bad row."""
    known = _explain(source, {(bad.first.text, bad.first.why or None) for bad in found.values()})
    named = {}
    for file, bad in found.items():
        pair = (bad.first.text, bad.first.why or None)
        place = next(iter(_find(source, file, {pair}, most=1)), None)
        first = BadRow(place.line if place else None, place.text if place else pair[0], known[pair])
        named[file] = replace(bad, first=first)
    return named


def _explain(source: RawFiles, bad: set[tuple[str, str | None]]) -> dict[tuple[str, str | None], str]:
    """Return the reason of each bad row, by the row's text and the fault that reading found.

    Cost: a Spark job over the texts.
    """
    known: dict[tuple[str, str | None], str] = {}
    fields: dict[tuple[str, str | None], Sequence[str]] = {}
    columns = columns_of(source.raw.schema or "")
    for text, why in bad:
        if why is not None and why != MISSHAPEN:
            known[text, why] = why
        elif source.raw.format is FileFormat.JSON:
            fault = _json_fault(text)
            if fault is None:
                fields[text, why] = [text] * len(columns)
            known[text, why] = fault or "a value does not fit its column"
        else:
            values = split_row(text, source.raw)
            known[text, why] = f"it has {len(values)} fields, not {len(columns)}"
            if len(values) == len(columns):
                fields[text, why] = values
                known[text, why] = "a value does not fit its column"
    return known | _explain_values(source, columns, fields)


def _explain_values(
    source: RawFiles, columns: Sequence[tuple[str, str]], fields: Mapping[tuple[str, str | None], Sequence[str]]
) -> dict[tuple[str, str | None], str]:
    """The reason for rows of which a value is none of its column's type."""
    from pyspark.sql import functions as sf

    if not fields or not columns:
        return {}
    raw = source.raw
    is_csv = raw.format is FileFormat.CSV
    options = parsing_options(raw) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD, "multiLine": "false"}
    parse = sf.from_csv if is_csv else sf.from_json
    cells = [[_quoted(one, raw) if is_csv else one for one in row] for row in fields.values()]
    names = [f"f{place}" for place in range(len(columns))]
    frame = source.spark.createDataFrame(cells, ", ".join(f"{name} STRING" for name in names))
    checks = [
        parse(sf.col(cell), f"{quoted(name)} {kind}, {quoted(BAD)} STRING", options).getField(BAD).isNotNull()
        for cell, (name, kind) in zip(names, columns, strict=True)
    ]
    known = {}
    for pair, values, wrong in zip(fields, fields.values(), frame.select(*checks).collect(), strict=True):
        found = [
            f"{name} is no {kind}: {_value(values[place], name, raw)}"
            for place, (name, kind) in enumerate(columns)
            if wrong[place]
        ]
        if found:
            known[pair] = "; ".join(found)[: 2 * _SHOWN]
    return known


def _value(field: str, name: str, raw: RawFormat) -> str:
    if raw.format is FileFormat.CSV:
        return field[:_SHOWN]
    return json.dumps(json.loads(field).get(name), ensure_ascii=False)[:_SHOWN]


def _json_fault(text: str) -> str | None:
    try:
        return None if isinstance(json.loads(text), dict) else "it is no JSON object"
    except ValueError as error:
        return f"it is no JSON: {error}"
    except RecursionError:
        return "it is no JSON that can be read: it is nested too deep"


def _quoted(field: str, raw: RawFormat) -> str:
    """A field as a row of CSV of its own."""
    return f"{raw.quote}{field.replace(raw.quote, raw.quote * 2)}{raw.quote}" if raw.quote else field
