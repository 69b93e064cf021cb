"""Rows of Hive's text tables: lines taken apart and read by Spark as Hive's `LazySimpleSerDe` reads them.

Spark's reader of CSV leaves out empty lines, and takes an empty text for null or for no row. A value that Hive cannot
read as the type of its column is null, and so is a value that a line lacks. (tests/sql/test_hive_tables.py compares.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidemill.frames.schema import quoted
from tidemill.lake.fileset.columns import column_schema
from tidemill.lake.fileset.stored import zone_of_texts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructType

    from tidemill.lake.fileset.stored import Storing
    from tidemill.storage.hive_lines import HiveLines

_LINE: Final = "value"
LINES: Final = column_schema([{"name": _LINE, "type": "string", "nullable": True, "metadata": {}}])
"""The column of a file of text, as Spark names it."""
_PARTS: Final = "tidemill parts"
_INTEGER: Final = "^([+-]?[0-9]+)([.][0-9]*)?$"
_TIME: Final = "^ *([0-9]{4}-[0-9]{1,2}-[0-9]{1,2} [0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}([.][0-9]{1,9})?) *$"
_PATTERNS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), _INTEGER),
    "date": "^([0-9]{4}-[0-9]{1,2}-[0-9]{1,2})$",
    "timestamp": _TIME,
    "timestamp_ntz": _TIME,
    "decimal": "^([^ ]*)$",
}
"""The texts that Hive reads as values, by the type of the column: the first group of a pattern. Spark reads more."""


def take_apart(rows: DataFrame, storing: Storing, lines: HiveLines, columns: StructType) -> DataFrame:
    """Return the rows of lines with these columns, and then the columns that `rows` have beside the lines."""
    from pyspark.sql import functions as sf

    parts = rows.withColumn(_PARTS, _split(sf.col(_LINE), lines))
    found = []
    for place, field in enumerate(columns.fields):
        text = sf.nullif(sf.get(sf.col(quoted(_PARTS)), sf.lit(place)), sf.lit(lines.null))
        found.append(_read(text, field.dataType, lines, zone_of_texts(storing)).alias(field.name))
    return parts.select(*found, *(sf.col(quoted(name)) for name in rows.columns if name != _LINE))


def _split(line: Column, lines: HiveLines) -> Column:
    """Return the parts of a line as they stand there, with escapes."""
    from pyspark.sql import functions as sf

    field = f"\\x{ord(lines.field):02x}"
    if not lines.escape:
        return sf.split(line, field, -1)
    escape = f"\\x{ord(lines.escape):02x}"
    # Each part begins with a delimiter, so that no match is empty.
    part = f"(?s){field}((?:{escape}.|[^{field}{escape}]|{escape}$)*)"
    return sf.regexp_extract_all(sf.concat(sf.lit(lines.field), line), sf.lit(part), sf.lit(1))


def _read(text: Column, kind: DataType, lines: HiveLines, zone: str) -> Column:
    from pyspark.sql import functions as sf

    name = kind.typeName()
    if name == "string":
        return _unescape(text, lines.escape) if lines.escape else text
    if name == "boolean":
        word = sf.lower(text)
        return sf.when(word.isin("true", "false"), word == "true")
    if name in _PATTERNS:
        text = sf.regexp_extract(text, _PATTERNS[name], 1)
    if name == "timestamp":
        text = sf.concat(text, sf.lit(f" {zone}"))  # the session's zone does not count then
    return text.try_cast(kind)


def _unescape(text: Column, escape: str) -> Column:
    from pyspark.sql import functions as sf

    one = f"\\x{ord(escape):02x}"
    pieces = sf.regexp_extract_all(text, sf.lit(f"(?s){one}.|[^{one}]+|{one}"), sf.lit(0))

    def mean(piece: Column) -> Column:
        """Return what a piece means: an escaped `n` and `r` are ends of lines."""
        ends = sf.when(piece == escape + "n", "\n").when(piece == escape + "r", "\r")
        return ends.when(piece.startswith(escape) & (sf.length(piece) > 1), sf.substring(piece, 2, 1)).otherwise(piece)

    return sf.array_join(sf.transform(pieces, mean), "")
