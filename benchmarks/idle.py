"""Cost of processes that have nothing to do, with their database: processor, memory, commits, bytes written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import apsw
import psutil
import psycopg

from benchmarks.table import Figure

UNITS: Final = {
    "processor": "% of a core",
    "memory": "MiB",
    "commits": "an hour",
    "written": "MB a day",
}
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_LOOK_EVERY: Final = 0.05


def measure_idle(
    processes: Callable[[], Sequence[psutil.Process]], database_url: str, seconds: float
) -> dict[str, float]:
    """Return a value for each of `UNITS`, measured for `seconds` and given for the time of its unit.

    Memory counts pages that several processes share once. Written bytes are those that the processes pass to the
    system, and those of the log of a PostgreSQL. The system's own count is no measure: where it caches files in parts
    of 32 KiB, it counts a part for each page of 4 KiB (seen with ext4 of Linux 6.18). Commits are transactions that
    wrote.
    """
    with _counted(database_url) as count:
        before, written = _totals(processes())
        started = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - started
        commits, logged = count()
        after, written_after = _totals(processes())
        memory = sum(_memory(one) for one in processes())
    return {
        "processor": 100 * max(0.0, after - before) / took,
        "memory": memory / 2**20,
        "commits": commits * _HOUR / took,
        "written": (max(0, written_after - written) + logged) * _DAY / took / 1e6,
    }


def figures_of(
    benchmark: str, what: str, database: str, measured: dict[str, float], targets: dict[str, str]
) -> list[Figure]:
    """Return a figure for each value; no value makes the figures of a gap."""
    return [
        Figure(
            benchmark, f"{what}: {name}", database, [measured[name]] if measured else (), unit, targets.get(name, "")
        )
        for name, unit in UNITS.items()
    ]


def _totals(processes: Sequence[psutil.Process]) -> tuple[float, int]:
    """Seconds of processor time, with that of children that have ended, and bytes written."""
    seconds, written = 0.0, 0
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            times = one.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
            written += one.io_counters().write_chars
    return seconds, written


def _memory(process: psutil.Process) -> int:
    with suppress(psutil.NoSuchProcess):
        return int(process.memory_full_info().pss)
    return 0


@contextmanager
def _counted(url: str) -> Iterator[Callable[[], tuple[int, int]]]:
    """Yield a function that counts the writing commits since the beginning, and the bytes of a server's log."""
    if url.startswith("sqlite"):
        with _watched_file(url.removeprefix("sqlite:///")) as changes:
            yield lambda: (changes(), 0)
        return
    with psycopg.connect(url, autocommit=True) as connection:
        # A server that is some minutes old analyzes and vacuums its own tables, which are commits too.
        connection.execute("ALTER SYSTEM SET autovacuum = off")
        connection.execute("SELECT pg_reload_conf()")

        def read() -> tuple[int, int]:
            row = connection.execute(
                "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint,"
                " pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
            ).fetchone()
            assert row is not None
            return row[0], row[1]

        begun = read()
        yield lambda: tuple(now - then for now, then in zip(read(), begun, strict=True))  # type: ignore[return-value]


@contextmanager
def _watched_file(path: str) -> Iterator[Callable[[], int]]:
    """Yield a function that counts the commits that were seen in a SQLite file; commits in 50 ms count as one."""
    changes = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal changes
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        before = connection.pragma("data_version")
        while not ended.wait(_LOOK_EVERY):
            now = connection.pragma("data_version")
            changes += now != before
            before = now
        connection.close()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield lambda: changes
    finally:
        ended.set()
        watcher.join()
