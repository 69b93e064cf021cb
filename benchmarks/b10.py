"""B10: begin + commit pairs of 16 client processes, against the same statements without Tidemill.

What is compared sends the same texts through the same driver, already put together as one message (the form that
Tidemill uses; a client that sends statement by statement reaches a third of that), and waits for a busy SQLite in the
same way. Each round runs ours, then the bare statements, on one catalog, for `SECONDS` each.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count

import apsw
import psycopg

from benchmarks.table import Figure
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Dialect
from tidemill.catalog.transactions import SQL, begin, commit
from tidemill.names import DatasetId, RunId
from tidemill.world import World

CLIENTS = 16
ROUNDS = 5
SECONDS = 4.0
OURS, BARE = "ours", "bare"
DATASET = DatasetId("default.clicks")
BEGIN = (SQL.refuse_second, SQL.insert_tx, SQL.declare_writes)
COMMIT = (SQL.refuse_unless_open, SQL.commit_tx, SQL.forget_declared)


def run(url: str) -> Iterator[Figure]:
    """Pairs a second of both, their ratio, and the slowest client's share."""
    catalog = open_catalog(url, World())
    database = "SQLite" if catalog.dialect is Dialect.SQLITE else "PostgreSQL"
    catalog.close()
    rates: dict[str, list[float]] = {OURS: [], BARE: []}
    slowest: list[float] = []
    for round_number in range(ROUNDS + 1):
        for kind, seen in rates.items():
            pairs = _run_clients(kind, url)
            if round_number == 0:
                continue  # the warm-up
            seen.append(sum(pairs) / SECONDS)
            if kind == OURS:
                slowest.append(min(pairs) / (sum(pairs) / len(pairs)))
    yield Figure("B10", "begin + commit, ours", database, rates[OURS], "pairs/s")
    yield Figure("B10", "begin + commit, bare statements", database, rates[BARE], "pairs/s")
    ratios = [ours / bare for ours, bare in zip(rates[OURS], rates[BARE], strict=True)]
    yield Figure("B10", "ours : bare", database, ratios, "", "≥ 0.8")
    yield Figure("B10", "slowest client : mean", database, slowest, "", "≥ 0.5")


def _run_clients(kind: str, url: str) -> list[int]:
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.b10", kind, url, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(CLIENTS)
    ]
    for client in clients:
        assert client.stdout is not None
        client.stdout.readline()
    for client in clients:
        assert client.stdin is not None
        client.stdin.write("go\n")
        client.stdin.flush()
    return [int(client.communicate(timeout=SECONDS + 60)[0]) for client in clients]


def _work(kind: str, url: str, client: str) -> None:
    """Run a client: ready after a few pairs, it counts pairs from "go" on for `SECONDS`."""
    numbers = count()
    prefix = f"run_{random.getrandbits(60):x}_{client}"
    with made_pair(kind, url) as pair:
        for _ in range(5):
            pair(f"{prefix}_{next(numbers)}")
        print("ready", flush=True)
        sys.stdin.readline()
        until = time.monotonic() + SECONDS
        pairs = 0
        while time.monotonic() < until:
            pair(f"{prefix}_{next(numbers)}")
            pairs += 1
    print(pairs, flush=True)


def made_pair(kind: str, url: str) -> AbstractContextManager[Callable[[str], None]]:
    """Return the pair that a client repeats: a begin and a commit, for a run id of its own."""
    makers = {OURS: _ours, BARE: _bare_sqlite if url.startswith("sqlite") else _bare_postgres}
    return makers[kind](url)


@contextmanager
def _ours(url: str) -> Iterator[Callable[[str], None]]:
    catalog = open_catalog(url, World())

    def pair(run_id: str) -> None:
        tx = begin(catalog, run_id=RunId(run_id), epoch=1, writes=[DATASET])
        commit(catalog, tx, [])

    yield pair
    catalog.close()


@contextmanager
def _bare_postgres(url: str) -> Iterator[Callable[[str], None]]:
    connection = psycopg.connect(url, autocommit=True, prepare_threshold=None)
    for statement in (*BEGIN, *COMMIT):
        connection.execute(f'PREPARE "{statement.name}" AS {statement.positional}')
    refuse_second, insert_tx, declare_writes, refuse_unless_open, commit_tx, forget_declared = (
        f'"{statement.name}"' for statement in (*BEGIN, *COMMIT)
    )
    declared = json.dumps([{"dataset_id": DATASET, "from_time": None, "to_time": None}])

    def pair(run_id: str) -> None:
        cursor = connection.execute(
            f"BEGIN;SELECT tidemill_tick();EXECUTE {refuse_second}('{run_id}', 1);EXECUTE {insert_tx}('{run_id}', 1);"
            f"EXECUTE {declare_writes}('{declared}');COMMIT"
        )
        cursor.nextset()
        (tick,) = cursor.fetchone()
        connection.execute(
            f"BEGIN;SELECT tidemill_tick();EXECUTE {refuse_unless_open}({tick}, 1);EXECUTE {commit_tx}({tick});"
            f"EXECUTE {forget_declared}({tick});COMMIT"
        )

    yield pair
    connection.close()


@contextmanager
def _bare_sqlite(url: str) -> Iterator[Callable[[str], None]]:
    connection = apsw.Connection(url.removeprefix("sqlite:///"))
    connection.set_busy_timeout(0)
    _until_free(lambda: connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").fetchall())
    connection.create_scalar_function("tidemill_now", lambda *_: int(time.time() * 1000), 0)
    connection.create_scalar_function("tidemill_refuse", lambda *_: 1 // 0, -1)
    begin_texts = [statement.text(Dialect.SQLITE) for statement in BEGIN]
    commit_texts = [statement.text(Dialect.SQLITE) for statement in COMMIT]
    declared = json.dumps([{"dataset_id": DATASET, "from_time": None, "to_time": None}])

    def transaction(texts: list[str], parameters: dict[str, object]) -> object:
        _until_free(lambda: connection.execute("BEGIN IMMEDIATE"))
        tick = connection.execute("UPDATE clock SET value = value + 1 WHERE id = 1 RETURNING value").get
        for text in texts:
            connection.execute(text, parameters).fetchall()
        connection.execute("COMMIT")
        return tick

    def pair(run_id: str) -> None:
        tick = transaction(begin_texts, {"run_id": run_id, "epoch": 1, "declared": declared})
        transaction(commit_texts, {"write_pointer": tick, "epoch": 1})

    yield pair
    connection.close()


def _until_free(attempt: Callable[[], object]) -> None:
    while True:
        try:
            attempt()
        except apsw.BusyError:
            time.sleep(random.uniform(0.0002, 0.001))
        else:
            return


if __name__ == "__main__":
    _work(*sys.argv[1:])
