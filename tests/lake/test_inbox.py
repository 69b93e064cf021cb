"""Inboxes: seed 004's file states, exactly once whatever happens to files and runs meanwhile."""

from __future__ import annotations

import dataclasses
import errno
import functools
import itertools
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.lake.conftest import make_lake
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.messages import Position, read_messages
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import EndTransaction, Transaction, TransactionEnded, TxState, begin, commit
from tidemill.epoch import EPOCH
from tidemill.errors import UserError
from tidemill.json_specs import read_text, write_plain, write_text
from tidemill.lake.backlog import Announce, publish_due
from tidemill.lake.claims import Blame, ClaimsMoved, Complete, Fail, Restamp, Return
from tidemill.lake.consumer.claims import PARTITIONS
from tidemill.lake.consumer.managed import WorkState
from tidemill.lake.consumer.take import take_claims
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare, find_by_id
from tidemill.lake.inbox import discovery
from tidemill.lake.inbox.discovery import discover, due_listings, next_listing, take_listing
from tidemill.lake.inbox.file_checks import (
    FileRewritten,
    find_changed,
    sort_out,
    succeeded,
    verify_claims,
    went_wrong,
)
from tidemill.lake.inbox.file_claims import ClaimedFile, claim_files, find_blamed, read_claims
from tidemill.lake.inbox.file_endings import (
    FILES,
    INBOXES,
    ClaimsLost,
    CloseFiles,
    blame_file,
)
from tidemill.lake.inbox.inbox import (
    FileState,
    Inbox,
    InboxFile,
    InboxSpec,
    OnRewrite,
    count_files,
    ensure_inbox,
    list_files,
)
from tidemill.names import DEFAULT_NAMESPACE, DatasetId, RunId
from tidemill.run.step.inputs import fail_claims, find_claims, return_claims
from tidemill.shapes.formats import FileFormat, RawFormat
from tidemill.storage import folder
from tidemill.storage.files import StorageUnavailable
from tidemill.world import World

TEST_SQL = load_sql(__file__)


@dataclass
class Mill:
    """An inbox `default.raw` with its catalog, and what a driver does with it, in short."""

    catalog: Catalog
    folder: Path
    inbox: Inbox
    runs: itertools.count = field(default_factory=lambda: itertools.count(1))

    def land(self, *names: str, content: str = "line\n") -> None:
        """Write files, each a millisecond newer than the one before, renamed into place."""
        for name in names:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            moment = next(self.moments)
            (self.folder / ".new").write_text(content)
            os.utime(self.folder / ".new", ns=(moment, moment))
            (self.folder / ".new").replace(path)

    moments: itertools.count = field(default_factory=lambda: itertools.count(1_700_000_000_000_000_000, 1_000_000))

    def discover(self) -> list[str]:
        """Names that one listing recorded."""
        return [file.name for file in discover(self.catalog, self.inbox).new]

    def retries_come_due(self) -> None:
        """As if all retry times had come."""
        self.catalog.write(lambda db: db.run(TEST_SQL.let_retries_come_due))

    @property
    def known(self) -> Inbox:
        """The inbox as the catalog knows it now."""
        return Inbox.of(self.catalog.read(lambda db: find_by_id(db, self.inbox.dataset_id)))

    def begin(self, run: str | None = None, epoch: int = 1) -> Transaction:
        """An attempt's transaction; its claims follow it."""
        run_id = RunId(run or f"run_{next(self.runs)}")
        return begin(self.catalog, run_id=run_id, epoch=epoch, effects=[Restamp(FILES, run_id, epoch)])

    def claim(self, tx: Transaction, **bounds: int) -> list[ClaimedFile]:
        """Claim files for the attempt, within `max_files` or `max_bytes`."""
        spec = dataclasses.replace(self.inbox.spec, **bounds)
        return claim_files(self.catalog, tx, [dataclasses.replace(self.inbox, spec=spec)])

    def succeed(self, tx: Transaction, files: list[ClaimedFile]) -> None:
        """Commit with all files processed."""
        outcomes = tuple(succeeded(file, 1) for file in files)
        effects = [CloseFiles(tx.run_id, tx.epoch, outcomes), Announce(INBOXES, [self.inbox.dataset_id])]
        commit(self.catalog, tx, effects)

    def fail(self, tx: Transaction, blamed: ClaimedFile | None = None, *, last: bool = False) -> None:
        """End the attempt by an exception of the program; with `last` the run ends FAILED."""
        end = EndTransaction(tx.write_pointer, TxState.ABORTED, "boom")
        blame = Blame("boom", () if blamed is None else (blame_file(blamed, "boom"),))
        claims = self.catalog.read(lambda db: find_claims(db, tx.run_id))
        if last:
            released = return_claims(tx.run_id, tx.epoch, blame, timedelta(seconds=30), claims)
            self.catalog.apply([end, *released, Announce(INBOXES, [self.inbox.dataset_id])])
        else:
            self.catalog.apply([end, *fail_claims(tx.run_id, tx.epoch, blame, claims)])

    def kill(self, tx: Transaction) -> None:
        """End the run KILLED."""
        end = EndTransaction(tx.write_pointer, TxState.INVALID, "killed")
        release = Return(FILES, tx.run_id, tx.epoch)
        self.catalog.apply([end, release, Announce(INBOXES, [self.inbox.dataset_id])])

    def process(self) -> list[str]:
        """Do one successful run that takes all files, and return their names."""
        tx = self.begin()
        files = self.claim(tx)
        good, others = sort_out(self.catalog.world, [self.inbox], files)
        outcomes = (*others, *(succeeded(file) for file in good))
        commit(self.catalog, tx, [CloseFiles(tx.run_id, 1, outcomes)])
        return [file.name for file in good]

    def states(self) -> dict[str, str]:
        """State by name; of several contents under one name the one that is not skipped."""
        rows = self.catalog.read(lambda db: list_files(db, self.inbox.dataset_id, limit=10_000))
        return {row.name: row.status.value for row in sorted(rows, key=lambda row: row.status != FileState.SKIPPED)}

    def list(self, **page: object) -> list[InboxFile]:
        """List the files as the catalog knows them."""
        return self.catalog.read(lambda db: list_files(db, self.inbox.dataset_id, **page))

    def messages(self) -> list[tuple[str, dict]]:
        """Event key and payload of all messages."""
        found = self.catalog.read(lambda db: read_messages(db, "data", Position(0, -1), 1000))
        return [(m.event_key, m.payload) for m in found]


