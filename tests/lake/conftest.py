"""A file set and its consumers on a catalog of either database, with what tests need to play several runs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import EndTransaction, Transaction, TxState, begin, commit
from tidemill.lake.claims import Complete, Restamp
from tidemill.lake.consumer.claims import PARTITIONS, return_some
from tidemill.lake.consumer.managed import Consumer, Work, WorkState, ensure_consumer, list_work
from tidemill.lake.consumer.take import Delivery, take_claims
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.publish import AddPartitions, PartitionWrite, find_existing, fold
from tidemill.lake.window.follow import publish_partitions
from tidemill.names import CommitSeq, DatasetId, Namespace, RunId
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import DataFile, Manifest
from tidemill.world import World

SQL = load_sql(__file__)
SCHEMA = ColumnSchema('{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}')


@dataclass
class Lake:
    """Catalog with the file set `default.lines`, keyed by hour."""

    catalog: Catalog
    lines: Fileset
    runs: Iterator[int] = field(default_factory=count)
    files: Iterator[int] = field(default_factory=count)
    terms: Terms | None = None
    """With which consumers are deployed."""

    def begin(self, run: str | None = None, epoch: int = 1, effects: Sequence[Effect] = ()) -> Transaction:
        """A transaction of a run of its own, which may write the file set."""
        run_id = RunId(run or f"run_{next(self.runs)}")
        return begin(self.catalog, run_id=run_id, epoch=epoch, writes=[self.lines.dataset_id], effects=effects)

    def write(self, hour: int, op: str = "append", rows: int = 1) -> PartitionWrite:
        """Return a write to one partition: a file of `rows` rows and ten times as many bytes."""
        if op == "drop":
            return PartitionWrite(self.lines.keys.check({"hour": hour}), WriteOp.DROP)
        file = DataFile(f"1/hour={hour}/part-{next(self.files)}.parquet", rows * 10, rows, "etag")
        return PartitionWrite(self.lines.keys.check({"hour": hour}), WriteOp(op), Manifest((file,)))

    def add(self, tx: Transaction, *writes: PartitionWrite, schema: ColumnSchema = SCHEMA) -> AddPartitions:
        """The effect that publishes `writes`."""
        changes = fold(self.lines, writes)
        existing = self.catalog.read(lambda db: find_existing(db, self.lines, changes, tx))
        return AddPartitions(tx, self.lines, changes, schema, existing)

    def commit(self, tx: Transaction, *writes: PartitionWrite, effects: Sequence[Effect] = ()) -> CommitSeq:
        """Commit `tx` with `writes`."""
        return commit(self.catalog, tx, [*(self.publishing(tx, *writes) if writes else []), *effects])

    def publishing(self, tx: Transaction, *writes: PartitionWrite, quiet: bool = False) -> list[Effect]:
        """The effects that publish `writes`, and bring the watermark up to them."""
        changes = fold(self.lines, writes)
        existing = self.catalog.read(lambda db: find_existing(db, self.lines, changes, tx))
        return publish_partitions(tx, self.lines, changes, SCHEMA, existing, quiet=quiet)

    def publish(self, hour: int, op: str = "append", rows: int = 1) -> Transaction:
        """Commit one change in a transaction of its own."""
        tx = self.begin()
        self.commit(tx, self.write(hour, op, rows))
        return tx

    def end(self, tx: Transaction, *effects: Effect, state: TxState = TxState.ABORTED) -> None:
        """End `tx` without commit."""
        self.catalog.apply([EndTransaction(tx.write_pointer, state, "test"), *effects])

    def hour(self, key: KeyText) -> int:
        """The hour of a stored key."""
        (hour,) = self.lines.keys.decode(key)
        assert isinstance(hour, int)
        return hour

    def hours(self, things: Sequence[object]) -> list[int]:
        """The hours of changes, deliveries or partitions, in their order."""
        return [self.hour(thing.partition_key) for thing in things]  # type: ignore[attr-defined]

    def consumer(self, name: str = "default.shop.report") -> Consumer:
        """The managed consumer of this name."""
        return self.catalog.write(lambda db: ensure_consumer(db, self.lines.dataset_id, name, self.terms))

    def return_some(self, tx: Transaction, delivery: Delivery) -> None:
        """Return one delivery of the run of `tx`."""
        consumer_id = self.consumer().consumer_id
        self.catalog.write(lambda db: return_some(db, tx.run_id, [(consumer_id, delivery.partition_key)]))

    def list_work(self, state: WorkState) -> list[Work]:
        """The rows of the working set in `state`."""
        consumer_id = self.consumer().consumer_id
        return self.catalog.read(lambda db: list_work(db, consumer_id, state, 100))

    def take(self, tx: Transaction, limits: Terms | None = None, name: str = "default.shop.report") -> list[Delivery]:
        """Take from the file set for the run of `tx`."""
        consumer_id = self.consumer(name).consumer_id
        return take_claims(self.catalog, tx, {consumer_id: limits or Terms()})[consumer_id]

    def complete(self, tx: Transaction, *effects: Effect) -> CommitSeq:
        """Commit the run of `tx` with what it took."""
        return self.commit(tx, effects=[Complete(PARTITIONS, tx.run_id, tx.epoch), *effects])

    def try_again(self, tx: Transaction) -> Transaction:
        """The next attempt of the run of `tx`, which has ended."""
        return self.begin(tx.run_id, tx.epoch + 1, [Restamp(PARTITIONS, tx.run_id, tx.epoch + 1)])

    def read(self, block: Callable[[Db], object]) -> object:
        """A read of the catalog."""
        return self.catalog.read(block)

    def pass_time(self) -> None:
        """Let all waiting times be over."""
        self.catalog.write(lambda db: db.run(SQL.pass_time))

    def work(self) -> list[tuple[int, str, int]]:
        """The working set: hour, state, failures."""
        rows = self.catalog.read(lambda db: db.all(SQL.read_work))
        return [(self.hour(KeyText(str(row[1]))), str(row[2]), int(str(row[3]))) for row in rows]


@pytest.fixture
def catalog(catalog_url: str) -> Iterator[Catalog]:
    """An empty catalog, on each database."""
    opened = open_catalog(catalog_url, World())
    yield opened
    opened.close()


@pytest.fixture
def lake(catalog: Catalog) -> Lake:
    """A catalog with one file set, on each database."""
    return make_lake(catalog)


def make_fileset(location: str | Path, keys: dict[str, str], name: str = "lines") -> Fileset:
    """The file set `default.<name>` at `location`, which no catalog knows yet."""
    folder = Path(location).absolute().as_uri()
    dataset_id = DatasetId(f"dataset_{name}")
    return Fileset.of(Dataset(dataset_id, Namespace("default"), name, DatasetKind.FILESET, folder, {"keys": keys}))


def make_lake(catalog: Catalog, location: str | Path | None = None, name: str = "lines") -> Lake:
    """The file set `default.<name>`, keyed by hour, in `catalog`."""
    dataset = make_fileset(location or f"/lake/{name}", {"hour": "int"}, name).dataset
    return Lake(catalog, Fileset.of(catalog.write(lambda db: declare(db, dataset))))
