"""Columns through time: what may join what a file set has."""

from __future__ import annotations

import pytest

from tidemill.lake.fileset.columns import are_same, column_schema, evolve


def columns(text):
    """`a integer, b string` as a schema."""
    pairs = [part.split() for part in text.split(", ")]
    return column_schema([{"name": n, "type": t, "nullable": False, "metadata": {"comment": "x"}} for n, t in pairs])


@pytest.mark.parametrize(
    ("present", "offered", "merged"),
    [
        ("a integer", "a integer", "a integer"),
        ("a integer", "b string, a integer", "a integer, b string"),
        ("a integer, b string", "a integer", "a integer, b string"),
        ("a byte, f float", "a long, f double", "a long, f double"),
        ("a long", "a short", "a long"),
        ("a decimal(10,2)", "a decimal(10,2)", "a decimal(10,2)"),
    ],
)
def test_columns_only_grow(present, offered, merged):
    """New ones come behind, types widen, what is missing stays."""
    assert evolve(columns(present), columns(offered)) == columns(merged)


@pytest.mark.parametrize(
    ("present", "offered"),
    [
        ("a integer", "a string"),
        ("a integer", "a double"),
        ("a float", "a long"),
        ("a decimal(10,2)", "a decimal(12,4)"),
        ("a integer", "A integer"),
        ("a date", "a timestamp"),
    ],
)
def test_what_would_lose_something_or_mean_two_things_is_refused(present, offered):
    """An integer above 2^53 is no double; `a` and `A` are one name to Spark."""
    assert evolve(columns(present), columns(offered)) is None


def test_the_order_of_columns_does_not_matter():
    """A program selects as it likes."""
    assert are_same(columns("a integer, b string"), columns("b string, a integer"))
    assert not are_same(columns("a integer"), columns("a integer, b string"))
    assert not are_same(columns("a integer"), columns("a long"))
