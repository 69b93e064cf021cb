"""Added columns (`unknown="evolve"`): columns of one run, made of fields that the schema of its inbox does not name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tidemill.frames.raw_rows import BAD, RawFiles, parsing_options, read_texts
from tidemill.frames.schema import columns_as_struct, columns_in, quoted
from tidemill.frames.spark import spark_errors
from tidemill.lake.fileset.columns import column_schema, evolve
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import Inbox
from tidemill.shapes.contents import read_header
from tidemill.shapes.formats import FileFormat, Unknown, column_names, columns_of
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructField

    from tidemill.lake.fileset.fileset import ColumnSchema

_NOT_FINITE = r"[+-]?\b(?:NaN|INF|Infinity)\b"


@dataclass(frozen=True, slots=True)
class AddedColumns:
    """The added columns of a batch of files, and the files whose fields do not fit the columns of earlier files."""

    types: Mapping[str, str]
    """DDL types by name, in the order of the columns."""
    refused: Mapping[ClaimedFile, str]

    def extend(self, inbox: Inbox) -> Inbox:
        """Return the inbox with these columns in its schema."""
        raw = inbox.spec.format
        others = [f"{quoted(name)} {kind}" for name, kind in self.types.items()]
        # All fields of JSON have a column now; a field without one makes its row bad.
        unknown = Unknown.FAIL if raw.format is FileFormat.JSON else raw.unknown
        extended = replace(raw, schema=", ".join([raw.schema or "", *others]), unknown=unknown)
        return replace(inbox, spec=replace(inbox.spec, format=extended))


def add_columns(world: World, spark: SparkSession, inbox: Inbox, claimed: Sequence[ClaimedFile]) -> AddedColumns:
    """Return the columns that these files of an inbox add to its schema; the order of `claimed` counts.

    Types come from the footers of Parquet and ORC, and are wide enough for all files. Spark infers the types of JSON. A
    column of CSV is STRING. Cost: a Spark job over all JSON files; otherwise the beginning or the end of each file.
    """
    source = RawFiles.of(world, spark, inbox, claimed)
    if not source.claimed:
        return AddedColumns({}, {})
    return _infer_json(source) if source.raw.format is FileFormat.JSON else _merge_columns(source)


def _infer_json(source: RawFiles) -> AddedColumns:
    from pyspark.sql import functions as sf

    raw = source.raw
    frame, text = read_texts(source)
    # Rows that name a field twice have no type; as a variant they are null. Such rows are bad.
    is_sound = sf.try_parse_json(sf.regexp_replace(text, _NOT_FINITE, "0")).isNotNull()
    options = parsing_options(raw) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    found = source.spark.read.options(**options).json(frame.where(is_sound).select(text)).schema
    taken = {name.lower() for name in column_names(raw.schema or "")} | {BAD}
    fields: dict[str, StructField] = {}
    for field in found.fields:
        if field.name.lower() not in taken:
            fields.setdefault(field.name.lower(), field)
    return AddedColumns(_types(list(fields.values())), {})


def _merge_columns(source: RawFiles) -> AddedColumns:
    """The columns of CSV, Parquet or ORC files that fit together; of two that do not, that of the earlier file."""
    declared = {name.lower() for name in column_names(source.raw.schema or "")}
    merged = column_schema([])
    refused: dict[ClaimedFile, str] = {}
    for file in source.claimed:
        try:
            offered = _columns_of(source, file)
        except spark_errors() as error:
            refused[file] = f"it has a column of a type that Spark does not have: {str(error)[:200]}"
            continue
        others = [field for field in columns_as_struct(offered).fields if field.name.lower() not in declared]
        wider = evolve(merged, column_schema([field.jsonValue() for field in others]))
        if wider is None:
            refused[file] = _differences(merged, others)
        else:
            merged = wider
    return AddedColumns(_types(columns_as_struct(merged).fields), refused)


def _columns_of(source: RawFiles, file: ClaimedFile) -> ColumnSchema:
    if source.raw.format is not FileFormat.CSV:
        return columns_in(source.files, file.name, source.raw.format)
    header = read_header(source.files, file.name, file.bytes, source.raw)
    return column_schema([{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in header])


def _differences(merged: ColumnSchema, others: Sequence[StructField]) -> str:
    """The sentence about the columns of a file that do not fit those of earlier files."""
    there = {field.name.lower(): field for field in columns_as_struct(merged).fields}
    whys = []
    for field in others:
        if evolve(merged, column_schema([field.jsonValue()])) is None:
            (name, kind), *_ = _types([field]).items()
            (other, other_kind), *_ = _types([there[field.name.lower()]]).items()
            whys.append(f"its column {name} {kind} does not fit the column {other} {other_kind} of other files")
    return "; ".join(whys)


def _types(fields: Sequence[StructField]) -> dict[str, str]:
    from pyspark.sql.types import StructType

    return dict(columns_of(StructType(list(fields)).toDDL())) if fields else {}
