"""Spark writes partitions and reads them back: every row, once, under the right key, or an error."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from pyarrow.dataset import dataset
from pyspark.sql import functions as sf

from tests.lake.conftest import make_fileset
from tidemill.frames import spark as module
from tidemill.frames.jvm import plans_of
from tidemill.frames.schema import BadFrame
from tidemill.frames.spark import RowsDiffer, read_partitions, write_partitions
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition, WriteOp
from tidemill.lake.fileset.publish import SchemaChanged
from tidemill.names import CommitSeq, DatasetId, Namespace, WritePointer
from tidemill.shapes.keys import BadKey, KeyField, KeySchema, KeyType
from tidemill.shapes.manifest import DamagedFiles
from tidemill.world import World

pytestmark = pytest.mark.spark


def partitions(fileset, written, tx="tx-7-inc"):
    """Return the partitions that a snapshot would see after the commit of `written`."""
    from tidemill.lake.fileset.fileset import Change

    found = []
    for key, manifest in written.manifests.items():
        text = fileset.keys.encode(key)
        change = Change(text, WritePointer(7), CommitSeq(8), WriteOp.CREATE, tx, manifest)
        found.append(Partition(text, (change,)))
    return found


def rows_of(frame):
    """All rows, sorted."""
    return sorted(tuple(row) for row in frame.collect())


def declared(folder, keys):
    """Return a file set, with the folder that its declaration makes."""
    folder.mkdir(parents=True, exist_ok=True)
    return make_fileset(folder, keys)


@pytest.fixture
def lines(tmp_path):
    """A file set keyed by hour."""
    return declared(tmp_path / "lines", {"hour": "int"})


def test_directories_are_escaped_as_spark_does_it(spark):
    """Files of Spark are found by name: one other character loses a partition."""
    escape = spark._jvm.org.apache.spark.sql.catalyst.catalog.ExternalCatalogUtils.escapePathName
    text = KeyField("k", KeyType.STRING)
    characters = [chr(code) for code in (*range(1, 0x180), 0x2028, 0x20AC, 0xFFFF, 0x1F600)]

    ours = [KeySchema((text,)).to_path((character,)) for character in characters]

    assert ours == [f"k={escape(character)}" for character in characters]


def test_rows_come_back_under_keys_of_every_type(spark, tmp_path):
    """Values that look like numbers, need escapes, or lie in the hour that happens twice."""
    keys = {"s": "string", "i": "int", "l": "long", "d": "date", "t": "timestamp"}
    fileset = declared(tmp_path / "all", keys)
    texts = ["05", "1.0", "a/b:c {x} [y] %41", "ü€😀 ", "null", "..", "=", "\t'\"\\", "true"]
    given = [
        (n, text, n - 4, (n - 4) * 2**40, date(1969 + n, 12, 31), datetime(2013, 10, 27, 0, 30, n, 120000 * n, UTC))
        for n, text in enumerate(texts)
    ]
    frame = spark.createDataFrame(given, "id int, s string, i int, l bigint, d date, t timestamp")

    written = write_partitions(World(), frame, fileset, "tx-7-inc/1")
    read = read_partitions(World(), spark, fileset, partitions(fileset, written), written.schema)

    assert set(written.manifests) == {tuple(row[1:]) for row in given}
    assert read.columns == ["id", *keys]
    assert dict(read.dtypes) == {"id": "int", "s": "string", "i": "int", "l": "bigint", "d": "date", "t": "timestamp"}
    assert rows_of(read) == rows_of(frame)
    assert read.where("s = '05'").count() == read.where("t = timestamp'2013-10-27 00:30:00 UTC'").count() == 1


def test_readers_of_hive_paths_find_the_partition_columns_alone(spark, lines):
    """With `tx=7`, Polars, DuckDB and pyarrow would read one more column, which no declaration names."""
    write_partitions(World(), spark.sql("SELECT 1 AS id, 5 AS hour"), lines, "tx-7-inc/1")

    table = dataset(lines.dataset.location, format="parquet", partitioning="hive").to_table()

    assert table.to_pydict() == {"id": [1], "hour": [5]}


def test_a_manifest_says_what_is_in_the_directory(spark, lines):
    """Counts by partition are what triggers, limits and people go by."""
    frame = spark.range(100).selectExpr("id", "cast(id % 10 / 9 as int) as hour")

    written = write_partitions(World(), frame, lines, "tx-7-inc/3")

    manifests = {key[0]: manifest for key, manifest in written.manifests.items()}
    assert {hour: manifest.total_rows for hour, manifest in manifests.items()} == {0: 90, 1: 10}
    folder = Path(lines.dataset.location.removeprefix("file://"), "tx-7-inc")
    for manifest in manifests.values():
        assert all((folder / file.name).stat().st_size == file.bytes for file in manifest.files)
    assert not list(folder.rglob("_*"))


def files_of(written):
    """Count the files of each partition."""
    return {key[0]: len(manifest.files) for key, manifest in written.manifests.items()}


@pytest.mark.parametrize("source", ["tasks", "join", "python", "grouped", "grouped python"])
def test_the_rows_of_a_partition_meet_in_one_file(spark, lines, source):
    """347 rows once made 341 files: each task wrote one for each partition of which it had a row."""
    spread = spark.range(0, 347, 1, 8).selectExpr("id", "cast(id % 5 as int) as hour")
    frames = {
        "tasks": spread,
        "join": spread.join(spread.selectExpr("id"), "id"),
        "python": spark.createDataFrame([(n, n % 5) for n in range(347)], "id bigint, hour int"),
        "grouped": spread.groupBy("id", "hour").count(),
    }
    frames["grouped python"] = frames["python"].groupBy("id", "hour").count()

    written = write_partitions(World(), frames[source], lines, "tx-7-inc/1")

    assert files_of(written) == dict.fromkeys(range(5), 1)
    assert sum(manifest.total_rows for manifest in written.manifests.values()) == 347


def test_few_grouped_rows_are_moved_once_and_by_the_grouping(spark, lines, tmp_path):
    """A second move is a stage more. Where the site forbids Spark to coalesce, each of 20 tasks would write files."""
    spark.range(0, 347, 1, 8).write.parquet(f"{tmp_path}/ids")
    rows = f"SELECT id, cast(id % 5 AS int) AS hour, count(*) AS n FROM parquet.`{tmp_path}/ids` GROUP BY id"
    scattering = spark.newSession()
    scattering.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")

    once, twice = (plans_of(module._gather(one.sql(rows), lines)).analyzed() for one in (spark, scattering))

    assert "Rebalance" not in once.toString()
    assert "Rebalance" in twice.toString()
    assert files_of(write_partitions(World(), spark.sql(rows), lines, "tx-7-inc/1")) == dict.fromkeys(range(5), 1)


def test_a_snapshot_of_few_rows_has_one_file(spark, tmp_path):
    """A snapshot has no keys: all of its rows meet."""
    users = Dataset(DatasetId("users"), Namespace("default"), "users", DatasetKind.SNAPSHOT, tmp_path.as_uri(), {})

    written = write_partitions(World(), spark.range(0, 40, 1, 8), Fileset.of(users), "tx-7-inc/1")

    assert [len(manifest.files) for manifest in written.manifests.values()] == [1]


def test_a_layout_that_the_program_chose_is_kept(spark, lines):
    """Rows that are sorted last stay sorted, and rows that are repartitioned last stay so."""
    spread = spark.range(0, 1000, 1, 8).selectExpr("id", "cast(id % 2 as int) as hour")

    three = write_partitions(World(), spread.repartition(3), lines, "tx-7-inc/1")
    ordered = write_partitions(World(), spread.sortWithinPartitions(sf.desc("id")), lines, "tx-7-inc/2")

    folder = Path(lines.dataset.location.removeprefix("file://"), "tx-7-inc")
    assert files_of(three) == {0: 3, 1: 3}
    for manifest in ordered.manifests.values():
        for file in manifest.files:
            ids = [row[0] for row in spark.read.parquet(str(folder / file.name)).collect()]
            assert ids == sorted(ids, reverse=True)


def test_rows_that_are_too_many_to_move_are_written_where_they_are(spark, lines, monkeypatch):
    """Publishing 1 GB must not cost more than the plain write (benchmark B5)."""
    monkeypatch.setattr(module, "MOST_MOVED_BYTES", 10_000)
    few = spark.range(0, 100, 1, 4).selectExpr("id", "cast(0 as int) as hour")
    many = spark.range(0, 10_000, 1, 4).selectExpr("id", "cast(0 as int) as hour")

    assert files_of(write_partitions(World(), few, lines, "tx-7-inc/1")) == {0: 1}
    assert files_of(write_partitions(World(), many, lines, "tx-7-inc/2")) == {0: 4}


def test_a_task_that_is_tried_again_leaves_its_rows_once(spark, lines, monkeypatch):
    """The first attempt of each task dies after it has written all its rows (tried: a plain directory held both)."""
    monkeypatch.setattr(module, "MOST_MOVED_BYTES", -1)  # so that the tasks that die are those that write

    def die_at_the_end(batches):
        from pyspark import TaskContext

        yield from batches
        if TaskContext.get().attemptNumber() < 2:
            raise RuntimeError("this attempt dies")

    frame = spark.range(0, 1000, 1, 4).selectExpr("id", "cast(id % 3 as int) as hour")
    failing = frame.mapInPandas(die_at_the_end, frame.schema)

    written = write_partitions(World(), failing, lines, "tx-7-inc/1")
    read = read_partitions(World(), spark, lines, partitions(lines, written), written.schema)

    assert sum(manifest.total_rows for manifest in written.manifests.values()) == 1000
    assert rows_of(read) == rows_of(frame)


@pytest.mark.parametrize("shuffled", [False, True])
def test_the_job_counts_each_row_once_whatever_its_plan(spark, lines, shuffled):
    """A count that could be too high or low would fail good writes."""
    frame = spark.range(0, 1000, 1, 8).selectExpr("id", "cast(id % 3 as int) as hour")
    frame = frame.repartition(5, "hour").distinct() if shuffled else frame.limit(700)

    written = write_partitions(World(), frame, lines, "tx-7-inc/1")

    assert sum(manifest.total_rows for manifest in written.manifests.values()) == (1000 if shuffled else 700)


def test_a_directory_with_other_rows_than_the_job_wrote_fails_the_attempt(spark, lines, monkeypatch):
    """Files that a dead task, or another process, left there would be published."""
    listed = module.list_written

    def with_a_foreign_file(files, directory):
        (first, *_) = listed(files, directory)
        files.put(f"{first.name}.again.parquet", files.read(first.name))
        return listed(files, directory)

    monkeypatch.setattr(module, "list_written", with_a_foreign_file)

    with pytest.raises(RowsDiffer, match="wrote 10 rows, and tx-7-inc/1 has 2") as caught:
        write_partitions(World(), spark.range(10).selectExpr("id", "0 as hour").repartition(1), lines, "tx-7-inc/1")

    assert (caught.value.written, caught.value.found) == (10, 20)


def test_a_lost_count_fails_the_attempt_and_does_not_wait_for_ever(spark, monkeypatch):
    """Spark drops events when its queue is full."""
    from pyspark.sql import Observation

    monkeypatch.setattr(module, "_WAIT_FOR_COUNT_S", 0)
    never = Observation()
    spark.range(1).observe(never, sf.count(sf.lit(1)).alias("rows"))

    assert module.read_counts(spark, never) is None


@pytest.mark.parametrize(
    ("hour", "key_type", "why"),
    [
        ("cast(null as int)", "int", "'hour' is null or empty"),
        ("if(id = 5, '', 'x')", "string", "'hour' is null or empty"),
        ("if(id = 5, null, 'x')", "string", "'hour' is null or empty"),
        ("if(id = 5, '__HIVE_DEFAULT_PARTITION__', 'x')", "string", "'hour' is null or empty"),
        ("repeat('x', 251)", "string", r"Mkdirs failed to create .*hour=xxx"),
        ("id", "int", "'hour' is a column of type bigint; int is wanted"),
        ("cast(id as string)", "int", "'hour' is a column of type string"),
        ("cast(id as double)", "long", "'hour' is a column of type double"),
        ("current_timestamp()", "date", "'hour' is a column of type timestamp"),
        ("current_date()", "timestamp", "'hour' is a column of type date"),
        ("cast(current_timestamp() as timestamp_ntz)", "timestamp", "type timestamp_ntz"),
    ],
)
def test_a_key_column_that_makes_no_keys_is_named(spark, tmp_path, hour, key_type, why):
    """A guess would put rows where no reader looks for them."""
    fileset = declared(tmp_path / "x", {"hour": key_type})

    with pytest.raises(Exception, match=why):
        write_partitions(World(), spark.range(10).selectExpr("id", f"{hour} as hour"), fileset, "tx-7-inc/1")


def test_a_missing_key_column_is_named(spark, lines):
    """The message says which columns there are."""
    with pytest.raises(BadKey, match="'hour' is no column of the data frame, which has id, Our"):
        write_partitions(World(), spark.range(10).selectExpr("id", "1 as Our"), lines, "tx-7-inc/1")


def test_a_small_integer_becomes_the_long_that_the_key_wants(spark, tmp_path):
    """No digit is lost; upper and lower case are one to Spark."""
    fileset = declared(tmp_path / "x", {"hour": "long"})
    written = write_partitions(World(), spark.range(3).selectExpr("1 as HOUR", "id as `a.b`"), fileset, "tx-7-inc/1")

    read = read_partitions(World(), spark, fileset, partitions(fileset, written), written.schema)

    assert read.dtypes == [("a.b", "bigint"), ("hour", "bigint")]
    assert rows_of(read) == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize(
    ("columns", "why"), [(["1 as hour"], "no column beside"), (["id", "1 as hour", "2 as ID"], "have one name")]
)
def test_frames_that_no_file_can_hold_are_refused(spark, lines, columns, why):
    """Spark's own words for it are hard to read."""
    with pytest.raises(BadFrame, match=why):
        write_partitions(World(), spark.range(10).selectExpr(*columns), lines, "tx-7-inc/1")


