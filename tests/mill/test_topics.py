"""The cost of operations on one topic among many."""

from __future__ import annotations

import pytest

from tests.errors import raises_code
from tests.server.busy import APP, make_busy
from tests.stage import staged
from tidemill.catalog.db import Db


@pytest.fixture
def stage(catalog_url, tmp_path):
    """Make a busy project."""
    with staged(tmp_path, catalog_url, APP) as opened:
        yield make_busy(opened)


def test_a_topic_that_is_there_is_looked_up_alone(stage, monkeypatch):
    """With 100,000 topics, each read of a topic walked over all their names."""
    stage.mill.topics.create("quiet")
    rows: dict[str, int] = {}
    plain = Db.records

    def records(db, statement, kind, /, *args, **params):
        found = plain(db, statement, kind, *args, **params)
        rows[statement.name] = rows.get(statement.name, 0) + len(found)
        return found

    monkeypatch.setattr(Db, "records", records)
    for topic in ("own", "quiet", "data"):
        stage.mill.topics.read(topic)
        stage.mill.topics.quarantined(topic)
        stage.mill.topics.update(topic, keep="9d")
    stage.mill.topics.delete("own")

    assert "topics.read_newest" in rows
    assert "topics.list_newest" not in rows
    with raises_code("not_found", "quiet"):
        stage.mill.topics.read("quite")
