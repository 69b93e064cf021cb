"""Columns of a file set through time: what rows with other columns make of them, under the policy `evolve`.

Decisions over Spark's JSON for a struct, without Spark. A file set's columns only ever grow: all that was written
under earlier ones can be read under later ones, with null where a file lacks a column (tests/lake/test_evolve.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidemill.lake.fileset.fileset import ColumnSchema

_WIDER: Final = (("byte", "short", "integer", "long"), ("float", "double"))
"""Types each of whose values the next one holds, and which Spark reads as the next from every format."""

_SAME_IN_ORC: Final = {("timestamp", "timestamp_ntz"), ("timestamp_ntz", "long")}
"""Types of a column as declared, and as pyarrow sees the column in an ORC file of Spark."""


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


def as_orc(declared: ColumnSchema, offered: ColumnSchema) -> ColumnSchema:
    """Return the columns that an ORC file offers, with the times that `declared` says.

    ORC has one type of timestamp, and Spark keeps TIMESTAMP_NTZ in it as a number. The types that Spark means are in
    attributes that pyarrow does not read.
    """
    wanted = declared.types
    fields = [
        {**field, "type": wanted[field["name"]]}
        if (wanted.get(field["name"]), field["type"]) in _SAME_IN_ORC
        else field
        for field in _fields(offered)
    ]
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
