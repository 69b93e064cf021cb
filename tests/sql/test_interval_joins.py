"""Interval joins: which are accepted and refused, when windows are closed, and results by hand and in every order."""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.conftest import Windows, open_windows
from tests.sql.hours import PLACES
from tests.sql.near import HOUR, MINUTE, Near, PlainNear, near, open_near, row_time
from tests.sql.test_several_inputs import EVENTS
from tests.sql.test_window_program import MARKS, kill
from tidemill.lake.window.reach import WindowReach
from tidemill.lake.window.window_plan import Grid, WindowShape
from tidemill.shapes.partition_time import Instant, Zone, from_wall, to_wall
from tidemill.sql.dialect import BadStatement
from tidemill.sql.windows import read_query

ON = "l.ts BETWEEN r.ts - INTERVAL '1' HOUR AND r.ts + INTERVAL '2' HOUR"
FULL = "coalesce(l.ts, r.ts) AS ts"
ONE, TWO = WindowReach(2 * HOUR, HOUR, HOUR), WindowReach(HOUR, 2 * HOUR, 2 * HOUR)
SUB = "(SELECT ts AS t, id FROM clicks WHERE id > 0) l"


@pytest.mark.parametrize(
    ("query", "bound", "reaches"),
    [
        (f"SELECT l.ts, r.a FROM clicks l JOIN views r ON {ON}", "ts", (WindowReach(), ONE)),
        (f"SELECT l.ts AS t, r.a FROM clicks AS l LEFT JOIN views r ON l.a = r.a AND {ON}", "t", (WindowReach(), ONE)),
        (f"SELECT l.*, r.a FROM clicks l LEFT JOIN views r ON {ON}", "ts", (WindowReach(), ONE)),
        (f"SELECT r.ts, l.a FROM clicks l RIGHT JOIN views r ON {ON}", "ts", (TWO, WindowReach())),
        (f"SELECT {FULL}, l.a FROM clicks l FULL JOIN views r ON {ON}", "ts", (TWO, ONE)),
        (f"SELECT * FROM clicks l LEFT ANTI JOIN views r ON {ON}", "ts", (WindowReach(), ONE)),
        (
            f"SELECT l.ts, count(*) AS n FROM clicks l JOIN views r ON {ON} GROUP BY l.ts, r.a",
            "ts",
            (WindowReach(), ONE),
        ),
        (
            f"SELECT DISTINCT l.ts, c.a FROM clicks l JOIN views r ON {ON} JOIN users c ON c.b = r.b",
            "ts",
            (WindowReach(), ONE),
        ),
        (
            (
                f"SELECT t, a FROM (SELECT coalesce(l.ts, r.ts) AS t, l.a FROM"
                f" clicks l FULL JOIN views r ON {ON}) QUALIFY row_number() OVER (PARTITION BY t ORDER BY a) = 1"
            ),
            "t",
            (TWO, ONE),
        ),
        (f"SELECT l.t, r.a FROM {SUB} JOIN views r ON {ON.replace('l.ts', 'l.t')}", "t", (WindowReach(), ONE)),
        (
            (
                "WITH x AS (SELECT ts, a FROM views) SELECT l.ts, x.a FROM clicks l JOIN x ON l.ts >= x.ts"
                " - INTERVAL '60' MINUTE AND (x.ts + INTERVAL '1' HOUR + INTERVAL '1' HOUR >= l.ts)"
            ),
            "ts",
            (WindowReach(), ONE),
        ),
        (
            f"SELECT o.ts, o.a FROM (SELECT l.ts, r.a, l.b FROM clicks l JOIN views r ON {ON}) o WHERE b > 1",
            "ts",
            (WindowReach(), ONE),
        ),
        (
            "SELECT l.ts FROM clicks l JOIN views r ON r.ts BETWEEN l.ts AND l.ts + INTERVAL '1' HOUR",
            "ts",
            (WindowReach(), WindowReach(0, HOUR, HOUR)),
        ),
        (
            (
                "SELECT l.ts FROM clicks l JOIN views r ON l.ts BETWEEN r.ts + INTERVAL '1' HOUR AND"
                " r.ts + INTERVAL '2' HOUR"
            ),
            "ts",
            (WindowReach(), WindowReach(2 * HOUR, -HOUR, -HOUR)),
        ),
        (f"SELECT l.ts FROM clicks l JOIN clicks r ON {ON}", "ts", (WindowReach(2 * HOUR, HOUR, HOUR),)),
    ],
)
def test_an_interval_join_is_accepted(query, bound, reaches):
    """With the column that tells the window of a result, and the rows of each table that a window needs."""
    read = read_query(f"INSERT INTO o {query}")

    assert [*read.bounds.values()] == [bound]
    assert read.reaches == reaches
    assert {*read.tables.values()} == {"ts"}


