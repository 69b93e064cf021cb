"""Partitions and Spark: data frames into the directory of a write call, and manifests into data frames.

What Spark leaves in a directory is not trusted blindly: with a task that died after closing its file a directory read
1,250 rows of 1,000 (tried). So a write is one Spark job, committed by the algorithm that publishes only what the
winning task attempts wrote; its directory is listed once, and the rows in the files' footers must be as many as the job
counted. A read takes exactly the files that the manifests name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tidemill.errors import Unavailable
from tidemill.frames.hive_rows import LINES, take_apart
from tidemill.frames.jvm import java_of, jvm_of, load_files, plans_of
from tidemill.frames.schema import BadFrame, arrange, columns_as_struct, needs_value, quoted, read_schema
from tidemill.frames.spark_way import find_way
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition, check_partitions
from tidemill.lake.fileset.stored import FILE_BYTES, measure_file, reading_options, writing_options
from tidemill.shapes.formats import FileFormat, reason
from tidemill.shapes.keys import Key
from tidemill.shapes.manifest import Manifest, group_by_partition, list_written
from tidemill.storage.files import checksums_of_job
from tidemill.storage.locations import open_files
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

_UTC: Final = {"timeZone": "UTC"}
"""For instants in directory names; the time zone of a session has local times that happen twice a year, or never."""
_COMMITTER: Final = {
    "mapreduce.fileoutputcommitter.algorithm.version": "1",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
STRICT: Final = {"parquet.page.verify-checksum.enabled": "true"}
"""Options of each read of files that others wrote."""
PINNED: Final[Mapping[str, str]] = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    # Spark lists 32 paths and more in a job of its own: 1,000 files took 2.6 to 4.7 s instead of 0.57 (tried).
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    **{f"spark.hadoop.{name}": value for name, value in (_COMMITTER | STRICT).items()},
}
"""Settings of every Spark session that reads or writes data sets, whatever a site sets. A program may change its
session, so our own reads and writes repeat the settings as options."""
USUAL: Final[Mapping[str, str]] = {
    # The usual INT96 has no least and largest time in the footer, by which windows know that no row lies outside.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings of every such session unless a site sets others."""

_WAIT_FOR_COUNT_S: Final = 60
_OPERATOR: Final = re.compile(r"^[^A-Za-z\n]*([A-Za-z]+)", re.MULTILINE)
_ANY_ROW: Final = re.compile(r"Join Left(?:Semi|Anti)$", re.MULTILINE)
"""A join that only asks whether there is any row."""
_WHOLE: Final = frozenset(
    {
        "Aggregate",
        "ArrowEvalPython",
        "BatchEvalPython",
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "Deduplicate",
        "Distinct",
        "Except",
        "Expand",
        "Filter",
        "Generate",
        "Intersect",
        "Join",
        "LocalRelation",
        "LogicalRDD",
        "OneRowRelation",
        "Project",
        "Range",
        "RebalancePartitions",
        "Relation",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "Sort",
        "SubqueryAlias",
        "Union",
        "View",
        "Window",
        "WithCTE",
    }
)
"""Operators of Spark's analyzed plans that take all that they are given."""


MOST_MOVED_BYTES: Final = FILE_BYTES
"""Rows of more bytes, by Spark's estimate, are written by the tasks that make them. To move the rows of 1 GB of Parquet
to one task a partition would cost as much as the write itself (benchmark B5)."""
_UNKNOWN_BYTES: Final = 1 << 62
_FROM_PYTHON: Final = "LogicalRDD"
"""The node of a plan for rows that come from Python."""
_KEEPS_LAYOUT: Final = frozenset(
    {"CollectMetrics", "Filter", "GlobalLimit", "LocalLimit", "Project", "SubqueryAlias", "View"}
)
_SETS_LAYOUT: Final = frozenset({"RebalancePartitions", "Repartition", "RepartitionByExpression", "Sort"})
"""Operators by which a program itself says how its rows are spread over tasks, or in which order they are written."""
_MOVES: Final = frozenset({"Aggregate", "Window"})
"""Operators for which Spark moves the rows of files itself."""
_OF_FILES: Final = _KEEPS_LAYOUT | _MOVES | {"Expand", "Generate", "Join", "OneRowRelation", "Relation"}
"""Operators of plans in which nothing but files spreads rows: Spark does not move what `Range` has spread."""
_COALESCING: Final = ("spark.sql.adaptive.enabled", "spark.sql.adaptive.coalescePartitions.enabled")
_ONE_TASK_BYTES: Final = 1 << 20
"""Spark moves up to so many bytes to one task (`spark.sql.adaptive.coalescePartitions.minPartitionSize`). To move them
once more took 60 of the 350 ms of a small window."""


class RowsDiffer(Unavailable):
    """The files of a directory are not what its job wrote. The attempt fails; another attempt may succeed."""

    code = "rows_differ"
    hint = "let the next attempt write again; if it fails too, look for what else writes there"

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
    """The result of one write call: manifests by key, and the columns in their files."""

    manifests: Mapping[Key, Manifest]
    schema: ColumnSchema


