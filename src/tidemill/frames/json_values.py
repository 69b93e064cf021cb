"""Values of JSON objects, read so that each one is unchanged or found to be bad.

Spark parses numbers into the types of the columns and rounds them; in a STRING column it writes a number again, as a
DOUBLE (tried, 4.3: 12345678901234567890.5 is 1.2345678901234567E19). Only rows that may have such numbers are parsed a
second time, with the texts of their numbers.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from tidemill.frames.exact_values import is_text_first, parse

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, StructField, StructType

    from tidemill.shapes.formats import RawFormat

_MARK: Final = "\x01tidemill "
_MARKED: Final = r'"\u0001tidemill '
# Stand-ins while numbers are marked: control characters, which no JSON text holds.
_BACKSLASH, _QUOTE, _BEGIN, _END = "\x02", "\x03", "\x04", "\x05"
_STRING_OR_NUMBER: Final = r'("[^"]*+")|(-?[0-9][0-9.eE+-]*+)'
_HALF_PAIR: Final = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def reading_type(wanted: DataType, raw: RawFormat) -> DataType:
    """The type under which a column is read: text for what Spark's parser completes or cuts."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    match wanted:
        case StructType():
            return StructType([_field(field.name, reading_type(field.dataType, raw)) for field in wanted.fields])
        case ArrayType():
            return ArrayType(reading_type(wanted.elementType, raw))
        case MapType():
            return MapType(wanted.keyType, reading_type(wanted.valueType, raw))
        case _:
            return StringType() if is_text_first(wanted.simpleString(), raw) else wanted


def text_type(wanted: DataType) -> DataType | None:
    """The type under which the texts of numbers are read; None where no column needs them."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StringType, StructType

    match wanted:
        case StructType():
            inner = [(field.name, text_type(field.dataType)) for field in wanted.fields]
            found = [_field(name, kind) for name, kind in inner if kind is not None]
            return StructType(found) if found else None
        case ArrayType():
            return None if (kind := text_type(wanted.elementType)) is None else ArrayType(kind)
        case MapType():
            return None if (kind := text_type(wanted.valueType)) is None else MapType(wanted.keyType, kind)
        case DecimalType() | StringType():
            return StringType()
        case _:
            return None


def needs_texts(text: Column, wanted: StructType) -> Column:
    """Say if a JSON text may hold a number that Spark changes. Only such texts are parsed a second time."""
    plain = r"-?[0-9]+\s*+[,}\]]"
    patterns = [r'\\[^"]*"\s*+:']  # a name with an escape may be any name
    scales, texts = _names(wanted)
    if texts:
        patterns.append(rf'"(?:{"|".join(map(re.escape, sorted(texts)))})"\s*+:\s*+(?!"|null|{plain})')
    for name, scale in sorted(scales.items()):
        number = rf"-?[0-9]+(?:\.[0-9]{{0,{scale}}})?"
        patterns.append(rf'"{re.escape(name)}"\s*+:\s*+(?!null|{number}\s*+[,}}\]]|"{number}")')
    return text.rlike("|".join(patterns))


def with_texts(text: Column) -> Column:
    """A JSON text in which each number is a string that begins and ends with a mark."""
    from pyspark.sql import functions as sf

    def put(column: Column, old: str, new: str) -> Column:
        return sf.replace(column, sf.lit(old), sf.lit(new))

    # Without backslashes in strings the expression for a string has no loop, which would need a deep stack.
    simple = put(put(text, r"\\", _BACKSLASH), r"\"", _QUOTE)
    marked = put(sf.regexp_replace(simple, _STRING_OR_NUMBER, f"$1{_BEGIN}$2{_END}"), _BEGIN + _END, "")
    marked = put(put(marked, _BEGIN, _MARKED), _END, _MARKED[1:] + '"')
    return put(put(marked, _QUOTE, r"\""), _BACKSLASH, r"\\")


def has_half_pair(text: Column) -> Column:
    r"""Say if a JSON text has an escape such as `\ud800` without its other half: it stands for no character."""
    from pyspark.sql import functions as sf

    return text.rlike(r"\\u[dD]") & sf.replace(text, sf.lit(r"\\"), sf.lit(_BACKSLASH)).rlike(_HALF_PAIR)


def convert(  # noqa: PLR0911  # one for each kind of type
    read: Column, texts: Column | None, wanted: DataType, raw: RawFormat
) -> tuple[Column, Column | None]:
    """A value of type `wanted`, and whether one within it is not exactly what the text says; None where that cannot be.

    `texts` is the same value with the texts of numbers, null where Spark changes none of them.
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import ArrayType, DecimalType, DoubleType, FloatType, MapType, StringType, StructType

    kind = wanted.simpleString()
    match wanted:
        case StructType():
            return _convert_struct(read, texts, wanted, raw)
        case ArrayType():
            if _is_plain(wanted.elementType, raw):
                return read, None
            return _convert_items(read, texts, wanted.elementType, raw)
        case MapType():
            if _is_plain(wanted.valueType, raw):
                return read, None
            values = None if texts is None else sf.map_values(texts)
            converted, failing = _convert_items(sf.map_values(read), values, wanted.valueType, raw)
            return sf.map_from_arrays(sf.map_keys(read), converted), failing
        case DecimalType() if texts is not None:
            value = sf.when(texts.isNull(), read).otherwise(parse(unmarked(texts), kind, raw))
        case StringType() if texts is not None:
            return sf.coalesce(unmarked(texts), read), None
        case DoubleType() | FloatType() if not raw.is_on("allowNonNumericNumbers"):
            value = sf.when(sf.abs(read) != math.inf, read)
        case _ if is_text_first(kind, raw):
            value = parse(read, kind, raw)
        case _:
            return read, None
    return value, read.isNotNull() & value.isNull()


