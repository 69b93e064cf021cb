"""docs/scripts.md: its apps deploy as they stand, and its script publishes in the transaction of its run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.stage import staged

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "scripts.md").read_text(encoding="utf-8")
PLAIN, WITH_DATA, SCRIPT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.spark
def test_the_script_of_the_first_app_of_the_page_gets_its_words(sqlite_catalog_url, tmp_path, spark):
    """A user copies the lines, and has a file `jobs/etl.py`."""
    etl = "import sys\nfrom pathlib import Path\nPath(__file__).with_name('told').write_text(' '.join(sys.argv[1:]))\n"
    with staged(tmp_path, sqlite_catalog_url, spark=spark) as stage:
        (tmp_path / "jobs").mkdir()
        (tmp_path / "jobs" / "etl.py").write_text(etl, encoding="utf-8")
        stage.declare(PLAIN)
        outcome = stage.outcome("etl", day="2026-01-02")
        (told,) = tmp_path.rglob("told")

    assert outcome == ("COMPLETED", "")
    assert told.read_text() == "--day 2026-01-02 --limit=100"


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
