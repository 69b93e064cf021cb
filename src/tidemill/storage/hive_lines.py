"""Lines of Hive's tables in text and JSON: the delimiters that a table names, and the lines that only Hive can read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemill.json_specs import sparse

_NESTED: Final = ("array<", "map<", "struct<", "uniontype<", "binary")
_USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "line.delim": ("\n", "10"),
    "serialization.encoding": ("utf-8", "utf8"),
    "serialization.last.column.takes.rest": ("false",),
    "hive.lazysimple.extended_boolean_literal": ("false",),
    "skip.header.line.count": ("0",),
    "skip.footer.line.count": ("0",),
}
"""Properties that change what a line means, each with the values that do not."""
_USUAL_JSON: Final[Mapping[str, tuple[str, ...]]] = {
    "serialization.encoding": ("utf-8", "utf8"),
    "ignore.malformed.json": ("false",),
    "case.insensitive": ("true",),
    "dots.in.keys": ("false",),
}
"""The same of JSON, for Hive's own class and for `org.openx.data.jsonserde.JsonSerDe`, which many tables have."""


@sparse
@dataclass(frozen=True, slots=True)
class HiveLines:
    """Delimiters of a Hive table in text, as its class `LazySimpleSerDe` has them.

    `null` is the text of a value that is missing. `escape` is the character before a delimiter that belongs to a value;
    empty without one.
    """

    field: str = "\x01"
    null: str = "\\N"
    escape: str = ""

    def __str__(self) -> str:
        escape = f", escape {self.escape!r}" if self.escape else ""
        return f"{self.field!r} with NULL as {self.null!r}{escape}"

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> HiveLines:
        """Return the delimiters that these properties name."""
        field = properties.get("field.delim", properties.get("serialization.format", ""))
        escape = properties.get("escape.delim")
        return cls(
            _character(field, "\x01"),
            properties.get("serialization.null.format", "\\N"),
            "" if escape is None else _character(escape, "\\"),
        )


def why_not_lines(properties: Mapping[str, str], columns: Mapping[str, str]) -> str:
    """Return why the lines of a table mean something that only Hive knows, and a cure; empty if they do not.

    `columns` are Hive's types by name.
    """
    if why := _find_unusual(properties, _USUAL):
        return why
    for name, kind in columns.items():
        if kind.lower().startswith(_NESTED):
            return f"its column {name} is of type {kind}, which has no one text: store the table AS PARQUET or ORC"
    if not HiveLines.of(properties).field.isascii():
        return "its field delimiter is no ASCII character: choose another one"
    return ""


def why_not_json(properties: Mapping[str, str]) -> str:
    """Return why the JSON of a table means something that only Hive knows, and a cure; empty if it does not."""
    if mapped := next((name for name in sorted(properties) if name.startswith("mapping.")), ""):
        return f"its property '{mapped}'='{properties[mapped]}' is not supported: name the column as the field of JSON"
    return _find_unusual(properties, _USUAL_JSON)


def _find_unusual(properties: Mapping[str, str], usual: Mapping[str, tuple[str, ...]]) -> str:
    for name, values in usual.items():
        given = properties.get(name, values[0])
        if given.lower() not in values:
            return f"its property '{name}'='{given}' is not supported: write the files without the need for it"
    if formats := properties.get("timestamp.formats"):
        return f"its property 'timestamp.formats'='{formats}' is not supported: write times as 2021-03-19 10:05:00"
    return ""


def _character(text: str, usual: str) -> str:
    """Return the character of a delimiter. Hive takes a number for the code of one, and reads only the first letter."""
    if text.removeprefix("-").isdecimal() and -128 <= int(text) <= 127:
        return chr(int(text) % 256)
    return text[:1] or usual
