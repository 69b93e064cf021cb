"""Roles of a process: what commits, signals, hints and due times make them do."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from random import Random
from unittest.mock import patch

import pytest

from tests.catalog.counting import CountingProxy
from tests.lake.test_inbox import add_inbox, make_mill
from tests.run.conftest import rows_of
from tests.stage import staged
from tests.yardstick import patience
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Call, Dialect, Statement
from tidemill.catalog.wakeups import Waiter
from tidemill.epoch import to_ms
from tidemill.lake.inbox import discovery, leaving
from tidemill.lake.inbox.discovery import all_listings, due_listings, take_listing
from tidemill.lake.inbox.inbox import After
from tidemill.names import NodeId
from tidemill.narration import Narrator
from tidemill.roles import keeper as keepers
from tidemill.roles.collecting import collecting_seldom
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.janitor import Janitor
from tidemill.roles.keeper import DueThing, Keeper
from tidemill.roles.loops import Loops, loop
from tidemill.roles.node import Node
from tidemill.roles.process_end import ProcessEnd, asked_by_signals
from tidemill.roles.up import UntilIdle, is_idle, run_node
from tidemill.run.records.nodes import NodeRole, drain_node, find_node, put_node
from tidemill.run.step.outside_claims import get_latest_files, update_file_status
from tidemill.schedule.loop import Scheduler
from tidemill.storage.files import StorageUnavailable
from tidemill.storage.hints import FolderHints
from tidemill.testing.clock import VirtualClock
from tidemill.world import SystemClock, World

PATIENCE_S = patience(20)
SECOND = timedelta(seconds=1)
PLAIN = """
import tidemill as tm

app = tm.App("shop")


@app.python()
def load(run):
    pass
"""


@pytest.fixture
def mill(catalog_url, tmp_path):
    """An inbox whose files are deleted when they have been processed, with three such files."""
    mill = make_mill(catalog_url, tmp_path / "raw", after=After.DELETE)
    mill.land("a", "b", "c")
    mill.discover()
    claim = get_latest_files(mill.catalog, mill.inbox)
    update_file_status(mill.catalog, claim.claim_id, None, "SUCCESS")
    yield mill
    mill.catalog.close()


def test_the_garbage_collector_looks_seldom_while_a_node_works():
    """The collector took an eighth of a scheduler's time, to find that its batches leave nothing behind."""
    usual = gc.get_threshold()

    with collecting_seldom():
        often, frozen = gc.get_threshold()[0], gc.get_freeze_count()

    assert often > 700  # Python's default
    assert frozen > 0
    assert (gc.get_threshold(), gc.get_freeze_count()) == (usual, 0)


def test_a_stop_does_not_wait_for_all_files_that_are_to_leave(mill):
    """A million files may wait, and the machine may be about to shut down."""
    stopped = iter((False, True))

    with patch.object(leaving, "_MOST_FILES", 1), closing(mill.catalog.waiter()) as waiter:
        loop(mill.catalog.world, Janitor(mill.catalog).empty_inboxes)(waiter, lambda: next(stopped))

    assert len(list(mill.folder.iterdir())) == 2


class PlayedWaiter(Waiter):
    """A waiter on a clock of the test's, on which a commit comes at some times."""

    def __init__(self, clock: VirtualClock, commits: Iterable[timedelta]) -> None:
        super().__init__()
        self._clock = clock
        self._commits = list(commits)

    def _wait(self, timeout: timedelta, rest: timedelta) -> bool:
        del rest  # the loop looks no earlier by itself
        until = self._clock.elapsed + timeout
        woken = bool(self._commits) and self._commits[0] <= until
        self._clock.elapsed = max(self._commits.pop(0), self._clock.elapsed) if woken else until
        return woken


@pytest.mark.parametrize(
    ("commits", "look_again", "begins"),
    [
        ([], None, [0, 13, 26]),
        ([4 * SECOND], 5 * SECOND, [0, 5, 18]),
        ([4 * SECOND], SECOND, [0, 4, 17]),
        ([4 * SECOND], None, [0, 13, 26]),
    ],
)
def test_a_nap_begins_when_its_step_has_ended(commits, look_again, begins):
    """A listing of 3 s had the next one looked for 3 s early, in vain, and then once more."""
    clock = VirtualClock()
    found: list[float] = []

    def step() -> timedelta:
        found.append(clock.elapsed.total_seconds())
        clock.elapsed += 3 * SECOND
        return 10 * SECOND

    run = loop(replace(World(), clock=clock), step, look_again=look_again)
    with closing(PlayedWaiter(clock, commits)) as waiter:
        run(waiter, lambda: len(found) == len(begins))

    assert found == begins


