"""Monitored tables: directories that other programs write are partitions after the next listing."""

from __future__ import annotations

import os
import random
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.errors import raises_code
from tests.seed_of_the_day import TODAY
from tests.stage import EMPTY, Stage, open_stage
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.lake.fileset.monitor import TreeMemory
from tidemill.lake.fileset.time_travel import now
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.keeper import Keeper
from tidemill.run.processes.monitoring import follow_table

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})
CREATE = """
CREATE TABLE clicks (
  id bigint, ts timestamp, pt_day string, pt_hour string,
  WATERMARK FOR ts AS SOURCE_WATERMARK
) PARTITIONED BY (pt_day, pt_hour) WITH (
  'connector'='filesystem', 'path'='others', 'format'='{format}',
  'streaming-source.enable'='true', 'streaming-source.monitor-interval'='1 ms',
  'partition.time-extractor.timestamp-pattern'='$pt_day $pt_hour:00:00',
  'partition.time-interval'='1h'{more}
)
"""


class Directory(Stage):
    """A monitored table `clicks`, whose files the test writes as other programs do."""

    discoverer: Discoverer
    told: list[str]

    @property
    def root(self) -> Path:
        """The directory of the table."""
        return self.mill.project.config.folder / "others"

    def create(self, more: str = "", file_format: str = "parquet") -> None:
        """Declare the table."""
        self.mill.sql(CREATE.format(format=file_format, more=more))
        self.restart()

    def restart(self) -> None:
        """Have another process list the table: one that remembers nothing."""
        self.told = []
        narrator = Narrator(self.world, self.told.append, as_json=False)
        self.discoverer = Discoverer(self.mill.project.catalog, narrator)

    def put(self, hour: int, name: str = "a.parquet", ids: int = 2) -> Path:
        """Write a file of an hour."""
        target = self.root / "pt_day=2021-03-19" / f"pt_hour={hour:02}" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        times = pa.array([1616112000_000000] * ids, pa.timestamp("us", "UTC"))
        parquet.write_table(pa.table({"id": pa.array(range(ids), pa.int64()), "ts": times}), target)
        return target

    def list(self) -> dict[str, int]:
        """List the table; return the rows of its partitions, by hour."""
        fileset = self.fileset
        self.world.clock.sleep(timedelta(milliseconds=2))
        self.discoverer.list_due()
        catalog = self.mill.project.catalog
        snapshot = catalog.read(lambda db: now(db, catalog.incarnation))
        found = catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot))
        return {fileset.show(one.partition_key)[-2:]: one.rows for one in found}

    @property
    def fileset(self) -> Fileset:
        """The table."""
        return self.mill.project.catalog.read(lambda db: Fileset.of(self.mill.project.dataset(db, "clicks")))

    @property
    def watermark(self) -> str | None:
        """The hour of W."""
        (view,) = self.mill.watermarks.list()
        return None if view.watermark is None else view.watermark[11:13]

    def changes(self) -> list[Any]:
        """Return all changes, oldest first: act and rows."""
        return self.sql("SELECT op, row_count FROM partition_change ORDER BY write_pointer, partition_key")


@pytest.fixture
def others(catalog_url, tmp_path):
    """A directory that other programs write."""
    opened = open_stage(Directory, tmp_path / "project", catalog_url, EMPTY)
    yield opened
    opened.mill.close()


def test_what_others_write_is_there_after_the_next_listing(others):
    """New directories, new files, files that were written again or deleted: each is one change of its partition."""
    others.create()
    others.put(10)
    others.put(11)
    first = others.list(), others.watermark
    again = others.put(10, "b.parquet", 3)
    others.put(12)
    second = others.list(), others.watermark
    others.put(11, ids=5)
    again.unlink()
    shutil.rmtree(others.root / "pt_day=2021-03-19" / "pt_hour=12")
    third = others.list()

    assert first == ({"10": 2, "11": 2}, "12")
    assert second == ({"10": 5, "11": 2, "12": 2}, "13")
    assert third == {"10": 2, "11": 5}
    assert others.changes() == [
        ("create", 2), ("create", 2), ("append", 3), ("create", 2), ("overwrite", 2), ("overwrite", 5), ("drop", 0),
    ]  # fmt: skip
    assert others.sql("SELECT count(*) FROM tx WHERE state = 'committed'") == [(3,)]


