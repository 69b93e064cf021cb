"""Partitions and Spark: data frames into the directory of a write call, and manifests into data frames.

What Spark leaves in a directory is not trusted blindly: with a task that died after closing its file a directory read
1,250 rows of 1,000 (tried). So a write is one Spark job, committed by the algorithm that publishes only what the
winning task attempts wrote; its directory is listed once, and the rows in the files' footers must be as many as the job
counted. A read takes exactly the files that the manifests name.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from tidemill.errors import Unavailable, UserError
from tidemill.lake.file_claims import ClaimedFile
from tidemill.lake.fileset import ColumnSchema, Fileset, Partition, check_partitions
from tidemill.lake.formats import FileFormat, RawFormat
from tidemill.lake.inbox import Inbox
from tidemill.lake.keys import BadKey, Key, KeyField, KeyType
from tidemill.lake.manifest import Manifest, checksum, group_by_partition, list_written
from tidemill.lake.publish import SchemaChanged
from tidemill.storage.files import Files, open_files
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

_UTC: Final = {"timeZone": "UTC"}
"""For instants in directory names; the time zone of a session has local times that happen twice a year, or never."""
_COMMITTER: Final = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_STRICT: Final = {
    # A flipped byte in uncompressed or zstd Parquet reads silently wrong without it (no measurable cost: tried).
    "parquet.page.verify-checksum.enabled": "true",
}
PINNED: Final[Mapping[str, str]] = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Spark lists 32 paths and more in a job of its own: 1,000 files took 2.6 to 4.7 s instead of 0.57 (tried).
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    **{f"spark.hadoop.{name}": value for name, value in (_COMMITTER | _STRICT).items()},
}
"""Settings of every Spark session that reads or writes data sets, whatever a site sets; our own reads and writes repeat
them as options, since a program may change its session."""

_reads = itertools.count()  # numbers the reads of this process
_WAIT_FOR_COUNT_S: Final = 60
_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_TAKEN: Final[Mapping[KeyType, tuple[str, ...]]] = {
    KeyType.STRING: ("string",),
    KeyType.INT: _INTEGERS[:3],
    KeyType.LONG: _INTEGERS,
    KeyType.DATE: ("date",),
    KeyType.TIMESTAMP: ("timestamp",),
}
"""Which column types fill a key field without loss, as Spark's short names."""


class BadFrame(UserError):
    """A data frame that cannot be written into a file set."""

    code = "bad_frame"

    def __init__(self, dataset: str, why: str) -> None:
        self.dataset = dataset
        self.why = why
        super().__init__(f"this data frame cannot be written to {dataset}: {why}")


class RowsDiffer(Unavailable):
    """What lies in a directory is not what its job wrote: the attempt fails, another one may succeed."""

    code = "rows_differ"

    def __init__(self, dataset: str, directory: str, written: int | None, found: int) -> None:
        self.dataset = dataset
        self.directory = directory
        self.written = written
        self.found = found
        wrote = "did not say how many rows it wrote" if written is None else f"wrote {written} rows"
        super().__init__(
            f"the Spark job for {dataset} {wrote}, and {directory} has {found}; nothing of it is published"
        )


@dataclass(frozen=True, slots=True)
class PartitionWrites:
    """What one write call left: manifests by key, and the columns in their files."""

    manifests: Mapping[Key, Manifest]
    schema: ColumnSchema


def write_partitions(
    world: World, rows: DataFrame, fileset: Fileset, directory: str, columns: ColumnSchema | None = None
) -> PartitionWrites:
    """Write `rows` below `directory` (`tx=…/<n>`, new) of the file set, one Spark job for all partitions.

    `columns` are those the file set has, if any; the rows' columns are put into their order. Raises `BadKey` for a key
    column that is missing, of another type, null or empty in a row; `BadFrame`; `SchemaChanged`; `RowsDiffer`;
    `BadLocation`. Cost: the plain `DataFrame.write.partitionBy`, one listing, and a look at each file for its footer
    and its checksum.
    """
    files = open_files(fileset.dataset.location, world)
    files.prepare()
    frame, schema = _arrange(rows, fileset, columns)
    written = _write(frame, fileset, f"{_root(files)}/{directory}")
    found = list_written(files, directory)
    counts = {status.name: _count_rows(files, status.name) for status in found}
    if written != sum(counts.values()):
        raise RowsDiffer(fileset.qualified_name, directory, written, sum(counts.values()))
    checksums = {status.name: checksum(files, status.name) for status in found}
    return PartitionWrites(group_by_partition(fileset.keys, directory, found, counts, checksums), schema)