def _convert_struct(
    read: Column, texts: Column | None, wanted: StructType, raw: RawFormat
) -> tuple[Column, Column | None]:
    from pyspark.sql import functions as sf

    parts, fails = [], sf.lit(False)
    for field in wanted.fields:
        inner = None if texts is None or text_type(field.dataType) is None else texts.getField(field.name)
        value, failing = convert(read.getField(field.name), inner, field.dataType, raw)
        parts.append(value.alias(field.name))
        fails = fails if failing is None else fails | failing
    return sf.when(read.isNotNull(), sf.struct(*parts)), sf.coalesce(fails, sf.lit(False))


def _convert_items(
    read: Column, texts: Column | None, wanted: DataType, raw: RawFormat
) -> tuple[Column, Column | None]:
    """The values of an array, and whether one of them fails."""
    from pyspark.sql import functions as sf

    def value_of(one: Column, text: Column | None) -> Column:
        return convert(one, text, wanted, raw)[0]

    def fails_of(one: Column, text: Column | None) -> Column:
        failing = convert(one, text, wanted, raw)[1]
        return sf.lit(False) if failing is None else sf.coalesce(failing, sf.lit(False))

    plain = sf.transform(read, lambda one: value_of(one, None)), sf.exists(read, lambda one: fails_of(one, None))
    if texts is None:
        return plain
    values = sf.zip_with(read, texts, value_of)
    fails = sf.exists(sf.zip_with(read, texts, fails_of), lambda one: one)
    return sf.when(texts.isNull(), plain[0]).otherwise(values), sf.when(texts.isNull(), plain[1]).otherwise(fails)


def unmarked(text: Column) -> Column:
    """A text without the marks of numbers; where it is JSON, numbers are numbers again."""
    from pyspark.sql import functions as sf

    for old in (_MARK, _MARKED, _MARKED[1:] + '"'):
        text = sf.replace(text, sf.lit(old), sf.lit(""))
    return text


def _is_plain(wanted: DataType, raw: RawFormat) -> bool:
    """Say if Spark changes no value of this type, so that `convert` has nothing to do."""
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, MapType, StructType

    match wanted:
        case StructType():
            return all(_is_plain(field.dataType, raw) for field in wanted.fields)
        case ArrayType():
            return _is_plain(wanted.elementType, raw)
        case MapType():
            return _is_plain(wanted.valueType, raw)
        case DoubleType() | FloatType():
            return False
        case _:
            return text_type(wanted) is None and not is_text_first(wanted.simpleString(), raw)


def _names(wanted: StructType) -> tuple[dict[str, int], set[str]]:
    """Names of DECIMAL columns with their least scale, and of other columns whose numbers are needed as text."""
    from pyspark.sql.types import DecimalType, StructType

    scales: dict[str, int] = {}
    texts: set[str] = set()
    for field in wanted.fields:
        if isinstance(field.dataType, DecimalType):
            scales[field.name] = min(field.dataType.scale, scales.get(field.name, 38))
        elif text_type(field.dataType) is not None:
            texts.add(field.name)
        inner: object = field.dataType
        while inner is not None and not isinstance(inner, StructType):
            inner = getattr(inner, "elementType", getattr(inner, "valueType", None))
        if inner is not None:
            deeper = _names(inner)
            scales |= {name: min(scale, scales.get(name, 38)) for name, scale in deeper[0].items()}
            texts |= deeper[1]
    return scales, texts


def _field(name: str, kind: DataType) -> StructField:
    from pyspark.sql.types import StructField

    return StructField(name, kind)
