"""Notifications on PostgreSQL: their number, the waiters that they wake, and the loss of the line."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest

from tests.catalog.conftest import OpenCatalog
from tests.catalog.counting import TICK, CountingProxy
from tests.catalog.test_named import SQL
from tests.catalog.test_wakeups import HELLO, NOT_LONG, SOON
from tests.manual_clock import ManualClock
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.messages import Topic, lock_position
from tidemill.catalog.named import ALL_CHANGES, Call, WakeKind
from tidemill.catalog.notifications import Notifier, Scope
from tidemill.catalog.wakeups import Waiter
from tidemill.processes import LocalSpawner
from tidemill.world import SystemClock, World

UNHEARD = frozenset({WakeKind.UNHEARD})
"""The change of `HELLO`, which no schedule hears."""
PROGRESS = frozenset({WakeKind.PROGRESS})
MESSAGE = frozenset({WakeKind.MESSAGE})
JOB = frozenset({WakeKind.JOB})
ENDED = frozenset({WakeKind.COMPLETED, WakeKind.FREED, WakeKind.UNHEARD})
"""The changes of the end of a run that no schedule hears."""


@pytest.fixture
def line(postgres_catalog_url: str) -> Iterator[CountingProxy]:
    """A line to the test's server."""
    with CountingProxy(postgres_catalog_url) as line:
        yield line


@pytest.fixture
def near(line: CountingProxy, open_at: OpenCatalog) -> Catalog:
    """The catalog as a process on the line has it."""
    return open_at(line.url)


@pytest.fixture
def far(postgres_catalog_url: str, open_at: OpenCatalog) -> Catalog:
    """The catalog as a process elsewhere has it."""
    return open_at(postgres_catalog_url)


def drain(waiter: Waiter) -> None:
    """Take what has woken the waiter so far."""
    while waiter.wait(NOT_LONG):
        pass


class _ChangesJobs(Effect):
    """A write for which each scheduler is woken."""

    phase = Phase.RUN

    def writes(self) -> list[Call]:
        return [SQL.wake_schedulers()]


class _ChangesNoJob(Effect):
    """Writes that change no row, by a statement that wakes."""

    phase = Phase.RUN

    def writes(self) -> list[Call]:
        return [SQL.change_job_at_the_limit(job_id="none")]


@pytest.mark.parametrize("opened", [1, 5])
def test_all_waiters_of_a_process_share_a_connection(line: CountingProxy, near: Catalog, opened: int) -> None:
    """Nine connections a node: a hundred nodes took as many as the server has."""
    before = line.connections
    waiters = [near.waiter() for _ in range(opened)]
    listening = line.connections - before
    for waiter in waiters:
        waiter.close()

    assert listening == 1
    assert line.take()["LISTEN"] == 2, "to all nodes and to this one"
    near.waiter().close()
    assert line.take()["LISTEN"] == 2


def test_a_commit_wakes_those_that_wait_for_its_changes(near: Catalog, far: Catalog) -> None:
    """A commit cost each idle node 25 statements, because it woke all loops."""
    job, run = frozenset({WakeKind.JOB}), frozenset({WakeKind.RUN})
    kinds = [UNHEARD, UNHEARD | job, run, frozenset[WakeKind]()]
    for catalog in (near, far):
        waiters = [catalog.waiter(kind) for kind in kinds]
        for waiter in waiters:
            drain(waiter)

        near.apply([HELLO])
        woken = [
            waiter.wait(SOON if kind >= UNHEARD else NOT_LONG) for waiter, kind in zip(waiters, kinds, strict=True)
        ]
        for waiter in waiters:
            waiter.close()

        assert woken == [True, True, False, False]


def test_a_commit_wakes_a_waiter_of_its_process_once(near: Catalog) -> None:
    """The process knows of the commit before its own notification comes."""
    with closing(near.waiter()) as waiter:
        drain(waiter)

        near.apply([HELLO])

        assert waiter.wait(SOON)
        assert not waiter.wait(NOT_LONG)


