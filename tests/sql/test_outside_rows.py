"""Rows outside the time of their partition that count in the windows of their own times."""

from __future__ import annotations

from datetime import date

import pytest
from pyspark.sql import functions as sf

from tests.sql.conftest import APP, open_windows
from tests.sql.hours import TUMBLE, open_plain, write_app
from tests.sql.near import open_near
from tests.sql.plain import PlainWindows
from tests.sql.sessions import open_sessions
from tests.sql.test_window_frames import clicks, hours
from tidemill.lake.window.outside_times import STEP, to_stretches
from tidemill.shapes.partition_time import from_wall


@pytest.fixture
def plain(sqlite_catalog_url, tmp_path):
    """A project with such windows of an hour."""
    opened = open_plain(tmp_path / "project", sqlite_catalog_url, more="outside='include'")
    yield opened
    opened.mill.close()


def test_rows_outside_count_in_windows_before_and_after_their_partition(plain):
    """By hand: hour 10 has 10:05 and 11:10, hour 11 has 11:40 and 10:45. A rewrite takes 10:45 away again."""
    seen = []
    for minutes in ((10, (5, 70), "append"), (11, (40, -15), "append"), (11, (20,), "overwrite")):
        hour, rows, how = minutes
        plain.add(f"2021-03-19 {hour}:00", *rows, how=how)
        plain.settle()
        seen.append(plain.results())
    plain.mill.watermarks.reset("shop.count_hours")
    plain.settle()

    assert seen == [{"10:00": 1}, {"10:00": 2, "11:00": 2}, {"10:00": 1, "11:00": 2}]
    assert plain.results() == {"10:00": 1, "11:00": 2}


def test_changes_that_one_run_leaves_to_the_next_lose_no_earlier_time(sqlite_catalog_url, tmp_path):
    """Two rewrites take 08:30 out of hour 10, and 09:30 out of hour 11. A run looks at one of the commits alone."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more="outside='include', max_windows=1")
    for hour, rows in ((8, (5,)), (9, (5,)), (10, (5, -90)), (11, (5, -90))):
        plain.add(f"2021-03-19 {hour:02}:00", *rows)
    plain.settle()
    before = plain.results()

    for hour in (10, 11):
        plain.add(f"2021-03-19 {hour}:00", 5, how="overwrite")
    plain.settle()

    assert before == {"08:00": 2, "09:00": 2, "10:00": 1, "11:00": 1}
    assert plain.results() == {"08:00": 1, "09:00": 1, "10:00": 1, "11:00": 1}
    plain.mill.close()


@pytest.mark.parametrize(("late", "side"), [("drop", 0), ("side", 1), ("error", None)])
def test_a_row_outside_of_a_computed_window_is_late(sqlite_catalog_url, tmp_path, late, side):
    """Hour 11 brings 10:45 when [10:00, 11:00) is computed, and 12:30, which counts when its window is computed."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more=f"outside='include', late='{late}'")
    plain.add("2021-03-19 10:00", 5)
    plain.settle()

    plain.add("2021-03-19 11:00", 5, -15, 90)
    run = plain.run()
    plain.add("2021-03-19 12:00", 5)

    if side is None:
        assert str(run.exit_reason).startswith("LateData")
    else:
        plain.settle()
        assert plain.results() == {"10:00": 1, "11:00": 1, "12:00": 2}
        assert len(plain.lines("count_hours_side")) == side
    plain.mill.close()


def test_a_damaged_partition_holds_up_only_its_own_windows(plain):
    """The times of its rows cannot be read, and other partitions have theirs all the same. 09:10 counts once it can."""
    for hour, rows in ((8, (5,)), (9, (5, -50)), (10, (5, -50))):
        plain.add(f"2021-03-19 {hour:02}:00", *rows)
    with plain.damaged(10):
        run = plain.run()
        damaged = plain.results()
    plain.settle()

    assert run.state == "COMPLETED", plain.spawner.complaints
    assert damaged == {"08:00": 2, "09:00": 1}
    assert plain.results() == {"08:00": 2, "09:00": 2, "10:00": 1}