def test_an_inbox_that_is_emptied_holds_up_no_sweep_and_repeats_none(mill):
    """Retention and expiry look at much more, and are not needed again after each few files."""
    janitor = Janitor(mill.catalog)

    nap = janitor.step()
    left = sorted(path.name for path in mill.folder.iterdir())

    assert nap > timedelta(0)
    assert left == ["a", "b", "c"]
    assert janitor.empty_inboxes() == timedelta(0)
    assert list(mill.folder.iterdir()) == []
    assert janitor.empty_inboxes() > timedelta(0)


def test_it_is_not_idle_while_processed_files_are_to_leave(mill):
    """`up --until-idle` in a nightly job would never archive: it ends as soon as the last run has."""
    scheduler = Scheduler(mill.catalog, mill.catalog.world, lambda *_: None)
    while scheduler.step() == timedelta(0):
        pass

    before = mill.catalog.read(lambda db: is_idle(db, []))
    Janitor(mill.catalog).empty_inboxes()

    assert not before
    assert mill.catalog.read(lambda db: is_idle(db, []))


@pytest.fixture
def slow(catalog_url, tmp_path):
    """An inbox that is listed each second, and whose files settle in two; by a clock of the test's."""
    made = make_mill(catalog_url, tmp_path / "raw", list_every=timedelta(seconds=1), settle=timedelta(seconds=2))
    clock = VirtualClock()
    made.catalog.world = replace(made.catalog.world, clock=clock)
    yield made, clock
    made.catalog.close()


def make_keeper(mill, told, hints=None):
    """The keeper of a process that has just begun, and its discoverer."""
    discoverer = Discoverer(mill.catalog, Narrator(World(), told.append, as_json=False), hints)
    return Keeper(mill.catalog, discoverer), discoverer


def test_listings_of_an_idle_inbox_commit_nothing_for_ninety_seconds(slow):
    """Each second a commit: 1.1 GB a day for nothing, and every loop of every node was woken."""
    mill, clock = slow
    keeper, _ = make_keeper(mill, [])
    keeper.step()
    taken = mill.catalog.read(all_listings)
    listings = []
    for _ in range(80):
        clock.elapsed += timedelta(seconds=1)
        with patch.object(discovery, "discover", side_effect=discovery.discover) as listed:
            keeper.step()
        listings.append(listed.call_count)
    kept = mill.catalog.read(all_listings)
    clock.elapsed += timedelta(seconds=11)
    keeper.step()

    assert listings == [1] * 80
    assert kept == taken
    assert mill.catalog.read(all_listings) > taken


def test_ninety_seconds_of_many_idle_inboxes_are_one_commit(slow):
    """A hundred idle inboxes wrote the catalog a hundred times a minute, and each commit waits for the disk."""
    mill, clock = slow
    for name in ("more", "most"):
        add_inbox(mill.catalog, name, mill.folder.parent / name)
    keeper, _ = make_keeper(mill, [])
    keeper.step()
    taken = mill.catalog.read(all_listings)
    clock.elapsed += timedelta(seconds=91)
    write, take = mill.catalog.write, discovery.take_listing
    with (
        patch.object(mill.catalog, "write", side_effect=write) as written,
        patch.object(discovery, "take_listing", side_effect=take) as rows,
    ):
        keeper.step()
    renewed = mill.catalog.read(all_listings)

    assert written.call_count == 1
    assert rows.call_count == 0
    assert all(after > before for (_, before), (_, after) in zip(taken, renewed, strict=True))


def test_a_file_that_settles_is_waited_for_until_its_listing_has_ended(slow):
    """`up --until-idle` ended during the listing that would have found the file, and started no run."""
    mill, clock = slow
    keeper, discoverer = make_keeper(mill, [])
    keeper.step()
    mill.land("a")
    clock.elapsed += timedelta(seconds=1)
    keeper.step()
    looked = []

    def discover(*given):
        looked.append(discoverer.looked)
        return discovery_of(*given)

    discovery_of = discovery.discover
    with patch.object(discovery, "discover", side_effect=discover):
        while not discoverer.looked:
            clock.elapsed += timedelta(seconds=1)
            keeper.step()

    assert looked
    assert not any(looked)


