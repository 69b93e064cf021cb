"""Look-up joins: rows in windows joined with a snapshot, whose version a run pins."""

from __future__ import annotations

import pytest

from tests.sql.conftest import open_windows
from tidemill.app.declared import BadDeclaration
from tidemill.sql.dialect import BadStatement
from tidemill.sql.windows import read_query

W = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) w"
TOTALS = f"SELECT window_end, a, count(*) AS n FROM {W} GROUP BY window_end, a"


@pytest.mark.parametrize(
    ("query", "bounds", "look_ups"),
    [
        (f"SELECT w.window_start, u.c FROM {W} JOIN users u ON u.a = w.a", "window_start", "users"),
        (f"SELECT window_start, c FROM {W} LEFT JOIN crm.users USING (a)", "window_start", "crm.users"),
        (f"SELECT window_start AS s FROM {W} LEFT ANTI JOIN users u ON u.a = w.a", "s", "users"),
        (f"SELECT t.*, u.c FROM ({TOTALS}) t JOIN users u ON u.a = t.a AND u.b < t.n", "window_end", "users"),
        (
            f"WITH t AS ({TOTALS}) SELECT * FROM t JOIN users u USING (a) JOIN towns USING (c)",
            "window_end",
            "users towns",
        ),
        (
            f"SELECT w.window_start, c, count(*) AS n FROM {W} JOIN users u ON u.a = w.a GROUP BY w.window_start, c",
            "window_start",
            "users",
        ),
        (f"SELECT u.window_start FROM {W} JOIN users u ON u.a = w.a", "", "users"),
        (f"SELECT window_start FROM ({TOTALS}) t JOIN users u ON u.a = t.a", "", "users"),
    ],
)
def test_a_snapshot_may_be_joined_to_windows(query, bounds, look_ups):
    """Above the window function. A bound is that of the window, not a column of the snapshot with its name."""
    read = read_query(f"INSERT INTO o {query}")

    assert [*read.bounds.values()] == bounds.split()
    assert [*read.tables] == ["clicks"]
    assert [*read.look_ups] == look_ups.split()


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (f"SELECT * FROM {W}\n RIGHT JOIN users u ON u.a = w.a", "line 2, column 17: RIGHT JOIN with a snapshot: rows"),
        (f"SELECT * FROM {W} FULL JOIN users u ON u.a = w.a", "FULL JOIN with a snapshot: rows of a snapshot"),
        (f"SELECT * FROM {W}, users", "a join with the snapshot users needs ON or USING"),
        (f"SELECT * FROM {W} JOIN users w ON w.a = 1", "both sides of the join are named w"),
        (f"SELECT * FROM {W} JOIN clicks c ON c.a = w.a", "only a snapshot is joined without windows"),
        (f"SELECT * FROM users u JOIN {W} ON u.a = w.a", "A snapshot may be joined to windows"),
        (f"SELECT * FROM {W} JOIN users FOR SYSTEM_TIME AS OF w.ts u ON u.a = w.a", "leave out VERSION, TIMESTAMP"),
        (f"SELECT count(*) FROM {W} JOIN users u ON u.a = w.a GROUP BY u.c", "each set of GROUP BY needs window_start"),
    ],
)
def test_a_join_with_rows_of_no_window_is_refused(query, told):
    """With its place, and what is allowed."""
    with pytest.raises(BadStatement) as refused:
        read_query(f"INSERT INTO o {query}")

    assert told in str(refused.value)


APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h"))
by_country = app.fileset("by_country", keys={"day": "date"})
users = app.snapshot("users")
app.window_sql("count_countries", '''
    INSERT INTO by_country SELECT window_start, u.country, sum(b) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) w LEFT JOIN users u ON u.a = w.a
     GROUP BY window_start, window_end, u.country''')
"""


def test_a_file_set_is_not_looked_up(sqlite_catalog_url, tmp_path):
    """No run would pin it; and its partitions would be work of the program."""
    with pytest.raises(BadDeclaration, match="users is no snapshot"):
        open_windows(
            tmp_path / "project",
            sqlite_catalog_url,
            APP.replace('snapshot("users"', 'fileset("users", keys={"day": "date"}'),
        )


@pytest.mark.spark
def test_each_run_reads_the_version_at_its_begin(sqlite_catalog_url, tmp_path, spark):
    """A later version changes no published window; a window that is computed again gets it.

    Hour 10 has 2 and 3 of a, and 4 of b; the first version knows a as de, the second b as fr too.
    """
    windows = open_windows(tmp_path / "project", sqlite_catalog_url, APP, spark=spark)

    def refresh(*rows: tuple[str, str]) -> None:
        with windows.mill.transaction(["users"]) as tx:
            tx.snapshot("users").replace(spark.createDataFrame([*rows], "a string, country string"))

    def add(hour: int, *rows: tuple[str, int]) -> None:
        found = " UNION ALL ".join(f"SELECT '{a}' AS a, {b} AS b" for a, b in rows)
        at = f"{hour} AS hour, DATE'2021-03-19' AS day, make_timestamp(2021, 3, 19, {hour}, 30, 0, 'UTC') AS ts"
        with windows.mill.transaction(["clicks"]) as tx:
            tx.fileset("clicks").append(spark.sql(f"SELECT *, {at} FROM ({found})"))

    def run() -> set[tuple[int, str | None, int]]:
        assert windows.run("shop.count_countries").state == "COMPLETED", windows.spawner.complaints
        rows = windows.read("by_country").selectExpr("hour(window_start)", "country", "n").collect()
        return {*map(tuple, rows)}

    refresh(("a", "de"))
    add(10, ("a", 2), ("a", 3), ("b", 4))
    first = run()
    refresh(("a", "de"), ("b", "fr"))
    add(11, ("b", 5))
    second = run()
    add(10, ("b", 1))
    third = run()
    seen = windows.mill.runs.list(limit=1)[0]
    (once,) = windows.mill.sql(f"SELECT hour, b FROM {W} JOIN users USING (a) WHERE country = 'fr' ORDER BY b")
    windows.mill.close()

    assert first == {(10, None, 4), (10, "de", 5)}
    assert second == {*first, (11, "fr", 5)}
    assert third == {(10, "de", 5), (10, "fr", 5), (11, "fr", 5)}
    assert "default.users" in str(seen.facts)
    assert once.rows == ({"hour": 10, "b": 1}, {"hour": 10, "b": 4}, {"hour": 11, "b": 5})
