"""Finding the apps that an app file declares, and the code that they run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tidemill.app.app import App
from tidemill.app.packing import pack
from tidemill.config import Config
from tidemill.run.records.bundles import Bundle
from tidemill.run.records.modules import is_of_project
from tidemill.run.records.programs import BrokenApp, load_apps
from tidemill.shapes.custom_time import forget_modules
from tidemill.world import Disk

_MOST_READS: Final = 5
_brought: set[str] = set()
"""The modules that app files have imported from beside them in this process."""


def load_declared(app_file: Path, bundle: Path | None = None) -> list[App]:
    """The apps that `app_file` declares, in their order in the file; `BrokenApp` when it fails or declares none.

    With the folder of an unpacked `bundle`, the app file and its modules come from there.
    """
    apps = [app for app in load_apps(app_file, bundle) if isinstance(app, App)]
    if not apps:
        raise BrokenApp(app_file, "it declares no app; write `app = tm.App(NAME)`")
    for number, app in enumerate(apps):
        if any((app.namespace, app.name) == (other.namespace, other.name) for other in apps[:number]):
            raise BrokenApp(app_file, f"it declares two apps named {app.name!r}; give each a name of its own")
    return apps


def load_with_code(disk: Disk, config: Config) -> tuple[list[App], Bundle]:
    """The apps of the configured app file, and its code: exactly the files that declared them.

    Modules beside the app file are imported again. Raises `BrokenApp`, `BundleTooLarge`, `MissingFiles`.
    """
    app_file = config.app
    patterns: tuple[str, ...] = ()
    for _ in range(_MOST_READS):
        forget_brought()
        before = pack(disk, app_file, patterns=patterns) if disk.exists(app_file) else Bundle({})
        known = set(sys.modules)
        apps = load_declared(app_file)
        new = {name: module for name, module in sys.modules.items() if name not in known}
        beside = {
            name: Path(file)
            for name, module in new.items()
            if (file := getattr(module, "__file__", None)) and _is_of_project(Path(file), config.folder, app_file)
        }
        _brought.update(beside)
        # An app file may read its data files while it loads: they are compared like the code.
        known_patterns, patterns = patterns, tuple(pattern for app in apps for pattern in app.files)
        modules = {name: path for name, path in beside.items() if path != app_file}
        bundle = pack(disk, app_file, modules, patterns)
        if patterns == known_patterns and before.files.items() <= bundle.files.items():
            return apps, bundle
    raise BrokenApp(app_file, "it, or a module that it imports, changes all the time; deploy again when it is saved")


def forget_brought() -> None:
    """Have modules beside app files imported again, also by a driver in this process (`tidemill.testing`)."""
    forget_modules()
    for name in _brought & sys.modules.keys():
        del sys.modules[name]


def _is_of_project(file: Path, folder: Path, app_file: Path) -> bool:
    """Say if a module belongs to the project, and not to an environment that lies in its folder."""
    root = next((root for root in (app_file.parent, folder) if file.is_relative_to(root)), None)
    return file.suffix == ".py" and root is not None and is_of_project(file, root)