def test_a_listing_that_sees_nothing_new_writes_nothing(others):
    """A table may be listed every second for years. A process that begins compares all, and writes nothing either."""
    others.create()
    others.put(10)
    others.list()
    before = others.sql("SELECT count(*) FROM tx") + others.sql("SELECT next_listing_at FROM inbox_marker")

    others.list()
    same = others.sql("SELECT count(*) FROM tx") + others.sql("SELECT next_listing_at FROM inbox_marker")
    others.restart()
    others.list()

    assert same == before
    assert others.sql("SELECT count(*) FROM tx") == before[:1]


def test_an_hour_is_complete_when_its_markers_are_there(others):
    """An hour may come in many files. A marker alone is an hour without rows."""
    others.create(more=", 'partition.completeness'='success-file'")
    ten = others.put(10).parent
    others.put(11, "_SUCCESS")
    shutil.copytree(ten, ten.with_name("pt_hour=12"))

    without_ten = others.list(), others.watermark
    shutil.rmtree(ten)
    others.list()
    (ten.with_name("pt_hour=12") / "_SUCCESS").touch()
    with_twelve = others.list(), others.watermark

    assert without_ten == ({"10": 2, "11": 0, "12": 2}, "12")
    assert with_twelve == ({"11": 0, "12": 2}, "13")
    assert others.changes() == [("create", 2), ("create", 0), ("create", 2), ("drop", 0)]


def test_an_hour_is_complete_when_nothing_has_changed_in_it_for_the_delay(others):
    """A writer that appends twelve times an hour has no other way to say so."""
    others.create(more=", 'partition.completeness'='success-file+delay(1h)'")
    keeper = Keeper(others.mill.project.catalog, others.discoverer)
    others.put(10)
    others.put(10, "_SUCCESS")
    others.put(11)
    others.list()
    keeper.step()
    told = [one.why.partition(": ")[2] for one in others.mill.why("clicks").because if "waits for" in one.why]
    early = others.watermark, others.sql("SELECT marked FROM slot_wait ORDER BY slot_time")
    others.sql("UPDATE slot_wait SET due_at = 1 RETURNING 1")
    others.put(10, "b.parquet")
    others.list()
    changed = others.watermark
    others.sql("UPDATE slot_wait SET due_at = 1 RETURNING 1")
    keeper.step()

    assert told == ["something has changed in it lately", "its directory has no file _SUCCESS"]
    assert early == (None, [(1,), (0,)])
    assert changed is None
    assert others.watermark == "11"
    assert others.sql("SELECT marked FROM slot_wait") == [(0,)]


def test_two_partitions_of_an_hour_are_both_complete_before_the_hour_is(others):
    """Without `expected` an hour waits for all partitions that are there."""
    others.mill.sql(
        CREATE.format(format="parquet", more=", 'partition.completeness'='success-file'")
        .replace("pt_hour string", "pt_hour string, region string")
        .replace("pt_hour) WITH", "pt_hour, region) WITH")
    )
    others.restart()
    eu = others.put(10, "region=eu/a.parquet").parent
    us = others.put(10, "region=us/a.parquet").parent
    (eu / "_SUCCESS").touch()
    others.list()
    one = others.watermark
    (us / "_SUCCESS").touch()
    others.list()

    assert (one, others.watermark) == (None, "11")


