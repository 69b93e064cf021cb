"""Kinds of window queries by Spark: results are worked out by hand, before and after a late partition."""

from __future__ import annotations

import pytest

from tests.sql.conftest import open_windows

pytestmark = pytest.mark.spark

HOUR = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
APP = f"""
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={{"day": "date", "hour": "int"}}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h"))
views = app.fileset("views", keys={{"day": "date"}}, watermark=tm.Watermark("at", interval="1 day"))
for name in ("sums", "best", "latest", "first", "tags", "together"):
    app.fileset(name, keys={{"day": "date"}})
app.window_sql("add_up", '''
    INSERT INTO sums SELECT window_start, window_end, sum(amount) AS amount, to_date(window_start) AS day
      FROM TABLE(CUMULATE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '3' HOUR))
     GROUP BY window_start, window_end''')
app.window_sql("rank", '''
    INSERT INTO best
      WITH paid AS (SELECT ts AS time, who.name AS name, amount FROM clicks WHERE amount > 0)
    SELECT * FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end ORDER BY amount DESC) AS place FROM (
            SELECT window_start, window_end, name, sum(amount) AS amount, to_date(window_start) AS day
              FROM TABLE(TUMBLE(TABLE paid, DESCRIPTOR(time), INTERVAL '1' HOUR))
             GROUP BY window_start, window_end, name)
    ) WHERE place <= 2''')
app.window_sql("keep_latest", '''
    INSERT INTO latest SELECT * EXCEPT (place) FROM (
        SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, window_end, who.name ORDER BY ts DESC) AS place
          FROM {HOUR}) WHERE place = 1''')
app.window_sql("keep_first", '''
    INSERT INTO first SELECT window_start, who.name AS name, amount, to_date(window_start) AS day FROM {HOUR}
   QUALIFY row_number() OVER (PARTITION BY window_start, window_end ORDER BY ts) = 1''')
app.window_sql("count_tags", '''
    INSERT INTO tags
    SELECT window_start, tag, count(*) AS n, to_date(window_start) AS day
      FROM {HOUR} LATERAL VIEW explode(tags) AS tag GROUP BY window_start, window_end, ROLLUP (tag)
     UNION ALL
    SELECT window_start, concat_ws(' ', 'rows', who.name, if(amount > 4, 'true', 'false')), count(*),
           to_date(window_start)
      FROM {HOUR} GROUP BY window_start, window_end, CUBE (who.name, if(amount > 4, 'true', 'false'))''')
app.window_sql("unite", '''
    INSERT INTO together
      WITH every AS (
        SELECT ts, who.name AS name, amount FROM clicks WHERE amount > 0
         UNION ALL SELECT at, 'seen', cost + 0 FROM views UNION ALL SELECT at, 'again', cost FROM views WHERE cost > 7)
    SELECT window_start, name, sum(amount) AS amount, count(*) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE every, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, name''')
"""


def clicks(spark, *rows: tuple[str, int, str, list[str] | None]):
    """Rows of one day (time, amount, name, tags), in UTC, with columns of every nested type, and one of a window."""
    found = []
    for time, amount, name, tags in rows:
        listed = "NULL" if tags is None else f"CAST(array({', '.join(repr(tag) for tag in tags)}) AS ARRAY<STRING>)"
        nested = f"named_struct('name', '{name}', 'age', 7) AS who, {listed} AS tags, map('k', {amount}L) AS more"
        keys = f"DATE'2021-03-19' AS day, {int(time[:2])} AS hour, 'old' AS Window_End"
        found.append(f"SELECT TIMESTAMP'2021-03-19 {time}:00Z' AS ts, {amount}L AS amount, {nested}, {keys}")
    return spark.sql(" UNION ALL ".join(found))


@pytest.fixture
def opened(sqlite_catalog_url, tmp_path, spark):
    """Clicks of four hours, of which hour 8 has three senders."""
    windows = open_windows(tmp_path / "project", sqlite_catalog_url, APP, spark=spark)
    rows = [("07:15", 100, "cal", ["a"]), ("08:10", 5, "ann", ["a", "b"]), ("08:20", -1, "bob", ["a"])]
    rows += [("08:40", 7, "bob", []), ("08:45", 3, "cal", None), ("09:30", 2, "ann", ["b"]), ("11:05", 1, "cal", ["b"])]
    windows.commit("clicks", clicks(spark, *rows))
    yield windows
    windows.mill.close()


def before_and_after(windows, program, output, *columns):
    """Rows of an output after a run, and after another one when four more clicks of ann have come at 07:50."""
    found = []
    for late in (False, True):
        if late:
            windows.commit("clicks", clicks(windows.spark, ("07:50", 4, "ann", ["b"])))
        run = windows.run(f"shop.{program}")
        assert run.state == "COMPLETED", (run.exit_reason, windows.spawner.complaints)
        hours = [
            f"date_format({bound}, 'H') AS {bound}" for bound in ("window_start", "window_end") if bound in columns
        ]
        rest = [column for column in columns if not column.startswith("window_")]
        rows = windows.read(output).selectExpr(*hours, *rest).collect()
        found.append(sorted((tuple(row) for row in rows), key=repr))
    return found