def test_rows_of_another_kind_are_refused(lines):
    """A mapping of lines is what the test kit takes: a program that was tried there may bring one."""
    with pytest.raises(BadFrame, match=r"it is a dict, not a DataFrame of Spark"):
        write_partitions(World(), {"hour=1": "x"}, lines, "tx-7-inc/1")


def test_columns_come_in_the_order_of_the_file_set(spark, lines):
    """A write by name must not depend on the order in which a program computes its columns."""
    first = write_partitions(World(), spark.range(2).selectExpr("id", "'a' as v", "1 as hour"), lines, "tx-7-inc/1")
    other = spark.range(2).selectExpr("1 as hour", "'b' as v", "id")

    second = write_partitions(World(), other, lines, "tx-7-inc/2", first.schema)

    assert second.schema == first.schema
    assert [field["name"] for field in json.loads(first.schema.text)["fields"]] == ["id", "v"]


@pytest.mark.parametrize(
    "columns", [["id", "1 as hour"], ["id", "1 as v", "1 as hour"], ["id", "'a' as w", "1 as hour"]]
)
def test_other_columns_are_refused_before_anything_is_written(spark, lines, columns):
    """The commit would refuse them, after hours of work."""
    first = write_partitions(World(), spark.range(2).selectExpr("id", "'a' as v", "1 as hour"), lines, "tx-7-inc/1")

    with pytest.raises(SchemaChanged, match="id long, v string"):
        write_partitions(World(), spark.range(2).selectExpr(*columns), lines, "tx-7-inc/2", first.schema)


