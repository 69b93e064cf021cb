"""Deployments by way of a server: the app file is imported and packed here, and sent as JSON with its code."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Final

from tidemill.app.declaration import write_declaration
from tidemill.app.loading import load_with_code
from tidemill.errors import UserError
from tidemill.mill.apps import Apps
from tidemill.mill.deployment import check_single
from tidemill.mill.mill import load_begun
from tidemill.names import qualified
from tidemill.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tidemill.app.app import App
    from tidemill.app.deploy import Deployed
    from tidemill.config import Config
    from tidemill.mill.deployment import AppPlan
    from tidemill.run.records.bundles import Bundle
    from tidemill.world import World

MOST_SENT: Final = 7 * 2**20
"""The most letters of a packed bundle. The rest of a request of 8 MiB is for the declaration."""


class BundleTooLargeToSend(UserError):
    """The packed code of an app does not fit into a request to a server."""

    code = "bundle_too_large_to_send"

    def __init__(self, app_file: Path, found: int) -> None:
        self.app_file = str(app_file)
        self.bytes = found
        super().__init__(
            f"the packed code of {app_file} is {format_bytes(found)}, and a server takes {format_bytes(MOST_SENT)}: "
            "move data files elsewhere, or deploy beside the catalog"
        )


class Deploying:
    """The deployment of the app file of the project in `folder`, carried out by a server."""

    def __init__(self, apps: Apps, world: World, folder: Path) -> None:
        self._apps, self._world, self._folder = apps, world, folder

    def deploy(self, *, update_schedules: bool | None = None, if_generation: int | None = None) -> list[Deployed]:
        """Deploy the apps of the app file, one after the other; `NoProject`, `BrokenApp`, `BundleTooLargeToSend`."""
        config, apps, bundle = self._load()
        check_single(apps, if_generation)
        packed = base64.b64encode(bundle.to_zip()).decode()
        if len(packed) > MOST_SENT:
            raise BundleTooLargeToSend(config.app, len(packed))
        names = [qualified(app.namespace, app.name) for app in apps]
        return [
            self._apps.deploy(
                name,
                write_declaration(app),
                packed,
                file=_file_of(config),
                declared=names if app is apps[-1] else None,
                update_schedules=update_schedules,
                if_generation=if_generation,
            )
            for name, app in zip(names, apps, strict=True)
        ]

    def plan(self, *, update_schedules: bool | None = None) -> list[AppPlan]:
        """Show what a deployment would change; errors as of `deploy`."""
        config, apps, bundle = self._load()
        declarations = [write_declaration(app) for app in apps]
        found = self._apps.plan(declarations, bundle.sums, file=_file_of(config), update_schedules=update_schedules)
        return list(found)

    def _load(self) -> tuple[Config, Sequence[App], Bundle]:
        config = load_begun(self._world, self._folder)
        return config, *load_with_code(self._world.disk, config)


def _file_of(config: Config) -> str:
    """Return the app file relative to the folder of the project; its name alone if it lies elsewhere."""
    inside = config.app.is_relative_to(config.folder)
    return config.app.relative_to(config.folder).as_posix() if inside else config.app.name