def write_partitions(
    world: World, rows: DataFrame, fileset: Fileset, directory: str, columns: ColumnSchema | None = None
) -> PartitionWrites:
    """Write `rows` below `directory` (`tx-…/<n>`, new) of the file set, one Spark job for all partitions.

    `columns` are those the file set has, if any; the rows' columns are put into their order. Raises `BadKey` for a key
    column that is missing, of another type, null or empty in a row; `BadFrame`; `SchemaChanged`; `RowsDiffer`;
    `BadLocation`. Cost: the plain `DataFrame.write.partitionBy`, one listing, a look at each file for its footer, and
    the cost of `checksums_of_job`.
    """
    files = open_files(fileset.dataset.location, world)
    frame, schema = arrange(rows, fileset, columns)
    way = find_way(world, frame.sparkSession, files)
    way.prepare()
    written = _write(frame, fileset, f"{way.root}/{directory}")
    found = list_written(way.files, directory)
    column = None if fileset.watermark is None else fileset.watermark.column
    measured = {one.name: measure_file(way.files, one.name, fileset.storing.format, column) for one in found}
    counts = {name: rows for name, (rows, _) in measured.items()}
    if written is not None and fileset.storing.format is FileFormat.TEXT and written < sum(counts.values()):
        raise BadFrame(fileset.qualified_name, "a row has an end of line in it, which in a text file ends the row")
    if written != sum(counts.values()):
        raise RowsDiffer(fileset.qualified_name, directory, written, sum(counts.values()))
    checksums = checksums_of_job(way.files, found)
    stored = way.store(directory, found)
    times = {name: one for name, (_, one) in measured.items()}
    return PartitionWrites(group_by_partition(fileset.keys, directory, stored, counts, checksums, times), schema)


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
    schema = read_schema(fileset, columns)
    if not any(partition.files for partition in partitions):
        return spark.createDataFrame([], schema)
    check_partitions(world, fileset, partitions)
    way = find_way(world, spark, open_files(fileset.dataset.location, world))
    way.fetch(name for partition in partitions for name, _ in partition.files)
    root = way.root
    options = {
        **_UTC,
        **reading_options(fileset.storing),
        # Between the base and the keys lie the directories of the transactions, which are no columns. Without keys
        # Spark would take them for some all the same; without a base it looks no further up than the files' folder.
        **({"basePath": root} if fileset.keys.names else {}),
        "ignoreInvalidPartitionPaths": "true",
        "ignoreCorruptFiles": "false",
        "ignoreMissingFiles": "false",
    }
    names = [escaped(f"{root}/{name}") for partition in partitions for name, _ in partition.files]
    reader = spark.read.options(**options).format(fileset.storing.format)
    lines = None if fileset.storing.hive is None else fileset.storing.hive.lines
    if lines is None or columns is None:
        return load_files(reader.schema(schema), names)
    of_lines = load_files(reader.schema(read_schema(fileset, LINES)), names)
    return take_apart(of_lines, fileset.storing, lines, columns_as_struct(columns))


@dataclass(slots=True)
class RowCount:
    """The number of rows that pass a place in a data frame, by an observation of Spark, which the first action fills.

    Also one that stops early does: of 40,000 rows `isEmpty()` and `show()` counted two or three (tried). So it is
    `whole` only where that action was a block of `counting`.
    """

    observation: Observation
    whole: bool = False

    @property
    def name(self) -> str:
        """Spark's name for it, in plans."""
        return str(java_of(self.observation).name())

    @property
    def open(self) -> bool:
        """Return whether no action has filled it yet."""
        return not java_of(self.observation).future().isCompleted()


@contextmanager
def counting(rows: DataFrame, counts: Sequence[RowCount]) -> Iterator[None]:
    """For a block that takes all of `rows`: those of `counts` that it fills are of all rows that came by them.

    Only where no operator of the plan can stop early, a limit or Python code that gets an iterator: by a list of those
    that never do, so that what we do not know leaves a count unknown, and never too small.
    """
    # The optimized plan would say the same of most programs, but Spark would optimize it for this alone: a write makes
    # a plan of its own.
    analyzed = plans_of(rows).analyzed()
    plan = analyzed.toString()
    whole = _takes_all(rows.sparkSession, analyzed, plan)
    due = [one for one in counts if whole and one.open and one.name in plan]
    yield
    for one in due:
        one.whole = not one.open


def _takes_all(spark: SparkSession, analyzed: Any, plan: str) -> bool:  # noqa: ANN401  # of the JVM
    """Return whether no operator of an analyzed plan, whose text is `plan`, stops early."""
    if not _WHOLE.issuperset(_OPERATOR.findall(plan)):
        return False
    # Spark turns EXISTS, and a semi-join without a condition, into a limit later.
    patterns = getattr(jvm_of(spark), "org.apache.spark.sql.catalyst.trees.TreePattern")
    return _ANY_ROW.search(plan) is None and not analyzed.containsPattern(patterns.EXISTS_SUBQUERY())


