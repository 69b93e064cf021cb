"""Moving a project: every location in a catalog that lies in the old folder of the project lies in the new one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.errors import Conflict, UserError
from tidemill.lake.datasets import Dataset, change_spec, list_datasets
from tidemill.run.records.programs import AppSpec
from tidemill.run.records.runs import list_live
from tidemill.storage.files import StorageUnavailable
from tidemill.storage.locations import open_files

if TYPE_CHECKING:
    from tidemill.upkeep.move_sql import Sql

SQL: Sql = load_sql(__file__)


class NotMoved(UserError):
    """A project whose old folder is not known, or whose files do not lie in the new one."""

    code = "not_moved"
    hint = "name the folder where the project was by --from, and copy all of its files first"

    def __init__(self, folder: str, why: str) -> None:
        self.folder = folder
        self.why = why
        super().__init__(f"the catalog is not moved to {folder}: {why}")


class StillRunning(Conflict):
    """A run is under way, and writes where the project was."""

    code = "still_running"

    def __init__(self, run_id: str, seconds: int) -> None:
        self.run_id = run_id
        self.seconds = seconds
        super().__init__(
            f"run {run_id} is in progress",
            f"stop all Tidemill processes first; the lease of a run whose process was killed ends in {seconds} s",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move: the folders, and the data sets by their qualified names."""

    old: str
    new: str
    datasets: tuple[str, ...]


def move(catalog: Catalog, new: Path, old: Path | None = None, note: NoteChange | None = None) -> Moved:
    """Name the folder `new` of a project wherever the catalog names `old`, in one transaction; no file is moved.

    Without `old`, the one other folder from which apps were deployed. Call it when nothing else of Tidemill runs. What
    lies outside of the folder stays as it is. Raises `NotMoved`, `StillRunning`. Cost: reads all runs and files.
    """

    def block(db: Db) -> Moved:
        db.tick()
        begun = old or _find_old(db, new)
        now = db.now()
        for run in list_live(db):
            if run.lease_until is not None and run.lease_until > now:
                raise StillRunning(run.run_id, (run.lease_until - now) // timedelta(seconds=1) + 1)
        urls = f"{begun.as_uri()}/", f"{new.as_uri()}/"
        names = tuple(dataset.qualified_name for dataset in list_datasets(db) if _move(catalog, db, dataset, urls))
        paths = f"{begun}/", f"{new}/"
        db.run(SQL.move_logs, old=paths[0], new=paths[1])
        for statement in (SQL.move_archives, SQL.move_archived, SQL.move_bundles, SQL.move_uploads):
            db.run(statement, old=urls[0], new=urls[1])
        for program_id, spec in db.all(SQL.list_programs):
            db.run(SQL.move_program, program_id=program_id, spec=_moved_spec(str(spec), ["app_file"], paths))
        for namespace, name, spec in db.all(SQL.list_apps):
            moved = _moved_spec(str(spec), ["file", "project"], paths)
            db.run(SQL.move_app, namespace=namespace, name=name, spec=moved)
        if note is not None:
            note.between({"folder": str(begun)}, {"folder": str(new)}).write(db)
        return Moved(str(begun), str(new), names)

    return catalog.write(block)


def _find_old(db: Db, new: Path) -> Path:
    apps = db.records(SQL.list_apps, tuple[str, str, AppSpec])
    folders = {Path(spec.project) for *_, spec in apps} - {new}
    match sorted(folders):
        case [folder]:
            return folder
        case []:
            raise NotMoved(str(new), "all apps were deployed from there already")
        case several:
            shown = ", ".join(map(str, several))
            raise NotMoved(str(new), f"apps were deployed from several folders ({shown}): name the old one by --from")


def _move(catalog: Catalog, db: Db, dataset: Dataset, urls: tuple[str, str]) -> bool:
    """Move a data set that lies in the old folder; whether it does."""
    archive = None if dataset.archive is None else _moved(dataset.archive, urls)
    spec = dict(dataset.spec) if archive is None else {**dataset.spec, "archive": archive}
    moved = replace(dataset, location=_moved(dataset.location, urls), spec=spec)
    if moved == dataset:
        return False
    if moved.location != dataset.location:
        try:
            open_files(moved.location, catalog.world).check_location()
        except StorageUnavailable as error:
            why = f"{dataset.qualified_name} has nothing at {moved.location}: {error.why}; move the folder first"
            raise NotMoved(urls[1], why) from error
    change_spec(db, moved)
    return True


def _moved(text: str, prefixes: tuple[str, str]) -> str:
    old, new = prefixes
    return new + text.removeprefix(old) if text.startswith(old) else text


def _moved_spec(spec: str, fields: Sequence[str], paths: tuple[str, str]) -> str:
    decoded = json.loads(spec)
    for field in fields:
        if field in decoded:
            # The folder itself, and what lies in it.
            decoded[field] = _moved(f"{decoded[field]}/", paths).rstrip("/")
    return json.dumps(decoded)
