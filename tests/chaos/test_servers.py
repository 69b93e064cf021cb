"""Servers that are killed while callers change things with keys, in a short form (tests/chaos/servers.py)."""

from __future__ import annotations

import os

import pytest

from tests.chaos.launches import own_schema
from tests.chaos.servers import campaign
from tests.postgres_server import ADDRESS


@pytest.mark.proof
@pytest.mark.skipif(ADDRESS not in os.environ, reason="two servers share a PostgreSQL: python -m tests.postgres_server")
def test_no_change_is_lost_or_made_twice_when_servers_are_killed(tmp_path):
    """A caller whose server dies asks another one, with the same key."""
    with own_schema(os.environ[ADDRESS]) as url:
        seen = campaign(url, tmp_path, 120, seed=1, kill_every=1.5)

    assert seen.breaches == []
    assert seen.kills >= 1
    assert seen.repeated >= 1