NEXT = "line 2, column 11: an interval join is of two tables: SELECT l.ts AS window_time into a file set"
JOIN = f"FROM clicks l JOIN views r ON {ON}"
TUMBLE = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("SELECT l.ts FROM clicks l\n JOIN views r ON l.a = r.a", "line 2, column 18: a join is of windows, or of two"),
        ("SELECT l.ts FROM clicks l JOIN views r ON l.ts >= r.ts AND l.a = r.a", "or both bounds by >= and <="),
        ("SELECT l.ts FROM clicks l JOIN views r ON ts BETWEEN r.ts AND r.ts", "with the names of both sides"),
        (f"SELECT l.ts {JOIN.replace('1', '-3')}", "the lower bound is above the upper one"),
        (f"SELECT l.ts {JOIN} AND l.b BETWEEN r.b AND r.b", "bounds for several pairs of columns"),
        (f"SELECT l.ts {JOIN.replace('HOUR', 'MONTH')}", "a bound of the join INTERVAL '1' MONTH is refused"),
        (f"SELECT l.ts FROM clicks l\n CROSS JOIN views r WHERE {ON}", "a join of two tables needs ON, and no comma"),
        (f"SELECT l.ts FROM clicks l JOIN views l ON {ON}", "both sides of the join are named l"),
        (f"SELECT l.ts {JOIN}\n JOIN other x ON x.ts BETWEEN l.ts AND l.ts + INTERVAL '1' HOUR", NEXT),
        (f"SELECT l.a\n {JOIN}", "SELECT l.ts unchanged: a run finds by it the rows of a window"),
        (f"SELECT * {JOIN}", "the query gives two columns ts: * has that of each side of a join"),
        (f"SELECT l.ts + INTERVAL '1' HOUR AS ts {JOIN}", "SELECT l.ts unchanged"),
        (f"SELECT l.ts {JOIN.replace('JOIN', 'RIGHT JOIN')}", "SELECT r.ts unchanged"),
        (f"SELECT l.ts, r.ts AS t {JOIN.replace('JOIN', 'FULL JOIN')}", f"SELECT {FULL} unchanged"),
        (f"SELECT l.* {JOIN.replace('JOIN', 'FULL JOIN')}", f"SELECT {FULL} unchanged"),
        (
            f"SELECT coalesce(r.ts, l.ts) AS ts {JOIN.replace('JOIN', 'FULL JOIN')}",
            "lies in the window of its left row",
        ),
        (
            f"SELECT count(*) AS n {JOIN}\n GROUP BY l.a",
            "line 2, column 11: each set of GROUP BY needs l.ts",
        ),
        (f"SELECT l.ts, count(*) AS n {JOIN} GROUP BY ROLLUP (l.ts)", "each set of GROUP BY needs l.ts"),
        (f"SELECT r.ts, count(*) AS n {JOIN} GROUP BY r.ts", "each set of GROUP BY needs l.ts"),
        (f"SELECT max(l.ts) AS ts {JOIN}", "an aggregate needs GROUP BY l.ts: else all windows are one group"),
        (
            f"SELECT {FULL}, count(*) AS n {JOIN.replace('JOIN', 'FULL JOIN')} GROUP BY l.ts",
            "needs coalesce(l.ts, r.ts)",
        ),
        (f"SELECT max(r.ts) AS ts {JOIN} GROUP BY l.ts", "SELECT l.ts unchanged"),
        (f"SELECT DISTINCT l.a {JOIN}", "SELECT DISTINCT needs l.ts among its columns"),
        (f"SELECT ts, n FROM (SELECT l.ts, row_number() OVER (ORDER BY l.a) AS n {JOIN})", "needs PARTITION BY l.ts"),
        (
            f"SELECT l.ts {JOIN} RIGHT JOIN countries c ON c.a = l.a",
            "a snapshot without a match lie in no window",
        ),
        (f"SELECT l.ts {JOIN} WHERE EXISTS (SELECT 1 FROM views)", "queries within expressions"),
        (f"SELECT l.ts {JOIN} UNION ALL SELECT window_start FROM {TUMBLE}", "over window functions or over one"),
        (f"SELECT window_start FROM {TUMBLE} UNION ALL SELECT l.ts {JOIN}", "over window functions or over one"),
        (f"SELECT l.ts {JOIN} UNION ALL SELECT l.ts {JOIN}", "an interval join is of two tables"),
        (f"SELECT window_start FROM {TUMBLE.replace('TABLE clicks', f'(SELECT l.ts {JOIN})')}", "write the join into"),
        ("SELECT l.ts FROM clicks l JOIN clicks r ON l.ts BETWEEN r.at AND r.at", "compares two columns of clicks"),
    ],
)
def test_what_cannot_be_joined_window_by_window_is_refused(query, told):
    """With its place, and with what to write."""
    with pytest.raises(BadStatement) as refused:
        read_query(f"INSERT INTO o {query}")

    assert told in str(refused.value)