def make_mill(catalog_url: str, folder: Path, **spec: object) -> Mill:
    """A catalog with one inbox of text files."""
    catalog = open_catalog(catalog_url, World())
    return Mill(catalog, folder, add_inbox(catalog, "raw", folder, **spec))


def add_inbox(catalog: Catalog, name: str, folder: Path, **spec: object) -> Inbox:
    """An inbox of text files."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = InboxSpec(RawFormat(FileFormat.TEXT), **{"settle": timedelta(0), **spec})
    dataset_id = DatasetId(f"ds_{name}")
    dataset = Dataset(dataset_id, DEFAULT_NAMESPACE, name, DatasetKind.INBOX, folder.as_uri(), write_plain(raw))
    catalog.write(lambda db: (declare(db, dataset), ensure_inbox(db, dataset_id)))
    return Inbox.of(catalog.read(lambda db: find_by_id(db, dataset_id)))


@pytest.fixture
def mill(catalog_url: str, tmp_path: Path) -> Iterator[Mill]:
    """An empty inbox on each database."""
    made = make_mill(catalog_url, tmp_path / "raw")
    yield made
    made.catalog.close()


def test_a_file_is_found_claimed_and_done_once(mill):
    """The seed's three steps; the message is what triggers."""
    mill.land("a.txt", "b.txt")

    assert mill.discover() == ["a.txt", "b.txt"]
    assert mill.discover() == []
    assert mill.process() == ["a.txt", "b.txt"]
    assert mill.process() == []
    assert mill.states() == {"a.txt": "SUCCESS", "b.txt": "SUCCESS"}
    assert mill.messages() == [("file:default.raw", {"count": 2, "bytes": 10})]


def test_of_two_processes_that_discover_at_once_one_announces(mill):
    """Any number of schedulers may list: a doubled count would trigger for files that are not there."""
    mill.land("a.txt", "b.txt")
    both = discovery._find_unknown(
        mill.catalog, mill.inbox, list(mill.inbox.files(mill.catalog.world).list_after("", None))
    )
    mill.land("c.txt")
    later = discovery._find_unknown(
        mill.catalog, mill.inbox, list(mill.inbox.files(mill.catalog.world).list_after("", None))
    )

    mill.catalog.apply([discovery._RecordFound(mill.inbox, tuple(both))])
    mill.catalog.apply([discovery._RecordFound(mill.inbox, tuple(later))])
    mill.catalog.apply([discovery._RecordFound(mill.inbox, tuple(later))])

    assert [payload["count"] for _, payload in mill.messages()] == [2, 1]
    assert sorted(mill.process()) == ["a.txt", "b.txt", "c.txt"]


def test_files_in_flight_and_no_data_are_ignored(mill, catalog_url, tmp_path):
    """Flume's `_current` (seed 004), and what other writers leave; a user's pattern comes on top."""
    bad = ["a_current", "x.tmp", "y._COPYING_", "_SUCCESS", ".hidden", "_temporary/0/part", "sub/.x/y", "sub/z.bak"]
    mill.land("a", "sub/b", *bad)

    found = discover(
        mill.catalog,
        dataclasses.replace(mill.inbox, spec=dataclasses.replace(mill.inbox.spec, ignore=("*.bak",))),
    )

    assert [file.name for file in found.new] == ["a", "sub/b"]
    assert {name for name, _ in found.ignored} == set(bad)
    assert dict(found.ignored)["a_current"] == "*_current"


def test_bounds_cut_a_claim_in_order_of_age(mill):
    """Oldest first; always at least one, or a file larger than the bound would wait for ever."""
    mill.land("c", "b", "a", content="0123456789")
    mill.discover()

    two = mill.claim(mill.begin(), max_files=2)
    one = mill.claim(mill.begin(), max_bytes=5)

    assert [file.name for file in two] == ["c", "b"]
    assert [file.name for file in one] == ["a"]


def test_a_file_written_again_is_another_file(mill):
    """Reprocessed by default: the new content came into no run yet."""
    mill.land("a")
    mill.discover()
    mill.process()
    mill.land("a", content="new\n")

    assert mill.discover() == ["a"]
    assert mill.process() == ["a"]
    assert mill.discover() == []


