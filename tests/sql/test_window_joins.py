"""Window joins: which are accepted, which are refused and where, and their results by Spark, worked out by hand."""

from __future__ import annotations

import pytest

from tests.sql.conftest import open_windows
from tidemill.sql.dialect import BadStatement
from tidemill.sql.windows import read_query

L, R = (
    f"(SELECT * FROM TABLE(TUMBLE(TABLE {table}, DESCRIPTOR(ts), INTERVAL '1' HOUR))) {name}"
    for table, name in (("clicks", "l"), ("views", "r"))
)
BOTH = "l.window_start = r.window_start AND l.window_end = r.window_end"
SAME = "r.window_end = l.window_end AND l.a = r.a AND (r.window_start = l.window_start)"
START = "coalesce(l.window_start, r.window_start) AS s"
X = f"{R[:-1]}x ON x.window_start = l.window_start AND x.window_end = l.window_end"
BARE = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
BELOW = "(SELECT l.ts FROM clicks l JOIN views r ON l.a = r.a)"
PLACE = "row_number() OVER (PARTITION BY r.window_start ORDER BY l.a)"
IN_WINDOW = f"(SELECT r.a FROM {R} WHERE {BOTH})"


@pytest.mark.parametrize(
    ("query", "bounds"),
    [
        (f"SELECT l.window_start, r.window_end AS e, r.a FROM {L} JOIN {R} ON {BOTH}", "window_start e"),
        (f"SELECT l.window_end, r.a FROM {L} LEFT OUTER JOIN {R} ON {SAME} WHERE l.b > 1", "window_end"),
        (f"SELECT r.window_end, l.a FROM {L} RIGHT JOIN {R} ON {SAME}", "window_end"),
        (f"SELECT {START}, r.a FROM {L} FULL OUTER JOIN {R} ON {SAME}", "s"),
        (f"SELECT * FROM {L} LEFT SEMI JOIN {R} ON {SAME}", "window_start window_end"),
        (f"SELECT l.* FROM {L} ANTI JOIN {R} ON {SAME}", "window_start window_end"),
        (f"SELECT * FROM {L} WHERE EXISTS {IN_WINDOW}", "window_start window_end"),
        (f"SELECT * FROM {L} WHERE l.b > 2 OR l.a NOT IN {IN_WINDOW}", "window_start window_end"),
        (f"SELECT window_start, r.a FROM {L} FULL JOIN {R} USING (window_start, window_end)", "window_start"),
        (f"SELECT l.window_start AS s, count(*) AS n FROM {L} JOIN {R} ON {BOTH} GROUP BY l.window_start", "s"),
        (f"SELECT {START}, count(*) AS n FROM {L} FULL JOIN {R} ON {BOTH} GROUP BY {START[:-5]}", "s"),
        (f"SELECT l.window_start, x.a FROM {L} LEFT JOIN {R} ON {BOTH} JOIN {X}", "window_start"),
        (f"SELECT l.window_start FROM {BARE} AS l JOIN {BARE.replace('clicks', 'views')} r ON {BOTH}", "window_start"),
    ],
)
def test_a_join_within_windows_is_accepted(query, bounds):
    """A run finds the rows to replace by a bound of a side that is there in each row."""
    read = read_query(f"INSERT INTO o {query}")

    assert [*read.bounds.values()] == bounds.split()
    assert [*read.tables] == ["clicks", "views"]


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT r.window_start FROM {L} LEFT JOIN {R} ON {BOTH}",
        f"SELECT l.window_start FROM {L} RIGHT JOIN {R} ON {BOTH}",
        f"SELECT l.window_start, r.window_end FROM {L} FULL JOIN {R} ON {BOTH}",
        f"SELECT r.* FROM {L} LEFT JOIN {R} ON {BOTH}",
    ],
)
def test_a_bound_of_a_side_that_may_be_missing_tells_no_window(query):
    """The bound is NULL where no row matches."""
    read = read_query(f"INSERT INTO o {query}")

    assert read.bounds == {}


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (f"SELECT l.window_start FROM {L}\n JOIN {R} ON l.a = r.a", "line 2, column 90: a join of windows needs ON"),
        (f"SELECT l.window_start FROM {L} JOIN {R} ON l.window_start = r.window_start", "a join of windows needs ON"),
        (f"SELECT l.window_start FROM {L} JOIN {R} ON {BOTH} OR l.a = r.a", "a join of windows needs ON"),
        (f"SELECT l.window_start FROM {L} JOIN {R} ON l.window_start = r.window_end AND {BOTH[36:]}", "needs ON"),
        (f"SELECT l.window_start FROM {L}, {R} WHERE {BOTH}", "CROSS JOIN of windows is not supported"),
        (f"SELECT l.window_start FROM {L} CROSS JOIN {R}", "CROSS JOIN of windows is not supported"),
        (f"SELECT l.window_start FROM {L} NATURAL JOIN {R}", "NATURAL JOIN of windows is not supported"),
        (f"SELECT l.window_start FROM {L} JOIN {R[:-1]}l ON {BOTH}", "both sides of the join are named l"),
        (f"SELECT l.window_start FROM views r JOIN {L} ON l.a = r.a", "both sides must be window functions"),
        (f"SELECT l.window_start, count(*) FROM {L} JOIN {R} ON {BOTH} GROUP BY l.a", "each set of GROUP BY needs"),
        (f"SELECT l.window_start, {PLACE} AS n FROM {L} LEFT JOIN {R} ON {BOTH}", "needs PARTITION BY window_start"),
        (f"SELECT * FROM {L} WHERE a IN\n (SELECT a FROM {R} WHERE l.a = r.a)", "line 2, column 10: a query in EXISTS"),
        (f"SELECT * FROM {L} WHERE EXISTS (SELECT count(*) FROM {R} WHERE {BOTH})", "no aggregates"),
        (f"SELECT * FROM {L} WHERE EXISTS (SELECT 1 FROM {R} WHERE {BOTH} GROUP BY r.a)", "no groups"),
        (f"SELECT * FROM {L} WHERE EXISTS (SELECT 1 FROM {R[:-1]}l WHERE {BOTH.replace('r.', 'l.')})", "are named l"),
        (f"SELECT *, EXISTS {IN_WINDOW} AS there FROM {L}", "queries within expressions"),
        (f"SELECT window_start FROM {BARE.replace('TABLE clicks', BELOW)}", "a join is of windows"),
        (f"SELECT l.window_start FROM ({L} JOIN {R} ON {BOTH})", "a join in parentheses is not supported"),
        (f"SELECT * FROM {L}\n JOIN {R} ON {BOTH}", "two columns window_start: * has that of each side of a join"),
        (f"SELECT l.window_start, r.window_start FROM {L} JOIN {R} ON {BOTH}", "name one of them by AS"),
    ],
)
def test_a_join_across_windows_is_refused(query, told):
    """With its place, since a result would need rows of other windows than its own."""
    with pytest.raises(BadStatement) as refused:
        read_query(f"INSERT INTO o {query}")

    assert told in str(refused.value)


