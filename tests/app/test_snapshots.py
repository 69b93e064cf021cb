"""Snapshots through deployed programs, without Spark, on both databases: pins, first versions, readers."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.lake.conftest import SQL
from tests.stage import Stage, open_stage
from tests.writers import write_halves
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import EndTransaction, TxState, begin
from tidemill.lake.datasets import find
from tidemill.lake.fileset.fileset import Unpin
from tidemill.lake.janitor import sweep
from tidemill.lake.snapshot.snapshot import PinVersions, SnapshotDataset, find_current
from tidemill.lake.snapshot.versions import expire_versions
from tidemill.names import DEFAULT_NAMESPACE, PinId, RunId
from tidemill.world import World

APP = """
import tidemill as tm
app = tm.App("shop")
raw = app.inbox("raw", "landing", format="text", settle="0s")
users = app.snapshot("users", max_versions=1)

@app.python(writes=[users])
def mirror(run):
    run.output(users).replace({"": "a\\nb\\n"})

@app.python(reads=[raw, users])
def join(run):
    print(run.input(users).version, run.input(raw).files)

@app.python(writes=[users])
def swallow(run):
    try:
        run.output(users).replace({"": ""})
    except tm.UserError:
        pass

app.schedule("join", join, trigger=tm.NewFiles(raw))
"""
REFRESHES = 40
READERS = 2


class Site(Stage):
    """A project with an inbox, on a stage."""

    def land(self, name: str) -> None:
        """Let a file arrive and be found."""
        (self.mill.project.config.folder / "landing" / name).write_text("x\n", encoding="utf-8")
        self.mill.inboxes.scan("raw")


@pytest.fixture
def site(catalog_url: str, tmp_path: Path) -> Iterator[Site]:
    """The project, deployed, on each database."""
    opened = open_stage(Site, tmp_path, catalog_url, APP)
    opened.mill.deploy()
    yield opened
    opened.mill.close()


def test_a_run_before_the_first_version_takes_nothing_and_its_work_comes_again(site):
    """No crash loop: the work is postponed, longer each time. No failure counts that would quarantine the file."""
    site.land("1.txt")
    failed = site.outcome("shop.join")
    ((status, failures, postponed),) = site.sql("SELECT status, failures, not_before - tidemill_now() FROM inbox_file")
    site.sql("UPDATE inbox_file SET not_before = 1 RETURNING 1")

    refreshed = site.outcome("shop.mirror")
    done = site.outcome("shop.join")

    assert failed[0] == "FAILED"
    assert failed[1] == "no_version_yet: default.users has no version yet: run the program that refreshes it first"
    assert (status, failures) == ("NEW", 0)
    assert postponed > 0
    assert refreshed == done == ("COMPLETED", "")
    assert site.sql("SELECT status FROM inbox_file") == [("SUCCESS",)]
    assert site.sql("SELECT count(*) FROM reader_pin") == [(0,)]


def test_a_refresh_that_was_refused_does_not_commit_because_the_program_went_on(site):
    """`except Exception` around everything is what people write."""
    assert site.outcome("shop.mirror")[0] == "COMPLETED"

    state, why = site.outcome("shop.swallow")
    once = site.outcome("shop.swallow", allow="empty")

    assert state == "FAILED"
    assert why.startswith("refresh_refused: the refresh of default.users is refused, version ")
    assert once[0] == "COMPLETED"
    assert len(site.mill.snapshots.versions("users")) == 2


def test_a_roll_back_is_recorded_with_its_run(site):
    """The audit has the actor and the version."""
    site.outcome("shop.mirror")
    site.outcome("shop.mirror")
    first = site.mill.snapshots.versions("users")[-1].version

    made = site.mill.snapshots.rollback("users", first)

    run = site.mill.runs.show(made.run_id)
    assert run.state == "COMPLETED"
    assert run.facts["rolled_back"] == [{"dataset": "default.users", "to": first}]
    assert made.rolled_back_to == first
    assert site.mill.catalog.audit().clean
    assert site.mill.catalog.fsck().clean


def test_readers_each_see_one_version_while_it_is_refreshed_and_swept(site):  # noqa: PLR0915  # two processes in one
    """Each reads half of a version, waits for the next refresh and the janitor after it, and reads the other half.

    The long form: REFRESHES = 200, READERS = 4.
    """
    catalog = site.mill.project.catalog
    users = SnapshotDataset.of(catalog.read(lambda db: find(db, DEFAULT_NAMESPACE, "users")))
    folder = Path(users.fileset.dataset.location.removeprefix("file://"))
    expected: dict[int, str] = {}
    progress = threading.Condition()
    swept = [0]
    wrong: list[str] = []
    reads: list[int] = []

    def refresh(number: int) -> None:
        text = f"version {number}\n" * (number % 7 + 1)
        with site.transaction("users", write_halves) as tx:
            expected[tx.write_pointer] = hashlib.sha256((text * 2).encode()).hexdigest()
            tx.snapshot("default.users").replace({"": text}, allow=["drop"])
        expire_versions(catalog, timedelta(0))
        catalog.write(lambda db: db.run(SQL.pass_garbage_time))
        sweep(catalog)
        with progress:
            swept[0] = tx.write_pointer
            progress.notify_all()

    def read(name: str) -> None:
        own = open_catalog(site.mill.project.catalog.url, World())
        last = 0
        while last < swept[0] or last == 0:
            run = RunId(f"{name}_{len(reads)}_{last}")
            tx = begin(own, run_id=run, epoch=1, effects=[PinVersions(run, [(PinId(run), users.dataset_id)])])
            version = own.read(lambda db, tx=tx: find_current(db, users, tx))
            last = version.version
            try:
                halves = [folder / path for path, _ in version.partition.files]
                texts = [halves[0].read_text()]
                with progress:
                    progress.wait_for(lambda seen=last: swept[0] > seen or finished.is_set())
                texts.append(halves[1].read_text())
            except FileNotFoundError as error:
                wrong.append(f"version {last}: {error}")
                break
            if hashlib.sha256("".join(texts).encode()).hexdigest() != expected[last]:
                wrong.append(f"version {last} reads as something else")
            reads.append(last)
            own.apply([EndTransaction(tx.write_pointer, TxState.ABORTED, "read"), Unpin(run)])
        own.close()

    finished = threading.Event()
    refresh(0)
    threads = [threading.Thread(target=read, args=(f"run_reader{n}",)) for n in range(READERS)]
    for thread in threads:
        thread.start()
    for number in range(1, REFRESHES):
        refresh(number)
    with progress:
        finished.set()
        progress.notify_all()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert len(expected) == REFRESHES
    assert len(set(reads)) > 1
    assert len(site.mill.snapshots.versions("users")) <= 2 + READERS
