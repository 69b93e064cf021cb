"""Rows of windows without rows: which queries have them, and the text that adds them."""

from __future__ import annotations

import pytest

from tidemill.sql.empty_windows import fill_in
from tidemill.sql.windows import read_query

FROM = "FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
GROUPED = f"{FROM} GROUP BY window_start, window_end"


@pytest.mark.parametrize(
    ("query", "has"),
    [
        (f"SELECT window_start, count(*) AS n {GROUPED}", True),
        (f"SELECT window_start, sum(amount) AS amount {GROUPED}", True),
        (f"SELECT window_start AS s, to_date(window_start) AS day, count(*) AS n {GROUPED}", True),
        (f"SELECT window_start AS s, to_date(s) AS day, count(*) AS n {GROUPED}", False),
        (f"SELECT window_start, count(*) AS n {GROUPED} LIMIT 3", False),
        (f"SELECT window_start, count(*) AS n {GROUPED} HAVING count(*) > 1", False),
        (f"SELECT window_start, a, count(*) AS n {GROUPED}, a", False),
        (f"SELECT window_start, a {FROM}", False),
    ],
)
def test_only_what_follows_from_the_window_alone_has_a_row_without_rows(query, has):
    """A LIMIT would be filled up, and a column of another column has no place to be computed in."""
    assert (read_query(query, bare=True).empty is not None) == has


def test_all_rows_of_a_window_stay_and_a_comment_ends_with_its_line():
    """An aggregate may be exploded into several rows."""
    text = fill_in("SELECT s FROM t -- a comment", "SELECT s FROM e", "`s`")

    assert "-- a comment\n)" in text
    assert text.endswith("WHERE __empty = __least")
    assert "row_number" not in text
