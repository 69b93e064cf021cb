"""The JVM behind PySpark: its objects have no Python types, and PySpark has no public way to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from tidemill.errors import Internal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, Observation, SparkSession

_NUL: Final = "\0"
"""No path has it."""


def jvm_of(spark: SparkSession) -> Any:  # noqa: ANN401  # of the JVM
    """Return the JVM of a running session."""
    return _running(spark._jvm)  # noqa: SLF001  # PySpark has no other way


def gateway_of(spark: SparkSession) -> Any:  # noqa: ANN401  # of the JVM
    """Return the gateway that makes arrays of the JVM for a running session."""
    return _running(spark.sparkContext._gateway)  # noqa: SLF001  # PySpark has no other way


def load_files(reader: DataFrameReader, paths: Sequence[str]) -> DataFrame:
    """Load these files or folders, at least one, as `DataFrameReader.load` does with a list.

    One call into the JVM does it. `load` makes a call for each path: 0.1 s for 1,000 paths.
    """
    spark = reader._spark  # noqa: SLF001  # PySpark has no other way
    array = jvm_of(spark).java.util.regex.Pattern.compile(_NUL).split(_NUL.join(paths))
    return reader._df(reader._jreader.load(array))  # noqa: SLF001  # PySpark has no other way


def plans_of(frame: DataFrame) -> Any:  # noqa: ANN401  # of the JVM
    """Return the plans of a frame, from the analyzed plan to the optimized plan."""
    return frame._jdf.queryExecution()  # noqa: SLF001  # PySpark has no other way


def java_of(observation: Observation) -> Any:  # noqa: ANN401  # of the JVM
    """Return Spark's side of an observation that a frame has."""
    return _running(observation._jo)  # noqa: SLF001  # PySpark has no other way


def _running(found: Any) -> Any:  # noqa: ANN401  # of the JVM
    if found is None:
        raise Internal("an object of Spark was used before its session ran")
    return found
