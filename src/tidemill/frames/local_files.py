"""Spark's writes to a local folder, without a process for each file.

PySpark comes without Hadoop's native library. Without it, Hadoop starts `chmod` for each file, checksum file and
folder that it makes: 0.5 of the 0.6 s in which Spark wrote 42 small partitions. Java sets permissions itself
(`JvmLocalFileSystem.java`).
"""

from __future__ import annotations

import logging
from importlib import resources
from typing import TYPE_CHECKING, Final

from tidemill.frames.jvm import gateway_of, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS: Final = "JvmLocalFileSystem"
_log = logging.getLogger(__name__)


def set_permissions_in_jvm(spark: SparkSession) -> bool:
    """Have the JVM of `spark` set permissions of local files without a process for each; return whether it does.

    Spark compiles its own code by Janino, which compiles ours. Where a version of Spark or Hadoop does not allow it,
    or a site has named a class of its own (`fs.file.impl`), all goes on as before. Files and folders get the same
    permissions either way. Cost: some 60 ms.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    jvm = jvm_of(spark)
    source = resources.files(__package__).joinpath(f"{_CLASS}.java").read_text(encoding="utf-8")
    try:
        if jvm.org.apache.hadoop.util.NativeCodeLoader.isNativeCodeLoaded():
            return False
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem").getClassLoader())
        compiler.cook(source)
        # py4j remembers methods by the name of their class, so a second class of that name cannot be called by it.
        (install,) = compiler.getClassLoader().loadClass(f"tidemill.{_CLASS}").getDeclaredMethods()
        arguments = gateway_of(spark).new_array(jvm.java.lang.Object, 1)
        arguments[0] = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  # PySpark has no other way
        return bool(install.invoke(None, arguments))
    except (Py4JError, PySparkException, TypeError, ValueError) as error:  # TypeError: the JVM lacks a class
        _log.info("Hadoop starts a process for each local file, since its class cannot be replaced: %s", error)
        return False