@pytest.mark.parametrize(
    ("on_rewrite", "state"), [(OnRewrite.IGNORE, FileState.SKIPPED), (OnRewrite.ERROR, FileState.QUARANTINED)]
)
def test_rewriting_a_processed_file_can_be_ignored_or_refused(catalog_url, tmp_path, on_rewrite, state):
    """A second content may be wrong: then the file stays listed, and no later listing looks at the file."""
    mill = make_mill(catalog_url, tmp_path / "raw", on_rewrite=on_rewrite)
    mill.land("a")
    mill.discover()
    mill.process()
    mill.land("a", content="new\n")

    assert mill.discover() == []
    assert mill.discover() == []
    assert mill.process() == []
    rows = mill.list()
    assert {row.status for row in rows} == {FileState.SUCCESS, state}
    assert len(mill.messages()) == 1


@pytest.mark.parametrize("on_rewrite", list(OnRewrite))
def test_a_file_rewritten_before_it_was_processed_comes_once_with_its_last_content(catalog_url, tmp_path, on_rewrite):
    """The old content is nowhere any more: delivering it would deliver the new one twice."""
    mill = make_mill(catalog_url, tmp_path / "raw", on_rewrite=on_rewrite)
    for content in ("one\n", "two\n", "three\n"):
        mill.land("a", content=content)
        mill.discover()

    assert mill.process() == ["a"]
    assert mill.process() == []
    rows = mill.list()
    assert sorted(row.status for row in rows) == ["SKIPPED", "SKIPPED", "SUCCESS"]
    assert mill.discover() == []


def test_a_new_content_waits_for_the_run_that_has_the_old_one(mill):
    """Two contents of one name at work at once would race for the same output."""
    mill.land("a", "b")
    mill.discover()
    tx = mill.begin()
    held = mill.claim(tx)
    mill.land("a", content="new\n")
    mill.discover()

    assert mill.claim(mill.begin()) == []
    mill.succeed(tx, held)
    assert [file.name for file in mill.claim(mill.begin())] == ["a"]
    assert ("backlog:default.raw", {}) in mill.messages()


@pytest.mark.parametrize("ends", ["kill", "fail", "blamed", "bad"])
def test_a_superseded_content_of_an_ended_run_is_not_returned(mill, ends):
    """Its run ended without success, but its bytes are gone: only the new content may be delivered."""
    mill.land("a")
    mill.discover()
    tx = mill.begin()
    [file] = mill.claim(tx)
    mill.land("a", content="new\n")
    mill.discover()

    match ends:
        case "kill":
            mill.kill(tx)
        case "fail":
            mill.fail(tx, last=True)
        case "blamed":
            mill.fail(tx, file)
        case "bad":
            commit(mill.catalog, tx, [CloseFiles(tx.run_id, 1, (went_wrong(mill.inbox, file, "bad"),))])
    mill.retries_come_due()

    claimed = mill.claim(mill.begin())
    assert [file.bytes for file in claimed] == [4]
    assert len(mill.list(state=FileState.SKIPPED)) == 1


def test_a_superseded_content_is_not_returned(mill):
    """Two contents of one name could be claimed: each run that claimed both died of the unique index, for ever."""
    mill.land("a", "f")
    mill.discover()
    for epoch in (1, 2):
        tx = mill.begin("run_x", epoch)
        mill.claim(tx)
        mill.fail(tx)
    mill.land("f", content="new\n")
    mill.discover()

    kept = mill.claim(mill.begin("run_x", 3))
    others = mill.claim(mill.begin())

    assert [file.name for file in kept] == ["a"]
    assert [(file.name, file.bytes) for file in others] == [("f", 4)]
    assert len(mill.list(state=FileState.SKIPPED)) == 1


def test_of_two_contents_that_wait_under_one_name_a_run_gets_the_later(mill):
    """On PostgreSQL one content can be returned while another is being recorded, and neither block sees the other."""
    mill.land("f")
    mill.discover()
    mill.land("f", content="new\n")
    mill.discover()
    mill.catalog.write(lambda db: db.run(TEST_SQL.renew_skipped))

    claimed = mill.claim(tx := mill.begin())
    mill.succeed(tx, claimed)

    assert [file.bytes for file in claimed] == [4]
    assert mill.process() == []
    assert sorted(row.status for row in mill.list()) == ["SKIPPED", "SUCCESS"]


def test_the_wait_after_a_failed_run_doubles_up_to_an_hour(catalog_url, tmp_path):
    """A program that fails on its file for days is not started every minute of them."""
    mill = make_mill(catalog_url, tmp_path / "raw", attempts=100)
    mill.land("a")
    mill.discover()
    waits = []

    for _ in range(9):
        mill.claim(tx := mill.begin())
        mill.fail(tx, last=True)
        waits += [row[0] for row in mill.catalog.read(lambda db: db.all(TEST_SQL.select_waits))]
        mill.retries_come_due()

    assert waits == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]


def test_a_file_moved_out_and_brought_back_is_processed(mill, tmp_path):
    """A user moved the file out for an hour: the time away must not lose the file."""
    mill.land("a")
    mill.discover()
    (mill.folder / "a").rename(tmp_path / "away")
    assert mill.process() == []
    assert mill.states() == {"a": "SKIPPED"}
    (tmp_path / "away").rename(mill.folder / "a")

    assert mill.discover() == ["a"]
    assert mill.process() == ["a"]