def test_the_next_listing_is_not_before_its_time_by_a_part_of_a_millisecond(slow):
    """The catalog's time is whole milliseconds: a step that comes too early finds nothing due."""
    mill, clock = slow
    keeper, discoverer = make_keeper(mill, [])
    keeper.step()
    clock.elapsed += timedelta(microseconds=300)

    before, due, after = mill.catalog.read(lambda db: (db.now(), find_next(discoverer, db), db.now()))

    assert before <= due - timedelta(seconds=1) <= after


def test_a_process_that_begins_lists_what_a_dead_one_has_charge_of(slow):
    """After a kill, a new `tidemill up` would wait for a minute."""
    mill, clock = slow
    told: list[str] = []
    make_keeper(mill, [])[0].step()
    mill.land("a")
    keeper, discoverer = make_keeper(mill, told)

    keeper.step()
    looked = discoverer.looked
    clock.elapsed += timedelta(seconds=2)
    keeper.step()

    assert not looked
    assert discoverer.looked
    assert len(told) == 1
    assert "+1 file" in told[0]


def find_next(discoverer, db):
    """Return the time of the next listing or renewal, as a keeper finds it."""
    look = db.look(discoverer.next_listing())
    return discoverer.find_next(look.time(0), look.now)


def make_node(catalog_url, clock, seed):
    """A process that has begun, and so has charge of all inboxes: its discoverer and its catalog."""
    catalog = open_catalog(catalog_url, replace(World(), clock=clock, random=Random(seed)))
    discoverer = Discoverer(catalog, Narrator(World(), lambda _: None, as_json=False))
    discoverer.list_due()
    return discoverer, catalog


def test_processes_take_the_inbox_of_a_dead_process_at_different_times(sqlite_catalog_url, tmp_path):
    """All looked at one moment, and queued for the row of the inbox: 41 of 83 waits were that."""
    make_mill(sqlite_catalog_url, tmp_path / "raw").catalog.close()
    clock = VirtualClock()
    nodes = []
    for seed in (1, 2, 3):
        clock.pass_by(timedelta(seconds=1))
        nodes.append(make_node(sqlite_catalog_url, clock, seed))
    (one, catalog), (other, _), _ = nodes
    [(_, due_at)] = catalog.read(all_listings)
    tries = []
    with patch.object(discovery, "take_listing", side_effect=discovery.take_listing) as take:
        for at in (due_at - timedelta(seconds=29), due_at, due_at + timedelta(milliseconds=200)):
            clock.pass_by(at - clock.at)
            one.list_due()
            other.list_due()
            looks = [catalog.read(partial(find_next, discoverer)) - due_at for discoverer in (one, other)]
            tries.append((take.call_count, looks))
    for _, opened in nodes:
        opened.close()

    # A renewal shows each process that another one has the inbox. When the inbox is due, both leave it for a while.
    assert [count for count, _ in tries] == [0, 0, 1]
    assert timedelta(0) < min(tries[1][1]) < max(tries[1][1]) < timedelta(milliseconds=200)


def test_a_late_renewal_keeps_the_inboxes_that_no_other_process_has_taken(sqlite_catalog_url, tmp_path):
    """A machine that slept for a while must not list the inboxes of its successor, nor lose its own."""
    mill = make_mill(sqlite_catalog_url, tmp_path / "raw")
    more = add_inbox(mill.catalog, "more", tmp_path / "more").dataset_id
    clock = VirtualClock()
    discoverer, catalog = make_node(sqlite_catalog_url, clock, 1)
    clock.pass_by(timedelta(minutes=2))
    ended = dict(catalog.read(due_listings))
    catalog.write(lambda db: take_listing(db, more, ended[more], "other", timedelta(minutes=9)))
    with patch.object(discovery, "discover", side_effect=discovery.discover) as listed:
        for _ in range(2):
            discoverer.list_due()
            clock.pass_by(timedelta(seconds=20))
    due = catalog.read(due_listings)
    for opened in (catalog, mill.catalog):
        opened.close()

    assert ended.keys() == {mill.inbox.dataset_id, more}
    assert {call.args[1].dataset_id for call in listed.call_args_list} == {mill.inbox.dataset_id}
    assert due == []