def test_an_interval_of_days_waits_for_the_longest_days_of_the_zone():
    """Spark adds days on the wall clock: on the last Sunday of October a day of Berlin has 25 hours."""
    berlin, reach = Zone("Europe/Berlin"), WindowReach(0, 24 * HOUR, 24 * HOUR)

    def closed_by(value: str) -> str:
        instant = Instant(to_wall(from_wall(0).fromisoformat(value)))
        return f"{from_wall(reach.closed_by(berlin, instant)):%m-%d %H:%M}"

    assert closed_by("2021-03-20 10:00") == "03-19 10:00"
    assert closed_by("2021-10-31 10:00") == "10-30 09:00"


def fill(opened: Near, *added: tuple[str, int, int]) -> list[list[str]]:
    """Add rows, each an hour of its table with one row at a minute; return what is published after each."""
    found = []
    for table, hour, minute in added:
        opened.add_to(table, f"2021-03-19 {hour:02}:00", minute)
        opened.settle()
        found.append(opened.shown())
    return found


def test_a_left_window_waits_for_the_right_rows_that_it_may_match(catalog_url, tmp_path):
    """Hour 10 is computed when W of clicks is 11:00, and that of views 12:30, since a view may come 90 minutes later.

    A view reaches back 30 minutes too: that of 11:10 matches the click of 11:40, in the next window.
    """
    opened = open_near(tmp_path / "project", catalog_url, 90, 30, "LEFT")

    rows = [("clicks", 10, 5), ("clicks", 11, 40), ("views", 11, 10), ("views", 12, 0), ("clicks", 12, 59)]
    found = fill(opened, *rows)
    why = opened.mill.why("shop.count_hours/2021-03-19 11:00").because[0]
    (after,) = fill(opened, ("views", 13, 30))

    assert found == [[], [], [], ["10:05 11:10"], ["10:05 11:10"]]
    assert why.why.endswith("is open: the watermark of default.views stands at 2021-03-19 13:00:00")
    assert why.unblock == "the watermark passes 2021-03-19 13:30:00"
    assert after == ["10:05 11:10", "11:40 11:10", "11:40 12:00"]
    opened.mill.close()


def test_a_right_window_waits_for_the_left_rows_that_it_may_match(catalog_url, tmp_path):
    """Hour 10 is computed when W of views is 11:00, and that of clicks 11:30, since a click may come 30 minutes later.

    A click may be up to 90 minutes earlier too.
    """
    opened = open_near(tmp_path / "project", catalog_url, 90, 30, "RIGHT")

    found = fill(opened, ("views", 10, 30), ("views", 11, 50), ("clicks", 10, 59), ("clicks", 11, 0), ("clicks", 12, 0))

    assert found[:4] == [[], [], [], ["10:59 10:30", "11:00 10:30"]]
    assert found[4] == ["10:59 10:30", "10:59 11:50", "11:00 10:30", "11:00 11:50", "12:00 11:50"]
    opened.mill.close()


def test_both_bounds_are_inclusive_and_rows_without_a_match_come_once(catalog_url, tmp_path):
    """The view of 10:00 matches the clicks of 9:00 and 10:30, and none a minute further: these have no match at all."""
    opened = open_near(tmp_path / "project", catalog_url, 60, 30, "FULL")
    opened.add_to("clicks", "2021-03-19 08:00", 59)
    opened.add_to("clicks", "2021-03-19 09:00", 0)
    opened.add_to("clicks", "2021-03-19 10:00", 30, 31)
    opened.add_to("views", "2021-03-19 10:00", 0)
    opened.add_to("views", "2021-03-19 12:00", 5)
    opened.add_to("views", "2021-03-19 13:00", 5)
    opened.add_to("clicks", "2021-03-19 13:00", 36)

    opened.settle()

    assert opened.shown() == ["- 12:05", "08:59 -", "09:00 10:00", "10:30 10:00", "10:31 -"]
    opened.mill.close()