def test_windows_that_share_rows_outside_with_a_failed_window_wait_without_a_try(plain):
    """The rows of hour 21 lie in 12 hours. A run tries few of them, and delays none of the other hours."""
    for hour in range(21):
        plain.add(f"2021-03-19 {hour:02}:00", 5)
    plain.add("2021-03-19 21:00", 5, *(10 - 60 * back for back in range(10, 22)))
    plain.settle()
    for hour in range(21):
        plain.add(f"2021-03-19 {hour:02}:00", 7)

    with plain.damaged(21):
        run = plain.run()
        found = plain.results()
    (program,) = plain.mill.watermarks.show("clicks").programs
    plain.settle()

    assert run.state == "COMPLETED", plain.spawner.complaints
    assert len(program.postponed) == 12
    assert {hour: n for hour, n in found.items() if "12" <= hour < "21"} == {f"{hour}:00": 2 for hour in range(12, 21)}
    assert set(plain.results().values()) == {1, 2, 3}


def test_a_commit_starts_a_run_although_only_rows_outside_are_late(sqlite_catalog_url, tmp_path):
    """The watermark waits for hour 9, and hours 10 and 11 do not move it. The row of 08:05 in hour 11 is late."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more="outside='include', gap='wait'")
    for hour in (8, 10):
        plain.add(f"2021-03-19 {hour:02}:00", 5)
    plain.settle()
    before = plain.results()

    plain.add("2021-03-19 11:00", 6, 5 - 180)
    more = plain.is_more()
    plain.settle()

    assert (before, more, plain.results()) == ({"08:00": 1}, True, {"08:00": 2})
    plain.mill.close()


def test_a_dropped_partition_makes_no_window_due(plain):
    """Hour 10 had a row of 13:10."""
    plain.add("2021-03-19 10:00", 5, 190)
    plain.settle()
    with plain.mill.transaction() as tx:
        tx.fileset("clicks").drop({"day": date(2021, 3, 19), "hour": 10})

    plain.add("2021-03-19 15:00", 5)
    plain.settle()

    assert plain.results() == {"15:00": 1}
    ends = plain.sql("SELECT window_end FROM window_result ORDER BY window_end")
    assert [f"{from_wall(end):%H:%M}" for (end,) in ends] == ["11:00", "16:00"]


@pytest.mark.parametrize(("late", "side", "counted"), [("drop", [], 1), ("side", ["-50"], 1)])
def test_late_rows_of_a_partition_that_could_not_be_read_are_left_out_once(
    sqlite_catalog_url, tmp_path, late, side, counted
):
    """Hour 10 has 10:05, which its own window counts at last, and 09:10, whose window is computed without the row."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more=f"outside='include', late='{late}'")
    for hour, rows in ((8, (5,)), (9, (5,)), (10, (5, -50)), (11, (5,))):
        plain.add(f"2021-03-19 {hour:02}:00", *rows)
    with plain.damaged(10):
        plain.run()
    plain.settle()
    plain.run()

    assert plain.results() == {"08:00": 1, "09:00": 1, "10:00": 1, "11:00": 1}
    assert [line.split()[1] for line in plain.lines("count_hours_side")] == side
    assert plain.sql("SELECT late_rows FROM left_out") == [(counted,)]
    plain.mill.close()


