"""Checks before publishing: one that fails publishes nothing, one that quarantines publishes beside."""

from __future__ import annotations

import json

import pytest

import tidemill as tm
from tests.run.conftest import Works
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import Snapshot
from tidemill.frames.checks import CHECKS_METADATA, BadCheck, CheckFailed
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import Fileset, find_schema, read_partitions
from tidemill.names import DatasetId, Namespace, WritePointer
from tidemill.run.processes.external import open_transaction
from tidemill.world import World


@pytest.fixture
def works(sqlite_catalog_url):
    """A catalog on SQLite: Spark and the checks are the same on each database."""
    catalog = open_catalog(sqlite_catalog_url, World())
    yield Works(catalog, catalog.world)
    catalog.close()


@pytest.fixture
def filesets(works, memory_folder):
    """`default.clicks` and `default.aside`, keyed by part."""
    found = {}
    for name in ("clicks", "aside"):
        (memory_folder / name).mkdir()
        location = (memory_folder / name).as_uri()
        spec = {"keys": {"part": "int"}}
        dataset = Dataset(DatasetId(name), Namespace("default"), name, DatasetKind.FILESET, location, spec)
        found[name] = Fileset.of(works.catalog.write(lambda db, d=dataset: declare(db, d)))
    return found


def publish(works, rows, expect, **more):
    """Append under checks, in a transaction; the facts of its run."""
    with open_transaction(works.catalog, works.world) as tx:
        tx.fileset("default.clicks").append(rows, expect=expect, **more)
    return works.run(tx.run_id).facts["outputs"]


def read(works, spark, fileset):
    """All rows, and the metadata of the partitions."""
    from tidemill.frames.spark import read_partitions as read_frame

    snapshot = Snapshot(WritePointer(10**15), works.catalog.incarnation)
    found = works.catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot))
    columns = works.catalog.read(lambda db: find_schema(db, fileset.dataset_id))
    rows = sorted(map(tuple, read_frame(works.world, spark, fileset, found, columns).collect()), key=str)
    return rows, [partition.metadata for partition in found]


ROWS = "VALUES (1, 'a', 0), (2, null, 0), (2, 'c', 1), (3, 'd', 1) AS rows(id, name, part)"
FAILING = [
    (tm.NotNull("name"), "not_null(name): 1 of 4 rows"),
    (tm.Unique("id"), "unique(id): 2 of 4 rows"),
    (tm.Rows(max=3), "rows(..3): 4 of 4 rows"),
    (tm.Rows(min=5), "rows(5..): 4 of 4 rows"),
    (tm.Expect("id < 3"), "id < 3: 1 of 4 rows"),
    (tm.Expect("name < 'c'", name="early"), "early: 3 of 4 rows"),
    (tm.Expect(lambda rows: rows["id"] != 1, name="python"), "python: 1 of 4 rows"),
]


@pytest.mark.spark
def test_rows_that_fail_a_check_publish_nothing(works, filesets, spark):
    """With null the condition is not true. What else the transaction does is not published either."""
    with pytest.raises(CheckFailed) as caught:
        publish(works, spark.sql(f"SELECT * FROM {ROWS}"), [check for check, _ in FAILING])

    assert str(caught.value).endswith("; ".join(told for _, told in FAILING))
    assert works.sql("SELECT * FROM partition_change") == []


@pytest.mark.spark
def test_rows_are_quarantined_and_the_results_stay_with_what_is_published(works, filesets, spark):
    """Each row is in one of both file sets, and names its broken checks. A warning is only reported."""
    rows = spark.sql(f"SELECT * FROM {ROWS}")
    expect = [
        tm.NotNull("name", otherwise="quarantine"),
        tm.Unique("id", otherwise="quarantine"),
        tm.Expect("id <> 3", otherwise="warn"),
        tm.Rows(min=1),
    ]

    facts = publish(works, rows, expect, quarantine="default.aside")

    good, metadata = read(works, spark, filesets["clicks"])
    aside, _ = read(works, spark, filesets["aside"])
    assert good == [(1, "a", 0), (3, "d", 1)]
    assert aside == [
        (2, "c", "unique(id)", 1),
        (2, None, "not_null(name); unique(id)", 0),
    ]
    results = [
        {"check": "not_null(name)", "otherwise": "quarantine", "passed": False, "failed": 1, "of": 4},
        {"check": "unique(id)", "otherwise": "quarantine", "passed": False, "failed": 2, "of": 4},
        {"check": "id <> 3", "otherwise": "warn", "passed": False, "failed": 1, "of": 4},
        {"check": "rows(1..)", "otherwise": "fail", "passed": True, "failed": 0, "of": 2},
    ]
    assert [json.loads(one[CHECKS_METADATA]) for one in metadata] == [results, results]
    assert {one["dataset"]: one.get("checks") for one in facts} == {"default.clicks": results, "default.aside": None}


@pytest.mark.spark
def test_a_check_that_cannot_be_made_of_the_rows_is_refused(works, filesets, spark):
    """Before anything is written; with the nearest name."""
    rows = spark.sql(f"SELECT * FROM {ROWS}")
    for check, why in [
        (tm.NotNull("nmae"), "did you mean 'name'"),
        (tm.Expect("no such thing"), "cannot be understood"),
        (tm.Expect("nothing > 1"), "cannot be understood"),
        (tm.NotNull("id", otherwise="quarantine"), "no file set is named for them"),
    ]:
        with pytest.raises(BadCheck, match=why):
            publish(works, rows, [check])


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: tm.NotNull("id", otherwise="quarantaine"), "use fail, quarantine, warn"),
        (tm.Rows, "has no bound"),
        (lambda: tm.Rows(min=1, otherwise="quarantine"), "no rows to quarantine"),
        (tm.Unique, "names no column"),
    ],
)
def test_a_check_that_says_nothing_is_refused(make, why):
    """An empty check is refused where it is written."""
    with pytest.raises(BadCheck, match=why):
        make()
