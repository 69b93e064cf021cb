from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import apsw
import pytest

from tests.catalog.conftest import OpenCatalog
from tests.catalog.test_named import SQL
from tests.yardstick import patience
from tidemill.catalog import wakeups
from tidemill.catalog.db import Catalog
from tidemill.catalog.messages import Publish, Topic, lock_position
from tidemill.catalog.wakeups import SqliteWaiter, Waiter
from tidemill.names import EventKey
from tidemill.world import SystemClock

SOON = timedelta(seconds=patience(20))
NOT_LONG = timedelta(milliseconds=100)
HELLO = Publish(Topic.DATA, "t", EventKey("partition:default.clicks"), {})

COMMITS = """
import sys
from tests.catalog.test_wakeups import HELLO
from tidemill.catalog.engine import open_catalog
from tidemill.world import World
catalog = open_catalog(sys.argv[1], World())
print("ready", flush=True)
for line in sys.stdin:
    catalog.apply([HELLO])
    print("committed", flush=True)
"""


class _SlowDisk(apsw.VFS):
    """A disk on which each sync takes 300 ms."""

    NAME = "slow-disk"

    def __init__(self) -> None:
        super().__init__(self.NAME, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802  # SQLite's
        return _SlowFile("", name, flags)


class _LateClock(SystemClock):
    """A clock that stands still, 4.9 s after its first three readings. Counts the readings."""

    readings = 0

    def monotonic(self) -> timedelta:
        self.readings += 1
        return timedelta(seconds=4.9 if self.readings > 3 else 0)


class _SlowFile(apsw.VFSFile):
    syncs = threading.Event()
    """Set at the begin of a sync."""

    def xSync(self, flags: int) -> None:  # noqa: N802  # SQLite's name
        self.syncs.set()
        threading.Event().wait(0.3)
        super().xSync(flags)


@pytest.fixture
def waiter(catalog: Catalog) -> Iterator[Waiter]:
    """A waiter that has seen all there was."""
    waiter = catalog.waiter()
    while waiter.wait(NOT_LONG):
        pass
    yield waiter
    waiter.close()


@pytest.fixture(params=["by event", "by asking"])
def any_waiter(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Waiter:
    """Also one of a system without inotify."""
    if request.param == "by asking":
        monkeypatch.setattr(wakeups, "_watch", lambda _: None)
    waiter: Waiter = request.getfixturevalue("waiter")
    return waiter


def test_a_write_that_changes_nothing_wakes_no_waiter(catalog: Catalog, waiter: Waiter) -> None:
    """A runner that looks for work in vain would wake itself, and look again, for ever."""
    catalog.write(lambda db: db.run(SQL.change_job_at_the_limit, job_id="none"))

    assert not waiter.wait(NOT_LONG)


def test_a_commit_of_another_process_wakes(catalog: Catalog, any_waiter: Waiter) -> None:
    """No process polls: a trigger fires within milliseconds of the commit that caused it."""
    other = subprocess.Popen(
        [sys.executable, "-c", COMMITS, catalog.url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdin is not None
    assert other.stdout is not None
    other.stdout.readline()
    woken = []
    for _ in range(3):
        while any_waiter.wait(timedelta(0)):
            pass  # opening, and events that came late
        other.stdin.write("commit\n")
        other.stdin.flush()
        woken.append(any_waiter.wait(SOON))
        other.stdout.readline()
    other.communicate(timeout=patience(20))

    assert woken == [True, True, True]


def test_a_commit_before_the_wait_is_not_missed(catalog: Catalog, waiter: Waiter) -> None:
    """The loop looks, then waits: what committed in between must not wait for the time-out."""
    catalog.apply([HELLO])

    assert waiter.wait(SOON)


def test_nothing_committed_nothing_wakes(catalog: Catalog, waiter: Waiter) -> None:
    """Readers, and blocks that were rolled back, are no news: an idle scheduler sleeps."""
    catalog.read(lambda db: db.now())
    with pytest.raises(ZeroDivisionError):
        catalog.write(lambda db: (lock_position(db, Topic.DATA, "x"), 1 // 0))

    assert not waiter.wait(NOT_LONG)


def test_a_commit_whose_sync_takes_long_wakes_as_soon_as_it_is_visible(
    sqlite_catalog_url: str, open_at: OpenCatalog
) -> None:
    """The kernel reports the write before the sync: one commit of 200 was noticed 5 s late, at the next look."""
    waiter = open_at(sqlite_catalog_url).waiter()
    while waiter.wait(NOT_LONG):
        pass
    path = sqlite_catalog_url.removeprefix("sqlite:///")
    disk = _SlowDisk()
    connection = apsw.Connection(path, vfs=disk.NAME)
    connection.execute("PRAGMA synchronous = FULL")
    waiting = threading.Thread(target=waiter.wait, args=(SOON * 3,))
    waiting.start()
    connection.execute("UPDATE clock SET value = value + 1")
    connection.close()
    waiting.join(SOON.total_seconds())

    assert not waiting.is_alive()
    waiter.close()


def test_a_commit_long_after_another_write_is_noticed_as_fast_as_any(
    sqlite_catalog_url: str, open_at: OpenCatalog
) -> None:
    """A write without a commit made the waiter ask ever more rarely: most commits were noticed some 8 ms late."""
    open_at(sqlite_catalog_url)
    path = Path(sqlite_catalog_url.removeprefix("sqlite:///"))
    clock = _LateClock()
    disk = _SlowDisk()
    connection = apsw.Connection(str(path), vfs=disk.NAME)
    connection.execute("PRAGMA synchronous = FULL")
    waiter = SqliteWaiter(lambda: apsw.Connection(str(path)), path, clock)
    path.with_name(f"{path.name}-note").write_text("a write that no commit follows")
    waiting = threading.Thread(target=waiter.wait, args=(SOON * 3,), daemon=True)
    waiting.start()
    while clock.readings < 4:
        pass
    connection.execute("UPDATE clock SET value = value + 1")
    connection.close()
    waiting.join(SOON.total_seconds())

    # The commit's sync takes 300 ms, in which a waiter that asks every 245 ms would ask twice.
    assert clock.readings > 10
    waiter.close()


def test_a_commit_reported_while_the_one_before_it_is_noticed_is_not_forgotten(
    sqlite_catalog_url: str, open_at: OpenCatalog
) -> None:
    """Its report was used up by the notice of the other: one commit of ten was noticed 5 s late, at the next look."""
    catalog = open_at(sqlite_catalog_url)
    path = Path(sqlite_catalog_url.removeprefix("sqlite:///"))
    slow = threading.Thread(target=_commit_slowly, args=(path,))
    naps: list[timedelta] = []

    class Between(SqliteWaiter):
        """Has one commit visible, and the next written, when it comes to wait."""

        def _select(self, also: int | None, timeout: timedelta) -> tuple[bool, bool]:
            naps.append(timeout)
            if slow.ident is None:
                catalog.apply([HELLO])
                slow.start()
                assert _SlowFile.syncs.wait(SOON.total_seconds())
            return super()._select(also, timeout)

    waiter = Between(lambda: apsw.Connection(str(path)), path, SystemClock())
    _SlowFile.syncs.clear()

    assert waiter.wait(SOON)
    assert waiter.wait(SOON)

    slow.join()
    assert max(naps[1:]) < SOON / 10
    waiter.close()


class _CountingClock(SystemClock):
    """Counts its readings: a waiter reads the clock once before each question and each nap."""

    readings = 0

    def monotonic(self) -> timedelta:
        self.readings += 1
        return super().monotonic()


def test_a_waiter_does_not_look_at_each_report_of_a_write(sqlite_catalog_url: str, open_at: OpenCatalog) -> None:
    """A commit writes many pages. Five processes that look at each report took 4 ms of the time until a run begins."""
    open_at(sqlite_catalog_url)
    path = Path(sqlite_catalog_url.removeprefix("sqlite:///"))
    clock = _CountingClock()
    waiter = SqliteWaiter(lambda: apsw.Connection(str(path)), path, clock)
    waiting = threading.Thread(target=waiter.wait, args=(SOON * 3,))
    writes = 0
    with path.with_name(f"{path.name}-note").open("w", buffering=1) as file:
        waiting.start()
        until = SystemClock().monotonic() + NOT_LONG
        while (now := SystemClock().monotonic()) < until or writes < 2_000:
            file.write("a page\n")
            writes += 1
    waited = now - until + NOT_LONG
    readings = clock.readings
    waiter.wake()
    waiting.join()

    assert readings < 3 * waited / timedelta(milliseconds=1)
    waiter.close()


def _commit_slowly(path: Path) -> None:
    disk = _SlowDisk()
    connection = apsw.Connection(str(path), vfs=disk.NAME)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("UPDATE clock SET value = value + 1")
    connection.close()


def test_wake_ends_the_wait_and_is_used_up(waiter: Waiter) -> None:
    """SIGTERM, and threads of the same process."""
    waiting = threading.Thread(target=waiter.wait, args=(SOON * 3,))
    waiting.start()
    waiter.wake()
    waiting.join(SOON.total_seconds())

    assert not waiting.is_alive()
    assert not waiter.wait(NOT_LONG)


def test_many_wakes_are_one(waiter: Waiter) -> None:
    """Thousands of wakes without a waiter must neither block nor be taken one by one."""
    for _ in range(100_000):
        waiter.wake()

    woken = [waiter.wait(NOT_LONG) for _ in range(3)]

    assert woken[0]
    assert not woken[-1]


def test_commits_of_this_process_wake_too(catalog: Catalog, waiter: Waiter, open_again: OpenCatalog) -> None:
    """`tidemill up` is one process: its scheduler commits, its runner waits."""
    committer = threading.Thread(target=open_again().apply, args=([HELLO],))
    committer.start()
    woken = waiter.wait(SOON)
    committer.join(20)

    assert woken


def test_files_beside_the_catalog_do_not_wake(
    sqlite_catalog_url: str, memory_folder: Path, open_at: OpenCatalog
) -> None:
    """Logs of drivers may lie in the same folder."""
    waiter = open_at(sqlite_catalog_url).waiter()
    while waiter.wait(NOT_LONG):
        pass
    (memory_folder / "driver.log").write_text("a line")

    assert not waiter.wait(NOT_LONG)
    waiter.close()


def test_a_journal_that_vanishes_and_comes_back_wakes(sqlite_catalog_url: str, open_at: OpenCatalog) -> None:
    """The last process that closes the catalog deletes the WAL file. The next commit makes another."""
    catalog = open_at(sqlite_catalog_url)
    waiter = catalog.waiter()
    path = Path(sqlite_catalog_url.removeprefix("sqlite:///"))
    catalog._listener._ear._connection.execute("PRAGMA data_version")  # type: ignore[attr-defined]
    catalog.write(lambda db: db.now())
    connection = catalog._connection()  # type: ignore[attr-defined]
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    while waiter.wait(NOT_LONG):
        pass
    assert path.with_name("catalog.db-wal").stat().st_size == 0

    catalog.apply([HELLO])

    assert waiter.wait(SOON)
    waiter.close()


def test_a_folder_that_cannot_be_watched_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inotify has a limit of watches for each user; then it is a matter of 10 ms."""
    assert wakeups._watch(tmp_path / "not there") is None
    monkeypatch.setattr(wakeups.sys, "platform", "darwin")
    assert wakeups._watch(tmp_path) is None
