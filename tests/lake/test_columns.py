"""Columns through time: what may join what a file set has."""

from __future__ import annotations

import pytest

from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.columns import are_same, column_schema, evolve
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.publish import reconcile
from tidemill.lake.fileset.stored import Storing
from tidemill.names import DatasetId, Namespace
from tidemill.shapes.keys import KeySchema
from tidemill.shapes.watermark_spec import BadTimeColumn, WatermarkSpec


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


@pytest.mark.parametrize(
    ("present", "offered", "zone", "why"),
    [
        (
            None,
            "TS timestamp_ntz",
            "Europe/Berlin",
            r"leave out 'partition\.time-zone'='Europe/Berlin' \(in Python zone=",
        ),
        (None, "ts string", "UTC", "it is of type string; TIMESTAMP"),
        (None, "ts timestamp_ntz", "UTC", None),
        (None, "ts timestamp", "Europe/Berlin", None),
        (None, "other string", "Europe/Berlin", None),
        ("ts timestamp_ntz", "ts timestamp_ntz", "Europe/Berlin", None),
    ],
)
def test_the_first_columns_are_refused_where_they_cannot_be_the_time_of_rows(present, offered, zone, why):
    """By the commit that brings them; what went on before is left to deployments."""
    keys = KeySchema.of({"day": "date"})
    options = {"streaming-source.enable": "true", "partition.time-interval": "1 day", "partition.time-zone": zone}
    dataset = Dataset(DatasetId("ds"), Namespace("default"), "clicks", DatasetKind.FILESET, "file:///x", {})
    fileset = Fileset(dataset, Storing(keys), WatermarkSpec.of("ts", options, keys))
    known = None if present is None else columns(present)

    if why is None:
        assert reconcile(fileset, known, columns(offered)) == columns(offered)
        return
    with pytest.raises(BadTimeColumn, match=why):
        reconcile(fileset, known, columns(offered))
