"""The far end of a driver on a cluster: the process on a worker that starts the driver, and is linked to its node.

Spark's `PythonRunner` starts this file on a worker, as the child of the JVM that the driver uses. It connects to the
near end (`near_end.py`), starts the driver as its child, passes on what the near end sends, and sends back what the
driver writes: its status, and its logs. A link that breaks ends the driver at once, and so does the end of the JVM.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from threading import Event, Thread
from typing import Final

from tidemill.json_specs import read_text, write_text
from tidemill.processes import Child, die_with_parent
from tidemill.run.processes.assignments import STATUS, STOPPED, WORKS, Assignment, DriverSetup, python_environ
from tidemill.run.processes.cluster import SECRET_VARIABLE, SPARK_SECRET_VARIABLE, SUBMITTED_VARIABLE
from tidemill.run.processes.link import KEY_VARIABLE, DriverLink, MessageKind, connect
from tidemill.run.records.bundles import Bundle
from tidemill.world import Disk, World

_LOOK_EVERY: Final = timedelta(milliseconds=100)
_SAY_EVERY: Final = timedelta(seconds=1)
"""The longest time between two words about the state of the driver."""
_MOST_BYTES: Final = 64_000_000
"""The size at which a log is begun again on the worker."""
_KNOWN_LOGS: Final = 2
"""The number of attempts whose logs are looked at. A driver may write some lines after the end of an attempt."""


@dataclass
class _Tail:
    """A file that grows, and how much of it was read."""

    path: Path
    offset: int = 0

    def read_on(self, disk: Disk) -> bytes:
        if disk.size(self.path) <= self.offset:
            return b""
        content = disk.read_from(self.path, self.offset)
        self.offset += len(content)
        if self.offset > _MOST_BYTES:
            # The near end has what was written. It keeps a part of it.
            disk.cut(self.path, 0)
            self.offset = 0
        return content


@dataclass
class FarEnd:
    """The far end: its link, its folder, and its driver. `submitted` is the id of the driver on the cluster."""

    world: World
    link: DriverLink
    folder: Path
    submitted: str
    _tails: dict[str, _Tail] = field(default_factory=dict)
    _attempts: int = 0
    _broken: Event = field(default_factory=Event)
    _said: tuple[str, timedelta] = ("", timedelta(0))
    """The state of the driver that the near end knows, and the time at which it was sent, by our monotonic clock."""

    def serve(self) -> None:
        """Have a driver work until it ends, or the link breaks."""
        self.link.send(MessageKind.SUBMITTED, self.submitted.encode())
        setup = read_text(DriverSetup, self._expect(MessageKind.SETUP).decode())
        child = self._start(setup, self._expect(MessageKind.CODE))
        Thread(target=self._pass_on, args=(child,), name="assignments", daemon=True).start()
        while not self._broken.is_set():
            exit_code = child.poll()
            try:
                self._send_news()
                self._send_state(child)
                if exit_code is not None:
                    self.link.send(MessageKind.ENDED, str(exit_code).encode())
                    break
            except OSError:
                break
            self._broken.wait(_LOOK_EVERY.total_seconds())
        child.kill()

    def _expect(self, wanted: str) -> bytes:
        name, content = self.link.receive()
        assert name == wanted, f"{name} in place of {wanted}"  # noqa: S101  # both ends are of one Tidemill
        return content

    def _start(self, setup: DriverSetup, code: bytes) -> Child:
        """Start the driver, with folders of its own on this machine."""
        world, disk = self.world, self.world.disk
        logs, modules = self._log_folder(0), Path(setup.code.app_file).parent
        disk.make_folder(logs)
        if code:
            modules = self.folder / "code"
            for name, content in Bundle.from_zip(code).files.items():
                disk.write_bytes(modules / name, content)
        here = replace(
            setup,
            code=replace(setup.code, folder=str(modules) if code else ""),
            folder=str(self.folder),
            logs=str(logs),
        )
        child = world.spawner.start(
            [sys.executable, "-P", "-m", "tidemill.run.processes.driver"],
            tag=world.new_id("driver"),
            env=driver_environ(world.environ, modules, self.submitted),
            cwd=modules if disk.exists(modules) else self.folder,
            stdout=logs / "stdout",
            stderr=logs / "stderr",
        )
        child.send_line(write_text(here))
        return child

    def _pass_on(self, child: Child) -> None:
        """Pass on assignments to the driver until the link breaks."""
        try:
            while True:
                assignment = read_text(Assignment, self._expect(MessageKind.ASSIGNMENT).decode())
                logs = self._log_folder(self._attempts + 1)
                self.world.disk.make_folder(logs)
                self._attempts += 1
                # The address of the node's server may be one of the node alone.
                here = replace(assignment, logs=str(logs), url="", log_location=assignment.logs)
                child.send_line(write_text(here))
        except (EOFError, OSError):
            self._broken.set()

    def _send_news(self) -> None:
        """Send what the driver has written. The status comes last: what was printed before is then there."""
        disk = self.world.disk
        status = self._tails.setdefault(STATUS, _Tail(self.folder / STATUS)).read_on(disk)
        for number in {0, *range(max(1, self._attempts - _KNOWN_LOGS + 1), self._attempts + 1)}:
            for path in disk.list_folder(self._log_folder(number)):
                name = f"{MessageKind.LOG}/{number}/{path.name}"
                if content := self._tails.setdefault(name, _Tail(path)).read_on(disk):
                    self.link.send(name, content)
        if status:
            self.link.send(MessageKind.STATUS, status)

    def _send_state(self, child: Child) -> None:
        """Send whether the driver works when that has changed, and when it is time to."""
        now, state = self.world.clock.monotonic(), STOPPED if child.stopped() else WORKS
        known, at = self._said
        if state != known or now - at >= _SAY_EVERY:
            self.link.send(MessageKind.STATE, state.encode())
            self._said = state, now

    def _log_folder(self, number: int) -> Path:
        return self.folder / "logs" / str(number)


def driver_environ(environ: Mapping[str, str], modules: Path, submitted: str) -> dict[str, str]:
    """Return the environment of the driver on a worker: that of the worker, and what a driver of a node has, too."""
    kept = {name: value for name, value in environ.items() if name != KEY_VARIABLE}
    return {
        **kept,
        # The worker has given the secret of the cluster to the JVM.
        SECRET_VARIABLE: environ.get(SPARK_SECRET_VARIABLE, ""),
        SUBMITTED_VARIABLE: submitted,
        **python_environ(environ, str(modules)),
        "PYSPARK_PYTHON": sys.executable,
    }


def main(arguments: Sequence[str]) -> None:
    """Serve the near end, whose address and port are the arguments, and end with the JVM that started this process."""
    jvm = die_with_parent()
    world = World()
    address, port = arguments
    link = connect(address, int(port), world.environ[KEY_VARIABLE])
    # The worker starts a driver in a folder that has the id of the driver on the cluster as its name.
    folder = Path.cwd()
    try:
        FarEnd(world, link, folder / "tidemill", folder.name).serve()
    finally:
        world.disk.remove(folder / "tidemill")
        # Threads of Spark would keep the JVM alive.
        world.spawner.kill_alone(jvm)


if __name__ == "__main__":
    main(sys.argv[1:])
