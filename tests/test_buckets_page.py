"""Inbox, archive and file sets in buckets: the same program and rows, with Hadoop's S3A and without it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import tidemill as tm
from tests.command import TIDEMILL
from tests.s3_server import KEYS, S3Server
from tests.s3a_jars import OF_3_3_1, s3a_jars
from tests.yardstick import patience
from tidemill import Mill

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "buckets.md").read_text(encoding="utf-8")
(APP,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
STORES, WITH_S3A = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
CHECK = """
    assert {row.total for row in run.read(days).collect()} == {5, 7}
"""


@pytest.fixture(params=["copies", "s3a"])
def spark_conf(request) -> str:
    """Settings of Spark without S3A, and with it: jars from a folder, since Maven is away."""
    settings = {} if request.param == "copies" else {**OF_3_3_1, "spark.jars": ",".join(map(str, s3a_jars()))}
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())
    assert WITH_S3A.startswith("[spark.conf]\n")
    return f'[spark.conf]\n"spark.driver.memory" = "1g"\n{lines}'


def rows_of(mill: Mill, name: str, *columns: str) -> list[tuple[object, ...]]:
    """Return these columns of all rows of a file set."""
    return sorted(tuple(row[column] for column in columns) for row in mill.datasets.head(name))


def secrets_below(folder: Path) -> list[Path]:
    """Return the files in which the secret of the bucket stands: catalog, logs, settings of Spark."""
    secret = KEYS["AWS_SECRET_ACCESS_KEY"].encode()
    return [path for path in folder.rglob("*") if path.is_file() and secret in path.read_bytes()]


def run_tidemill(folder: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with these variables and no others for S3."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | variables
    return subprocess.run(
        [TIDEMILL, *command],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=patience(300),
        check=False,
    )


@pytest.mark.share("s3a")
def test_a_file_in_a_bucket_is_published_in_a_bucket_and_archived(s3_server: S3Server, tmp_path: Path, spark_conf):
    """The file has a bad row. Programs and commands are those for folders."""
    name = s3_server.make_bucket()
    bucket = f"s3://{name}"
    (tmp_path / "keys").write_text("".join(f"{name}={value}\n" for name, value in KEYS.items()))
    stores = STORES.replace("s3://lake", bucket).replace("/etc/tidemill/lake-keys", str(tmp_path / "keys"))
    spark = '[spark]\nmaster = "local[2]"\nwarm = 1\n'
    (tmp_path / "tidemill.toml").write_text(f'{stores}endpoint = "{s3_server.url}"\n{spark}{spark_conf}')
    app, second = APP.replace("s3://lake", bucket).split("\n\n\napp.schedule", 1)
    (tmp_path / "app.py").write_text(f"{app}{CHECK}\n\napp.schedule{second}")
    s3_server.put(
        f"{bucket}/landing/a b/10:30.csv",
        b"day,amount,note\n2026-01-01,5,a\n2026-01-02,7,b\n2026-01-02,x,c\n2026-01-02,1,d\n",
    )

    done = run_tidemill(tmp_path, "up", "--until-idle")

    assert done.returncode == 0, done.stdout + done.stderr
    with tm.open(tmp_path) as mill:
        first, second = (run for run in reversed(mill.runs.list().items))
        log = "".join(line.text for line in mill.runs.logs(second.run_id))
        assert (first.state, second.state) == ("COMPLETED", "COMPLETED"), done.stdout
        assert rows_of(mill, "sales", "day", "amount", "note") == [
            ("2026-01-01", 5, "a"),
            ("2026-01-02", 1, "d"),
            ("2026-01-02", 7, "b"),
        ]
        assert rows_of(mill, "days", "day", "total") == [("2026-01-01", 5), ("2026-01-02", 7)]
        assert rows_of(mill, "raw_rejects", "file", "line") == [("a b/10:30.csv", 4)]
        assert mill.catalog.fsck().differences == ()
    assert "PushedFilters: [IsNotNull(amount), GreaterThan(amount,1)]" in log
    assert "ReadSchema: struct<amount:int>" in log
    assert [one.split("/")[0] for one in s3_server.list(name) if not one.startswith("data")] == ["archive"]
    assert secrets_below(tmp_path) == [tmp_path / "keys"]
