"""Files of rows without Spark: the one writer of plain files, and the reader of what is published."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from tidemill.errors import UserError
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition
from tidemill.run.step.outputs import write_frames
from tidemill.shapes.formats import FileFormat
from tidemill.shapes.keys import Key
from tidemill.shapes.manifest import group_by_partition, list_written
from tidemill.storage.locations import open_files
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.frames.spark import PartitionWrites

LINES: Final = ColumnSchema(
    '{"type":"struct","fields":[{"name":"line","type":"string"},{"name":"ts","type":"timestamp"},'
    '{"name":"window_start","type":"timestamp"},{"name":"window_time","type":"timestamp"}]}'
)
"""The columns of lines of text, as if each line had its times: windows want a column for the time."""

_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "binary",
    Decimal: "decimal(38,18)",
    datetime: "timestamp",
    date: "date",
}
"""Spark's type for a value of Python."""


class NotPlainRows(UserError):
    """Rows that the test kit cannot write or read without Spark."""

    code = "bad_test_rows"
    hint = "run this test with Spark, or use plain rows in parquet"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        self.why = why
        super().__init__(f"the test kit cannot handle these rows of {dataset} without Spark: {why}")


def write_plain(
    world: World,
    rows: Any,
    fileset: Fileset,
    directory: str,
    columns: ColumnSchema | None = None,
) -> PartitionWrites:
    """Write rows of any kind into files of a file set: the `Writer` of tests.

    A list of dictionaries, which have the key's fields too, becomes Parquet. A mapping from partitions to lines becomes
    files of text (`write_texts`). Spark writes its own data frames.
    """
    if isinstance(rows, Mapping):
        return write_texts(world, rows, fileset, directory, columns)
    if isinstance(rows, Sequence):
        return _write_rows(world, rows, fileset, directory, columns)
    return write_frames(world, rows, fileset, directory, columns)


def write_texts(
    world: World,
    rows: Mapping[str, str | Iterable[str]] | Mapping[Key, str | Iterable[str]],
    fileset: Fileset,
    directory: str,
    columns: ColumnSchema | None = None,
) -> PartitionWrites:
    """Write a file of lines for each partition, where Spark would write Parquet.

    A partition is named by its key, by its path (`day=2026-03-01`), or by its value if the key has one field. A name is
    without effect where there is no key.
    """
    del columns
    files = open_files(fileset.dataset.location, world)
    for place, lines in rows.items():
        text = lines if isinstance(lines, str) else "".join(f"{line}\n" for line in lines)
        path = place if isinstance(place, str) and "=" in place else ""
        if fileset.keys.names and not path:
            path = fileset.keys.to_path((place,) if isinstance(place, str) else place)
        files.put("/".join(filter(None, (directory, path, "part-0.txt"))), text.encode())
    return collect_writes(world, fileset, directory, LINES)


def collect_writes(
    world: World, fileset: Fileset, directory: str, schema: ColumnSchema, rows: Mapping[Key, int] | None = None
) -> PartitionWrites:
    """Return the files that a writer has left in `directory`, by partition. Reads files of lines to count their rows.

    `rows` are the numbers of rows of other files.
    """
    from tidemill.frames.spark import PartitionWrites

    files = open_files(fileset.dataset.location, world)
    found = list_written(files, directory)
    if rows is None:
        counts = {status.name: files.read(status.name).count(b"\n") for status in found}
    else:
        by_path = {fileset.keys.to_path(key): count for key, count in rows.items()}
        prefix = f"{directory}/"
        counts = {status.name: by_path[status.name.removeprefix(prefix).rpartition("/")[0]] for status in found}
    return PartitionWrites(group_by_partition(fileset.keys, directory, found, counts), schema)


def read_lines(world: World, fileset: Fileset, partition: Partition) -> list[str]:
    """Return the lines of a partition that `write_texts` wrote."""
    files = open_files(fileset.dataset.location, world)
    return [line for name, _ in partition.files for line in files.read(name).decode().splitlines()]