def test_late_rows_of_either_side_have_the_windows_computed_again_that_they_can_match(catalog_url, tmp_path):
    """A late view of hour 12 touches the clicks of 10:30 to 13:30, and no other; it lies beyond `computed`."""
    opened = open_near(tmp_path / "project", catalog_url, 90, 30, "LEFT")
    for table, hours in (("clicks", range(9, 14)), ("views", range(9, 14))):
        for hour in hours:
            opened.add_to(table, f"2021-03-19 {hour:02}:00", *([50] if table == "clicks" else []))
    opened.settle()
    sql = "SELECT window_start / 3600000000 % 24, write_pointer FROM window_result"
    before, computed = dict(opened.sql(sql)), opened.sql("SELECT computed FROM window_program")[0][0]

    opened.add_to("views", "2021-03-19 12:00", 15)
    told = opened.is_more()
    opened.settle()
    after = dict(opened.sql(sql))
    shown = opened.shown()
    opened.add_to("clicks", "2021-03-19 10:00", 51, how="overwrite")
    opened.settle()

    assert f"{from_wall(computed):%H:%M}" == "12:30"
    assert told
    assert {hour: before[hour] == after[hour] for hour in (8, 9, 10, 11)} == {8: True, 9: True, 10: False, 11: False}
    assert shown == ["09:50 -", "10:50 12:15", "11:50 12:15"]
    assert opened.shown() == ["09:50 -", "10:51 12:15", "11:50 12:15"]
    assert not opened.is_more()
    opened.mill.close()


def test_a_late_row_counts_in_open_windows_and_is_kept_if_it_has_none(catalog_url, tmp_path):
    """Views that clicks of an open window may match are no side rows: those less than 30 minutes before that window."""
    opened = open_near(tmp_path / "project", catalog_url, 60, 30, "LEFT", policy="side")
    for hour in (10, 11):
        opened.add_to("clicks", f"2021-03-19 {hour}:00", 10)
        opened.add_to("views", f"2021-03-19 {hour}:00")
    opened.settle()

    opened.add_to("views", "2021-03-19 10:00", 20, 45)
    opened.settle()
    (found,) = fill(opened, ("views", 12, 59))

    assert [line.split()[1] for line in opened.lines("count_hours_side_views")] == ["20"]
    assert found == ["10:10 -", "11:10 10:45"]
    opened.mill.close()


def test_late_rows_of_an_interval_join_may_be_dropped_or_an_error(sqlite_catalog_url, tmp_path):
    """A view that is dropped counts for clicks of open windows alone. An error publishes nothing until a reset."""
    found = {}
    for policy in ("drop", "error"):
        folder = tmp_path / policy
        folder.mkdir()
        opened = open_near(folder / "project", f"sqlite:///{folder}/catalog.db", 60, 30, "LEFT", policy=policy)
        for hour in (10, 11):
            opened.add_to("clicks", f"2021-03-19 {hour}:00", 10)
            opened.add_to("views", f"2021-03-19 {hour}:00")
        opened.settle()
        opened.add_to("views", "2021-03-19 10:00", 20, 45)
        opened.add_to("views", "2021-03-19 12:00", 59)
        states = [opened.run().state]
        late = opened.shown()
        opened.mill.watermarks.reset("shop.count_hours")
        states.append(opened.run().state)
        found[policy] = states, late, opened.shown()
        opened.mill.close()

    # The click of 10:10 is published when the views are late. It matches both of them, that of 11:10 the later one.
    both = ["10:10 10:20", "10:10 10:45", "11:10 10:45"]
    assert found["drop"] == (["COMPLETED", "COMPLETED"], ["10:10 -", "11:10 10:45"], both)
    assert found["error"] == (["FAILED", "COMPLETED"], ["10:10 -"], both)


def test_an_idle_side_holds_no_window(catalog_url, tmp_path):
    """Its rows are late when it returns. W of clicks alone counts, which needs no lag."""
    opened = open_near(tmp_path / "project", catalog_url, 90, 30, "LEFT", idle="1h")
    fill(opened, ("views", 9, 0), ("clicks", 10, 5), ("clicks", 11, 5))
    before = opened.shown()
    opened.sql("UPDATE watermark SET committed_at = committed_at - 7200000 RETURNING 1")
    opened.settle()
    idle = opened.shown()

    (after,) = fill(opened, ("views", 11, 0))

    assert before == []
    assert idle == ["10:05 -", "11:05 -"]
    assert after == ["10:05 11:00", "11:05 11:00"]
    opened.mill.close()