def test_columns_are_the_same_whether_they_can_be_null_or_not(spark, lines):
    """Spark forgets it when it reads; two programs would quarrel about nothing."""
    strict = write_partitions(
        World(), spark.range(2).selectExpr("id", "array(1) as v", "1 as hour"), lines, "tx-7-inc/1"
    )
    loose = spark.range(2).selectExpr("nullif(id, 7) as id", "array(nullif(1, id)) as v", "1 as hour")

    assert write_partitions(World(), loose, lines, "tx-7-inc/2").schema == strict.schema


def test_no_rows_make_no_partitions(spark, lines):
    """An empty result is a result."""
    written = write_partitions(World(), spark.range(0).selectExpr("id", "1 as hour"), lines, "tx-7-inc/1")
    read = read_partitions(World(), spark, lines, [], written.schema)

    assert written.manifests == {}
    assert (read.dtypes, read.count()) == ([("id", "bigint"), ("hour", "int")], 0)
    assert read_partitions(World(), spark, lines, [], None).dtypes == [("hour", "int")]


def test_partitions_of_many_transactions_are_read_as_one(spark, lines):
    """Every transaction has a directory of its own above the keys: Spark has to take them for no columns."""
    found = []
    for number in range(1, 13):
        frame = spark.range(number).selectExpr("id", f"{number % 5} as hour").coalesce(1)
        tx = f"tx-{number}-inc"
        written = write_partitions(World(), frame, lines, f"{tx}/1")
        found += partitions(lines, written, tx)

    read = read_partitions(World(), spark, lines, found, written.schema)

    assert {row["hour"]: row["count"] for row in read.groupBy("hour").count().collect()} == {
        hour: sum(n for n in range(1, 13) if n % 5 == hour) for hour in range(5)
    }


