"""Writers and consumers of the seed's race, each a process of its own: `python -m tests.acceptance.seed_race …`.

`write URL WRITER TRANSACTIONS [--without-lock]` commits one partition in each of so many transactions of random length.
`consume URL RUN`, with a state of its own, and `claim URL RUN`, as one of several workers of a managed consumer, take
until a line arrives on standard input, then once more; what they were given is printed as a JSON list.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import Call, Dialect, Statement, render
from tidemill.catalog.transactions import SQL as TRANSACTIONS
from tidemill.catalog.transactions import Transaction, begin, commit
from tidemill.lake.claims import Complete
from tidemill.lake.consumer.claims import PARTITIONS
from tidemill.lake.consumer.consumer import FROM_BEGINNING, take
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.consumer.take import take_claims
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare, find
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.publish import AddPartitions, PartitionWrite
from tidemill.names import CommitSeq, DatasetId, Namespace, RunId
from tidemill.shapes.manifest import Manifest
from tidemill.world import World

SCHEMA = ColumnSchema('{"type":"struct","fields":[]}')
LONGEST = 0.02
"""Seconds that a transaction is open at most; also the mutant's, between its tick and its row."""
ROUND = 0.02
"""Seconds that a consumer waits between takes."""


def make_lines(catalog: Catalog) -> Fileset:
    """The file set of the seed, keyed by the writer and the number of the writer's transaction."""
    spec = {"keys": {"writer": "int", "number": "int"}, "format": "parquet"}
    lines = Dataset(DatasetId("lines"), Namespace("default"), "lines", DatasetKind.FILESET, "file:///lines", spec, None)
    catalog.write(lambda db: (declare(db, lines), ensure_consumer(db, lines.dataset_id, "managed")))
    return _lines(catalog)


def without_the_lock(catalog: Catalog) -> None:
    """Take a begin's tick first and insert its row later, in a transaction of its own: the mutant on SQLite.

    The statements are the product's, their `{commit_seq}` replaced by the tick. On PostgreSQL the test replaces
    `tidemill_tick()` instead.
    """
    together = catalog._apply

    def apart(guards: Sequence[Call], writes: Sequence[Call]) -> CommitSeq:
        if all(call.statement is not TRANSACTIONS.insert_tx for call in writes):
            return together(guards, writes)
        seq = catalog.write(lambda db: db.tick())
        time.sleep(random.uniform(0, LONGEST))
        catalog.write(lambda db: [db.call((_dated(call.statement, seq))(**call.params)) for call in writes])
        return seq

    catalog._apply = apart  # type: ignore[method-assign]


def _dated(statement: Statement, seq: CommitSeq) -> Statement:
    now = render("{commit_seq}", Dialect.SQLITE)
    text = statement.text(Dialect.SQLITE).replace(now, str(seq))
    return replace(statement, texts={Dialect.SQLITE: text}, dated=False)


def write(catalog: Catalog, writer: int, transactions: int) -> None:
    """Commit one partition in each transaction."""
    lines = _lines(catalog)
    for number in range(transactions):
        run_id = RunId(f"write_{writer}_{number}")
        tx = begin(catalog, run_id=run_id, epoch=1, writes=[lines.dataset_id])
        time.sleep(random.uniform(0, LONGEST))
        key = lines.keys.check({"writer": writer, "number": number})
        change = PartitionWrite(key, WriteOp.CREATE, Manifest(()))
        commit(catalog, tx, [AddPartitions(tx, lines, [change], SCHEMA, frozenset())])


class Follower:
    """The seed's consumer within transactions of its own: a state that it keeps between its takes."""

    def __init__(self, catalog: Catalog, dataset_id: DatasetId) -> None:
        self._catalog = catalog
        self._dataset_id = dataset_id
        self._state = FROM_BEGINNING

    def take(self, tx: Transaction) -> list[str]:
        """The keys of what is new, as `tx` sees it."""
        changes, self._state = self._catalog.read(lambda db: take(db, self._dataset_id, self._state, tx))
        return [change.partition_key for change in changes]


def consume(catalog: Catalog, run: str) -> list[str]:
    """Follow the file set with a state of this process's own."""
    lines = _lines(catalog)
    follower = Follower(catalog, lines.dataset_id)
    return _until_signalled(catalog, run, follower.take, lambda tx: commit(catalog, tx, []))


def claim(catalog: Catalog, run: str) -> list[str]:
    """Work for the managed consumer."""
    lines = _lines(catalog)
    consumer_id = catalog.write(lambda db: ensure_consumer(db, lines.dataset_id, "managed")).consumer_id

    def take_claimed(tx: Transaction) -> list[str]:
        return [d.partition_key for d in take_claims(catalog, tx, {consumer_id: Terms()})[consumer_id]]

    return _until_signalled(
        catalog, run, take_claimed, lambda tx: commit(catalog, tx, [Complete(PARTITIONS, tx.run_id, tx.epoch)])
    )


def _until_signalled(
    catalog: Catalog, run: str, take: Callable[[Transaction], list[str]], done: Callable[[Transaction], object]
) -> list[str]:
    signalled = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), signalled.set()), daemon=True).start()
    given: list[str] = []
    number = 0
    last = False
    while not last:
        last = signalled.wait(ROUND)
        tx = begin(catalog, run_id=RunId(f"{run}_{number}"), epoch=1)
        given += take(tx)
        done(tx)
        number += 1
    return given


def _lines(catalog: Catalog) -> Fileset:
    def look(db: Db) -> Dataset:
        return find(db, Namespace("default"), "lines")

    return Fileset.of(catalog.read(look))


def main(arguments: list[str]) -> None:
    """Play a process of the race."""
    match arguments:
        case ["write", url, writer, transactions, *mutant]:
            catalog = open_catalog(url, World())
            if mutant == ["--without-lock"]:
                without_the_lock(catalog)
            write(catalog, int(writer), int(transactions))
        case ["consume" | "claim" as how, url, run]:
            catalog = open_catalog(url, World())
            print(json.dumps(consume(catalog, run) if how == "consume" else claim(catalog, run)))
        case _:
            raise SystemExit(__doc__)
    catalog.close()


if __name__ == "__main__":
    main(sys.argv[1:])
