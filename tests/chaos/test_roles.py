"""Nodes with separate roles that are killed while files land, in a short form (tests/chaos/roles.py)."""

from __future__ import annotations

import pytest

from tests.chaos.roles import campaign


@pytest.mark.proof
@pytest.mark.long
def test_no_file_is_lost_or_processed_twice_when_roles_are_killed(postgres_catalog_url, tmp_path):
    """A site with a machine for each role loses one of the machines now and then."""
    figures = campaign(postgres_catalog_url, tmp_path / "project", kills=3, seed=1, kill_every=0.8)

    assert figures.breaches == []
    assert figures.kills == 3
