"""Windows by Spark: results are those of one plain computation over all rows."""

from __future__ import annotations

import pytest

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
    """What is published: start, count, sum."""
    rows = windows.read("hourly").selectExpr("date_format(window_start, 'HH:mm') AS s", "n", "amount", "at").collect()
    return sorted((row.s, row.n, row.amount) for row in rows)


def test_the_window_comes_out_when_its_hour_is_committed(windows, spark):
    """The seed's example: before any row of hour 11 exists."""
    windows.publish("clicks", clicks(spark, ("10:00:00", 1), ("10:59:59.999999", 2)))

    run = windows.run()

    assert run.state == "COMPLETED", windows.spawner.complaints
    assert hours(windows) == [("10:00", 2, 3)]
    (message,) = windows.sql("SELECT payload FROM message WHERE event_type = 'windows'")
    assert '"closed":1' in message[0]
