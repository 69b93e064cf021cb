"""Acts of a person or a rule on partitions: drop, retention, and adoption of existing files."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from tests.errors import raises_code
from tests.lake.conftest import make_lake
from tests.modes import bound_by_modes
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import Fileset, find_schema, read_partitions
from tidemill.lake.fileset.stored import Storing
from tidemill.lake.fileset.time_travel import now
from tidemill.lake.janitor import sweep
from tidemill.names import DatasetId, Namespace
from tidemill.run.processes.partitions import (
    NoPartitionTime,
    adopt_partitions,
    apply_retention,
    drop_matching,
    find_outlived,
    list_matching,
)
from tidemill.shapes.filters import make_filter
from tidemill.shapes.formats import BadFormat, FileFormat
from tidemill.upkeep.audit import audit
from tidemill.upkeep.fsck import fsck
from tidemill.world import World

TABLE = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", None]})


@pytest.fixture
def declared(works, memory_folder):
    """Declare the file set `default.clicks`, keyed by day and hour, in a folder of its own."""

    def make(**more):
        spec = {"keys": {"day": "date", "hour": "int"}, **more}
        folder = memory_folder / "clicks"
        dataset = Dataset(
            DatasetId("clicks"), Namespace("default"), "clicks", DatasetKind.FILESET, folder.as_uri(), spec
        )
        return Fileset.of(works.catalog.write(lambda db: declare(db, dataset)))

    return make


def put(folder, path, table=TABLE):
    """Write a Parquet file as another tool would."""
    target = folder / "clicks" / path
    target.parent.mkdir(parents=True, exist_ok=True)
    (parquet.write_table if path.endswith(".parquet") else orc.write_table)(table, target)
    return target


def keys(works, fileset):
    """Return the keys of the partitions, as people read them."""
    snapshot = works.catalog.read(lambda db: now(db, works.catalog.incarnation))
    found = works.catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot))
    return {fileset.show(partition.partition_key): partition.rows for partition in found}


def test_a_tree_is_adopted_without_moving_a_byte(works, declared, memory_folder):
    """Years of files need no copy. Strange folders are reported, and the others adopted."""
    fileset = declared()
    put(memory_folder, "day=2026-01-01/hour=5/a.parquet")
    kept = put(memory_folder, "day=2026-01-01/hour=5/b.parquet")
    put(memory_folder, "day=2026-01-01/hour=6/a.parquet")
    (memory_folder / "clicks" / "day=2026-01-01" / "hour=6" / "_SUCCESS").touch()
    put(memory_folder, "day=2026-01-01/hour=__HIVE_DEFAULT_PARTITION__/a.parquet")
    put(memory_folder, "day=2026-01-01/hour=07/a.parquet")
    put(memory_folder, "day=2026-01-01/a.parquet")
    put(memory_folder, "day=2026-01-02/hour=1/a.parquet", pa.table({"id": ["text"], "name": ["a"]}))
    put(memory_folder, "day=2026-01-02/hour=2/a.parquet", TABLE.append_column("hour", pa.array([2, 2])))
    put(memory_folder, "day=2026-01-02/hour=3/a.parquet").write_bytes(b"no parquet")
    before = kept.stat().st_ino, kept.stat().st_mtime_ns

    done = adopt_partitions(works.catalog, works.world, fileset)

    assert (done.partitions, done.rows, done.known) == (2, 6, 0)
    assert keys(works, fileset) == {"day=2026-01-01 hour=5": 4, "day=2026-01-01 hour=6": 2}
    why = {one.directory.removeprefix("day=2026-01-"): one.why for one in done.refused}
    assert sorted(why) == ["01", "01/hour=07", "01/hour=__HIVE_DEFAULT_PARTITION__"] + [
        f"02/hour={n}" for n in (1, 2, 3)
    ]
    assert "null or empty" in why["01/hour=__HIVE_DEFAULT_PARTITION__"]
    assert "wants an integer of 32 bits, not '07'" in why["01/hour=07"]
    assert "has the columns id long, name string" in why["02/hour=1"]
    assert "is a column in the files as well" in why["02/hour=2"]
    assert (kept.stat().st_ino, kept.stat().st_mtime_ns) == before
    assert fsck(works.catalog, [fileset]).clean
    assert audit(works.catalog).clean


def test_adoption_goes_on_where_it_was_ended(works, declared, memory_folder):
    """In batches; a second call finds only what is new."""
    fileset = declared()
    for hour in range(5):
        put(memory_folder, f"day=2026-01-01/hour={hour}/a.parquet")

    first = adopt_partitions(works.catalog, works.world, fileset, batch=2)
    put(memory_folder, "day=2026-01-02/hour=0/a.parquet")
    second = adopt_partitions(works.catalog, works.world, fileset, batch=2)

    assert (first.partitions, first.transactions) == (5, 3)
    assert (second.partitions, second.known) == (1, 5)
    assert works.sql("SELECT count(*) FROM partition_change") == [(6,)]


def test_a_tree_below_a_folder_beside_what_tidemill_wrote(works, declared, memory_folder):
    """Only that folder is adopted, and no transaction's files. New columns join; an existing key is refused."""
    fileset = declared(policy="evolve")
    put(memory_folder, "old/day=2026-01-01/hour=1/a.parquet", TABLE.select(["id"]))
    put(memory_folder, "old/day=2026-01-01/hour=2/a.parquet")
    put(memory_folder, "other/day=2026-01-01/hour=1/a.parquet")
    put(memory_folder, "tx-7-abcdefgh/1/day=2026-01-01/hour=3/a.parquet")

    done = adopt_partitions(works.catalog, works.world, fileset, "old/")
    again = adopt_partitions(works.catalog, works.world, fileset, "other")

    assert done.refused == ()
    assert keys(works, fileset) == {"day=2026-01-01 hour=1": 2, "day=2026-01-01 hour=2": 2}
    assert ["exists already" in one.why for one in again.refused] == [True]
    columns = works.catalog.read(lambda db: find_schema(db, fileset.dataset_id))
    assert '"name":"name"' in columns.text


