"""Windows by Spark: results are those of one plain computation over all rows."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest
from pyspark.sql import functions as sf

from tests.sql.conftest import APP, open_windows
from tidemill.shapes.keys import KeySchema
from tidemill.sql.window_frames import SparkWindows
from tidemill.sql.window_text import is_inside, spans_table

pytestmark = pytest.mark.spark

DAY = "2021-03-19"


def clicks(spark, *rows: tuple[str, int], day: str = DAY):
    """Rows (time, amount) with the keys of their partition, in UTC."""
    values = ", ".join(f"(TIMESTAMP'{day} {time}Z', {amount}L)" for time, amount in rows)
    frame = spark.sql(f"SELECT ts, amount FROM VALUES {values} AS rows(ts, amount)")
    return frame.selectExpr(
        "ts",
        "amount",
        f"DATE'{day}' AS day",
        "cast(date_format(to_utc_timestamp(ts, current_timezone()), 'H') AS int) AS hour",
    )


def hours(windows):
    """Return the published windows: start, count, sum."""
    rows = windows.read("hourly").selectExpr("date_format(window_start, 'HH:mm') AS s", "n", "amount", "at").collect()
    return sorted((row.s, row.n, row.amount) for row in rows)


def test_the_window_comes_out_when_its_hour_is_committed(windows, spark):
    """The seed's example: before any row of hour 11 exists."""
    windows.commit("clicks", clicks(spark, ("10:00:00", 1), ("10:59:59.999999", 2)))

    run = windows.run()

    assert run.state == "COMPLETED", windows.spawner.complaints
    assert hours(windows) == [("10:00", 2, 3)]
    (message,) = windows.sql("SELECT payload FROM message WHERE event_type = 'windows'")
    assert '"closed":1' in message[0]


def test_a_late_partition_replaces_its_window_and_no_other(windows, spark):
    """The day's partition is overwritten. The rows of other windows stay as they were, whatever query made them."""
    windows.commit("clicks", clicks(spark, ("08:10:00", 1), ("09:10:00", 2)).filter("hour < 9"))
    windows.commit("clicks", clicks(spark, ("08:10:00", 1), ("09:10:00", 2)).filter("hour = 9"))
    windows.run()
    before = hours(windows)

    windows.commit("clicks", clicks(spark, ("08:20:00", 10)))
    run = windows.run()

    assert run.state == "COMPLETED", windows.spawner.complaints
    assert before == [("08:00", 1, 1), ("09:00", 1, 2)]
    assert hours(windows) == [("08:00", 2, 11), ("09:00", 1, 2)]


def test_a_row_outside_its_partition_fails_the_window_by_name(sqlite_catalog_url, tmp_path, spark):
    """The row would be in no window, or in a computed one."""
    app = APP.replace('interval="1h"', 'interval="1h", outside="error"')
    windows = open_windows(tmp_path / "project", sqlite_catalog_url, app, spark=spark)
    outside = clicks(spark, ("10:59:00", 1)).selectExpr("ts", "amount", "day", "9 AS hour")
    windows.commit("clicks", outside)

    run = windows.run()

    assert run.state == "FAILED"
    assert "window [2021-03-19 09:00:00, 2021-03-19 10:00:00) cannot be computed" in run.exit_reason
    assert "outside the time of its partition" in run.exit_reason
    windows.mill.close()


