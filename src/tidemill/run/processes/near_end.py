"""The near end of a driver on a cluster: the process of a node that stands for a driver on a worker of the cluster.

A `Launcher` starts it in place of a driver: `python -m tidemill.run.processes.near_end`. It submits the driver to the
standalone master, and waits for the far end (`far_end.py`) to connect. It passes on the lines of its standard input. It
writes the status of the driver and the logs of its attempts into the folders of this node. It ends when the driver
ends, and the driver ends when it ends.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Final

from tidemill.errors import Unavailable
from tidemill.json_specs import read_text, write_text
from tidemill.processes import live_with_parent
from tidemill.run.processes import far_end
from tidemill.run.processes.assignments import SILENT, STATUS, WORKS, Assignment, DriverSetup
from tidemill.run.processes.class_data import JAVA_OPTIONS
from tidemill.run.processes.cluster import (
    DRIVER_BIND,
    DRIVER_HOST,
    SECRET_VARIABLE,
    SPARK_SECRET_VARIABLE,
    find_ended,
    find_route,
    note_submitted,
    without_addresses,
)
from tidemill.run.processes.link import KEY_VARIABLE, DriverLink, MessageKind, accept, listen
from tidemill.run.records.bundles import read_unpacked
from tidemill.run.records.logs import SPARK_LOG
from tidemill.world import World

_SUBMIT_WITHIN: Final = timedelta(minutes=2)
"""Two JVMs start in that time on a busy machine."""
_LOOK_EVERY: Final = timedelta(seconds=5)
_SILENT_AFTER: Final = timedelta(seconds=10)
"""The time without a message after which the driver counts as silent. A far end sends one every second."""
_BRIEF: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""Options of a JVM that lives for some seconds."""
_STDERR: Final = "its stderr on the page of its worker"


class NotSubmitted(Unavailable):
    """The master took no driver, or the driver on the cluster is lost."""

    code = "driver_not_submitted"

    def __init__(self, master: str, why: str, log: str) -> None:
        self.master = master
        self.why = why
        self.log = log
        super().__init__(f"no driver works on the cluster {master}: {why}", f"read {log} for the cause")


