"""The link to a driver on a cluster, and its far end with a driver that only says what it got."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.spawners import PlayedDrivers
from tests.yardstick import patience
from tidemill.json_specs import write_text
from tidemill.names import RunId
from tidemill.processes import LocalChild
from tidemill.run.processes import far_end, link, near_end
from tidemill.run.processes.assignments import SILENT, STATUS, STOPPED, WORKS, Assignment, DriverSetup
from tidemill.run.processes.far_end import FarEnd
from tidemill.run.processes.link import DriverLink, MessageKind
from tidemill.run.processes.near_end import NearEnd
from tidemill.run.records.bundles import AppCode, Bundle
from tidemill.world import World

KEY = "k" * 64
WITHIN = timedelta(seconds=patience(20))

STUB = """
import json, sys
from pathlib import Path
from tidemill.processes import live_with_parent
lines = live_with_parent()
setup = json.loads(next(lines))
status = Path(setup["folder"]) / "status"
status.write_text("ready\\n")
print("sees", sorted(path.name for path in Path(setup["code"]["folder"]).iterdir()), flush=True)
for line in lines:
    given = json.loads(line)
    (Path(given["logs"]) / "stdout").write_bytes(b"\\xff" + given["run_id"].encode() + given["log_location"].encode())
    with status.open("a") as file:
        file.write(f"done {given['run_id']} {given['epoch']}\\n")
    if given["run_id"] == "run_last":
        sys.exit(7)
"""


class Noting(PlayedDrivers):
    """Plays drivers, and knows them."""

    def __init__(self) -> None:
        super().__init__("-c", STUB)
        self.children: list[LocalChild] = []

    def start(self, argv, *, env, **how) -> LocalChild:
        """Start a driver."""
        self.children.append(super().start(argv, env=env, **how))
        return self.children[-1]


class Pair:
    """Both ends of a link on this machine, the far end in a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spawner = Noting()
        self.world = dataclasses.replace(World(), spawner=self.spawner)
        with link.listen("127.0.0.1") as listener:
            self.thread = threading.Thread(target=self.serve, args=(listener.getsockname()[1],))
            self.thread.start()
            accepted = link.accept(listener, KEY, WITHIN)
        assert accepted is not None
        self.near: DriverLink = accepted
        self.got: dict[str, bytes] = {}

    def serve(self, port: int) -> None:
        """Serve as the process on the worker does."""
        FarEnd(self.world, link.connect("127.0.0.1", port, KEY), self.folder / "far", "driver-1").serve()

    def begin(self) -> None:
        """Send the setup, and the app."""
        setup = DriverSetup("", AppCode("/elsewhere/app.py", "d", "/elsewhere"), "/node", "/node/logs", True, True, {})
        self.near.send(MessageKind.SETUP, write_text(setup).encode())
        self.near.send(MessageKind.CODE, Bundle({"app.py": b"", "beside.py": b""}).to_zip())

    def assign(self, run: str) -> None:
        """Send an attempt."""
        self.near.send(MessageKind.ASSIGNMENT, write_text(Assignment(RunId(run), 1, f"/node/{run}")).encode())

    def receive(self, wanted: str) -> None:
        """Receive until there is something of a name."""
        while wanted not in self.got:
            name, content = self.near.receive()
            self.got[name] = self.got.get(name, b"") + content

    def receive_state(self, wanted: str) -> None:
        """Receive until the driver has that state."""
        while self.near.receive() != (MessageKind.STATE, wanted.encode()):
            pass


@pytest.fixture
def pair(tmp_path):
    """Both ends of a link."""
    pair = Pair(tmp_path)
    yield pair
    pair.near.connection.close()
    pair.thread.join(patience(60))
    assert not pair.thread.is_alive()


def connected() -> tuple[DriverLink, DriverLink]:
    """Return the near and the far end of a link."""
    with link.listen("127.0.0.1") as listener:
        port = listener.getsockname()[1]
        far: list[DriverLink] = []
        thread = threading.Thread(target=lambda: far.append(link.connect("127.0.0.1", port, KEY)))
        thread.start()
        near = link.accept(listener, KEY, WITHIN)
        thread.join()
    assert near is not None
    return near, far[0]


