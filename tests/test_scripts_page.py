"""docs/scripts.md: its apps deploy as they stand, and its script publishes in the transaction of its run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.stage import staged

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "scripts.md").read_text(encoding="utf-8")
PLAIN, WITH_DATA, SCRIPT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_first_app_of_the_page_deploys(sqlite_catalog_url, tmp_path):
    """A user copies the lines, and has a file `jobs/etl.py`."""
    with staged(tmp_path, sqlite_catalog_url) as stage:
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs" / "etl.py").write_text("print('hello')\n", encoding="utf-8")
        stage.declare(PLAIN)
        (run,) = [stage.mill.runs.show(stage.mill.runs.start("etl", {"day": "2026-01-02"}).run_id)]

    assert run.arguments == {"day": "2026-01-02", "limit": 100}


@pytest.mark.spark
def test_the_script_of_the_page_consumes_and_publishes(sqlite_catalog_url, tmp_path, spark):
    """Rows that the script writes by the run are published with its input, once."""
    with staged(tmp_path, sqlite_catalog_url, spark=spark) as stage:
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs" / "clean.py").write_text(SCRIPT, encoding="utf-8")
        (tmp_path / "landing").mkdir()
        (tmp_path / "landing" / "a.csv").write_text("id,amount,day\n1,2.5,2026-01-02\n2,-1,2026-01-02\n")
        stage.declare(WITH_DATA)
        stage.mill.inboxes.scan("orders")
        outcome = stage.outcome("clean")
        files = stage.mill.inboxes.show("orders").files
        (partition,) = stage.mill.datasets.partitions("clean")

    assert outcome == ("COMPLETED", "")
    assert files == {"SUCCESS": 1}
    assert partition.rows == 1
