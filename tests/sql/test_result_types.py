"""Types of the columns that a query gives, without Spark."""

from __future__ import annotations

import pytest

from tidemill.sql.windows import read_query

CLICKS = {"ts": "timestamp", "a": "int", "f": "float", "s": "struct<a:string>", "day": "date"}
HOUR = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"


def types(query: str, **tables):
    """Return the types of the columns of a query over `clicks`, those of its window left out."""
    found = read_query(f"INSERT INTO o {query}").find_types({"clicks": CLICKS, **tables})
    return {name: kind for name, kind in found.items() if name not in {"window_start", "window_end"}}


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ("count(*)", "bigint"),
        ("sum(a)", "bigint"),
        ("sum(f) FILTER (WHERE a > 1)", "double"),
        ("sum(CAST(a AS decimal(10,2)))", None),
        ("max(ts)", "timestamp"),
        ("max(day)", "date"),
        ("max(s.a)", None),
        ("max_by(a, ts)", None),
        ("CAST(max(a) AS bigint)", "bigint"),
        ("CAST(max(a) AS decimal(10,2))", "decimal(10,2)"),
        ("CAST(max(a) AS timestamp_ntz)", "timestamp_ntz"),
        ("CAST(max(a) AS timestamp)", None),
        ("CAST(max(a) AS array<int>)", None),
        ("date_format(window_start, 'yyyy')", "string"),
        ("to_date(window_start)", "date"),
        ("CAST(max(a) AS string)", "string"),
        ("max(unknown)", None),
    ],
)
def test_types_are_those_that_are_sure(columns, kind):
    """A type that is not sure is left to Spark: a wrong one would refuse a right query."""
    assert types(f"SELECT window_start, {columns} AS n FROM {HOUR} GROUP BY window_start") == {"n": kind}


def test_types_go_through_queries_within_a_query():
    """A name that one query gives a computed column hides that of the table."""
    inner = f"(SELECT window_start, upper(s.a) AS a, a AS b, ts AS f FROM {HOUR}) x"

    found = types(f"SELECT window_start, max(a) AS a, max(b) AS b, min(f) AS f FROM {inner} GROUP BY window_start")
    every = types(f"SELECT * FROM {inner}")
    timed = types(f"SELECT window_time FROM {HOUR}")

    assert timed == {"window_time": "timestamp"}
    assert found == {"a": "string", "b": "int", "f": "timestamp"}
    assert every == found


def test_columns_of_several_tables_are_left_to_spark():
    """A name may be that of a column of each table: only Spark says of which."""
    joined = f"SELECT w.window_start, w.a, count(*) OVER (PARTITION BY w.window_start) AS n FROM {HOUR} w"
    united = f"SELECT window_start, a FROM {HOUR} UNION ALL SELECT window_start, %s FROM {HOUR}"

    assert types(f"{joined} JOIN users u ON u.a = w.a") == {"a": None, "n": "bigint"}
    assert types(united % "a") == {"a": "int"}
    assert types(united % "f") == {"a": None}