def test_an_effect_that_changes_nothing_sends_no_notification(line: CountingProxy, near: Catalog) -> None:
    """The begin of each run announces the run, if a schedule listens: mostly none does."""
    line.take()

    near.apply([_ChangesNoJob()])

    sent = line.take()
    assert sent["test_named.change_job_at_the_limit"] == 1
    assert sent["NOTIFY"] == 0


def test_a_notification_is_a_transaction_of_its_own(line: CountingProxy, near: Catalog) -> None:
    """Inside of a commit, NOTIFY holds one lock of the whole server until the disk has the commit.

    The notification itself does not wait for the disk: `SET` says so.
    """
    line.take()
    near.apply([_ChangesJobs()])
    near.write(lambda db: lock_position(db, Topic.DATA, "x"))
    near.close()

    messages = line.take_messages()

    assert sum("COMMIT" in message for message in messages) == 2
    assert [message for message in messages if "NOTIFY" in message] == [["SET", "NOTIFY"]]


def test_the_first_statement_of_a_block_takes_its_begin_along(line: CountingProxy, near: Catalog) -> None:
    """Each message to the server is a round trip. A block that asks nothing sends none."""

    def fail(db: Db) -> None:
        db.now()
        raise LookupError

    def asks(block: Callable[[Db], object]) -> list[list[str]]:
        with suppress(LookupError):
            near.write(block)
        told = [message for message in line.take_messages() if "NOTIFY" not in message]
        # A connection prepares a statement at its first use.
        return [[name for name in message if not name.startswith(("PREPARE", "DEALLOCATE"))] for message in told]

    near.read(lambda db: db.now())  # opens a connection
    line.take()

    assert asks(lambda db: db.run(SQL.write_limit, limit_key="l")) == [["BEGIN", "test_named.write_limit"], ["COMMIT"]]
    assert asks(lambda db: db.tick()) == [["BEGIN", TICK], ["COMMIT"]]
    assert asks(fail) == [["BEGIN", "SELECT tidemill_now()"], ["ROLLBACK"]]
    assert asks(lambda _: None) == []


class _Sent:
    """Notifications that were sent, instead of a server."""

    def __init__(self) -> None:
        self.sent: list[tuple[frozenset[WakeKind], Scope]] = []
        self.came = threading.Semaphore(0)

    def send(self, changes: frozenset[WakeKind], scope: Scope) -> None:
        self.sent.append((changes, scope))
        self.came.release()


def test_commits_within_five_milliseconds_share_a_notification() -> None:
    """Each notification is a transaction of its own, and wakes each node."""
    server = _Sent()
    notifier = Notifier(server.send, ManualClock())  # on which no time passes
    notifier.note(MESSAGE)
    for change in (WakeKind.JOB, WakeKind.RUN) * 500:
        notifier.note(frozenset({change}))
    notifier.close()

    sent = [changes for changes, _ in server.sent]
    assert sent[0] == MESSAGE
    assert frozenset().union(*sent[1:]) == {WakeKind.JOB, WakeKind.RUN}
    assert len(sent) < 20


def test_a_notification_that_waits_is_sent_without_another_commit() -> None:
    """Else the last of several commits would wait for the next look of the others."""
    server = _Sent()
    notifier = Notifier(server.send, ManualClock())
    notifier.note(MESSAGE)
    notifier.note(MESSAGE)
    came = [server.came.acquire(timeout=SOON.total_seconds()) for _ in range(2)]
    notifier.close()

    assert came == [True, True]
    assert server.sent == [(MESSAGE, Scope.ALL)] * 2


def test_progress_waits_for_the_next_notification() -> None:
    """Each short run would cost three notifications: taken, registered, ended."""
    server = _Sent()
    notifier = Notifier(server.send, SystemClock())
    notifier.note(PROGRESS)
    notifier.note(MESSAGE)
    notifier.close()

    assert server.sent == [(MESSAGE | PROGRESS, Scope.ALL)]