KINDS = {
    "both": (f"{L} JOIN {R} ON {SAME}", "l.window_start, l.a, r.b"),
    "outer_left": (f"{L} LEFT JOIN {R} ON {SAME}", "l.window_start, l.a, r.b"),
    "outer_right": (f"{L} RIGHT JOIN {R} ON {SAME}", "r.window_start, l.a, r.b"),
    "outer_full": (f"{L} FULL JOIN {R} ON {SAME}", f"{START[:-5]} AS window_start, l.a, r.b"),
    "semi": (f"{L} LEFT SEMI JOIN {R} ON {SAME}", "l.window_start, l.a, NULL AS b"),
    "anti": (f"{L} WHERE NOT EXISTS (SELECT * FROM {R} WHERE {SAME})", "l.window_start, l.a, NULL AS b"),
}
APP = """
import tidemill as tm

app = tm.App("shop")
clicks, views = (
    app.fileset(name, keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
        "ts", pattern="$day $hour:00:00", interval="1h"))
    for name in ("clicks", "views"))
"""


def write_join(name: str) -> str:
    """A program of the app, and its output."""
    source, columns = KINDS[name]
    start = columns.partition(", l.a")[0].partition(" AS ")[0]
    return f"""
{name} = app.fileset("{name}", keys={{"day": "date"}})
app.window_sql("join_{name}", '''
    INSERT INTO {name} SELECT {columns}, to_date({start}) AS day FROM {source}''')
"""


