"""The demo's crash: it must hit a write, and know whether it has."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from tidemill.catalog.transactions import Snapshot
from tidemill.demo.crash import DriverKiller
from tidemill.narration import Narrator
from tidemill.shapes.manifest import tx_directory

MOMENT = timedelta(milliseconds=20)
ATTEMPT = "1/_temporary/0/_temporary/attempt_0"


@pytest.fixture
def printed() -> list[str]:
    """The lines that the narrator printed."""
    return []


@pytest.fixture
def killer(mill, printed) -> DriverKiller:
    """The one to test."""
    return DriverKiller(mill, Narrator(mill.project.world, printed.append, as_json=False))


def open_file(mill, write_pointer: int) -> None:
    """Make the file of a Spark task that is still writing."""
    location = Path(mill.datasets.show("flights").location.removeprefix("file://"))
    folder = (
        location / tx_directory(Snapshot(write_pointer, mill.project.catalog.incarnation)) / ATTEMPT / "day=2013-01-01"
    )
    folder.mkdir(parents=True)
    (folder / "part-0.parquet").write_bytes(b"")


def test_a_run_that_does_not_write_is_left_alone(mill, spawner, killer):
    """Killed before its write, it would show nothing."""
    with mill.transaction(["flights"]):
        killer.watch(MOMENT)

    assert spawner.killed == []


def test_the_driver_is_killed_while_a_task_has_a_file_open_and_only_once(mill, spawner, killer):
    """This is the promise of `--crash`."""
    with mill.transaction(["flights"]) as tx:
        open_file(mill, tx.write_pointer)
        killer.watch(MOMENT)

    assert spawner.killed == [4711]


def test_a_kill_counts_when_its_transaction_has_died_and_its_run_has_ended(mill, killer, printed):
    """Before that nothing is proven."""
    with suppress(ZeroDivisionError), mill.transaction(["flights"]) as tx:
        open_file(mill, tx.write_pointer)
        killer.watch(MOMENT)
        done_before = killer.done
        raise ZeroDivisionError

    killer.watch(MOMENT)

    assert (done_before, killer.done) == (False, True)
    assert "pid 4711" in printed[0]
    assert f"tx {tx.write_pointer}   is aborted" in printed[1]


def test_a_kill_that_came_too_late_is_followed_by_another(mill, spawner, killer):
    """A driver may commit in the moment of the kill: then the next write is cut off."""
    with mill.transaction(["flights"]) as tx:
        open_file(mill, tx.write_pointer)
        killer.watch(MOMENT)
    killer.watch(MOMENT)
    with mill.transaction(["flights"]) as tx:
        open_file(mill, tx.write_pointer)
        killer.watch(MOMENT)

    assert spawner.killed == [4711, 4711]
    assert not killer.done