def test_a_column_that_another_transaction_adds_meanwhile_is_not_lost(works, declared, memory_folder):
    """Both read the columns before either has committed: the second is refused, and can be called again."""
    fileset = declared(policy="evolve")
    put(memory_folder, "first/day=2026-01-01/hour=0/a.parquet", TABLE.select(["id"]))
    put(memory_folder, "one/day=2026-01-01/hour=1/a.parquet", TABLE.select(["id"]).append_column("size", [[1, 2]]))
    put(memory_folder, "other/day=2026-01-01/hour=2/a.parquet")
    adopt_partitions(works.catalog, works.world, fileset, "first")

    def adopt_another(mark: str) -> None:
        if mark == "external.created":
            object.__setattr__(works.world, "marked", lambda _: None)
            adopt_partitions(works.catalog, works.world, fileset, "other")

    object.__setattr__(works.world, "marked", adopt_another)
    with raises_code("schema_conflict"):
        adopt_partitions(works.catalog, works.world, fileset, "one")
    between = works.catalog.read(lambda db: find_schema(db, fileset.dataset_id))
    adopt_partitions(works.catalog, works.world, fileset, "one")
    columns = works.catalog.read(lambda db: find_schema(db, fileset.dataset_id))

    assert list(between.types) == ["id", "name"]
    assert set(columns.types) == {"id", "name", "size"}


def test_one_day_of_a_tree_can_be_adopted(works, declared, memory_folder):
    """As `dataset add` does it for one partition."""
    fileset = declared()
    put(memory_folder, "old/day=2026-01-01/hour=1/a.parquet")
    put(memory_folder, "old/day=2026-01-02/hour=2/a.parquet")

    done = adopt_partitions(works.catalog, works.world, fileset, "old/day=2026-01-02")

    assert (done.partitions, done.refused) == (1, ())
    assert keys(works, fileset) == {"day=2026-01-02 hour=2": 2}


def test_a_directory_is_adopted_with_all_its_files_whatever_directories_lie_in_it(works, declared, memory_folder):
    """A job that died leaves `_temporary`, and the name sorts between those of files."""
    fileset = declared()
    for name in ("000000_0.parquet", "_temporary/0/part-1.parquet", "old/part-2.parquet", "part-0.parquet"):
        put(memory_folder, f"day=2026-01-01/hour=5/{name}")

    done = adopt_partitions(works.catalog, works.world, fileset)

    assert keys(works, fileset) == {"day=2026-01-01 hour=5": 4}
    assert [one.directory for one in done.refused] == ["day=2026-01-01/hour=5/old"]


def test_adoption_refuses_what_it_cannot_read(works, declared, memory_folder):
    """A link, or a directory without the right to read it, would be left out in silence."""
    fileset = declared()
    put(memory_folder, "day=2026-01-01/hour=5/a.parquet")
    closed = put(memory_folder, "day=2026-01-01/hour=6/a.parquet").parent
    linked = put(memory_folder, "day=2026-01-01/hour=7/a.parquet")
    (linked.parent / "b.parquet").symlink_to(linked)
    (linked.parent.parent / "hour=8").symlink_to(linked.parent)
    closed.chmod(0)

    with bound_by_modes():
        done = adopt_partitions(works.catalog, works.world, fileset)

    assert keys(works, fileset) == {"day=2026-01-01 hour=5": 2}
    assert {one.directory.rpartition("=")[2]: one.why for one in done.refused} == {
        "6": "it cannot be read: Permission denied",
        "7": "b.parquet cannot be read: it is a link",
        "8": "it cannot be read: it is a link",
    }