def read_partitions(
    world: World,
    spark: SparkSession,
    fileset: Fileset,
    partitions: Sequence[Partition],
    columns: ColumnSchema | None,
) -> DataFrame:
    """The rows of these partitions: the file set's `columns`, then those of the key, typed as the file set says.

    No partitions give an empty frame of the same columns; before the first commit (`columns` None) only the key's are
    known. Raises `DamagedFiles` when a file is gone or not what was written. Cost: a stat a file, then Spark's own.
    Spark reads when an action comes: what happens to the files until then is seen by `check_partitions` after it.
    """
    schema = _read_schema(fileset, columns)
    if not any(partition.files for partition in partitions):
        return spark.createDataFrame([], schema)
    check_partitions(world, fileset, partitions)
    root = _root(open_files(fileset.dataset.location, world))
    options = {
        **_UTC,
        **_STRICT,
        "basePath": root,
        # Between the base and the keys lie the directories of the transactions, which are no columns.
        "ignoreInvalidPartitionPaths": "true",
        "ignoreCorruptFiles": "false",
        "ignoreMissingFiles": "false",
        "mergeSchema": "false",
    }
    names = [_escaped(f"{root}/{name}") for partition in partitions for name, _ in partition.files]
    return spark.read.schema(schema).options(**options).parquet(*names)


def read_files(world: World, spark: SparkSession, inbox: Inbox, files: Sequence[ClaimedFile]) -> DataFrame:
    """The rows of these files of an inbox, each once, in no order; strict: what is wrong with a file fails the job.

    An action over all rows parses each column of each row, whatever it asks for. Spark's own FAILFAST does so only for
    the columns in use and the rows that a filter leaves: `count()` took a line with `x` for a number, a filter even a
    line cut short (tried). The error names the file (`formats.blame`); with columns inferred, it may name none. An
    empty file has no rows. `_metadata.file_path` is there, as for any file of Spark's.
    """
    raw = inbox.spec.format
    held = [file for file in files if file.bytes > 0]
    if not held:
        return spark.createDataFrame([], _raw_schema(raw))
    root = _root(inbox.files(world))
    reader = spark.read.format(raw.format).options(**_raw_options(raw))
    if raw.schema is not None:
        reader = reader.schema(raw.schema)
    frame = reader.load([_escaped(f"{root}/{file.name}") for file in held])
    if raw.format not in {FileFormat.CSV, FileFormat.JSON}:
        return frame  # a column of Parquet that is not in use is not read, and cannot be misread
    from pyspark.sql import functions as sf

    # Who counts all columns needs them parsed, and no filter gets below it. The name is this read's own: two frames
    # in one query may not share it.
    every = [sf.count(_quoted(column)).alias(column) for column in frame.columns]
    return frame.observe(f"tidemill read {next(_reads)}", *every)


def _raw_options(raw: RawFormat) -> dict[str, str]:
    strict = {
        "mode": "FAILFAST",
        "ignoreCorruptFiles": "false",
        "ignoreMissingFiles": "false",
        "recursiveFileLookup": "false",
        "mergeSchema": "false",
        # Hadoop's checksums know no name with a colon (`10:30.csv`), and trust a `.crc` beside a file of others.
        "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        "fs.file.impl.disable.cache": "true",
    }
    if raw.format is FileFormat.CSV:
        strict |= {"header": "true", "enforceSchema": "false", "columnPruning": "false", "encoding": "UTF-8"}
    if raw.format is FileFormat.JSON:
        strict |= {"encoding": "UTF-8"}
    return {**strict, **_STRICT, **raw.options}


def _raw_schema(raw: RawFormat) -> StructType | str:
    """The columns of no files."""
    from pyspark.sql.types import StructType

    if raw.format is FileFormat.TEXT:
        return "value STRING"
    return raw.schema or StructType()


