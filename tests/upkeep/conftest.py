"""A catalog with real files, on each database, whose data outlive it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Snapshot, Transaction, begin, commit
from tidemill.lake.claims import Complete
from tidemill.lake.consumer.claims import PARTITIONS
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.consumer.take import Delivery, take_claims
from tidemill.lake.consumer.terms import Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.names import DatasetId, Namespace, RunId, WritePointer
from tidemill.run.processes.external import ExternalTransaction, open_transaction
from tidemill.storage.files import Files
from tidemill.storage.locations import open_files
from tidemill.testing.plain import write_texts
from tidemill.world import World

CONSUMER = "default.shop.report"
EVERYTHING = WritePointer(1 << 60)


class ChangedHerMindError(Exception):
    """Error that aborts a transaction."""


@dataclass
class House:
    """The file set `default.lines`, keyed by source; texts for rows."""

    catalog: Catalog
    folder: Path
    """For what tests put on the disk; without `bucket` it has the file set too."""
    bucket: str = ""
    pointers: list[int] = field(default_factory=list)
    """Write pointers of all transactions that were begun."""

    @property
    def lines(self) -> Fileset:
        """The file set, declared when the catalog has none."""
        location = f"{self.bucket}/lines" if self.bucket else (self.folder / "lines").as_uri()
        dataset = Dataset(
            DatasetId("dataset_lines"),
            Namespace("default"),
            "lines",
            DatasetKind.FILESET,
            location,
            {"keys": {"source": "string"}},
        )
        return Fileset.of(self.catalog.write(lambda db: declare(db, dataset)))

    @property
    def backup(self) -> str:
        """The place for a backup of the catalog: beside the file set."""
        return f"{self.bucket or self.folder}/catalog.backup"

    @property
    def files(self) -> Files:
        """The files of the file set."""
        return open_files(self.lines.dataset.location, self.catalog.world)

    def publish(self, source: str, text: str, op: str = "append") -> int:
        """Commit one partition; the write pointer."""
        world = self.catalog.world
        with open_transaction(self.catalog, world, ["default.lines"], writer=write_texts) as tx:
            self.pointers.append(tx.write_pointer)
            getattr(tx.fileset("default.lines"), op)({source: text})
        return tx.write_pointer

    def abort(self, source: str) -> None:
        """Write files, and think better of it."""
        world = self.catalog.world
        with (
            suppress(ChangedHerMindError),
            open_transaction(self.catalog, world, ["default.lines"], writer=write_texts) as tx,
        ):
            self.pointers.append(tx.write_pointer)
            tx.fileset("default.lines").append({source: "never seen\n"})
            raise ChangedHerMindError

    def consume(self) -> list[str]:
        """Take for a run of the managed consumer, and complete the run."""
        dataset_id = self.lines.dataset_id
        consumer = self.catalog.write(lambda db: ensure_consumer(db, dataset_id, CONSUMER))
        tx = self.begin()
        taken = take_claims(self.catalog, tx, {consumer.consumer_id: Terms()})[consumer.consumer_id]
        commit(self.catalog, tx, [Complete(PARTITIONS, tx.run_id, tx.epoch)])
        return [text for delivery in taken for text in self.texts(delivery)]

    def take(self, open_tx: ExternalTransaction) -> None:
        """Claim what waits for the managed consumer for an open transaction."""
        dataset_id = self.lines.dataset_id
        consumer = self.catalog.write(lambda db: ensure_consumer(db, dataset_id, CONSUMER))
        take_claims(self.catalog, open_tx._tx, {consumer.consumer_id: Terms()})

    def begin(self) -> Transaction:
        """An open transaction of a run that has no record."""
        run_id = RunId(self.catalog.world.new_id("run"))
        tx = begin(self.catalog, run_id=run_id, epoch=1, writes=[self.lines.dataset_id])
        self.pointers.append(tx.write_pointer)
        return tx

    def texts(self, delivery: Delivery) -> list[str]:
        """The content of a delivery, a text a file."""
        return [self.files.read(path).decode() for path, _ in delivery.files]

    def content(self) -> dict[str, list[str]]:
        """All that is visible now, by source."""
        lines = self.lines
        snapshot = Snapshot(EVERYTHING, "")
        partitions = self.catalog.read(lambda db: read_partitions(db, lines.dataset_id, snapshot))
        return {
            str(lines.keys.decode(partition.partition_key)[0]): [
                self.files.read(path).decode() for path, _ in partition.files
            ]
            for partition in partitions
        }

    def directories(self) -> Counter[str]:
        """The directories of transactions that lie there, by their write pointer."""
        return Counter(name.rpartition("-")[0] for name in self.files.list_folders())


@pytest.fixture(params=["sqlite", "postgres", "sqlite, in a bucket"])
def house_anywhere(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[House]:
    """An empty file set on each database, and in a bucket."""
    database, _, elsewhere = request.param.partition(", ")
    url = request.getfixturevalue(f"{database}_catalog_url")
    server = request.getfixturevalue("s3_server") if elsewhere else None
    catalog = open_catalog(url, server.world if server else World())
    house = House(catalog, memory_folder, f"s3://{server.make_bucket()}" if server else "")
    house.files.prepare()
    yield house
    catalog.close()


@pytest.fixture
def house(catalog_url: str, memory_folder: Path) -> Iterator[House]:
    """An empty file set in a folder."""
    catalog = open_catalog(catalog_url, World())
    house = House(catalog, memory_folder)
    house.files.prepare()
    yield house
    catalog.close()
