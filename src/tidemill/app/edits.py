"""Edits: the app file and its modules on disk, compared with what is deployed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.app.packing import pack
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.config import Config
from tidemill.errors import UserError
from tidemill.run.records.bundles import find_sums, hash_of
from tidemill.run.records.programs import AppSpec

if TYPE_CHECKING:
    from tidemill.app.edits_sql import Sql

SQL: Sql = load_sql(__file__)


class Edits:
    """Tells once of each edit that is not deployed."""

    def __init__(self, catalog: Catalog, config: Config, tell: Callable[[str], None]) -> None:
        self._catalog = catalog
        self._config = config
        self._tell = tell
        self._told: dict[str, str] = {}
        self._stamps: dict[Path, str] = {}
        """The files and folders of the bundle as they were at the last look."""

    def step(self) -> None:
        """Look at the files of the app; tell of an edit that was not there at the last look.

        Cost: a stat of each file; where one has changed, all are read.
        """
        app_file, disk = self._config.app, self._catalog.world.disk
        if self._stamps and not self._told and self._stamps == {path: disk.stamp(path) for path in self._stamps}:
            return
        try:
            packed = pack(disk, app_file)
            broken = _complaint(packed.files[app_file.name])
        except (OSError, UserError) as error:
            self._say({"": str(error)}, f"{app_file.name} cannot be read: {error}; what is deployed runs on")
            return
        deployed = self._catalog.read(self._read_deployed)
        files = {app_file.parent / name for name in packed.files.keys() | deployed.keys()}
        self._stamps = {path: disk.stamp(path) for path in files | {path.parent for path in files}}
        sums = packed.sums | self._read_others(deployed.keys() - packed.sums.keys())
        changed = {name: sum_ for name, sum_ in sums.items() if deployed.get(name) != sum_}
        if not deployed or not changed:
            self._told = {}
        elif broken:
            self._say(changed, f"{app_file.name} does not compile ({broken}); what is deployed runs on")
        else:
            names = ", ".join(changed)
            self._say(
                changed,
                f"{app_file.name} differs from what is deployed ({names}): restart `up` or run `tidemill deploy`",
            )

    def _read_others(self, names: Iterable[str]) -> dict[str, str]:
        """The hashes of those of the deployed files that are on disk: data files, and modules imported by a name."""
        disk, folder = self._catalog.world.disk, self._config.app.parent
        present = (name for name in names if disk.exists(folder / name))
        return {name: hash_of(disk.read_bytes(folder / name)) for name in present}

    def _read_deployed(self, db: Db) -> dict[str, str]:
        """The hashes of the files of the bundle that was deployed last from this app file."""
        specs = db.records(SQL.list_specs, tuple[AppSpec])
        bundles = [spec.bundle for (spec,) in specs if spec.file == str(self._config.app)]
        return find_sums(db, bundles[0]) if bundles else {}

    def _say(self, edit: dict[str, str], text: str) -> None:
        if edit != self._told:
            self._told = edit
            self._tell(text)


def _complaint(content: bytes) -> str:
    """Return why a Python file does not compile; empty if it does."""
    try:
        ast.parse(content)
    except (SyntaxError, ValueError) as error:
        return str(error)
    return ""