def test_only_the_files_of_the_manifest_are_read(spark, lines):
    """A directory may hold what a lost attempt left, or what another write added to it."""
    frame = spark.range(10).selectExpr("id", "1 as hour").repartition(2)
    written = write_partitions(World(), frame, lines, "tx-7-inc/1")
    (partition,) = partitions(lines, written)
    (change,) = partition.changes
    half = type(change.manifest)(change.manifest.files[:1])
    one = Partition(partition.partition_key, (type(change)(change.partition_key, 7, 8, change.op, "tx-7-inc", half),))

    assert read_partitions(World(), spark, lines, [one], written.schema).count() == half.total_rows < 10


@pytest.mark.parametrize("name", ["a b", "a[b]{c}*?", "100%41", "ü"])
def test_a_file_set_may_lie_in_any_folder(spark, tmp_path, name):
    """Folders have the names that people give them; Spark takes some of their characters for patterns."""
    fileset = declared(tmp_path / name, {"hour": "int"})
    frame = spark.range(4).selectExpr("id", "cast(id as int) as hour")

    written = write_partitions(World(), frame, fileset, "tx-7-inc/1")

    assert rows_of(read_partitions(World(), spark, fileset, partitions(fileset, written), written.schema)) == rows_of(
        frame
    )


def test_a_file_that_is_gone_or_cut_is_named_before_spark_starts(spark, lines):
    """An answer without its rows would be a wrong answer."""
    frame = spark.range(2).selectExpr("id", "cast(id as int) as hour")
    written = write_partitions(World(), frame, lines, "tx-7-inc/1")
    seen = partitions(lines, written)
    folder = Path(lines.dataset.location.removeprefix("file://"))
    name, file = seen[0].files[0]
    path = folder / name
    content = path.read_bytes()

    path.write_bytes(content[:-1])
    with pytest.raises(DamagedFiles, match=f"hour=0 of default.lines .* has {file.bytes - 1} bytes instead"):
        read_partitions(World(), spark, lines, seen, written.schema)
    path.unlink()
    with pytest.raises(DamagedFiles, match="is gone"):
        read_partitions(World(), spark, lines, seen, written.schema)


