from __future__ import annotations

from contextlib import closing

import pytest

from tests.acceptance.site import Site
from tests.manual_clock import ManualClock, backdoor_of
from tests.stage import EMPTY, open_stage


@pytest.fixture
def site(catalog_url, tmp_path):
    """An empty project on each database, at the time of its clock."""
    clock = ManualClock()
    site = open_stage(Site, tmp_path, catalog_url, EMPTY, clock=clock)
    site.clock = clock
    with closing(site.mill), backdoor_of(catalog_url) as behind:
        clock.rule(behind, site.mill.project.catalog.dialect)
        yield site