def test_a_rewind_of_either_table_opens_the_windows_that_waited_for_its_rows(sqlite_catalog_url, tmp_path):
    """If the intervals of the tables change, the join has other windows, and all of them are computed again."""
    opened = open_near(tmp_path / "project", sqlite_catalog_url, 90, 30, "LEFT")
    fill(opened, *((table, hour, 5) for table in ("clicks", "views") for hour in (9, 10, 11, 12, 13)))
    sql = "SELECT computed FROM window_program"
    app = opened.mill.project.config.app.read_text()

    opened.mill.watermarks.rewind("views", "2021-03-19 12:00")
    ((rewound,),) = opened.sql(sql)
    opened.settle()
    opened.add_to("views", "2021-03-19 12:00", 6)
    opened.settle()
    shown = opened.shown()
    opened.deploy(app.replace('interval="1h"', 'interval="30m"'))
    ((reset,),) = opened.sql(sql)
    opened.settle()

    assert f"{from_wall(rewound):%H:%M}" == "10:30"
    assert "11:05 12:06" not in shown
    assert "10:05 11:05" in shown
    assert reset is None
    assert opened.sql("SELECT DISTINCT window_end - window_start FROM window_result WHERE stale = 0") == [
        (30 * MINUTE,)
    ]
    opened.mill.close()


def test_windows_that_may_lack_matches_before_the_first_partition_can_be_skipped(sqlite_catalog_url, tmp_path):
    """A click of 9:10 may match a view of 8:45, and the first views are of 9:00."""
    opened = open_near(tmp_path / "project", sqlite_catalog_url, 90, 30, "LEFT")
    app = opened.mill.project.config.app.read_text()
    opened.deploy(app.replace('late="recompute"', 'late="recompute", partial_first="skip"'))

    found = fill(opened, *((table, hour, 10) for table in ("views", "clicks") for hour in (9, 10, 11, 12)))

    assert found[-1] == ["10:10 10:10", "10:10 11:10"]
    opened.mill.close()


def read_by(opened: Near, *added: tuple[str, int, int]) -> list[dict[str, list[int]]]:
    """Add rows as `fill` does. Return the hours of each table whose own files were read after each."""
    found = []
    for one in added:
        PlainNear.hours.clear()
        fill(opened, one)
        found.append({table: sorted(hours) for table, hours in PlainNear.hours.items() if hours})
    return found


def test_a_run_reads_the_files_of_a_partition_once_and_then_the_carry(sqlite_catalog_url, tmp_path):
    """A click may match views of 4 hours, so each view is read by 5 runs: by the first one from its own files."""
    opened = open_near(tmp_path / "project", sqlite_catalog_url, 120, 120, "LEFT")
    fill(opened, *((table, hour, 10) for hour in range(8, 12) for table in ("views", "clicks")))

    rows = [("views", 12, 10), ("clicks", 12, 11), ("views", 13, 10), ("clicks", 13, 11), ("views", 9, 50)]
    read = read_by(opened, *rows)
    carried = opened.list_carried("views")
    (then,) = read_by(opened, ("views", 14, 10))

    assert read[:4] == [{"clicks": [10], "views": [12]}, {}, {"clicks": [11], "views": [13]}, {}]
    # A late view of 9:50 touches the clicks of 7:50 to 11:50. No later window needs the views of 9:59 and before.
    assert read[4] == {"clicks": [8, 9, 10, 11], "views": [8, 9]}
    assert carried == ["10", "11", "12", "13"]
    assert then == {"clicks": [12], "views": [14]}
    assert opened.lines("hourly") == opened.expected(opened.closed)
    opened.mill.close()


def test_windows_whose_carry_is_damaged_are_computed_from_the_files_of_their_partitions(sqlite_catalog_url, tmp_path):
    """No reset is needed: a run drops the carry, and writes a new one from these files."""
    opened = open_near(tmp_path / "project", sqlite_catalog_url, 120, 120, "LEFT")
    fill(opened, *((table, hour, 10) for hour in range(8, 12) for table in ("views", "clicks")))
    lost = opened.lose("count_hours_carry_views")

    read = read_by(opened, ("views", 12, 10), ("clicks", 12, 11), ("views", 13, 10))

    assert lost > 0
    assert read == [{"clicks": [10], "views": [8, 9, 10, 11, 12]}, {}, {"clicks": [11], "views": [13]}]
    assert opened.lines("hourly") == opened.expected(opened.closed)
    assert opened.mill.watermarks.show("clicks").programs[0].postponed == ()
    assert opened.sql("SELECT count(*) FROM run WHERE state <> 'COMPLETED'") == [(0,)]
    opened.mill.close()