def test_a_flipped_byte_is_an_error_even_if_the_session_would_pass_over_it(spark, lines):
    """Uncompressed Parquet reads silently wrong without page checksums; and a program may have loosened its session."""
    spark.conf.set("spark.sql.parquet.compression.codec", "uncompressed")
    frame = spark.range(0, 1000, 1, 1).selectExpr("id", "concat('value-', id) as v", "1 as hour")
    written = write_partitions(World(), frame, lines, "tx-7-inc/1")
    spark.conf.unset("spark.sql.parquet.compression.codec")
    seen = partitions(lines, written)
    path = Path(lines.dataset.location.removeprefix("file://"), seen[0].files[0][0])
    content = bytearray(path.read_bytes())
    content[content.index(b"value-500") + 6] ^= 1
    path.write_bytes(content)
    path.with_name(f".{path.name}.crc").unlink()
    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "true")

    with pytest.raises(Exception, match=r"(?i)crc|checksum|corrupt"):
        read_partitions(World(), spark, lines, seen, written.schema).collect()

    spark.conf.set("spark.sql.files.ignoreCorruptFiles", "false")


def test_the_columns_of_a_file_set_have_one_name() -> None:
    """Change rows and the catalog's list of schemas meet in it."""
    assert ColumnSchema("{}").schema_id == ColumnSchema("{}").schema_id != ColumnSchema("[]").schema_id