def test_a_process_that_ends_leaves_its_inboxes_to_the_others_at_once(catalog_url, tmp_path):
    """A deployment ends one node after the other. Files that came at that time waited for up to two minutes."""
    make_mill(catalog_url, tmp_path / "raw").catalog.close()
    (one, catalog), (other, other_catalog) = (make_node(catalog_url, SystemClock(), seed) for seed in (1, 2))
    with closing(catalog), closing(other_catalog), closing(catalog.waiter(Keeper.AWAITED)) as waiter:
        one.list_due()
        while waiter.wait(timedelta(0)):
            pass
        other.leave()
        woken = waiter.wait(timedelta(seconds=30))
        # The longest time for which a process leaves the inbox to others.
        SystemClock().sleep(timedelta(milliseconds=200))
        with patch.object(discovery, "discover", side_effect=discovery.discover) as listed:
            one.list_due()

    assert woken
    assert listed.call_count == 1


def test_an_inbox_that_another_process_has_taken_is_not_written(postgres_catalog_url, tmp_path):
    """A write would wait for that process, and for each process that came before."""
    mill = make_mill(postgres_catalog_url, tmp_path / "raw")
    with CountingProxy(postgres_catalog_url) as line:
        slow, slow_catalog = make_node(line.url, SystemClock(), 1)
        seen = mill.catalog.read(all_listings)
        _, fast_catalog = make_node(postgres_catalog_url, SystemClock(), 2)
        with closing(slow_catalog), closing(fast_catalog), patch.object(discovery, "due_listings", return_value=seen):
            line.take()
            slow.list_due()
        sent = line.take()
    mill.catalog.close()

    assert sent["discovery.find_listing"] == 1
    assert sent["discovery.take_listing"] == 0


def test_a_file_that_is_written_line_by_line_comes_once(slow):
    """Such a file was committed up to eight times, each time as another content."""
    mill, clock = slow
    told: list[str] = []
    keeper, discoverer = make_keeper(mill, told)
    naps = []
    for lines in range(1, 9):
        (mill.folder / "a").write_text("line\n" * lines)
        naps.append(keeper.step())
        clock.elapsed += timedelta(seconds=1)
    while not discoverer.looked:
        keeper.step()
        clock.elapsed += timedelta(milliseconds=500)

    assert max(naps) <= timedelta(seconds=2)
    assert len(told) == 1
    assert [(file.name, file.bytes) for file in mill.list()] == [("a", 40)]


def test_an_event_of_the_file_system_has_its_folder_listed_at_once(catalog_url, tmp_path):
    """A folder of a million files is listed seldom, and a new one in it is found at once all the same."""
    mill = make_mill(catalog_url, tmp_path / "raw", list_every=timedelta(hours=1))
    told: list[str] = []
    hints: FolderHints = FolderHints()
    keeper, _ = make_keeper(mill, told, hints)
    woken = threading.Event()
    hints.wake = woken.set
    keeper.step()

    mill.land("a")
    assert woken.wait(PATIENCE_S)
    while not told:  # of several events the first may come before the file
        keeper.step()
    mill.land(".hidden")
    nap = keeper.step()
    hints.close()
    mill.catalog.close()

    assert len(told) == 1
    assert "+1 file 5 B" in told[0]
    assert nap > timedelta(seconds=1)


def test_a_process_without_charge_neither_lists_nor_watches(catalog_url, tmp_path):
    """Eight nodes listed a folder at each event, since each of them had charge of it when it began."""
    mill = make_mill(catalog_url, tmp_path / "raw", list_every=timedelta(hours=1))
    clock = VirtualClock()
    mill.catalog.world = replace(mill.catalog.world, clock=clock)
    hints = [FolderHints(), FolderHints()]
    former, holder = (make_keeper(mill, [], one)[0] for one in hints)
    woken = [threading.Event(), threading.Event()]
    for one, event in zip(hints, woken, strict=True):
        one.wake = event.set
    former.step()
    holder.step()
    listings = []
    for name, heard in (("a", woken), ("b", woken[1:])):
        (tmp_path / name).write_text("line\n")
        (tmp_path / name).rename(mill.folder / name)  # one event; a file that is written has several
        assert [event.wait(PATIENCE_S) for event in heard] == [True] * len(heard)
        for keeper in (former, holder, former):
            with patch.object(discovery, "discover", side_effect=discovery.discover) as listed:
                keeper.step()
            listings.append(listed.call_count)
            clock.elapsed += SECOND
        still = woken[0].is_set()
        for event in woken:
            event.clear()
    for one in hints:
        one.close()
    mill.catalog.close()

    assert listings == [0, 1, 0] * 2
    assert not still