def test_a_reset_ends_the_carries_so_that_rows_outside_are_counted_again(sqlite_catalog_url, tmp_path):
    """The reset forgets the counts of rows that the side table has."""
    opened = open_near(tmp_path / "project", sqlite_catalog_url, 120, 120, "LEFT")
    fill(opened, *((table, hour, 75) for hour in range(8, 12) for table in ("views", "clicks")))
    before = opened.sql("SELECT sum(outside_rows) FROM left_out")
    PlainNear.hours.clear()

    opened.mill.watermarks.reset("shop.count_hours")
    opened.settle()

    assert before == opened.sql("SELECT sum(outside_rows) FROM left_out") == [(6,)]
    assert PlainNear.hours == {"clicks": {8, 9}, "views": {8, 9, 10, 11}}
    opened.mill.close()


INSERT = f"""
CREATE TABLE settled (ts TIMESTAMP(3), a bigint) PARTITIONED BY (day date);
INSERT INTO settled SELECT l.ts, r.line AS a, to_date(l.ts) AS day FROM {near(90, 30, "")}"""


def test_an_insert_is_explained_and_starts_when_either_watermark_may_close_a_window(sqlite_catalog_url, tmp_path):
    """Windows end each hour, and wait for views for 90 minutes: a multiple of 30 minutes in all cases."""
    opened = open_near(tmp_path / "project", sqlite_catalog_url, 90, 30, "")
    opened.mill.sql(INSERT)
    for table, hours in (("clicks", (10,)), ("views", (8, 9, 12))):
        for hour in hours:
            opened.add_to(table, f"2021-03-19 {hour:02}:00", 5)

    (done,) = opened.mill.sql(f"EXPLAIN {INSERT.split(';')[1]}")
    ((spec,),) = opened.sql("SELECT spec FROM schedule WHERE name = 'settled'")
    (bare,) = opened.mill.sql(f"EXPLAIN SELECT l.a, r.a FROM {near(90, 30, '')}")

    windows = [(row["value"], row["partitions"]) for row in done.rows if row["part"] == "window"]
    clicks, views = (f"default.{table} day=2021-03-19 hour=" for table in ("clicks", "views"))
    assert windows[-1] == ("[2021-03-19 10:00:00, 2021-03-19 11:00:00)", [f"{clicks}10", f"{views}9", f"{views}12"])
    assert [row["value"] for row in bare.rows] == ["default.clicks", "default.views"]
    assert spec.count('"every": "30m"') == 2
    opened.mill.close()


_numbers = itertools.count()


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    st.sampled_from(PLACES),
    st.sampled_from(["", "LEFT", "RIGHT", "FULL"]),
    st.sampled_from([(90, 30), (0, 120), (-60, 120), (61, -1)]),
    EVENTS,
)
def test_an_interval_join_is_that_of_one_computation_in_every_order_of_arrival(
    memory_folder, place, kind_of, bounds, events
):
    """Also on days of clock change, with rewrites, drops, runs, resets and kills on both sides: all windows, once."""
    zone, day = place
    folder = memory_folder / f"i{next(_numbers)}"
    opened = open_near(folder, f"sqlite:///{folder}.db", *bounds, kind_of, zone=zone)
    for event, how, hour, minutes in events:
        if event == "run":
            if how == "drop":
                opened.mill.watermarks.reset("shop.count_hours")
            assert opened.run().state == "COMPLETED", opened.spawner.complaints
        elif event == "kill":
            kill(opened, MARKS[hour])
        elif how == "drop":
            opened.mill.datasets.drop(event, {"hour": hour})
        elif within := opened.fit(f"{day} 0{hour}:00", minutes):
            opened.add_to(event, f"{day} 0{hour}:00", *within, how=how)
    opened.settle()

    assert opened.lines("hourly") == opened.expected(opened.closed)
    opened.mill.close()


SPARK_APP = """
import tidemill as tm

app = tm.App("shop")
clicks, views = (
    app.fileset(name, keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
        "ts", pattern="$day $hour:00:00", interval="1h", zone="Europe/Berlin"))
    for name in ("clicks", "views"))
"""
CARRIED = {
    "outer_left": ("views", {"11", "13"}),
    "outer_right": ("clicks", {"11", "12", "13"}),
    "outer_full": ("views", {"11", "13"}),
}
KINDS = {
    "both": "",
    "outer_left": "LEFT",
    "outer_right": "RIGHT",
    "outer_full": "FULL",
    "matched": "LEFT SEMI",
    "unmatched": "LEFT ANTI",
}


