"""Sessions by Spark: results are worked out by hand, over several runs, with a forced end and late rows."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.sql.conftest import open_windows
from tests.sql.hours import HOUR
from tests.sql.sessions import find_sessions
from tidemill.lake.window.window_plan import Sessions
from tidemill.shapes.partition_time import Zone
from tidemill.sql.session_frames import assign_sessions, find_open

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h", session_max="4h"))
for name in ("visits", "best"):
    app.fileset(name, keys={"day": "date"})
app.window_sql("visit", '''
    INSERT INTO visits
    SELECT window_start, window_end, who, count(*) AS n, window_forced, max(window_time) AS at,
           to_date(window_start) AS day
      FROM TABLE(SESSION(TABLE clicks PARTITION BY who, DESCRIPTOR(ts), INTERVAL '30' MINUTE))
     GROUP BY window_start, window_end, who, window_forced''')
app.window_sql("rank", '''
    INSERT INTO best
    SELECT window_start, window_end, name, time, amount, to_date(window_start) AS day
      FROM SESSION(DATA => (SELECT ts AS time, who AS name, amount FROM clicks WHERE amount > 0) PARTITION BY name,
                   GAP => INTERVAL '30' MINUTES, TIMECOL => DESCRIPTOR(time))
   QUALIFY row_number() OVER (PARTITION BY window_start, window_end, name ORDER BY amount DESC) = 1''')
"""


@pytest.fixture
def opened(sqlite_catalog_url, tmp_path, spark):
    """An empty table of clicks."""
    windows = open_windows(tmp_path / "project", sqlite_catalog_url, APP, spark=spark)
    yield windows
    windows.mill.close()


def add(opened, **times: str) -> None:
    """Commit clicks of people at these times of one day, each with the minute of its time as its amount."""
    rows = [
        f"SELECT TIMESTAMP'2021-03-19 {time}:00Z' AS ts, '{who}' AS who, {int(time[3:])} AS amount, "
        f"DATE'2021-03-19' AS day, {int(time[:2])} AS hour"
        for who, given in times.items()
        for time in given.split()
    ]
    opened.commit("clicks", opened.spark.sql(" UNION ALL ".join(rows)))


def visits(opened) -> list[str]:
    """Run the program; the sessions that are published then."""
    run = opened.run("shop.visit")
    assert run.state == "COMPLETED", (run.exit_reason, opened.spawner.complaints)
    hour = "date_format({}, 'HH:mm')".format
    forced = "if(window_forced, ' forced', '')"
    text = f"concat_ws(' ', who, {hour('window_start')}, {hour('window_end')}, n) || {forced}"
    return sorted(row[0] for row in opened.read("visits").selectExpr(text).collect())


def test_sessions_of_each_key_come_out_when_they_are_over(opened):
    """08:10 is 30 minutes after 07:40. Cal is cut after 4 hours. Late rows then join two sessions of ann."""
    add(opened, ann="07:40 08:10 08:35", bob="08:00", cal="04:10 04:40 05:10 05:40 06:10 06:40 07:10 07:40 08:10 08:40")
    first = visits(opened)
    add(opened, ann="10:00", bob="10:30", cal="09:10 09:40")
    second = visits(opened)
    add(opened, ann="09:05 09:35", bob="08:25")
    third = visits(opened)

    assert first == ["bob 08:00 08:30 1", "cal 04:10 08:10 8 forced"]
    at_eleven = ["cal 04:10 08:10 8 forced", "cal 08:10 10:10 4"]
    assert second == ["ann 07:40 09:05 3", "ann 10:00 10:30 1", "bob 08:00 08:30 1", *at_eleven]
    assert third == ["ann 07:40 10:30 6", "bob 08:00 08:55 2", *at_eleven]
    last = opened.read("visits").selectExpr("unix_millis(at) % 60000").distinct()
    assert [row[0] for row in last.collect()] == [59_999]


def test_the_best_row_of_each_session_is_found_over_a_query(opened):
    """Named arguments in any order. Rows of no amount, which the query leaves out, are in no session."""
    add(opened, ann="08:05 08:20 08:50 10:00", bob="08:55 09:01 10:00")

    run = opened.run("shop.rank")

    assert run.state == "COMPLETED", (run.exit_reason, opened.spawner.complaints)
    best = opened.read("best").selectExpr("name", "amount", "date_format(window_end, 'HH:mm')")
    assert sorted(tuple(row) for row in best.collect()) == [("ann", 50, "09:20"), ("bob", 55, "09:31")]


@pytest.mark.parametrize("kind", ["TIMESTAMP", pytest.param("TIMESTAMP_NTZ", marks=pytest.mark.long)])
def test_sessions_of_random_rows_are_those_of_one_walk_with_a_carry_and_without(spark, kind):
    """Chains of many hours, with rows of one time and of two keys.

    No row lies between 28:00, where a long chain is cut, and 28:10, where a carry ends. At 30:00 the chain is open.
    """
    drawn, sessions = Random(7), Sessions(HOUR // 2, 4 * HOUR)
    times = {drawn.randrange(60 * 72) for _ in range(2000)} - {*range(1000, 1060), *range(28 * 60 - 5, 28 * 60 + 10)}
    clicks = [(minute * 60_000_000, drawn.randrange(20), minute * 60_000_000) for minute in sorted(times)]
    clicks += [(at, amount + 2, at) for at, amount, _ in clicks[::9]]
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    rows = session.createDataFrame([row[:2] for row in clicks], "at long, amount long").selectExpr(
        f"CAST(timestamp_micros(at) AS {kind}) AS ts", "amount", "amount % 2 AS parity"
    )
    whole = show(assign_sessions(rows, "ts", ["parity"], sessions))

    walked = find_sessions(clicks, sessions.gap, sessions.longest, Zone("UTC"))
    assert whole == sorted(one.line for one in walked)
    assert any(line.split()[5] == "1" for line in whole)
    for middle in (28 * HOUR + HOUR // 6, 30 * HOUR):
        before, after = rows.filter(f"{_micros('ts')} < {middle}"), rows.filter(f"{_micros('ts')} >= {middle}")
        carry = find_open(before, "ts", ["parity"], sessions, middle, middle)
        later = show(assign_sessions(after.unionByName(carry, allowMissingColumns=True), "ts", ["parity"], sessions))
        assert [line for line in later if int(line.split()[1]) >= middle] == sorted(
            one.line for one in walked if one.end >= middle
        )


def show(found: DataFrame) -> list[str]:
    """Sessions as lines."""
    bounds = [f"{_micros(bound)} AS {bound}" for bound in ("window_start", "window_end", "window_time")]
    summed = found.selectExpr(*bounds, "amount", "parity", "int(window_forced) AS forced").groupBy(
        "window_start", "window_end", "window_time", "parity", "forced"
    )
    lines = summed.agg({"*": "count", "amount": "sum"}).selectExpr(
        "concat_ws(' ', window_start, window_end, `count(1)`, `sum(amount)`, parity, forced, window_time)"
    )
    return sorted(row[0] for row in lines.collect())


def _micros(column: str) -> str:
    return f"unix_micros(CAST({column} AS TIMESTAMP))"
