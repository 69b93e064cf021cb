"""A standalone Spark cluster on this machine, from the files of PySpark: a master and workers, each its own process.

For the demo and for tests. The processes die with the process that started them.
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from tidemill.errors import Unavailable
from tidemill.processes import Child
from tidemill.run.processes.cluster import SPARK_SECRET_VARIABLE
from tidemill.run.processes.java import find_java, spark_environ
from tidemill.run.processes.session import require_spark
from tidemill.world import World

_MASTER: Final = "org.apache.spark.deploy.master.Master"
_WORKER: Final = "org.apache.spark.deploy.worker.Worker"
_HOST: Final = "127.0.0.1"
_STARTED: Final = re.compile(rb"Starting Spark master at (spark://\S+)")
_PAGE: Final = re.compile(rb"started at http://[^:\s]+:(\d+)")
_REGISTERED: Final = re.compile(rb"Successfully registered with master")
_WITHIN: Final = timedelta(minutes=2)
"""A JVM starts in 3 s on 2 cores, and in a minute on a busy machine."""
_LOOK_EVERY: Final = timedelta(milliseconds=100)
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that ends after minutes: code that is compiled twice costs more than it saves."""


class ClusterNotStarted(Unavailable):
    """A process of the cluster ended before it was ready, or was not ready in time."""

    code = "cluster_not_started"

    def __init__(self, name: str, why: str, log: Path) -> None:
        self.name = name
        self.why = why
        self.log = str(log)
        super().__init__(f"the Spark {name} {why} before it was ready", f"read {log} for the cause")


@dataclass
class LocalCluster:
    """A master and its workers. `secret` is the file with the secret by which they and drivers know each other."""

    world: World
    folder: Path
    cache: Path
    secret: Path
    master: str = ""
    page_port: str = ""
    master_process: Child | None = None
    workers: list[Child] = field(default_factory=list)

    def settings(self) -> str:
        """Return the table `[spark]` of a project that uses the cluster, as TOML; what follows it is in `[spark.conf]`.

        All processes are on one machine: folders are shared.
        """
        return (
            f'[spark]\nmaster = "{self.master}"\nsecret = "file:{self.secret}"\nshared = true\n\n'
            f'[spark.conf]\n"spark.master.ui.port" = {self.page_port}\n'
            f'"spark.executor.extraJavaOptions" = "{SHORT_LIVED}"\n'
        )

    def start_master(self, *, port: int = 0) -> None:
        """Start the master, and wait until it listens; again with the same port of its page. `ClusterNotStarted`."""
        words = ["--host", _HOST, "--port", str(port), "--webui-port", self.page_port or "0"]
        self.master_process, log = self._start("master", [_MASTER, *words])
        self.master = self._wait_for(self.master_process, "master", log, _STARTED)
        self.page_port = self._wait_for(self.master_process, "master", log, _PAGE)

    def kill_master(self) -> None:
        """Kill the master as the kernel does that runs out of memory. What it knew is in its folder."""
        if self.master_process is not None:
            self.master_process.kill()

    def add_worker(self, *, cores: int = 1, memory: str = "1g") -> Child:
        """Start one more worker, and wait until the master has it. `ClusterNotStarted`."""
        place = self.folder / f"work-{len(self.workers)}"
        self.world.disk.make_folder(place)
        words = ["--host", _HOST, "--cores", str(cores), "--memory", memory, "--webui-port", "0"]
        child, log = self._start("worker", [_WORKER, *words, "--work-dir", str(place), self.master])
        self.workers.append(child)
        self._wait_for(child, "worker", log, _REGISTERED)
        return child

    def close(self) -> None:
        """End all its processes."""
        for child in [*self.workers, *filter(None, [self.master_process])]:
            child.kill()

    def _start(self, name: str, words: Sequence[str]) -> tuple[Child, Path]:
        require_spark()
        java, tag = find_java(self.world, self.cache), self.world.new_id(name)
        log = self.folder / f"{tag}.log"
        secret = self.world.disk.read_bytes(self.secret).decode()
        environ = {
            **self.world.environ,
            **spark_environ(java),
            "SPARK_DAEMON_MEMORY": "256m",
            # The port for submissions by REST asks for no secret.
            "SPARK_DAEMON_JAVA_OPTS": " ".join(
                [
                    SHORT_LIVED,
                    "-Dspark.authenticate=true",
                    "-Dspark.master.rest.enabled=false",
                    # A master that is started again knows the applications.
                    "-Dspark.deploy.recoveryMode=FILESYSTEM",
                    f"-Dspark.deploy.recoveryDirectory={self.folder / 'master'}",
                ]
            ),
            SPARK_SECRET_VARIABLE: secret,
        }
        found = importlib.util.find_spec("pyspark")
        launcher = Path(str(found and found.origin)).parent / "bin" / "spark-class"
        child = self.world.spawner.start(
            [sys.executable, "-m", "tidemill.processes", str(launcher), *words],
            tag=tag,
            env=environ,
            cwd=self.folder,
            stdout=log,
            stderr=log,
        )
        return child, log

    def _wait_for(self, child: Child, name: str, log: Path, sign: re.Pattern[bytes]) -> str:
        """Wait until the log has the sign of a process, and return the first group of the sign."""
        clock = self.world.clock
        give_up_at = clock.monotonic() + _WITHIN
        while True:
            ended = child.poll() is not None
            if found := sign.search(self.world.disk.read_bytes(log)):
                return found.group(found.re.groups).decode()
            if ended or clock.monotonic() > give_up_at:
                raise ClusterNotStarted(name, "ended" if ended else "did not start", log)
            clock.sleep(_LOOK_EVERY)


@contextmanager
def local_cluster(world: World, folder: Path, cache: Path, *, workers: int = 2) -> Iterator[LocalCluster]:
    """Have a cluster for a block, with its logs and scratch in `folder`. `ClusterNotStarted`, `NoSpark`, `NoJava`."""
    world.disk.make_folder(folder)
    secret = folder / "secret"
    world.disk.write_bytes(secret, b"")
    secret.chmod(0o600)
    world.disk.append(secret, world.token(32))
    cluster = LocalCluster(world, folder, cache, secret)
    try:
        cluster.start_master()
        for _ in range(workers):
            cluster.add_worker()
        yield cluster
    finally:
        cluster.close()