def test_where_no_row_is_outside_its_partition_no_query_counts_them(sqlite_catalog_url, tmp_path, spark, monkeypatch):
    """The footers show it, or the write of the windows has met none: a query would read all partitions again."""
    app = APP.replace('interval="1h"', 'interval="1h", outside="drop"')
    opened = open_windows(tmp_path / "project", sqlite_catalog_url, app, spark=spark)
    reads = []
    read = SparkWindows._read
    monkeypatch.setattr(SparkWindows, "_read", lambda *given: reads.append(given) or read(*given))
    checks = []
    check = SparkWindows._leave_out
    monkeypatch.setattr(SparkWindows, "_leave_out", lambda *given: checks.append(given) or check(*given))
    opened.commit("clicks", clicks(spark, ("08:10:00", 1), ("09:10:00", 8)))

    first = opened.run()
    checked_first = len(checks)
    opened.commit("clicks", clicks(spark, ("10:10:00", 1), ("11:59:00", 2)).withColumn("hour", sf.lit(10)))
    second = opened.run()

    assert (first.state, second.state) == ("COMPLETED", "COMPLETED"), opened.spawner.complaints
    assert len(reads) == 1 + 2
    assert (checked_first, len(checks)) == (0, 1)
    shown = opened.mill.watermarks.show("clicks").programs[0].left_out
    assert [(one.partition, one.outside_rows) for one in shown.some] == [("day=2021-03-19 hour=10", 1)]
    opened.mill.close()


def test_rows_outside_their_partition_that_are_left_out_are_counted(sqlite_catalog_url, tmp_path, spark):
    """Also those without a time, and those whose time no window of the run holds."""
    app = APP.replace('interval="1h"', 'interval="1h", outside="drop"')
    opened = open_windows(tmp_path / "project", sqlite_catalog_url, app, spark=spark)
    rows = clicks(spark, ("08:10:00", 1), ("10:59:00", 2), ("07:59:59", 4)).withColumn("hour", sf.lit(8))
    untimed = rows.limit(1).withColumn("ts", sf.lit(None).cast("timestamp"))
    opened.commit("clicks", rows.unionByName(untimed).unionByName(clicks(spark, ("09:10:00", 8))))

    run = opened.run()

    assert run.state == "COMPLETED", opened.spawner.complaints
    assert hours(opened) == [("08:00", 1, 1), ("09:00", 1, 8)]
    shown = opened.mill.watermarks.show("clicks").programs[0].left_out
    assert [(one.partition, one.outside_rows) for one in shown.some] == [("day=2021-03-19 hour=8", 3)]
    opened.mill.close()


def test_a_partition_with_a_lost_file_holds_up_only_its_window(windows, spark):
    """The file may be lost for ever: the window is postponed, and retried until a person restores the file."""
    for time in ("08:10:00", "09:10:00", "10:10:00"):
        windows.commit("clicks", clicks(spark, (time, 1)))
    (lost,) = windows.mill.project.config.folder.glob("**/hour=8/*.parquet")
    lost.unlink()

    run = windows.run()

    assert run.state == "COMPLETED", windows.spawner.complaints
    assert hours(windows) == [("09:00", 1, 1), ("10:00", 1, 1)]
    ((reason,),) = windows.sql("SELECT reason FROM window_failure")
    assert "partition day=2021-03-19 hour=8 of default.clicks is damaged" in reason


HOPS = APP.replace(
    "TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)",
    "HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '1' HOUR)",
)
NEW_YORK = {
    # 02:00 to 03:00 does not exist: windows that end there end at 07:00 UTC.
    "03-14": ["03-14 06:30 1", "03-14 07:30 3"],
    # The hour that happens twice is one hour of two: a window of it ends with the second of them.
    "11-07": ["11-07 05:10 1", "11-07 06:30 1", "11-07 07:30 2"],
}
LORD_HOWE = {
    # The half hour from 01:30 on happens twice, and that from 02:00 on not at all.
    "04-04": ["04-03 14:15 1", "04-03 14:45 1", "04-03 15:15 1", "04-03 15:45 2"],
    "10-03": ["10-02 14:45 1", "10-02 15:35 2"],
}


