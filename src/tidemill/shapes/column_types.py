"""Types of columns: those of a DDL schema, those of a Parquet or ORC file, and the differences between both.

Without Spark, so that each file is compared before a program starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from tidemill.names import advise
from tidemill.shapes.formats import BadFormat, RawFormat, Unknown, columns_of, split_types

ELEMENT: Final = "[]"
VALUE: Final = "{}"
Type: TypeAlias = "str | Types"
Types: TypeAlias = Mapping[str, Type]
"""Types by name of column. A struct has the types of its fields, an array that of its `ELEMENT`, a map of its `VALUE`;
all else is Spark's short name (`bigint`, `decimal(10,2)`)."""
_MOST_NAMED: Final = 10
_ALIASES: Final = {
    "long": "bigint",
    "integer": "int",
    "short": "smallint",
    "byte": "tinyint",
    "real": "float",
    "dec": "decimal",
    "numeric": "decimal",
    "char": "string",
    "varchar": "string",
    "timestamp_ltz": "timestamp",
}
_ARROW: Final = {
    "bool": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "halffloat": "float",
    "date32[day]": "date",
    "large_string": "string",
    "large_binary": "binary",
}
_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_WIDER: Final = {
    "smallint": ("tinyint",),
    "int": ("tinyint", "smallint"),
    "bigint": ("tinyint", "smallint", "int"),
    "double": ("float", "tinyint", "smallint", "int"),
    "float": ("tinyint", "smallint"),
}
_TAKES: Final = {
    **_WIDER,
    "string": ("binary",),  # of writers that do not say which of the two it is
    "timestamp_ntz": ("timestamp", "date"),
}
_KNOWN: Final = frozenset({"boolean", "date", "binary", "timestamp", "tinyint", *_TAKES})
_NAMES: Final = frozenset(
    {"character", "geography", "geometry", "interval", "time", "variant", "void"} | {*_KNOWN, *_ALIASES, "decimal"}
)
"""The words by which Spark's DDL names types that are not nested."""
_NESTED: Final = re.compile(r"\s*(struct|array|map)\s*<(.*)>", re.IGNORECASE | re.DOTALL)


def check_types(raw: RawFormat) -> None:
    """Refuse a schema with a type that Spark does not have. `BadFormat` names the column and the nearest type.

    Only declarations are checked, so that a catalog can hold earlier ones.
    """
    for column, text in columns_of(raw.schema) if raw.schema else ():
        for name in _names_in(text):
            if name not in _NAMES:
                meant = advise(name, _NAMES, "use one of Spark's DDL, such as bigint, double, string, timestamp")
                why = f"column {column} of the schema has the type {name!r}, which is not known; {meant}"
                raise BadFormat(raw.format, why)


def _names_in(text: str) -> Iterator[str]:
    """Yield the names of the types in the text of a type, in lower case; of a map those of its keys too."""
    nested = _NESTED.match(text)
    if nested is None:
        yield re.sub(r"\W.*", "", text.lstrip(), flags=re.DOTALL).lower() or text.strip()
        return
    is_struct = nested[1].lower() == "struct"
    inner = [kind for _, kind in columns_of(nested[2])] if is_struct else split_types(nested[2])
    for kind in filter(None, inner):
        yield from _names_in(kind)


def types_in(schema: str) -> Types:
    """The columns of a DDL schema with their types, those within structs, arrays and maps included."""
    return {name: _type_of(text) for name, text in columns_of(schema)}


def _type_of(text: str) -> Type:
    nested = _NESTED.match(text)
    if nested is None:
        return plain_type(text)
    match nested[1].lower():
        case "struct":
            return types_in(nested[2])
        case "array":
            return {ELEMENT: _type_of(nested[2])}
        case _:
            return {VALUE: _type_of(split_types(nested[2])[-1])}


def plain_type(text: str) -> str:
    """Return the short name of a type that is not nested, without what follows it (`NOT NULL`)."""
    match = re.match(r"\s*(\w+)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?", text)
    if match is None:
        return text
    name = _ALIASES.get(match[1].lower(), match[1].lower())
    return f"decimal({match[2] or 10},{match[3] or 0})" if name == "decimal" else name


