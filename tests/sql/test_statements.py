"""Statements that read: a SELECT computes once what a window program would compute, and changes nothing."""

from __future__ import annotations

import subprocess
import sys

import pytest
from pyspark.sql import functions as sf

from tests.errors import raises_code
from tests.sql.test_window_frames import clicks, hours
from tidemill.errors import NotFound
from tidemill.sql.dialect import BadStatement

pytestmark = pytest.mark.spark

HOURLY = """
SELECT window_start, count(*) AS n, sum(amount) AS amount
  FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start
 ORDER BY window_start LIMIT 9"""


def test_a_select_computes_the_closed_windows_and_changes_nothing(windows, spark):
    """Windows that a program has computed are among the rows. The program goes on as before."""
    windows.commit("clicks", clicks(spark, ("10:00:00", 1), ("10:30:00", 2)))
    windows.run()
    windows.commit("clicks", clicks(spark, ("11:00:00", 5)))
    state = "SELECT computed, seen, revision FROM window_program"
    before = windows.sql(state), hours(windows)

    (done,) = windows.mill.sql(HOURLY)
    after = windows.sql(state), hours(windows)
    windows.run()

    assert done.said == "2 closed windows of default.clicks, at its watermark 2021-03-19 12:00:00: 2 rows"
    assert [(row["window_start"], row["n"], row["amount"]) for row in done.rows] == [
        ("2021-03-19T10:00:00.000", 2, 3),
        ("2021-03-19T11:00:00.000", 1, 5),
    ]
    assert after == before
    assert hours(windows) == [("10:00", 2, 3), ("11:00", 1, 5)]


def test_a_select_without_windows_reads_current_rows(windows, spark):
    """A query joins tables, and may name a query in WITH like a table. Files outside the catalog are not read."""
    windows.commit("clicks", clicks(spark, ("10:00:00", 1), ("11:30:00", 2)))
    windows.run()

    joined = "SELECT c.amount, h.n FROM clicks c JOIN default.hourly h ON c.hour = hour(h.window_start)"
    (done,) = windows.mill.sql(f"WITH clicks AS (SELECT * FROM clicks WHERE hour > 10) {joined}")
    with pytest.raises(NotFound):
        windows.mill.sql("SELECT * FROM parquet.etc")
    with pytest.raises(BadStatement, match=r"Spark cannot compute the query: .*nope"):
        windows.mill.sql("SELECT nope FROM clicks")

    (_, zoned) = windows.mill.sql("SET TIME ZONE 'Asia/Tokyo'; SELECT hour(ts) AS local FROM clicks WHERE amount = 2")

    assert (done.said, done.rows) == ("1 row", ({"amount": 2, "n": 1},))
    assert zoned.rows == ({"local": 20},)


def test_no_window_is_closed_before_the_first_partition(windows):
    """An answer without rows says why."""
    (done,) = windows.mill.sql(HOURLY)

    assert done.said == "no window of default.clicks is closed, since its watermark has no value yet: 0 rows"


VISITS = """
CREATE TABLE visits (ts timestamp, amount bigint, WATERMARK FOR ts AS SOURCE_WATERMARK)
  PARTITIONED BY (day date, hour int) WITH (
  'partition.time-extractor.timestamp-pattern'='$day $hour:00:00', 'partition.time-interval'='1h',
  'partition.outside-policy'='include');
CREATE TABLE shifts (window_start TIMESTAMP(3), n bigint) PARTITIONED BY (day date)"""
SHIFTS = """
SELECT window_start, count(*) AS n, to_date(window_start) AS day
  FROM TABLE(TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '4' HOUR)) GROUP BY window_start"""


def test_a_table_without_a_moving_watermark_has_its_windows_on_demand(windows, spark):
    """Hour 11 of [08:00, 12:00) is missing, and nothing says that it will come. A later run replaces that window.

    Then hour 12 brings 07:45, which counts in the window of its own time, and 16:10, whose window a run leaves open
    until a partition lies in it: else one row with a time far ahead would close all windows up to it.
    """
    windows.mill.sql(VISITS)
    windows.commit("visits", clicks(spark, ("07:30:00", 1), ("10:00:00", 1), ("10:30:00", 2)))

    (selected,) = windows.mill.sql(SHIFTS)
    (declared,) = windows.mill.sql(f"INSERT INTO shifts {SHIFTS}")
    (explained,) = windows.mill.sql(f"EXPLAIN INSERT INTO shifts {SHIFTS}")
    seen = []
    strewn = clicks(spark, ("07:45:00", 1), ("16:10:00", 1)).withColumn("hour", sf.lit(12))
    first, last = clicks(spark, ("11:00:00", 5), ("12:00:00", 5)), clicks(spark, ("17:00:00", 1))
    for more in (None, first, None, strewn, last):
        if more is not None:
            windows.commit("visits", more)
        windows.run("sql.shifts")
        seen.append(sorted((f"{row.window_start:%H}", row.n) for row in windows.read("shifts").collect()))

    assert selected.said == "2 windows of all partitions of default.visits: 2 rows"
    assert sorted((row["window_start"][11:13], row["n"]) for row in selected.rows) == [("04", 1), ("08", 2)]
    assert "when `tidemill run start default.sql.shifts` starts it" in declared.said
    assert [row["value"] for row in explained.rows if row["part"] == "watermark"] == [None]
    assert windows.mill.apps.show("sql").schedules == ()
    second = [("04", 1), ("08", 3), ("12", 1)]
    fourth = [("04", 2), ("08", 3), ("12", 1)]
    assert seen == [[("04", 1), ("08", 2)], second, second, fourth, [*fourth, ("16", 2)]]


OTHERWISE = (
    "SET ('partition.time-interval'='2h')",
    "SET ('partition.time-zone'='Asia/Kolkata')",
    "SET ('partition.outside-policy'='drop')",
    "DROP WATERMARK",
)


def test_a_table_on_demand_is_not_read_otherwise_beside_windows_that_are_published(windows, spark):
    """Published windows would stay as they were read before, and later ones would not fit to them."""
    windows.mill.sql(VISITS)
    windows.mill.sql(f"INSERT INTO shifts {SHIFTS}")
    windows.commit("visits", clicks(spark, ("07:30:00", 1)))
    windows.mill.sql(f"ALTER TABLE visits {OTHERWISE[0]}")
    windows.mill.sql("ALTER TABLE visits SET ('partition.time-interval'='1h')")
    windows.mill.sql(f"INSERT INTO shifts {SHIFTS}")
    windows.run("sql.shifts")

    for change in OTHERWISE:
        with raises_code("bad_table", "sql.shifts has published windows by it"):
            windows.mill.sql(f"ALTER TABLE visits {change}")
    windows.mill.watermarks.reset("sql.shifts")
    (done,) = windows.mill.sql(f"ALTER TABLE visits {OTHERWISE[1]}")
    assert "visits" in done.said


TWICE = """
import tidemill as tm

with tm.open(".") as mill:
    for text in ("SELECT 1 AS n FROM clicks; SELECT 2 AS n FROM clicks", "SELECT 3 AS n FROM clicks"):
        print([row["n"] for done in mill.sql(text) for row in done.rows])
"""


@pytest.mark.long
def test_queries_of_a_process_of_its_own_come_one_after_the_other(windows, spark):
    """Each call starts a Spark and ends it. PySpark would connect the next one to the JVM that has ended."""
    windows.commit("clicks", clicks(spark, ("10:00:00", 1)))
    folder = windows.mill.project.config.folder
    done = subprocess.run([sys.executable, "-c", TWICE], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[1, 2]", "[3]"], done.stderr
