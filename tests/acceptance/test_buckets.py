"""Inbox, archive and file sets in buckets: the same program and rows, with Hadoop's S3A and without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import BufferReader, parquet

from tests.s3_server import KEYS, S3Server
from tests.s3a_jars import OF_3_3_1, s3a_jars
from tests.yardstick import patience
from tidemill import Mill
from tidemill.storage.locations import open_files

pytestmark = pytest.mark.spark

APP = """
from pyspark.sql import functions as F

import tidemill as tm

app = tm.App("shop")
raw = app.inbox(
    "raw", "BUCKET/landing", schema="day date, amount int, note string", bad_rows="reject", max_rejects="90%",
    after="archive", archive="BUCKET/archive", settle="0s",
)
sales = app.fileset("sales", keys={"day": "date"})
days = app.fileset("days", keys={"day": "date"})


@app.spark(reads=[raw], writes=[sales])
def load(run, spark):
    run.output(sales).append(run.input(raw).read())


@app.spark(reads=[sales], writes=[days])
def report(run, spark):
    new = run.input(sales).read().where("amount > 1").select("day", "amount")
    new.explain("formatted")
    run.output(days).append(new.groupBy("day").agg(F.sum("amount").alias("total")))
    assert {row.total for row in run.read(days).collect()} == {5, 7}


app.schedule("load", load, trigger=tm.NewFiles(raw))
app.schedule("report", report, trigger=tm.NewPartitions(sales))
"""
SETTINGS = """
data = "{bucket}/data sets"
[runner]
slots = 1
[stores.tests]
url = "{bucket}"
endpoint = "{endpoint}"
region = "us-east-1"
credentials = "file:{keys}"
[spark]
master = "local[2]"
warm = 1
[spark.conf]
"spark.driver.memory" = "1g"
"""


@pytest.fixture(params=["copies", "s3a"])
def spark_conf(request) -> str:
    """Settings of Spark without S3A, and with it."""
    if request.param == "copies":
        return ""
    settings = {**OF_3_3_1, "spark.jars": ",".join(map(str, s3a_jars()))}
    return "".join(f'"{name}" = "{value}"\n' for name, value in settings.items())


def rows_of(mill: Mill, bucket: str, server: S3Server, name: str) -> list[dict[str, object]]:
    """Return the rows of a file set, read from the bucket by what the catalog says."""
    files = open_files(f"{bucket}/data sets/{name}", server.world)
    found = []
    for partition in mill.datasets.partitions(f"shop.{name}").items:
        shown = mill.datasets.partition(f"shop.{name}", partition.key)
        for file in shown.files:
            content = files.read(file.path.split(f"/{name}/", 1)[1])
            found += [{**partition.key, **row} for row in parquet.read_table(BufferReader(content)).to_pylist()]
    return found


def test_a_file_in_a_bucket_is_published_in_a_bucket_and_archived(s3_server: S3Server, tmp_path: Path, spark_conf):
    """One file, one bad row: all of it by `tidemill up`, with no line of code that knows of buckets."""
    bucket = f"s3://{s3_server.make_bucket()}"
    (tmp_path / "keys").write_text("".join(f"{name}={value}\n" for name, value in KEYS.items()))
    settings = SETTINGS.format(bucket=bucket, endpoint=s3_server.url, keys=tmp_path / "keys")
    (tmp_path / "tidemill.toml").write_text(settings + spark_conf)
    (tmp_path / "app.py").write_text(APP.replace("BUCKET", bucket))
    landing = open_files(f"{bucket}/landing", s3_server.world)
    landing.put("a b/10:30.csv", b"day,amount,note\n2026-01-01,5,a\n2026-01-02,7,b\n2026-01-02,x,c\n2026-01-02,1,d\n")

    command = [Path(sys.executable).with_name("tidemill"), "up", "--until-idle"]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=patience(180), check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
