"""`Mill`: every operation of a project behind one object, so that Python, command line and pages cannot differ.

One object for a process; threads may share it. It opens the catalog and hands each operation to the room that it is
about; each noun has a file of its own here, with the records that it tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from tidemill.app.deploy import Deployed, deploy, find_left
from tidemill.app.loading import load_with_code
from tidemill.catalog.db import NO_CATALOG_YET, CatalogUnavailable
from tidemill.catalog.engine import connect, open_catalog
from tidemill.catalog.migrate import migrate, read_version
from tidemill.config import load_config, without_password
from tidemill.errors import UserError
from tidemill.mill.apps import Apps
from tidemill.mill.consumers import Consumers
from tidemill.mill.datasets import Datasets
from tidemill.mill.jobs import Jobs
from tidemill.mill.outside_claims import OutsideClaims
from tidemill.mill.partitions import Partitions
from tidemill.mill.project import open_room
from tidemill.mill.runs import Runs
from tidemill.mill.schedule_changes import ScheduleChanges
from tidemill.mill.snapshots import Snapshots
from tidemill.mill.statements import Statements
from tidemill.mill.topics import Topics
from tidemill.mill.transactions import Transactions
from tidemill.mill.upkeep import Upkeep
from tidemill.mill.watermarks import Watermarks
from tidemill.run.bundles import delete_unused, store_bundle
from tidemill.storage.files import open_files
from tidemill.world import World


class NoProject(UserError):
    """A command that deploys was called in a folder that holds no project."""

    code = "no_project"

    def __init__(self, folder: Path, app: Path) -> None:
        self.folder = str(folder)
        self.app = str(app)
        super().__init__(
            f"there is no project in {folder}: it has no app file {app}. `tidemill init NAME` writes a project; "
            "`tidemill --project DIR …` names the folder of one"
        )


class OldData(UserError):
    """A new catalog would be made beside the data of an earlier one, which it would not know."""

    code = "old_data"

    def __init__(self, catalog: str, data: str) -> None:
        self.catalog = catalog
        self.data = data
        super().__init__(
            f"there is no catalog {catalog}, but {data} holds the data of an earlier one: put a backup in its place by "
            "`tidemill catalog restore BACKUP --adopt`, or begin with an empty catalog, which knows nothing of these "
            "data, by --new"
        )


def open_project(
    folder: Path, *, options: Mapping[str, str] | None = None, create: bool = False, world: World | None = None
) -> Mill:
    """Open the project in `folder`; `options` override its settings. `create` makes the catalog if there is none."""
    return open_room(Mill, folder, options=options, create=create, world=world)


def begin_project(
    folder: Path, *, options: Mapping[str, str] | None = None, new: bool = False, world: World | None = None
) -> Mill:
    """Open the project in `folder` to deploy its app file; the first time, that makes its catalog.

    Raises `NoProject` in a folder without an app file; `OldData` where a catalog would be made beside the data of an
    earlier one, unless `new`.
    """
    world = world or World()
    config = load_config(world, folder, options)
    if not world.disk.exists(config.app):
        raise NoProject(config.folder, config.app)
    data = open_files(config.data, world).local_path()
    held = data is not None and any(path.is_dir() for path in world.disk.list_folder(data))
    if held and not new and not _has_catalog(config.catalog, world):
        raise OldData(without_password(config.catalog), config.data)
    return Mill(open_catalog(config.catalog, world), world, config)


def _has_catalog(url: str, world: World) -> bool:
    """Whether there is a catalog; also said of one that cannot be reached at this moment."""
    try:
        catalog = connect(url, world, create=False)
    except CatalogUnavailable as error:
        return error.why != NO_CATALOG_YET
    try:
        return read_version(catalog) > 0
    finally:
        catalog.close()


def open_mill(where: str | Path) -> Mill:
    """Open a project by its folder, or a catalog by its URL, with the settings of the current folder."""
    text = str(where)
    if "://" in text:
        return open_project(Path(), options={"catalog": text}, create=True)
    return open_project(Path(where), create=True)


def migrate_project(folder: Path, *, options: Mapping[str, str] | None = None) -> list[int]:
    """Bring the schema of the project's catalog up to date; the versions applied."""
    world = World()
    catalog = connect(load_config(world, folder, options).catalog, world, create=False)
    try:
        return migrate(catalog)
    finally:
        catalog.close()


class Mill(
    Runs,
    Transactions,
    Datasets,
    Partitions,
    OutsideClaims,
    Snapshots,
    Consumers,
    ScheduleChanges,
    Jobs,
    Topics,
    Apps,
    Watermarks,
    Statements,
    Upkeep,
):
    """A project: its catalog, its configuration, and what can be done with them."""

    def deploy(self, *, update_schedules: bool = True) -> list[Deployed]:
        """Deploy the apps of the configured app file, each in one transaction, in their order in the file.

        Their programs run the code that lies there at this moment, until the next deployment. The last result names
        apps of this project that the app file no longer declares: they go on until `delete_app`.
        """
        apps, bundle = load_with_code(self.world.disk, self.config)
        stored = store_bundle(self.catalog, self.config.data, bundle)
        try:
            deployed = [
                deploy(self.catalog, self.world, self.config, app, update_schedules=update_schedules, bundle=stored)
                for app in apps
            ]
            left = self.catalog.read(lambda db: find_left(db, self.world, self.config, apps))
            return [*deployed[:-1], replace(deployed[-1], apps_left=left)]
        finally:
            delete_unused(self.catalog, stored)
