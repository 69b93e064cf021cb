"""Compaction by Spark: `dataset compact`, a file set that compacts itself, and the hint in `dataset list`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.errors import raises_code
from tests.stage import Stage, staged
from tidemill.catalog.db import Db
from tidemill.cli.main import main
from tidemill.frames.spark import read_partitions as read_frame
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Partition, find_schema, read_partitions
from tidemill.lake.fileset.time_travel import now
from tidemill.run.records.declared import find_dataset
from tidemill.schedule.schedules import list_schedules
from tidemill.upkeep.audit import audit

pytestmark = pytest.mark.spark

ROWS = "SELECT * FROM VALUES (1, 'a', 5), (2, 'tab\\there', 5), (3, 'ü', 6) AS rows(id, name, hour)"
TEXT = "SELECT * FROM VALUES ('a', 5), ('b', 5), ('ü', 6) AS rows(value, hour)"


@pytest.fixture
def site(tmp_path: Path, sqlite_catalog_url: str, spark) -> Iterator[Stage]:
    """A project with a driver on the tests' Spark."""
    with staged(tmp_path, sqlite_catalog_url, spark=spark) as site:
        yield site


def append(site: Stage, text: str = ROWS, times: int = 1) -> None:
    """Append the rows of a query, in transactions of their own."""
    for _ in range(times):
        with site.mill.transaction(["clicks"]) as tx:
            tx.fileset("clicks").append(site.spark.sql(text))


def read(site: Stage) -> list[tuple[object, ...]]:
    """All rows, as a reader of the whole file set gets them."""

    def block(db: Db) -> tuple[Fileset, list[Partition], ColumnSchema | None]:
        fileset = Fileset.of(find_dataset(db, "default.clicks"))
        seen = read_partitions(db, fileset.dataset_id, now(db, site.mill.project.catalog.incarnation), compacted=True)
        return fileset, seen, find_schema(db, fileset.dataset_id)

    frame = read_frame(site.mill.project.world, site.spark, *site.mill.project.catalog.read(block))
    return sorted((tuple(row) for row in frame.collect()), key=repr)


@pytest.mark.parametrize("file_format", ["parquet", "orc", "csv", "json", "text"])
def test_the_rows_stay_the_same_in_every_format(site, file_format):
    """Each partition has one file in place of three."""
    site.declare(f"app.fileset('clicks', keys={{'hour': 'int'}}, format='{file_format}')")
    append(site, TEXT if file_format == "text" else ROWS, times=3)
    before = read(site)

    done = site.mill.datasets.compact("clicks")

    assert [(one.partition, one.files_before, one.files, one.rows) for one in done] == [
        ("hour=5", 3, 1, 6),
        ("hour=6", 3, 1, 3),
    ]
    assert read(site) == before
    assert len(before) == 9
    (entry,) = site.mill.audit.log(subject="default.clicks")
    assert entry.action == "dataset.compact"
    assert (entry.detail["before"], entry.detail["after"]) == ({"files": 6}, {"files": 2})
    assert len(site.mill.datasets.files("clicks")) == 2
    assert site.mill.datasets.compact("clicks") == []


def test_where_chooses_partitions(site, capsys):
    """The command line says what was done, also as JSON."""
    site.declare("app.fileset('clicks', keys={'hour': 'int'})")
    append(site, times=2)
    project = ["--project", str(site.mill.project.config.folder)]

    with pytest.raises(SystemExit) as ended:
        main([*project, "dataset", "compact", "clicks", "--where", "hour=6", "--json"])

    assert not ended.value.code
    (one,) = json.loads(capsys.readouterr().out)
    assert {name: one[name] for name in ("partition", "files_before", "files", "rows")} == {
        "partition": "hour=6",
        "files_before": 2,
        "files": 1,
        "rows": 2,
    }
    assert {view.op for view in site.mill.datasets.partitions("clicks") if view.partition == "hour=5"} == {"append"}


def test_columns_that_evolved_are_read_with_null(site):
    """Older files lack a column; the compacted file has it."""
    site.declare("app.fileset('clicks', keys={'hour': 'int'}, schema='evolve')")
    append(site, "SELECT 1 AS id, 5 AS hour")
    append(site, "SELECT 2L AS id, 'x' AS name, 5 AS hour")
    before = read(site)
    site.mill.datasets.compact("clicks")

    assert read(site) == before == [(1, None, 5), (2, "x", 5)]