@pytest.mark.parametrize(("late", "side", "counted"), [("drop", [], 2), ("side", ["-45", "-50"], 2)])
def test_late_rows_count_if_a_partition_gets_another_commit_before_it_can_be_read(
    sqlite_catalog_url, tmp_path, late, side, counted
):
    """By hand: hour 10 brings 09:10, and then 09:15, both late. Its own window waits, and counts 10:05 and 10:20."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more=f"outside='include', late='{late}'")
    for hour, rows in ((8, (5,)), (9, (5,)), (10, (5, -50)), (11, (5,))):
        plain.add(f"2021-03-19 {hour:02}:00", *rows)
    with plain.damaged(10):
        plain.run()
    plain.add("2021-03-19 10:00", 20, -45)
    plain.settle()
    plain.run()

    assert plain.results() == {"08:00": 1, "09:00": 1, "10:00": 2, "11:00": 1}
    assert sorted(line.split()[1] for line in plain.lines("count_hours_side")) == side
    assert plain.sql("SELECT late_rows FROM left_out") == [(counted,)]
    plain.mill.close()


def test_a_row_counts_once_if_the_times_of_its_partition_could_not_be_read_for_a_moment(
    sqlite_catalog_url, tmp_path, monkeypatch
):
    """The first run cannot read the times of hour 10, and could compute its windows. 09:10 is late for the second."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more="outside='include', late='side'")
    for hour, rows in ((9, (5,)), (10, (5, -50)), (11, (5,))):
        plain.add(f"2021-03-19 {hour:02}:00", *rows)

    def fail(self, run, batch):
        if any("10" in one.partition_key for one in batch.partitions):
            raise ValueError("no connection")
        return {}

    with monkeypatch.context() as patch:
        patch.setattr(PlainWindows, "find_outside_times", fail)
        first = plain.run()
    before = plain.results()
    plain.settle()

    assert (first.state, before) == ("COMPLETED", {"09:00": 1, "11:00": 1})
    assert plain.results() == {"09:00": 1, "10:00": 1, "11:00": 1}
    assert [line.split()[1] for line in plain.lines("count_hours_side")] == ["-50"]
    plain.mill.close()


def test_rows_that_another_policy_has_counted_are_not_late_when_the_state_is_kept(sqlite_catalog_url, tmp_path):
    """With `side` the windows of hours 9 and 10 counted their rows. The first run with `include` misses hour 10."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more="late='side'")
    for hour in (9, 10, 11):
        plain.add(f"2021-03-19 {hour:02}:00", 5)
    plain.settle()
    plain.mill.watermarks.reset("shop.count_hours", keep_state=True)
    plain.deploy(write_app(more="outside='include', late='side'"))

    plain.add("2021-03-19 12:00", 5)
    with plain.damaged(10):
        plain.run()
    plain.add("2021-03-19 10:00", 20)
    plain.settle()

    assert plain.results() == {"09:00": 1, "10:00": 1, "11:00": 1, "12:00": 1}
    assert [line.split()[1] for line in plain.lines("count_hours_side")] == ["20"]
    plain.mill.close()


def test_rows_of_a_postponed_window_are_not_late(sqlite_catalog_url, tmp_path):
    """Hour 10 cannot be read, and gets 10:20. Its window counts both rows at last, and the side table none."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more="late='side'")
    for hour in (9, 10, 11):
        plain.add(f"2021-03-19 {hour:02}:00", 5)
    with plain.damaged(10):
        plain.run()
    plain.add("2021-03-19 10:00", 20)
    plain.settle()

    assert plain.results() == {"09:00": 1, "10:00": 2, "11:00": 1}
    assert plain.lines("count_hours_side") == []
    plain.mill.close()


def test_a_resumed_schedule_looks_at_late_rows_outside(sqlite_catalog_url, tmp_path):
    """Days after the watermark, a partition with a row of 08:05 came while nothing was listening."""
    plain = open_plain(tmp_path / "project", sqlite_catalog_url, more="outside='include', gap='wait'")
    plain.add("2021-03-19 08:00", 5)
    plain.settle()
    plain.mill.schedules.suspend("shop.count")
    plain.add("2021-03-25 10:00", 6, 5 - 6 * 24 * 60 - 120)

    backlog = "SELECT max(seq) FROM message WHERE event_type = 'backlog'"
    before = plain.sql(backlog)
    plain.mill.schedules.resume("shop.count")

    assert plain.sql(backlog) > before
    plain.mill.close()