def test_progress_has_a_notification_of_its_own_after_a_while() -> None:
    """Pages show that a long run has begun."""
    server = _Sent()
    notifier = Notifier(server.send, SystemClock())
    notifier.note(PROGRESS)
    came = server.came.acquire(timeout=SOON.total_seconds())
    notifier.close()

    assert came
    assert server.sent == [(PROGRESS, Scope.ALL)]


@pytest.mark.parametrize(
    ("is_driver", "changes", "scope"),
    [
        (True, ENDED, Scope.NODE),
        (True, ENDED | MESSAGE, Scope.ALL),
        (True, JOB, Scope.ALL),
        (False, ENDED, Scope.ALL),
    ],
)
def test_a_driver_notifies_other_nodes_only_of_what_they_must_hear_at_once(
    is_driver: bool,  # noqa: FBT001  # a case
    changes: frozenset[WakeKind],
    scope: Scope,
) -> None:
    """With eight nodes, the end of each run woke eight processes, and only its own runner had something to do."""
    server = _Sent()
    notifier = Notifier(server.send, SystemClock(), is_driver=is_driver)
    notifier.note(PROGRESS)
    notifier.note(changes)
    at_once = list(server.sent)
    notifier.close()

    assert at_once == [(changes | PROGRESS, scope)]
    assert server.sent == at_once


def test_news_of_drivers_are_passed_on_within_a_second() -> None:
    """Hundreds of ends of runs then cost other nodes a single wake-up."""
    server = _Sent()
    notifier = Notifier(server.send, SystemClock())
    for _ in range(100):
        notifier.pass_on(ENDED)
    at_once = list(server.sent)
    came = server.came.acquire(timeout=SOON.total_seconds())
    notifier.close()

    assert at_once == []
    assert came
    assert server.sent == [(ENDED - {WakeKind.FREED}, Scope.ALL)]


def test_a_notifier_that_ends_sends_what_waits() -> None:
    """Else no other node would hear of the last run of a node that ends."""
    server = _Sent()
    notifier = Notifier(server.send, SystemClock())
    notifier.pass_on(ENDED)
    notifier.close()
    notifier.pass_on(ENDED)
    notifier.note(MESSAGE)

    later = ENDED - {WakeKind.FREED}
    assert server.sent == [(later, Scope.ALL), (later, Scope.ALL), (MESSAGE, Scope.ALL)]


def test_other_nodes_hear_of_the_end_of_a_run_whose_driver_is_gone(
    near: Catalog, far: Catalog, postgres_catalog_url: str, open_at: OpenCatalog
) -> None:
    """The runner ends a worn or cold driver right after the run."""
    driver = open_at(postgres_catalog_url, node=near.node)
    with closing(near.waiter(JOB)), closing(far.waiter(UNHEARD)) as elsewhere:
        drain(elsewhere)
        driver.apply([HELLO])
        sent = driver._notifier._later  # type: ignore[attr-defined]  # a driver that is killed sends nothing more
        at_once = elsewhere.wait(NOT_LONG)
        later = at_once or elsewhere.wait(SOON)

    assert sent == frozenset()
    assert not at_once
    assert later


