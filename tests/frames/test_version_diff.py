"""The diff of two versions is what a plain comparison of their rows gives."""

from __future__ import annotations

import random

import pytest

from tidemill.frames.version_diff import NotComparable, RowChange, count_changes, diff_frames

pytestmark = pytest.mark.spark


def changes(frame):
    """The diff as Python values, by key."""
    return {
        (row["area"], row["id"]): (
            row["change"],
            row["before"].asDict(recursive=True) if row["before"] else None,
            row["after"].asDict(recursive=True) if row["after"] else None,
        )
        for row in frame.collect()
    }


def test_a_diff_says_what_was_inserted_deleted_and_updated(spark):
    """Values that are null, columns that came and went, a map: against dictionaries by key."""
    chance = random.Random(7)

    def rows():
        return {
            (area, number): {"name": chance.choice([None, "x", "y"]), "tags": chance.choice([None, {"a": 1}, {"b": 2}])}
            for area in ("n", "s")
            for number in range(40)
            if chance.random() < 0.7
        }

    old, new = rows(), rows()
    frames = [
        spark.createDataFrame(
            [(area, number, row["name"], row["tags"], extra) for (area, number), row in given.items()],
            f"area string, id int, name string, tags map<string,int>, {column} string",
        )
        for given, column, extra in ((old, "gone", None), (new, "come", None))
    ]

    found = changes(diff_frames("default.users", *frames, ["area", "id"]))

    expected = {}
    for key in old.keys() | new.keys():
        before, after = (
            {"area": key[0], "id": key[1], **given[key], column: None} if key in given else None
            for given, column in ((old, "gone"), (new, "come"))
        )
        if key not in old:
            expected[key] = ("inserted", None, after)
        elif key not in new:
            expected[key] = ("deleted", before, None)
        elif old[key] != new[key]:
            expected[key] = ("updated", before, after)
    assert {change for change, _, _ in expected.values()} == {"inserted", "deleted", "updated"}
    assert found == expected


def test_versions_that_cannot_be_compared_are_refused(spark):
    """A doubled key would multiply rows, and no reader could tell which belong together."""
    once = spark.sql("SELECT 1 AS id, 'a' AS name")
    twice = spark.sql("SELECT id, 'a' AS name FROM VALUES (1), (1) AS t(id)")
    null = spark.sql("SELECT CAST(NULL AS INT) AS id, 'a' AS name")

    with pytest.raises(NotComparable, match="it has no key: name its columns where it is declared"):
        diff_frames("default.users", once, once, [])
    with pytest.raises(NotComparable, match="has no column nam, which is in the key; did you mean 'name'"):
        diff_frames("default.users", once, once, ["nam"])
    with pytest.raises(NotComparable, match="has columns change, before, after of its own, and the key has before too"):
        diff_frames("default.users", once, once, ["before"])
    with pytest.raises(NotComparable, match="the key id=1 stands in 2 rows"):
        diff_frames("default.users", once, twice, ["id"])
    with pytest.raises(NotComparable, match="or is null"):
        diff_frames("default.users", null, once, ["id"])


def test_a_diff_is_counted_whole_and_shown_in_part(spark):
    """The first by key, as JSON has them, whatever the types; the counts are of all that differ."""
    old = spark.sql("SELECT id, DATE'2026-01-01' AS day, CAST(NULL AS STRING) AS name FROM range(6)")
    new = spark.sql("SELECT id, DATE'2026-01-01' AS day, nullif('a', if(id = 3, '', 'a')) AS name FROM range(2, 10)")
    differing = diff_frames("default.users", old, new, ["id"])

    found = count_changes(differing, "default.users", (5, 7), ["id"], 3)
    none = count_changes(differing, "default.users", (5, 7), ["id"], 0)

    assert (found.inserted, found.deleted, found.updated, found.total) == (4, 2, 1, 7)
    assert found.rows == (
        RowChange("deleted", {"id": 0}, {"id": 0, "day": "2026-01-01", "name": None}, None),
        RowChange("deleted", {"id": 1}, {"id": 1, "day": "2026-01-01", "name": None}, None),
        RowChange(
            "updated",
            {"id": 3},
            {"id": 3, "day": "2026-01-01", "name": None},
            {"id": 3, "day": "2026-01-01", "name": "a"},
        ),
    )
    assert (none.total, none.rows) == (7, ())
