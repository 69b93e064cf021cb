"""Monitored tables: directories that other programs write are partitions after the next listing."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from tests.errors import raises_code
from tests.modes import bound_by_modes
from tests.seed_of_the_day import TODAY
from tests.stage import EMPTY, Stage, open_stage
from tidemill.lake.fileset.adopt import TreeDirectory
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.lake.fileset.monitor import TreeMemory, find_vanished
from tidemill.lake.fileset.time_travel import now
from tidemill.lake.window.parked import release_parked
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.keeper import Keeper
from tidemill.run.processes.monitoring import follow_table
from tidemill.shapes.custom_time import forget_modules

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

    assert told == [
        "something has changed in it lately",
        "no listing since the last declaration has found _SUCCESS in its directory",
    ]
    assert early == (None, [(1,), (0,)])
    assert changed is None
    assert others.watermark == "11"
    assert others.sql("SELECT marked FROM slot_wait") == [(0,)]


def test_a_table_that_is_declared_again_waits_for_the_next_listing(others):
    """The markers are there, and only a listing sees them: nothing may say that they are missing."""
    others.create(more=", 'partition.completeness'='success-file'")
    others.put(10)
    others.put(10, "_SUCCESS")
    others.list()
    others.mill.sql("ALTER TABLE clicks SET ('partition.time-interval'='30m')")
    waits = [one.why.partition(": ")[2] for one in others.mill.why("clicks").because if "waits for" in one.why]
    others.list()

    assert waits == ["no listing since the last declaration has found _SUCCESS in its directory"]
    assert others.sql("SELECT target / 60000000 % 1440 FROM watermark") == [(10 * 60 + 30,)]
    assert not [one for one in others.mill.why("clicks").because if "waits for" in one.why]


def test_a_released_hour_is_complete_by_the_marker_that_was_there_before(others):
    """The directory does not change any more, so a listing that compares changes alone would never see the marker."""
    folder = others.mill.project.config.folder
    times = folder / f"times_{folder.parent.name}.py"  # a process imports a module of one name once
    code = (
        "from datetime import datetime\ndef read_time(values):\n    return datetime(2021, 3, 19, int(values['{}']))\n"
    )
    times.write_text(code.format("no such key"))
    custom = f"'partition.time-extractor.kind'='custom', 'partition.time-extractor.class'='{times.stem}:read_time'"
    pattern = "'partition.time-extractor.timestamp-pattern'='$pt_day $pt_hour:00:00'"
    create = CREATE.format(format="parquet", more=", 'partition.completeness'='success-file'")
    others.mill.sql(create.replace(pattern, custom))
    others.restart()
    others.put(10)
    others.put(10, "_SUCCESS")
    others.list()
    parked = others.sql("SELECT count(*) FROM parked_partition")
    times.write_text(code.format("pt_hour"))
    forget_modules()

    assert release_parked(others.mill.project.catalog, others.fileset, "test") == 1
    others.list()
    assert (parked, others.watermark) == ([(1,)], "11")


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


@pytest.mark.parametrize("completeness", ["commit", "success-file"])
def test_a_directory_has_all_its_files_whatever_directories_lie_in_it(others, completeness):
    """An append of Spark writes below `_temporary`, whose name sorts between `_SUCCESS` and the files of before."""
    others.create(more=f", 'partition.completeness'='{completeness}'")
    ten = others.put(10, "000000_0").parent
    others.put(10, "part-0.parquet", 3)
    (ten / "_SUCCESS").touch()
    others.list()
    others.put(10, "_temporary/0/_temporary/attempt_0/part-1.parquet")
    others.put(10, ".staging/part-2.parquet")
    while_it_writes = others.list(), others.watermark
    others.restart()
    again = others.list()
    before = others.changes()
    others.put(10, "old/part-0.parquet")
    others.put(11, "000000_0")
    others.put(11, "old/part-0.parquet")
    others.put(11, "part-0.parquet", 3)
    with_old = others.list()
    told = " ".join(others.told)

    assert while_it_writes == ({"10": 5}, "11")
    assert again == {"10": 5}
    assert before == [("create", 5)]
    assert with_old == {"10": 5, "11": 5}
    assert "pt_hour=10/old (" in told
    assert "pt_hour=11/old (" in told


@pytest.mark.parametrize("begins", [True, False], ids=["first-listing", "later-listing"])
@pytest.mark.parametrize("closed", [".", "pt_day=2021-03-19", "pt_day=2021-03-19/pt_hour=10"])
def test_a_directory_that_cannot_be_read_keeps_its_partition(others, closed, begins):
    """A wrong mode would drop hours of data. Of what cannot be seen nothing is known: neither old nor new files."""
    others.create()
    others.put(10)
    vanished = others.put(10, "b.parquet")
    others.put(11)
    others.list()
    vanished.unlink()
    if begins:
        others.restart()
    (others.root / closed).chmod(0)
    with bound_by_modes():
        unread = others.list(), others.list()
    told = [line for line in others.told if "Permission denied" in line]
    changes = others.changes()
    (others.root / closed).chmod(0o755)
    if closed == ".":
        others.restart()  # a process leaves a location that is away to other processes for a while
    again = others.list()
    shutil.rmtree(vanished.parent)

    assert unread == ({"10": 4, "11": 2},) * 2
    assert len(told) == 1
    assert closed == "." or f"refused {closed} (it cannot be read: " in told[0]
    assert changes == [("create", 4), ("create", 2)]
    assert again == {"10": 2, "11": 2}
    assert others.list() == {"11": 2}


@pytest.mark.parametrize("closed", ["", "day=1", "day=1/hour=1"])
def test_nothing_has_vanished_below_a_directory_with_a_fault(closed):
    """A disk may fail at the table's own directory, and answer again a moment later."""
    known = ["day=1/hour=1", "day=1/hour=2", "day=10/hour=1"]
    hour = TreeDirectory("day=1/hour=1", [], frozenset())

    signs = {closed: 7, "day=10/hour=1": 8} if closed else {closed: 7}
    vanished, unseen = find_vanished(known, signs, [replace(hour, name=closed, fault="Input/output error")])

    assert unseen == {"": known, "day=1": known[:2], "day=1/hour=1": []}[closed]
    assert vanished == {"": [], "day=1": [], "day=1/hour=1": ["day=1/hour=2"]}[closed]


