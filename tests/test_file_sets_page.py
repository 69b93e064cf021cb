"""The page on file sets, run from its top to its end."""

from __future__ import annotations

import datetime as dt
import json
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import tidemill as tm
from tests.errors import raises_code
from tests.stage import staged
from tidemill.cli.main import main

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "file-sets.md").read_text(encoding="utf-8")


@pytest.mark.spark
def test_the_page_does_what_it_says(sqlite_catalog_url, tmp_path, spark, capsys):
    """A reader types it as it stands."""
    import duckdb

    blocks = re.findall(r"```(python|console)\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "app.py").write_text(blocks[0][1], encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    old = tmp_path / ".tidemill/data/default/clicks/day=2025-12-31/hour=23/old.parquet"
    old.parent.mkdir(parents=True)
    parquet.write_table(pa.table({"id": pa.array([7], pa.int32()), "name": ["old"]}), old)
    printed = []
    with tm.open(tmp_path) as mill:
        mill.deploy()
        known = {"mill": mill, "spark": spark, "datetime": dt, "duckdb": duckdb}
        for language, text in blocks:
            if language == "python":
                exec(compile(text, "docs/file-sets.md", "exec"), known)  # our own page
                continue
            for line in text.strip().splitlines():
                with pytest.raises(SystemExit) as ended:
                    main(["--project", str(tmp_path), *shlex.split(line.removeprefix("$ tidemill "))])
                assert not ended.value.code, line
                printed.append(capsys.readouterr().out)

    described = {one["partition"]: one["metadata"] for one in json.loads(printed[1])}
    assert described["day=2026-01-02 hour=0"] == {"source": "erp"}
    assert known["names"] == [("a",)]
    assert [file["rows"] for file in json.loads(printed[2])] == [1]
    assert printed[3].splitlines()[0].split() == ["id", "name", "day", "hour"]
    assert [one.partition for one in known["dropped"]] == ["day=2026-01-01 hour=5"]
    assert "day=2026-01-02 hour=0" in printed[4]
    assert "day=2026-01-01 hour=5" in printed[6]
    assert known["adopted"].partitions == 1
    assert "1 were registered before" in printed[7]
    assert "was there before" in printed[8]
    assert [(one.partition, one.files_before, one.files) for one in known["compacted"]] == [
        ("day=2026-01-03 hour=1", 2, 1)
    ]
    assert "no partition with many small files" in printed[9]
    assert json.loads(printed[10]) == []


@pytest.mark.spark
def test_rows_are_deleted_and_rows_without_a_key_are_refused(sqlite_catalog_url, tmp_path, spark):
    """A deletion that leaves the last row of a partition is a promise broken to a person."""
    (declare, *_) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (forget,) = re.findall(r"```python\n([^`]*def forget[^`]*)```", PAGE)
    hour = "date'2026-01-01', 5"
    rows = f"VALUES (7, {hour}), (8, {hour}), (null, {hour}), (7, date'2026-01-02', 0)"
    with staged(tmp_path, sqlite_catalog_url, spark=spark) as site:
        for app in (declare, forget):
            site.mill.project.config.app.write_text(app, encoding="utf-8")
            site.mill.deploy()
        with site.mill.transaction(["clicks"]) as tx:
            tx.fileset("clicks").append(spark.sql(f"SELECT * FROM {rows} AS t(id, day, hour)"))

        ended = site.outcome("privacy.forget", id=7)
        with raises_code("bad_key", match="null or empty"), site.mill.transaction(["clicks"]) as tx:
            tx.fileset("clicks").append(spark.sql("SELECT 9 AS id, CAST(null AS date) AS day, 1 AS hour"))

        assert ended == ("COMPLETED", "")
        left = [file.path for file in site.mill.datasets.files("clicks")]
        assert {row.id for row in spark.read.parquet(*left).collect()} == {8, None}
        assert [one.partition for one in site.mill.datasets.partitions("clicks")] == ["day=2026-01-01 hour=5"]