def count_of(spark: SparkSession, count: RowCount) -> int | None:
    """The rows that have come by; None while that is not known to be all of them."""
    seen = read_counts(spark, count.observation) if count.whole else None
    return None if seen is None else seen.get("rows")


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the classes of exceptions by which a Spark job fails: PySpark does not convert all of them."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return PySparkException, Py4JJavaError


def escaped(path: str) -> str:
    """Return a path as Spark's readers take it."""
    # Spark takes these for patterns. With `__globPaths__` off, it reads every other path of the list once more
    # for each path that holds one (tried, 4.3).
    return re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _write(frame: DataFrame, fileset: Fileset, target: str) -> int | None:
    """Run the job and give the rows that it counted."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    # On top of the plan, so in the tasks that write: Spark counts each of them once, when it has succeeded, however
    # often it was tried (tests/frames/test_spark.py fails and doubles them).
    counted = Observation()
    alone = needs_value(frame, fileset)
    sums = ["count(1) AS rows", *([] if alone is None else [f"count({quoted(alone)}) AS held"])]
    observed = _gather(frame, fileset).observe(counted, *map(sf.expr, sums))
    options = {**_UTC, **_COMMITTER, **writing_options(fileset.storing.format)}
    writer = observed.write.partitionBy(*fileset.keys.names).options(**options).format(fileset.storing.format)
    try:
        writer.save(target)
    except AnalysisException as error:
        if error.getCondition() == "UNSUPPORTED_DATA_TYPE_FOR_DATASOURCE":
            raise BadFrame(fileset.qualified_name, reason(str(error))) from None
        raise
    seen = read_counts(frame.sparkSession, counted)
    if seen is None:
        return None
    if seen.get("held", seen["rows"]) != seen["rows"]:
        why = f"{seen['rows'] - seen['held']} rows have null in {alone}, and a line of {fileset.storing.format} none"
        raise BadFrame(fileset.qualified_name, why)
    return seen["rows"]


def _gather(frame: DataFrame, fileset: Fileset) -> DataFrame:
    """Have the rows of each partition meet in one task, where that is cheap and the program has not decided it.

    Otherwise each task writes a file for each partition of which it has a row: 347 rows once made 341 files. A program
    that sorts or repartitions its rows last keeps its own layout, and so do rows that are too many to move.
    """
    plan = plans_of(frame).analyzed()
    operators = _OPERATOR.findall(plan.toString())
    last = next((operator for operator in operators if operator not in _KEEPS_LAYOUT), "")
    if last in _SETS_LAYOUT:
        return frame
    size = _estimate_bytes(plan, operators)
    moved = last in _MOVES and _OF_FILES.issuperset(operators)
    if size > MOST_MOVED_BYTES or (moved and size <= _ONE_TASK_BYTES and _coalesces(frame)):
        return frame
    return gather(frame, fileset)


def _coalesces(frame: DataFrame) -> bool:
    """Return whether Spark puts small results of a shuffle into one task."""
    settings = frame.sparkSession.conf
    return all(settings.get(name) == "true" for name in _COALESCING)


def gather(frame: DataFrame, fileset: Fileset) -> DataFrame:
    """Return the rows spread so that a write makes one file of `FILE_BYTES` after the other for each partition."""
    from pyspark.sql import functions as sf

    return frame.hint("rebalance", *(sf.col(quoted(name)) for name in fileset.keys.names))


def _estimate_bytes(plan: Any, operators: Sequence[str]) -> int:  # noqa: ANN401  # the JVM's side of PySpark has no types
    """Return the size of a plan's rows by Spark's estimate.

    Spark estimates a join as the product of its sides, so a join counts as the sum of the sources. Spark knows no size
    of rows from Python, which count as none, and of a table of another database, which counts as too large to move.
    """
    size: int = plan.stats().sizeInBytes()
    if size < _UNKNOWN_BYTES and "Join" not in operators:
        return size
    leaves = plan.collectLeaves()
    sources = [leaves.apply(place) for place in range(leaves.size())]
    sizes: list[int] = [one.stats().sizeInBytes() for one in sources if one.nodeName() != _FROM_PYTHON]
    return sum(sizes)


def read_counts(spark: SparkSession, counted: Observation) -> Mapping[str, int] | None:
    """The counts of an observation; None if there are none, or Spark's event was lost: `get` would wait for ever."""
    from py4j.protocol import Py4JJavaError

    jvm, future = jvm_of(spark), java_of(counted).future()
    most = getattr(jvm, "scala.concurrent.duration.Duration").apply(_WAIT_FOR_COUNT_S, "s")
    try:
        getattr(jvm, "scala.concurrent.Await").ready(future, most)
    except Py4JJavaError:
        return None
    # Spark has left the place out of its plan, as it does where a join has nothing on the other side.
    if future.value().get().get().length() == 0:
        return None
    return counted.get
