"""The overview: what needs a person, and the state of each feed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.server.busy import APP, make_busy
from tests.stage import staged


@pytest.fixture
def stage(catalog_url, tmp_path):
    """Make a busy project."""
    with staged(tmp_path, catalog_url, APP) as opened:
        yield make_busy(opened)


def test_the_overview_names_failures_quarantine_feeds_and_waiting_jobs(stage):
    """Each need has its evidence, and the command of the next step."""
    found = stage.mill.overview()

    assert [(need.kind, need.thing) for need in found.needs] == [
        ("failed", "default.shop.broken"),
        ("quarantine", "default.raw"),
    ]
    assert found.needs[0].look.startswith("run show run_")
    assert "bad.csv" in found.needs[1].evidence
    feeds = {feed.name: feed for feed in found.feeds}
    assert feeds["default.orders"].state == "fresh"
    assert sum(feeds["default.orders"].arrivals) == 1
    assert feeds["default.orders"].filled_by == ("default.shop.load",)
    assert feeds["default.late"].state == "quiet"
    assert feeds["default.orders"].waiting == 0
    assert [job.schedule for job in found.waiting] == ["default.shop.on_orders"]


def test_a_feed_with_a_broken_expectation_is_late(stage):
    """A feed that stays away is a need, though nothing has failed."""
    stage.sql("UPDATE expectation SET arrived_at = 1000, since_at = 1000, broken_since = 5000 RETURNING 1")
    found = stage.mill.overview()

    assert [need.thing for need in found.needs if need.kind == "late"] == ["default.raw"]
    assert {feed.name: feed.state for feed in found.feeds}["default.raw"] == "late"


def test_a_success_ends_the_need(stage):
    """The newest run of a program counts."""
    stage.sql("UPDATE run SET state = 'COMPLETED' WHERE state = 'FAILED' RETURNING 1")

    assert [need.kind for need in stage.mill.overview().needs] == ["quarantine"]


def test_feeds_are_paged(stage):
    """A site has a thousand data sets."""
    first = stage.mill.overview(limit=2)
    rest = stage.mill.overview(limit=2, after=first.next)

    assert [feed.name for feed in (*first.feeds, *rest.feeds)] == ["default.late", "default.orders", "default.raw"]
    assert rest.next is None


def test_failures_in_a_row_are_counted_from_the_first_and_name_a_new_version(stage):
    """A person wants to know since when, and whether the last deployment broke it."""
    (first,) = stage.mill.runs.list(program="shop.broken")
    for _ in range(2):
        stage.mill.runs.start("shop.broken")
        stage.play()
    (need,) = [one for one in stage.mill.overview().needs if one.kind == "failed"]

    assert need.said == "default.shop.broken failed 3 times in a row"
    assert need.since == first.ended_at
    assert "since version" not in need.evidence

    stage.sql(f"UPDATE run SET state = 'COMPLETED', app_version = 7 WHERE run_id = '{first.run_id}' RETURNING 1")
    (need,) = [one for one in stage.mill.overview().needs if one.kind == "failed"]
    assert need.said == "default.shop.broken failed 2 times in a row"
    assert need.evidence.endswith("since version 1 of the app")


def test_a_job_that_waits_longer_than_the_last_jobs_is_a_need(stage):
    """Work that never starts fails nowhere: only its wait shows that something is wrong."""
    (job,) = stage.mill.overview().waiting
    assert (job.longest, job.unusual) == (None, False)
    schedule_id = stage.sql("SELECT schedule_id FROM job")[0][0]
    for number in range(5):
        stage.sql(
            "INSERT INTO job_history (job_id, schedule_id, generation, outcome, created_at, ended_at) "
            f"VALUES ('old_{number}', '{schedule_id}', 1, 'launched', {1000 * number}, {1000 * number + 60_000}) "
            "RETURNING 1"
        )
    assert [one.kind for one in stage.mill.overview().needs] == ["failed", "quarantine"]

    stage.sql("UPDATE job SET created_at = created_at - 121000 RETURNING 1")
    found = stage.mill.overview()

    assert found.waiting[0].longest == timedelta(minutes=1)
    (need,) = [one for one in found.needs if one.kind == "waits"]
    assert need.thing == "default.shop.on_orders"
    assert need.evidence.endswith("the last jobs waited at most 1m")
    assert need.look == f"why {job.job_id}"

    stage.mill.schedules.suspend("shop.on_orders", mode="hold")
    assert [one.kind for one in stage.mill.overview().needs] == ["failed", "quarantine"]


def test_a_feed_says_when_the_next_arrival_is_due(stage):
    """Freshness is a time against an expectation."""
    feeds = {feed.name: feed for feed in stage.mill.overview().feeds}

    assert feeds["default.raw"].due_at == feeds["default.raw"].last_arrival + timedelta(hours=1)
    assert feeds["default.late"].due_at is None