def test_cumulated_windows_grow_from_one_start(opened):
    """A late row counts in each window of its start that ends after the row, and in no other."""
    before, after = before_and_after(opened, "add_up", "sums", "window_start", "window_end", "amount")

    assert before == [("6", "8", 100), ("6", "9", 114), ("9", "10", 2), ("9", "11", 2), ("9", "12", 3)]
    assert after == [("6", "8", 104), ("6", "9", 118), ("9", "10", 2), ("9", "11", 2), ("9", "12", 3)]


def test_the_best_of_each_window_are_found_by_nested_queries_as_in_flink(opened):
    """Over a query by WITH, which filters rows and names columns below the windows."""
    before, after = before_and_after(opened, "rank", "best", "window_start", "place", "name", "amount")

    others = [("11", 1, "cal", 1), ("8", 1, "bob", 7), ("8", 2, "ann", 5), ("9", 1, "ann", 2)]
    assert before == sorted([("7", 1, "cal", 100), *others], key=repr)
    assert after == sorted([("7", 1, "cal", 100), ("7", 2, "ann", 4), *others], key=repr)


def test_the_latest_row_of_each_window_keeps_columns_of_every_nested_type(opened):
    """Nested columns go through the windows, and through the partition that a late row has overwritten."""
    before, after = before_and_after(opened, "keep_latest", "latest", "window_start", "who.name", "tags", "more['k']")

    others = [("11", "cal", ["b"], 1), ("7", "cal", ["a"], 100), ("8", "ann", ["a", "b"], 5), ("8", "bob", [], 7)]
    others += [("8", "cal", None, 3), ("9", "ann", ["b"], 2)]
    assert before == sorted(others, key=repr)
    assert after == sorted([*others, ("7", "ann", ["b"], 4)], key=repr)


def test_rows_are_ranked_by_qualify(opened):
    """QUALIFY means the same as a nested query. The late row of 07:50 is not the first row of its window."""
    before, after = before_and_after(opened, "keep_first", "first", "window_start", "name", "amount")

    assert before == after == [("11", "cal", 1), ("7", "cal", 100), ("8", "ann", 5), ("9", "ann", 2)]


def test_grouping_sets_and_several_queries_are_replaced_window_by_window(opened):
    """Rows of both queries of UNION ALL, each over the windows, are replaced together."""
    before, after = before_and_after(opened, "count_tags", "tags", "window_start", "tag", "n")

    in_eight = {"": 4, "ann": 1, "bob": 2, "cal": 1, "true": 2, "false": 2}
    in_eight |= {"ann true": 1, "bob false": 1, "bob true": 1, "cal false": 1}
    others = [("8", "a", 2), ("8", "b", 1), ("8", None, 3), *cube("8", in_eight)]
    for hour, name in (("9", "ann"), ("11", "cal")):
        others += [(hour, "b", 1), (hour, None, 1), *cube(hour, {"": 1, name: 1, "false": 1, f"{name} false": 1})]
    in_seven = {"cal": 1, "true": 1, "cal true": 1}
    assert before == sorted([*others, ("7", "a", 1), ("7", None, 1), *cube("7", {"": 1, **in_seven})], key=repr)
    in_seven |= {"": 2, "ann": 1, "false": 1, "ann false": 1}
    assert after == sorted([*others, ("7", "a", 1), ("7", "b", 1), ("7", None, 2), *cube("7", in_seven)], key=repr)


def cube(hour, counts):
    """Rows of the query with CUBE: how many rows of the hour have a name, an amount above 4 or not, or both."""
    return [(hour, f"rows {group}".strip(), n) for group, n in counts.items()]


def test_windows_over_the_rows_of_several_tables_are_closed_when_all_of_these_are_complete(opened):
    """UNION ALL below the window function: hours 7 to 11 wait for the day of views, and a late view counts again."""

    def run() -> list[tuple]:
        found = opened.run("shop.unite")
        assert found.state == "COMPLETED", (found.exit_reason, opened.spawner.complaints)
        read = opened.read("together")
        if "window_start" not in read.columns:
            return []
        rows = read.selectExpr("date_format(window_start, 'H')", "name", "amount", "n").collect()
        return sorted(tuple(row) for row in rows)

    def see(time: str, cost: int) -> None:
        view = f"SELECT TIMESTAMP'2021-03-19 {time}:00Z' AS at, {cost}L AS cost, DATE'2021-03-19' AS day"
        opened.commit("views", opened.spark.sql(view))

    found = [run()]
    see("08:30", 8)
    opened.mill.watermarks.advance("clicks", "2021-03-20 00:00")
    found.append(run())
    see("08:59", 2)
    found.append(run())

    of_clicks = [("7", "cal", 100, 1), ("8", "ann", 5, 1), ("8", "bob", 7, 1), ("8", "cal", 3, 1)]
    of_clicks += [("9", "ann", 2, 1), ("11", "cal", 1, 1)]
    assert found == [
        [],
        sorted([*of_clicks, ("8", "seen", 8, 1), ("8", "again", 8, 1)]),
        sorted([*of_clicks, ("8", "seen", 10, 2), ("8", "again", 8, 1)]),
    ]
