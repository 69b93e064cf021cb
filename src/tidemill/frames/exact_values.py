"""Values of CSV and JSON, read so that each one is unchanged or found to be bad.

Spark's parsers change values in silence (tried, 4.3): 1.239 in a DECIMAL(10,2) is rounded, `1,5` is 15, 1e400 is
infinity, `10:30` is a time of today, a seventh digit of a second is cut, and `2021` is the first of January. So such
columns are read as text, and `parse` takes a text only if the value of the type is exactly what the text says. A DOUBLE
or FLOAT holds the nearest number, by definition; a number beyond its range has none.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from tidemill.frames.jvm import jvm_of
from tidemill.shapes.formats import FileFormat, RawFormat

if TYPE_CHECKING:
    from pyspark.sql import Column

_NUMBER: Final = r"\A[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\z"
# Of too few digits to be infinite.
_USUAL: Final = r"\A[+-]?[0-9]{1,30}(?:\.[0-9]*)?\z"
_PARTS: Final = r"\A[+-]?([0-9]*)\.?([0-9]*)[eE]([+-]?[0-9]+)\z"
_DATE: Final = r"[+-]?[0-9]{4,7}-[0-9]{1,2}-[0-9]{1,2}"
_TIME: Final = r"[T ][0-9]{1,2}(?::[0-9]{1,2}(?::[0-9]{1,2}(?:\.[0-9]{1,6}0*)?)?)?"
_ZONE: Final = r" ?[A-Za-z+-][A-Za-z0-9_/:+-]*"
_FORMATS: Final = {"date": "dateFormat", "timestamp": "timestampFormat", "timestamp_ntz": "timestampNTZFormat"}
"""Options that say how values look; with one of them Spark takes no other text (tried)."""


def is_text_first(kind: str, raw: RawFormat) -> bool:
    """Say if Spark reads a column of this type as text, which `parse` then turns into values."""
    if kind in _FORMATS:
        return _FORMATS[kind] not in raw.options
    return raw.format is FileFormat.CSV and kind.startswith(("decimal", "double", "float"))


def parse(text: Column, kind: str, raw: RawFormat) -> Column:
    """The value that a text says, null if it is no value of type `kind` or not exactly one."""
    from pyspark.sql import functions as sf

    if kind.startswith("decimal"):
        return _parse_decimal(_in_plain_digits(text, raw), kind)
    if kind in {"double", "float"}:
        value = text.try_cast(kind)
        finite = sf.when(text.rlike(_USUAL), value).when(text.rlike(_NUMBER) & (sf.abs(value) != math.inf), value)
        return finite.when(text.isin(*_named_floats(raw)), _named_float(text, raw).cast(kind))
    if kind == "date":
        return sf.when(text.rlike(rf"\A{_DATE}\z"), text.try_cast("date"))
    zone = "" if kind == "timestamp_ntz" else f"(?:{_ZONE})?"
    read = text
    if kind == "timestamp" and (own := raw.options.get("timeZone")):
        # A cast knows the zone of the session only.
        whole = sf.when(text.rlike(rf"\A{_DATE}\z"), sf.concat(text, sf.lit(" 00:00:00"))).otherwise(text)
        read = sf.when(text.rlike(rf"\A{_DATE}(?:{_TIME})?\z"), sf.concat(whole, sf.lit(f" {own}"))).otherwise(text)
    return sf.when(text.rlike(rf"\A{_DATE}(?:{_TIME}{zone})?\z"), read.try_cast(kind))


def _parse_decimal(text: Column, kind: str) -> Column:
    """The number with all its digits; zeros behind the last place, and exponents, change nothing."""
    from pyspark.sql import functions as sf

    scale = int(kind.rstrip(")").rpartition(",")[2])
    whole, fraction, power = (sf.regexp_extract(text, _PARTS, place) for place in (1, 2, 3))
    digits = sf.concat(whole, fraction)
    meant = sf.regexp_replace(digits, "0+$", "")
    places = sf.length(fraction) - (sf.length(digits) - sf.length(meant)) - power.try_cast("int")
    fits = text.rlike(_PARTS) & text.rlike(_NUMBER) & ((meant == "") | (places <= scale))
    value = text.try_cast(kind)
    return sf.when(text.rlike(rf"\A[+-]?[0-9]*(?:\.[0-9]{{0,{scale}}}0*)?\z"), value).when(fits, value)


def _in_plain_digits(text: Column, raw: RawFormat) -> Column:
    """A number of CSV with a point before its fraction, and no marks between thousands, as the locale has them."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf

    session = SparkSession.getActiveSession()
    if raw.format is not FileFormat.CSV or "locale" not in raw.options or session is None:
        return text
    java = jvm_of(session).java
    symbols = java.text.DecimalFormatSymbols.getInstance(java.util.Locale.forLanguageTag(raw.options["locale"]))
    point, group = str(symbols.getDecimalSeparator()), str(symbols.getGroupingSeparator())
    grouped = rf"\A[+-]?[0-9]{{1,3}}(?:{re.escape(group)}[0-9]{{3}})+(?:{re.escape(point)}[0-9]*)?\z"
    ungrouped = sf.when(text.rlike(grouped), sf.replace(text, sf.lit(group), sf.lit(""))).otherwise(text)
    return ungrouped if point == "." else sf.translate(ungrouped, f"{point}.", f".{point}")


def _named_floats(raw: RawFormat) -> list[str]:
    own = [raw.options.get(*pair) for pair in (("nanValue", "NaN"), ("positiveInf", "Inf"), ("negativeInf", "-Inf"))]
    return [*map(str, own), "Infinity", "+Infinity", "-Infinity"]


def _named_float(text: Column, raw: RawFormat) -> Column:
    from pyspark.sql import functions as sf

    nan, above, below, *_ = _named_floats(raw)
    return (
        sf.when(text == nan, sf.lit(math.nan))
        .when(text.isin(below, "-Infinity"), sf.lit(-math.inf))
        .when(text.isin(above, "Infinity", "+Infinity"), sf.lit(math.inf))
    )