def test_a_commit_refuses_a_file_that_changed_under_the_reader(mill):
    """The reader may have read half of each content.

    The retry continues without the file, and the new content comes later.
    """
    mill.land("a", "b")
    mill.discover()
    claimed = mill.claim(tx := mill.begin("run_x"))
    verify_claims(mill.catalog.world, [mill.inbox], claimed)
    mill.land("a", content="neww\n")

    with pytest.raises(FileRewritten, match="'a' was written again"):
        verify_claims(mill.catalog.world, [mill.inbox], claimed)

    tx = mill.begin(tx.run_id, 2)
    good, others = sort_out(mill.catalog.world, [mill.inbox], mill.claim(tx))
    commit(mill.catalog, tx, [CloseFiles(tx.run_id, 2, (*others, *map(succeeded, good)))])
    assert [file.name for file in good] == ["b"]
    assert mill.discover() == ["a"]
    assert mill.process() == ["a"]


def test_bad_files_are_sorted_out_and_the_rest_commits(mill):
    """A cut file must not delay the others. The file is retried, then quarantined, with the reason."""
    mill.land("good")
    mill.land("cut", content="line\nli")
    mill.discover()

    assert mill.process() == ["good"]
    assert mill.states() == {"good": "SUCCESS", "cut": "ERROR"}
    assert mill.process() == []
    for _ in range(2):
        mill.retries_come_due()
        due_at = mill.catalog.read(lambda db: db.value(INBOXES.find_next_due, datetime))
        assert due_at == EPOCH + timedelta(milliseconds=1)
        assert publish_due(mill.catalog, INBOXES) == [mill.inbox.dataset_id]
        assert publish_due(mill.catalog, INBOXES) == []
        mill.process()
    [row] = mill.list(state=FileState.QUARANTINED)
    assert (row.name, row.failures) == ("cut", 3)
    assert "no end" in row.error
    assert [key for key, _ in mill.messages()].count("backlog:default.raw") == 2
    mill.retries_come_due()
    assert publish_due(mill.catalog, INBOXES) == []


def test_a_file_that_is_no_text_does_not_keep_the_others_from_their_commit(catalog_url, tmp_path):
    """A CSV in UTF-16 is valid UTF-8 full of NULs, and PostgreSQL stores none in a reason."""
    mill = make_mill(catalog_url, tmp_path / "raw")
    mill.inbox = dataclasses.replace(
        mill.inbox, spec=InboxSpec(RawFormat(FileFormat.CSV, "id INT, name STRING"), settle=timedelta(0))
    )
    mill.land("good", content="id,name\n1,x\n")
    mill.land("wide", content="id,name\n1,x\n".encode("utf-16-be").decode())
    mill.discover()

    assert mill.process() == ["good"]
    [row] = mill.list(state=FileState.ERROR)
    assert "NUL" in row.error


def test_claims_follow_the_run_to_its_next_attempt(mill):
    """A lost attempt is no failure of its files, and no other run may have them meanwhile."""
    mill.land("a", "b")
    mill.discover()
    first = mill.begin("run_x", 1)
    held = mill.claim(first)
    mill.land("c")
    mill.discover()

    second = mill.begin("run_x", 2)

    assert mill.claim(second) == held
    assert [file.name for file in mill.claim(mill.begin())] == ["c"]
    with pytest.raises(ClaimsLost):
        mill.succeed(first, held)
    mill.succeed(second, held)
    assert mill.states()["a"] == "SUCCESS"


def test_a_commit_closes_exactly_what_its_run_holds(mill):
    """A forgotten claim would stay so for ever; one of another run is not ours to close."""
    mill.land("a", "b")
    mill.discover()
    one = mill.begin()
    [file_a] = mill.claim(one, max_files=1)
    other = mill.begin()
    [file_b] = mill.claim(other, max_files=1)

    for wrong in ([], [file_b], [file_a, file_b]):
        with pytest.raises(ClaimsLost):
            mill.succeed(one, wrong)

    mill.succeed(one, [file_a])
    with pytest.raises(TransactionEnded):
        mill.succeed(one, [file_a])
    assert mill.states() == {"a": "SUCCESS", "b": "IN_PROGRESS"}


def test_a_fenced_attempt_claims_nothing(mill):
    """The attempt's run may have ended: no process would ever return the files."""
    mill.land("a")
    mill.discover()
    tx = mill.begin()
    mill.catalog.apply([EndTransaction(tx.write_pointer, TxState.INVALID, "fenced")])

    with pytest.raises(TransactionEnded):
        mill.claim(tx)

    assert mill.states() == {"a": "NEW"}


def test_a_killed_run_returns_its_files_and_a_failed_one_marks_them(mill):
    """Seed 004: a failure leaves ERROR, to be picked up again; a kill says nothing about the files."""
    mill.land("a")
    mill.discover()
    killed = mill.begin()
    mill.claim(killed)
    mill.kill(killed)
    after_kill = mill.states()["a"]
    failed = mill.begin()
    [again] = mill.claim(failed)
    mill.fail(failed, last=True)

    assert after_kill == "NEW"
    assert again.failures == 0
    [row] = mill.list()
    assert (row.status, row.failures, row.error) == (FileState.ERROR, 1, "boom")
    assert mill.claim(mill.begin()) == []
    mill.retries_come_due()
    assert [file.name for file in mill.claim(mill.begin())] == ["a"]


def test_claims_of_an_attempt_that_died_before_it_began_are_released(mill):
    """The run's epoch has risen, its claims still carry the old one: they must not stick."""
    mill.land("a")
    mill.discover()
    tx = mill.begin("run_x", 1)
    mill.claim(tx)

    mill.catalog.apply([Return(FILES, RunId("run_x"), 3)])

    assert mill.states() == {"a": "NEW"}