def test_a_link_is_refused_with_its_reason_and_keeps_the_partition(others, tmp_path):
    """A listing follows no link, which may lead anywhere. Readers of other programs do, and find more rows."""
    others.create()
    ten, eleven = others.put(10).parent, others.put(11).parent
    others.put(12)
    others.list()
    (ten / "b.parquet").symlink_to(eleven / "a.parquet")
    eleven.rename(tmp_path / "moved")
    eleven.symlink_to(tmp_path / "moved")
    (others.root / "readme").symlink_to(tmp_path / "moved")
    (ten / "_latest").symlink_to(ten / "a.parquet")
    shutil.rmtree(others.put(12).parent)
    others.put(13)
    with_links = others.list()
    told = " ".join(others.told)
    (ten / "b.parquet").unlink()
    others.put(10, "b.parquet", 1)

    assert with_links == {"10": 2, "11": 2, "13": 2}
    assert "pt_hour=10 (b.parquet cannot be read: it is a link)" in told
    assert "pt_hour=11 (it cannot be read: it is a link)" in told
    assert "readme (it cannot be read: it is a link)" in told
    assert "_latest" not in told
    assert others.list() == {"10": 3, "11": 2, "13": 2}


def test_a_marker_above_the_directories_of_keys_means_nothing(others):
    """Spark leaves one in the directory of the table, and Hive in that of a day."""
    others.create(more=", 'partition.completeness'='success-file'")
    others.put(10, "_SUCCESS")
    (others.root / "_SUCCESS").touch()
    (others.root / "pt_day=2021-03-19" / "_SUCCESS").touch()
    (others.root / "pt_day=2021-03-20" / "pt_hour=00" / "old").mkdir(parents=True)
    (others.root / "pt_day=2021-03-20" / "pt_hour=00" / "old" / "_SUCCESS").touch()

    assert others.list() == {"10": 0}
    assert [line for line in others.told if "refused" in line] == []


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
@pytest.mark.parametrize("watermark", [True, False], ids=["with-watermark", "without-watermark"])
def test_partitions_come_in_the_order_of_the_table_from_its_start_on(others, order, start, wanted, watermark):
    """Names without zero padding do not sort by time. What is before the start does not belong to the table."""
    offset = f", 'streaming-source.consume-order'='{order}', 'streaming-source.consume-start-offset'='{start}'"
    others.create(more=f"{offset}, 'partition.time-extractor.timestamp-formatter'='yyyy-MM-dd H:mm:ss'")
    if not watermark:
        others.mill.sql("ALTER TABLE clicks DROP WATERMARK")
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


@pytest.mark.parametrize("order", ["partition-time", "partition-name", "create-time"])
def test_a_later_start_keeps_what_is_there_and_follows_it(others, order):
    """Else a file that another program writes again would be missing for each run that reads its partition."""
    others.create()
    changed, emptied = others.put(8), others.put(9)
    others.put(10)
    before = others.list()
    start = "pt_day=2999-01-01" if order == "partition-name" else "2999-01-01"
    named = f"'streaming-source.partition-order'='{order}', 'streaming-source.consume-start-offset'='{start}'"
    others.mill.sql(f"ALTER TABLE clicks SET ({named})")
    others.restart()
    others.put(8, ids=7)
    emptied.unlink()
    others.put(11)

    assert changed.exists()
    assert (before, others.list()) == ({"08": 2, "09": 2, "10": 2}, {"08": 7, "10": 2})


