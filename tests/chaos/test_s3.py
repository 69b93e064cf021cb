"""A bucket whose requests break at random, in a short form (tests/chaos/s3.py)."""

from __future__ import annotations

import pytest

from tests.chaos.s3 import campaign
from tests.s3_stub import Trouble, running_s3_stub
from tests.seed_of_the_day import TODAY


@pytest.mark.proof
def test_each_file_is_processed_once_though_requests_break(catalog_url, tmp_path):
    """A client cannot tell whether a request that broke was done: it looks, or does it again without harm."""
    with running_s3_stub() as stub:
        figures = campaign(catalog_url, stub, tmp_path / "project", files=40, seed=TODAY)

    assert figures.breaches == [], f"TIDEMILL_SEED={TODAY} plays it again"
    assert figures.troubles.keys() == set(Trouble)