def test_a_driver_gets_attempts_and_its_words_and_logs_come_back(pair):
    """A launcher finds in the folders of its node what a driver of the node would have written there, byte for byte."""
    pair.begin()
    pair.assign("run_1")
    pair.assign("run_last")

    pair.receive(MessageKind.ENDED)

    logs = {name: content for name, content in pair.got.items() if name.startswith(MessageKind.LOG)}
    assert logs == {
        f"{MessageKind.LOG}/0/stdout": b"sees ['app.py', 'beside.py']\n",
        f"{MessageKind.LOG}/1/stdout": b"\xffrun_1/node/run_1",
        f"{MessageKind.LOG}/2/stdout": b"\xffrun_last/node/run_last",
    }
    assert (pair.got[MessageKind.SUBMITTED], pair.got[MessageKind.ENDED]) == (b"driver-1", b"7")
    assert pair.got[MessageKind.STATUS].splitlines() == [b"ready", b"done run_1 1", b"done run_last 1"]


def test_a_link_that_breaks_ends_the_driver(pair):
    """The node is gone: nothing may go on writing for it."""
    pair.begin()
    pair.receive(MessageKind.STATUS)
    (child,) = pair.spawner.children

    pair.near.connection.close()
    pair.thread.join(patience(60))

    assert child.poll() is not None
    assert not pair.thread.is_alive()


def test_a_log_without_end_does_not_fill_the_disk_of_the_worker(pair, monkeypatch, tmp_path):
    """The node has what was written, and cuts its own file."""
    monkeypatch.setattr(far_end, "_MOST_BYTES", 10)
    pair.begin()
    pair.assign("run_1")

    pair.receive(f"{MessageKind.LOG}/1/stdout")
    pair.receive(MessageKind.STATUS)

    assert (tmp_path / "far" / "logs" / "1" / "stdout").stat().st_size == 0


def test_a_driver_that_is_stopped_on_its_worker_is_reported(pair):
    """Only the worker sees it: the near end of such a driver works, and its node would renew the lease for ever."""
    pair.begin()
    pair.receive(MessageKind.STATUS)
    (child,) = pair.spawner.children

    os.kill(child.pid, signal.SIGSTOP)
    pair.receive_state(STOPPED)
    os.kill(child.pid, signal.SIGCONT)
    pair.receive_state(WORKS)


def test_a_silent_link_is_noted_until_the_next_message(monkeypatch, tmp_path):
    """The link of a far end that is stopped with its driver does not break: its machine still answers."""
    monkeypatch.setattr(near_end, "_SILENT_AFTER", timedelta(milliseconds=50))
    settings = {"spark.master": "spark://nowhere"}
    setup = DriverSetup("", AppCode("app.py", "d"), str(tmp_path), str(tmp_path), True, True, settings)
    near, far = connected()
    served = threading.Thread(target=NearEnd(World(), setup)._receive, args=(near,))
    served.start()

    words = tmp_path / STATUS
    give_up_at = time.monotonic() + patience(20)
    while not words.exists() and time.monotonic() < give_up_at:
        time.sleep(0.01)
    far.send(MessageKind.STATE, WORKS.encode())
    far.send(MessageKind.ENDED, b"0")
    served.join(patience(20))

    assert words.read_text().split()[:2] == [SILENT, WORKS]


@pytest.mark.parametrize("stranger", ["silent", "wrong key"])
def test_a_stranger_gets_no_link(stranger, monkeypatch):
    """The address is open to the network, and what goes over a link is the address of the catalog."""
    monkeypatch.setattr(link, "_PROVE_WITHIN", timedelta(seconds=1))
    with link.listen("127.0.0.1") as listener:
        port = listener.getsockname()[1]
        made: list[object] = []

        def come() -> None:
            if stranger == "silent":
                with socket.create_connection(("127.0.0.1", port)) as stranger_socket:
                    stranger_socket.recv(1000)
                    stranger_socket.recv(1000)
            else:
                with pytest.raises(Exception, match=r"digest|reset|closed|^$"):
                    link.connect("127.0.0.1", port, "x" * 64)

        thread = threading.Thread(target=come)
        thread.start()
        refused = link.accept(listener, KEY, WITHIN)
        thread.join()
        right = threading.Thread(target=lambda: made.append(link.connect("127.0.0.1", port, KEY)))
        right.start()
        accepted = link.accept(listener, KEY, WITHIN)
        right.join()

    assert refused is None
    assert accepted is not None


def test_a_link_may_be_silent_for_long(monkeypatch):
    """Runs take hours: only the proof has a time limit."""
    monkeypatch.setattr(link, "_PROVE_WITHIN", timedelta(seconds=1))
    near, far = connected()

    threading.Thread(target=lambda: (time.sleep(1.5), far.send("late"))).start()

    assert near.receive() == ("late", b"")


def test_a_wait_for_the_far_end_has_a_limit():
    """The near end looks at the driver on the master in between."""
    with link.listen("127.0.0.1") as listener:
        assert link.accept(listener, KEY, timedelta(milliseconds=10)) is None