def test_a_notification_that_cannot_be_sent_fails_no_commit(near: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The transaction has committed: an error would make the caller run it again. Others see it at their next look."""
    monkeypatch.setattr(near, "_channels", dict.fromkeys(Scope, "not a channel"))

    assert near.apply([HELLO]) > 0


def test_the_thread_that_notifies_is_not_left_by_a_program(tmp_path: Path) -> None:
    """A driver takes no other run after a program that has left a thread: each run would start a process."""
    spawner, notifier = LocalSpawner(), Notifier(_Sent().send, SystemClock())
    with spawner.surrounded(tmp_path / "stdout", tmp_path / "stderr"):
        notifier.note(PROGRESS)
        names = {thread.name for thread in threading.enumerate()}
        left = spawner.left_running(children=False)
    notifier.close()

    assert "notifier" in names
    assert left == ""


def test_other_nodes_look_after_a_node_has_lost_its_line(line: CountingProxy, near: Catalog, far: Catalog) -> None:
    """No process has passed on what its drivers have sent meanwhile."""
    with closing(near.waiter(JOB)) as waiter, closing(far.waiter(UNHEARD)) as elsewhere:
        drain(waiter)
        drain(elsewhere)
        line.cut()
        woken = elsewhere.wait(SOON)

    assert woken


def test_a_lost_line_wakes_all(line: CountingProxy, near: Catalog, far: Catalog) -> None:
    """Notifications that were sent meanwhile are lost."""
    with closing(near.waiter(frozenset({WakeKind.TOKEN}))) as waiter:
        drain(waiter)
        line.cut()
        woken = waiter.wait(SOON)
        while line.take()["LISTEN"] == 0:
            pass
        drain(waiter)
        with closing(near.waiter(UNHEARD)) as other:
            drain(other)
            far.apply([HELLO])
            told = other.wait(SOON)

    assert woken
    assert told


@pytest.mark.parametrize("payload", ["", "other news,from,a,later,version", "x"])
def test_a_notification_of_another_version_wakes_all(near: Catalog, payload: str) -> None:
    """Nodes are upgraded one after the other."""
    waiting = closing(near.waiter(frozenset({WakeKind.TOKEN})))
    with waiting as waiter, psycopg.connect(near.url, autocommit=True) as other:
        drain(waiter)
        row = other.execute("SELECT 'tidemill_' || current_schema()").fetchone()
        assert row is not None
        other.execute("SELECT pg_notify(%s, %s)", (row[0], payload))

        assert waiter.wait(SOON)


def test_catalogs_of_a_process_that_are_closed_leave_no_connection(line: CountingProxy, open_at: OpenCatalog) -> None:
    """Nor a thread that would go on to listen."""
    before = set(threading.enumerate())
    catalog = open_at(line.url, World())
    waiters = [catalog.waiter(ALL_CHANGES), catalog.waiter(UNHEARD)]
    for waiter in waiters:
        waiter.close()
    catalog.close()

    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name in {"listener", "notifier"}]


class _StillClock(SystemClock):
    """A clock on which a test sets the time."""

    time = timedelta(0)

    def monotonic(self) -> timedelta:
        """Return the time that the test has set."""
        return self.time


class _Listening:
    """A process whose clock stands still, with a waiter that has looked in vain for a commit of another node."""

    def __init__(self, url: str, open_at: OpenCatalog, far: Catalog) -> None:
        self.clock = _StillClock()
        self.catalog = open_at(url, World(clock=self.clock))
        self.waiter = self.catalog.waiter(JOB)
        drain(self.waiter)
        far.apply([_ChangesJobs()])
        assert self.waiter.wait(SOON), "without a look in vain before, a commit of another node wakes at once"

    def wait(self, timeout: timedelta = SOON, *, found: bool, rest: timedelta = timedelta(0)) -> threading.Event:
        """Wait in a thread; return the event of its end."""
        woken = threading.Event()

        def wait() -> None:
            self.waiter.wait(timeout, found=found, rest=rest)
            woken.set()

        threading.Thread(target=wait, daemon=True).start()
        return woken


@pytest.fixture
def listening(postgres_catalog_url: str, open_at: OpenCatalog, far: Catalog) -> Iterator[_Listening]:
    """A process whose waiter has looked in vain."""
    listening = _Listening(postgres_catalog_url, open_at, far)
    yield listening
    listening.waiter.close()


def is_set(event: threading.Event, within: timedelta) -> bool:
    """Wait for an event."""
    return event.wait(within.total_seconds())


def test_a_node_that_looked_in_vain_leaves_the_next_commits_to_other_nodes(listening: _Listening, far: Catalog) -> None:
    """Each commit of a node had all other nodes look: with eight nodes, seven of eight looks found nothing."""
    woken = listening.wait(found=False)
    far.apply([_ChangesJobs()])
    paused = not is_set(woken, NOT_LONG)
    listening.clock.time += timedelta(seconds=1)

    assert paused
    assert is_set(woken, SOON)


def test_a_look_that_found_something_ends_the_pause(listening: _Listening, far: Catalog) -> None:
    """A node that does the work must not lose time."""
    vain = listening.wait(found=False)
    far.apply([_ChangesJobs()])
    listening.clock.time += timedelta(seconds=1)
    assert is_set(vain, SOON)

    woken = listening.wait(found=True)
    far.apply([_ChangesJobs()])

    assert is_set(woken, SOON)


def test_a_quiet_time_ends_the_pause(listening: _Listening, far: Catalog) -> None:
    """The first commit after a quiet time is no part of a burst."""
    quiet = listening.wait(NOT_LONG, found=False)
    listening.clock.time += 2 * NOT_LONG
    assert is_set(quiet, SOON)

    woken = listening.wait(found=False)
    far.apply([_ChangesJobs()])

    assert is_set(woken, SOON)


@pytest.mark.parametrize("by", ["its driver", "another node"])
def test_a_commit_ends_no_wait_of_a_caller_that_would_not_look_yet(
    by: str, listening: _Listening, far: Catalog, postgres_catalog_url: str, open_at: OpenCatalog
) -> None:
    """Each commit woke the loops of alerts, deliveries and inboxes, which look once a second at most."""
    other = far if by == "another node" else open_at(postgres_catalog_url, node=listening.catalog.node)
    woken = listening.wait(found=True, rest=timedelta(seconds=1))
    other.apply([_ChangesJobs()])
    rested = not is_set(woken, NOT_LONG)
    listening.clock.time += timedelta(seconds=1)

    assert rested
    assert is_set(woken, SOON), "the commit was not forgotten"


def test_a_wait_that_is_ended_early_leaves_no_rest_behind(listening: _Listening, far: Catalog) -> None:
    """A commit between two waits would else be passed over, and the second would last until its time-out."""
    first = listening.wait(found=True, rest=timedelta(hours=1))
    assert not is_set(first, NOT_LONG)
    listening.waiter.wake()
    assert is_set(first, SOON), "a call of `wake` ends a rest"
    far.apply([_ChangesJobs()])
    time.sleep(NOT_LONG.total_seconds())

    second = listening.wait(found=True)

    assert is_set(second, SOON)


def test_a_commit_at_the_moment_of_a_time_out_ends_the_next_wait(listening: _Listening) -> None:
    """Pages read what is new only after a wait that a commit has ended."""
    waiter = listening.waiter
    is_over, select, quiet = waiter._is_over, waiter._select, []  # type: ignore[attr-defined]

    def timing_out(also: int | None, timeout: timedelta) -> tuple[bool, bool]:
        rung, other = select(also, timeout)
        quiet.extend([] if rung else [True])
        return rung, other

    def heard_after(now: timedelta) -> bool:
        over = bool(is_over(now))
        if quiet == [True]:
            waiter.hear()  # type: ignore[attr-defined]
        return over

    with patch.object(waiter, "_is_over", heard_after), patch.object(waiter, "_select", timing_out):
        timed_out = not waiter.wait(NOT_LONG)

    assert timed_out
    assert waiter.wait(SOON)


@pytest.mark.parametrize("by", ["the process", "its driver"])
def test_commits_of_the_own_node_end_a_pause(
    by: str, listening: _Listening, far: Catalog, postgres_catalog_url: str, open_at: OpenCatalog
) -> None:
    """A runner waits for the ends of its own drivers, while it leaves the runs of other nodes alone."""
    ours = listening.catalog if by == "the process" else open_at(postgres_catalog_url, node=listening.catalog.node)
    woken = listening.wait(found=False)
    far.apply([_ChangesJobs()])
    paused = not is_set(woken, NOT_LONG)
    ours.apply([_ChangesJobs()])

    assert paused
    assert is_set(woken, SOON)