def types_of(arrow_schema: Any) -> Types:  # noqa: ANN401  # pyarrow has no types
    """The columns of a file with their types, from its footer."""
    return {field.name: _spark_type(field.type) for field in arrow_schema}


def find_differences(declared: Types, found: Types, unknown: Unknown) -> str | None:
    """The sentence about columns that a file lacks, that have another type, or that `unknown` does not let pass.

    Only whole columns are rescued or added, never a field within a column of the schema.
    """
    missing, others, differing = _compare(declared, found)
    whole = {name.lower() for name in found} - {name.lower() for name in declared}
    within = [name for name in others if name.lower() not in whole]
    refused = {
        Unknown.FAIL: others,
        Unknown.RESCUE: within,
        Unknown.EVOLVE: within,
        Unknown.IGNORE: [],
    }[unknown]
    return name_columns(missing, refused) or ("; ".join(differing[:_MOST_NAMED]) or None)


def name_columns(missing: list[str], unknown: list[str]) -> str | None:
    """The sentence about columns that a file lacks, and about columns that the schema does not name."""
    parts = []
    for what, names in (("it lacks {} of the schema", missing), ("the schema does not name {}", unknown)):
        if names:
            more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
            parts.append(what.format(f"the column{'s'[: len(names) > 1]} {', '.join(names[:_MOST_NAMED])}{more}"))
    return "; ".join(parts) or None


def _compare(declared: Types, found: Types, below: str = "") -> tuple[list[str], list[str], list[str]]:
    """The paths that only `declared` has, those that only `found` has, and sentences about types that differ."""
    known = {name.lower(): name for name in declared}
    there = {name.lower(): name for name in found}
    missing = [below + name for lower, name in known.items() if lower not in there]
    unknown = [below + name for lower, name in there.items() if lower not in known]
    other: list[str] = []
    for lower, name in known.items():
        if lower not in there:
            continue
        wanted, given = declared[name], found[there[lower]]
        if not isinstance(wanted, str) and not isinstance(given, str):
            deeper = _compare(wanted, given, f"{below}{name}.")
            missing, unknown, other = missing + deeper[0], unknown + deeper[1], other + deeper[2]
        elif not _holds(wanted, given):
            other.append(f"column {below}{name} is {_shown(given)} in the file, and {_shown(wanted)} in the schema")
    return missing, unknown, other


def _holds(wanted: Type, given: Type) -> bool:
    """Say if a column of type `wanted` takes each value of type `given` unchanged."""
    if wanted == given or not isinstance(wanted, str) or not isinstance(given, str):
        return wanted == given
    if wanted.startswith("decimal"):
        return widens(wanted, given)
    return wanted not in _KNOWN or given in _TAKES.get(wanted, ())


def widens(wanted: str, given: str) -> bool:
    """Return whether each value of the type `given` is one of the type `wanted`; both are Spark's short names."""
    if wanted.startswith("decimal"):
        digits, scale = _decimal(wanted)
        given_digits, given_scale = (_DIGITS[given], 0) if given in _DIGITS else _decimal(given)
        return given == "void" or (given_digits - given_scale <= digits - scale and given_scale <= scale)
    return given in {wanted, "void", *_WIDER.get(wanted, ())}


def _decimal(name: str) -> tuple[int, int]:
    match = re.fullmatch(r"decimal\((\d+),(\d+)\)", name)
    return (int(match[1]), int(match[2])) if match else (1 << 10, 1 << 10)


def _shown(type_of: Type) -> str:
    return type_of.upper() if isinstance(type_of, str) else "nested"


def _spark_type(arrow_type: Any) -> Type:  # noqa: ANN401  # as above
    from pyarrow import types  # type: ignore[import-untyped]

    if types.is_struct(arrow_type):
        return types_of(arrow_type)
    if types.is_nested(arrow_type):
        return (
            {VALUE: _spark_type(arrow_type.item_type)}
            if types.is_map(arrow_type)
            else {ELEMENT: _spark_type(arrow_type.value_type)}
        )
    if types.is_decimal(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if types.is_timestamp(arrow_type):
        return "timestamp"  # files say less of zones than schemas do
    plain = str(arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type)
    return _ARROW.get(plain, plain)
