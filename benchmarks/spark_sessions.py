"""Spark with what Tidemill sets, and Spark as it comes: in one JVM, so that both find the same compiled code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tidemill.frames.jvm import gateway_of, jvm_of
from tidemill.frames.local_files import set_permissions_in_jvm
from tidemill.frames.spark import PINNED, USUAL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_session(settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """A session with what Tidemill sets, and with these settings."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    ours = {**PINNED, **USUAL, "spark.driver.memory": "2g", "spark.sql.session.timeZone": "UTC"}
    for name, value in {**ours, **settings}.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    set_permissions_in_jvm(session)
    return session


class PlainSpark:
    """Puts Hadoop's own local files in the place of Tidemill's (`frames/local_files.py`) for a while."""

    def __init__(self, spark: SparkSession) -> None:
        jvm, gateway = jvm_of(spark), gateway_of(spark)
        self._settings = spark.sparkContext._jsc.hadoopConfiguration()
        self._root = jvm.java.net.URI("file:///")
        kind = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem")
        self._add = next(one for one in kind.getDeclaredMethods() if one.getName() == "addFileSystemForTesting")
        self._add.setAccessible(True)
        self._arguments = gateway.new_array(jvm.java.lang.Object, 3)
        self._ours = jvm.org.apache.hadoop.fs.FileSystem.get(self._root, self._settings)
        self._plain = jvm.org.apache.hadoop.fs.FileSystem.newInstance(self._root, self._settings)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """For a block: all that opens local files finds those of Hadoop."""
        self._put(self._plain)
        try:
            yield
        finally:
            self._put(self._ours)

    def _put(self, files: Any) -> None:  # of the JVM
        for place, value in enumerate((self._root, self._settings, files)):
            self._arguments[place] = value
        self._add.invoke(None, self._arguments)
