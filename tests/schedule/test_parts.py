"""Parts of a schedule: its trigger as a tree with counts, its constraints with answers."""

from __future__ import annotations

import pytest

from tests.stage import staged

APP = """
import datetime
import tidemill as tm

app = tm.App("shop")
left = app.fileset("left", keys={"day": "date"})
right = app.fileset("right", keys={"day": "date"})

@app.python(reads=[left, right])
def join(run):
    pass

both = tm.AllOf(tm.NewPartitions(left, 3), tm.NewPartitions(right), patience="2h")
app.schedule("join", join, trigger=both | tm.Cron("30 2 * * *"), constraints=[tm.Delay("1h"), tm.Concurrency(2)])
"""


@pytest.fixture
def stage(catalog_url, tmp_path):
    """A deployed project."""
    with staged(tmp_path, catalog_url, APP) as opened:
        yield opened


def test_a_schedule_without_a_job_shows_its_trigger_as_a_tree_that_was_fed_nothing(stage):
    """A person reads the tree from the top: what is enough, and what of it is there."""
    found = stage.mill.schedules.show("shop.join")

    assert [(one.depth, one.type, one.text, one.holds) for one in found.parts] == [
        (0, "any_of", "any of", False),
        (1, "all_of", "all of, or 2h after the first", False),
        (2, "new_partitions", "NewPartitions(default.left, 3)", False),
        (2, "new_partitions", "NewPartitions(default.right)", False),
        (1, "cron", "Cron('30 2 * * *', zone='UTC')", False),
    ]
    assert (found.job_id, found.fed) == (None, 0)
    assert [(one.text, one.holds) for one in found.constraint_parts] == [
        ("Delay('1h')", None),
        ("Concurrency(2)", None),
    ]


def test_the_tree_counts_what_has_fed_the_open_job(stage):
    """`2/3 partitions since 09:12` tells at once what is missing."""
    stage.publish("left", "day=2026-01-01", "day=2026-01-02")
    stage.play()
    found = stage.mill.schedules.show("shop.join")
    whole, both, left, right, cron = found.parts

    assert [one.count for one in (whole, both, left, right, cron)] == [2, 2, 2, 0, 0]
    assert left.why == "2/3 new partitions of default.left"
    assert left.since == both.since == whole.since is not None
    assert (both.not_before - both.since).total_seconds() == 7200
    assert found.job_id == stage.mill.jobs.list()[0].job_id
    assert stage.mill.jobs.show(found.job_id).parts == found.parts


def test_constraints_show_the_answers_of_the_last_check(stage):
    """A program that could start, and does not, waits for one of these."""
    stage.publish("left", "day=2026-01-01", "day=2026-01-02", "day=2026-01-03")
    stage.publish("right", "day=2026-01-01")
    stage.play()
    found = stage.mill.schedules.show("shop.join")

    assert found.parts[0].holds
    assert [(one.type, one.holds) for one in found.constraint_parts] == [("delay", False), ("concurrency", True)]
    assert found.constraint_parts[0].not_before is not None
