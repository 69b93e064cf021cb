"""The schema and its versions: numbered migrations, forward only.

A migration is `migrations/NNNN_what.sql`, one text for both databases, and beside it `NNNN_what.postgres.sql` for what
only PostgreSQL has, run first. An older program refuses a newer catalog.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import NO_CATALOG_YET, CatalogUnavailable
from tidemill.catalog.named import Dialect, load_sql, render
from tidemill.epoch import to_ms
from tidemill.errors import UserError

if TYPE_CHECKING:
    from tidemill.catalog.db import Catalog
    from tidemill.catalog.migrate_sql import Sql

_FILE: Final = re.compile(r"(?P<version>\d{4})_(?P<name>\w+)\.sql")
_INCARNATION_CHARACTERS: Final = 8

SQL: Sql = load_sql(__file__)


class OlderCatalog(UserError):
    """The catalog was made by an older Tidemill."""

    code = "older_catalog"

    def __init__(self, url: str, found: int, wanted: int) -> None:
        self.url = url
        self.found = found
        self.wanted = wanted
        super().__init__(
            f"catalog {url} has schema version {found}, this program needs {wanted}",
            "stop all Tidemill processes, make a backup, then run `tidemill catalog migrate`",
            before=": ",
        )


class NewerCatalog(UserError):
    """The catalog was made by a newer Tidemill, which this program could harm."""

    code = "newer_catalog"

    def __init__(self, url: str, found: int, wanted: int) -> None:
        self.url = url
        self.found = found
        self.wanted = wanted
        super().__init__(
            f"catalog {url} has schema version {found}, this program knows only up to {wanted}",
            "upgrade tidemill",
            before=": ",
        )


def check_version(catalog: Catalog, *, create: bool) -> None:
    """Make the schema of an empty database when `create`; raise unless it is exactly this program's."""
    found = read_version(catalog)
    wanted = max(_migrations())
    if found == 0:
        if not create:
            raise CatalogUnavailable(catalog.shown_url, NO_CATALOG_YET)
        migrate(catalog)
    elif found < wanted:
        raise OlderCatalog(catalog.shown_url, found, wanted)
    elif found > wanted:
        raise NewerCatalog(catalog.shown_url, found, wanted)


def read_version(catalog: Catalog) -> int:
    """The version of the catalog's schema; 0 for an empty database."""
    if not catalog.has_table("migration"):
        return 0
    return catalog.read(lambda db: db.records(SQL.read_version, int)[0])


def read_incarnation(catalog: Catalog) -> str:
    """The name of this catalog's life."""
    return catalog.read(lambda db: db.records(SQL.read_incarnation, str)[0])


def migrate(catalog: Catalog, *, by: str = "") -> list[int]:
    """Apply the missing migrations, and return their versions, oldest first. Each transaction notes the caller (`by`).

    If two processes migrate at one time, each migration is applied once. An empty database becomes a catalog in one
    transaction, so that no process finds half a catalog. Later migrations are one transaction each.
    """
    found = read_version(catalog)
    known = _migrations()
    missing = sorted(version for version in known if version > found)
    steps = [[version] for version in missing] if found else [missing]
    for step in steps:
        if step:
            scripts = [_script(catalog, version, *known[version]) for version in step]
            note = _note(catalog, by, step[0] - 1, step[-1]) if by else ""
            catalog.run_script("\n".join([*scripts, note]), unless=step[0])
    return missing


def _note(catalog: Catalog, by: str, before: int, after: int) -> str:
    """Return the audit row of a migration, as a statement of its script, which takes no parameters."""
    detail = json.dumps({"before": {"schema": before}, "after": {"schema": after}}, separators=(",", ":"))
    named = catalog.world.new_id("audit"), by, "catalog.migrate", "catalog", detail
    texts = ", ".join("'{}'".format(one.replace("'", "''")) for one in named)
    at = to_ms(catalog.world.clock.now())
    return f"INSERT INTO audit (at, audit_id, actor, action, subject, detail) VALUES ({at}, {texts});"


def _script(catalog: Catalog, version: int, name: str, texts: Mapping[Dialect, Sequence[str]]) -> str:
    script = "\n".join(render(text, catalog.dialect) for text in texts[catalog.dialect])
    at = to_ms(catalog.world.clock.now())
    script += f"\nINSERT INTO migration (version, name, applied_at) VALUES ({version}, '{name}', {at});"
    if version > 1:
        return script
    incarnation = catalog.world.token(_INCARNATION_CHARACTERS)
    clock = f"INSERT INTO clock (id, value, incarnation) VALUES (1, 0, '{incarnation}');"
    return f"{render(_FIRST, catalog.dialect)}\n{script}\n{clock}"


_FIRST: Final = """
CREATE TABLE migration (
    version    INTEGER PRIMARY KEY,
    name       TEXT NOT NULL,
    applied_at BIGINT NOT NULL
);
"""


@cache
def _migrations() -> dict[int, tuple[str, dict[Dialect, list[str]]]]:
    folder = resources.files("tidemill.catalog") / "migrations"
    texts = {entry.name: entry.read_text(encoding="utf-8") for entry in folder.iterdir() if entry.name.endswith(".sql")}
    found = {}
    for file, text in texts.items():
        if match := _FILE.fullmatch(file):
            only_postgres = texts.get(f"{match['version']}_{match['name']}.postgres.sql")
            found[int(match["version"])] = (
                match["name"],
                {Dialect.SQLITE: [text], Dialect.POSTGRES: [only_postgres, text] if only_postgres else [text]},
            )
    return found