class NearEnd:
    """The near end: its link, and the folders of logs of its attempts."""

    def __init__(self, world: World, setup: DriverSetup) -> None:
        self._world = world
        self._setup = setup
        self._folder = Path(setup.folder)
        self._master = setup.spark_settings["spark.master"]
        self._logs = [Path(setup.logs)]
        """The folders of logs by their number: those of the driver itself, and of each attempt."""
        self._state = WORKS
        """The state of the driver that stands in the folder of this node."""

    def serve(self, lines: Iterator[str]) -> int:
        """Have a driver on the cluster work on the attempts in `lines`, and return its exit code. `NotSubmitted`."""
        key, settings = self._world.token(64), self._setup.spark_settings
        route = find_route(self._master, settings)
        with listen(route[DRIVER_BIND]) as listener:
            submitted = self._submit(route[DRIVER_HOST], listener.getsockname()[1], key)
            while (link := accept(listener, key, _LOOK_EVERY)) is None:
                if state := find_ended(settings, submitted):
                    raise NotSubmitted(self._master, f"{submitted} is {state}", _STDERR)
        setup = replace(self._setup, spark_settings=without_addresses(settings))
        link.send(MessageKind.SETUP, write_text(setup).encode())
        code = self._setup.code.folder
        link.send(MessageKind.CODE, read_unpacked(self._world.disk, Path(code)).to_zip() if code else b"")
        Thread(target=self._pass_on, args=(link, lines), name="assignments", daemon=True).start()
        return self._receive(link)

    def complain(self, text: str) -> None:
        """Write a line to standard error, and into the log of the newest attempt."""
        self._world.spawner.complain(f"{text}\n")
        if self._logs[-1] != self._logs[0]:
            self._world.disk.append(self._logs[-1] / "stderr", f"{text}\n")

    def _submit(self, address: str, port: int, key: str) -> str:
        """Submit the driver, and return its id on the cluster."""
        world, settings = self._world, submitted_settings(self._setup.spark_settings, self._world.environ)
        jars = _jars()
        # Any jar: the class that starts Python is of Spark itself.
        jar = min((path for path in world.disk.list_folder(jars) if path.suffix == ".jar"), key=world.disk.size)
        command = [f"{world.environ['JAVA_HOME']}/bin/java", *_BRIEF, "-cp", f"{jars}/*"]
        command += ["org.apache.spark.deploy.SparkSubmit", "--master", self._master, "--deploy-mode", "cluster"]
        for name, value in settings.items():
            command += ["--conf", f"{name}={value}"]
        command += ["--class", "org.apache.spark.deploy.PythonRunner", f"file:{jar}"]
        command += [str(far_end.__file__), "", address, str(port)]
        # Variables of this node that begin with SPARK_ would go with the submission: such as its SPARK_LOCAL_IP.
        environ = {name: value for name, value in world.environ.items() if not name.startswith("SPARK_")}
        environ[KEY_VARIABLE] = key
        if secret := environ.pop(SECRET_VARIABLE, ""):
            environ[SPARK_SECRET_VARIABLE] = secret
        done = world.spawner.run(command, env=environ, timeout=_SUBMIT_WITHIN)
        world.disk.append(self._logs[0] / SPARK_LOG, done.output)
        submitted = note_submitted(world.disk, self._folder, done.output)
        if done.exit_code or not submitted:
            why = f"the submission ended with exit code {done.exit_code}"
            raise NotSubmitted(self._master, why, str(self._logs[0] / SPARK_LOG))
        return submitted

    def _pass_on(self, link: DriverLink, lines: Iterator[str]) -> None:
        for line in lines:
            self._logs.append(Path(read_text(Assignment, line).logs))
            try:
                link.send(MessageKind.ASSIGNMENT, line.encode())
            except OSError:
                return  # the receiving thread ends this process

    def _receive(self, link: DriverLink) -> int:
        """Write down what the far end sends, until the driver has ended; return its exit code."""
        disk = self._world.disk
        while True:
            try:
                if link.is_silent(_SILENT_AFTER):
                    self._note_state(SILENT)
                name, content = link.receive()
            except (EOFError, OSError) as error:
                why = f"the link to it is broken ({str(error) or 'closed'})"
                raise NotSubmitted(self._master, why, _STDERR) from None
            kind, _, rest = name.partition("/")
            if kind == MessageKind.STATUS:
                disk.append_bytes(self._folder / STATUS, content)
            elif kind == MessageKind.LOG:
                number, _, file = rest.partition("/")
                disk.append_bytes(self._logs[int(number)] / Path(file).name, content)
            elif kind == MessageKind.STATE:
                self._note_state(content.decode())
            elif kind == MessageKind.SUBMITTED:
                note_submitted(disk, self._folder, content.decode())
            elif kind == MessageKind.ENDED:
                return int(content)

    def _note_state(self, state: str) -> None:
        """Tell the launcher of a change of the driver's state."""
        if state != self._state:
            self._world.disk.append(self._folder / STATUS, f"{state}\n")
            self._state = state


def submitted_settings(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a driver's JVM on the cluster, which is there before the driver."""
    python = environ["PYSPARK_PYTHON"]
    ours = {
        JAVA_OPTIONS: f"{settings.get(JAVA_OPTIONS, '')} -Duser.timezone=UTC".strip(),
        # The master would start a driver again whose node does not wait for it.
        "spark.driver.supervise": "false",
        "spark.pyspark.python": python,
        "spark.pyspark.driver.python": python,
    }
    kept = {**without_addresses(settings), **ours}
    del kept["spark.master"]
    return kept


def _jars() -> Path:
    """Return the folder of Spark's jars, without importing PySpark."""
    found = importlib.util.find_spec("pyspark")
    return Path(str(found and found.origin)).parent / "jars"


def main() -> int:
    """Serve until the driver has ended; the watchdog ends this process with its runner."""
    lines = live_with_parent()
    world = World()
    setup = read_text(DriverSetup, next(lines))
    near_end = NearEnd(world, setup)
    try:
        exit_code = near_end.serve(lines)
    except Unavailable as error:
        near_end.complain(str(error))
        return 1
    if exit_code < 0:
        near_end.complain(f"the driver on the cluster was ended by signal {-exit_code}")
    return abs(exit_code)


if __name__ == "__main__":
    sys.exit(main())