@pytest.mark.parametrize("poison", range(7))
def test_a_file_that_fails_the_program_is_found_by_halves(mill, poison):
    """No error names it: each failing attempt keeps half, until it is alone; all others are processed."""
    names = [f"f{n}" for n in range(7)]
    mill.land(*names)
    mill.discover()
    done, attempts = [], 0

    for run in range(20):
        for epoch in (1, 2, 3):
            tx = mill.begin(f"run_{run}", epoch)
            files = mill.claim(tx)
            attempts += 1
            if names[poison] not in [file.name for file in files]:
                mill.succeed(tx, files)
                done += [file.name for file in files]
                break
            mill.fail(tx, last=epoch == 3)
        mill.retries_come_due()
        if "QUARANTINED" in mill.states().values() and len(done) == 6:
            break

    assert sorted(done) == sorted(set(names) - {names[poison]})
    assert mill.states()[names[poison]] == "QUARANTINED"
    assert attempts <= 12


def test_a_file_that_an_error_names_leaves_the_run_at_once(mill):
    """The next attempt goes on with the rest; the named one is tried by itself, then quarantined."""
    mill.land("a", "bad", "c")
    mill.discover()
    first = mill.begin("run_x", 1)
    blamed = next(file for file in mill.claim(first) if file.name == "bad")
    mill.fail(first, blamed)
    second = mill.begin("run_x", 2)
    rest = mill.claim(second)
    mill.succeed(second, rest)

    assert [(file.name, file.failures) for file in rest] == [("a", 0), ("c", 0)]
    for _ in range(2):
        mill.retries_come_due()
        mill.land(f"new{next(mill.runs)}")
        mill.discover()
        tx = mill.begin()
        alone = mill.claim(tx)
        assert [file.name for file in alone] == ["bad"]
        mill.fail(tx, alone[0], last=True)
    assert mill.states()["bad"] == "QUARANTINED"
    assert len(mill.process()) == 2


def test_a_failed_run_that_can_name_the_file_spares_the_others(mill):
    """They are not suspects: claimable at once, with no failure counted."""
    mill.land("a", "bad")
    mill.discover()
    tx = mill.begin()
    blamed = mill.claim(tx)[1]

    mill.fail(tx, blamed, last=True)

    assert mill.states() == {"a": "NEW", "bad": "ERROR"}
    assert ("backlog:default.raw", {}) in mill.messages()
    assert [file.failures for file in mill.claim(mill.begin())] == [0]


