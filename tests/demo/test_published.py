"""The balance counts rows of committed files, and no other rows."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from tidemill.catalog.transactions import begin, commit
from tidemill.demo.flights import Feed
from tidemill.demo.published import Reader
from tidemill.lake.datasets import find
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, WriteOp
from tidemill.lake.fileset.publish import AddPartitions, PartitionWrite, find_existing, fold
from tidemill.names import RunId
from tidemill.shapes.manifest import DataFile, Manifest, tx_directory

TEN = datetime(2013, 1, 1, 10, tzinfo=UTC)
KEY = {"day": date(2013, 1, 1), "hour": 10}
REPORT = {"departed": 1, "dep_delay": 2.5, "temp": None, "wind_speed": 11.0}


def write(mill, name: str, key: dict[str, object], rows: list[dict[str, object]], *, op: str, committed: bool = True):
    """Write a file into a partition, as a run of its own leaves it."""
    fileset = Fileset.of(mill.project.catalog.read(lambda db: find(db, "default", name)))
    tx = begin(
        mill.project.catalog, run_id=RunId(mill.project.world.new_id("run")), epoch=1, writes=[fileset.dataset_id]
    )
    values = fileset.keys.check(key)
    file = f"1/{fileset.keys.to_path(values)}/part-0.parquet"
    path = Path(fileset.dataset.location.removeprefix("file://"), tx_directory(tx), file)
    path.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(rows), path)
    manifest = Manifest((DataFile(file, path.stat().st_size, len(rows), "etag"),))
    changes = fold(fileset, [PartitionWrite(values, WriteOp(op), manifest)])
    existing = mill.project.catalog.read(lambda db: find_existing(db, fileset, changes, tx))
    if committed:
        commit(
            mill.project.catalog, tx, [AddPartitions(tx, fileset, changes, ColumnSchema('{"type":"struct"}'), existing)]
        )


def flight(number: int) -> dict[str, object]:
    """A row of the file set of flights."""
    return {"time_hour": TEN, "carrier": "UA", "flight": number}


def test_rows_are_known_by_the_keys_that_landed(mill):
    """Landed rows are text and published rows are typed: a key that reads differently would count as lost."""
    write(mill, "flights", KEY, [flight(1), flight(2)], op="append")
    write(mill, "flights_weather", KEY, [flight(1)], op="overwrite")
    write(mill, "weather", KEY, [{"time_hour": TEN, "origin": "EWR"}], op="append")

    published = Reader(mill).read()

    one, two = ("2013-01-01T10:00:00Z", "UA", "1"), ("2013-01-01T10:00:00Z", "UA", "2")
    assert published.loaded == {
        Feed.FLIGHTS: Counter([one, two]),
        Feed.WEATHER: Counter([("2013-01-01T10:00:00Z", "EWR")]),
    }
    assert published.joined == Counter([one])


def test_a_row_published_twice_is_read_twice(mill):
    """Otherwise `twice=0` would be true by construction."""
    write(mill, "flights", KEY, [flight(1)], op="append")
    write(mill, "flights", KEY, [flight(1)], op="append")

    assert Reader(mill).read().loaded[Feed.FLIGHTS].total() == 2


def test_what_is_not_committed_or_was_overwritten_is_not_published(mill):
    """The files of both are there to be read."""
    write(mill, "hourly", KEY, [{"flights": 5, **REPORT}], op="overwrite")
    write(mill, "hourly", KEY, [{"flights": 6, **REPORT}], op="overwrite")
    write(mill, "hourly", {**KEY, "hour": 11}, [{"flights": 7, **REPORT}], op="overwrite", committed=False)

    assert Reader(mill).read().hourly == Counter({"2013-01-01T10:00:00Z": 6})


def test_reports_say_what_is_known(mill):
    """The weather of an hour may come late, or never."""
    write(mill, "daily", {"day": KEY["day"]}, [{"flights": 3, **REPORT}], op="overwrite")

    (report,) = Reader(mill).days()

    assert (report.when, report.sentence()) == (
        "2013-01-01",
        "3 flights, 2 min late on average, 2 cancelled, wind 11 mph",
    )