def test_what_is_adopted_is_delivered_and_outlives_the_janitor(works, declared, memory_folder):
    """As new partitions; dropping them leaves the files, which are not ours."""
    fileset = declared()
    works.catalog.write(lambda db: ensure_consumer(db, fileset.dataset_id, "default.shop.report"))
    file = put(memory_folder, "day=2026-01-01/hour=5/a.parquet")

    adopt_partitions(works.catalog, works.world, fileset)
    swept = sweep(works.catalog)
    dropped = drop_matching(works.catalog, works.world, fileset, make_filter(fileset.keys, {"hour": 5}))

    assert works.sql("SELECT count(*) FROM message WHERE event_key = 'partition:default.clicks'") == [(1,)]
    assert (swept.deleted, swept.marked) == (0, 0)
    assert [(one.partition, one.rows) for one in dropped] == [("day=2026-01-01 hour=5", 2)]
    assert file.exists()
    again = adopt_partitions(works.catalog, works.world, fileset)
    assert again.partitions == 1


def test_orc_can_be_adopted_and_text_cannot(works, declared, memory_folder):
    """A line of text does not say its columns."""
    fileset = declared(format="orc")
    put(memory_folder, "day=2026-01-01/hour=5/a.orc")
    text = Fileset(fileset.dataset, replace(fileset.storing, format=FileFormat.JSON))

    assert adopt_partitions(works.catalog, works.world, fileset).rows == 2
    with pytest.raises(BadFormat, match="adopt parquet or orc"):
        adopt_partitions(works.catalog, works.world, text)


def test_retention_drops_whole_days_that_are_over_long_enough(works, declared, memory_folder):
    """By the time of the partition, not of its making."""
    fileset = declared(retention="10d")
    today = works.catalog.read(lambda db: db.now()).date()
    for age in (0, 9, 10, 11, 400):
        put(memory_folder, f"day={today - timedelta(days=age)}/hour=1/a.parquet")
    adopt_partitions(works.catalog, works.world, fileset)

    first, second = apply_retention(works.catalog, works.world), apply_retention(works.catalog, works.world)

    assert (first, second) == (2, 0)
    assert sorted(keys(works, fileset)) == [f"day={today - timedelta(days=age)} hour=1" for age in (10, 9, 0)]
    assert list_matching(works.catalog, fileset, find_outlived(works.catalog, fileset, timedelta(days=9)))[0].rows == 2


def test_retention_needs_a_time(works):
    """A number is none."""
    lines = make_lake(works.catalog).lines

    with pytest.raises(NoPartitionTime, match="have no time"):
        find_outlived(works.catalog, lines, timedelta(days=1))
    with pytest.raises(BadFormat, match="retention goes by a field"):
        Storing(lines.keys, retention=timedelta(days=1))
    with pytest.raises(BadFormat, match="0s is no time for which anything could be kept"):
        Storing(lines.keys, keep_superseded=timedelta(0))


@pytest.mark.spark
def test_other_engines_read_the_same_rows(works, declared, memory_folder, spark):
    """The list of committed files, with the key beside each: what DuckDB and Arrow need."""
    import duckdb
    import pyarrow.dataset as arrow

    from tidemill.frames.spark import read_partitions as read_frame
    from tidemill.run.processes.external import open_transaction

    fileset = declared()
    put(memory_folder, "day=2026-01-01/hour=5/a b.parquet")
    adopt_partitions(works.catalog, works.world, fileset)
    frame = spark.sql("SELECT id, string(id) AS name, date'2026-01-02' AS day, int(id % 2) AS hour FROM range(10)")
    with open_transaction(works.catalog, works.world, ["default.clicks"]) as tx:
        tx.fileset("default.clicks").append(frame)
    snapshot = works.catalog.read(lambda db: now(db, works.catalog.incarnation))
    accepted = make_filter(fileset.keys, {"hour": {1, 5}})
    found = works.catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot, accepted))
    columns = works.catalog.read(lambda db: find_schema(db, fileset.dataset_id))
    paths = [str(memory_folder / "clicks" / name) for partition in found for name, _ in partition.files]

    by_spark = read_frame(World(), spark, fileset, found, columns)
    rows = sorted((row["id"], row["name"]) for row in by_spark.select("id", "name").collect())

    assert len(rows) == 7
    assert dict(by_spark.dtypes)["day"] == "date"
    assert sorted(duckdb.read_parquet(paths, hive_partitioning=False).select("id, name").fetchall()) == rows
    table = arrow.dataset(paths).to_table(columns=["id", "name"])
    assert sorted(zip(*(column.to_pylist() for column in table.columns), strict=True)) == rows
