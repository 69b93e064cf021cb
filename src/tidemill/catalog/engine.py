"""The door to the catalog: open it by its URL, with its schema made, or checked against this program."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from tidemill.catalog.migrate import check_version, read_incarnation
from tidemill.errors import UserError

if TYPE_CHECKING:
    from tidemill.catalog.db import Catalog
    from tidemill.catalog.meter import Meter
    from tidemill.world import World


class BadCatalogUrl(UserError):
    """A catalog URL that is neither SQLite's nor PostgreSQL's."""

    code = "bad_catalog_url"

    def __init__(self, url: str) -> None:
        self.url = url
        super().__init__(
            f"catalog {url!r} is refused", "use sqlite:///PATH or postgresql://USER@HOST/DATABASE", before=": "
        )


def open_catalog(url: str, world: World, *, create: bool = True, meter: Meter | None = None, node: str = "") -> Catalog:
    """Open the catalog at `url` (`sqlite:///PATH`, `postgresql://…`), making or checking its schema.

    `sqlite:///NAME?vfs=memdb` is one in the memory of this process, which all its connections share and which goes
    with the last of them. `meter` counts the blocks and the wake-ups of the catalog. A driver gives the
    `Catalog.node` of the process that has started the driver.
    Raises `BadCatalogUrl`, `CatalogUnavailable` (no such catalog and not `create`, or not reachable), `OlderCatalog`,
    `NewerCatalog`.
    """
    catalog = connect(url, world, create=create, meter=meter, node=node)
    try:
        check_version(catalog, create=create)
        catalog.incarnation = read_incarnation(catalog)
    except BaseException:
        catalog.close()
        raise
    return catalog


def connect(url: str, world: World, *, create: bool = True, meter: Meter | None = None, node: str = "") -> Catalog:
    """Open the database at `url` without looking at its schema: what a migration starts from."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise BadCatalogUrl(url) from None
    match parts:
        case ("sqlite", "", path, "" | "vfs=memdb", "") if path.startswith("/") and path.strip("/"):
            from tidemill.catalog.sqlite import SqliteCatalog  # only the database in use is loaded

            return SqliteCatalog(url, world, create=create, meter=meter)
        case ("postgresql" | "postgres", *_):
            from tidemill.catalog.postgres import PostgresCatalog  # an optional extra

            return PostgresCatalog(url, world, meter, node)
        case _:
            raise BadCatalogUrl(url)