@pytest.mark.parametrize("change", ["overwrite", "drop"])
def test_rows_that_a_run_adds_before_the_transaction_of_a_listing_are_kept(others, change):
    """The listing has compared the directory with the partition before, and would replace all rows of it."""
    others.create()
    written = others.put(10)
    others.list()
    if change == "overwrite":
        others.put(10, ids=7)
    else:
        shutil.rmtree(written.parent)

    def add() -> None:
        others.at.clear()
        row = {"id": 9, "ts": datetime(2021, 3, 19, 10, tzinfo=UTC), "pt_day": "2021-03-19", "pt_hour": "10"}
        others.commit("clicks", [row])

    others.at["external.created"] = add
    found = others.list()

    assert found == {"10": 3}
    assert "was appended to by run_" in others.told[-1]
    assert others.list() == {"10": 3}
    assert "Tidemill has written to the partition too" in others.told[-1]


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
    texts = {
        "09": b"id,ts\r\n1,2021-03-19T09:00:00Z\r\n\r\n2,2021-03-19T09:00:00Z\r\n",
        "10": b"id,ts\n1,2021-03-19T10:00:00.000000Z",
        "11": b"1,2021-03-19T11:00:00.000000Z\n",
        "12": b"id,ts\r1,2021-03-19T12:00:00Z\r",
    }
    for hour, text in texts.items():
        (place / f"pt_hour={hour}").mkdir(parents=True)
        (place / f"pt_hour={hour}" / "a.csv").write_bytes(text)

    assert others.list() == {"09": 2, "10": 1}
    assert "the first line has to be id,ts, not '1,2021-03-19T11:00:00.000000Z'" in others.told[0]


INSTANT, LOCAL, NANOSECONDS = pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "UTC")


@pytest.mark.parametrize(
    ("file_format", "column", "kind", "why"),
    [
        ("parquet", "timestamp", INSTANT, None),
        ("parquet", "timestamp", NANOSECONDS, "column ts has nanoseconds, which Spark does not read: write micros"),
        ("parquet", "timestamp(3)", pa.timestamp("ns"), "column ts has nanoseconds, which Spark does not read"),
        ("parquet", "array<timestamp(3)>", pa.list_(pa.timestamp("ns")), "column ts.list.element has nanoseconds"),
        ("orc", "timestamp", INSTANT, None),
        ("orc", "timestamp", LOCAL, None),
        ("orc", "timestamp(3)", pa.int64(), None),  # as Spark keeps such times
        ("orc", "timestamp(3)", LOCAL, "column ts is a TIMESTAMP of ORC, which Spark does not read as TIMESTAMP_NTZ"),
        ("orc", "timestamp(3)", INSTANT, "column ts is a TIMESTAMP of ORC, which Spark does not read as"),
    ],
)
def test_a_file_with_times_that_spark_does_not_read_is_refused(others, file_format, column, kind, why):
    """The watermark would move, and each run over the partition would fail."""
    create = CREATE.replace("WATERMARK FOR ts AS SOURCE_WATERMARK", "x int").replace("ts timestamp", f"ts {column}")
    others.mill.sql(create.format(format=file_format, more=""))
    others.restart()
    moment = 1616148000_000000
    values = [[moment]] if pa.types.is_list(kind) else [moment]
    rows = pa.table({"id": pa.array([1], pa.int64()), "ts": pa.array(values, kind), "x": pa.array([1], pa.int32())})
    place = others.root / "pt_day=2021-03-19" / "pt_hour=10" / "a"
    place.parent.mkdir(parents=True)
    (parquet.write_table if file_format == "parquet" else orc.write_table)(rows, place)

    assert others.list() == ({"10": 1} if why is None else {}), others.told
    assert (why or "") in "".join(others.told)


@pytest.mark.parametrize("column", ["timestamp", "timestamp(3)"])
def test_times_of_96_bits_are_those_of_the_declared_column(others, column):
    """Hive, Flink and Impala write such times by default. They do not say whether they have a zone."""
    others.mill.sql(CREATE.replace("ts timestamp", f"ts {column}").format(format="parquet", more=""))
    others.restart()
    place = others.put(10)
    rows = pa.table({"id": pa.array([1], pa.int64()), "ts": pa.array([1616112000_000000_000], pa.timestamp("ns"))})
    parquet.write_table(rows, place, use_deprecated_int96_timestamps=True)

    assert others.list() == {"10": 1}, others.told


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
