"""The overview: what needs a person, and the state of each feed."""

from __future__ import annotations

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
