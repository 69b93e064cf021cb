"""The diff of two versions is what a plain comparison of their rows gives."""

from __future__ import annotations

import random

import pytest

from tidemill.lake.snapshot.version_diff import NotComparable, diff_frames

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
    """A doubled key would multiply rows, and nobody would know which is which."""
    once = spark.sql("SELECT 1 AS id, 'a' AS name")
    twice = spark.sql("SELECT id, 'a' AS name FROM VALUES (1), (1) AS t(id)")
    null = spark.sql("SELECT CAST(NULL AS INT) AS id, 'a' AS name")

    with pytest.raises(NotComparable, match="it has no key; name its columns where it is declared"):
        diff_frames("default.users", once, once, [])
    with pytest.raises(NotComparable, match="has no column nr, which is in its key"):
        diff_frames("default.users", once, once, ["nr"])
    with pytest.raises(NotComparable, match="the key id=1 stands in 2 rows"):
        diff_frames("default.users", once, twice, ["id"])
    with pytest.raises(NotComparable, match="or is null"):
        diff_frames("default.users", null, once, ["id"])