def test_a_file_set_compacts_itself_by_a_run_of_its_own(site):
    """A program and a schedule, with record and facts like others."""
    site.declare("app.fileset('clicks', keys={'hour': 'int'}, compact_every='1d')")
    append(site, times=4)

    assert site.outcome("shop.compact_clicks") == ("COMPLETED", "")
    (run,) = site.mill.runs.list(program="shop.compact_clicks")
    (facts,) = run.facts["compactions"]
    assert {name: facts[name] for name in ("dataset", "partitions", "files_before", "files", "rows")} == {
        "dataset": "default.clicks",
        "partitions": ["hour=5", "hour=6"],
        "files_before": 8,
        "files": 2,
        "rows": 12,
    }
    assert audit(site.mill.project.catalog).clean
    assert site.mill.catalog.fsck().clean
    (schedule,) = site.mill.project.catalog.read(list_schedules)
    assert (schedule.name, schedule.spec.trigger.duration) == ("compact_clicks", timedelta(days=1))
    assert site.outcome("shop.compact_clicks") == ("COMPLETED", "")
    assert len(site.mill.datasets.files("clicks")) == 2


def test_the_list_of_data_sets_hints_at_small_files(site, capsys):
    """The number and size of files tell it, without a look at the store; after the compaction it is silent."""
    site.declare("app.fileset('clicks', keys={'hour': 'int'})")
    append(site, times=4)
    (view,) = site.mill.datasets.list()
    assert "default.clicks has 8 files of" in view.hint
    assert "`tidemill dataset compact default.clicks`" in view.hint
    with pytest.raises(SystemExit):
        main(["--project", str(site.mill.project.config.folder), "dataset", "list"])
    assert view.hint in capsys.readouterr().out

    site.mill.datasets.compact("clicks")

    (view,) = site.mill.datasets.list()
    assert (view.hint, view.files, view.rows, view.partitions) == (None, 2, 12, 2)


def test_rows_that_get_lost_fail_the_compaction(site, spark):
    """However rows are lost, the number of rows of each partition is compared before the commit."""
    site.declare("app.fileset('clicks', keys={'hour': 'int'})")
    append(site, times=2)

    def lose() -> None:
        with site.mill.transaction(["clicks"]) as tx:
            found = tx._outputs.find_fragmented("default.clicks", None)
            rows = "SELECT * FROM VALUES (1, 'a', 5), (2, 'b', 5), (3, 'c', 5), (4, 'd', 6) AS rows(id, name, hour)"
            tx._outputs.compact("default.clicks", found, spark.sql(rows))

    with raises_code("rows_changed", match="read 4 rows and wrote 3"):
        lose()

    assert len(site.mill.datasets.files("clicks")) == 4


def test_a_transaction_compacts_a_partition_once(site, spark):
    """A second call takes what the first has left, and nothing of a call that failed is published or kept."""
    site.declare("app.fileset('clicks', keys={'hour': 'int'})")
    append(site, times=2)
    before = read(site)

    with site.mill.transaction(["clicks"]) as tx:
        found = tx._outputs.find_fragmented("default.clicks", None)
        rows = (
            "SELECT * FROM VALUES (1, 'a', 5), (2, 'b', 5), (3, 'c', 5), (4, 'd', 5), (5, 'e', 6) AS r(id, name, hour)"
        )
        with raises_code("rows_changed", match="read 2 rows and wrote 1"):
            tx._outputs.compact("default.clicks", found, spark.sql(rows))
        done = [tx.compact(spark, "clicks", where=where) for where in ({"hour": 5}, None, None)]

    assert [[one.partition for one in each] for each in done] == [["hour=5"], ["hour=6"], []]
    assert read(site) == before
    assert len(site.mill.datasets.files("clicks")) == 2
    folder = Path(site.mill.datasets.files("clicks")[0].path).parents[2]
    assert sorted(path.parent.parent.name for path in folder.rglob("part-*")) == ["2", "3"]


def test_an_overwrite_meanwhile_wins(site, spark):
    """The compaction names the winner, and publishes nothing."""
    site.declare("app.fileset('clicks', keys={'hour': 'int'})")
    append(site, times=2)

    def lose() -> None:
        with site.mill.transaction(["clicks"]) as tx:
            tx.compact(spark, "clicks")
            with site.mill.transaction(["clicks"]) as other:
                other.fileset("clicks").overwrite(spark.sql("SELECT 9 AS id, 'z' AS name, 5 AS hour"))

    with raises_code("compaction_conflict", match=r"hour=5 of default\.clicks"):
        lose()

    assert read(site) == [(3, "ü", 6), (3, "ü", 6), (9, "z", 5)]


def test_a_transaction_that_compacts_writes_nothing_else_there(site, spark):
    """The order of both would decide the content."""
    site.declare("app.fileset('clicks', keys={'hour': 'int'})")
    append(site, times=2)

    def do_both() -> None:
        with site.mill.transaction(["clicks"]) as tx:
            tx.compact(spark, "clicks")
            tx.fileset("clicks").append(spark.sql(ROWS))

    with raises_code("writes_and_compacts"):
        do_both()

    assert len(site.mill.datasets.files("clicks")) == 4
