"""Outputs of a transaction, on both databases. Spark is played by hand."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from tidemill.errors import NotFound
from tidemill.frames import spark
from tidemill.lake.datasets import Dataset, DatasetKind, declare, find
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, read_partitions
from tidemill.lake.fileset.metadata import BadMetadata, MetadataChange, MetadataExists
from tidemill.lake.fileset.publish import PartitionExists
from tidemill.lake.fileset.time_travel import BadAsOf, find_snapshot_at, now
from tidemill.names import DatasetId, Namespace
from tidemill.run.processes.external import open_transaction
from tidemill.run.step.context import Run
from tidemill.shapes.filters import Range, make_filter
from tidemill.shapes.keys import BadKey
from tidemill.shapes.manifest import DataFile, Manifest
from tidemill.storage.locations import open_files
from tidemill.upkeep.fsck import fsck
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


def test_what_a_block_wrote_before_it_failed_is_as_if_it_had_never_been(works, clicks):
    """A window that fails in its second write has published nothing of its first; what was written before stays."""
    with open_transaction(works.catalog, World(), ["default.clicks"]) as tx:
        tx.fileset("default.clicks").append([1])
        output = tx.fileset("default.clicks")
        with suppress(ValueError), tx._outputs.undone_on_error("default.clicks"):
            output.append([2])
            output.append([None])

    assert [name for name in names(clicks) if name.endswith(".parquet")] == ["1/part=1/a.parquet"]
    assert list(seen(works)) == [1]


def test_a_partition_is_made_without_rows(works, clicks):
    """An hour without events is there; with rows in the same transaction it is theirs."""
    with open_transaction(works.catalog, World(), ["default.clicks"]) as tx:
        output = tx.fileset("default.clicks")
        output.create_empty({"part": 1})
        output.create_empty({"part": 2})
        output.append([2])

    assert list(seen(works)) == [1, 2]
    assert [name for name in names(clicks) if name.endswith(".parquet")] == ["1/part=2/a.parquet"]
    with (
        pytest.raises(PartitionExists, match="part=1"),
        open_transaction(works.catalog, World(), ["default.clicks"]) as tx,
    ):
        tx.fileset("default.clicks").create_empty({"part": 1})
    with (
        pytest.raises(BadKey),
        open_transaction(works.catalog, World(), ["default.clicks"]) as tx,
    ):
        tx.fileset("default.clicks").create_empty({"port": 1})


def test_an_overwrite_by_no_rows_says_what_it_did(works, clicks):
    """Rows name the partitions to replace, so no rows replace none. The facts of the run say so."""
    with open_transaction(works.catalog, World(), ["default.clicks"]) as tx:
        tx.fileset("default.clicks").append([1])
    with open_transaction(works.catalog, World(), ["default.clicks"]) as tx:
        tx.fileset("default.clicks").overwrite([])
        facts = tx._outputs.facts()

    assert list(seen(works)) == [1]
    assert (facts[0]["count"], "nothing was replaced" in facts[0]["notes"][0]) == (0, True)


def test_an_overwrite_of_dropped_partitions_by_no_rows_says_nothing(works, clicks):
    """A window program replaces the last window of a partition by no rows. The partition is dropped all the same."""
    with open_transaction(works.catalog, World(), ["default.clicks"]) as tx:
        tx.fileset("default.clicks").append([1, 2])
    with open_transaction(works.catalog, World(), ["default.clicks"]) as tx:
        tx.fileset("default.clicks").drop({"part": 1})
        tx.fileset("default.clicks").overwrite([])
        facts = tx._outputs.facts()

    assert list(seen(works)) == [2]
    assert "notes" not in facts[0]


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
    fileset = Fileset.of(works.catalog.read(lambda db: find(db, Namespace("default"), "clicks")))
    assert fsck(works.catalog, [fileset]).clean


def test_an_aborted_transaction_leaves_its_files_to_the_janitor(works, clicks):
    """A process that has just failed should not delete."""
    with pytest.raises(ValueError, match="half-way"), open_transaction(works.catalog, works.world) as tx:
        tx.fileset("default.clicks").append([1, None])

    assert names(clicks) == ["1/part=1/a.parquet", "1/part=None/a.parquet"]


def seen(works, as_of=None, **where):
    """Return the parts that a new reader sees, with their metadata."""

    def block(db):
        fileset = Fileset.of(find(db, Namespace("default"), "clicks"))
        snapshot = find_snapshot_at(db, fileset, as_of, now(db, works.catalog.incarnation))
        found = read_partitions(db, fileset.dataset_id, snapshot, make_filter(fileset.keys, where))
        return {fileset.keys.decode(partition.partition_key)[0]: partition.metadata for partition in found}

    return works.catalog.read(block)


def test_a_transaction_drops_what_it_sees_and_forgets_what_it_made(works, clicks):
    """A partition that one transaction makes and drops never existed, files included."""
    with open_transaction(works.catalog, works.world) as tx:
        tx.fileset("default.clicks").append([1, 2, 3])
    with open_transaction(works.catalog, works.world) as tx:
        output = tx.fileset("default.clicks")
        output.append([3, 4])
        counts = output.drop({"part": Range(3)}), output.drop({"part": Range(3)})
        output.create([5])

    assert [[one.partition for one in counted] for counted in counts] == [["part=3", "part=4"], []]
    assert counts[0][0].rows == 2
    assert seen(works) == {1: {}, 2: {}, 5: {}}
    rows = works.sql(
        "SELECT partition_key, op, files, delivers FROM partition_change ORDER BY commit_seq, partition_key"
    )
    assert [row[1:] for row in rows[3:]] == [("drop", 0, 0), ("create", 1, 1)]
    assert [name for name in names(clicks) if "part=4" in name] == []


def test_metadata_is_added_set_and_removed(works, clicks):
    """An existing name is an error only for `add`."""
    with open_transaction(works.catalog, works.world) as tx:
        tx.fileset("default.clicks").append([1, 2], metadata={"source": "crm"})
        tx.fileset("default.clicks").describe({"part": 2}, add={"checked": "yes"})
    with open_transaction(works.catalog, works.world) as tx:
        output = tx.fileset("default.clicks")
        output.describe({"part": 1}, set={"source": "erp"}, remove=[])
        output.describe({"part": 2}, remove=["source"])
        with pytest.raises(MetadataExists, match=r"part=2 of default\.clicks has metadata 'checked' already: 'yes'"):
            output.describe({"part": 2}, add={"checked": "no"})
        with pytest.raises(NotFound, match="part=9"):
            output.describe({"part": 9}, add={"checked": "no"})
        with pytest.raises(BadMetadata, match="is not there"):
            output.describe({"part": 2}, remove=["source"])

    assert seen(works) == {1: {"source": "erp"}, 2: {"checked": "yes"}}


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ({}, "is not named"),
        ({"add": {"a": 1}}, "is no text"),
        ({"add": {"a": "1"}, "remove": ["a"]}, "named twice"),
        ({"set": {"": "1"}}, "is no text"),
        ({"set": {"a": "x" * 10_001}}, "more than"),
    ],
)
def test_metadata_that_says_nothing_is_refused(entries, why):
    """At the call."""
    with pytest.raises(BadMetadata, match=why):
        MetadataChange(**entries)


def test_an_earlier_state_is_read_as_of_a_commit_or_a_time(works, clicks):
    """The read returns the content at that time, without later changes."""
    with open_transaction(works.catalog, works.world) as tx:
        tx.fileset("default.clicks").append([1, 2])
    ((first, ended_at),) = works.sql("SELECT commit_seq, ended_at FROM tx")
    with open_transaction(works.catalog, works.world) as tx:
        tx.fileset("default.clicks").drop({"part": 1})
    ((dropped,),) = works.sql(f"SELECT commit_seq FROM tx WHERE commit_seq > {first}")

    assert seen(works, as_of=first) == seen(works, as_of=str(first)) == {1: {}, 2: {}}
    assert seen(works, as_of=dropped - 1) == {1: {}, 2: {}}
    assert seen(works, as_of=dropped) == {2: {}}
    assert seen(works, as_of=first, part=2) == {2: {}}
    assert seen(works, as_of=datetime.fromtimestamp((ended_at - 60_000) / 1000, UTC)) == {}
    assert seen(works) == {2: {}}
    for as_of, why in [(1 << 40, "none that can be seen"), ("2126-01-01T00:00Z", "still to come"), ("soon", "write a")]:
        with pytest.raises(BadAsOf, match=why):
            seen(works, as_of=as_of)
    with pytest.raises(BadAsOf, match="no time zone"):
        seen(works, as_of="2026-01-01T00:00")


def test_a_program_reads_what_it_chooses_as_it_sees_it_or_as_it_was(works, clicks, monkeypatch):
    """With its own writes and drops, but not in an earlier state; and what it reads is kept for it."""
    with open_transaction(works.catalog, works.world) as tx:
        tx.fileset("default.clicks").append([1, 2, 3])
    ((first,),) = works.sql("SELECT commit_seq FROM tx")
    monkeypatch.setattr(
        spark, "read_partitions", lambda _w, _s, fileset, found, _c: [fileset.show(p.partition_key) for p in found]
    )
    with open_transaction(works.catalog, works.world) as tx:
        run = Run(tx._step)
        tx._step.workspace.session = object()
        run.output("default.clicks").append([4])
        run.output("default.clicks").drop({"part": 2})

        now_seen = run.read("clicks"), run.read("clicks", where={"part": Range(3)})
        then = run.read("clicks", as_of=first), run.read("clicks", as_of=first, where={"part": {2, 4}})
        pins = works.sql("SELECT commit_seq FROM reader_pin ORDER BY commit_seq")
        with pytest.raises(BadAsOf, match="none that can be seen"):
            run.read("clicks", as_of=tx.write_pointer)

    assert now_seen == (["part=1", "part=3", "part=4"], ["part=3", "part=4"])
    assert then == (["part=1", "part=2", "part=3"], ["part=2"])
    assert pins == [(first + 1,)] * 2 + [(tx.write_pointer,)] * 2