def test_a_directory_that_cannot_be_a_partition_is_refused_and_hides_no_other(others):
    """A file that is being written has no footer yet. The catalog keeps what it knows until the file can be read."""
    others.create()
    ten = others.put(10)
    others.list()
    others.put(10, "torn.parquet").write_bytes(b"PAR1")
    others.put(11)
    (others.root / "stray").mkdir()
    shutil.copy(ten, others.root / "stray" / "a.parquet")
    with_bad = others.list()
    told = [line.partition("refused ")[2] for line in others.told if "refused" in line]
    again = others.list()
    shutil.rmtree(ten.parent)

    assert with_bad == again == {"10": 2, "11": 2}
    assert len(told) == 1
    assert "pt_hour=10 (" in told[0]
    assert "stray (" in told[0]
    assert others.list() == {"11": 2}


def test_a_disk_that_is_away_drops_nothing(others, tmp_path):
    """An empty mount point looks like a table without files."""
    others.create()
    others.put(10)
    before = others.list()
    others.root.rename(tmp_path / "disk")
    others.root.mkdir()

    away = others.list()
    others.root.rmdir()
    (tmp_path / "disk").rename(others.root)
    others.restart()

    assert away == others.list() == before
    assert others.changes() == [("create", 2)]


def test_a_process_that_lost_the_charge_publishes_nothing(others):
    """Two processes would publish the same new file, each as an append."""
    others.create()
    others.put(10)
    others.list()
    others.put(10, "b.parquet")
    slow, rows = others.discoverer, []

    def overtake() -> None:
        others.restart()
        rows.append(others.list())

    others.at["external.begun"] = overtake
    others.discoverer = slow
    assert others.list() == {"10": 4}
    assert rows == [{"10": 4}]
    assert others.changes() == [("create", 2), ("append", 2)]


def test_what_others_have_changed_in_the_catalog_is_compared_again(others):
    """A partition that a person drops comes back while its files are there."""
    others.create()
    others.put(10)
    others.put(11)
    others.list()

    others.mill.datasets.drop("clicks", where={"pt_hour": "10"})

    assert others.list() == {"10": 2, "11": 2}


@pytest.mark.parametrize(
    ("order", "start", "wanted"),
    [
        ("partition-time", "2021-03-19 09:00:00", ["9", "10", "11"]),
        ("partition-name", "pt_day=2021-03-19/pt_hour=11", ["11", "8", "9"]),
        ("create-time", "2001-01-01", ["11", "9", "10"]),
    ],
)
def test_partitions_come_in_the_order_of_the_table_from_its_start_on(others, order, start, wanted):
    """Names without zero padding do not sort by time. What is before the start does not belong to the table."""
    offset = f", 'streaming-source.consume-order'='{order}', 'streaming-source.consume-start-offset'='{start}'"
    others.create(more=f"{offset}, 'partition.time-extractor.timestamp-formatter'='yyyy-MM-dd H:mm:ss'")
    for place, hour in enumerate(("8", "10", "9", "11")):
        written = others.put(8)
        os.utime(written, (978_307_200 + (-7200, 7200, 3600, 0)[place],) * 2)  # from the end of the year 2000 on
        written.parent.rename(written.parent.with_name(f"pt_hour={hour}"))
    catalog = others.mill.project.catalog
    others.list()
    ((process,),) = others.sql("SELECT in_charge FROM inbox_marker")
    others.sql("DELETE FROM partition_change RETURNING 1")

    follow_table(catalog, others.fileset, TreeMemory(), str(process), batch=1)

    found = others.sql("SELECT partition_key FROM partition_change ORDER BY write_pointer")
    assert [key.rpartition("!")[2] for (key,) in found] == wanted


class Died(BaseException):
    """The end of a process, which no code of the product handles."""