def test_two_claimers_never_get_the_same_file(mill):
    """On PostgreSQL both read before either has written."""
    mill.land(*(f"f{n:03}" for n in range(200)))
    mill.discover()
    got: list[str] = []
    barrier = threading.Barrier(4)

    def claimer(number: int) -> None:
        barrier.wait()
        for round_ in range(20):
            tx = mill.begin(f"run_{number}_{round_}")
            got.extend(file.name for file in mill.claim(tx, max_files=3))

    threads = [threading.Thread(target=claimer, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(got) == len(set(got)) == 200


def test_a_commit_records_what_its_run_took(mill):
    """Audit and replay ask for the inputs of a run. A quarantined file is not an input."""
    mill.land("a")
    mill.land("cut", content="x")
    mill.discover()

    mill.process()

    rows = mill.catalog.read(lambda db: db.all(TEST_SQL.select_inputs))
    versions = mill.list()
    assert rows == [("ds_raw", "a", versions[0].content_version)]


def test_files_are_listed_in_pages(mill):
    """An inbox may know a million."""
    mill.land("b", "a", "c")
    mill.discover()

    mill.land("b", content="new\n")
    mill.discover()

    pages, after = [], None
    while page := mill.list(after=after, limit=2):
        pages.append([file.name for file in page])
        after = page[-1].name

    assert pages == [["a", "b", "b"], ["c"]]
    assert mill.catalog.read(lambda db: count_files(db, mill.inbox.dataset_id)) == {
        FileState.NEW: (3, 14),
        FileState.SKIPPED: (1, 5),
    }


def test_one_of_several_schedulers_lists_a_folder_when_it_is_due(mill):
    """Each listing costs the whole folder."""
    [(dataset_id, due_at)] = mill.catalog.read(due_listings)

    hold = timedelta(minutes=1)
    taken = [
        mill.catalog.write(lambda db, one=one: take_listing(db, dataset_id, due_at, one, hold)) for one in ("a", "b")
    ]

    assert dataset_id == mill.inbox.dataset_id
    assert taken == [True, False]
    assert mill.catalog.read(lambda db: db.look(next_listing())).times()[0] > due_at
    assert mill.catalog.read(due_listings) == []


def test_an_inbox_is_what_its_row_says():
    """Deployment writes the row, every process reads it back."""
    spec = InboxSpec(
        RawFormat(FileFormat.CSV, "id INT, name STRING", {"sep": ";"}, line_end=False),
        ("*.bak",),
        OnRewrite.ERROR,
        5,
        timedelta(seconds=7),
        100,
        1 << 30,
        timedelta(milliseconds=1500),
    )

    assert read_text(InboxSpec, write_text(spec)) == spec


def test_an_error_that_names_a_path_is_traced_to_the_claimed_file(mill):
    """The process that ends the attempt has only the text, and Spark escapes the path."""
    mill.land("a b.csv", "a.csv")
    mill.discover()
    mill.claim(tx := mill.begin())
    error = f"x\nCaused by: Encountered error while reading file {(mill.folder / 'a b.csv').as_uri()}.  SQLSTATE: KD001"

    blamed = mill.catalog.read(lambda db: find_blamed(db, tx.run_id, error))
    without_path = mill.catalog.read(lambda db: find_blamed(db, tx.run_id, "ValueError: a b.csv"))

    assert (blamed.name, without_path) == ("a b.csv", None)
    assert len(mill.catalog.read(lambda db: read_claims(db, tx.run_id))) == 2


def test_a_program_of_two_inboxes_is_halved_over_both(mill, tmp_path):
    """A file of each inbox would never be alone, and the bad file never found."""
    other = add_inbox(mill.catalog, "other", tmp_path / "other")
    mill.land("poison")
    (tmp_path / "other" / "good").write_text("line\n")
    mill.discover()
    discover(mill.catalog, other)
    both = [other, mill.inbox]

    for epoch in (1, 2):
        tx = mill.begin("run_x", epoch)
        assert len(claim_files(mill.catalog, tx, both)) == 2
        mill.fail(tx)
    tx = mill.begin("run_x", 3)
    alone = claim_files(mill.catalog, tx, both)
    mill.fail(tx, last=True)

    assert [file.name for file in alone] == ["poison"]
    assert mill.states() == {"poison": "QUARANTINED"}
    assert [file.name for file in claim_files(mill.catalog, mill.begin(), both)] == ["good"]


@pytest.mark.parametrize("poison", ["a partition", "a file"])
def test_of_files_and_partitions_only_the_poison_is_given_up(mill, poison):
    """A program of both kinds: neither would ever fail alone, and what was alone of its kind took the blame."""
    lake = make_lake(mill.catalog)
    consumer_id = lake.consumer().consumer_id
    lake.publish(1)
    lake.publish(2)
    mill.land("f1", "f2")
    mill.discover()
    done = []

    for run in range(20):
        for epoch in (1, 2, 3):
            run_id = RunId(f"both_{run}")
            follow = [Restamp(FILES, run_id, epoch), Restamp(PARTITIONS, run_id, epoch)]
            tx = begin(mill.catalog, run_id=run_id, epoch=epoch, effects=follow)
            partitions = take_claims(mill.catalog, tx, {consumer_id: Terms()})[consumer_id]
            files = claim_files(mill.catalog, tx, [mill.inbox], [PARTITIONS])
            got = [*lake.hours(partitions), *(file.name for file in files)]
            if {"a partition": 1, "a file": "f1"}[poison] not in got:
                outcomes = tuple(map(succeeded, files))
                closed = [CloseFiles(run_id, epoch, outcomes), Complete(PARTITIONS, run_id, epoch)]
                commit(mill.catalog, tx, closed)
                done += got
                break
            end = EndTransaction(tx.write_pointer, TxState.ABORTED, "boom")
            blame, claims = Blame("boom"), mill.catalog.read(lambda db, run_id=run_id: find_claims(db, run_id))
            if epoch < 3:
                mill.catalog.apply([end, *fail_claims(run_id, epoch, blame, claims)])
            else:
                mill.catalog.apply([end, *return_claims(run_id, epoch, blame, timedelta(seconds=1), claims)])
        mill.retries_come_due()
        lake.pass_time()

    given_up = [name for name, state in mill.states().items() if state == "QUARANTINED"]
    given_up += lake.hours(lake.list_work(WorkState.DISCARDED))
    assert given_up == [{"a partition": 1, "a file": "f1"}[poison]]
    assert sorted(map(str, done + given_up)) == ["1", "2", "f1", "f2"]


def test_a_file_that_fails_beside_a_partition_is_no_culprit(catalog_url, tmp_path):
    """With one attempt it would be quarantined at the first failure of what may be the partition's fault."""
    mill = make_mill(catalog_url, tmp_path / "raw", attempts=1)
    lake = make_lake(mill.catalog)
    lake.publish(1)
    mill.land("f")
    mill.discover()
    states = []

    for ends in (fail_claims, functools.partial(return_claims, backoff=timedelta(0))):
        tx = mill.begin("run_x", len(states) + 1)
        lake.catalog.apply([Restamp(PARTITIONS, tx.run_id, tx.epoch)])
        lake.take(tx)
        mill.claim(tx)
        end = EndTransaction(tx.write_pointer, TxState.ABORTED, "boom")
        claims = mill.catalog.read(lambda db: find_claims(db, RunId("run_x")))
        mill.catalog.apply([end, *ends(tx.run_id, tx.epoch, Blame("boom"), claims=claims)])
        states.append(mill.states()["f"])

    assert states == ["IN_PROGRESS", "ERROR"]


def test_an_end_that_was_decided_on_other_claims_is_refused(mill):
    """The file was alone when the end was decided; beside the partition it may be innocent."""
    lake = make_lake(mill.catalog)
    lake.publish(1)
    mill.land("f")
    mill.discover()
    tx = mill.begin()
    mill.claim(tx)
    claims = mill.catalog.read(lambda db: find_claims(db, tx.run_id))
    lake.take(tx)

    with pytest.raises(ClaimsMoved, match=f"the claims of run {tx.run_id} changed meanwhile"):
        mill.catalog.apply(fail_claims(tx.run_id, tx.epoch, Blame("boom"), claims))

    assert mill.states() == {"f": "IN_PROGRESS"}


@pytest.mark.parametrize("bound", ["attempts", "max_files", "max_bytes"])
def test_bounds_that_allow_nothing_are_refused(bound):
    """A run that may take no file would never end its inbox's backlog."""
    with pytest.raises(UserError, match=f"{bound} of an inbox is at least 1, not 0"):
        InboxSpec(RawFormat(FileFormat.TEXT), **{bound: 0})


def test_a_file_that_cannot_be_read_fails_alone(mill):
    """No right to read it: the run went on to another attempt, for ever, and no other file came."""
    mill.land("denied", "good")
    mill.discover()
    reads = itertools.count()

    def deny(mark: str) -> None:
        if mark == "storage.before_read" and next(reads) == 0:
            raise PermissionError(errno.EACCES, "Permission denied")

    tx = mill.begin()
    claimed = mill.claim(tx)
    good, others = sort_out(World(marked=deny), [mill.inbox], claimed)

    assert [file.name for file in good] == ["good"]
    assert [(one.name, one.status, one.error) for one in others] == [
        ("denied", FileState.ERROR, "it cannot be read: Permission denied")
    ]


def test_a_file_that_is_written_again_while_it_is_checked_is_not_bad(catalog_url, tmp_path):
    """The check read half of the new content: the old one was quarantined, and so the new one ignored as processed."""
    mill = make_mill(catalog_url, tmp_path / "raw", attempts=1)
    mill.land("a")
    mill.discover()
    reads = itertools.count()

    def write_again(mark: str) -> None:
        if mark == "storage.before_read" and next(reads) == 0:
            mill.land("a", content="li")

    tx = mill.begin()
    claimed = mill.claim(tx)
    good, others = sort_out(World(marked=write_again), [mill.inbox], claimed)
    commit(mill.catalog, tx, [CloseFiles(tx.run_id, 1, tuple(others))])
    mill.land("a", content="list\n")

    assert good == []
    assert [one.status for one in others] == [FileState.SKIPPED]
    assert mill.discover() == ["a"]
    assert mill.process() == ["a"]
    mill.catalog.close()


def test_a_location_that_is_away_closes_no_file(mill):
    """An unmounted folder says of each file that there is none: they were skipped, and the run was COMPLETED."""
    mill.land("a")
    mill.discover()
    claimed = mill.claim(mill.begin())
    away = mill.folder.with_name("away")
    mill.folder.rename(away)

    for look in (
        lambda: sort_out(mill.catalog.world, [mill.inbox], claimed),
        lambda: find_changed(mill.catalog.world, mill.inbox, claimed),
        lambda: verify_claims(mill.catalog.world, [mill.inbox], claimed),
    ):
        with pytest.raises(StorageUnavailable, match="there is no such folder"):
            look()
    away.rename(mill.folder)
    assert [file.name for file in sort_out(mill.catalog.world, [mill.inbox], claimed)[0]] == ["a"]


def test_a_mount_point_without_its_disk_closes_no_file(mill):
    """An unmounted folder stays, and is empty: claimed files were skipped, and the run was COMPLETED."""
    mill.land("a", "b")
    mill.discover()
    claimed = mill.claim(mill.begin())
    away = mill.folder.with_name("away")
    mill.folder.rename(away)
    mill.folder.mkdir()
    (mill.folder / ".hidden").touch()

    for look in (
        lambda: sort_out(mill.catalog.world, [mill.known], claimed),
        lambda: find_changed(mill.catalog.world, mill.known, claimed),
        lambda: verify_claims(mill.catalog.world, [mill.known], claimed),
        lambda: discover(mill.catalog, mill.inbox, reconcile=True),
    ):
        with pytest.raises(StorageUnavailable, match=r"not mounted\? Mount the disk; or .*--accept-empty"):
            look()
    (mill.folder / ".hidden").unlink()
    mill.folder.rmdir()
    away.rename(mill.folder)
    assert [file.name for file in sort_out(mill.catalog.world, [mill.known], claimed)[0]] == ["a", "b"]


def test_a_disk_that_is_unmounted_closes_no_file(mill):
    """The same with a real mount, where this user may mount."""
    mounted = subprocess.run(["mount", "-t", "tmpfs", "none", mill.folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"cannot mount: {mounted.stderr.decode()}")
    try:
        mill.land("a")
        mill.discover()
        claimed = mill.claim(mill.begin())
    finally:
        subprocess.run(["umount", mill.folder], check=True)

    with pytest.raises(StorageUnavailable, match="not mounted"):
        sort_out(mill.catalog.world, [mill.known], claimed)


def test_a_folder_that_was_emptied_is_no_mount_point(mill):
    """Its files have gone; and a disk that is mounted there later is a disk like any other."""
    mill.land("a")
    mill.discover()
    claimed = mill.claim(mill.begin())
    (mill.folder / "a").unlink()

    outcomes = [sort_out(mill.catalog.world, [mill.known], claimed)[1]]
    mill.discover()
    mill.folder.rename(mill.folder.with_name("emptied"))
    mill.folder.mkdir()
    mill.discover()
    outcomes.append(sort_out(mill.catalog.world, [mill.known], claimed)[1])

    assert [one.status for found in outcomes for one in found] == [FileState.SKIPPED] * 2


def test_a_copy_of_an_inbox_takes_its_place(mill):
    """A folder with files in it is the folder, whatever disk it lies on; and so it may be emptied."""
    mill.land("a")
    mill.discover()
    claimed = mill.claim(mill.begin())
    original = mill.folder.with_name("original")
    mill.folder.rename(original)
    shutil.copytree(original, mill.folder)

    found = mill.discover()
    good, _ = sort_out(mill.catalog.world, [mill.known], claimed)
    (mill.folder / "a").unlink()
    _, others = sort_out(mill.catalog.world, [mill.known], claimed)

    assert found == []
    assert [file.name for file in good] == ["a"]
    assert [one.status for one in others] == [FileState.SKIPPED]


def test_a_folder_that_is_mounted_again_as_another_device_has_the_same_files(mill, monkeypatch):
    """NFS gives a new device number with each mount, other file systems new inodes too: no file is new for that."""
    mill.land("a", "b")
    mill.discover()
    tx = mill.begin()
    mill.succeed(tx, mill.claim(tx, max_files=1))
    claimed = mill.claim(mill.begin())
    before = mill.known.dataset.root
    look, etag_of = os.fstat, folder._etag

    def on_another_device(descriptor: int) -> os.stat_result:
        found = look(descriptor)
        named = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        return os.stat_result((found.st_mode, found.st_ino, found.st_dev + 1, *found[3:]), named)

    monkeypatch.setattr(os, "fstat", on_another_device)
    monkeypatch.setattr(folder, "_etag", lambda status: f"1{etag_of(status)}")
    good, others = sort_out(mill.catalog.world, [mill.known], claimed)
    changed = find_changed(mill.catalog.world, mill.known, claimed)
    found = discover(mill.catalog, mill.inbox, reconcile=True)

    assert mill.known.dataset.root != before
    assert ([file.name for file in good], others, changed) == (["b"], [], [])
    assert (found.new, found.forgotten, found.away) == ((), 0, ())
    assert mill.states() == {"a": "SUCCESS", "b": "IN_PROGRESS"}


def test_a_folder_that_is_emptied_before_it_is_mounted_again_is_itself_with_the_next_file(mill, monkeypatch):
    """No listing has seen the folder empty, so it may be the place of a mount: a file shows that it is not."""
    mill.land("a")
    mill.discover()
    tx = mill.begin()
    mill.succeed(tx, mill.claim(tx))
    (mill.folder / "a").unlink()
    mill.folder.rename(mill.folder.with_name("before"))
    mill.folder.mkdir()
    with pytest.raises(StorageUnavailable, match="not mounted"):
        mill.discover()

    mill.land("b")

    assert mill.discover() == ["b"]
    assert mill.states() == {"a": "SUCCESS", "b": "NEW"}


def test_which_folder_has_the_files_is_known_before_they_are_recorded(mill):
    """A listing process died after it had recorded files: an unmounted disk looked emptied."""
    mill.land("a")

    def die(mark: str) -> None:
        if mark == "discover.after_commit":
            raise RuntimeError

    mill.catalog.world = World(marked=die)
    with pytest.raises(RuntimeError):
        mill.discover()

    assert mill.known.dataset.root is not None
    assert mill.states() == {"a": "NEW"}


def test_a_location_that_goes_away_while_a_file_is_read_closes_no_file(mill):
    """The file was skipped, and new again at the next listing of all."""
    mill.land("a")
    mill.discover()
    claimed = mill.claim(mill.begin())
    away = mill.folder.with_name("away")

    def unmount(mark: str) -> None:
        if mark == "storage.before_read" and not away.exists():
            mill.folder.rename(away)

    with pytest.raises(StorageUnavailable, match="there is no such folder"):
        sort_out(World(marked=unmount), [mill.inbox], claimed)


def test_a_folder_that_cannot_be_read_holds_up_no_other_file_of_a_claim_from_outside(mill, monkeypatch):
    """Each claim took the file first, and returned all the others."""
    mill.land("denied", "good")
    mill.discover()
    claimed = mill.claim(mill.begin())
    look = os.lstat

    def deny(path: str) -> os.stat_result:
        if str(path).endswith("/denied"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return look(path)

    monkeypatch.setattr(os, "lstat", deny)
    changed = find_changed(mill.catalog.world, mill.inbox, claimed)

    assert [(one.name, one.status, one.error) for one in changed] == [
        ("denied", FileState.ERROR, "it cannot be read: Permission denied")
    ]


def test_each_blamed_file_has_its_own_reason_and_the_others_none(mill):
    """All bad files of a batch leave the run at once; those that reading has found bad need no run of their own."""
    for name in ("bad", "good", "worse"):
        mill.land(name)
    mill.discover()
    tx = mill.begin()
    held = {file.name: file for file in mill.claim(tx)}
    blamed = (
        blame_file(held["bad"], "line 1\0", alone=False),
        blame_file(held["worse"], "line 2", alone=True),
    )

    end = EndTransaction(tx.write_pointer, TxState.ABORTED, "boom")
    mill.catalog.apply([end, Fail(FILES, tx.run_id, tx.epoch, Blame("boom", blamed))])

    rows = {row.name: (row.status, row.failures, row.error) for row in mill.list()}
    assert rows == {
        "bad": (FileState.ERROR, 1, "line 1\N{REPLACEMENT CHARACTER}"),
        "good": (FileState.IN_PROGRESS, 0, None),
        "worse": (FileState.ERROR, 1, "line 2"),
    }
