"""The engine under the simulation: what it stops, kills and holds is really stopped, dead and held."""

from __future__ import annotations

import errno
import random
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.manual_clock import backdoor_of
from tidemill.catalog.db import LostReply
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.messages import Publish, Topic
from tidemill.catalog.transactions import TxState, begin, commit, list_transactions
from tidemill.names import EventKey, RunId
from tidemill.storage.files import StorageUnavailable
from tidemill.storage.locations import open_files
from tidemill.testing.clock import NOON, VirtualClock
from tidemill.testing.machine import Crash, Machine, Point, PointKind, Process
from tidemill.world import World

SECOND = timedelta(seconds=1)


class Obedient:
    """Chooses the first process that can go on, and does at a point what was asked for it, once."""

    def __init__(self) -> None:
        self.fates = {}
        self.points: list[tuple[str, Point]] = []
        self.favourite = None

    def choose(self, _machine, ready):
        return next((process for process in ready if process.name == self.favourite), ready[0])

    def befall(self, _machine, process):
        self.points.append((process.name, process.point))
        fate = self.fates.pop((process.name, str(process.point)), None)
        return fate() if callable(fate) else fate


@pytest.fixture
def chooser() -> Obedient:
    """The chooser of the machine."""
    return Obedient()


@pytest.fixture
def machine(catalog_url, chooser) -> Iterator[Machine]:
    """A machine without processes, on each database."""
    clock = VirtualClock()
    catalog = open_catalog(catalog_url, World(clock=clock, random=random.Random(1)))
    with backdoor_of(catalog_url) as backdoor:
        clock.rule(backdoor, catalog.dialect)
        machine = Machine(catalog, clock, chooser, random.Random(1), None)
        yield machine
        machine.stop()
        catalog.close()


def run(machine: Machine) -> None:
    """Until no process is left."""
    while machine.step():
        pass


def start(machine: Machine, name: str, body) -> Process:
    """A process in a group of its own."""
    return machine.start(name, body, machine.group(name, "here"))


def transact(run_id: str, seen: list[object] | None = None):
    """A process that begins and commits."""

    def body(process: Process) -> None:
        try:
            tx = begin(process.catalog, run_id=RunId(run_id), epoch=1)
            commit(process.catalog, tx, [])
        except BaseException as error:
            if seen is not None:
                seen.append(error)
                # Nothing that a dead process still tries has an effect.
                begin(process.catalog, run_id=RunId("late"), epoch=1)
            raise

    return body


def states(machine: Machine) -> list[TxState]:
    """All transactions, the newest first."""
    return [tx.state for tx in machine.catalog.read(lambda db: list_transactions(db, limit=9, open_only=False))]


def test_processes_take_turns_at_points(machine, chooser):
    """Each catalog call can be cut off from the next by anything that others do."""
    start(machine, "a", transact("a"))
    start(machine, "b", transact("b"))
    run(machine)

    kinds = [point.kind for name, point in chooser.points if name == "b" and point.kind is not PointKind.MARK]
    assert kinds == [
        PointKind.START,
        PointKind.BEFORE_WRITE,
        PointKind.AFTER_WRITE,
        PointKind.BEFORE_WRITE,
        PointKind.AFTER_WRITE,
    ]


def test_a_dead_process_has_no_effect_any_more(machine, chooser):
    """Its finally-blocks run in Python, where those of a killed process would not."""
    seen: list[object] = []
    start(machine, "a", transact("a", seen))
    chooser.fates["a", "mark commit.before_message"] = Crash
    run(machine)

    assert [type(error) for error in seen] == [Crash]
    assert states(machine) == [TxState.IN_PROGRESS]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_lost_reply_is_asked_for(machine, chooser, moment):
    """The same error, whether or not the commit has happened: the product has to find out."""
    process = start(machine, "a", transact("a"))
    chooser.fates["a", f"{moment} write apply"] = LostReply("catalog", "played")
    run(machine)

    assert process.error is None
    assert states(machine) == [TxState.COMMITTED]


def test_a_group_dies_with_all_below_it(machine, chooser):
    """As drivers do with their runner; orphans are what the kernel forgot."""
    up = machine.group("up", "here")
    below = machine.group("driver", "here", up)
    machine.start("driver", transact("a"), below)
    start(machine, "killer", lambda _: machine.kill(up))
    chooser.favourite = "killer"
    run(machine)

    assert not below.alive
    assert states(machine) == []


def test_time_moves_when_no_process_can_go_on(machine, chooser):
    """And the wall clock may jump, which no sleep notices."""
    times = []

    def body(process: Process) -> None:
        process.world.clock.sleep(3 * SECOND)
        times.append((process.world.clock.monotonic(), process.catalog.read(lambda db: db.now())))

    start(machine, "a", body)
    held = start(machine, "b", body)
    machine.hold(held, 10 * SECOND)
    machine.clock.jump(timedelta(hours=1))
    run(machine)

    one = NOON + timedelta(hours=1)
    assert times == [(3 * SECOND, one + 3 * SECOND), (13 * SECOND, one + 13 * SECOND)]


def test_a_step_beside_a_block_uses_the_process_and_dies_with_it(machine, chooser):
    """The lease of a notebook is renewed by a thread of it."""
    renewed = []

    def step(process: Process) -> bool:
        renewed.append(process.catalog.read(lambda db: db.now()))
        return True

    def body(process: Process) -> None:
        with process.world.beside("lease", SECOND, lambda: step(process)):
            process.world.clock.sleep(2.5 * SECOND)
        process.world.clock.sleep(5 * SECOND)

    start(machine, "a", body)
    run(machine)

    assert len(renewed) == 2
    assert machine.clock.elapsed == 7.5 * SECOND


def test_a_process_that_waits_for_commits_is_woken_by_them(machine, chooser):
    """Else a scheduler would look for messages only every five seconds."""
    woken = []

    def wait(process: Process) -> None:
        woken.append((process.catalog.waiter().wait(5 * SECOND), machine.clock.elapsed))
        woken.append((process.catalog.waiter().wait(5 * SECOND), machine.clock.elapsed))

    def publish(process: Process) -> None:
        process.world.clock.sleep(SECOND)
        process.catalog.apply([Publish(Topic.DATA, "t", EventKey("k"), {})])

    start(machine, "a", wait)
    start(machine, "b", publish)
    run(machine)

    assert woken == [(True, SECOND), (False, 6 * SECOND)]


def test_storage_is_changed_at_points_where_the_disk_may_be_full(machine, chooser, tmp_path):
    """And read at others: a reader needs no room."""
    seen: list[str] = []

    def body(process: Process) -> None:
        files = open_files(tmp_path, process.world)
        files.put("first", b"x")
        seen.append(files.read("first").decode())
        files.delete("first")
        chooser.fates["a", "disk storage.before_put"] = OSError(errno.ENOSPC, "No space left on device")
        files.put("second", b"x")

    process = start(machine, "a", body)
    run(machine)

    assert [str(point) for _, point in chooser.points[1:]] == [
        "disk storage.before_put",
        "mark storage.before_read",
        "disk storage.before_delete",
        "disk storage.before_put",
    ]
    assert seen == ["x"]
    assert isinstance(process.error, StorageUnavailable)
    assert list(tmp_path.iterdir()) == []