def test_a_process_that_has_lost_an_inbox_does_not_wait_for_its_files(slow):
    """A file was about to settle: `up --until-idle` would never have ended. The other process finds the file."""
    mill, clock = slow
    mill.land("a")
    keeper, discoverer = make_keeper(mill, [])
    keeper.step()
    settling = not discoverer.looked
    told: list[str] = []
    holder, _ = make_keeper(mill, told)
    holder.step()
    for _ in range(3):
        clock.elapsed += SECOND
        keeper.step()
        holder.step()

    assert settling
    assert discoverer.looked
    assert len(told) == 1


@pytest.mark.parametrize(("kind", "listings"), [("nfs4", [1, 1, 1, 1]), ("ext4", [1, 0, 0, 0])])
def test_a_folder_that_other_machines_write_to_is_listed_as_often_as_one_without_events(slow, kind, listings):
    """A feed that came over NFS was seen up to a minute late, whatever `list_every` was."""
    mill, clock = slow
    hints: FolderHints = FolderHints(lambda _: [kind])
    keeper, _ = make_keeper(mill, [], hints)
    found = []
    for _ in range(4):
        with patch.object(discovery, "discover", side_effect=discovery.discover) as listed:
            keeper.step()
        found.append(listed.call_count)
        clock.elapsed += SECOND
    hints.close()

    assert found == listings


def test_a_keeper_does_each_due_thing_and_sleeps_until_the_next(slow):
    """A kind of due things that the keeper does not ask would be done up to five seconds late, or never."""
    mill, _ = slow
    done: list[str] = []
    now = mill.catalog.read(lambda db: db.now())
    past = DueThing(lambda: [ask_for(now)], lambda _: done.append("past"))
    soon = DueThing(lambda: [ask_for(now + timedelta(milliseconds=700))], lambda _: done.append("soon"))
    with patch.object(keepers, "DUE_THINGS", (past, soon)):
        keeper, _ = make_keeper(mill, [])
    with patch.object(keepers, "DUE_THINGS", (soon,)):
        sleepy, _ = make_keeper(mill, [])

    keeper.step()
    nap = sleepy.step()

    assert done == ["past"]
    assert nap <= timedelta(milliseconds=700)


def test_a_due_thing_that_is_unavailable_stops_no_other(slow):
    """The keeper begins again a second later, at the same thing: all others would wait until that one is back."""
    mill, _ = slow
    done: list[str] = []

    def fail(_: Catalog) -> None:
        raise StorageUnavailable("file:///away", "", "there is no such folder")

    past = mill.catalog.read(lambda db: db.now())
    away = DueThing(lambda: [ask_for(past)], fail)
    other = DueThing(lambda: [ask_for(past)], lambda _: done.append("other"))
    with patch.object(keepers, "DUE_THINGS", (away, other)):
        keeper, _ = make_keeper(mill, [])

    with pytest.raises(StorageUnavailable):
        keeper.step()

    assert done == ["other"]


def test_what_a_commit_makes_due_is_done_before_any_time(slow):
    """A transaction that held a watermark has ended: no time says so."""
    mill, _ = slow
    done: list[str] = []
    never = DueThing(list, lambda _: done.append("by time"))
    made = DueThing(list, lambda _: done.append("by a commit"), only_by_time=False)
    with patch.object(keepers, "DUE_THINGS", (never, made)):
        keeper, _ = make_keeper(mill, [])

    keeper.step()

    assert done == ["by a commit"]


def ask_for(at: datetime) -> Call:
    """Return a read that finds this time."""
    text = f"SELECT {to_ms(at)} AS at"
    return Statement(f"ask_for_{to_ms(at)}", dict.fromkeys(Dialect, text), (), ("at",), (), None, frozenset(), text)()


@pytest.mark.parametrize("loss", ["DELETE FROM node RETURNING 1", "UPDATE node SET drains = 0 RETURNING 1"])
def test_a_node_that_drains_goes_on_to_when_its_row_is_lost(mill, loss):
    """The catalog was restored, or the machine slept for a day: the node took no run, and never ended."""
    at_work = [1]
    loops = Loops(mill.catalog, mill.catalog.world)
    node = Node(mill.catalog, [NodeRole.RUNNER], 2, loops=loops, busy=lambda: len(at_work))
    node.step()
    mill.catalog.write(lambda db: drain_node(db, node.node_id))
    node.step()
    rows_of(mill.catalog, loss)
    node.step()
    again = mill.catalog.read(lambda db: find_node(db, node.node_id))
    early = loops.ending.wait(timedelta(0))
    at_work.clear()
    node.step()

    assert again.drains
    assert not early
    assert loops.ending.wait(timedelta(0))


