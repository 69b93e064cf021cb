"""Work never sticks: what a run leaves when it ends without success is announced, at once or in time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from tests.lake.conftest import Lake, make_lake
from tests.manual_clock import ManualClock, backdoor_of
from tests.run.conftest import Works
from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Transaction, begin
from tidemill.epoch import to_ms
from tidemill.json_specs import write_plain
from tidemill.lake.backlog import Announce, NoteUnseen
from tidemill.lake.claims import Blame, ClaimsMoved, Restamp
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.lake.consumer.claims import PARTITIONS
from tidemill.lake.consumer.take import take_claims
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.inbox.discovery import discover
from tidemill.lake.inbox.file_checks import failed
from tidemill.lake.inbox.file_claims import claim_files, read_claims
from tidemill.lake.inbox.file_endings import FILES, INBOXES, CloseFiles, blame_file
from tidemill.lake.inbox.inbox import Inbox, InboxSpec, ensure_inbox
from tidemill.names import DatasetId, JobId, Namespace
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.keeper import Keeper
from tidemill.run.records.runs import RunRecord, RunState
from tidemill.run.step.attempts import AttachTransaction, AttemptEnd, Cause, ask_kill, end_attempt
from tidemill.run.step.inputs import announce_due
from tidemill.shapes.formats import FileFormat, RawFormat
from tidemill.storage.locations import open_files
from tidemill.world import World


@dataclass
class Shop:
    """A program that reads a file set and an inbox, with a backoff of 10 s, and a clock of the test's own."""

    works: Works
    lake: Lake
    inbox: Inbox
    clock: ManualClock

    @property
    def consumer_id(self):
        """The consumer of the program."""
        return self.lake.consumer("default.shop.load").consumer_id

    def land(self, name="one.txt"):
        """A file arrives in the inbox and is found."""
        (Path(self.inbox.dataset.location.removeprefix("file://")) / name).write_text("a\n")
        discover(self.works.catalog, self.inbox)

    def launch(self, *, job=True, **changes) -> RunRecord:
        """A run that a job made and a runner has taken."""
        program = self.works.program(reads=("default.lines", "default.raw"), **changes)
        number = len(self.works.sql("SELECT 1 FROM run"))
        run_id = self.works.start(program, job_id=JobId(f"job_{number}") if job else None)
        (run,) = self.works.take()
        assert run.run_id == run_id
        return run

    def begin(self, run: RunRecord) -> Transaction:
        """Let the driver of `run` come as far as its transaction."""
        self.works.sql(f"UPDATE run SET state = 'RUNNING' WHERE run_id = '{run.run_id}' RETURNING run_id")
        restamped = [Restamp(PARTITIONS, run.run_id, run.epoch), Restamp(FILES, run.run_id, run.epoch)]
        attached = [AttachTransaction(run.run_id, run.epoch), *restamped]
        return begin(self.works.catalog, run_id=run.run_id, epoch=run.epoch, effects=attached)

    def take(self, run: RunRecord) -> int:
        """Let the driver of `run` come as far as its claims; how many it has."""
        tx = self.begin(run)
        delivered = take_claims(self.works.catalog, tx, {self.consumer_id: Terms()})
        return len(delivered[self.consumer_id]) + len(claim_files(self.works.catalog, tx, [self.inbox], [PARTITIONS]))

    def end(self, run: RunRecord, cause: Cause) -> RunState | None:
        """End the attempt of `run`."""
        return end_attempt(self.works.catalog, run.run_id, run.epoch, AttemptEnd(cause, "it did not work"))

    def announced(self) -> list[str]:
        """Return the data sets of which a backlog was announced, in the order of name."""
        rows = self.works.sql("SELECT event_key FROM message WHERE event_type = 'backlog'")
        return sorted(str(key) for (key,) in rows)

    def waits(self) -> list[int]:
        """Return the seconds for which no run may claim the first partition and the first file."""
        now = self.works.catalog.read(lambda db: db.now())
        tables = ("consumer_work", "inbox_file")
        times = [self.works.sql(f"SELECT not_before FROM {table} WHERE not_before > 0") for table in tables]
        return [(int(rows[0][0]) - to_ms(now)) // 1000 for rows in times]

    def keep(self) -> None:
        """Let the keeper announce what is due."""
        announce_due(self.works.catalog)


@pytest.fixture
def shop(catalog_url: str, tmp_path: Path) -> Iterator[Shop]:
    """An empty shop on each database."""
    clock = ManualClock()
    world = World(clock=clock)
    catalog = open_catalog(catalog_url, world)
    with backdoor_of(catalog_url) as backdoor:
        clock.rule(backdoor, catalog.dialect)
        location = open_files(str(tmp_path / "raw"), world)
        location.prepare()
        spec = write_plain(InboxSpec(RawFormat(FileFormat.TEXT), settle=timedelta(0)))
        dataset = Dataset(DatasetId("ds_raw"), Namespace("default"), "raw", DatasetKind.INBOX, location.url, spec)
        inbox = Inbox.of(catalog.write(lambda db: declare(db, dataset)))
        catalog.write(lambda db: ensure_inbox(db, dataset.dataset_id))
        shop = Shop(Works(catalog, world), make_lake(catalog), inbox, clock)
        shop.lake.consumer("default.shop.load")
        yield shop
    catalog.close()


BOTH = ["backlog:default.lines", "backlog:default.raw"]


def fill(shop):
    """A partition and a file come, whose messages a job uses up."""
    shop.lake.publish(10)
    shop.land()


def test_what_a_rejected_run_left_is_announced_at_the_back_off(shop):
    """Java was away: when it is back, what came meanwhile must not wait for the next arrival."""
    fill(shop)
    run = shop.launch()

    state = shop.end(run, Cause.REFUSED)
    shop.keep()
    at_once = shop.announced()
    shop.clock.move("10s")
    shop.keep()
    in_time = shop.announced()
    shop.keep()

    assert state is RunState.REJECTED
    assert at_once == []
    assert in_time == BOTH
    assert shop.announced() == BOTH


def test_what_a_rejected_run_held_is_announced_too(shop):
    """An earlier attempt had taken it: it comes back with the run's end."""
    fill(shop)
    run = shop.launch(retries=1, backoff=timedelta(0))
    shop.take(run)
    shop.end(run, Cause.LOST)
    for _ in range(2):
        (run,) = shop.works.take()
        state = shop.end(run, Cause.REFUSED)
    shop.clock.move("10s")
    shop.keep()

    again = shop.launch()

    assert state is RunState.REJECTED
    assert shop.announced() == BOTH
    assert shop.take(again) == 2


def test_a_run_that_failed_without_a_back_off_announces_what_it_held_once(shop):
    """No wait is none: with a time that has come already, the keeper would announce the same work again."""
    fill(shop)
    run = shop.launch(backoff=timedelta(0))
    held = shop.take(run)

    state = shop.end(run, Cause.FAILED)
    at_once = shop.announced()
    shop.keep()
    again = shop.launch(backoff=timedelta(0))

    assert (held, state) == (2, RunState.FAILED)
    assert (at_once, shop.announced()) == (BOTH, BOTH)
    assert shop.take(again) == 2


@pytest.mark.parametrize(("retries", "ended"), [(0, RunState.FAILED), (1, RunState.PENDING)])
def test_a_blamed_file_of_an_inbox_without_a_wait_is_announced_once(shop, retries, ended):
    """The file leaves its run, and so is announced also where the run goes on to another attempt."""
    shop.land()
    shop.works.sql("UPDATE inbox_marker SET retry_after = 0 RETURNING dataset_id")
    run = shop.launch(retries=retries, backoff=timedelta(0))
    shop.take(run)
    (file,) = shop.works.catalog.read(lambda db: read_claims(db, run.run_id))
    blame = Blame("the file is bad", [blame_file(file, "the file is bad")])

    state = end_attempt(shop.works.catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, "it is bad", blame))
    shop.keep()
    shop.clock.move("1s")
    shop.keep()

    assert state is ended
    assert shop.announced() == ["backlog:default.raw"]