@pytest.mark.parametrize(
    ("zone", "rows", "expected"),
    [
        (
            "America/New_York",
            NEW_YORK,
            (
                "03-14 01:00 1 07:00, 03-14 01:30 1 07:00, 03-14 03:00 1 08:00, 03-14 03:30 1 08:30, "
                "11-07 00:30 1 06:30, 11-07 01:00 2 07:00, 11-07 01:30 1 07:30, 11-07 02:00 1 08:00"
            ),
        ),
        (
            "Australia/Lord_Howe",
            LORD_HOWE,
            (
                "04-04 00:30 1 14:30, 04-04 01:00 3 15:30, 04-04 01:30 3 16:00, 04-04 02:00 1 16:30, "
                "10-03 00:30 1 15:00, 10-03 01:00 1 15:30, 10-03 02:00 1 16:00"
            ),
        ),
    ],
)
def test_windows_lie_on_the_clock_of_their_zone(sqlite_catalog_url, tmp_path, spark, zone, rows, expected):
    """Also when the clock is changed: window_time is a millisecond before the end of the window, in UTC."""
    app = HOPS.replace('interval="1h"', f'interval="1h", zone="{zone}"')
    opened = open_windows(tmp_path / "project", sqlite_catalog_url, app, spark=spark)
    values = ", ".join(
        f"(TIMESTAMP'2021-{time}:00Z', DATE'2021-{day}', {hour})"
        for day, lines in rows.items()
        for time, _, hour in (line.rpartition(" ") for line in lines)
    )
    opened.commit("clicks", spark.sql(f"SELECT ts, 1L AS amount, day, hour FROM VALUES {values} AS r(ts, day, hour)"))

    run = opened.run()

    assert run.state == "COMPLETED", opened.spawner.complaints
    found = opened.read("hourly").selectExpr("date_format(window_start, 'MM-dd HH:mm')", "n", "unix_millis(at) + 1")
    ends = [(start, n, datetime.fromtimestamp(end / 1000, UTC)) for start, n, end in found.collect()]
    assert ", ".join(sorted(f"{start} {n} {end:%H:%M}" for start, n, end in ends)) == expected
    opened.mill.close()


def test_window_time_has_the_type_of_the_time_column(windows, spark):
    """A `window_time` of TIMESTAMP_NTZ is a wall-clock time, whatever zone the session of the reader has."""
    rows = clicks(spark, ("10:05:00", 1)).withColumn("ts", sf.expr("TIMESTAMP_NTZ'2021-03-19 10:05:00'"))
    windows.commit("clicks", rows)

    run = windows.run()

    assert run.state == "COMPLETED", windows.spawner.complaints
    found = windows.read("hourly").select("at")
    assert found.dtypes == [("at", "timestamp_ntz")]
    assert [row.at for row in found.collect()] == [datetime(2021, 3, 19, 10, 59, 59, 999_000)]  # noqa: DTZ001


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_keys_of_every_type_are_met_by_the_spans_of_their_partitions(spark, zone):
    """They are compared with what is read: a key that came out otherwise would lose its rows in silence."""
    keys = KeySchema.of({"s": "string", "i": "int", "l": "long", "d": "date", "t": "timestamp"})
    wild = "a'b\"c\\\\d :rows {x} \n \u00e9\u4e2d\U0001f600"
    before = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    values = [
        (wild, -(2**31), -(2**63), date(1, 1, 2), before),
        ("x", 2**31 - 1, 2**63 - 1, date(9999, 12, 31), datetime(2021, 11, 7, 5, 30, 0, 1, tzinfo=UTC)),
    ]
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        instants = {keys.encode(key): (-1, n) for n, key in enumerate(values)}
        found = spark.sql(spans_table(keys, instants))
        columns = ["s", "i", "l", "date_format(d, 'yyyy-MM-dd') AS d", "unix_micros(t) AS t", "__begins", "__ends"]
        rows = [tuple(row) for row in found.selectExpr(*columns).collect()]
        types = dict(found.drop("__partition", "__name").dtypes)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    wanted = [
        (s, i, long, d.isoformat(), round((t - epoch).total_seconds() * 1_000_000), -1, n)
        for n, (s, i, long, d, t) in enumerate(values)
    ]
    assert rows == wanted
    assert types == {
        "s": "string",
        "i": "int",
        "l": "bigint",
        "d": "date",
        "t": "timestamp",
        "__begins": "bigint",
        "__ends": "bigint",
    }