def test_a_renewal_keeps_a_request_to_drain_that_the_node_has_not_heard(mill):
    """The request may commit between the look of the node and its renewal."""

    def renew() -> None:
        mill.catalog.write(lambda db: put_node(db, NodeId("node_1"), "here", "none", [NodeRole.RUNNER], 2))

    renew()
    mill.catalog.write(lambda db: drain_node(db, NodeId("node_1")))
    renew()

    assert mill.catalog.read(lambda db: find_node(db, NodeId("node_1"))).drains


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_asks_for_the_end(number):
    """SIGHUP comes when the terminal is closed: it killed `up`, whose runs then waited for their leases."""
    ending = ProcessEnd()
    # The tests may run under nohup themselves.
    with _inherited(number, signal.SIG_DFL), asked_by_signals(ending):
        os.kill(os.getpid(), number)
        asked = ending.wait(timedelta(seconds=10))

    assert asked


def test_a_closed_terminal_ends_nothing_under_nohup():
    """`nohup tidemill up &` ignores SIGHUP, and the terminal is closed."""
    ending = ProcessEnd()
    with _inherited(signal.SIGHUP, signal.SIG_IGN):
        with asked_by_signals(ending):
            os.kill(os.getpid(), signal.SIGHUP)
            asked = ending.wait(timedelta(milliseconds=100))
        after = signal.getsignal(signal.SIGHUP)

    assert not asked
    assert after is signal.SIG_IGN


def test_a_signal_at_any_moment_of_the_wait_is_heard():
    """A handler runs between any two steps of the thread that waits: it waited for a lock of that thread."""
    for moment in itertools.count():
        ending = ProcessEnd()
        steps = itertools.count()
        waiting = threading.Thread(target=_wait_and_be_asked, args=(ending, steps, moment), daemon=True)
        waiting.start()
        waiting.join(timeout=patience(10))

        assert not waiting.is_alive(), f"asked at step {moment}"
        if next(steps) <= moment:
            break

    assert moment > 1


def _wait_and_be_asked(ending: ProcessEnd, steps: Iterator[int], moment: int) -> None:
    """Wait for the end, which is asked for at that step of the wait, or before it has so many."""

    def watch(_frame: object, _event: str, _: object) -> object:
        if next(steps) == moment:
            ending.ask()
        return watch

    sys.settrace(watch)
    ending.wait(timedelta(milliseconds=10))
    sys.settrace(None)


def test_a_signal_right_after_the_line_ready_ends_up_in_order(tmp_path):
    """A shell starts a command with SIGINT ignored when the command ends in `&`: `up` never heard the signal."""
    (tmp_path / "app.py").write_text(PLAIN, encoding="utf-8")
    program = "from tidemill.cli.main import main; main()"
    command = [sys.executable, "-c", program, "--project", str(tmp_path), "up"]
    environ = {**os.environ, "PYTHONUNBUFFERED": "1", "TIDEMILL_SERVER_PORT": "0"}
    with _inherited(signal.SIGINT, signal.SIG_IGN):
        up = subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)
    with up:
        assert up.stdout is not None
        assert " ready " in up.stdout.readline()
        up.send_signal(signal.SIGINT)
        try:
            told, _ = up.communicate(timeout=patience(60))
        finally:
            up.kill()

    assert " stopped " in told
    assert up.returncode == 0


class _BadServer:
    """A server that cannot be ended."""

    url = "http://127.0.0.1"

    def start(self, _failed: object) -> str:
        return ""

    def stop(self) -> None:
        raise OSError("no")


def test_an_error_at_the_end_leaves_no_thread(sqlite_catalog_url, tmp_path):
    """A thread that was left kept `up` alive for ever, and it did nothing any more."""
    with staged(tmp_path, sqlite_catalog_url) as stage:
        before = set(threading.enumerate())
        with pytest.raises(OSError, match="no"):
            run_node(stage.mill, echo=lambda _: None, until_idle=UntilIdle.ALL, server=_BadServer())
        left = [one.name for one in threading.enumerate() if one not in before and not one.daemon]

    assert left == []


@contextmanager
def _inherited(number: int, handler: signal.Handlers) -> Iterator[None]:
    """Stand for a parent that left this handler to its child."""
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)
