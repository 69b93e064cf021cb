"""An open catalog on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.world import World

OpenCatalog = Callable[..., Catalog]


@pytest.fixture
def open_again(catalog_url: str) -> Iterator[OpenCatalog]:
    """Open the test's catalog once more, as another process would; closed after the test."""
    opened: list[Catalog] = []

    def open_one(url: str = catalog_url, world: World | None = None) -> Catalog:
        opened.append(open_catalog(url, world or World()))
        return opened[-1]

    yield open_one
    for catalog in opened:
        catalog.close()


@pytest.fixture
def catalog(open_again: OpenCatalog) -> Catalog:
    """A new catalog."""
    return open_again()