def read_rows(
    world: World, fileset: Fileset, partitions: Iterable[Partition], columns: ColumnSchema | None
) -> list[dict[str, object]]:
    """Return the rows of partitions with the fields of their keys, in order of partition and file. `NotPlainRows`."""
    files = open_files(fileset.dataset.location, world)
    names = columns.names if columns else []
    found: list[dict[str, object]] = []
    for partition in partitions:
        key = dict(zip(fileset.keys.names, fileset.keys.decode(partition.partition_key), strict=True))
        for name, _ in partition.files:
            rows = _parse(fileset, name, files.read(name))
            found += [{**{column: row.get(column) for column in names}, **key} for row in rows]
    return found


def _write_rows(
    world: World,
    rows: Sequence[Mapping[str, Any]],
    fileset: Fileset,
    directory: str,
    columns: ColumnSchema | None,
) -> PartitionWrites:
    if fileset.storing.format is not FileFormat.PARQUET:
        raise NotPlainRows(
            fileset.qualified_name, f"its format is {fileset.storing.format}, and only parquet is written"
        )
    schema = columns or _columns_of(fileset, rows)
    by_key: dict[Key, list[Mapping[str, Any]]] = {}
    for row in rows:
        missing = {*schema.names, *fileset.keys.names} ^ set(row)
        if missing:
            raise NotPlainRows(
                fileset.qualified_name, f"a row has {', '.join(row)}, which differs by {', '.join(sorted(missing))}"
            )
        key = fileset.keys.check({name: row[name] for name in fileset.keys.names})
        by_key.setdefault(key, []).append(row)
    files = open_files(fileset.dataset.location, world)
    for key, own in by_key.items():
        path = "/".join(filter(None, (directory, fileset.keys.to_path(key), "part-0.parquet")))
        files.put(path, _to_parquet(own, schema))
    return collect_writes(world, fileset, directory, schema, {key: len(own) for key, own in by_key.items()})


def _columns_of(fileset: Fileset, rows: Sequence[Mapping[str, Any]]) -> ColumnSchema:
    fields = []
    for name in rows[0] if rows else ():
        if name in fileset.keys.names:
            continue
        kinds = {type(row.get(name)) for row in rows} - {type(None)}
        if len(kinds) != 1 or (kind := kinds.pop()) not in _TYPES:
            raise NotPlainRows(
                fileset.qualified_name, f"column {name} has no one type of {', '.join(t.__name__ for t in _TYPES)}"
            )
        fields.append({"name": name, "type": _TYPES[kind], "nullable": True, "metadata": {}})
    return ColumnSchema(json.dumps({"type": "struct", "fields": fields}))


def _to_parquet(rows: Sequence[Mapping[str, Any]], schema: ColumnSchema) -> bytes:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow import parquet

    kinds = {
        "boolean": pa.bool_(), "long": pa.int64(), "integer": pa.int32(), "double": pa.float64(),
        "string": pa.string(), "binary": pa.binary(), "decimal(38,18)": pa.decimal128(38, 18),
        "timestamp": pa.timestamp("us", tz="UTC"), "date": pa.date32(),
    }  # fmt: skip
    fields = [pa.field(name, kinds[str(kind)]) for name, kind in schema.types.items()]
    target = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([dict(row) for row in rows], pa.schema(fields)), target)
    return target.getvalue()


def _parse(fileset: Fileset, name: str, content: bytes) -> list[dict[str, Any]]:
    if name.endswith(".txt"):
        return [{"line": line, "value": line} for line in content.decode().splitlines()]
    if fileset.storing.format is FileFormat.JSON:
        return [json.loads(line) for line in content.decode().splitlines()]
    if fileset.storing.format is not FileFormat.PARQUET:
        raise NotPlainRows(fileset.qualified_name, f"its format is {fileset.storing.format}; read it with Spark")
    from pyarrow import parquet

    return [
        {field: _plain(value) for field, value in row.items()}
        for row in parquet.read_table(io.BytesIO(content)).to_pylist()
    ]


def _plain(value: object) -> object:
    """A timestamp as aware in UTC, whichever name of the zone the file has."""
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