def test_a_failed_file_of_an_inbox_without_a_wait_is_announced_once(shop):
    """A commit that closes it announces it, so that it needs no time at which the keeper would."""
    shop.land()
    shop.works.sql("UPDATE inbox_marker SET retry_after = 0 RETURNING dataset_id")
    run = shop.launch()
    shop.take(run)
    (file,) = shop.works.catalog.read(lambda db: read_claims(db, run.run_id))
    inbox = replace(shop.inbox, spec=replace(shop.inbox.spec, retry_after=timedelta(0)))

    closed = CloseFiles(run.run_id, run.epoch, (failed(inbox, file, "it is bad", alone=False),))
    shop.works.catalog.apply([closed, Announce(INBOXES, [inbox.dataset_id])])
    at_once = shop.announced()
    shop.keep()

    assert (at_once, shop.announced()) == (["backlog:default.raw"], ["backlog:default.raw"])


def test_runs_that_are_rejected_come_ever_more_seldom(shop):
    """The waits double without a counter, up to an hour: a machine without Java must not spin."""
    fill(shop)
    waits = []

    for _ in range(12):
        shop.end(shop.launch(), Cause.REFUSED)
        waits.append(shop.waits())
        shop.clock.move(f"{waits[-1][0]}s")
        shop.keep()

    doubling = [10, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600]
    assert waits == [[seconds, seconds] for seconds in doubling]
    assert shop.announced() == sorted(BOTH * 12)


