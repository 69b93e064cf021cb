"""The race of seed 000: a partition with a low write pointer commits after a higher one was consumed."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from tests.acceptance import seed_race
from tests.yardstick import patience
from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Transaction, begin, commit
from tidemill.lake.fileset.fileset import Fileset, WriteOp, read_partitions
from tidemill.lake.fileset.publish import AddPartitions, PartitionWrite
from tidemill.names import RunId
from tidemill.shapes.manifest import Manifest
from tidemill.world import World

TICK_WITHOUT_LOCK = """
CREATE OR REPLACE FUNCTION tidemill_tick() RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
    tick BIGINT := nextval('tidemill_clock');
BEGIN
    -- Wide enough that a consumer begins in between, on any machine.
    IF current_setting('application_name') = 'writer' THEN
        PERFORM pg_sleep(random() * 0.05);
    END IF;
    RETURN tick;
END $$
"""


@dataclass
class Race:
    """A catalog, and the processes that are set upon it."""

    catalog: Catalog
    lines: Fileset

    def run(self, writers: int, transactions: int, *, mutant: bool = False) -> tuple[list[str], dict[str, list[str]]]:
        """Return the committed partitions and those that each consumer got, each list sorted."""
        url, option = self.catalog.url, ["--without-lock"] if mutant else []
        if mutant and self.catalog.dialect == "postgres":
            url, option = f"{url}&application_name=writer", []
            with psycopg.connect(self.catalog.url) as connection:
                connection.execute(TICK_WITHOUT_LOCK)
        consumers = {
            "first": [_start("consume", self.catalog.url, "first")],
            "second": [_start("consume", self.catalog.url, "second")],
            "managed": [_start("claim", self.catalog.url, worker) for worker in ("worker_1", "worker_2")],
        }
        at_work = [_start("write", url, str(number), str(transactions), *option) for number in range(writers)]
        for process in at_work:
            process.communicate(timeout=patience(280))
        given: dict[str, list[str]] = {}
        for name, processes in consumers.items():
            outputs = [process.communicate("the writers are done\n", timeout=patience(60))[0] for process in processes]
            given[name] = sorted(key for output in outputs for key in json.loads(output))
        codes = {process.returncode for process in [*at_work, *(p for some in consumers.values() for p in some)]}
        assert codes == {0}
        reader = self.begin("reader")
        partitions = self.catalog.read(lambda db: read_partitions(db, self.lines.dataset_id, reader))
        return sorted(partition.partition_key for partition in partitions), given

    def begin(self, run: str) -> Transaction:
        return begin(self.catalog, run_id=RunId(run), epoch=1, writes=[self.lines.dataset_id])

    def commit(self, tx: Transaction, number: int) -> None:
        key = self.lines.keys.check({"writer": 1, "number": number})
        change = PartitionWrite(key, WriteOp.CREATE, Manifest(()))
        commit(self.catalog, tx, [AddPartitions(tx, self.lines, [change], seed_race.SCHEMA, frozenset())])

    def consume(self, follower: seed_race.Follower, run: str) -> list[str]:
        tx = self.begin(run)
        given = follower.take(tx)
        commit(self.catalog, tx, [])
        return [self.lines.show(key) for key in given]


def _start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.acceptance.seed_race", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def race(catalog_url: str) -> Iterator[Race]:
    """A new catalog with the file set of the race."""
    catalog = open_catalog(catalog_url, World())
    yield Race(catalog, seed_race.make_lines(catalog))
    catalog.close()


def test_a_low_write_pointer_that_commits_late_comes_with_the_next_take(race: Race) -> None:
    """Once. A cursor by time stamp or by a counter has passed it for good: the seed's first idea, and its hole."""
    consumer = seed_race.Follower(race.catalog, race.lines.dataset_id)
    low, high = race.begin("low"), race.begin("high")
    race.commit(high, 2)
    first = race.consume(consumer, "reader_1")
    race.commit(low, 1)

    takes = [first, *(race.consume(consumer, f"reader_{number}") for number in (2, 3))]

    assert takes == [["writer=1 number=2"], ["writer=1 number=1"], []]


@pytest.mark.share("sqlite")
def test_sixteen_writers_lose_nothing_and_double_nothing(race: Race) -> None:
    """Each of three consumers, one of them with two workers, is given each of 3,200 partitions once."""
    committed, given = race.run(writers=16, transactions=200)

    assert len(committed) == 16 * 200
    assert given == dict.fromkeys(given, committed)
    assert len(given) == 3


def test_without_the_lock_of_begin_partitions_are_lost(race: Race) -> None:
    """The guard at work: a tick that is visible before its row, and the same race loses partitions for good."""
    committed, given = race.run(writers=8, transactions=25, mutant=True)

    lost = {name: len(set(committed) - set(keys)) for name, keys in given.items()}
    assert len(committed) == 8 * 25
    assert max(lost.values()) > 0, lost  # not each of them meets the gap in each race
