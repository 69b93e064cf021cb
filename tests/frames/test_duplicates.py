"""Rows that are there twice are left out by key, and counted; nothing else is."""

from __future__ import annotations

import pytest

from tidemill.errors import UserError
from tidemill.frames.duplicates import BadKeys, leave_out_duplicates, since
from tidemill.frames.spark import counting
from tidemill.lake.fileset.fileset import Change, Partition, WriteOp
from tidemill.names import CommitSeq, WritePointer
from tidemill.shapes.keys import KeyText
from tidemill.shapes.manifest import Manifest


def change(seq):
    """A commit of one partition."""
    return Change(KeyText("k"), WritePointer(seq - 1), CommitSeq(seq), WriteOp.APPEND, f"tx-{seq}", Manifest(()))


def test_only_what_was_published_within_the_horizon_is_looked_at():
    """The whole history of a feed is too much to join each hour."""
    old, new = Partition(KeyText("old"), (change(3),)), Partition(KeyText("new"), (change(4), change(9)))

    assert since([old, new], 4) == [Partition(KeyText("new"), (change(9),))]


@pytest.mark.spark
def test_each_key_is_there_once_and_not_again(spark):
    """Null is a value like any other; the same columns on both sides are not taken for one another."""
    columns = "id int, `a b` string, n int"
    rows = spark.createDataFrame([(1, "x", 1), (1, "x", 2), (1, None, 3), (None, None, 4), (2, "y", 5)], columns)
    published = spark.createDataFrame([(2, "y", 9), (None, None, 9), (7, "z", 9)], columns)

    found = leave_out_duplicates(rows, ["id", "a b"], published, "default.flights")
    nothing_yet = found.facts()
    with counting(found.rows, found.counted):
        kept = sorted((row[0], row[1] or "") for row in found.rows.collect())
    itself = leave_out_duplicates(rows, ["id"], rows, "default.flights").rows.count()

    assert set(nothing_yet.values()) == {None}
    assert kept == [(1, ""), (1, "x")]
    assert found.facts() == {"rows_in": 5, "within": 1, "published": 2, "rows_out": 2}
    assert itself == 0


@pytest.mark.spark
def test_among_themselves_rows_need_nothing_published(spark):
    """The first run of a feed; and columns that are not there are named, with the nearest."""
    rows = spark.createDataFrame([(1, 1), (1, 2)], "id int, n int")

    found = leave_out_duplicates(rows, ["id"], None, "")
    with counting(found.rows, found.counted):
        assert found.rows.count() == 1
    assert found.facts() == {"rows_in": 2, "within": 1, "published": 0, "rows_out": 1}
    with pytest.raises(BadKeys, match="'ids' is no column of the rows, which has id, n; did you mean 'id'"):
        leave_out_duplicates(rows, ["ids"], None, "")
    with pytest.raises(UserError, match="keys="):
        leave_out_duplicates(rows, [], None, "")