def test_a_run_that_failed_before_it_took_anything_does_not_start_its_like_at_once(shop):
    """Its driver dies of something at its start, always: announced at once, that spins; never announced, it sticks."""
    fill(shop)
    (Path(shop.inbox.dataset.location.removeprefix("file://")) / "two.txt").write_text("b\n")
    shop.land("three.txt")
    run = shop.launch()

    state = shop.end(run, Cause.FAILED)
    at_once = shop.announced()
    shop.clock.move("10s")
    shop.keep()

    assert state is RunState.FAILED
    assert at_once == []
    assert shop.announced() == BOTH


def test_an_end_that_is_decided_again_happens_once(shop, monkeypatch):
    """The driver takes a file while its runner ends it: the first decision, about one claim, leaves nothing behind."""
    shop.lake.publish(10)
    run = shop.launch()
    tx = shop.begin(run)
    take_claims(shop.works.catalog, tx, {shop.consumer_id: Terms()})
    shop.land()
    apply, refused = shop.works.catalog.apply, []

    def driver_takes(effects, **more):
        if not refused:
            claim_files(shop.works.catalog, tx, [shop.inbox], [PARTITIONS])
        try:
            return apply(effects, **more)
        except ClaimsMoved as error:
            refused.append(error.run_id)
            raise

    monkeypatch.setattr(shop.works.catalog, "apply", driver_takes)
    note = NoteChange("aud_1", "ann", "end", run.run_id, {})
    state = end_attempt(shop.works.catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, "no luck"), [note])
    ended = shop.works.sql("SELECT event_type FROM message WHERE topic = 'program'")
    notes = shop.works.sql("SELECT actor FROM audit")
    failures = shop.works.sql("SELECT failures FROM consumer_work UNION ALL SELECT failures FROM inbox_file")

    assert (refused, state) == ([run.run_id], RunState.FAILED)
    assert (ended, notes, failures) == ([("run_ended",)], [("ann",)], [(1,), (1,)])
    assert shop.works.run(run.run_id).failures == 1


def test_what_a_killed_run_never_took_is_announced_at_once(shop):
    """Its job has used up the messages of partitions that no take has seen."""
    fill(shop)
    run = shop.launch()
    shop.end(run, Cause.RETURNED)

    ask_kill(shop.works.catalog, run.run_id)

    assert shop.announced() == BOTH


def test_what_came_after_the_take_of_a_run_has_messages_of_its_own(shop):
    """A schedule may wait for ten of them: that an earlier run failed must not start it with one."""
    shop.lake.publish(10)
    run = shop.launch()
    shop.take(run)
    shop.lake.publish(11)

    state = shop.end(run, Cause.FAILED)

    assert state is RunState.FAILED
    assert shop.announced() == []


def test_the_end_of_a_run_by_hand_announces_no_partitions_that_wait_for_more(shop):
    """A schedule waits for ten, and their messages wait in its job: the end of another run must not start it."""
    fill(shop)
    run = shop.launch(job=False)

    shop.end(run, Cause.KILLED)

    assert shop.announced() == ["backlog:default.raw"]


def test_what_is_noted_as_unread_is_taken_once(shop):
    """A row of the working set that no take has filled: the next take finds the change in its ranges as well."""
    shop.lake.publish(10)
    late = shop.lake.begin()
    first = shop.launch()
    taken = [shop.take(first)]
    shop.end(first, Cause.KILLED)
    shop.lake.commit(late, shop.lake.write(11))
    shop.lake.publish(12)
    shop.lake.publish(13)
    for _ in range(2):
        shop.works.catalog.apply([NoteUnseen(CONSUMERS, [shop.consumer_id])])

    taken += [shop.take(shop.launch()), shop.take(shop.launch())]

    assert taken == [1, 4, 0]


def test_the_keeper_sleeps_until_partitions_may_be_tried_again(shop):
    """Work that waits for a retry is announced at its time, not up to five seconds later."""
    shop.works.sql("DELETE FROM inbox_marker RETURNING dataset_id")
    shop.lake.publish(10)
    shop.end(shop.launch(backoff=timedelta(seconds=2)), Cause.REFUSED)
    keeper = Keeper(shop.works.catalog, Discoverer(shop.works.catalog, None))

    nap = keeper.step()

    assert nap == timedelta(seconds=2)
