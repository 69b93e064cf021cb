"""A single topic, as `mill.topics.show` gives it."""

from __future__ import annotations

import pytest

from tests.errors import raises_code
from tests.server.busy import APP, make_busy
from tests.stage import staged


@pytest.fixture
def stage(catalog_url, tmp_path):
    """Make a busy project."""
    with staged(tmp_path, catalog_url, APP) as opened:
        yield make_busy(opened)


def test_a_topic_is_shown_as_the_list_shows_it(stage):
    """The page of a topic and the list of topics have the same facts."""
    listed = {one.topic: one for one in stage.mill.topics.list()}

    assert {topic: stage.mill.topics.show(topic) for topic in listed} == listed
    assert listed["data"].subscribers["scheduler"] == listed["data"].newest
    assert listed["own"].subscribers == {}


def test_a_topic_without_messages_has_no_newest(tmp_path, catalog_url):
    """The topics of commits are there before the first commit."""
    with staged(tmp_path / "new", catalog_url, APP) as fresh:
        found = fresh.mill.topics.show("program")

    assert (found.newest, found.newest_at, found.quarantined) == ("", None, 0)


def test_an_unknown_topic_is_named_with_the_nearest(stage):
    """A typing error of a person."""
    with raises_code("not_found", "data"):
        stage.mill.topics.show("dta")