def rows_of(spark, *rows: tuple[int, str, int]):
    """Rows of any table (hour, a, b), at half past the hour."""
    found = [f"SELECT {hour} AS hour, '{a}' AS a, {b} AS b" for hour, a, b in rows]
    day = "DATE'2021-03-19' AS day, make_timestamp(2021, 3, 19, hour, 30, 0, 'UTC') AS ts"
    return spark.sql(f"SELECT *, {day} FROM ({' UNION ALL '.join(found)})")


@pytest.mark.spark
@pytest.mark.parametrize(
    "kinds",
    [("outer_full", "anti"), pytest.param(("both", "outer_left", "outer_right", "semi"), marks=pytest.mark.long)],
    ids=["some", "others"],
)
def test_a_join_is_computed_and_computed_again_for_late_rows(sqlite_catalog_url, tmp_path, spark, kinds):
    """A late partition of either side recomputes the windows that it touches, and no other."""
    text = APP + "".join(map(write_join, kinds))
    windows = open_windows(tmp_path / "project", sqlite_catalog_url, text, spark=spark)
    windows.commit("clicks", rows_of(spark, (10, "x", 0), (10, "y", 0), (11, "x", 0), (12, "z", 0)))
    windows.commit("views", rows_of(spark, (10, "x", 1), (10, "x", 2), (11, "w", 3), (13, "x", 4)))

    def compute() -> dict[str, set[tuple[int, str | None, int | None]]]:
        found = {}
        for name in kinds:
            run = windows.run(f"shop.join_{name}")
            assert run.state == "COMPLETED", (run.exit_reason, windows.spawner.complaints)
            rows = windows.read(name).collect()
            found[name] = {(row.window_start.hour, row.a, row.b) for row in rows}
            assert len(found[name]) == len(rows)
        return found

    first = compute()
    written = windows.sql("SELECT count(*) FROM window_result WHERE window_start / 3600000000 % 24 = 12")
    pointers = sorted(windows.sql("SELECT program_id, window_start, write_pointer FROM window_result"))
    windows.commit("views", rows_of(spark, (11, "x", 5)))
    windows.commit("clicks", rows_of(spark, (10, "w", 6)))
    second = compute()
    again = sorted(windows.sql("SELECT program_id, window_start, write_pointer FROM window_result"))

    matched, left, right = {(10, "x", 1), (10, "x", 2)}, {(10, "y", None), (12, "z", None)}, {(11, None, 3)}
    expected = {
        "both": matched,
        "outer_left": matched | left | {(11, "x", None)},
        "outer_right": matched | right,
        "outer_full": matched | left | right | {(11, "x", None)},
        "semi": {(10, "x", None)},
        "anti": left | {(11, "x", None)},
    }
    assert first == {name: expected[name] for name in kinds}
    matched |= {(11, "x", 5)}
    left |= {(10, "w", None)}
    expected = {
        "both": matched,
        "outer_left": matched | left,
        "outer_right": matched | right,
        "outer_full": matched | left | right,
        "semi": {(10, "x", None), (11, "x", None)},
        "anti": left,
    }
    assert second == {name: expected[name] for name in kinds}
    assert written == [(len(kinds),)]
    same = {start // 3_600_000_000 % 24 for one, start, _ in {*pointers} & {*again}}
    assert same == {12}
    windows.mill.close()
