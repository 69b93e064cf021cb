# ruff: noqa: E501  # queries on one line each, as a table
"""Names in a query: what Spark can resolve is not refused (tests/sql/test_refusals.py has what is)."""

from __future__ import annotations

import pytest

from tidemill.sql.column_names import check_names
from tidemill.sql.dialect import BadStatement
from tidemill.sql.windows import read_query

HOUR = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
SIDE = f"(SELECT * FROM {HOUR})"
BOTH = "l.window_start = r.window_start AND l.window_end = r.window_end"
NEAR = "l.ts BETWEEN r.ts AND r.ts + INTERVAL '1' HOUR AND l.a = r.a"
TABLES = {"clicks": ["ts", "a", "tags", "day", "p"]}


@pytest.mark.parametrize(
    "query",
    [
        f"SELECT CLICKS.A, default.clicks.a AS b, WINDOW_START FROM {HOUR}",
        f"SELECT window_start, p.x.y, clicks.p.x FROM {HOUR}",
        f"SELECT window_start, v.tag, tag FROM {HOUR} w LATERAL VIEW explode(w.tags) v AS tag",
        f"SELECT window_start, col FROM {HOUR} LATERAL VIEW explode(tags) v",
        f"SELECT k, v FROM (SELECT window_start, explode(p) AS (k, v) FROM {HOUR})",
        f"SELECT window_start, transform(tags, t -> t || a) AS z FROM {HOUR} ORDER BY z",
        f"SELECT window_start, a + 1 AS b, b + 1 AS c FROM {HOUR} GROUP BY window_start, b, c HAVING c > 1",
        f"SELECT window_start, count(*) OVER (PARTITION BY window_start) AS n FROM {HOUR} QUALIFY n > 1",
        f"SELECT window_start, timestampdiff(HOUR, ts, window_end) AS d, extract(hour FROM ts) AS h FROM {HOUR}",
        f"SELECT `count(1)` FROM (SELECT window_start, count(1) FROM {HOUR} GROUP BY window_start)",
        f"SELECT s.b FROM (SELECT struct(a AS b) AS s, window_start FROM {HOUR})",
        "WITH x AS (SELECT *, a AS b FROM clicks) SELECT b, day, window_start FROM "
        + HOUR.replace("TABLE clicks", "TABLE x"),
        f"SELECT l.window_start, a, r.b FROM {SIDE} l JOIN (SELECT window_start, window_end, a AS b FROM {HOUR}) r USING (window_start, window_end)",
        f"SELECT * FROM {SIDE} l WHERE a IN (SELECT a FROM {SIDE} r WHERE {BOTH} AND r.day = l.day)",
        f"SELECT l.window_start, l.a FROM {SIDE} l LEFT SEMI JOIN {SIDE} r ON {BOTH} AND r.a = l.a",
        f"SELECT window_start, u.name, anything FROM {HOUR} w JOIN users u ON u.id = w.a",
        f"SELECT l.ts, r.a FROM clicks l JOIN clicks r ON {NEAR}",
        f"SELECT window_start, timediff(MINUTE, ts, window_end) AS d, timestampadd(hour, 1, ts) AS e FROM {HOUR}",
        f"SELECT window_start, transform(tags, T -> concat(t, A)), aggregate(tags, 0, (acc, X) -> ACC + x) FROM {HOUR}",
        f"SELECT window_start, transform(tags, t -> transform(p, (q, i) -> T || Q || I)) FROM {HOUR}",
        f"SELECT window_start, p.l.x FROM {SIDE} l WHERE p.l.x > 1",
        f"SELECT x, window_start FROM (SELECT p.*, window_start FROM {HOUR})",
        f"SELECT col, window_start FROM (SELECT * FROM {HOUR} LATERAL VIEW explode(tags) v)",
    ],
)
def test_a_name_that_spark_resolves_is_a_column(query):
    """A false refusal would leave no way to declare the query."""
    found = read_query(query, bare=True)

    check_names(found.named, TABLES)


def test_names_of_unknown_columns_are_not_compared():
    """The first commit of rows brings the columns of a table that Python declares."""
    found = read_query(f"SELECT window_start, clics FROM {HOUR}", bare=True)

    check_names(found.named, {})
    with pytest.raises(BadStatement, match="there is no column clics: there are ts, a, tags, day, p, window_start"):
        check_names(found.named, TABLES)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        (f"SELECT window_start, transform(tags, t -> t || u) FROM {HOUR}", "u"),
        (f"SELECT window_start, default.clicks.aa FROM {HOUR}", "aa"),
        (f"SELECT window_start, timediff(MINUTE, ts, tt) FROM {HOUR}", "tt"),
        (f"SELECT window_start, hour FROM {HOUR}", "hour"),
    ],
)
def test_a_name_beside_them_is_compared(query, name):
    """A unit, and a parameter of a lambda function, are names in their place alone."""
    with pytest.raises(BadStatement, match=f"there is no column {name}"):
        check_names(read_query(query, bare=True).named, TABLES)


@pytest.mark.parametrize(
    "of_all", ["r.*", "hash(r.*) AS h", "to_json(struct(r.*)) AS doc", "count(r.*) OVER (PARTITION BY l.ts) AS n"]
)
def test_a_star_within_an_expression_names_all_columns(of_all):
    """The rows that are carried to the next run lacked the columns that only the star names."""
    found = read_query(f"SELECT l.ts, {of_all} FROM clicks l JOIN views r ON {NEAR}", bare=True)

    assert found.mentioned is None
