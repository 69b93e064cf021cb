"""What a transaction writes, on both databases; Spark is played by hand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidemill.lake import spark
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset import ColumnSchema
from tidemill.lake.manifest import DataFile, Manifest
from tidemill.names import DatasetId, Namespace
from tidemill.run.external import open_transaction
from tidemill.storage.files import open_files
from tidemill.world import World

SCHEMA = ColumnSchema('{"type":"struct","fields":[]}')


@pytest.fixture
def clicks(works, memory_folder, monkeypatch):
    """The file set `default.clicks`; "rows" are the parts that a write makes, and `None` makes it fail half-way."""
    location = (memory_folder / "clicks").as_uri()
    dataset = Dataset(
        DatasetId("clicks"), Namespace("default"), "clicks", DatasetKind.FILESET, location, {"keys": {"part": "int"}}
    )
    works.catalog.write(lambda db: declare(db, dataset))
    files = open_files(location, World())
    files.prepare()

    def write(_world, rows, fileset, directory, columns):
        assert columns in {None, SCHEMA}
        manifests = {}
        for part in rows:
            name = f"{directory}/part={part}/a.parquet"
            files.put(name, b"rows")
            if part is None:
                raise ValueError("half-way")
            manifests[(part,)] = Manifest((DataFile(name.partition("/")[2], 4, 1, ""),))
        return SimpleNamespace(manifests=manifests, schema=SCHEMA)

    monkeypatch.setattr(spark, "write_partitions", write)
    return files


def names(files):
    """All files of the file set, below the transactions' directories."""
    return [status.name.partition("/")[2] for status in files.list_after("", None)]


def test_only_committed_files_stay_in_a_committed_directory(works, clicks):
    """The janitor never looks there again: what a failed or replaced write left would take up the disk for ever."""
    with open_transaction(works.catalog, works.world) as tx:
        with pytest.raises(ValueError, match="half-way"):
            tx.fileset("default.clicks").append([1, None])
        tx.fileset("default.clicks").append([1, 2])
        tx.fileset("default.clicks").overwrite([1])

    assert names(clicks) == ["2/part=2/a.parquet", "3/part=1/a.parquet", "_committed", "_manifest.json"]


def test_a_write_that_failed_leaves_nothing_when_all_else_commits(works, clicks):
    """A program may go on without one of its outputs."""
    with open_transaction(works.catalog, works.world) as tx, pytest.raises(ValueError, match="half-way"):
        tx.fileset("default.clicks").append([1, None])

    assert names(clicks) == []


def test_an_aborted_transaction_leaves_its_files_to_the_janitor(works, clicks):
    """Deleting is not the business of who has just failed."""
    with pytest.raises(ValueError, match="half-way"), open_transaction(works.catalog, works.world) as tx:
        tx.fileset("default.clicks").append([1, None])

    assert names(clicks) == ["1/part=1/a.parquet", "1/part=None/a.parquet"]