def test_a_row_lies_inside_from_the_begin_on_and_before_the_end(spark):
    """And a row without a time lies nowhere."""
    times = spark.sql("SELECT explode(array(9, 10, 19, 20, CAST(NULL AS BIGINT))) AS time")

    found = times.selectExpr(is_inside(10, 20, "time") + " AS inside").collect()

    assert [row.inside for row in found] == [False, True, True, False, None]


def test_the_side_table_has_the_rows_of_the_table_with_partition_reason_and_offset(sqlite_catalog_url, tmp_path, spark):
    """Rows outside their partition, without a time, and late: each once, with the columns that bring it back."""
    app = APP.replace('interval="1h"', 'interval="1h", late="side", row_lag="5 min"')
    opened = open_windows(tmp_path / "project", sqlite_catalog_url, app, spark=spark)
    rows = clicks(spark, ("08:10:00", 1), ("09:00:00", 2), ("07:50:00", 4)).withColumn("hour", sf.lit(8))
    untimed = rows.limit(1).withColumns({"ts": sf.lit(None).cast("timestamp"), "amount": sf.lit(8).cast("long")})
    opened.commit("clicks", rows.unionByName(untimed).unionByName(clicks(spark, ("10:10:00", 16))))

    opened.run()
    opened.commit("clicks", clicks(spark, ("08:30:00", 32)))
    run = opened.run()

    assert run.state == "COMPLETED", opened.spawner.complaints
    assert hours(opened) == [("08:00", 1, 1)]
    place, minute = "day=2021-03-19/hour=8", 60_000_000
    found = sorted(
        (row.amount, str(row.day), row.hour, row.side_reason, row.side_partition, row.side_offset_us)
        for row in opened.read("count_hours_side").collect()
    )
    assert found == [
        (2, DAY, 8, "outside", place, 60 * minute),
        (4, DAY, 8, "outside", place, -10 * minute),
        (8, DAY, 8, "outside", place, None),
        (32, DAY, 8, "late", place, 30 * minute),
    ]
    shown = opened.mill.watermarks.show("clicks").programs[0].left_out
    assert (shown.late_rows, shown.outside_rows) == (1, 3)
    opened.mill.close()


def test_a_run_over_many_partitions_has_no_more_jobs_than_one_over_few(sqlite_catalog_url, tmp_path, spark):
    """Jobs would take most of the time of a back-fill. By default Spark lists more than 32 paths by a job."""
    app = APP.replace('"hour": "int"', '"slot": "string"').replace("'1' HOUR", "'30' MINUTE")
    times = 'pattern="$day $slot", formatter="yyyy-MM-dd HHmm", interval="30 min"'
    app = app.replace('pattern="$day $hour:00:00", interval="1h"', times)
    windows = open_windows(tmp_path / "project", sqlite_catalog_url, app, spark=spark)
    tracker = spark.sparkContext.statusTracker()

    def count_jobs(day: datetime, slots: int) -> int:
        begins = [day + timedelta(minutes=30 * slot) for slot in range(slots)]
        rows = [{"day": day.date(), "slot": f"{one:%H%M}", "ts": one, "amount": 1} for one in begins]
        windows.commit("clicks", rows)
        before = set(tracker.getJobIdsForGroup(None))
        run = windows.run()
        jobs = len(set(tracker.getJobIdsForGroup(None)) - before)
        assert run.state == "COMPLETED", (run.exit_reason, windows.spawner.complaints)
        return jobs

    few, many = (count_jobs(datetime(2021, 3, day, tzinfo=UTC), slots) for day, slots in ((19, 10), (20, 40)))
    rows = windows.read("hourly").groupBy("day").count().sort("day").collect()
    windows.mill.close()

    assert [row["count"] for row in rows] == [10, 40]
    assert 0 < many == few, (few, many)