def write_join(name: str) -> str:
    """A program of the app, and its output."""
    kind = KINDS[name]
    source = near(90, 30, kind).replace("clicks l", "(SELECT ts, a, b FROM clicks WHERE b >= 0) l")
    right = "CAST(NULL AS int)" if name.endswith("matched") else "r.b"
    return f"""
{name} = app.fileset("{name}", keys={{"day": "date"}})
app.window_sql("join_{name}", '''
    INSERT INTO {name} SELECT * FROM (
        SELECT {row_time(kind)} AS ts, l.b AS l, {right} AS r, to_date({row_time(kind)}) AS day
          FROM {source} AND l.a = r.a) WHERE coalesce(l, r) < 100 -- the end''')
"""


def rows_of(spark, *rows: tuple[str, str, int]):
    """Rows of any table (time of Berlin, a, b)."""
    found = [
        f"SELECT TIMESTAMP'2021-03-19 {time}:00 Europe/Berlin' AS ts, '{a}' AS a, {b} AS b, {int(time[:2])} AS hour"
        for time, a, b in rows
    ]
    return spark.sql(f"SELECT *, DATE'2021-03-19' AS day FROM ({' UNION ALL '.join(found)})")


@pytest.mark.spark
@pytest.mark.parametrize(
    "kinds",
    [
        ("outer_full",),
        pytest.param(("both", "outer_left", "outer_right", "matched", "unmatched"), marks=pytest.mark.long),
    ],
    ids=["some", "others"],
)
def test_an_interval_join_is_computed_and_computed_again_for_late_rows(sqlite_catalog_url, tmp_path, spark, kinds):
    """A late partition of either side recomputes the windows that it touches; open windows are not given out."""
    text = SPARK_APP + "".join(map(write_join, kinds))
    windows: Windows = open_windows(tmp_path / "project", sqlite_catalog_url, text, spark=spark)
    early = [("07:10", "w", 8), ("09:30", "x", 1), ("09:40", "w", 7), ("10:00", "x", 2), ("10:01", "y", 3)]
    windows.commit("clicks", rows_of(spark, *early, ("10:50", "x", -1)))
    windows.commit("clicks", rows_of(spark, ("11:20", "x", 4), ("12:00", "z", 100), ("13:10", "x", 5)))
    windows.commit("views", rows_of(spark, ("11:00", "x", 21), ("11:31", "y", 22), ("11:45", "v", 26)))
    windows.commit("views", rows_of(spark, ("13:59", "x", 23)))

    def compute() -> dict[str, set[tuple[str, int | None, int | None]]]:
        found = {}
        for name in kinds:
            run = windows.run(f"shop.join_{name}")
            assert run.state == "COMPLETED", (run.exit_reason, windows.spawner.complaints)
            spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")  # a test before may have set another
            rows = windows.read(name).selectExpr("date_format(ts, 'HH:mm')", "l", "r").collect()
            found[name] = {tuple(row) for row in rows}
            assert len(found[name]) == len(rows)
        return found

    first = compute()
    pointers = {*windows.sql("SELECT program_id, window_start, write_pointer FROM window_result")}
    windows.commit("views", rows_of(spark, ("11:31", "y", 24), ("11:30", "y", 25)))
    windows.commit("clicks", rows_of(spark, ("09:30", "w", 6)))
    second = compute()
    carried = {name: windows.read(f"join_{name}_carry_{CARRIED[name][0]}") for name in kinds if name in CARRIED}
    columns = {tuple(one.columns) for one in carried.values()}
    hours = {name: {row[0][-2:] for row in one.select("carry_at").collect()} for name, one in carried.items()}
    again = {*windows.sql("SELECT program_id, window_start, write_pointer FROM window_result")}
    (bare,) = windows.mill.sql(f"SELECT count(*) AS n FROM {near(90, 30, '')} AND l.a = r.a")
    windows.mill.close()

    # W of both tables is 14:00. Left windows are closed up to 12:30, 90 minutes before, and right ones up to 13:30.
    matched = {("09:30", 1, 21), ("10:00", 2, 21), ("10:01", 3, 22), ("11:20", 4, 21)}
    left, right = {("07:10", 8, None), ("09:40", 7, None)}, {("11:45", None, 26)}
    of_right = {("11:00", 1, 21), ("11:00", 2, 21), ("11:00", 4, 21), ("11:31", 3, 22)} | right
    expected = {
        "both": matched,
        "outer_left": matched | left,
        "outer_right": of_right,
        "outer_full": matched | left | right,
        "matched": {(time, row, None) for time, row, _ in matched},
        "unmatched": left,
    }
    assert first == {name: expected[name] for name in kinds}
    matched |= {("10:01", 3, 24), ("10:01", 3, 25)}
    left |= {("09:30", 6, None)}
    of_right |= {("11:31", 3, 24), ("11:30", 3, 25)}
    expected = {
        "both": matched,
        "outer_left": matched | left,
        "outer_right": of_right,
        "outer_full": matched | left | right,
        "matched": {(time, row, None) for time, row, _ in matched},
        "unmatched": left,
    }
    assert second == {name: expected[name] for name in kinds}
    same = {start // 3_600_000_000 % 24 for _, start, _ in pointers & again}
    assert bare.rows == ({"n": 8},)  # rows of open windows too, and those that the programs leave out
    # Later windows begin at 12:00, of views at 13:00. They reach back 30 minutes to views, and 90 minutes to clicks.
    assert hours == {name: CARRIED[name][1] for name in hours}
    assert columns <= {("ts", "a", "b", "day", "carry_of", "carry_at", "carry_seen")}, "the query does not name hour"
    assert 7 in same
    assert same <= {6, 7, 12}


DAYS = """
both = app.fileset("both", keys={"day": "date"})
users = app.snapshot("users")
app.window_sql("join_both", '''
    INSERT INTO both SELECT l.ts, l.b AS l, max(r.b) AS r, u.name, to_date(l.ts) AS day
      FROM clicks l LEFT JOIN views r ON l.ts BETWEEN r.ts - INTERVAL '1' DAY AND r.ts LEFT JOIN users u ON u.b = l.b
     GROUP BY l.ts, l.b, u.name''')
"""


@pytest.mark.spark
def test_a_day_of_an_interval_has_23_or_25_hours_where_the_clock_is_changed(sqlite_catalog_url, tmp_path, spark):
    """At noon the row of noon of the day before is a day ago, and that of a minute before is not.

    The rows of each time are grouped, with a column of a snapshot.
    """
    windows: Windows = open_windows(tmp_path / "project", sqlite_catalog_url, SPARK_APP + DAYS, spark=spark)

    def commit(table: str, *rows: tuple[str, int]) -> None:
        found = [
            f"SELECT TIMESTAMP'2021-{time}:00 Europe/Berlin' AS ts, {b} AS b, DATE'2021-{time[:5]}' AS day, "
            f"{int(time[6:8])} AS hour"
            for time, b in rows
        ]
        windows.commit(table, spark.sql(" UNION ALL ".join(found)))

    with windows.mill.transaction(["users"]) as tx:
        tx.snapshot("users").replace(spark.sql("SELECT 2 AS b, 'two' AS name"))
    commit("clicks", ("03-27 11:59", 1), ("03-27 12:00", 2), ("10-30 11:59", 3), ("10-30 12:00", 4))
    commit("views", ("03-28 12:00", 5), ("10-31 12:00", 6), ("10-31 14:30", 7))

    run = windows.run("shop.join_both")

    assert run.state == "COMPLETED", (run.exit_reason, windows.spawner.complaints)
    found = {tuple(row) for row in windows.read("both").select("l", "r", "name").collect()}
    assert found == {(1, None, None), (2, 5, "two"), (3, None, None), (4, 6, None)}
    windows.mill.close()


@given(
    place=st.sampled_from(PLACES),
    reach=st.builds(WindowReach, *(st.integers(-50 * HOUR, 50 * HOUR) for _ in range(3))),
    hours=st.tuples(st.integers(-60, 60), st.integers(0, 60)),
)
def test_no_window_up_to_the_horizon_of_a_time_needs_later_rows(place, reach, hours):
    """A run that does not read the partitions from that time on would pass windows that they touch."""
    zone, day = place
    grid = Grid(WindowShape(HOUR, HOUR, 0), Zone(zone))
    since = grid.zone.opens(datetime.fromisoformat(day) + timedelta(hours=hours[0]))
    begins = since + hours[1] * HOUR

    touched = grid.touched(*reach.touches(grid.zone, begins, begins + HOUR))

    assert all(grid.closes(window) > reach.untouched_upto(grid.zone, since) for window in touched)
