"""Deployments by way of a server: the app file is imported and packed here, and sent as JSON with its code."""

from __future__ import annotations

import base64
import json
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

MOST_SENT: Final = 8 * 2**20
"""The most bytes of a request that a server takes."""
_REST: Final = 2**12
"""Bytes of a request beside its declarations and its code: names and options."""


class BundleTooLargeToSend(UserError):
    """The packed code of an app does not fit into a request to a server."""

    code = "bundle_too_large_to_send"

    def __init__(self, app_file: Path, found: int, most: int) -> None:
        self.app_file = str(app_file)
        self.bytes = found
        self.most = most
        super().__init__(
            f"the packed code of {app_file} is {format_bytes(found)}, and {format_bytes(most)} fit beside the "
            f"declaration into a request of {format_bytes(MOST_SENT)}, where code grows by a third",
            "move data files elsewhere, or deploy beside the catalog, without --server",
            before=": ",
        )


class Deploying:
    """The deployment of the app file of the project in `folder`, carried out by a server."""

    def __init__(self, apps: Apps, world: World, folder: Path) -> None:
        self._apps, self._world, self._folder = apps, world, folder

    def deploy(self, *, update_schedules: bool | None = None, if_generation: int | None = None) -> list[Deployed]:
        """Deploy the apps of the app file, one after the other; `NoProject`, `BrokenApp`, `BundleTooLargeToSend`."""
        config, apps, bundle = self._load()
        check_single(apps, if_generation)
        names = [qualified(app.namespace, app.name) for app in apps]
        declarations = [write_declaration(app) for app in apps]
        code = bundle.to_zip()
        beside = max(len(json.dumps(one)) for one in declarations) + len(json.dumps(names)) + _REST
        most = max(MOST_SENT - beside, 0) // 4 * 3  # base64: four letters for three bytes
        if len(code) > most:
            raise BundleTooLargeToSend(config.app, len(code), most)
        packed = base64.b64encode(code).decode()
        return [
            self._apps.deploy(
                name,
                declaration,
                packed,
                file=_file_of(config),
                declared=names if number == len(names) else None,
                update_schedules=update_schedules,
                if_generation=if_generation,
            )
            for number, (name, declaration) in enumerate(zip(names, declarations, strict=True), 1)
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
