"""Servers that are killed while callers change things with keys, in a short form (tests/chaos/servers.py)."""

from __future__ import annotations

import pytest

from tests.chaos.servers import campaign


@pytest.mark.proof
@pytest.mark.long
def test_no_change_is_lost_or_made_twice_when_servers_are_killed(postgres_catalog_url, tmp_path):
    """A caller whose server dies asks another one, with the same key."""
    seen = campaign(postgres_catalog_url, tmp_path, 120, seed=1, kill_every=1.5)

    assert seen.breaches == []
    assert seen.kills >= 1
    assert seen.repeated >= 1