def test_rows_outside_join_the_sessions_of_their_own_times(sqlite_catalog_url, tmp_path):
    """Hour 11 brings 08:40, which joins 08:20 and 09:00, and changes a session that is published."""
    opened = open_sessions(tmp_path / "project", sqlite_catalog_url, more="outside='include'")
    for hour, rows in ((8, (20,)), (9, (0, 2)), (10, (30,))):
        opened.add(f"2021-03-19 {hour:02}:00", *rows)
    opened.settle()
    before = opened.results()

    opened.add("2021-03-19 11:00", -140, 10)
    opened.settle()

    assert before == ["08:20 08:50 1", "09:00 09:32 2", "10:30 11:00 1"][:2]
    assert opened.results() == ["08:20 09:32 4", "10:30 11:00 1", "11:10 11:40 1"]
    opened.mill.close()


@pytest.mark.parametrize("kind", ["", "LEFT"])
def test_rows_outside_are_joined_by_a_range_of_times(sqlite_catalog_url, tmp_path, kind):
    """The click of 08:58 comes in hour 10 when it is late. The view of 09:03 lies in another window, and fits."""
    opened = open_near(tmp_path / "project", sqlite_catalog_url, 10, 0, kind, outside="include")
    for table, rows in (("clicks", ((9, 30), (10, 5))), ("views", ((9, 3), (10, 6)))):
        for hour, minute in rows:
            opened.add_to(table, f"2021-03-19 {hour:02}:00", minute)
    opened.add_to("views", "2021-03-19 11:00", 59)
    opened.settle()

    opened.add_to("clicks", "2021-03-19 10:00", -62)
    opened.settle()

    assert "08:58 09:03" in opened.shown()
    assert opened.lines("hourly") == opened.expected(opened.closed)
    opened.mill.close()


def test_stretches_join_steps_and_close_the_shortest_gaps(monkeypatch):
    """A partition of nonsense has as many times as rows. The catalog keeps some of its gaps, the widest."""
    monkeypatch.setattr("tidemill.lake.window.outside_times._MOST", 2)

    assert to_stretches([]) == []
    assert to_stretches([3, 1, 2, 5, 9, 2]) == [(1 * STEP, 6 * STEP), (9 * STEP, 10 * STEP)]


@pytest.mark.spark
def test_spark_counts_rows_outside_and_keeps_those_without_a_time(sqlite_catalog_url, tmp_path, spark):
    """By hand: 07:59:59.999999 lies in [07:00, 08:00), which no partition has; 09:00 lies in the next hour.

    Hour 9 brings 08:20, which is late, and dropped. 09:10 counts.
    """
    app = APP.replace('interval="1h"', 'interval="1h", outside="include", late="drop"')
    opened = open_windows(tmp_path / "project", sqlite_catalog_url, app, spark=spark)
    rows = clicks(spark, ("08:10:00", 1), ("07:59:59.999999", 2), ("09:00:00", 4)).withColumn("hour", sf.lit(8))
    untimed = rows.limit(1).withColumn("ts", sf.lit(None).cast("timestamp"))
    opened.commit("clicks", rows.unionByName(untimed))
    first = opened.run()
    opened.commit("clicks", clicks(spark, ("09:10:00", 8), ("08:20:00", 16)).withColumn("hour", sf.lit(9)))
    second = opened.run()
    (selected,) = opened.mill.sql(
        f"SELECT window_start, sum(amount) AS amount FROM TABLE({TUMBLE}) GROUP BY window_start"
    )

    assert sorted((row["window_start"][11:13], row["amount"]) for row in selected.rows) == [
        ("07", 2),
        ("08", 17),
        ("09", 12),
    ]
    assert (first.state, second.state) == ("COMPLETED", "COMPLETED"), opened.spawner.complaints
    assert hours(opened) == [("07:00", 1, 2), ("08:00", 1, 1), ("09:00", 2, 12)]
    assert opened.read("count_hours_side").count() == 1
    counts = "SELECT partition_key, late_rows, outside_rows FROM left_out ORDER BY partition_key"
    assert [row[1:] for row in opened.sql(counts)] == [(0, 1), (1, 0)]
    opened.mill.close()
