"""A Hive metastore of the tests' own, and a Spark that works on its tables as other programs do.

The metastore is Hive's, from the jars of PySpark, with a Derby in the folder. Each is a process of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.yardstick import patience
from tidemill.run.processes.java import find_java
from tidemill.world import World

SITE = """<configuration>
<property><name>hive.async.log.enabled</name><value>false</value></property>
<property><name>hive.metastore.schema.verification</name><value>false</value></property>
<property><name>datanucleus.schema.autoCreateAll</name><value>true</value></property>
<property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:;databaseName={folder}/derby;create=true</value>
</property>
<property><name>hive.metastore.warehouse.dir</name><value>{folder}/warehouse</value></property>
</configuration>
"""
LOGS = """rootLogger.level = warn
rootLogger.appenderRef.e.ref = e
appender.e.type = Console
appender.e.name = e
appender.e.layout.type = PatternLayout
"""
SPARK = """
import json, sys
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[1]").enableHiveSupport()
for name, value in json.loads(sys.argv[1]).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps([row.asDict() for row in spark.sql(json.loads(line)).collect()], default=str), flush=True)
"""


@dataclass
class HiveSpark:
    """A Spark with support for Hive, in a process of its own."""

    process: subprocess.Popen[str]

    def __call__(self, statement: str) -> list[dict[str, Any]]:
        """Carry out a statement, and return its rows."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(statement) + "\n")
        self.process.stdin.flush()
        rows: list[dict[str, Any]] = json.loads(self.process.stdout.readline() or '["it has ended"]')
        return rows


@contextmanager
def running_metastore(folder: Path) -> Iterator[str]:
    """Start a metastore in an empty folder, and yield its address; end it after the block."""
    (folder / "hive-site.xml").write_text(SITE.format(folder=folder))
    (folder / "log4j2.properties").write_text(LOGS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    classes = f"{folder}:{Path(spec.origin).parent / 'jars'}/*"
    java = find_java(World(), folder).home / "bin" / "java"
    options = ["-XX:TieredStopAtLevel=1", f"-Dlog4j.configurationFile={folder}/log4j2.properties", "-cp", classes]
    command = [java, *options, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
    with (folder / "metastore.txt").open("w") as said:
        process = subprocess.Popen(command, cwd=folder, stdout=said, stderr=said)
    try:
        deadline = time.monotonic() + patience(120)
        while not _answers(port):
            assert process.poll() is None, (folder / "metastore.txt").read_text()
            assert time.monotonic() < deadline, "the metastore does not start"
            time.sleep(0.1)
        yield f"thrift://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@contextmanager
def running_spark(address: str, folder: Path) -> Iterator[HiveSpark]:
    """Start a Spark whose tables are those of the metastore; end it after the block."""
    settings = {
        "spark.hadoop.hive.metastore.uris": address,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "hive.exec.dynamic.partition.mode": "nonstrict",
    }
    with (folder / "spark.txt").open("w") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", SPARK, json.dumps(settings)],
            cwd=folder,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", (folder / "spark.txt").read_text()
        yield HiveSpark(process)
    finally:
        # The JVM ends with its Python, whose end of input it waits for.
        process.communicate(timeout=patience(60))


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
