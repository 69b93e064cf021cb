"""Data frames as file sets take and give them: which columns, in which order, under which types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidemill.errors import UserError
from tidemill.lake.fileset.columns import column_schema, with_int96
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset
from tidemill.lake.fileset.publish import reconcile
from tidemill.shapes.formats import BadFormat, FileFormat
from tidemill.shapes.keys import BadKey, KeyField, KeyType
from tidemill.storage.files import Files
from tidemill.storage.seekable import open_seekable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField, StructType

_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
TAKEN: Final[Mapping[KeyType, tuple[str, ...]]] = {
    KeyType.STRING: ("string",),
    KeyType.INT: _INTEGERS[:3],
    KeyType.LONG: _INTEGERS,
    KeyType.DATE: ("date",),
    KeyType.TIMESTAMP: ("timestamp",),
}
"""The column types that fill a key field without loss, by Spark's short names; the last is the field's own."""
_SPARK_SCHEMA: Final = b"org.apache.spark.sql.parquet.row.metadata"


class BadFrame(UserError):
    """A data frame that cannot be written into a file set."""

    code = "bad_frame"
    hint = "correct the data frame as the reason says, and run again"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        self.why = why
        super().__init__(f"this data frame cannot be written to {dataset}: {why}")


def arrange(rows: DataFrame, fileset: Fileset, columns: ColumnSchema | None) -> tuple[DataFrame, ColumnSchema]:
    """Columns in the order of the file set, then the key's, cast to its types; and the columns that it has with them.

    Under the policy `evolve` these may be more and wider than `columns`; the rows get all of them. Raises `BadKey`,
    `BadFrame`, `SchemaChanged`.
    """
    name = fileset.qualified_name
    if not hasattr(rows, "sparkSession"):
        made = "a program of `@app.spark` makes one by `spark.createDataFrame`"
        raise BadFrame(name, f"it is a {type(rows).__name__}, not a DataFrame of Spark: {made}")
    if len({column.lower() for column in rows.columns}) != len(rows.columns):
        raise BadFrame(name, f"two of its columns have one name: {', '.join(rows.columns)}")
    keys = [(field, _find_key(rows, field)) for field in fileset.keys.fields]
    key_names = {key.lower() for key in fileset.keys.names}
    fields = {field.name: field for field in rows.schema.fields if field.name.lower() not in key_names}
    if not fields:
        raise BadFrame(name, "it has no column beside those of the key")
    if fileset.storing.format is FileFormat.TEXT and [f.dataType.simpleString() for f in fields.values()] != ["string"]:
        raise BadFrame(name, f"a text file holds one column, a string, beside the key; it has {', '.join(fields)}")
    offered = column_schema([field.jsonValue() for field in fields.values()])
    wanted = reconcile(fileset, columns, offered)
    if _is_arranged(rows, fileset, wanted):
        return rows, wanted
    return rows.select(*_select(wanted, fields), *(_key_column(field, column) for field, column in keys)), wanted


def look_into(files: Files, name: str, file_format: FileFormat) -> tuple[int, ColumnSchema]:
    """Return the rows and the columns of a Parquet or ORC file for a file set, as its footer says.

    The columns are for `as_stored`. Raises `BadFormat` for times in nanoseconds in Parquet, which Spark does not read.
    """
    footer = _read_footer(files, name, file_format)
    if file_format is FileFormat.ORC:
        return int(footer.nrows), _columns_of(footer)
    columns = [footer.schema.column(place) for place in range(footer.num_columns)]
    for column in columns:
        if json.loads(column.logical_type.to_json()).get("timeUnit") == "nanoseconds":
            cure = "write microseconds, in pandas and pyarrow by coerce_timestamps='us'"
            raise BadFormat(file_format, f"column {column.path} has nanoseconds, which Spark does not read: {cure}")
    found = _columns_of(footer)
    if _SPARK_SCHEMA not in (footer.metadata or {}):
        found = with_int96(found, [column.path for column in columns if column.physical_type == "INT96"])
    return int(footer.num_rows), found


def columns_in(files: Files, name: str, file_format: FileFormat) -> ColumnSchema:
    """Return the columns of a Parquet or ORC file, as its footer says."""
    return _columns_of(_read_footer(files, name, file_format))


def _read_footer(files: Files, name: str, file_format: FileFormat) -> Any:  # noqa: ANN401  # pyarrow has no types
    from pyarrow import orc, parquet  # type: ignore[import-untyped]

    content = open_seekable(files, name)
    return orc.ORCFile(content) if file_format is FileFormat.ORC else parquet.read_metadata(content)


def _columns_of(footer: Any) -> ColumnSchema:  # noqa: ANN401  # as above
    """Return the columns as Spark reads them; of a file that Spark wrote, those that Spark meant."""
    from pyarrow import Schema
    from pyspark.sql.pandas.types import from_arrow_schema

    if isinstance(footer.schema, Schema):
        meant = from_arrow_schema(footer.schema, prefer_timestamp_ntz=False)  # of ORC: all its times are instants
    elif text := (footer.metadata or {}).get(_SPARK_SCHEMA):
        return column_schema(json.loads(text)["fields"])
    else:
        meant = from_arrow_schema(footer.schema.to_arrow_schema(), prefer_timestamp_ntz=True)
    return column_schema([field.jsonValue() for field in meant.fields])


def needs_value(frame: DataFrame, fileset: Fileset) -> str | None:
    """The column of an arranged frame in which null looks like no row; None if there is none.

    A line of text is its only column; a line of CSV with one column would be empty, and is skipped.
    """
    columns = [column for column in frame.columns if column not in fileset.keys.names]
    lines = fileset.storing.format in {FileFormat.CSV, FileFormat.TEXT}
    return columns[0] if lines and len(columns) == 1 else None


def _is_arranged(rows: DataFrame, fileset: Fileset, wanted: ColumnSchema) -> bool:
    """Return whether `rows` have the wanted columns already: to select them costs some 100 calls into the JVM."""
    present = rows.schema.fields
    columns = [(field.name, field.dataType) for field in columns_as_struct(wanted).fields]
    keys = [(field.name, TAKEN[field.type][-1]) for field in fileset.keys.fields]
    return (
        [(field.name, field.dataType) for field in present[: len(columns)]] == columns
        and [(field.name, field.dataType.simpleString()) for field in present[len(columns) :]] == keys
        and not any(field.metadata for field in present)
    )


def _select(wanted: ColumnSchema, present: Mapping[str, StructField]) -> list[Column]:
    """The wanted columns. Each call on a column costs a call into the JVM or several: a cast only where it is due."""
    from pyspark.sql import functions as sf

    columns = []
    for field in columns_as_struct(wanted).fields:
        given = present.get(field.name)
        column = sf.lit(None) if given is None else sf.col(quoted(field.name))
        as_it_is = given is not None and given.dataType == field.dataType and not given.metadata
        columns.append(column if as_it_is else column.cast(field.dataType).alias(field.name))
    return columns


def _key_column(field: KeyField, column: str) -> Column:
    from pyspark.sql import functions as sf

    return sf.col(quoted(column)).cast(_spark_type(field)).alias(field.name)


def _find_key(rows: DataFrame, field: KeyField) -> str:
    """Return the column of `rows` that fills a key field; `BadKey` if none does."""
    types = {column.lower(): (column, column_type) for column, column_type in rows.dtypes}
    if field.name.lower() not in types:
        raise BadKey(field.name, f"is no column of the data frame, which has {', '.join(rows.columns)}")
    column, column_type = types[field.name.lower()]
    if column_type not in TAKEN[field.type]:
        raise BadKey(
            field.name, f"is a column of type {column_type}; {field.type} is wanted: cast it where you make it"
        )
    return column


def _spark_type(field: KeyField) -> str:
    return "integer" if field.type is KeyType.INT else field.type.value


def quoted(column: str) -> str:
    """A column's name as SQL wants it."""
    return "`" + column.replace("`", "``") + "`"


def columns_as_struct(columns: ColumnSchema) -> StructType:
    """Columns as Spark takes them."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(columns.text))


def read_schema(fileset: Fileset, columns: ColumnSchema | None) -> StructType:
    """The columns of a read: the file set's, then the key's."""
    from pyspark.sql.types import StructType

    schema = columns_as_struct(columns) if columns else StructType()
    for field in fileset.keys.fields:
        schema = schema.add(field.name, _spark_type(field))
    return schema
