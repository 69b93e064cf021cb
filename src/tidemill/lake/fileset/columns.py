"""Columns of a file set through time: what rows with other columns make of them, under the policy `evolve`.

Decisions over Spark's JSON for a struct, without Spark. A file set's columns only ever grow: all that was written
under earlier ones can be read under later ones, with null where a file lacks a column (tests/lake/test_evolve.py).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from tidemill.lake.fileset.fileset import ColumnSchema
from tidemill.shapes.formats import BadFormat, FileFormat

_WIDER: Final = (("byte", "short", "integer", "long"), ("float", "double"))
"""Types each of whose values the next one holds, and which Spark reads as the next from every format."""

_TIMES: Final = ("timestamp", "timestamp_ntz")
_INT96: Final = "int96"


def evolve(present: ColumnSchema, offered: ColumnSchema) -> ColumnSchema | None:
    """The columns that hold rows of both, those of `present` first; None when there are none without loss.

    New columns are added, integers and floating point numbers become as wide as the wider one. A column that
    `offered` lacks stays, and is null in its rows. Two names that differ only in case are one to Spark, so none.
    """
    fields = {field["name"]: field for field in _fields(present)}
    names = {name.lower(): name for name in fields}
    for field in _fields(offered):
        name = field["name"]
        if names.setdefault(name.lower(), name) != name:
            return None
        wider = _widest(fields.get(name, field)["type"], field["type"])
        if wider is None:
            return None
        fields[name] = {**field, "type": wider}
    return column_schema(list(fields.values()))


def column_schema(fields: Sequence[Mapping[str, Any]]) -> ColumnSchema:
    """The columns with these fields, each in Spark's JSON, as the catalog stores them: one text for one meaning."""
    plain = _plain({"type": "struct", "fields": list(fields)})
    return ColumnSchema(json.dumps(plain, separators=(",", ":"), sort_keys=True, ensure_ascii=False))


def to_fields(columns: Mapping[str, object]) -> list[dict[str, object]]:
    """Return columns, by name their types in Spark's JSON, as the fields of a struct."""
    return [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]


def are_same(one: ColumnSchema, other: ColumnSchema) -> bool:
    """Return whether both have the same columns, in any order."""
    first, second = ({field["name"]: field for field in _fields(columns)} for columns in (one, other))
    return first == second


def with_int96(offered: ColumnSchema, names: Collection[str]) -> ColumnSchema:
    """Return the columns of a Parquet file with the type of times of 96 bits for these columns. See `as_stored`."""
    return column_schema([{**one, "type": _INT96} if one["name"] in names else one for one in _fields(offered)])


def as_stored(file_format: FileFormat, present: ColumnSchema | None, offered: ColumnSchema) -> ColumnSchema:
    """Return the columns that a file offers, as the types in `present` say where those of its format say less.

    Times of 96 bits in Parquet, by Hive and Flink, do not say whether they are instants, and Spark reads them as both.
    Spark keeps TIMESTAMP_NTZ as a number in ORC, and reads the timestamp of ORC as an instant alone (`BadFormat`).
    """
    known = {} if present is None else present.types
    fields = []
    for field in _fields(offered):
        wanted, kind = known.get(field["name"]), field["type"]
        if kind == _INT96:
            kind = wanted if wanted in _TIMES else _TIMES[0]
        elif file_format is FileFormat.ORC and wanted == "timestamp_ntz":
            if kind == "timestamp":
                cure = "declare TIMESTAMP(3) WITH LOCAL TIME ZONE and 'partition.time-zone'='UTC', or write Parquet"
                why = (
                    f"column {field['name']} is a TIMESTAMP of ORC, which Spark does not read as TIMESTAMP_NTZ: {cure}"
                )
                raise BadFormat(file_format, why)
            kind = wanted if kind == "long" else kind
        fields.append({**field, "type": kind})
    return column_schema(fields)


def _fields(columns: ColumnSchema) -> list[dict[str, Any]]:
    fields: list[dict[str, Any]] = json.loads(columns.text)["fields"]
    return fields


def _widest(one: object, other: object) -> object | None:
    if one == other:
        return one
    for chain in _WIDER:
        if one in chain and other in chain:
            return max(one, other, key=chain.index)
    return None


def _plain(node: Any) -> Any:  # noqa: ANN401  # JSON
    """Without what says nothing about the files: comments, and that a column is never null, which Spark forgets."""
    forgotten = {"metadata": {}, "nullable": True, "containsNull": True, "valueContainsNull": True}
    match node:
        case dict():
            return {key: forgotten[key] if key in forgotten else _plain(value) for key, value in node.items()}
        case list():
            return [_plain(value) for value in node]
        case _:
            return node