def test_the_table_is_its_directory_after_any_course_with_deaths(others):
    """Files appear, change and vanish in any order, and listings end anywhere: nothing is lost, nothing comes twice."""
    draw = random.Random(TODAY)
    others.create(more=", 'partition.completeness'='success-file'")
    marks = ["external.created", "external.begun", "output.side_cars", "external.before_commit", "external.committed"]

    def die() -> None:
        raise Died

    died = 0
    for step in range(120):
        hour, name = draw.randrange(8, 11), draw.choice(["a.parquet", "b.parquet", "_SUCCESS"])
        act = draw.choice(["write", "write", "write", "unlink", "clear", "list", "list", "die"])
        place = others.root / "pt_day=2021-03-19" / f"pt_hour={hour:02}"
        if act == "write":
            others.put(hour, name, ids=step + 1)
        elif act == "unlink":
            (place / name).unlink(missing_ok=True)
        elif act == "clear":
            shutil.rmtree(place, ignore_errors=True)
        elif act == "list":
            others.list()
        else:
            others.at[draw.choice(marks)] = die
            try:
                others.list()
            except Died:
                died += 1
            others.at.clear()
            others.restart()
    others.list()

    catalog = others.mill.project.catalog
    snapshot = catalog.read(lambda db: now(db, catalog.incarnation))
    fileset = others.fileset
    found = catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot))
    known = sorted(name for partition in found for name, _ in partition.files)
    rows = {fileset.show(partition.partition_key)[-2:]: partition.rows for partition in found}
    there = sorted(str(path.relative_to(others.root)) for path in others.root.rglob("*.parquet"))
    assert died > 2
    assert known == there
    assert sum(rows.values()) == sum(parquet.read_metadata(others.root / name).num_rows for name in there)
    assert others.list() == rows


def test_a_file_of_csv_says_its_columns_in_the_first_line(others):
    """Without the names Spark would lose the first row. Other programs may leave out the end of the last line."""
    others.create(file_format="csv")
    place = others.root / "pt_day=2021-03-19"
    for hour, text in ("10", "id,ts\n1,2021-03-19T10:00:00.000000Z"), ("11", "1,2021-03-19T11:00:00.000000Z\n"):
        (place / f"pt_hour={hour}").mkdir(parents=True)
        (place / f"pt_hour={hour}" / "a.csv").write_text(text)

    assert others.list() == {"10": 1}
    assert "the first line has to be id,ts, not '1,2021-03-19T11:00:00.000000Z'" in others.told[0]


@pytest.mark.parametrize("file_format", ["csv", "json"])
def test_text_whose_columns_an_app_declares_is_monitored(others, file_format):
    """As by CREATE TABLE. A later declaration may add columns to those of JSON."""
    declared = """
app.fileset("clicks", keys={{"pt_day": "string", "pt_hour": "string"}}, location="others", format="{}", schema="{}",
            columns="{}", monitor_every="1 ms",
            watermark=tm.Watermark("ts", pattern="$pt_day $pt_hour:00:00", interval="1h"))
"""
    others.declare(declared.format(file_format, "fail", "id bigint, ts timestamp"))
    others.restart()
    place = others.root / "pt_day=2021-03-19" / "pt_hour=10"
    place.mkdir(parents=True)
    texts = {"csv": "id,ts\n1,2021-03-19T10:00:00.000000Z\n", "json": '{"id": 1, "ts": "2021-03-19T10:00:00Z"}\n'}
    (place / "a").write_text(texts[file_format])

    assert others.list() == {"10": 1}, others.told
    assert others.watermark == "11"
    with raises_code("schema_changed", match="nothing with the columns .*note"):
        others.declare(declared.format(file_format, "fail", "id bigint, ts timestamp, note string"))
    if file_format == "json":
        others.declare(declared.format(file_format, "evolve", "id bigint, ts timestamp, note string"))
        assert [row["column"] for row in others.mill.sql("DESCRIBE clicks")[0].rows][:3] == ["id", "ts", "note"]


def test_a_table_is_monitored_as_long_as_its_declaration_says_so(others):
    """Other programs may write for years to a table that no program reads any more."""
    others.create()
    others.mill.sql("ALTER TABLE clicks RESET ('streaming-source.enable')")
    off = others.sql("SELECT count(*) FROM inbox_marker")
    others.put(10)
    before = others.list()
    others.mill.sql("ALTER TABLE clicks SET ('streaming-source.enable'='true')")
    others.restart()  # a running process leaves what comes due to other processes for a moment

    assert (off, before) == ([(0,)], {})
    assert others.list() == {"10": 2}
