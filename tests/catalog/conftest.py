"""An open catalog on each database."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tidemill.catalog.db import Catalog
from tidemill.catalog.engine import open_catalog
from tidemill.world import World

OpenCatalog = Callable[..., Catalog]


@pytest.fixture
def open_at() -> Iterator[OpenCatalog]:
    """Open the catalog at an address, as a process of its own would; closed after the test."""
    opened: list[Catalog] = []

    def open_one(url: str, world: World | None = None, node: str = "") -> Catalog:
        opened.append(open_catalog(url, world or World(), node=node))
        return opened[-1]

    yield open_one
    for catalog in opened:
        catalog.close()


@pytest.fixture
def open_again(catalog_url: str, open_at: OpenCatalog) -> OpenCatalog:
    """Open the test's catalog once more."""
    return lambda world=None: open_at(catalog_url, world)


@pytest.fixture
def catalog(open_again: OpenCatalog) -> Catalog:
    """A new catalog."""
    return open_again()