def _escaped(path: str) -> str:
    # Spark takes these for patterns. Told not to (`__globPaths__`), it reads every other path of the list once more
    # for each path that holds one (tried, 4.3).
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _write(frame: DataFrame, fileset: Fileset, target: str) -> int | None:
    """Run the job and give the rows that it counted."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    # On top of the plan, so in the tasks that write: Spark counts each of them once, when it has succeeded, however
    # often it was tried (tests/lake/test_spark.py fails and doubles them).
    counted = Observation()
    observed = frame.observe(counted, sf.count(sf.lit(1)).alias("rows"))
    observed.write.partitionBy(*fileset.keys.names).options(**_UTC, **_COMMITTER).parquet(target)
    return _observed(frame.sparkSession, counted)


def _observed(spark: SparkSession, counted: Any) -> int | None:  # noqa: ANN401  # the JVM's side of PySpark has no types
    """The count of an observation; None if Spark's event with it was lost: `Observation.get` would wait for ever."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm = cast("Any", spark)._jvm  # noqa: SLF001  # PySpark has no other way to wait with an end
    patience = jvm.scala.concurrent.duration.Duration.apply(_WAIT_FOR_COUNT_S, "s")
    try:
        jvm.scala.concurrent.Await.ready(counted._jo.future(), patience)  # noqa: SLF001  # as above
    except Py4JJavaError:
        return None
    return int(counted.get["rows"])


def _arrange(rows: DataFrame, fileset: Fileset, columns: ColumnSchema | None) -> tuple[DataFrame, ColumnSchema]:
    """Columns in the order of the file set, then the key's, cast to its types."""
    name = fileset.qualified_name
    if len({column.lower() for column in rows.columns}) != len(rows.columns):
        raise BadFrame(name, f"two of its columns have one name: {', '.join(rows.columns)}")
    keys = [_key_column(rows, field) for field in fileset.keys.fields]
    key_names = {key.lower() for key in fileset.keys.names}
    fields = {field.name: field for field in rows.schema.fields if field.name.lower() not in key_names}
    if not fields:
        raise BadFrame(name, "it has no column beside those of the key")
    offered = _column_schema([field.jsonValue() for field in fields.values()])
    if columns is not None:
        wanted = [field["name"] for field in json.loads(columns.text)["fields"]]
        if set(wanted) == set(fields):
            fields = {column: fields[column] for column in wanted}
            offered = _column_schema([field.jsonValue() for field in fields.values()])
        if offered != columns:
            raise SchemaChanged(name, columns.text, offered.text)
    return rows.select(*[_quoted(column) for column in fields], *keys), offered


def _key_column(rows: DataFrame, field: KeyField) -> Column:
    from pyspark.sql import functions as sf

    types = {column.lower(): (column, column_type) for column, column_type in rows.dtypes}
    if field.name.lower() not in types:
        raise BadKey(field.name, f"is no column of the data frame, which has {', '.join(rows.columns)}")
    column, column_type = types[field.name.lower()]
    if column_type not in _TAKEN[field.type]:
        raise BadKey(
            field.name, f"is a column of type {column_type}; {field.type} is wanted: cast it where you make it"
        )
    return sf.col(_quoted(column)).cast(_spark_type(field)).alias(field.name)


def _spark_type(field: KeyField) -> str:
    return "integer" if field.type is KeyType.INT else field.type.value


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


def _column_schema(fields: Sequence[Mapping[str, Any]]) -> ColumnSchema:
    plain = _plain({"type": "struct", "fields": list(fields)})
    return ColumnSchema(json.dumps(plain, separators=(",", ":"), sort_keys=True, ensure_ascii=False))


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


def _read_schema(fileset: Fileset, columns: ColumnSchema | None) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType.fromJson(json.loads(columns.text)) if columns else StructType()
    for field in fileset.keys.fields:
        schema = schema.add(field.name, _spark_type(field))
    return schema


def _count_rows(files: Files, name: str) -> int:
    from pyarrow import parquet  # type: ignore[import-untyped]

    return int(parquet.read_metadata(files.local_path(name)).num_rows)


def _root(files: Files) -> str:
    # Hadoop takes a path as it stands: in a URL it would look for a folder with `%20` in its name.
    local = files.local_path()
    return files.url if local is None else f"file://{local}"
