"""A bucket that does not answer while a program works: that uses up no retry, and no file is blamed."""

from __future__ import annotations

import pytest

from tests.stage import staged

APP = """
import tidemill as tm
from tidemill.storage.files import FileUnreadable, StorageUnavailable

app = tm.App("shop")


@app.python(retries=0)
def load(run):
    error = {error}
    raise error("{location}", "a.csv", "503 slow down")
"""


@pytest.mark.parametrize(
    ("error", "location", "expected"),
    [
        ("StorageUnavailable", "s3://lake/landing", ("PENDING", 0, 0)),
        ("StorageUnavailable", "file:///landing", ("FAILED", 1, 0)),
        ("FileUnreadable", "s3://lake/landing", ("FAILED", 1, 0)),
    ],
)
def test_a_bucket_that_is_away_uses_up_no_retry(sqlite_catalog_url, tmp_path, error, location, expected):
    """Retries are for programs. A full disk or an unreadable file may be a program's doing; a busy bucket is none.

    It was a loss, and the fifth loss is a failure: a bucket that was away for two minutes used up the retries.
    """
    with staged(tmp_path, sqlite_catalog_url, APP.format(error=error, location=location)) as stage:
        stage.mill.runs.start("shop.load")
        (run,) = stage.work()

    assert (run.state, run.failures, run.losses) == expected
