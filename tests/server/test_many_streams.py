"""Streams of a real server process, in a short form (tests/server/streams.py)."""

from __future__ import annotations

import pytest

from tests.server.streams import STREAMS, measure


@pytest.mark.long
def test_many_streams_cost_little_memory_and_no_query(postgres_catalog_url, tmp_path):
    """Each person at a site has some pages open, for the whole day."""
    found = measure(postgres_catalog_url, tmp_path, STREAMS, quiet=3)

    assert found.more <= 100
    assert found.queries == 0
    assert found.woken == STREAMS
